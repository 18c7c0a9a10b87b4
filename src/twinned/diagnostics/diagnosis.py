"""Diagnosis of a data set: a blend within a time budget, the model to use, and its checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from twinned._compat import safe_indexing
from twinned.diagnostics.blend_checks import BlendChecks, DiagnosedRows, TimeBudget
from twinned.diagnostics.data_checks import check_data
from twinned.diagnostics.errors import ErrorSummary, comparison_table, fold_means, summarize_errors
from twinned.diagnostics.findings import CheckResult, Finding
from twinned.diagnostics.recommendation import Recommendation, python_code
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.target import TransformedTargetTwin
from twinned.fitted.target import TargetTransform
from twinned.rows.formatting import aligned
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import draw_seed


@dataclass(repr=False)
class Diagnosis:
    """The recommended model of a data set, its out-of-fold errors, and further checks.

    Attributes
    ----------
    model : fitted regressor
        The recommended model: an `AutoTwinRegressor` of the recommended members or, for the
        logarithm of the target, a `TransformedTargetTwin` around it.
    twin : fitted AutoTwinRegressor
        That model, or the regressor in it.
    blend : fitted AutoTwinRegressor
        The blend of all members that were fitted; it is not calibrated.
    code : str
        Python that makes and fits the recommended model.
    recommendation : Recommendation
        `members`, `conclusion` ("helps", "does not help", "no clear difference", "unknown" or
        "no prediction", where no model is better than the mean) and the reason in words.
    errors : ErrorSummary
        Out-of-fold `rmse`, `mae`, `r2` and `bias` of the recommended model with their standard
        errors (`rmse_se`, …), its `median`, `quantile90` and `largest` absolute error, and
        `mean_rmse` of always predicting the mean.
    leaderboard : DataFrame
        Out-of-fold errors of all fitted members, of the recommended blend, and of the mean of y.
    out_of_fold : DataFrame
        `y` and `prediction` of each held-out row by the recommended model, with the `lower` and
        `upper` ends of 90 % intervals, its `score` (see `AutoTwinRegressor.out_of_fold`) and its
        `fold`.
    findings : list of Finding
        What the data checks found; see `check_data`.
    checks : dict of str to CheckResult
        Results by the key of the check; each names its model.
    relevance : ndarray of shape (n_features,)
        `feature_relevance_` of the recommended model.
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

    model: BaseEstimator
    twin: AutoTwinRegressor
    blend: AutoTwinRegressor
    code: str
    recommendation: Recommendation
    errors: ErrorSummary
    leaderboard: pd.DataFrame
    out_of_fold: pd.DataFrame
    findings: list[Finding]
    checks: dict[str, CheckResult]
    relevance: Floats
    skipped: dict[str, str]
    X: ArrayLike
    y: Floats
    rows: Indices | None
    n_rows: int
    log_target: bool = False
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """Which model to use and whether twinning helps, or that no feature predicts y."""
        return self.recommendation.summary

    def __repr__(self) -> str:
        return f"<Diagnosis of {len(self.y)} rows: {self.summary}>"

    def describe_errors(self, target: str = "y") -> str:
        """Return the out-of-fold errors as lines; `target` may end with a unit, "R [ohm]"."""
        lines = aligned(self.errors.describe(target))
        return "\n".join([f"Errors of {target} on held-out rows:", *lines])

    def __str__(self) -> str:
        skipped = [f"Skipped: {name} ({reason})." for name, reason in self.skipped.items()]
        results = map(str, (*self.findings, *self.checks.values()))
        lines = [self.summary, self.describe_errors(), *results, *skipped, *self.notes]
        return "\n".join(lines)


def diagnose(
    X: ArrayLike,
    y: ArrayLike,
    *,
    estimator: AutoTwinRegressor | None = None,
    budget: float | None = None,
    groups: ArrayLike | None = None,
    batch: ArrayLike | None = None,
    y_lower: ArrayLike | None = None,
    y_upper: ArrayLike | None = None,
    y_std: ArrayLike | None = None,
    log_target: bool = False,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
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
    batch : array of shape (n,), default=None
        Batch of each row, such as a laboratory or an instrument, whose values of y have an unknown
        offset, as in `AutoTwinRegressor.fit`. Errors are those of rows of known batches.
    y_lower, y_upper : arrays of shape (n,), default=None
        Bounds of censored rows, whose y is NaN, as in `AutoTwinRegressor.fit`. The models are
        fitted to them, too; errors and checks are those of the known rows.
    y_std : float or array of shape (n,), default=None
        Known standard deviations of the errors of measurement of y, as in `AutoTwinRegressor.fit`.
    log_target : bool, default=False
        Whether to fit the logarithm of y and its bounds, which must be positive. A lower bound of 0
        is none. All errors are in units of y.
    n_jobs : int or None, default=None
        Number of threads, as in `AutoTwinRegressor`.
    random_state : int, RandomState or None, default=None
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
    >>> diagnosis = diagnose(X, y, estimator=blend, budget=20, random_state=0)
    >>> diagnosis.recommendation.members
    ['gp_matern']
    """
    time_budget = TimeBudget(budget)
    transform = TargetTransform(log_target)
    blend = _clone_blend(estimator, random_state, n_jobs)
    progress = progress or (lambda _: None)
    fit_arguments = {
        "y_lower": y_lower,
        "y_upper": y_upper,
        "y_std": y_std,
        "groups": groups,
        "batch": batch,
    }
    data = DiagnosedRows.validate(blend, transform, X=X, y=y, **fit_arguments)
    progress("checking the data")
    findings = _check_rows(data.take(data.known), batch, log_target)
    data = data.affordable(budget, n_jobs, blend.random_state)
    known_rows = data.take(data.known)
    progress("fitting the members of the blend")
    data.fit(blend, transform, time_budget.before_checks)
    checks = BlendChecks(blend, data, known_rows, transform, time_budget, progress).run()
    code = python_code(checks.twin, transform, **fit_arguments)
    return _summarize(checks, code, findings, _notes(data))


def _summarize(
    checks: BlendChecks, code: str, findings: list[Finding], notes: list[str]
) -> Diagnosis:
    """Return the diagnosis, from the checks of the blend and the findings in the data."""
    twin, known_rows, transform = checks.twin, checks.known, checks.transform
    predicted = checks.out_of_fold["prediction"].to_numpy()
    n_rows = known_rows.n_table_rows
    return Diagnosis(
        model=TransformedTargetTwin.around(twin) if transform.is_log else twin,
        twin=twin,
        blend=checks.blend,
        code=code,
        recommendation=checks.recommendation,
        errors=summarize_errors(
            checks.held_out.y, predicted, fold_means(checks.blend, known_rows.y)
        ),
        leaderboard=comparison_table(checks.blend, twin, transform),
        out_of_fold=checks.out_of_fold,
        findings=findings,
        checks=checks.results,
        relevance=twin.feature_relevance_,
        skipped={**checks.blend.skipped_, **checks.skipped},
        X=known_rows.X,
        y=known_rows.y,
        rows=None if len(known_rows) == n_rows else known_rows.table_rows,
        n_rows=n_rows,
        log_target=transform.is_log,
        seconds=checks.budget.spent,
        notes=notes,
    )


def _check_rows(
    known_rows: DiagnosedRows, batch: ArrayLike | None, log_target: bool
) -> list[Finding]:
    """Return the findings of the data checks; `batch` of all rows may have a name."""
    return check_data(
        known_rows.X,
        known_rows.y,
        groups=known_rows.codes,
        batch=None if batch is None else safe_indexing(batch, known_rows.table_rows),
        log_target=log_target,
    )


def _clone_blend(
    estimator: AutoTwinRegressor | None,
    random_state: int | np.random.RandomState | None,
    n_jobs: int | None,
) -> AutoTwinRegressor:
    """Return a clone of the estimator, or the default blend, with a seed.

    So all blends have the same folds, and the code of the recommended model has a seed.
    """
    blend = AutoTwinRegressor() if estimator is None else clone(estimator)
    if not isinstance(blend, AutoTwinRegressor):
        raise TypeError(f"estimator must be an AutoTwinRegressor with members, not {blend!r}.")
    seed = random_state if isinstance(random_state, int) else draw_seed(random_state)
    return blend.set_params(random_state=seed, n_jobs=n_jobs)


def _notes(data: DiagnosedRows) -> list[str]:
    """Return sentences on censored rows, known errors and a subset of rows."""
    notes = []
    if n := int(data.censored.sum()):
        notes.append(f"The fit also uses {n:,} censored rows; errors are those of the other rows.")
    if data.y_std is not None:
        errors = f"known errors of measurement, whose median is {np.median(data.y_std):.3g}"
        notes.append(f"Rows are weighted by their {errors}; stated errors include them.")
    if len(data) < data.n_table_rows:
        rows = f"{len(data.known):,} random rows of {data.n_table_rows:,}"
        more = "with more time, its errors are lower, and twinned fit uses all rows"
        notes.append(f"The model is fitted to {rows}; {more}.")
    return notes
