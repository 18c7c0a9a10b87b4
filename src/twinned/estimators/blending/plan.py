"""Order, time budget and parallel fits of the members of a blend.

Without a time budget, the fits of all members and folds are independent tasks of one pool of
threads. With one, members are fitted one after another. In a short fit, ridge regression is first,
which takes next to no time, and then gradient boosting and the tree twin, whose base it is, to show
whether twinning helps. The others follow in the order of expected gain per second. Those that need
more than half of the remaining time come last. A member is skipped where its expected time exceeds
the remaining time; a built-in member is tried with less effort first, and again with more at the
end if time remains. The expected time is that of a cost model, corrected by the time of the members
that have been fitted; where a member is fitted in each fold, the first fold corrects it once more.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from twinned._compat import is_remote_backend
from twinned.estimators.blending.costs import CostModel, finishing_seconds
from twinned.estimators.blending.members import (
    FitContext,
    FittedMember,
    MemberSpec,
    efforts_of,
    fit_member,
)
from twinned.estimators.blending.rows import impute_folds
from twinned.exceptions import SkippedMemberWarning
from twinned.models.resources import limit_openmp, limit_threads, one_thread_if_remote
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

_TIMED_ROWS = 200  # to time the prediction of a member that does not predict in folds
# Expected gain: roughly the weight of a member in blends of the paper's data sets.
_GAIN = {
    "gp_matern": 3.0,
    "neural_twin": 3.0,
    "extra_trees": 2.0,
    "tree_twin": 2.0,
    "neural": 1.5,
    "gp_rbf": 1.5,
    "boosting": 1.0,
    "ridge": 0.5,
}
_SAFETY = 1.15  # of expected times
_FIRST_SHARE = 0.5  # of the remaining time that a member may take before the others are tried
# Within a short budget, a plain model and a twin of the same base are compared first. The shares of
# the remaining time that they may take; with the least effort, they may take more.
_SHORT_BUDGET = 45.0  # seconds
_COMPARISON, _LEAST_EFFORT_SHARE = {"boosting": 0.1, "tree_twin": 0.3}, 0.7
# Ridge regression comes even before them where it takes next to no time: on tables of few rows it
# is often among the best.
_NEXT_TO_NO_TIME = 0.02  # of the remaining time
_FAILURES = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class MemberResult(NamedTuple):
    """A fitted member, its out-of-fold predictions (row,), and the seconds that it took."""

    spec: MemberSpec
    member: FittedMember
    prediction: Floats  # known rows, then censored ones
    fit_seconds: float  # of all folds and of the final fit
    predict_seconds: float  # of as many rows as were fitted


_Arguments = tuple[MemberSpec, FitContext, TrainingRows, int, Floats | None]  # of `_run_task`


class _TaskResult(NamedTuple):
    """The result of one fit: of a fold, or of all rows (fold −1)."""

    fold: int
    member: FittedMember | None  # only of all rows
    # of the held-out rows, or of all where one fit gives all; known rows, then censored ones
    prediction: Floats | None
    fit_seconds: float
    predict_seconds: float


@dataclass
class MemberFits:
    """Fits of members to the same rows and folds.

    `report` is called with each result. `skipped` has the reasons of members that were not fitted,
    by label.
    """

    rows: TrainingRows
    context: FitContext
    report: Callable[[MemberResult], None]
    skipped: dict[str, str] = field(default_factory=dict)
    too_slow: set[str] = field(default_factory=set)  # labels whose first fold took too long
    imputed: dict[int, Floats] = field(default_factory=dict)  # of the training rows of each fold

    def _impute(self, specs: Iterable[MemberSpec]) -> None:
        """Impute censored values, where members need them that are not fitted to bounds."""
        needed = any(not spec.one_fit for spec in specs)
        if self.rows.bounds is not None and needed and not self.imputed:
            with limit_threads(1):
                self.imputed = impute_folds(self.rows)

    def run(self, specs: list[MemberSpec]) -> list[MemberResult]:
        """Fit all members, as tasks of one pool of threads; the results have the same order."""
        specs = self._without_needless(specs)
        cost = CostModel.of(self.rows, 1)
        longest_first = sorted(specs, key=cost.seconds, reverse=True)
        tasks = [(spec, fold) for spec in longest_first for fold in self._folds(spec)]
        parts: dict[str, list[_TaskResult]] = {spec.label: [] for spec in specs}
        results: dict[str, MemberResult] = {}
        for spec, part in self._run_tasks(tasks):
            own = parts[spec.label]
            if isinstance(part, str):
                self.skipped.setdefault(spec.label, part)
                continue
            own.append(part)
            if len(own) == len(self._folds(spec)):
                results[spec.label] = self._join(spec, own)
        return [results[spec.label] for spec in specs if spec.label in results]

    def run_within(
        self, specs: list[MemberSpec], budget: float, start: float
    ) -> list[MemberResult]:
        """Fit members one after another; the blend ends `budget` seconds after `start`."""
        specs = self._without_needless(specs)
        finishing = finishing_seconds(*self.rows.matrix.shape)
        clock = _Clock(
            start + budget,
            finishing,
            CostModel.of(self.rows, effective_n_jobs(self.context.n_jobs)),
        )
        results: list[MemberResult] = []
        pending = sorted(specs, key=clock.seconds_per_gain)
        for spec in specs if budget < _SHORT_BUDGET else []:
            if spec.name == "ridge" and clock.fits(spec, _NEXT_TO_NO_TIME):
                results += self._run_one(spec, clock, required=True)
                pending.remove(spec)
        for spec in self._comparison(specs) if budget < _SHORT_BUDGET else []:
            limits = dict.fromkeys(self._efforts(spec), _COMPARISON[spec.name])
            limits[self._efforts(spec)[-1]] = _LEAST_EFFORT_SHARE
            if any(clock.fits(own, share) for own, share in limits.items()):
                results += self._run_largest(limits, clock, required=not results)
                pending.remove(spec)
        for share in (_FIRST_SHARE, 1.0):  # first those that leave time for others
            waiting, pending = pending, []
            for spec in waiting:
                limits = dict.fromkeys(self._efforts(spec), share)
                if any(clock.fits(own, share) for own in limits):
                    results += self._run_largest(limits, clock, required=not results)
                else:
                    pending.append(spec)
        self._raise_efforts(specs, results, clock)
        least = {spec.label: clock.expected(self._efforts(spec)[-1]) for spec in pending}
        pending.sort(key=lambda spec: least[spec.label])
        while pending and not results:  # at least one member is fitted
            results += self._run_one(self._efforts(pending.pop(0))[-1], clock, required=True)
        for spec in pending:
            self.skipped[spec.label] = (
                f"expected to take {least[spec.label]:.0f} s of the remaining "
                f"{max(clock.remaining, 0):.0f} s"
            )
        return results

    def _without_needless(self, specs: list[MemberSpec]) -> list[MemberSpec]:
        """Ridge regression, or else the quickest member, where all values of y are equal.

        All members would predict the same.
        """
        y = self.rows.y
        if self.rows.bounds is not None or np.ptp(y) > 0:
            return specs
        cost = CostModel.of(self.rows, 1)
        chosen = min(specs, key=lambda spec: (spec.name != "ridge", cost.seconds(spec)))
        reason = f"all values of y are {y[0]:g}"
        self.skipped |= {spec.label: reason for spec in specs if spec is not chosen}
        return [chosen]

    def _run_largest(
        self, limits: dict[MemberSpec, float], clock: _Clock, *, required: bool
    ) -> list[MemberResult]:
        """Fit a member with the largest effort that takes its share of the remaining time.

        `limits` has the shares of all efforts, largest first. Where the first fold takes longer
        than expected, less effort follows.
        """
        for own, share in limits.items():
            if not clock.fits(own, share):
                continue
            results = self._run_one(own, clock, required=required)
            if results or own.label not in self.too_slow:
                for other in limits if results else ():
                    self.skipped.pop(other.label, None)
                return results
        return []

    def _raise_efforts(
        self, specs: list[MemberSpec], results: list[MemberResult], clock: _Clock
    ) -> None:
        """Fit members of less effort again with more, where the remaining time is enough."""
        efforts = {spec.name: self._efforts(spec) for spec in specs}
        for i in sorted(range(len(results)), key=lambda i: clock.seconds_per_gain(results[i].spec)):
            own = results[i].spec
            labels = [other.label for other in efforts[own.name]]
            larger = efforts[own.name][: labels.index(own.label)]
            fitting = [
                other
                for other in larger
                if other.label not in self.too_slow and clock.fits(other, 1.0)
            ]
            if fitting:
                results[i : i + 1] = self._run_one(fitting[0], clock, required=False) or [
                    results[i]
                ]
                self.skipped.pop(fitting[0].label, None)  # one of them is fitted

    def report_skipped(self, n_fitted: int, stacklevel: int) -> None:
        """Warn of members that were not fitted; raise an error where none was."""
        names: dict[str, list[str]] = {}
        for name, reason in self.skipped.items():
            names.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(own)} ({reason})" for reason, own in names.items())
        if n_fitted == 0:
            raise ValueError(f"No member could be fitted: {reasons}.")
        if reasons:
            message = f"Members that were not fitted: {reasons}."
            warnings.warn(message, SkippedMemberWarning, stacklevel=stacklevel + 1)

    def _run_one(self, spec: MemberSpec, clock: _Clock, *, required: bool) -> list[MemberResult]:
        """Fit one member; its first fold alone, to stop where the others would take too long."""
        self._impute([spec])  # once for all members, so no part of the time of this one
        begin = time.perf_counter()
        first, *others = [(spec, fold) for fold in self._folds(spec)]
        parts = [part for _, part in self._run_tasks([first])]
        if isinstance(parts[0], str):
            self.skipped[spec.label] = parts[0]
            return []
        seconds = time.perf_counter() - begin
        n_rounds = -(-len(others) // effective_n_jobs(self.context.n_jobs))
        if not required and n_rounds * seconds > clock.remaining:
            self.skipped[spec.label] = (
                f"its first fold took {seconds:.1f} s, and the others would exceed the time budget"
            )
            self.too_slow.add(spec.label)
            return []
        parts += [part for _, part in self._run_tasks(others)]
        clock.calibrate(spec, time.perf_counter() - begin)
        if failures := [part for part in parts if isinstance(part, str)]:
            self.skipped[spec.label] = failures[0]
            return []
        return [self._join(spec, [part for part in parts if isinstance(part, _TaskResult)])]

    def _folds(self, spec: MemberSpec) -> list[int]:
        """The fits of a member; −1 is that of all rows."""
        return [-1] if spec.one_fit else [*range(self.rows.n_folds), -1]

    def _comparison(self, specs: list[MemberSpec]) -> list[MemberSpec]:
        """The plain model and the twin that are compared first; none where one is missing."""
        by_name = {spec.name: spec for spec in specs if isinstance(spec.entry, str)}
        pair = [by_name[name] for name in _COMPARISON if name in by_name]
        return pair if len(pair) == len(_COMPARISON) else []

    def _efforts(self, spec: MemberSpec) -> list[MemberSpec]:
        """A built-in member with its own effort and with each smaller one, largest first."""
        if not isinstance(spec.entry, str):
            return [spec]
        efforts = efforts_of(spec.name)
        smaller = efforts[: efforts.index(spec.effort)]
        return [spec, *(spec.with_effort(effort) for effort in reversed(smaller))]

    def _run_tasks(
        self, tasks: list[tuple[MemberSpec, int]]
    ) -> Iterator[tuple[MemberSpec, _TaskResult | str]]:
        """Results of the tasks as they arrive, or the reason why one failed.

        Each task has a single thread, so that results do not depend on `n_jobs`; those that have
        threads of their own follow one by one, unless the tasks run on a cluster.
        """
        remote = is_remote_backend()
        pooled = [task for task in tasks if remote or not task[0].has_threads]
        specs = {spec.label: spec for spec, _ in tasks}
        parallel = Parallel(
            n_jobs=self.context.n_jobs, prefer="threads", return_as="generator_unordered"
        )
        with limit_threads(1):
            self._impute(spec for spec, _ in tasks)
            results = parallel(delayed(_run_task)(*self._arguments(*task)) for task in pooled)
            for label, result in results:
                yield specs[label], result
            for task in tasks:
                if task[0].has_threads and not remote:
                    label, result = _run_task(*self._arguments(*task))
                    yield specs[label], result

    def _arguments(self, spec: MemberSpec, fold: int) -> _Arguments:
        return spec, self.context, self.rows, fold, self.imputed.get(fold)

    def _join(self, spec: MemberSpec, parts: list[_TaskResult]) -> MemberResult:
        prediction = np.empty(len(self.rows))
        member: FittedMember | None = None
        for part in parts:
            held_out = slice(None) if spec.one_fit else self.rows.fold == part.fold
            if part.prediction is not None:
                prediction[held_out] = part.prediction
            member = part.member or member
        assert member is not None, "the fit of all rows is among the parts"
        result = MemberResult(
            spec,
            member,
            prediction,
            sum(part.fit_seconds for part in parts),
            sum(part.predict_seconds for part in parts),
        )
        self.report(result)
        return result


def _run_task(
    spec: MemberSpec, context: FitContext, rows: TrainingRows, fold: int, imputed: Floats | None
) -> tuple[str, _TaskResult | str]:
    """The label of a member, and the result of its fit or the reason why it failed."""
    try:
        with one_thread_if_remote(), limit_openmp(1):
            return spec.label, _fit_fold(spec, context, rows, fold, imputed)
    except _FAILURES as error:
        return spec.label, f"failed: {error}"


def _fit_fold(
    spec: MemberSpec, context: FitContext, rows: TrainingRows, fold: int, imputed: Floats | None
) -> _TaskResult:
    """Fit a member without a fold, or to all rows (fold −1), and predict the held-out rows."""
    start = time.perf_counter()
    member = fit_member(spec, context, rows.without(fold), rows.n_folds, imputed)
    fitted = time.perf_counter()
    prediction: Floats | None = None
    n_predicted = 1
    if spec.one_fit:
        prediction = np.asarray(member.estimator.out_of_fold_prediction_, dtype=np.float64)
        member.predict(rows.matrix[:_TIMED_ROWS])
        n_predicted = min(_TIMED_ROWS, len(rows))
    elif fold >= 0:
        prediction = member.predict(rows.matrix[rows.fold == fold])
        n_predicted = len(prediction)
    if prediction is not None and not np.isfinite(prediction).all():
        raise ValueError("its out-of-fold predictions are not finite")
    share = n_predicted / len(rows) if spec.one_fit else 1.0
    return _TaskResult(
        fold,
        member if fold < 0 else None,
        prediction,
        fitted - start,
        (time.perf_counter() - fitted) / share,
    )


class _Clock:
    """Remaining time, and expected times corrected by those of the members so far."""

    def __init__(self, deadline: float, finishing: float, model: CostModel) -> None:
        self._deadline, self._finishing, self._model = deadline, finishing, model
        self._expected, self._actual = 1.0, 1.0

    @property
    def remaining(self) -> float:
        """Seconds until the blend must be computed; more for that on a slow or busy machine."""
        return self._deadline - time.perf_counter() - self._finishing * max(1.0, self._slowness)

    def fits(self, spec: MemberSpec, share: float) -> bool:
        """Whether a member is expected to take at most this share of the remaining time."""
        return self.expected(spec) < share * self.remaining / _SAFETY

    def expected(self, spec: MemberSpec) -> float:
        return self._model.seconds(spec) * self._slowness

    @property
    def _slowness(self) -> float:
        return self._actual / self._expected

    def seconds_per_gain(self, spec: MemberSpec) -> float:
        return self._model.seconds(spec) / _GAIN.get(spec.name, 1.0)

    def calibrate(self, spec: MemberSpec, seconds: float) -> None:
        self._expected += self._model.seconds(spec)
        self._actual += seconds
