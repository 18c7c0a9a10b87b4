"""Diagnosis of a data set: a blend within a time budget, the model to use, and its checks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor

from twinned._compat import safe_indexing
from twinned.diagnostics.cross_validation import check_diagnosable
from twinned.diagnostics.data_checks import Finding, check_data
from twinned.diagnostics.errors import ErrorSummary, comparison_table, summarize_errors
from twinned.diagnostics.member_checks import CheckRun, FitArguments, TimeBudget
from twinned.diagnostics.recommendation import Recommendation, python_code, recommend
from twinned.diagnostics.result import CheckResult
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.costs import affordable_rows
from twinned.estimators.blending.results import LEADERBOARD_FORMATS
from twinned.estimators.training_set import TargetArguments
from twinned.exceptions import SkippedMemberWarning
from twinned.models.censoring import TargetBounds, validate_bounds
from twinned.pairing.splits import encode_groups
from twinned.rows.formatting import bullets, details, paragraph, preformatted, table, view
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats
from twinned.rows.validation import count_rows

_REPORT_SHARE, _REPORT_SECONDS = 0.06, 1.5  # of the budget, for what follows the fits


@dataclass
class Diagnosis:
    """The recommended model of a data set, its out-of-fold errors, and further checks.

    Attributes
    ----------
    model : fitted regressor
        The recommended model: an `AutoTwinRegressor` of the recommended members or, for the
        logarithm of the target, a `TransformedTargetRegressor` around it.
    twin : fitted AutoTwinRegressor
        That model, or the regressor in it.
    blend : fitted AutoTwinRegressor
        The blend of all members that were fitted; it is not calibrated.
    code : str
        At most five lines of Python that make the recommended model and fit it to all rows of X
        and y.
    recommendation : Recommendation
        `members`, `conclusion` ("helps", "does not help", "no clear difference" or "unknown") and
        the reason in words.
    errors : ErrorSummary
        Out-of-fold `rmse`, `mae`, `r2` and `bias` of the recommended model with their standard
        errors (`rmse_se`, …), its `median`, `quantile90` and `largest` absolute error, and
        `mean_rmse` of always predicting the mean.
    leaderboard : DataFrame
        Out-of-fold errors of all fitted members, of the recommended blend, of CatBoost where it is
        installed and there is time, and of the mean of y.
    out_of_fold : DataFrame
        `y` and `prediction` of each row by the recommended model, with the `lower` and `upper` ends
        of 90 % intervals, its `score` (see `AutoTwinRegressor.out_of_fold`) and its `fold`.
    findings : list of Finding
        What the data checks found; see `check_data`.
    checks : dict of str to CheckResult
        Results by the key of the check; each names its model.
    relevance : ndarray of shape (n_features,) or None
        `feature_relevance_` of the recommended model; None where the time was too short for it.
    skipped : dict of str to str
        Members and checks that were skipped, with the reason.
    X, y : the rows that were fitted, and their values
    rows : ndarray or None
        Which rows of the table these are; None for all.
    n_rows : int
        Rows of the table.
    seconds : float
        The time that the diagnosis took.
    notes : list of str
        What else limits the results.
    """

    model: Any
    twin: AutoTwinRegressor
    blend: AutoTwinRegressor
    code: str
    recommendation: Recommendation
    errors: ErrorSummary
    leaderboard: pd.DataFrame
    out_of_fold: pd.DataFrame
    findings: list[Finding]
    checks: dict[str, CheckResult]
    relevance: Floats | None
    skipped: dict[str, str]
    X: Any
    y: Floats
    rows: Indices | None
    n_rows: int
    log_target: bool = False
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """Which model to use, and whether twinning helps."""
        return self.recommendation.summary

    def describe_errors(self, target: str = "y") -> str:
        """Return the out-of-fold errors in words; `target` may end with a unit, "R [ohm]"."""
        return self.errors.describe(target)

    def __str__(self) -> str:
        lines = [self.summary, self.describe_errors(), *map(str, self.findings)]
        lines += [str(check) for check in self.checks.values()]
        lines += [f"Skipped: {name} ({reason})." for name, reason in self.skipped.items()]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        board = {
            name: self.leaderboard[name].tolist()
            for name in ("model", "rmse", "rmse_se", "weight", "fit_seconds")
        }
        recommended = self.leaderboard["recommended"].tolist()
        skipped = [f"Skipped: {name} ({reason})." for name, reason in self.skipped.items()]
        sections = {
            "Data checks": [str(finding) for finding in self.findings],
            "Further checks": [str(check) for check in self.checks.values()],
            "Limits": [*skipped, *self.notes],
        }
        return view(
            paragraph(self.summary, "strong"),
            paragraph(self.describe_errors()),
            table(board, LEADERBOARD_FORMATS, strong=recommended),
            *(
                details(f"{name}: {len(own)}", bullets(own))
                for name, own in sections.items()
                if own
            ),
            details("Code of the recommended model", preformatted(self.code)),
        )


def diagnose(
    X: Any,
    y: Any,
    *,
    estimator: AutoTwinRegressor | None = None,
    budget: float | None = None,
    groups: Any = None,
    y_lower: Any = None,
    y_upper: Any = None,
    log_target: bool = False,
    X_new: Any = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Find the model to use for a data set, and whether twinning helps.

    An `AutoTwinRegressor` is fitted. Its out-of-fold errors decide whether its blend, a blend
    without twins or a single member is recommended.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All labelled rows; at least twenty.
    y : array of shape (n,)
        Their values.
    estimator : unfitted AutoTwinRegressor, default=None
        The blend to fit; its `time_budget`, `n_jobs` and `random_state` are replaced.
    budget : float, default=None
        Seconds. Members and checks that would take longer are skipped, and of very many rows a
        random subset is fitted. None is no limit.
    groups : array of shape (n,), default=None
        Names of groups of rows that belong together (measurements of one sample, flats of one
        building): they are held out together, so that the results hold for new groups.
    y_lower, y_upper : arrays of shape (n,), default=None
        Bounds of censored rows, whose y is NaN, as in `AutoTwinRegressor.fit`. The models are
        fitted to them, too; errors and checks are those of the known rows.
    log_target : bool, default=False
        Whether to fit the logarithm of y and its bounds, which must be positive. A lower bound of 0
        is none. All errors are in units of y.
    X_new : table or array of shape (n_new, n_features), default=None
        Rows to predict later; a finding reports where they are outside of X.
    n_jobs : int or None, default=None
        Number of threads, as in `AutoTwinRegressor`.
    random_state : int, default=0
        Seed of the folds and the models.
    progress : callable, default=None
        Called with a short text before each step.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> from twinned import AutoTwinRegressor, diagnose
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(60, random_state=0)
    >>> blend = AutoTwinRegressor(members=["ridge", "gp_matern"])
    >>> diagnosis = diagnose(X, y, estimator=blend, budget=20)
    >>> diagnosis.recommendation.members
    ['gp_matern']
    """
    time_budget = TimeBudget(budget)
    progress = progress or (lambda message: None)
    n_rows = count_rows(X)
    labels = None if groups is None else np.asarray(groups, dtype=object)
    table = _Table(X, y, labels)
    rows: Indices | None = None
    if y_lower is not None or y_upper is not None:
        table = table._replace(bounds=validate_bounds(None, y, y_lower, y_upper, n_rows, None))
        rows = table.known
        X, y = safe_indexing(X, rows), table.bounds.lower[rows]
        labels = None if labels is None else labels[rows]
    codes = None if labels is None else encode_groups(labels, len(labels))
    values = check_diagnosable(y, count_rows(X))
    if log_target and min(values.min(), table.bounds.upper.min(initial=np.inf)) <= 0:
        raise ValueError("log_target=True needs positive values of y, y_lower and y_upper.")
    progress("checking the data")
    findings = check_data(X, values, groups=codes, X_new=X_new, log_target=log_target)
    drawn = _subset(X, len(values), budget, n_jobs, random_state)
    if drawn is not None:
        X, values = safe_indexing(X, drawn), check_diagnosable(values[drawn], len(drawn))
        labels = None if labels is None else labels[drawn]
        codes = None if codes is None else codes[drawn]
        rows = drawn if rows is None else rows[drawn]
    estimator = clone(_check_estimator(estimator))
    remaining = None if budget is None else _time_for_fits(time_budget.remaining, budget)
    estimator.set_params(time_budget=remaining, n_jobs=n_jobs, random_state=random_state)
    progress("fitting the members of the blend")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedMemberWarning)  # they are in `skipped`
        plain = table.with_censored(rows, X, values, labels)
        fitted = plain
        if log_target:
            fitted = table.logarithm().with_censored(rows, X, np.log(values), labels)
        blend = estimator._fit(*fitted, calibrate=False)
    recommendation = recommend(blend)
    progress("calibrating the recommended model")
    twin = blend.select_members(recommendation.members).set_params(verbose=0)
    out_of_fold = _in_units_of_target(twin.out_of_fold(), log_target)
    predicted = out_of_fold["prediction"].to_numpy()
    run = CheckRun(blend, twin, labels, codes, time_budget, progress)
    run.run(X, values, plain if log_target else None)
    return Diagnosis(
        model=_with_log_target(twin, X, values) if log_target else twin,
        twin=twin,
        blend=blend,
        code=python_code(
            twin,
            log_target=log_target,
            grouped=groups is not None,
            censored=table.n_censored > 0,
        ),
        recommendation=recommendation,
        errors=summarize_errors(values, predicted),
        leaderboard=comparison_table(blend, twin, log_target, run.comparisons),
        out_of_fold=out_of_fold,
        findings=findings,
        checks=run.results,
        relevance=run.relevance,
        skipped={**blend.skipped_, **run.skipped},
        X=X,
        y=values,
        rows=rows,
        n_rows=n_rows,
        log_target=log_target,
        seconds=time_budget.spent,
        notes=[
            *_new_rows_note(findings, X_new),
            *_notes(n_rows, drawn, table.n_censored),
        ],
    )


class _Table(NamedTuple):
    """The table that is diagnosed, with the bounds of censored rows."""

    X: Any
    y: Any
    labels: np.ndarray | None
    bounds: TargetBounds = TargetBounds(np.empty(0), np.empty(0))

    @property
    def known(self) -> Indices:
        return np.flatnonzero(~self.bounds.censored)

    @property
    def n_censored(self) -> int:
        return int(self.bounds.censored.sum())

    def logarithm(self) -> _Table:
        return self._replace(bounds=self.bounds.logarithm())

    def with_censored(
        self, rows: Indices | None, X: Any, y: Floats, labels: np.ndarray | None
    ) -> FitArguments:
        """Arguments of the fit: known rows X, y and their labels, and all censored rows.

        `rows` are the known rows in the table.
        """
        if rows is None or not self.n_censored:
            return X, TargetArguments(y), None, labels
        every = np.concatenate([rows, np.flatnonzero(self.bounds.censored)])
        bounds = self.bounds.take(every)
        target = TargetArguments(np.where(bounds.censored, np.nan, bounds.lower), *bounds)
        labels = None if self.labels is None else self.labels[every]
        return safe_indexing(self.X, every), target, None, labels


def _check_estimator(estimator: AutoTwinRegressor | None) -> AutoTwinRegressor:
    if estimator is None:
        return AutoTwinRegressor()
    if not isinstance(estimator, AutoTwinRegressor):
        raise TypeError(
            "estimator must be an AutoTwinRegressor; for another model m, use "
            f"AutoTwinRegressor(members=[('m', m), 'ridge']), not {type(estimator).__name__}."
        )
    return estimator


def _time_for_fits(remaining: float, budget: float) -> float:
    """Return the seconds for the blend; the report needs the rest."""
    return max(remaining - max(_REPORT_SECONDS, _REPORT_SHARE * budget), 0.01)


def _subset(
    X: Any, n_rows: int, budget: float | None, n_jobs: int | None, random_state: int
) -> Indices | None:
    """Return random rows that can be fitted within the budget; None: all can."""
    if budget is None:
        return None
    size = affordable_rows(n_rows, np.shape(X)[1], budget, n_jobs)
    if size >= n_rows:
        return None
    return np.sort(np.random.RandomState(random_state).permutation(n_rows)[:size])


def _new_rows_note(findings: list[Finding], X_new: Any) -> list[str]:
    """Return a sentence on new rows where there is no finding on them."""
    if X_new is None or any(own.code == "TW401" for own in findings):
        return []
    return [
        f"Of the {count_rows(X_new):,} rows to predict, not more than expected lie outside of the "
        "training rows."
    ]


def _notes(n_rows: int, rows: Indices | None, n_censored: int) -> list[str]:
    notes = []
    if n_censored:
        notes.append(
            f"The model is also fitted to {n_censored:,} rows whose value is only known to lie "
            "beyond a limit; errors are those of the other rows."
        )
    if rows is None:
        return notes
    return [
        *notes,
        f"The model is fitted to {len(rows):,} random rows of {n_rows:,}, which fit into the time "
        "budget; with more time it is fitted to more rows, and its errors are lower.",
    ]


def _in_units_of_target(table: pd.DataFrame, log_target: bool) -> pd.DataFrame:
    """Return out-of-fold predictions with the ends of their 90 % intervals, in units of y."""
    y, mean, score = (table[name].to_numpy() for name in ("y", "prediction", "score"))
    # a score is the error divided by its expected size
    error = np.abs(y - mean)
    size = np.divide(error, score, out=np.full_like(error, np.nan), where=score > 0)
    known = size[np.isfinite(size)]
    size = np.where(np.isfinite(size), size, np.median(known) if len(known) else 0.0)
    half_width = np.quantile(score, 0.9) * size
    parts = {"y": y, "prediction": mean, "lower": mean - half_width, "upper": mean + half_width}
    if log_target:
        parts = {name: np.exp(own) for name, own in parts.items()}
    return pd.DataFrame({**parts, "score": score, "error_scale": size, "fold": table["fold"]})


def _with_log_target(twin: AutoTwinRegressor, X: Any, y: Floats) -> TransformedTargetRegressor:
    """Return the fitted regressor of y around the one that is fitted to its logarithm."""
    wrapper = TransformedTargetRegressor(DummyRegressor(), func=np.log, inverse_func=np.exp)
    wrapper.fit(X, y)
    wrapper.set_params(regressor=clone(twin))
    wrapper.regressor_ = twin
    if hasattr(twin, "feature_names_in_"):
        wrapper.feature_names_in_ = twin.feature_names_in_
    return wrapper
