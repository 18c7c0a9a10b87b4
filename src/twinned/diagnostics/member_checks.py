"""Checks of a fitted blend within a time budget: noise, uncertainty, labels, pairs and anchors."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.base import clone

from twinned.diagnostics.cross_validation import CrossValidation, rmse
from twinned.diagnostics.curves import anchor_curve, learning_curve, multiplier_check
from twinned.diagnostics.errors import Comparison
from twinned.diagnostics.noise import noise_estimate
from twinned.diagnostics.ratio import rmse_ratio
from twinned.diagnostics.result import CheckResult, Numbers
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.costs import member_seconds, relevance_seconds
from twinned.estimators.training_set import TargetArguments
from twinned.models.resources import limit_threads
from twinned.rows.folds import Folds
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# X, the target, no weights, and the names of the groups: arguments of `AutoTwinRegressor._fit`
FitArguments = tuple[Any, Floats | TargetArguments, None, NDArray[Any] | None]

RECOMMENDED = "recommended model"
_NETWORKS = ("neural", "neural_twin")
_RESERVED_SHARE, _RESERVED_SECONDS = 0.04, 1.0  # of the budget, for the report
# Of the seconds that all fits of a member took: all folds with 1/4 + 1/2 + 3/4 + 1 of their rows;
# the fits of the folds and the estimates by all anchors; four fits with few pairs in each fold.
_LEARNING_SHARE, _ANCHOR_SHARE, _PAIRS_SHARE = 2.2, 1.2, 1.0


class TimeBudget:
    """Seconds for a diagnosis, counted from the start; None is unlimited."""

    def __init__(self, seconds: float | None) -> None:
        self._start, self._seconds = time.perf_counter(), seconds

    @property
    def spent(self) -> float:
        return time.perf_counter() - self._start

    @property
    def remaining(self) -> float:
        return np.inf if self._seconds is None else self._seconds - self.spent

    def allows(self, seconds: float) -> bool:
        """Whether a step of these seconds leaves enough time for the report."""
        return seconds <= self.before_report

    @property
    def before_report(self) -> float:
        """Remaining seconds without those of the report; infinite without a budget."""
        if self._seconds is None:
            return np.inf
        return self.remaining - max(_RESERVED_SECONDS, _RESERVED_SHARE * self._seconds)


class CheckRun:
    """Checks of a recommended model and of its members, as long as the time budget allows.

    `labels` are the names of the groups and `groups` their codes. `results` are the results by key,
    `skipped` the reasons by the name of the check, `relevance` is that of the features, and
    `comparisons` are models that are not recommended.
    """

    def __init__(
        self,
        blend: AutoTwinRegressor,
        recommended: AutoTwinRegressor,
        labels: NDArray[Any] | None,
        groups: Indices | None,
        budget: TimeBudget,
        progress: Callable[[str], None],
    ) -> None:
        self._blend, self._recommended = blend, recommended
        self._labels, self._groups = labels, groups
        self._budget, self._progress = budget, progress
        board = blend.leaderboard_
        self._seconds: dict[str, float] = dict(
            zip(board["member"], board["fit_seconds"], strict=True)
        )
        self.results: dict[str, CheckResult] = {}
        self.skipped: dict[str, str] = {}
        self.relevance: Floats | None = None
        self.comparisons: dict[str, Comparison] = {}

    def run(self, X: Any, y: Floats, plain: FitArguments | None) -> None:
        """Run the checks; `y` are the values themselves.

        `plain` are the arguments of a fit to them, where the blend is fitted to their logarithm.
        """
        log_target = plain is not None
        self._progress("checks of the recommended model")
        scale = ", logarithm" if log_target else ""
        table = self._recommended.out_of_fold()
        fitted_y, predicted = table["y"].to_numpy(), table["prediction"].to_numpy()
        errors, model = np.abs(fitted_y - predicted), RECOMMENDED + scale
        self._add(uncertainty_check(table["score"].to_numpy(), errors, model))
        self._add(noise_estimate(X, fitted_y, rmse(predicted, fitted_y), model=model))
        if self._starts("relevance of features", relevance_seconds(*self._blend.anchors_X_.shape)):
            self.relevance = self._recommended.feature_relevance_
        if plain is not None:
            self._check_logarithm(plain, y)
        self._compare_catboost(X, fitted_y, log_target)
        weights = dict(
            zip(self._recommended.member_names_, self._recommended.member_weights_, strict=True)
        )
        names = [name for name in weights if name.partition(":")[0] not in _NETWORKS]
        if names:
            largest = max(names, key=lambda name: weights[name])
            curve = partial(learning_curve, seconds=self._budget.before_report)
            self._run(curve, "learning curve", largest, _LEARNING_SHARE, scale)
        for name in names:
            if name.partition(":")[0] == "tree_twin":
                self._run(multiplier_check, "number of pairs", name, _PAIRS_SHARE, scale)
                self._run(anchor_curve, "number of anchors", name, _ANCHOR_SHARE, scale)

    def _add(self, result: CheckResult) -> None:
        self.results[result.key] = result

    def _starts(self, title: str, seconds: float) -> bool:
        """Return whether the time is enough; report the start or note that it is skipped."""
        if self._budget.allows(seconds):
            self._progress(title)
            return True
        remaining = max(self._budget.before_report, 0)
        self.skipped[title] = f"expected to take {seconds:.1f} s of the remaining {remaining:.1f} s"
        return False

    def _run(
        self, check: Callable[..., CheckResult], title: str, name: str, share: float, scale: str
    ) -> None:
        """Run a check of a member where there is time; `share` is of the seconds of its fits."""
        if self._starts(f"{title} of {name}", share * self._seconds[name]):
            cv = cross_validate_member(self._blend, name, self._groups, name + scale)
            with limit_threads(1):  # as in the fits of the blend
                self._add(check(cv.X, cv.y, cross_validation=cv))

    def _check_logarithm(self, plain: FitArguments, y: Floats) -> None:
        """Fit a quick member to the values themselves, on the same folds."""
        names = [name for name in self._seconds if name.partition(":")[0] not in _NETWORKS]
        names = [name for name in names if self._budget.allows(1.5 * self._seconds[name] + 2.0)]
        table = self._blend.out_of_fold()
        if not names:
            self.skipped["comparison with the target itself"] = "no time is left"
            return
        name = min(names, key=lambda name: rmse(np.exp(table[name].to_numpy()), y))
        self._progress(f"{name}, fitted to the target itself")
        entry = dict(zip(self._blend.member_names_, self._blend.plan_, strict=True))[name]
        own, _ = self._fit_alone(entry, plain)
        self._add(logarithm_check(np.exp(table[name].to_numpy()), own, y, self._groups, name))

    def _compare_catboost(self, X: Any, fitted_y: Floats, log_target: bool) -> None:
        """Cross-validate CatBoost, if installed; a saved model cannot hold it."""
        if find_spec("catboost") is None or "catboost" in self._seconds:
            return
        n_rows, n_columns = self._blend.anchors_X_.shape
        seconds = member_seconds("catboost", n_rows, n_columns, self._blend.n_jobs)
        if self._starts("comparison with CatBoost", seconds):
            own, seconds = self._fit_alone("catboost", (X, fitted_y, None, self._labels))
            self.comparisons["catboost"] = Comparison(np.exp(own) if log_target else own, seconds)

    def _fit_alone(self, entry: Any, arguments: FitArguments) -> tuple[Floats, float]:
        """Fit one member on the folds of the blend: out-of-fold predictions and seconds."""
        alone = clone(self._blend).set_params(members=[entry], time_budget=None, verbose=0)
        alone._fit(*arguments, calibrate=False)
        (name,) = alone.member_names_
        return alone.out_of_fold()[name].to_numpy(), float(alone.leaderboard_["fit_seconds"].sum())


def cross_validate_member(
    blend: AutoTwinRegressor, name: str, groups: Indices | None, title: str
) -> CrossValidation:
    """Return a cross-validation of a member of a blend on the folds of the blend.

    Its features are prepared as those of the member that is fitted to all rows.
    """
    member = next(own for own in blend.fitted_members_ if own.label == name)
    fold = blend.out_of_fold()["fold"].to_numpy()
    folds: Folds = [
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
    known = scores > 0
    scale, errors = errors[known] / scores[known], errors[known]
    correlation = 0.0
    if len(errors) > 2 and np.ptp(scale) > 0 and np.ptp(errors) > 0:
        correlation = float(spearmanr(scale, errors)[0])
    degree = "Yes" if correlation > 0.3 else "Roughly" if correlation > 0.1 else "Hardly"
    summary = f"{degree}: wide intervals and large errors have a rank correlation of "
    numbers = {"scale": scale.tolist(), "error": errors.tolist(), "correlation": correlation}
    title = "Does the uncertainty rank the errors?"
    return CheckResult(
        "uncertainty", title, f"{summary}{correlation:.2f}.", numbers, _draw_uncertainty, model
    )


def _draw_uncertainty(axes: Axes, numbers: Numbers) -> None:
    axes.loglog(numbers["scale"], numbers["error"], ".", alpha=0.5)
    axes.set_xlabel("expected size of the error")
    axes.set_ylabel("absolute error")


def logarithm_check(
    of_logarithm: Floats, plain: Floats, y: Floats, groups: Indices | None, model: str
) -> CheckResult:
    """Compare (n,) out-of-fold predictions by a model of log y and by the same model of y."""
    ratio = rmse_ratio(of_logarithm, plain, y, groups)
    meaning = "The logarithm makes no clear difference"
    if ratio.high < 1 or ratio.low > 1:
        meaning = "The logarithm helps" if ratio.high < 1 else "The logarithm does harm"
    summary = (
        f"{meaning}: the error of {model} is {ratio.value:.2f} ({ratio.low:.2f} to "
        f"{ratio.high:.2f}) times that without it."
    )
    numbers = {
        "rmse": {"logarithm": rmse(of_logarithm, y), "target itself": rmse(plain, y)},
        "ratio": ratio.value,
        "interval": [ratio.low, ratio.high],
    }
    return CheckResult(
        "logarithm", "Does the logarithm help?", summary, numbers, _draw_logarithm, model
    )


def _draw_logarithm(axes: Axes, numbers: Numbers) -> None:
    axes.barh(list(numbers["rmse"]), list(numbers["rmse"].values()))
    axes.set_xlabel("RMSE of held-out rows")
