"""Recommended model of a fitted blend and its checks within a time budget: labels, pairs, anchors.

`DiagnosedRows` are the rows that the blend is fitted to, and `TimeBudget` is the time for it all.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state

from twinned._compat import safe_indexing
from twinned.diagnostics.findings import CheckResult, check_diagnosable
from twinned.diagnostics.recommendation import choose_model
from twinned.diagnostics.twin_checks import (
    CrossValidation,
    anchor_curve,
    learning_curve,
    multiplier_check,
)
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.costs import affordable_rows
from twinned.estimators.target import bound_arguments
from twinned.exceptions import SkippedMemberWarning, ignore_table_warnings
from twinned.fitted.target import TargetTransform
from twinned.models.resources import limit_threads
from twinned.rows.folds import encode_groups
from twinned.rows.schema import Indices
from twinned.rows.training import TargetBounds, TrainingRows, validate_training_rows

_NETWORKS = ("neural", "neural_twin")
# Of the budget, for the report, and for the checks and the report: a share, and the least seconds.
_FOR_REPORT, _FOR_CHECKS = (0.04, 1.0), (0.06, 1.5)
# Of the seconds that all fits of a member took: all folds with 1/4 + 1/2 + 3/4 + 1 of their rows;
# the fits of the folds and the estimates by all anchors; four fits with few pairs in each fold.
_LEARNING_SHARE, _ANCHOR_SHARE, _PAIRS_SHARE = 2.2, 1.2, 1.0


@dataclass
class TimeBudget:
    """Seconds for a diagnosis, counted from the start; None is unlimited."""

    seconds: float | None
    start: float = field(default_factory=time.perf_counter)

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.start

    def remaining(self, share: float, least: float) -> float:
        """Remaining seconds without a share of all of them, and at least some seconds."""
        if self.seconds is None:
            return np.inf
        return self.seconds - self.spent - max(least, share * self.seconds)

    @property
    def before_checks(self) -> float | None:
        """Remaining seconds without those of the checks; None without a budget."""
        return None if self.seconds is None else max(self.remaining(*_FOR_CHECKS), 0.01)


@dataclass(frozen=True, eq=False)
class DiagnosedRows(TrainingRows):
    """Rows that are diagnosed and, after them, censored ones, with the table that they are of."""

    table: ArrayLike = ()

    @classmethod
    def validate(
        cls, blend: AutoTwinRegressor, transform: TargetTransform, **arguments: Any
    ) -> Self:
        """Validate the arguments of the fit of a blend; all known rows are diagnosed."""
        with ignore_table_warnings():
            rows = validate_training_rows(blend, **arguments, multi_output=False)
        if transform.is_log and (rows.y if rows.bounds is None else rows.bounds.upper).min() <= 0:
            raise ValueError("log_target=True needs positive values of y, y_lower and y_upper.")
        data = cls(**vars(rows), table=arguments["X"])
        return data.take(np.append(data.known, np.flatnonzero(data.censored)))

    @property
    def X(self) -> ArrayLike:
        is_all = np.array_equal(self.table_rows, np.arange(self.n_table_rows))
        return self.table if is_all else safe_indexing(self.table, self.table_rows)

    @property
    def codes(self) -> Indices | None:
        """(row,): codes of the groups."""
        return None if self.groups is None else encode_groups(self.groups, len(self))

    def affordable(self, budget: float | None, n_jobs: int | None, random_state: object) -> Self:
        """Return random known rows that can be fitted within the budget, and all censored ones."""
        n_known, n_features = len(self.known), self.matrix.shape[1]
        size = n_known if budget is None else affordable_rows(n_known, n_features, budget, n_jobs)
        if size >= n_known:
            return self
        drawn = np.sort(check_random_state(random_state).permutation(n_known)[:size])
        check_diagnosable(self.y[drawn], size)
        return self.take(np.append(drawn, np.flatnonzero(self.censored)))

    def fit(
        self, blend: AutoTwinRegressor, transform: TargetTransform, time_budget: float | None = None
    ) -> None:
        """Fit a blend to the transformed target, without calibration."""
        bounds = transform.apply_bounds(self.bounds or TargetBounds(self.y, self.y))
        y, ends = bound_arguments(bounds)
        y_std = None if self.y_std is None else self.y_std / transform.slope(self.y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkippedMemberWarning)  # they are in `skipped_`
            blend.set_params(time_budget=time_budget).fit_blend(
                self.X,
                y,
                groups=self.groups,
                batch=self.batch,
                y_std=y_std,
                **ends,
                calibrate=False,
            )


@dataclass
class BlendChecks:
    """The recommended model of a fitted blend, and its checks, as long as the time budget allows.

    `twin` is the calibrated model, and `out_of_fold` are its predictions in units of y. `results`
    are the results by key, and `skipped` the reasons by the name of the check.
    """

    blend: AutoTwinRegressor
    data: DiagnosedRows
    known: DiagnosedRows  # those of the data whose value is known
    transform: TargetTransform
    budget: TimeBudget
    progress: Callable[[str], None]
    results: dict[str, CheckResult] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.progress("calibrating the recommended model")
        self.recommendation, self.twin = choose_model(self.blend, self.transform)
        self.out_of_fold: pd.DataFrame = _in_units_of_target(
            self.twin.out_of_fold(), self.transform
        )

    def run(self) -> Self:
        """Run the checks."""
        self.progress("checks of the recommended model")
        weights = dict(zip(self.twin.member_names_, self.twin.member_weights_, strict=True))
        names = _without_networks(weights)
        if names:
            largest = max(names, key=lambda name: weights[name])
            curve = partial(learning_curve, seconds=self._remaining)
            self._check_member(curve, "learning curve", largest, _LEARNING_SHARE)
        for name in names:
            if name.partition(":")[0] == "tree_twin":
                self._check_member(multiplier_check, "number of pairs", name, _PAIRS_SHARE)
                self._check_member(anchor_curve, "number of anchors", name, _ANCHOR_SHARE)
        return self

    @property
    def held_out(self) -> DiagnosedRows:
        """Those of the known rows that a fold holds out."""
        return self.known.take(self.out_of_fold.index.to_numpy())

    @property
    def _remaining(self) -> float:
        return self.budget.remaining(*_FOR_REPORT)

    @property
    def _seconds(self) -> dict[str, float]:
        """Seconds of all fits of each member of the blend."""
        board = self.blend.leaderboard_
        return dict(zip(board["member"], board["fit_seconds"], strict=True))

    def _starts(self, title: str, seconds: float) -> bool:
        """Return whether the time is enough; report the start or note that it is skipped."""
        remaining = max(self._remaining, 0.0)
        if seconds <= remaining:
            self.progress(title)
            return True
        rest = f"{remaining:.1f} s remain besides the report"
        self.skipped[title] = f"expected to take {seconds:.1f} s, and {rest}"
        return False

    def _check_member(
        self, check: Callable[..., CheckResult], title: str, name: str, share: float
    ) -> None:
        """Run a check of a member where there is time; `share` is of the seconds of its fits.

        Its features are prepared as those of the member that is fitted to all rows, and its folds
        are those of the blend.
        """
        if not self._starts(f"{title} of {name}", share * self._seconds[name]):
            return
        member = next(member for member in self.blend.fitted_members_ if member.label == name)
        cv = CrossValidation(
            X=member.preparation.transform(self.blend.anchors_X_),
            y=self.blend.anchors_y_,
            twin=clone(member.estimator),
            folds=self.blend.folds_,
            groups=self.known.codes,
            name=f"{name}, logarithm" if self.transform.is_log else name,
        )
        with limit_threads(1):  # as in the fits of the blend
            result = check(cv.X, cv.y, cross_validation=cv)
        self.results[result.key] = result


def _without_networks(names: dict[str, float]) -> list[str]:
    return [name for name in names if name.partition(":")[0] not in _NETWORKS]


def _in_units_of_target(table: pd.DataFrame, transform: TargetTransform) -> pd.DataFrame:
    """Return out-of-fold predictions with the ends of their 90 % intervals, in units of y."""
    y, mean, score = (table[name].to_numpy() for name in ("y", "prediction", "score"))
    # a score is the error divided by its expected size
    size = np.divide(y - mean, score, out=np.full_like(mean, np.nan), where=score != 0)
    finite = size[np.isfinite(size)]
    size = np.where(np.isfinite(size), size, np.median(finite) if len(finite) else 0.0)
    low, high = np.quantile(score, [0.05, 0.95])
    return pd.DataFrame(
        {
            "lower": transform.invert(mean + low * size),
            "upper": transform.invert(mean + high * size),
            "y": transform.invert_known(y),
            "prediction": transform.invert_mean(mean, y),
            "score": score,
            "error_scale": size,
            "fold": table["fold"],
        }
    )
