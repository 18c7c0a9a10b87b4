"""Diagnosis of a data set: a blend within a time budget, the model to use, and its checks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor

from twinned._compat import safe_indexing
from twinned.diagnostics.blend_checks import CheckRun, FitArguments, TimeBudget
from twinned.diagnostics.cross_validation import check_diagnosable
from twinned.diagnostics.data_checks import check_data
from twinned.diagnostics.errors import ErrorSummary, comparison_table, summarize_errors
from twinned.diagnostics.findings import Finding
from twinned.diagnostics.recommendation import Recommendation, python_code, recommend
from twinned.diagnostics.twin_checks import CheckResult
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
        Python that makes and fits the recommended model.
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

    def _sections(self) -> dict[str, list[str]]:
        skipped = [f"Skipped: {name} ({reason})." for name, reason in self.skipped.items()]
        return {
            "Data checks": [str(finding) for finding in self.findings],
            "Further checks": [str(check) for check in self.checks.values()],
            "Limits": [*skipped, *self.notes],
        }

    def __str__(self) -> str:
        sections = self._sections().values()
        return "\n".join([self.summary, self.describe_errors(), *chain(*sections)])

    def _repr_html_(self) -> str:
        columns = ("model", "rmse", "rmse_se", "weight", "fit_seconds")
        board = {name: self.leaderboard[name].tolist() for name in columns}
        return view(
            paragraph(self.summary, "strong"),
            paragraph(self.describe_errors()),
            table(board, LEADERBOARD_FORMATS, strong=self.leaderboard["recommended"].tolist()),
            *(
                details(f"{name}: {len(lines)}", bullets(lines))
                for name, lines in self._sections().items()
                if lines
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
    data = DiagnosedRows.validate(X, y, y_lower, y_upper, groups)
    if log_target and data.bounds.upper.min() <= 0:
        raise ValueError("log_target=True needs positive values of y, y_lower and y_upper.")
    progress("checking the data")
    findings = check_data(data.X, data.y, groups=data.groups, X_new=X_new, log_target=log_target)
    data = data.affordable(budget, n_jobs, random_state)
    if budget is not None:
        budget = max(time_budget.without(_REPORT_SHARE, _REPORT_SECONDS), 0.01)
    progress("fitting the members of the blend")
    estimator = clone(_check_estimator(estimator))
    estimator.set_params(time_budget=budget, n_jobs=n_jobs, random_state=random_state)
    blend = _fit_blend(estimator, data.fit_arguments(log_target))
    recommendation = recommend(blend)
    progress("calibrating the recommended model")
    twin = blend.select_members(recommendation.members).set_params(verbose=0)
    out_of_fold = _in_units_of_target(twin.out_of_fold(), log_target)
    run = CheckRun(blend, twin, data.labels, data.groups, time_budget, progress)
    run.run(data.X, data.y, data.fit_arguments(False) if log_target else None)
    bounds = {"y_lower": y_lower, "y_upper": y_upper} if data.n_censored else {}
    given = [name for name, bound in bounds.items() if bound is not None]
    return Diagnosis(
        model=_with_log_target(twin, data.X, data.y) if log_target else twin,
        twin=twin,
        blend=blend,
        code=python_code(twin, log_target=log_target, grouped=groups is not None, bounds=given),
        recommendation=recommendation,
        errors=summarize_errors(data.y, out_of_fold["prediction"].to_numpy()),
        leaderboard=comparison_table(blend, twin, log_target, run.comparisons),
        out_of_fold=out_of_fold,
        findings=findings,
        checks=run.results,
        relevance=run.relevance,
        skipped={**blend.skipped_, **run.skipped},
        X=data.X,
        y=data.y,
        rows=None if len(data.rows) == data.n_rows else data.rows,
        n_rows=data.n_rows,
        log_target=log_target,
        seconds=time_budget.spent,
        notes=_notes(findings, X_new, data),
    )


@dataclass(frozen=True)
class DiagnosedRows:
    """The known rows of a table that are diagnosed, beside its censored rows."""

    table: Any  # all rows
    bounds: TargetBounds  # (row of the table,)
    table_labels: NDArray[Any] | None  # (row of the table,): names of groups
    codes: Indices | None  # (row of the table,): of the groups
    rows: Indices  # those that are diagnosed, in the table

    @classmethod
    def validate(cls, X: Any, y: Any, y_lower: Any, y_upper: Any, groups: Any) -> DiagnosedRows:
        """Validate the arguments of a diagnosis; all known rows are diagnosed."""
        n_rows = count_rows(X)
        if y_lower is None and y_upper is None:
            values = check_diagnosable(y, n_rows)
            bounds = TargetBounds(values, values)
        else:
            bounds = validate_bounds(None, y, y_lower, y_upper, n_rows, None)
        rows = np.flatnonzero(~bounds.censored)
        check_diagnosable(bounds.lower[rows], len(rows))
        labels = None if groups is None else np.asarray(groups, dtype=object)
        codes = None if labels is None else encode_groups(labels, n_rows)
        return cls(X, bounds, labels, codes, rows)

    @property
    def X(self) -> Any:
        every = len(self.rows) == self.n_rows
        return self.table if every else safe_indexing(self.table, self.rows)

    @property
    def y(self) -> Floats:
        return self.bounds.lower[self.rows]

    @property
    def labels(self) -> NDArray[Any] | None:
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
            return self.X, TargetArguments(bounds.lower), None, labels
        y = np.where(bounds.censored, np.nan, bounds.lower)
        return safe_indexing(self.table, every), TargetArguments(y, *bounds), None, labels


def _check_estimator(estimator: AutoTwinRegressor | None) -> AutoTwinRegressor:
    if estimator is None:
        return AutoTwinRegressor()
    if not isinstance(estimator, AutoTwinRegressor):
        raise TypeError(
            "estimator must be an AutoTwinRegressor; for another model m, use "
            f"AutoTwinRegressor(members=[('m', m), 'ridge']), not {type(estimator).__name__}."
        )
    return estimator


def _fit_blend(estimator: AutoTwinRegressor, arguments: FitArguments) -> AutoTwinRegressor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedMemberWarning)  # they are in `skipped`
        return estimator._fit(*arguments, calibrate=False)


def _notes(findings: list[Finding], X_new: Any, data: DiagnosedRows) -> list[str]:
    """Return sentences on new rows without a finding, on censored rows and on a subset of rows."""
    notes = []
    if X_new is not None and all(finding.code != "TW401" for finding in findings):
        notes.append(
            f"Of the {count_rows(X_new):,} rows to predict, not more than expected lie outside of "
            "the training rows."
        )
    if data.n_censored:
        notes.append(
            f"The model is also fitted to {data.n_censored:,} rows whose value is only known to "
            "lie beyond a limit; errors are those of the other rows."
        )
    if len(data.rows) < data.n_rows - data.n_censored:
        notes.append(
            f"The model is fitted to {len(data.rows):,} random rows of {data.n_rows:,}, "
            "which fit into the time budget; with more time it is fitted to more rows, and its "
            "errors are lower."
        )
    return notes


def _in_units_of_target(table: pd.DataFrame, log_target: bool) -> pd.DataFrame:
    """Return out-of-fold predictions with the ends of their 90 % intervals, in units of y."""
    y, mean, score = (table[name].to_numpy() for name in ("y", "prediction", "score"))
    # a score is the error divided by its expected size
    error = np.abs(y - mean)
    size = np.divide(error, score, out=np.full_like(error, np.nan), where=score > 0)
    finite = size[np.isfinite(size)]
    size = np.where(np.isfinite(size), size, np.median(finite) if len(finite) else 0.0)
    half_width = np.quantile(score, 0.9) * size
    parts = {"y": y, "prediction": mean, "lower": mean - half_width, "upper": mean + half_width}
    if log_target:
        parts = {name: np.exp(part) for name, part in parts.items()}
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
