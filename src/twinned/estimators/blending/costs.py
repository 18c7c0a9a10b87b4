"""Expected times of the fits of members, of the blend and of its calibration."""

from __future__ import annotations

from typing import Self

import numpy as np
from joblib import effective_n_jobs

from twinned.estimators.blending.members import (
    SIZES,
    TWIN_SIZES,
    MemberSpec,
    TwinSizes,
    resolve_members,
)
from twinned.estimators.blending.rows import default_folds
from twinned.fitted.calibration import MAX_SPLIT_FEATURES
from twinned.models.base_estimator import MAX_FEATURES, default_iterations, default_n_pairs
from twinned.models.learned_metric import MAX_ROWS as RELEVANCE_ROWS
from twinned.rows.training import TrainingRows

_NEURAL_FEATURES = 60  # beyond, networks have no periodic embedding, and a step takes no longer
# Evaluations of the likelihood in the search of `models.gaussian_process`: on few rows, then on
# more; with fewer rows per feature, the search in a fold does not start from that of all rows.
_COARSE_STEPS, _FINE_STEPS, _COARSE_ROWS, _ROWS_PER_FEATURE = 180, 30, 250, 15
# Of the time budget: fewer rows are fitted where boosting and the calibration take longer.
_SUBSET_SHARE, _LEAST_SUBSET = 0.5, 1000


class CostModel:
    """Expected seconds of the fits of a member on a recent machine."""

    def __init__(self, n_rows: int, n_columns: int, n_folds: int, n_jobs: int) -> None:
        self.n_rows, self.n_columns = n_rows, n_columns
        self.n_folds, self.n_jobs = n_folds, n_jobs

    @classmethod
    def of(cls, rows: TrainingRows, n_jobs: int) -> Self:
        n_rows, n_columns = rows.matrix.shape
        return cls(n_rows, n_columns, rows.n_folds, n_jobs)

    def seconds(self, spec: MemberSpec) -> float:
        """Expected seconds of all fits of a member, with `n_jobs`."""
        if spec.name in ("neural", "neural_twin"):
            return self._networks(spec)
        if spec.name in ("gp_matern", "gp_rbf"):
            return self._gaussian_processes(SIZES[spec.effort].gp_rows)
        if spec.one_fit:
            return self._one_fit(spec) * (1 + self.n_folds / 2)
        n_fits = self.n_folds + 1
        return self._one_fit(spec) * -(-n_fits // self.n_jobs) + 0.05

    def _one_fit(self, spec: MemberSpec) -> float:
        n, p, sizes = self.n_rows, self.n_columns, SIZES[spec.effort]
        if spec.name == "ridge":
            return 8e-9 * n * p**2 + 0.02
        if spec.name == "extra_trees":
            return sizes.trees * (2e-8 * n * np.log2(n + 1) * p + 1.2e-3)
        if spec.name == "boosting":
            return sizes.boosting_iterations * (4e-8 * n * p + 1e-4 * p + 1e-3)
        if spec.name == "tree_twin":
            twin = TWIN_SIZES.get(spec.effort)
            if twin is None or p > twin.max_features:
                p = min(p, MAX_FEATURES)
                twin = TwinSizes(default_iterations(n), default_n_pairs(p), p)
            pairs, iterations = min(twin.pairs, n * n / 2), twin.iterations
            return iterations * (6e-9 * pairs * 3 * p + 2e-3) + 2e-6 * n * n
        if spec.name == "catboost":
            return 0.8 + (0.1 + 2e-4 * n) * p
        return 1e-6 * n * p + 0.5

    def _gaussian_processes(self, max_rows: int) -> float:
        """A process of all rows, and one of each fold, whose search starts there."""
        n, p = self.n_rows, self.n_columns
        in_fold = int(n * (1 - 1 / self.n_folds))
        if in_fold < _ROWS_PER_FEATURE * p:
            fold = gp_seconds(in_fold, p)
        else:
            fold = _FINE_STEPS * _likelihood_seconds(min(in_fold, 1000), p)
        predicting = 2 * _likelihood_seconds(min(n, max_rows), p)
        return gp_seconds(n, p) + self.n_folds * fold + (1 + self.n_folds) * predicting

    def _networks(self, spec: MemberSpec) -> float:
        from twinned.models.neural.parameters import EFFORTS as NEURAL_EFFORTS

        sizes = NEURAL_EFFORTS[spec.effort]
        fold_steps = int(sizes.blend_fold_share * sizes.max_steps)
        n_steps = sizes.blend_members * sizes.max_steps
        n_steps += sizes.n_settings * self.n_folds * fold_steps
        per_step = (1.7e-5 if spec.name == "neural_twin" else 1e-5) * sizes.batch_size
        per_step *= 1 + min(self.n_columns, _NEURAL_FEATURES) / 30
        return 10.0 + n_steps * per_step / self.n_jobs


def gp_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of the search for the hyperparameters of a Gaussian process."""
    seconds = _COARSE_STEPS * _likelihood_seconds(min(n_rows, _COARSE_ROWS), n_columns)
    if n_rows > _COARSE_ROWS:
        seconds += _FINE_STEPS * _likelihood_seconds(min(n_rows, 1000), n_columns)
    return seconds


def _likelihood_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of a likelihood and its gradient."""
    return 2.1e-11 * n_rows**3 + (1e-7 + 7e-10 * n_columns) * n_rows**2


def finishing_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of the blend and of the calibration of intervals."""
    features = min(n_columns + 7, 2 * MAX_SPLIT_FEATURES)
    return 2.5 + 6e-6 * n_rows * np.log2(n_rows + 1) * features


def affordable_rows(n_rows: int, n_columns: int, seconds: float, n_jobs: int | None) -> int:
    """How many of `n_rows` rows can be fitted and calibrated within `seconds`, at least 1,000."""
    least = min(n_rows, _LEAST_SUBSET)
    (spec,) = resolve_members(["boosting:fast"], "fast")
    size = n_rows
    while size > least:
        cost = CostModel(size, n_columns, 5, effective_n_jobs(n_jobs))
        if finishing_seconds(size, n_columns) + cost.seconds(spec) <= _SUBSET_SHARE * seconds:
            break
        size = max(least, int(0.8 * size))
    return size


def relevance_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of the Gaussian process from which the relevance of features is learned."""
    return gp_seconds(min(n_rows, RELEVANCE_ROWS), n_columns)


def member_seconds(name: str, n_rows: int, n_columns: int, n_jobs: int | None) -> float:
    """Expected seconds of all fits of a member of a blend of these rows."""
    (spec,) = resolve_members([name], "balanced")
    model = CostModel(
        n_rows, n_columns, default_folds(n_rows, "balanced"), effective_n_jobs(n_jobs)
    )
    return model.seconds(spec)
