"""Cross-validated fits of the members of a blend, within a time budget or without.

Without a time budget, the fits of members and folds are independent tasks of a pool of threads. Of
the members that `"auto"` chooses, trees are fitted without their first folds first; those that are
far behind the others there are not fitted further, nor are plain networks where the neural twin is
far behind. With a time budget, members are fitted one after
another: ridge regression, which takes next to no time and is often among the best on tables of few
rows, and then the others in the order of expected seconds per gain, each with the largest effort
that takes at most half of the remaining time; then those that take more; and then members of less
effort again with more, of which the fit of the lower error is kept. The remaining time has a
reserve for the blend and its intervals. The expected time is that of a cost table
(`blending.costs`), corrected by the time of the members that have been fitted; where a member is
fitted in each fold, the first folds correct it once more.

Of wide tables, Gaussian processes, boosting and extremely randomized trees of the least effort have
the most important features, and all categorical ones; they come before those of all features, which
take longer and are often worse. Each fold selects its own, without the rows that it holds out:
out-of-fold errors are those of the whole procedure.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config

from twinned._compat import is_remote_backend
from twinned.estimators.blending.costs import Clock, CostModel
from twinned.estimators.blending.members import (
    CrossFittedMember,
    FitSettings,
    MemberSpec,
    choose_tree_effort,
    fit_member,
)
from twinned.estimators.blending.rows import impute_folds
from twinned.estimators.blending.weights import FAR_BEHIND, describe_if_behind, first_folds
from twinned.exceptions import SkippedMemberWarning, UnsuitableDataError
from twinned.models.resources import limit_openmp, limit_threads, one_thread_if_remote
from twinned.rows.scaling import skewed_columns
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

_TIMED_ROWS = 200  # to time the prediction of a member that does not predict in folds
_TWIN, _PLAIN = "neural_twin", "neural"  # networks with and without pairs
_FIRST_SHARE = 0.5  # of the remaining time that a member may take before the others are tried
# Failures that a member declares, or that the numbers of the rows cause; others are raised.
_FAILURES = (UnsuitableDataError, FloatingPointError, np.linalg.LinAlgError)

_FoldFit = CrossFittedMember | str  # the fit of a fold, or the reason why it failed


def cross_fit(
    specs: list[MemberSpec],
    rows: TrainingRows,
    settings: FitSettings,
    *,
    time_budget: float | None = None,
    start: float = 0.0,
    report: Callable[[CrossFittedMember], None] = lambda member: None,
    stacklevel: int = 2,
) -> tuple[list[CrossFittedMember], dict[str, str]]:
    """Fit members to all rows, and predict each row by fits without its fold.

    Parameters
    ----------
    specs : list of MemberSpec
        The members.
    rows : TrainingRows
        The rows, with their folds.
    settings : FitSettings
        Seed, memory limit and number of threads of the fits.
    time_budget : float, default=None
        Seconds for the blend; None is no limit.
    start : float, default=0.0
        The value of `time.perf_counter()` at which the fit of the blend began.
    report : callable, default=no report
        Called with each fitted member.
    stacklevel : int, default=2
        Of the warning of members that were not fitted.

    Returns
    -------
    members : list of CrossFittedMember
        At least one.
    skipped : dict
        Reasons for each member that was not fitted, by label.
    """
    fits = CrossFit(rows, settings, report)
    if rows.bounds is not None:
        specs = [spec.for_bounds() for spec in specs]
    if time_budget is None:
        members = fits.fit_all(specs)
    else:
        members = fits.fit_within(specs, time_budget, start)
    fits.report_skipped(len(members), stacklevel + 1)
    return members, fits.skipped


@dataclass
class CrossFit:
    """Fits of members to the same rows and folds.

    `report` is called with each fitted member. `skipped` has the reasons of members that were not
    fitted, by label.
    """

    rows: TrainingRows
    settings: FitSettings
    report: Callable[[CrossFittedMember], None] = lambda member: None
    skipped: dict[str, str] = field(default_factory=dict)
    sufficient_budget: int | None = None  # seconds; None where no member was skipped for its time
    imputed: dict[int, Floats] = field(default_factory=dict)  # of the training rows of each fold

    def fit_all(self, specs: list[MemberSpec]) -> list[CrossFittedMember]:
        """Fit all members, as tasks of a pool of threads; the results have the same order.

        Members that are far behind in their first folds are not fitted further.
        """
        specs = self.without_needless(specs)
        longest_first = sorted(specs, key=self.cost_model(1).seconds, reverse=True)
        fits: dict[str, list[_FoldFit]] = {spec.label: [] for spec in specs}
        members: dict[str, CrossFittedMember | None] = {}

        def fit(tasks: list[tuple[MemberSpec, int]]) -> None:
            for spec, fold_fit in self._run(tasks):
                fits[spec.label].append(fold_fit)
                if len(fits[spec.label]) == len(self._folds(spec)):
                    members[spec.label] = self._join(spec, fits[spec.label])

        first = {spec.label: self._first_folds(spec, specs) for spec in specs}
        fit([(spec, fold) for spec in longest_first for fold in first[spec.label]])
        self.skipped |= self._reasons_behind(fits, set(members))
        fit(
            [
                (spec, fold)
                for spec in longest_first
                if spec.label not in self.skipped
                for fold in self._folds(spec)
                if fold not in first[spec.label]
            ]
        )
        fitted = [members.get(spec.label) for spec in specs]
        return [member for member in fitted if member is not None]

    def _first_folds(self, spec: MemberSpec, specs: list[MemberSpec]) -> list[int]:
        """The fits of a member before it is compared with others; all fits where it is not.

        Plain networks have none: they wait for the neural twin, which is compared in their place.
        """
        if spec.is_optional and spec.label == _PLAIN and _TWIN in {s.label for s in specs}:
            return []
        is_compared = spec.is_optional and not spec.one_fit and spec.name != "ridge"
        return first_folds(self.rows) if is_compared else self._folds(spec)

    def _reasons_behind(
        self, fits: dict[str, list[_FoldFit]], complete: set[str]
    ) -> dict[str, str]:
        """Reasons of those members that are far behind others, or as the neural twin is."""
        predictions = {
            label: _out_of_fold([fit for fit in of_member if isinstance(fit, CrossFittedMember)])
            for label, of_member in fits.items()
            if of_member and not any(isinstance(fit, str) for fit in of_member)
        }
        reasons = {}
        for label in fits.keys() - complete:
            compared = label if fits[label] else _TWIN
            if compared in predictions:
                reasons[label] = describe_if_behind(compared, predictions, self.rows)
        return {label: reason for label, reason in reasons.items() if reason is not None}

    def fit_within(
        self, specs: list[MemberSpec], budget: float, start: float
    ) -> list[CrossFittedMember]:
        """Fit members one after another; the blend ends `budget` seconds after `start`."""
        clock = Clock(start + budget, self.cost_model(effective_n_jobs(self.settings.n_jobs)))
        specs = self.without_needless(specs)
        specs = sorted(specs, key=lambda s: (s.name != "ridge", clock.seconds_per_gain(s)))
        efforts = {spec.name: spec.efforts(self.n_features) for spec in specs}
        # the fits that may still be tried, in this order
        pending = [
            spec
            for of_member in efforts.values()
            for spec in sorted(of_member, key=lambda s: not s.screened)
        ]
        members: dict[str, CrossFittedMember] = {}
        while (spec := _next_fit(pending, members, clock)) is not None:
            of_member = efforts[spec.name]
            member = self._fit_one(spec, clock, required=not members)
            if member is not None:
                members[spec.name] = min(member, members.get(spec.name, member), key=self._rmse)
                done = of_member[of_member.index(spec) :]  # not again with less effort
            elif self.skipped[spec.label].startswith("failed"):
                done = of_member
            else:  # its first fold took too long
                done = of_member[: of_member.index(spec) + 1]
            pending = [other for other in pending if other not in done]
        for name in members:
            for spec in efforts[name]:
                self.skipped.pop(spec.label, None)
        unfitted = [of_member for name, of_member in efforts.items() if name not in members]
        self._explain_unfitted(unfitted, clock, budget)
        return list(members.values())

    def _explain_unfitted(
        self, unfitted: list[list[MemberSpec]], clock: Clock, budget: float
    ) -> None:
        """Set the reasons of members that were not tried, with their efforts, largest first."""
        untried = [
            of_member
            for of_member in unfitted
            if not any(spec.label in self.skipped for spec in of_member)
        ]
        remaining = f"{max(clock.remaining, 0):.1f} s remain"
        reserve = f"besides {clock.reserve:.1f} s for the blend and its intervals"
        total = 0.0
        for of_member in untried:
            seconds = clock.expected(of_member[-1])
            total += seconds
            self.skipped[of_member[0].label] = (
                f"expected to take {max(seconds, 0.1):.1f} s, and {remaining} {reserve}"
            )
        if untried:  # twice the time, as others may then have more effort
            self.sufficient_budget = math.ceil(budget + max(2 * total - clock.remaining, 1.0))

    def report_skipped(self, n_fitted: int, stacklevel: int) -> None:
        """Warn of members that were not fitted; raise an error where none was."""
        labels_of_reason: dict[str, list[str]] = {}
        for label, reason in self.skipped.items():
            if not reason.startswith(FAR_BEHIND):
                labels_of_reason.setdefault(reason, []).append(label)
        reasons = "; ".join(
            f"{', '.join(labels)} ({reason})" for reason, labels in labels_of_reason.items()
        )
        if n_fitted == 0:
            raise ValueError(f"No member could be fitted: {reasons}.")
        if reasons:
            message = f"Members that were not fitted: {reasons}."
            if self.sufficient_budget is not None:
                message += f" time_budget={self.sufficient_budget} should suffice for all."
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

    def _rmse(self, member: CrossFittedMember) -> float:
        rows = self.rows.take(self.rows.held_out)
        squares = (member.out_of_fold[self.rows.held_out] - rows.y) ** 2
        return float(np.sqrt(np.average(squares, weights=rows.weight)))

    # --- fits ---------------------------------------------------------------------------------

    def _folds(self, spec: MemberSpec) -> list[int]:
        """The fits of a member; −1 is that of all rows."""
        return [-1] if spec.one_fit else [*range(self.rows.n_folds), -1]

    def _fit_one(
        self, spec: MemberSpec, clock: Clock, *, required: bool
    ) -> CrossFittedMember | None:
        """Fit one member; its first folds first, to stop where the others would take too long."""
        self._prepare([spec])  # once for all members, so no part of the time of this one
        start, n_jobs = time.perf_counter(), effective_n_jobs(self.settings.n_jobs)
        tasks = [(spec, fold) for fold in self._folds(spec)]
        fold_fits = [fold_fit for _, fold_fit in self._run(tasks[:n_jobs])]
        seconds, n_rounds = time.perf_counter() - start, -(-len(tasks[n_jobs:]) // n_jobs)
        if not any(isinstance(fold_fit, str) for fold_fit in fold_fits):
            if not required and n_rounds * seconds > clock.remaining:
                self.skipped[spec.label] = (
                    f"its first fold took {seconds:.1f} s, and the others would exceed the budget"
                )
                return None
            fold_fits += [fold_fit for _, fold_fit in self._run(tasks[n_jobs:])]
            clock.calibrate(spec, time.perf_counter() - start)
        return self._join(spec, fold_fits)

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

    def _run(self, tasks: list[tuple[MemberSpec, int]]) -> Iterator[tuple[MemberSpec, _FoldFit]]:
        """Fit members without folds, or to all rows (−1), and yield the fits as they are done.

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
            fold_fits = parallel(
                delayed(_fit_fold)(spec, self.settings, self.rows, fold, self.imputed.get(fold))
                for spec, fold in pooled
            )
            for (spec, _), fold_fit in zip(pooled, fold_fits, strict=True):
                yield spec, fold_fit
            for spec, fold in tasks:
                if spec.label in alone:
                    with parallel_config("threading", n_jobs=self.settings.n_jobs):
                        imputed = self.imputed.get(fold)
                        yield spec, _fit_fold(spec, self.settings, self.rows, fold, imputed)

    def _join(self, spec: MemberSpec, fold_fits: list[_FoldFit]) -> CrossFittedMember | None:
        """The member of its fits; None where one of them has failed."""
        fits = [fold_fit for fold_fit in fold_fits if isinstance(fold_fit, CrossFittedMember)]
        if len(fits) < len(fold_fits):
            self.skipped[spec.label] = next(fit for fit in fold_fits if isinstance(fit, str))
            return None
        member = replace(
            next(fit for fit in fits if fit.estimator is not None),
            out_of_fold=_out_of_fold(fits),
            fit_seconds=sum(fit.fit_seconds for fit in fits),
            predict_seconds=sum(fit.predict_seconds for fit in fits),
        )
        self.report(member)
        return member


def _out_of_fold(fits: list[CrossFittedMember]) -> Floats:
    """(row,): the predictions of the rows that the fits of a member hold out; NaN for others."""
    out_of_fold = fits[0].out_of_fold.copy()
    for fit in fits[1:]:
        np.copyto(out_of_fold, fit.out_of_fold, where=~np.isnan(fit.out_of_fold))
    return out_of_fold


def _next_fit(
    pending: list[MemberSpec], members: dict[str, CrossFittedMember], clock: Clock
) -> MemberSpec | None:
    """The next fit within the remaining time, or any where no member is fitted.

    First come those that leave time for others, and members without a fit.
    """
    new = [spec for spec in pending if spec.name not in members]
    again = [spec for spec in pending if spec.name in members]
    for specs, share in ((new, _FIRST_SHARE), (new, 1.0), (again, 1.0)):
        for spec in specs:
            if clock.fits(spec, share):
                return spec
    if members or not new:
        return None
    return min(new, key=lambda spec: (spec.name != "ridge", clock.expected(spec)))


def _fit_fold(
    spec: MemberSpec,
    settings: FitSettings,
    rows: TrainingRows,
    fold: int,
    imputed: Floats | None,
) -> _FoldFit:
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
