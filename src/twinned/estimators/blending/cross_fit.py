"""Cross-validated fits of the members of a blend.

Without a time budget, the fits of members and folds are independent tasks of a pool of threads. Of
the members that `"auto"` chooses, trees are fitted without their first folds first; those that are
far behind the others there are not fitted further, nor are plain networks where the neural twin is
far behind. The order within a time budget is that of `blending.budget`.

Of wide tables, Gaussian processes, boosting and extremely randomized trees of the least effort have
the most important features, and all categorical ones. Each fold selects its own, without the rows
that it holds out: out-of-fold errors are those of the whole procedure.
"""

import contextlib
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from sklearn.utils.validation import has_fit_parameter

from twinned.estimators.blending.budget import Clock, CostModel
from twinned.estimators.blending.members import (
    EXTRA_TREES,
    GP_TANIMOTO,
    SCREENED_FEATURES,
    CrossFittedMember,
    FitSettings,
    MemberSpec,
    choose_tree_effort,
)
from twinned.estimators.blending.model import FeaturePreparation, FittedMember
from twinned.estimators.blending.rows import impute_folds
from twinned.estimators.blending.weights import (
    FAR_BEHIND,
    describe_if_behind,
    first_folds,
    rmse_and_error,
)
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import SkippedMemberWarning, UnsuitableDataError
from twinned.models.resources import (
    is_remote_backend,
    limit_openmp,
    limit_threads,
    one_thread_if_remote,
)
from twinned.models.wide_tables import important_features
from twinned.rows.scaling import round_for_sums, skewed_columns
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

_TIMED_ROWS = 200  # to time the prediction of a member that does not predict in folds
_TWIN, _PLAIN = "neural_twin", "neural"  # networks with and without pairs
NETWORK_ANCHORS = 32  # of a neural twin
# Failures that a member declares, or that the numbers of the rows cause; others are raised.
_FAILURES = (UnsuitableDataError, FloatingPointError, np.linalg.LinAlgError)


@dataclass
class CrossFit:
    """Fits of members to the same rows and folds.

    By label, `members` are those whose fits are complete, and `skipped` the reasons why others have
    none.
    """

    rows: TrainingRows
    settings: FitSettings
    members: dict[str, CrossFittedMember] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    fitted_folds: dict[str, CrossFittedMember] = field(default_factory=dict)  # those so far
    n_fitted_folds: Counter[str] = field(default_factory=Counter)
    imputed: dict[int, Floats] = field(default_factory=dict)  # of the training rows of each fold

    def fit_all(self, specs: list[MemberSpec]) -> list[CrossFittedMember]:
        """Fit all members, as tasks of a pool of threads; the results have the same order.

        Members that are far behind in their first folds are not fitted further.
        """
        specs = self.without_needless(specs)
        longest_first = sorted(specs, key=self.cost_model(1).seconds, reverse=True)
        first = {spec.label: self._first_folds(spec, specs) for spec in specs}
        self._fit([(spec, fold) for spec in longest_first for fold in first[spec.label]])
        self._skip_those_behind(specs)
        others = [
            (spec, fold)
            for spec in longest_first
            if spec.label not in self.skipped
            for fold in self._folds(spec)
            if fold not in first[spec.label]
        ]
        if others:
            self._fit(others)
        return [self.members[spec.label] for spec in specs if spec.label in self.members]

    def _first_folds(self, spec: MemberSpec, specs: list[MemberSpec]) -> list[int]:
        """The fits of a member before it is compared with others; all fits where it is not.

        Plain networks have none: they wait for the neural twin, which is compared in their place.
        """
        if spec.is_optional and spec.label == _PLAIN and _TWIN in {s.label for s in specs}:
            return []
        is_compared = spec.is_optional and not spec.one_fit and spec.name != "ridge"
        return first_folds(self.rows) if is_compared else self._folds(spec)

    def _skip_those_behind(self, specs: list[MemberSpec]) -> None:
        """Skip members that are far behind others, or plain networks where the neural twin is."""
        predictions = {
            label: fits.out_of_fold
            for label, fits in self.fitted_folds.items()
            if label not in self.skipped
        }
        for spec in specs:
            compared = spec.label if spec.label in self.fitted_folds else _TWIN
            if spec.label not in self.members and compared in predictions:
                reason = describe_if_behind(compared, predictions, self.rows)
                if reason is not None:
                    self.skipped[spec.label] = reason

    def report_skipped(self, stacklevel: int) -> None:
        """Warn of members that were not fitted; raise an error where none was."""
        reasons = {k: reason for k, reason in self.skipped.items() if FAR_BEHIND not in reason}
        message = "; ".join(
            f"{', '.join(label for label in reasons if reasons[label] == reason)} ({reason})"
            for reason in dict.fromkeys(reasons.values())
        )
        if not self.members:
            raise ValueError(f"No member could be fitted: {message}.")
        if reasons:
            message = f"Members that were not fitted: {message}."
            warnings.warn(message, SkippedMemberWarning, stacklevel=stacklevel + 1)

    # --- members that may differ ----------------------------------------------------------------

    def cost_model(self, n_jobs: int) -> CostModel:
        """The expected seconds of members of these rows."""
        return CostModel(len(self.rows), self.n_features, self.rows.n_folds, n_jobs)

    @property
    def n_features(self) -> int:
        """The number of features of members that do not compare fragments."""
        return len(self.settings.other_columns(self.rows.matrix.shape[1]))

    def without_needless(self, specs: list[MemberSpec]) -> list[MemberSpec]:
        """The members that may differ in their predictions.

        Members with power transformations are those without where no column is skewed. They are not
        tried for censored rows either. Where all values of y are equal, ridge regression is enough,
        or else the quickest member.
        """
        rows, y, costs = self.rows, self.rows.y, self.cost_model(1)
        if rows.bounds is not None:
            specs = [spec.for_bounds() for spec in specs]
        specs = [spec.for_table(self.n_features) for spec in specs]
        columns = np.column_stack([rows.matrix[:, rows.schema.numeric], y])
        if rows.bounds is not None or not skewed_columns(columns).any():
            names = {spec.name for spec in specs}
            specs = [spec for spec in specs if spec.plain_name not in names - {spec.name}]
        if rows.bounds is not None or np.ptp(y) > 0:
            return specs
        chosen = min(specs, key=lambda spec: (spec.name != "ridge", costs.seconds(spec)))
        reason = f"all values of y are {y[0]:g}"
        self.skipped |= {spec.label: reason for spec in specs if spec is not chosen}
        return [chosen]

    def rmse(self, member: CrossFittedMember) -> float:
        """The root mean squared error of the known rows that are held out."""
        rows, known = self.rows, self.rows.held_out & ~self.rows.censored
        weight = None if rows.weight is None else rows.weight[known]
        return rmse_and_error(member.out_of_fold[known], rows.y[known], weight)[0]

    # --- fits ---------------------------------------------------------------------------------

    def _folds(self, spec: MemberSpec) -> list[int]:
        """The fits of a member; −1 is that of all rows."""
        return [-1] if spec.one_fit else [*range(self.rows.n_folds), -1]

    def fit_one(
        self, spec: MemberSpec, clock: Clock, *, required: bool
    ) -> CrossFittedMember | None:
        """Fit one member; its first folds first, to stop where the others would take too long."""
        self._prepare([spec])  # once for all members, so no part of the time of this one
        start, n_jobs = time.perf_counter(), effective_n_jobs(self.settings.n_jobs)
        tasks = [(spec, fold) for fold in self._folds(spec)]
        self._fit(tasks[:n_jobs])
        seconds, n_rounds = time.perf_counter() - start, -(-len(tasks[n_jobs:]) // n_jobs)
        if not required and n_rounds * seconds > clock.remaining:
            self.skipped.setdefault(
                spec.label,
                f"its first fold took {seconds:.1f} s, and the others would exceed the budget",
            )
        if spec.label not in self.skipped:
            self._fit(tasks[n_jobs:])
            clock.calibrate(spec, time.perf_counter() - start)
        return self.members.get(spec.label)

    def _prepare(self, specs: list[MemberSpec]) -> None:
        """Impute censored values, where members need them that are not fitted to bounds.

        Choose the effort of the tree twin, if it is among the members, once for all folds.
        """
        needed = any(not spec.one_fit for spec in specs)
        if self.rows.bounds is not None and needed and not self.imputed:
            with limit_threads(1):
                self.imputed = impute_folds(self.rows)
        chosen = [s for s in specs if s.name == "tree_twin" and s.effort == "balanced"]
        if chosen and self.settings.tree_effort == "balanced":
            with limit_threads(1), contextlib.suppress(*_FAILURES):  # the fits fail, too
                effort = choose_tree_effort(self.rows, self.settings)
                self.settings = replace(self.settings, tree_effort=effort)

    def _fit(self, tasks: list[tuple[MemberSpec, int]]) -> None:
        """Fit members without folds, or to all rows (−1).

        Each task has a single thread, so that results do not depend on `n_jobs`; those that have
        threads of their own follow one by one, unless the tasks run on a cluster.
        """
        remote = is_remote_backend()
        # the folds of a single fit have threads, too
        single = len(tasks) == 1 and tasks[0][0].one_fit
        alone = {spec.label for spec, _ in tasks if not remote and (single or spec.has_threads)}
        pooled = [(spec, fold) for spec, fold in tasks if spec.label not in alone]
        parallel = Parallel(n_jobs=self.settings.n_jobs, prefer="threads", return_as="generator")
        with limit_threads(1):
            self._prepare([spec for spec, _ in tasks])
            fits = parallel(
                delayed(_fit_fold)(spec, self.settings, self.rows, fold, self.imputed.get(fold))
                for spec, fold in pooled
            )
            for (spec, _), fold_fit in zip(pooled, fits, strict=True):
                self._add(spec, fold_fit)
            for spec, fold in tasks:
                if spec.label in alone:
                    with parallel_config("threading", n_jobs=self.settings.n_jobs):
                        imputed = self.imputed.get(fold)
                        self._add(spec, _fit_fold(spec, self.settings, self.rows, fold, imputed))

    def _add(self, spec: MemberSpec, fold_fit: CrossFittedMember | str) -> None:
        """Add a fit to those of the member, or the reason why it failed."""
        if isinstance(fold_fit, str):
            self.skipped.setdefault(spec.label, fold_fit)
            return
        fits = self.fitted_folds.get(spec.label)
        if fits is not None:
            final = fits if fold_fit.estimator is None else fold_fit
            fold_fit = replace(
                final,
                out_of_fold=np.where(
                    np.isnan(fits.out_of_fold), fold_fit.out_of_fold, fits.out_of_fold
                ),
                fit_seconds=fits.fit_seconds + fold_fit.fit_seconds,
                predict_seconds=fits.predict_seconds + fold_fit.predict_seconds,
            )
        self.fitted_folds[spec.label] = fold_fit
        self.n_fitted_folds[spec.label] += 1
        if self.n_fitted_folds[spec.label] == len(self._folds(spec)):
            self.members[spec.label] = fold_fit
            if self.settings.verbose:
                seconds = f"fitted in {fold_fit.fit_seconds:.1f} s"
                print_progress(f"{spec.label}: RMSE {self.rmse(fold_fit):.4g}, {seconds}")


def _fit_fold(
    spec: MemberSpec, settings: FitSettings, rows: TrainingRows, fold: int, imputed: Floats | None
) -> CrossFittedMember | str:
    """Fit a member without a fold, or to all rows (−1), and predict the held-out rows.

    Of a fold, the fitted estimator is dropped. The reason where the fit fails.
    """
    try:
        with one_thread_if_remote(), limit_openmp(1):
            start = time.perf_counter()
            member = fit_member(spec, settings, rows, fold, imputed)
            fitted = time.perf_counter()
            out_of_fold = np.full(len(rows), np.nan)
            is_predicted = rows.fold == fold
            share = 1.0
            if spec.one_fit:
                is_predicted = rows.held_out
                out_of_fold[:] = member.estimator.out_of_fold_prediction_
                member.predict(rows.matrix[:_TIMED_ROWS])
                share = min(_TIMED_ROWS, len(rows)) / len(rows)
            elif fold >= 0:
                out_of_fold[is_predicted] = member.predict(rows.matrix[is_predicted])
            if (spec.one_fit or fold >= 0) and not np.isfinite(out_of_fold[is_predicted]).all():
                raise UnsuitableDataError("its out-of-fold predictions are not finite")
            return CrossFittedMember(
                label=member.label,
                estimator=member.estimator if fold < 0 else None,
                preparation=member.preparation,
                spec=spec,
                out_of_fold=out_of_fold,
                fit_seconds=fitted - start,
                predict_seconds=(time.perf_counter() - fitted) / share,
            )
    except _FAILURES as error:
        return f"failed: {error}"


def fit_member(
    spec: MemberSpec,
    settings: FitSettings,
    rows: TrainingRows,
    fold: int = -1,
    imputed: Floats | None = None,
) -> FittedMember:
    """Fit a member to the training rows of a fold; to all rows where it is −1.

    Networks are fitted to the bounds of censored rows, and others to `imputed` values of the
    training rows. The anchors of a twin are known rows.
    """
    rows = rows.without(fold)
    columns, table = settings.columns_of(spec, rows.matrix), rows.matrix
    if has_some := not np.array_equal(columns, np.arange(table.shape[1])):
        rows = replace(rows, schema=rows.schema.take(columns), matrix=table[:, columns])
    used = None
    if spec.screened:
        if fold not in settings.important:
            settings.important[fold] = important_features(
                rows.matrix, rows.y, SCREENED_FEATURES, rows.weight
            )
        used = settings.important[fold]
    n_counts = len(settings.fragments) if spec.name == GP_TANIMOTO else 0
    preparation = FeaturePreparation.fit(spec.features, rows.schema, rows.matrix, used, n_counts)
    if has_some:
        preparation = replace(preparation, columns=columns.tolist())
    # the seed depends on the name, not on the other members
    seed = (settings.seed + crc32(spec.name.encode())) % 2**31
    estimator = spec.make(spec.effort, rows, replace(settings, seed=seed))
    features = preparation.transform(table)
    bounds = rows.bounds
    weight = rows.process_weight if spec.name.startswith("gp_") else rows.weight
    y = rows.y if imputed is None else imputed
    options: dict[str, object] = {"learn": settings.learn} if spec.has_threads else {}
    if spec.name in (EXTRA_TREES, "boosting"):
        y = round_for_sums(y)
    if spec.one_fit:
        if bounds is not None:
            y = np.where(bounds.censored, np.nan, bounds.lower)
            options |= {"y_lower": bounds.lower, "y_upper": bounds.upper}
        estimator.fit_with_folds(features, y, weight, rows.folds, **options)
    elif bounds is not None and isinstance(estimator, TwinRegressor):
        estimator.fit_pairs(features, y, weight, imputed=bounds.censored)
    else:
        if weight is not None and has_fit_parameter(estimator, "sample_weight"):
            options["sample_weight"] = weight
        estimator.fit(features, y, **options)
    if spec.name == "neural_twin":  # pairs with all anchors would take most of a prediction's time
        estimator.condense_anchors(NETWORK_ANCHORS)
    return FittedMember(spec.label, estimator, preparation)


def print_progress(text: str) -> None:
    """Print a line of the fit of a blend."""
    print(f"[AutoTwinRegressor] {text}", flush=True)
