"""Checks of a fitted blend within a time budget: noise, uncertainty, labels, pairs and anchors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from twinned.diagnostics.cross_validation import CrossValidation
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
from twinned.estimators.blending.costs import member_seconds, relevance_seconds
from twinned.estimators.training_set import TargetArguments
from twinned.models.threads import limit_threads
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

# X, the target, no weights, and the names of the groups: arguments of `AutoTwinRegressor._fit`
FitArguments = tuple[Any, Floats | TargetArguments, None, NDArray[Any] | None]

RECOMMENDED = "recommended model"
_NETWORKS = ("neural", "neural_twin")
_RESERVED_SHARE, _RESERVED_SECONDS = 0.04, 1.0  # of the budget, for the report
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

    def without(self, share: float, least: float) -> float:
        """Remaining seconds without a share of the budget; infinite without a budget."""
        if self.seconds is None:
            return np.inf
        return self.seconds - self.spent - max(least, share * self.seconds)

    @property
    def before_report(self) -> float:
        """Remaining seconds without those of the report; infinite without a budget."""
        return self.without(_RESERVED_SHARE, _RESERVED_SECONDS)


@dataclass
class CheckRun:
    """Checks of a recommended model and of its members, as long as the time budget allows.

    `labels` are the names of the groups and `groups` their codes. `results` are the results by key,
    `skipped` the reasons by the name of the check, `relevance` is that of the features, and
    `comparisons` are out-of-fold predictions, in units of y, and seconds of models that are not
    recommended.
    """

    blend: AutoTwinRegressor
    recommended: AutoTwinRegressor
    labels: NDArray[Any] | None
    groups: Indices | None
    budget: TimeBudget
    progress: Callable[[str], None]
    results: dict[str, CheckResult] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    relevance: Floats | None = None
    comparisons: dict[str, tuple[Floats, float]] = field(default_factory=dict)

    def run(self, X: Any, y: Floats, plain: FitArguments | None) -> None:
        """Run the checks; `y` are the values themselves.

        `plain` are the arguments of a fit to them, where the blend is fitted to their logarithm.
        """
        self.progress("checks of the recommended model")
        scale = "" if plain is None else ", logarithm"
        table = self.recommended.out_of_fold()
        fitted_y, predicted = table["y"].to_numpy(), table["prediction"].to_numpy()
        errors, model = np.abs(fitted_y - predicted), RECOMMENDED + scale
        self._add(uncertainty_check(table["score"].to_numpy(), errors, model))
        self._add(noise_estimate(X, fitted_y, rmse(predicted, fitted_y), model=model))
        if self._starts("relevance of features", relevance_seconds(*self.blend.anchors_X_.shape)):
            self.relevance = self.recommended.feature_relevance_
        if plain is not None:
            self._check_logarithm(plain, y)
        self._compare_catboost(X, fitted_y, plain is not None)
        weights = dict(
            zip(self.recommended.member_names_, self.recommended.member_weights_, strict=True)
        )
        names = _without_networks(weights)
        if names:
            largest = max(names, key=lambda name: weights[name])
            curve = partial(learning_curve, seconds=self.budget.before_report)
            self._check_member(curve, "learning curve", largest, _LEARNING_SHARE, scale)
        for name in names:
            if name.partition(":")[0] == "tree_twin":
                self._check_member(multiplier_check, "number of pairs", name, _PAIRS_SHARE, scale)
                self._check_member(anchor_curve, "number of anchors", name, _ANCHOR_SHARE, scale)

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
        self, check: Callable[..., CheckResult], title: str, name: str, share: float, scale: str
    ) -> None:
        """Run a check of a member where there is time; `share` is of the seconds of its fits."""
        if self._starts(f"{title} of {name}", share * self._seconds[name]):
            cv = cross_validate_member(self.blend, name, self.groups, name + scale)
            with limit_threads(1):  # as in the fits of the blend
                self._add(check(cv.X, cv.y, cross_validation=cv))

    def _check_logarithm(self, plain: FitArguments, y: Floats) -> None:
        """Fit a quick member to the values themselves, on the same folds."""
        remaining, seconds = self.budget.before_report, self._seconds
        names = [n for n in _without_networks(seconds) if 1.5 * seconds[n] + 2.0 <= remaining]
        if not names:
            self.skipped["comparison with the target itself"] = "no time is left"
            return
        table = self.blend.out_of_fold()
        predictions = {name: np.exp(table[name].to_numpy()) for name in names}
        name = min(names, key=lambda name: rmse(predictions[name], y))
        self.progress(f"{name}, fitted to the target itself")
        entry = dict(zip(self.blend.member_names_, self.blend.plan_, strict=True))[name]
        of_target, _ = self._fit_alone(entry, plain)
        self._add(logarithm_check(predictions[name], of_target, y, self.groups, name))

    def _compare_catboost(self, X: Any, fitted_y: Floats, log_target: bool) -> None:
        """Cross-validate CatBoost, if installed; a saved model cannot hold it."""
        if find_spec("catboost") is None or "catboost" in self._seconds:
            return
        n_rows, n_features = self.blend.anchors_X_.shape
        seconds = member_seconds("catboost", n_rows, n_features, self.blend.n_jobs)
        if self._starts("comparison with CatBoost", seconds):
            predicted, spent = self._fit_alone("catboost", (X, fitted_y, None, self.labels))
            self.comparisons["catboost"] = np.exp(predicted) if log_target else predicted, spent

    def _fit_alone(self, entry: Any, arguments: FitArguments) -> tuple[Floats, float]:
        """Fit one member on the folds of the blend: out-of-fold predictions and seconds."""
        alone = clone(self.blend).set_params(members=[entry], time_budget=None, verbose=0)
        alone._fit(*arguments, calibrate=False)
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
    member = next(member for member in blend._members if member.label == name)
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
