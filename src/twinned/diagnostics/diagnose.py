"""Diagnosis of a data set: all checks within a time budget, and a recommended model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from twinned._table import Floats
from twinned._validation import count_rows
from twinned.diagnostics.baselines import plain_network
from twinned.diagnostics.comparison import compare
from twinned.diagnostics.cross_validation import (
    CrossValidation,
    Progress,
    check_diagnosable,
    cross_validate_models,
    ignore_unknown_categories,
)
from twinned.diagnostics.curves import (
    anchor_curve,
    learning_curve,
    multiplier_check,
    neighbor_curve,
)
from twinned.diagnostics.noise import noise_estimate
from twinned.diagnostics.recommendation import TWIN_NETWORK, recommend
from twinned.diagnostics.result import CheckResult
from twinned.diagnostics.uncertainty_checks import anchor_decomposition, loop_check
from twinned.estimators.base import BaseTwin
from twinned.intervals.conformal import CrossCalibrated, calibrate_from_folds
from twinned.pairing.splits import encode_groups

_NETWORK_SECONDS = 20.0  # about what five folds of small networks take, with compilation
_CROSS_VALIDATION_SHARE = 0.5  # of the time budget


@dataclass
class Diagnosis:
    """Results of the checks of a data set, and the recommended model.

    Attributes
    ----------
    checks : dict of str to CheckResult
        Results by the key of the check.
    skipped : list of str
        Checks that did not fit into the time budget.
    recommended : unfitted twin
    code : str
        Three lines of Python that make and fit it.
    model : fitted twin
        The recommended twin, fitted to all rows.
    calibrated : CrossCalibrated
        Its prediction intervals.
    held_out : list of (mean, std)
        For each fold, the predictions of its held-out rows by a twin like the recommended one.
    cross_validation : CrossValidation
        Out-of-fold predictions.
    n_rows : int
        Rows of the table; with a small time budget fewer are cross-validated.
    seconds : float
        The time that the diagnosis took.
    notes : list of str
        What else limits the results.
    """

    checks: dict[str, CheckResult]
    skipped: list[str]
    recommended: BaseTwin
    code: str
    model: BaseTwin
    calibrated: CrossCalibrated
    held_out: list[tuple[Floats, Floats]]
    cross_validation: CrossValidation
    n_rows: int
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """One sentence: does twinning help?"""
        return self.checks["comparison"].summary

    def __str__(self) -> str:
        lines = [str(check) for check in self.checks.values()]
        if self.skipped:
            lines.append(f"Skipped for lack of time: {', '.join(self.skipped)}.")
        return "\n".join(lines)


def diagnose(
    X: Any,
    y: Any,
    *,
    estimator: BaseTwin | None = None,
    budget: float | None = None,
    groups: Any = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Check whether twinning helps on a data set, and recommend a twin.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All labelled rows; at least twenty.
    y : array of shape (n,)
        Their values.
    estimator : unfitted twin, default=None
        The twin to diagnose; None is `TwinRegressor()`, compared also with `TwinNeuralRegressor`.
    budget : float, default=None
        Seconds. Five-fold cross-validation of the twin, its base estimator, k-NN and ridge
        regression is always done, on a random subset where there are too many rows; each further
        check only if it is expected to fit. The model is fitted to all rows.
    groups : array of shape (n,), default=None
        Names of groups of rows that belong together (measurements of one sample, flats of one
        building): they are held out together, so that the results hold for new groups.
    random_state : int, default=0
        Draws the folds and seeds the models.
    progress : callable, default=None
        Called with a short text before each step.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from twinned import TwinRegressor, diagnose
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(60, random_state=0)
    >>> twin = TwinRegressor(DecisionTreeRegressor(max_depth=8, random_state=0))
    >>> diagnosis = diagnose(X, y, estimator=twin, budget=5)
    >>> diagnosis.checks["comparison"].numbers["conclusion"]
    'helps'
    """
    time_budget = TimeBudget(budget)
    progress = progress or (lambda message: None)
    n_rows = count_rows(X)
    groups = None if groups is None else encode_groups(groups, n_rows)
    values = check_diagnosable(y, n_rows)
    cv = cross_validate_models(
        X,
        values,
        estimator,
        groups=groups,
        random_state=random_state,
        progress=progress,
        seconds=None if budget is None else _CROSS_VALIDATION_SHARE * budget,
    )
    run = CheckRun(cv, time_budget, progress)
    if cv.subset is not None:
        run.notes.append(
            f"For lack of time {len(cv.y):,} random rows of {n_rows:,} were cross-validated. The "
            "model is fitted to all rows, so its errors will be lower than stated here, and its "
            "intervals are too wide."
        )
    with ignore_unknown_categories():
        run.run_all(_QUICK_CHECKS)
        networks = _add_networks(run, random_state) if estimator is None else []
        run.run_all(_SLOW_CHECKS)
        checks = {"comparison": compare(X, y, cross_validation=cv), **run.results}
        recommendation = recommend(cv, checks, networks)
        progress("fitting the recommended twin to all rows")
        model = clone(recommendation.twin).fit(X, values)
        calibrated = calibrate_from_folds(
            recommendation.fold_twins,
            model,
            cv.X,
            cv.y,
            cv.folds,
            predicted=recommendation.held_out,
            final_training=(X, values),
        )
    return Diagnosis(
        checks,
        run.skipped,
        recommendation.twin,
        recommendation.code,
        model,
        calibrated,
        recommendation.held_out,
        cv,
        n_rows,
        time_budget.spent,
        run.notes,
    )


class TimeBudget:
    """Seconds for all checks, counted from the start; None is unlimited."""

    def __init__(self, seconds: float | None) -> None:
        self._start, self._seconds = time.perf_counter(), seconds

    @property
    def spent(self) -> float:
        return time.perf_counter() - self._start

    def allows(self, seconds: float) -> bool:
        return self._seconds is None or self.spent + seconds <= self._seconds


class PlannedCheck(NamedTuple):
    """A check, with its expected time in units of one fold of the twin."""

    name: str
    n_fits: float
    function: Callable[..., CheckResult]


_QUICK_CHECKS = [
    PlannedCheck("anchor curve", 0.0, anchor_curve),
    PlannedCheck("neighbor curve", 0.0, neighbor_curve),
    PlannedCheck("loop check", 0.5, loop_check),
    PlannedCheck("noise estimate", 0.0, noise_estimate),
    PlannedCheck("multiplier check", 1.5, multiplier_check),
]
_SLOW_CHECKS = [
    PlannedCheck("learning curve", 2.0, learning_curve),
    PlannedCheck("anchor decomposition", 4.0, anchor_decomposition),
]


class CheckRun:
    """Checks run on one cross-validation, as long as the time budget allows."""

    def __init__(self, cv: CrossValidation, budget: TimeBudget, progress: Progress) -> None:
        self.cv, self.progress, self._budget = cv, progress, budget
        self.results: dict[str, CheckResult] = {}
        self.skipped: list[str] = []
        self.notes: list[str] = []

    def run_all(self, checks: list[PlannedCheck]) -> None:
        """Run each check that fits into the time; a ValueError becomes a note."""
        for name, n_fits, function in checks:
            seconds = n_fits * self.cv.fold_seconds
            if function in (anchor_curve, neighbor_curve):
                seconds += self.cv.estimate_seconds
            if not self.starts(name, seconds):
                continue
            try:
                result = function(self.cv.X, self.cv.y, cross_validation=self.cv)
            except ValueError as error:
                self.notes.append(f"{name}: {error}")
            else:
                self.results[result.key] = result

    def starts(self, name: str, seconds: float) -> bool:
        """Return whether the time is enough; report the start or note that it is skipped."""
        if self._budget.allows(seconds + self._final_seconds()):
            self.progress(name)
            return True
        self.skipped.append(name)
        return False

    def _final_seconds(self) -> float:
        """About how long the model of all rows and its intervals take."""
        cv, predict_seconds = self.cv, 0.0
        if "neighbors" in self.results:
            k = self.results["neighbors"].numbers["best"] or 0
            predict_seconds = cv.pair_seconds * k * len(cv.y)
        return 1.5 * max(cv.fold_seconds, cv.full_fit_seconds) + predict_seconds + 2.0


def _add_networks(run: CheckRun, random_state: int) -> list[BaseTwin]:
    """Cross-validate small twin networks and plain ones; return the twin networks of the folds."""
    if np.isnan(run.cv.features).any():
        run.notes.append("Networks were not tried: they do not accept missing values.")
        return []
    if not run.starts(TWIN_NETWORK, _NETWORK_SECONDS):
        return []
    from twinned.neural import TwinNeuralRegressor

    network = TwinNeuralRegressor(effort="fast", random_state=random_state)
    plain = plain_network(network)
    start = time.perf_counter()
    networks = run.cv.add_model(
        TWIN_NETWORK, lambda fold: clone(network), run.progress, encoded=False
    )
    if run.starts("plain network", time.perf_counter() - start):
        run.cv.add_model("plain network", lambda fold: clone(plain), run.progress, encoded=False)
    return networks
