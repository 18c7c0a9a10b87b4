"""Diagnosis of a data set: a blend within a time budget, the model to use, and its checks."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from twinned._compat import safe_indexing
from twinned.diagnostics.curves import CheckResult, learning_curve
from twinned.diagnostics.data_checks import Finding, check_data, check_diagnosable
from twinned.diagnostics.errors import ErrorSummary, comparison_table, fold_means, summarize_errors
from twinned.diagnostics.recommendation import Recommendation, choose_model, python_code
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.budget import affordable_rows
from twinned.estimators.target import TransformedTargetTwin, bound_arguments
from twinned.exceptions import SkippedMemberWarning, TableWarning
from twinned.fitted.target import TargetTransform
from twinned.models.resources import limit_threads
from twinned.rows.folds import encode_groups
from twinned.rows.formatting import aligned
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TargetBounds, TrainingRows, validate_training_rows
from twinned.rows.validation import draw_seed

_NETWORKS = ("neural", "neural_twin")
# Of the budget, for the report, and for the checks and the report: a share, and the least seconds.
_FOR_REPORT, _FOR_CHECKS = (0.04, 1.0), (0.06, 1.5)
# Of the seconds that all fits of a member took: all folds with 1/4 + 1/2 + 3/4 + 1 of their rows.
_LEARNING_SHARE = 2.2


@dataclass(frozen=True, eq=False)
class DiagnosedRows(TrainingRows):
    """Rows that are diagnosed and, after them, censored ones, with the table that they are of."""

    table: ArrayLike = ()

    @classmethod
    def validate(
        cls, blend: AutoTwinRegressor, transform: TargetTransform, **arguments: Any
    ) -> Self:
        """Validate the arguments of the fit of a blend; all known rows are diagnosed."""
        with warnings.catch_warnings(action="ignore", category=TableWarning):
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
    recommendation: Recommendation
    errors: ErrorSummary
    leaderboard: pd.DataFrame
    out_of_fold: pd.DataFrame
    X: ArrayLike
    y: Floats
    rows: Indices | None
    n_rows: int
    log_target: bool = False
    code: str = ""
    findings: list[Finding] = field(default_factory=list)
    checks: dict[str, CheckResult] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
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
    start, transform = time.perf_counter(), TargetTransform(log_target)
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
    known_rows = data.take(data.known)
    labels = None if batch is None else safe_indexing(batch, known_rows.table_rows)  # with a name
    findings = check_data(
        known_rows.X,
        known_rows.y,
        groups=known_rows.groups,
        batch=labels,
        log_target=log_target,
    )
    data = data.affordable(budget, n_jobs, blend.random_state)
    progress("fitting the members of the blend")
    seconds = _deadline(start, budget, *_FOR_CHECKS) - time.perf_counter()
    data.fit(blend, transform, None if budget is None else max(seconds, 0.01))
    progress("calibrating the recommended model")
    known_rows = data.take(data.known)
    diagnosis = _recommend(blend, known_rows, transform)
    diagnosis.code = python_code(diagnosis.twin, transform, **fit_arguments)
    diagnosis.findings, diagnosis.notes = findings, _notes(data)
    end = _deadline(start, budget, *_FOR_REPORT)
    _add_learning_curve(diagnosis, known_rows.codes, end, progress)
    diagnosis.seconds = time.perf_counter() - start
    return diagnosis


def _recommend(
    blend: AutoTwinRegressor, known_rows: DiagnosedRows, transform: TargetTransform
) -> Diagnosis:
    """Return the recommended model of a fitted blend with its errors."""
    recommendation, twin = choose_model(blend, transform)
    out_of_fold = _in_units_of_target(twin.out_of_fold(), transform)
    held_out_y, means = known_rows.y[out_of_fold.index], fold_means(blend, known_rows.y)
    n_rows = known_rows.n_table_rows
    return Diagnosis(
        model=TransformedTargetTwin.around(twin) if transform.is_log else twin,
        twin=twin,
        blend=blend,
        recommendation=recommendation,
        errors=summarize_errors(held_out_y, out_of_fold["prediction"].to_numpy(), means),
        leaderboard=comparison_table(blend, twin, transform),
        out_of_fold=out_of_fold,
        X=known_rows.X,
        y=known_rows.y,
        rows=None if len(known_rows) == n_rows else known_rows.table_rows,
        n_rows=n_rows,
        log_target=transform.is_log,
        skipped=dict(blend.skipped_),
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


def _deadline(start: float, budget: float | None, share: float, least: float) -> float:
    """Return the time at which a share of the budget remains, and at least some seconds."""
    return np.inf if budget is None else start + budget - max(least, share * budget)


def _add_learning_curve(
    diagnosis: Diagnosis, groups: Indices | None, end: float, progress: Callable[[str], None]
) -> None:
    """Add the learning curve of the largest member without networks, or why it is skipped.

    The features of a member are prepared as those of the member that is fitted to all rows, and its
    folds are those of the blend, which has the (row,) groups. A curve that would end after `end` is
    skipped.
    """
    blend, twin = diagnosis.blend, diagnosis.twin
    weights = dict(zip(twin.member_names_, twin.member_weights_, strict=True))
    names = [name for name in weights if name.partition(":")[0] not in _NETWORKS]
    if not names:
        return
    name = max(names, key=lambda name: weights[name])
    seconds = _LEARNING_SHARE * blend.leaderboard_.set_index("member")["fit_seconds"][name]
    if seconds > (remaining := max(end - time.perf_counter(), 0.0)):
        diagnosis.skipped[f"learning curve of {name}"] = (
            f"expected to take {seconds:.1f} s, and {remaining:.1f} s remain besides the report"
        )
        return
    progress(f"learning curve of {name}")
    member = next(member for member in blend.blend_model_.members if member.label == name)
    with limit_threads(1):  # as in the fits of the blend
        curve = learning_curve(
            member.estimator,
            member.preparation.transform(blend.anchors_X_),
            blend.anchors_y_,
            blend.folds_,
            groups=groups,
            name=f"{name}, logarithm" if diagnosis.log_target else name,
        )
    diagnosis.checks[curve.key] = curve


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
            "fold": table["fold"],
        }
    )
