"""Expected seconds of the fits of members, and the remaining time of a fit with a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs

from twinned.estimators.blending.members import (
    SCREENED_FEATURES,
    SIZES,
    MemberSpec,
    resolve_members,
)
from twinned.fitted.calibration import MAX_SPLIT_FEATURES
from twinned.models.base_estimator import MAX_FEATURES
from twinned.models.base_estimator import SIZES as TREE_SIZES
from twinned.models.learned_metric import MAX_ROWS as METRIC_ROWS

# Expected gain: roughly the weight of a member in blends of the paper's data sets.
_GAIN = {
    "gp_matern": 3.0,
    "neural_twin": 3.0,
    "extra_trees": 2.0,
    "tree_twin": 2.0,
    "neural": 1.5,
    "gp_rbf": 1.5,
    "gp_tanimoto": 3.0,
    "boosting": 1.0,
    "ridge": 0.5,
}
_SAFETY = 1.15  # of expected times
_NEURAL_FEATURES = 60  # beyond, networks have no periodic embedding, and a step takes no longer
# Evaluations of the likelihood in the search of `models.gaussian_process`: on few rows, then on
# more; with fewer rows per feature, the search in a fold does not start from that of all rows.
_COARSE_STEPS, _FINE_STEPS, _FOLD_STEPS, _WIDE_STEPS = 140, 15, 20, 25
_COARSE_ROWS, _ROWS_PER_FEATURE, _NARROW_FEATURES = 250, 15, 20
# Of the time budget: fewer rows are fitted where boosting and the calibration take longer.
_SUBSET_SHARE, _LEAST_SUBSET = 0.5, 1000


class CostModel(NamedTuple):
    """Expected seconds of the fits of a member on a recent machine."""

    n_rows: int
    n_columns: int
    n_folds: int
    n_jobs: int

    def seconds(self, spec: MemberSpec) -> float:
        """Expected seconds of all fits of a member, with `n_jobs`."""
        if spec.plain_name != spec.name:
            (plain,) = resolve_members([f"{spec.plain_name}:{spec.effort}"], "balanced")
            return self.seconds(plain) + 4e-6 * self.n_folds * self.n_rows * self.n_columns
        if spec.name in ("neural", "neural_twin"):
            return self._seconds_of_networks(spec)
        seconds_of_fit = _FIT_SECONDS.get(spec.name, _seconds_of_unknown)
        seconds = seconds_of_fit(self.n_rows, self.n_columns, spec)
        rounds = -(-(self.n_folds + 1) // self.n_jobs)
        if not spec.one_fit:
            return seconds * rounds + 0.05
        if not spec.name.startswith("gp_"):
            return seconds * (1 + self.n_folds / 2) + 0.05
        fold_seconds = seconds
        if self.n_rows * (1 - 1 / self.n_folds) >= _ROWS_PER_FEATURE * self.n_columns:
            # the search in a fold starts from that of all rows
            n_rows = min(self.n_rows, SIZES[spec.effort].gp_rows // 2)
            fold_seconds = _FOLD_STEPS * _likelihood_seconds(n_rows, self.n_columns)
        return seconds + rounds * (fold_seconds + 0.03)

    def _seconds_of_networks(self, spec: MemberSpec) -> float:
        from twinned.models.neural.parameters import EFFORTS as NEURAL_EFFORTS

        sizes = NEURAL_EFFORTS[spec.effort]
        n_folds = min(self.n_folds, sizes.blend_folds)
        # as where there is little noise
        n_steps = (n_folds * sizes.blend_settings + sizes.blend_members) * sizes.max_steps
        per_step = (1e-5 if spec.name == "neural_twin" else 4e-6) * sizes.batch_size
        per_step *= 1 + min(self.n_columns, _NEURAL_FEATURES) / 30
        return 10.0 + n_steps * per_step / self.n_jobs


# --- expected seconds of one fit to n rows of p columns -------------------------------------------


def _seconds_of_trees(n: int, p: int, spec: MemberSpec) -> float:
    return SIZES[spec.effort].trees * (2e-8 * n * np.log2(n + 1) * _n_used(p, spec) + 1.2e-3)


def _seconds_of_boosting(n: int, p: int, spec: MemberSpec) -> float:
    sizes, p = SIZES[spec.effort], _n_used(p, spec)
    per_tree = (4e-8 * n * p + 1e-4 * p + 1e-3) * (0.25 + 0.75 * sizes.leaves(n) / 31)
    return sizes.boosting_iterations * per_tree


def _seconds_of_process(n: int, p: int, spec: MemberSpec) -> float:
    selecting = 6e-7 * n * np.log2(n + 1) * p * spec.screened
    return gp_seconds(min(n, SIZES[spec.effort].gp_rows // 2), _n_used(p, spec)) + selecting


def _seconds_of_tree_twin(n: int, p: int, spec: MemberSpec) -> float:
    sizes, p = TREE_SIZES[spec.effort], min(p, MAX_FEATURES)
    n_pairs = min(sizes.n_pairs(n, p), n * n / 2)
    return sizes.n_trees(n) * (6e-9 * n_pairs * 3 * p + 2e-3) + 2e-6 * n * n


def _seconds_of_unknown(n: int, p: int, spec: MemberSpec) -> float:
    return 1e-6 * n * p + 0.5


_FIT_SECONDS: dict[str, Callable[[int, int, MemberSpec], float]] = {
    "ridge": lambda n, p, spec: 8e-9 * n * p**2 + 0.02,
    "gp_matern": _seconds_of_process,
    "gp_rbf": _seconds_of_process,
    "gp_tanimoto": _seconds_of_process,
    "extra_trees": _seconds_of_trees,
    "boosting": _seconds_of_boosting,
    "tree_twin": _seconds_of_tree_twin,
}


def _n_used(n_columns: int, spec: MemberSpec) -> int:
    """The number of columns that take time: of a screened member the others take some, too."""
    return SCREENED_FEATURES + n_columns // 4 if spec.screened else n_columns


def gp_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of the search for the hyperparameters of a Gaussian process."""
    if n_columns > _NARROW_FEATURES and n_rows < _ROWS_PER_FEATURE * n_columns:
        return _WIDE_STEPS * _likelihood_seconds(n_rows, n_columns)
    seconds = _COARSE_STEPS * _likelihood_seconds(min(n_rows, _COARSE_ROWS), n_columns)
    if n_rows > _COARSE_ROWS:
        seconds += _FINE_STEPS * _likelihood_seconds(n_rows, n_columns)
    return seconds


def _likelihood_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of a likelihood and its gradient."""
    return 2.1e-11 * n_rows**3 + (1e-7 + 1e-10 * n_columns) * n_rows**2


def finishing_seconds(n_rows: int, n_columns: int, n_folds: int) -> float:
    """Expected seconds of the blend, the calibration of intervals and the learned metric."""
    features = min(n_columns + 7, 2 * MAX_SPLIT_FEATURES)
    calibrating = (1 + n_folds) * (0.1 + 6e-7 * n_rows * np.log2(n_rows + 1) * features)
    return 0.5 + calibrating + gp_seconds(min(n_rows, METRIC_ROWS), n_columns)


def affordable_rows(n_rows: int, n_columns: int, seconds: float, n_jobs: int | None) -> int:
    """How many of `n_rows` rows can be fitted and calibrated within `seconds`, at least 1,000."""
    least = min(n_rows, _LEAST_SUBSET)
    (spec,) = resolve_members(["boosting:fast"], "fast")
    size = n_rows
    while size > least:
        cost = CostModel(size, n_columns, 5, effective_n_jobs(n_jobs))
        if finishing_seconds(size, n_columns, 5) + cost.seconds(spec) <= _SUBSET_SHARE * seconds:
            break
        size = max(least, int(0.8 * size))
    return size


# --- remaining time -------------------------------------------------------------------------------


class Clock:
    """Remaining time, and expected times corrected by those of the members so far."""

    def __init__(self, deadline: float, costs: CostModel) -> None:
        self._deadline, self._costs = deadline, costs
        self._finishing = finishing_seconds(costs.n_rows, costs.n_columns, costs.n_folds)
        self._expected, self._actual = 1.0, 1.0

    @property
    def remaining(self) -> float:
        """Seconds until the blend must be computed."""
        return self._deadline - time.perf_counter() - self.reserve

    @property
    def reserve(self) -> float:
        """Seconds for the blend and its intervals, more on a slow or busy machine."""
        return self._finishing * max(0.7, self._slowness)

    def fits(self, spec: MemberSpec, share: float) -> bool:
        """Whether a member is expected to take at most this share of the remaining time."""
        return self.expected(spec) < share * self.remaining / _SAFETY

    def expected(self, spec: MemberSpec) -> float:
        """Expected seconds of all fits of a member."""
        return self._costs.seconds(spec) * self._slowness

    @property
    def _slowness(self) -> float:
        return self._actual / self._expected

    def seconds_per_gain(self, spec: MemberSpec) -> float:
        return self._costs.seconds(spec) / _GAIN.get(spec.plain_name, 1.0)

    def calibrate(self, spec: MemberSpec, seconds: float) -> None:
        """Correct the expected times by the seconds that a member took."""
        self._expected += self._costs.seconds(spec)
        self._actual += seconds
