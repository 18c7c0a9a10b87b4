"""Order, time budget and parallel fits of the members of a blend.

Without a time budget, the fits of all members and folds are independent tasks of one pool of
threads. With one, members are fitted one after another, in the order of expected gain per second. A
member is skipped where its expected time exceeds the remaining time; a built-in member is tried
with less effort first. The expected time is that of a cost model, corrected by the time of the
members that have been fitted; where a member is fitted in each fold, the first fold corrects it
once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import ThreadpoolController

from twinned._table import Floats
from twinned.estimators.blending.members import (
    EFFORTS,
    FAST_TWIN_ITERATIONS,
    FAST_TWIN_PAIRS,
    FOLD_STEPS,
    SIZES,
    FittedMember,
    MemberContext,
    MemberSpec,
    TrainingRows,
    fit_member,
)
from twinned.models.base_estimator import DEFAULT_ITERATIONS, DEFAULT_PAIRS

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
_FAILURES = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class MemberResult(NamedTuple):
    """A fitted member, its out-of-fold predictions (row,), and the seconds that it took."""

    spec: MemberSpec
    member: FittedMember
    prediction: Floats
    fit_seconds: float  # of all folds and of the final fit
    predict_seconds: float  # of as many rows as were fitted


class _TaskResult(NamedTuple):
    """The result of one fit: of a fold, or of all rows (fold −1)."""

    fold: int
    member: FittedMember | None  # only of all rows
    prediction: Floats | None  # of the held-out rows, or of all where one fit gives all
    fit_seconds: float
    predict_seconds: float


@dataclass
class MemberFits:
    """Fits of members to the same rows and folds.

    `contexts` has the context of each member by its name, and `report` is called with each result.
    `skipped` has the reasons of members that were not fitted, by label.
    """

    rows: TrainingRows
    contexts: dict[str, MemberContext]
    n_jobs: int | None
    report: Callable[[MemberResult], None]
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self, specs: list[MemberSpec]) -> list[MemberResult]:
        """Fit all members, as tasks of one pool of threads; the results have the same order."""
        cost = CostModel(self.rows, 1)
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
        """Fit members one after another until `budget` seconds after `start` are used."""
        clock = _Clock(start + budget, CostModel(self.rows, effective_n_jobs(self.n_jobs)))
        results: list[MemberResult] = []
        for spec in sorted(specs, key=clock.seconds_per_gain):
            efforts = self._efforts(spec)
            fitting = [own for own in efforts if clock.expected(own) * _SAFETY < clock.remaining]
            if not fitting and results:
                self.skipped[spec.label] = (
                    f"expected to take {clock.expected(efforts[-1]):.0f} s of the remaining "
                    f"{max(clock.remaining, 0):.0f} s"
                )
                continue
            chosen = fitting[0] if fitting else efforts[-1]
            results += self._run_one(chosen, clock, required=not results)
        return results

    def _run_one(self, spec: MemberSpec, clock: _Clock, *, required: bool) -> list[MemberResult]:
        """Fit one member; its first fold alone, to stop where the others would take too long."""
        begin = time.perf_counter()
        first, *others = [(spec, fold) for fold in self._folds(spec)]
        parts = [part for _, part in self._run_tasks([first])]
        if isinstance(parts[0], str):
            self.skipped[spec.label] = parts[0]
            return []
        seconds = time.perf_counter() - begin
        n_rounds = -(-len(others) // effective_n_jobs(self.n_jobs))
        if not required and n_rounds * seconds > clock.remaining:
            self.skipped[spec.label] = (
                f"its first fold took {seconds:.1f} s, and the others would exceed the time budget"
            )
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

    def _efforts(self, spec: MemberSpec) -> list[MemberSpec]:
        """A built-in member with its own effort and with each smaller one, largest first."""
        if not isinstance(spec.entry, str):
            return [spec]
        smaller = EFFORTS[: EFFORTS.index(spec.effort)]
        return [spec, *(spec.with_effort(effort) for effort in reversed(smaller))]

    def _run_tasks(
        self, tasks: list[tuple[MemberSpec, int]]
    ) -> Iterator[tuple[MemberSpec, _TaskResult | str]]:
        """Results of the tasks as they arrive, or the reason why one failed.

        Each task has a single thread, so that results do not depend on `n_jobs`; those that have
        threads of their own follow one by one.
        """
        controller = ThreadpoolController()

        def one(spec: MemberSpec, fold: int) -> tuple[MemberSpec, _TaskResult | str]:
            try:
                with controller.limit(limits=1, user_api="openmp"):
                    return spec, self._fit(spec, fold)
            except _FAILURES as error:
                return spec, f"failed: {error}"

        with controller.limit(limits=1, user_api="blas"):
            yield from Parallel(
                n_jobs=self.n_jobs, require="sharedmem", return_as="generator_unordered"
            )(delayed(one)(*task) for task in tasks if not task[0].has_threads)
            for task in tasks:
                if task[0].has_threads:
                    yield one(*task)

    def _fit(self, spec: MemberSpec, fold: int) -> _TaskResult:
        context, rows = self.contexts[spec.name], self.rows
        start = time.perf_counter()
        training = rows if fold < 0 else rows.take(rows.fold != fold)
        member = fit_member(spec, context, training)
        fitted = time.perf_counter()
        prediction: Floats | None = None
        n_predicted = 1
        if spec.one_fit:
            prediction = np.asarray(member.estimator.out_of_fold_prediction_, dtype=np.float64)
            member.predict(rows.matrix[:_TIMED_ROWS])
            n_predicted = min(_TIMED_ROWS, len(rows.y))
        elif fold >= 0:
            prediction = member.predict(rows.matrix[rows.fold == fold])
            n_predicted = len(prediction)
        if prediction is not None and not np.isfinite(prediction).all():
            raise ValueError("its out-of-fold predictions are not finite")
        share = n_predicted / len(rows.y) if spec.one_fit else 1.0
        return _TaskResult(
            fold,
            member if fold < 0 else None,
            prediction,
            fitted - start,
            (time.perf_counter() - fitted) / share,
        )

    def _join(self, spec: MemberSpec, parts: list[_TaskResult]) -> MemberResult:
        prediction = np.empty(len(self.rows.y))
        member: FittedMember | None = None
        for part in parts:
            rows = slice(None) if spec.one_fit else self.rows.fold == part.fold
            if part.prediction is not None:
                prediction[rows] = part.prediction
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


class CostModel:
    """Expected seconds of the fits of a member on a recent machine."""

    def __init__(self, rows: TrainingRows, n_jobs: int) -> None:
        self.n_rows, self.n_columns = rows.matrix.shape
        self.n_folds, self.n_jobs = rows.n_folds, n_jobs

    def seconds(self, spec: MemberSpec) -> float:
        """Expected seconds of all fits of a member, with `n_jobs`."""
        if spec.name in ("neural", "neural_twin"):
            return self._networks(spec)
        if spec.one_fit:
            return self._one_fit(spec) * (1 + self.n_folds / 2)
        n_fits = self.n_folds + 1
        return self._one_fit(spec) * -(-n_fits // self.n_jobs) + 0.05

    def _one_fit(self, spec: MemberSpec) -> float:
        n, p, sizes = self.n_rows, self.n_columns, SIZES[spec.effort]
        if spec.name == "ridge":
            return 2e-9 * n * p**2 + 5e-3
        if spec.name == "extra_trees":
            return sizes.trees * (1.5e-8 * n * np.log2(n + 1) * p + 1e-3)
        if spec.name == "boosting":
            return sizes.boosting_iterations * (2e-9 * n * p + 1.5e-3)
        if spec.name == "tree_twin":
            fast = spec.effort == "fast"
            pairs = min(FAST_TWIN_PAIRS if fast else DEFAULT_PAIRS, n * n / 2)
            iterations = FAST_TWIN_ITERATIONS if fast else DEFAULT_ITERATIONS
            return iterations * (6e-9 * pairs * 3 * p + 2e-3) + 2e-6 * n * n
        if spec.name in ("gp_matern", "gp_rbf"):
            rows = min(n, 1000)
            return 40 * (6e-11 * rows**3 + 3e-8 * rows**2) + 0.3
        return 1e-6 * n * p + 0.5

    def _networks(self, spec: MemberSpec) -> float:
        from twinned.models.neural.ensemble import EFFORTS as NEURAL_EFFORTS

        sizes = NEURAL_EFFORTS[spec.effort]
        n_steps = sizes.n_members * sizes.max_steps
        n_steps += sizes.n_settings * self.n_folds * int(FOLD_STEPS[spec.effort] * sizes.max_steps)
        per_step = (1.7e-5 if spec.name == "neural_twin" else 1e-5) * sizes.batch_size
        per_step *= 1 + self.n_columns / 30
        return 10.0 + n_steps * per_step / self.n_jobs


class _Clock:
    """Remaining time, and expected times corrected by those of the members so far."""

    def __init__(self, deadline: float, model: CostModel) -> None:
        self._deadline, self._model = deadline, model
        self._expected, self._actual = 1.0, 1.0

    @property
    def remaining(self) -> float:
        return self._deadline - time.perf_counter()

    def expected(self, spec: MemberSpec) -> float:
        return self._model.seconds(spec) * self._actual / self._expected

    def seconds_per_gain(self, spec: MemberSpec) -> float:
        return self._model.seconds(spec) / _GAIN.get(spec.name, 1.0)

    def calibrate(self, spec: MemberSpec, seconds: float) -> None:
        self._expected += self._model.seconds(spec)
        self._actual += seconds


def finishing_seconds(n_rows: int) -> float:
    """Expected seconds of the blend and of the calibration of intervals."""
    return 3.0 + 2e-3 * n_rows
