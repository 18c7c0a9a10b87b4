"""Checks of a fitted blend within a time budget: noise, uncertainty, labels, pairs and anchors.

`DiagnosedRows` are the rows that the blend is fitted to, and `TimeBudget` is the time for it all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from twinned._compat import safe_indexing
from twinned.diagnostics.cross_validation import CrossValidation, check_diagnosable
from twinned.diagnostics.errors import rmse, rmse_ratio
from twinned.diagnostics.twin_checks import (
    CheckResult,
    anchor_curve,
    learning_curve,
    multiplier_check,
    noise_estimate,
    rank_correlation,
)
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.plan import (
    affordable_rows,
    member_seconds,
    relevance_seconds,
)
from twinned.models.resources import limit_threads
from twinned.rows.folds import encode_groups
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats
from twinned.rows.training import TargetBounds, validate_bounds
from twinned.rows.validation import count_rows

# X, y, no weights, the names of the groups, and bounds of y: arguments of `AutoTwinRegressor.fit`
FitArguments = tuple[ArrayLike, Floats, None, np.ndarray | None, Floats | None, Floats | None]

RECOMMENDED = "recommended model"
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

    @property
    def before_report(self) -> float:
        """Remaining seconds without those of the report; infinite without a budget."""
        return np.inf if self.seconds is None else self._without(*_FOR_REPORT)

    @property
    def before_checks(self) -> float | None:
        """Remaining seconds without those of the checks; None without a budget."""
        return None if self.seconds is None else max(self._without(*_FOR_CHECKS), 0.01)

    def _without(self, share: float, least: float) -> float:
        budget = self.seconds or 0.0
        return budget - self.spent - max(least, share * budget)


@dataclass(frozen=True)
class DiagnosedRows:
    """The known rows of a table that are diagnosed, beside its censored rows."""

    table: ArrayLike  # all rows
    bounds: TargetBounds  # (row of the table,)
    table_labels: np.ndarray | None  # (row of the table,): names of groups
    codes: Indices | None  # (row of the table,): of the groups
    rows: Indices  # those that are diagnosed, in the table
    given_bounds: list[str]  # of censored rows: "y_lower", "y_upper", or both

    @classmethod
    def validate(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        y_lower: ArrayLike | None,
        y_upper: ArrayLike | None,
        groups: ArrayLike | None,
        log_target: bool,
    ) -> DiagnosedRows:
        """Validate the arguments of a diagnosis; all known rows are diagnosed."""
        n_rows = count_rows(X)
        if y_lower is None and y_upper is None:
            values = check_diagnosable(y, n_rows)
            bounds = TargetBounds(values, values)
        else:
            bounds = validate_bounds(None, y, y_lower, y_upper, n_rows, None)
        rows = np.flatnonzero(~bounds.censored)
        check_diagnosable(bounds.lower[rows], len(rows))
        if log_target and bounds.upper.min() <= 0:
            raise ValueError("log_target=True needs positive values of y, y_lower and y_upper.")
        labels = None if groups is None else np.asarray(groups, dtype=object)
        codes = None if labels is None else encode_groups(labels, n_rows)
        given = {"y_lower": y_lower, "y_upper": y_upper} if len(rows) < n_rows else {}
        names = [name for name, bound in given.items() if bound is not None]
        return cls(X, bounds, labels, codes, rows, names)

    @property
    def X(self) -> ArrayLike:
        every = len(self.rows) == self.n_rows
        return self.table if every else safe_indexing(self.table, self.rows)

    @property
    def y(self) -> Floats:
        return self.bounds.lower[self.rows]

    @property
    def labels(self) -> np.ndarray | None:
        return None if self.table_labels is None else self.table_labels[self.rows]

    @property
    def groups(self) -> Indices | None:
        return None if self.codes is None else self.codes[self.rows]

    @property
    def n_rows(self) -> int:
        return len(self.bounds.lower)

    @property
    def n_censored(self) -> int:
        return int(self.bounds.censored.sum())

    def affordable(
        self, budget: float | None, n_jobs: int | None, random_state: int
    ) -> DiagnosedRows:
        """Return random rows that can be fitted within the budget, or all where they can."""
        n_known, n_features = len(self.rows), np.shape(self.table)[1]
        size = n_known if budget is None else affordable_rows(n_known, n_features, budget, n_jobs)
        if size >= n_known:
            return self
        drawn = np.sort(np.random.RandomState(random_state).permutation(n_known)[:size])
        check_diagnosable(self.y[drawn], size)
        return replace(self, rows=self.rows[drawn])

    def fit_arguments(self, log_target: bool) -> FitArguments:
        """Arguments of the fit of a blend to these rows and all censored ones."""
        every = np.append(self.rows, np.flatnonzero(self.bounds.censored))
        bounds = (self.bounds.logarithm() if log_target else self.bounds).take(every)
        labels = None if self.table_labels is None else self.table_labels[every]
        if not self.n_censored:
            return self.X, bounds.lower, None, labels, None, None
        y = np.where(bounds.censored, np.nan, bounds.lower)
        return safe_indexing(self.table, every), y, None, labels, *bounds


@dataclass
class BlendChecks:
    """Checks of a recommended model and of its members, as long as the time budget allows.

    `results` are the results by key, `skipped` the reasons by the name of the check, `relevance` is
    that of the features, and `comparisons` are out-of-fold predictions, in units of y, and seconds
    of models that are not recommended.
    """

    blend: AutoTwinRegressor
    recommended: AutoTwinRegressor
    data: DiagnosedRows
    log_target: bool
    budget: TimeBudget
    progress: Callable[[str], None]
    results: dict[str, CheckResult] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    relevance: Floats | None = None
    comparisons: dict[str, tuple[Floats, float]] = field(default_factory=dict)

    def run(self) -> Self:
        """Run the checks."""
        self.progress("checks of the recommended model")
        table, model = self.recommended.out_of_fold(), self._title(RECOMMENDED)
        fitted_y, predicted = table["y"].to_numpy(), table["prediction"].to_numpy()
        errors = np.abs(fitted_y - predicted)
        self._add(uncertainty_check(table["score"].to_numpy(), errors, model))
        self._add(noise_estimate(self.data.X, fitted_y, rmse(predicted, fitted_y), model=model))
        if self._starts("relevance of features", relevance_seconds(*self.blend.anchors_X_.shape)):
            self.relevance = self.recommended.feature_relevance_
        if self.log_target:
            self._check_logarithm()
        self._compare_catboost(fitted_y)
        weights = dict(
            zip(self.recommended.member_names_, self.recommended.member_weights_, strict=True)
        )
        names = _without_networks(weights)
        if names:
            largest = max(names, key=lambda name: weights[name])
            curve = partial(learning_curve, seconds=self.budget.before_report)
            self._check_member(curve, "learning curve", largest, _LEARNING_SHARE)
        for name in names:
            if name.partition(":")[0] == "tree_twin":
                self._check_member(multiplier_check, "number of pairs", name, _PAIRS_SHARE)
                self._check_member(anchor_curve, "number of anchors", name, _ANCHOR_SHARE)
        return self

    def _title(self, model: str) -> str:
        return f"{model}, logarithm" if self.log_target else model

    @property
    def _seconds(self) -> dict[str, float]:
        """Seconds of all fits of each member of the blend."""
        board = self.blend.leaderboard_
        return dict(zip(board["member"], board["fit_seconds"], strict=True))

    def _add(self, result: CheckResult) -> None:
        self.results[result.key] = result

    def _starts(self, title: str, seconds: float) -> bool:
        """Return whether the time is enough; report the start or note that it is skipped."""
        remaining = self.budget.before_report
        if seconds <= remaining:
            self.progress(title)
            return True
        self.skipped[title] = (
            f"expected to take {seconds:.1f} s of the remaining {max(remaining, 0):.1f} s"
        )
        return False

    def _check_member(
        self, check: Callable[..., CheckResult], title: str, name: str, share: float
    ) -> None:
        """Run a check of a member where there is time; `share` is of the seconds of its fits."""
        if self._starts(f"{title} of {name}", share * self._seconds[name]):
            cv = cross_validate_member(self.blend, name, self.data.groups, self._title(name))
            with limit_threads(1):  # as in the fits of the blend
                self._add(check(cv.X, cv.y, cross_validation=cv))

    def _check_logarithm(self) -> None:
        """Fit a quick member to the values themselves, on the same folds."""
        remaining, seconds = self.budget.before_report, self._seconds
        names = [n for n in _without_networks(seconds) if 1.5 * seconds[n] + 2.0 <= remaining]
        if not names:
            self.skipped["comparison with the target itself"] = "no time is left"
            return
        table = self.blend.out_of_fold()
        predictions = {name: np.exp(table[name].to_numpy()) for name in names}
        y = self.data.y
        name = min(names, key=lambda name: rmse(predictions[name], y))
        self.progress(f"{name}, fitted to the target itself")
        entry = dict(zip(self.blend.member_names_, self.blend.plan_, strict=True))[name]
        of_target, _ = self._fit_alone(entry, self.data.fit_arguments(log_target=False))
        self._add(logarithm_check(predictions[name], of_target, y, self.data.groups, name))

    def _compare_catboost(self, fitted_y: Floats) -> None:
        """Cross-validate CatBoost, if installed; a saved model cannot hold it."""
        if find_spec("catboost") is None or "catboost" in self._seconds:
            return
        n_rows, n_features = self.blend.anchors_X_.shape
        seconds = member_seconds("catboost", n_rows, n_features, self.blend.n_jobs)
        if self._starts("comparison with CatBoost", seconds):
            arguments = self.data.X, fitted_y, None, self.data.labels, None, None
            predicted, spent = self._fit_alone("catboost", arguments)
            predicted = np.exp(predicted) if self.log_target else predicted
            self.comparisons["catboost"] = predicted, spent

    def _fit_alone(
        self, entry: str | tuple[str, BaseEstimator], arguments: FitArguments
    ) -> tuple[Floats, float]:
        """Fit one member on the folds of the blend: out-of-fold predictions and seconds."""
        alone = clone(self.blend).set_params(members=[entry], time_budget=None, verbose=0)
        alone.fit_blend(*arguments, calibrate=False)
        (name,) = alone.member_names_
        return alone.out_of_fold()[name].to_numpy(), float(alone.leaderboard_["fit_seconds"].sum())


def _without_networks(names: dict[str, float]) -> list[str]:
    return [name for name in names if name.partition(":")[0] not in _NETWORKS]


def cross_validate_member(
    blend: AutoTwinRegressor, name: str, groups: Indices | None, title: str
) -> CrossValidation:
    """Return a cross-validation of a member of a blend on the folds of the blend.

    Its features are prepared as those of the member that is fitted to all rows.
    """
    member = next(member for member in blend.fitted_members_ if member.label == name)
    fold = blend.out_of_fold()["fold"].to_numpy()
    folds = [
        (np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        for number in range(int(fold.max()) + 1)
    ]
    features = member.preparation.transform(blend.anchors_X_)
    return CrossValidation(
        features, blend.anchors_y_, clone(member.estimator), folds, groups, title
    )


def uncertainty_check(scores: Floats, errors: Floats, model: str) -> CheckResult:
    """Correlate absolute out-of-fold errors (n,) with the error scale of the intervals.

    `scores` are the errors divided by the error scale.
    """
    positive = scores > 0
    scale, errors = errors[positive] / scores[positive], errors[positive]
    correlation = rank_correlation(scale, errors)
    degree = "Yes" if correlation > 0.3 else "Roughly" if correlation > 0.1 else "Hardly"
    summary = f"{degree}: wide intervals and large errors have a rank correlation of "
    numbers = {"scale": scale.tolist(), "error": errors.tolist(), "correlation": correlation}
    shown = {"expected size of the error": numbers["scale"], "absolute error": numbers["error"]}
    title = "Does the uncertainty rank the errors?"
    return CheckResult("uncertainty", title, f"{summary}{correlation:.2f}.", numbers, model, shown)


def logarithm_check(
    of_logarithm: Floats, plain: Floats, y: Floats, groups: Indices | None, model: str
) -> CheckResult:
    """Compare (n,) out-of-fold predictions by a model of log y and by the same model of y."""
    ratio = rmse_ratio(of_logarithm, plain, y, groups)
    meaning = "The logarithm makes no clear difference"
    if ratio.high < 1 or ratio.low > 1:
        meaning = "The logarithm helps" if ratio.high < 1 else "The logarithm does harm"
    summary = f"{meaning}: the error of {model} is {ratio.text} times that without it."
    errors = {"logarithm": rmse(of_logarithm, y), "target itself": rmse(plain, y)}
    numbers = {"rmse": errors, "ratio": ratio.value, "interval": [ratio.low, ratio.high]}
    return CheckResult("logarithm", "Does the logarithm help?", summary, numbers, model, errors)
