"""Order, time budget and parallel fits of the members of a blend.

Without a time budget, the fits of all members and folds are independent tasks of one pool of
threads. With one, members are fitted one after another. Ridge regression is first, which takes next
to no time and is often among the best on tables of few rows; in a short fit, a Gaussian process is
next, and gradient boosting and the tree twin, whose base it is, to show whether twinning helps. The
others follow in the order of expected gain per second. Those that need more than half of the
remaining time come last. A member is skipped where its expected time exceeds the remaining time,
without the reserve for the blend and its intervals; a built-in member is tried with less effort
first, and again with more at the end if time remains. The expected time is that of a cost model,
corrected by the time of the members that have been fitted; where a member is fitted in each fold,
the first folds correct it once more.

Of wide tables, Gaussian processes, boosting and extremely randomized trees of the least effort have
the most important features, and all categorical ones. Each fold selects its own, without the rows
that it holds out: out-of-fold errors are those of the whole procedure.

Of a member and the same with power transformations, which is tried for skewed rows only, the one
with the lower out-of-fold error is kept.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config

from twinned._compat import is_remote_backend
from twinned.estimators.blending.members import (
    SCREENED_FEATURES,
    SIZES,
    TWIN_SIZES,
    FitContext,
    FittedMember,
    MemberSpec,
    TwinSizes,
    efforts_of,
    fit_member,
    resolve_members,
)
from twinned.estimators.blending.rows import default_folds, impute_folds
from twinned.estimators.power import CHOICE_ROWS
from twinned.exceptions import SkippedMemberWarning, UnsuitableDataError
from twinned.fitted.calibration import MAX_SPLIT_FEATURES
from twinned.models.base_estimator import MAX_FEATURES, default_iterations, default_n_pairs
from twinned.models.learned_metric import MAX_ROWS as METRIC_ROWS
from twinned.models.resources import limit_openmp, limit_threads, one_thread_if_remote
from twinned.rows.scaling import skewed_columns
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
# Relative fall of the out-of-fold error from which a member with power transformations takes the
# place of the plain one: with both, the error of the blend is higher.
_LEAST_FALL = 0.02
_SAFETY = 1.15  # of expected times
_FIRST_SHARE = 0.5  # of the remaining time that a member may take before the others are tried
# Members that are first within a short budget, with a plain model and a twin of the same base, and
# the shares of the remaining time that they may take; with the least effort, they may take more.
_SHORT_BUDGET = 45.0  # seconds
_FIRST_SHARES = {"gp_matern": (0.4, 0.7), "boosting": (0.15, 0.7), "tree_twin": (0.3, 0.7)}
# Failures that a member declares, or that the numbers of the rows cause; others are raised.
_FAILURES = (UnsuitableDataError, FloatingPointError, np.linalg.LinAlgError)
_NEURAL_FEATURES = 60  # beyond, networks have no periodic embedding, and a step takes no longer
# Evaluations of the likelihood in the search of `models.gaussian_process`: on few rows, then on
# more; with fewer rows per feature, the search in a fold does not start from that of all rows.
_COARSE_STEPS, _FINE_STEPS, _FOLD_STEPS, _WIDE_STEPS = 140, 15, 20, 25
_COARSE_ROWS, _ROWS_PER_FEATURE, _NARROW_FEATURES = 250, 15, 20
_GPS = ("gp_matern", "gp_rbf")
# Of the time budget: fewer rows are fitted where boosting and the calibration take longer.
_SUBSET_SHARE, _LEAST_SUBSET = 0.5, 1000


# A member with each of its efforts, largest first, and the share of the remaining time for it.
_Limits = list[tuple[MemberSpec, float]]


class MemberResult(NamedTuple):
    """A fitted member, its out-of-fold predictions (row,), and the seconds that it took."""

    spec: MemberSpec
    member: FittedMember
    prediction: Floats  # known rows, then censored ones; NaN where no fold holds out a row
    fit_seconds: float  # of all folds and of the final fit
    predict_seconds: float  # of as many rows as were fitted


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
    sufficient_budget: int | None = None  # seconds; None where no member was skipped for its time
    # labels that are not tried again: their first fold took too long, or more effort was tried
    too_slow: set[str] = field(default_factory=set)
    imputed: dict[int, Floats] = field(default_factory=dict)  # of the training rows of each fold

    def run(self, specs: list[MemberSpec]) -> list[MemberResult]:
        """Fit all members, as tasks of one pool of threads; the results have the same order."""
        specs = self.without_needless(specs)
        longest_first = sorted(specs, key=self._cost_model(1).seconds, reverse=True)
        tasks = [(spec, fold) for spec in longest_first for fold in self._folds(spec)]
        parts: dict[str, list[_TaskResult | str]] = {spec.label: [] for spec in specs}
        results: dict[str, list[MemberResult]] = {}
        for spec, part in self._run_tasks(tasks):
            parts[spec.label].append(part)
            if len(parts[spec.label]) == len(self._folds(spec)):
                results[spec.label] = self._join(spec, parts[spec.label])
        return self.choose_plain([result for spec in specs for result in results[spec.label]])

    def run_within(
        self, specs: list[MemberSpec], budget: float, start: float
    ) -> list[MemberResult]:
        """Fit members one after another; the blend ends `budget` seconds after `start`."""
        specs = self.without_needless(specs)
        model = self._cost_model(effective_n_jobs(self.context.n_jobs))
        clock = _Clock(start + budget, finishing_seconds(*model[:3]), model)
        # in any case, unless it takes longer than all the time
        ridge = [spec for spec in specs if spec.name == "ridge" and clock.expected(spec) < budget]
        results = [result for spec in ridge for result in self._run_one(spec, clock, required=True)]
        pending = sorted((s for s in specs if s not in ridge), key=clock.seconds_per_gain)

        def run(order: list[_Limits]) -> None:
            for limits in order:
                spec = limits[0][0]  # with the largest effort
                if spec in pending and any(clock.fits(*limit) for limit in limits):
                    results.extend(self._run_largest(limits, clock, required=not results))
                    pending.remove(spec)

        run(self._first_members(specs, is_short=budget < _SHORT_BUDGET))
        screened = [spec for spec in specs if self._efforts(spec)[-1].screened]
        self._raise_efforts(screened, results, clock, _FIRST_SHARE)
        # then those that leave time for others; once more, as these may be quicker than expected
        shares = [(spec, share) for share in (_FIRST_SHARE, 1.0, 1.0) for spec in pending]
        run([[(own, share) for own in self._efforts(spec)] for spec, share in shares])
        self._raise_efforts(specs, results, clock, 1.0)
        least = {spec.label: clock.expected(self._efforts(spec)[-1]) for spec in pending}
        pending.sort(key=lambda spec: least[spec.label])
        while pending and not results:  # at least one member is fitted
            results += self._run_one(self._efforts(pending.pop(0))[-1], clock, required=True)
        reserve = f"besides {clock.reserve:.1f} s for the blend and its intervals"
        remaining = f"{max(clock.remaining, 0):.1f} s remain {reserve}"
        for spec in pending:
            seconds = max(least[spec.label], 0.1)
            self.skipped[spec.label] = f"expected to take {seconds:.1f} s, and {remaining}"
        if pending:  # twice the time, as others may then have more effort
            seconds = 2 * sum(least[spec.label] for spec in pending) - clock.remaining
            self.sufficient_budget = math.ceil(budget + max(seconds, 1.0))
        return self.choose_plain(results)

    def report_skipped(self, n_fitted: int, stacklevel: int) -> None:
        """Warn of members that were not fitted; raise an error where none was."""
        names: dict[str, list[str]] = {}
        for name, reason in self.skipped.items():
            names.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in names.items())
        if n_fitted == 0:
            raise ValueError(f"No member could be fitted: {reasons}.")
        if reasons:
            message = f"Members that were not fitted: {reasons}."
            if self.sufficient_budget is not None:
                message += f" time_budget={self.sufficient_budget} should suffice for all."
            warnings.warn(message, SkippedMemberWarning, stacklevel=stacklevel + 1)

    # --- order --------------------------------------------------------------------------------

    def _cost_model(self, n_jobs: int) -> CostModel:
        n_rows, n_columns = self.rows.matrix.shape
        return CostModel(n_rows, n_columns, self.rows.n_folds, n_jobs)

    def without_needless(self, specs: list[MemberSpec]) -> list[MemberSpec]:
        """The members that may differ in their predictions.

        Members with power transformations are those without where no column is skewed. They are not
        tried for censored rows either. Where all values of y are equal, ridge regression is enough,
        or else the quickest member.
        """
        rows, y, cost = self.rows, self.rows.y, self._cost_model(1)
        specs = [spec.for_table(rows.matrix.shape[1]) for spec in specs]
        columns = np.column_stack([rows.matrix[:, rows.schema.numeric], y])
        if rows.bounds is not None or not skewed_columns(columns).any():
            names = {spec.name for spec in specs}
            specs = [spec for spec in specs if spec.plain.name not in names - {spec.name}]
        if rows.bounds is not None or np.ptp(y) > 0:
            return specs
        chosen = min(specs, key=lambda spec: (spec.name != "ridge", cost.seconds(spec)))
        reason = f"all values of y are {y[0]:g}"
        self.skipped |= {spec.label: reason for spec in specs if spec is not chosen}
        return [chosen]

    def choose_plain(self, results: list[MemberResult]) -> list[MemberResult]:
        """The results, without the worse of a member and the same with power transformations.

        The latter must have a clearly lower error.
        """
        by_name, worse = {result.spec.name: result for result in results}, set()
        for name, result in by_name.items():
            if result.spec.plain.name in by_name.keys() - {name}:
                plain = by_name[result.spec.plain.name]
                is_lower = self._rmse(result) < (1 - _LEAST_FALL) * self._rmse(plain)
                worse.add(plain.spec.name if is_lower else name)
        return [result for result in results if result.spec.name not in worse]

    def _rmse(self, result: MemberResult) -> float:
        rows = self.rows.take(self.rows.held_out)
        squares = (result.prediction[self.rows.held_out] - rows.y) ** 2
        return float(np.sqrt(np.average(squares, weights=rows.weight)))

    def _first_members(self, specs: list[MemberSpec], *, is_short: bool) -> list[_Limits]:
        """The members that are first, with their limits: within a short budget, and screened ones.

        The latter have few features at first, as with all of a wide table they take longer and are
        often worse.
        """
        by_name = {spec.name: spec for spec in specs if isinstance(spec.entry, str)}
        first = []
        names = [name for name in _FIRST_SHARES if name in by_name]
        for *larger, least in (self._efforts(by_name[name]) for name in names):
            share, least_share = _FIRST_SHARES[least.name]
            if is_short or least.screened:
                share = 0.0 if least.screened else share
                first.append([*((own, share) for own in larger), (least, least_share)])
        return first

    def _efforts(self, spec: MemberSpec) -> list[MemberSpec]:
        """A built-in member with its own effort and with each smaller one, largest first."""
        if not isinstance(spec.entry, str) or spec.plain.name == "ridge":  # which has one effort
            return [spec]
        efforts = efforts_of(spec.name)
        smaller = efforts[: efforts.index(spec.effort)]
        n_features = self.rows.matrix.shape[1]
        return [spec, *(spec.with_effort(e).for_table(n_features) for e in reversed(smaller))]

    def _run_largest(self, limits: _Limits, clock: _Clock, *, required: bool) -> list[MemberResult]:
        """Fit a member with the largest effort that takes its share of the remaining time.

        `limits` has the shares of all efforts, largest first. Where the first fold takes longer
        than expected, less effort follows.
        """
        for spec, share in limits:
            if not clock.fits(spec, share):
                continue
            results = self._run_one(spec, clock, required=required)
            if results or spec.label not in self.too_slow:
                for other, _ in limits if results else ():
                    self.skipped.pop(other.label, None)
                return results
        return []

    def _raise_efforts(
        self, specs: list[MemberSpec], results: list[MemberResult], clock: _Clock, share: float
    ) -> None:
        """Fit members of less effort again with more, where that takes a share of the time.

        The fit of the lower error is kept.
        """
        efforts = {spec.name: self._efforts(spec) for spec in specs}
        for i in sorted(range(len(results)), key=lambda i: clock.seconds_per_gain(results[i].spec)):
            fitted = results[i].spec
            for larger in efforts.get(fitted.name, []):
                if larger.label == fitted.label:
                    break
                if larger.label not in self.too_slow and clock.fits(larger, share):
                    self.too_slow.update(other.label for other in efforts[fitted.name])
                    again = self._run_one(larger, clock, required=False)
                    results[i] = min([*again, results[i]], key=self._rmse)
                    self.skipped.pop(larger.label, None)  # one of them is fitted
                    break

    # --- fits ---------------------------------------------------------------------------------

    def _folds(self, spec: MemberSpec) -> list[int]:
        """The fits of a member; −1 is that of all rows."""
        return [-1] if spec.one_fit else [*range(self.rows.n_folds), -1]

    def _run_one(self, spec: MemberSpec, clock: _Clock, *, required: bool) -> list[MemberResult]:
        """Fit one member; its first folds first, to stop where the others would take too long."""
        self._impute([spec])  # once for all members, so no part of the time of this one
        begin, n_jobs = time.perf_counter(), effective_n_jobs(self.context.n_jobs)
        tasks = [(spec, fold) for fold in self._folds(spec)]
        parts, others = [part for _, part in self._run_tasks(tasks[:n_jobs])], tasks[n_jobs:]
        seconds, n_rounds = time.perf_counter() - begin, -(-len(others) // n_jobs)
        if not any(isinstance(part, str) for part in parts):
            if not required and n_rounds * seconds > clock.remaining:
                self.too_slow.add(spec.label)
                self.skipped[spec.label] = (
                    f"its first fold took {seconds:.1f} s, and the others would exceed the budget"
                )
                return []
            parts += [part for _, part in self._run_tasks(others)]
            clock.calibrate(spec, time.perf_counter() - begin)
        return self._join(spec, parts)

    def _impute(self, specs: Iterable[MemberSpec]) -> None:
        """Impute censored values, where members need them that are not fitted to bounds."""
        needed = any(not spec.one_fit for spec in specs)
        if self.rows.bounds is not None and needed and not self.imputed:
            with limit_threads(1):
                self.imputed = impute_folds(self.rows)

    def _run_tasks(
        self, tasks: list[tuple[MemberSpec, int]]
    ) -> Iterator[tuple[MemberSpec, _TaskResult | str]]:
        """Results of the tasks as they arrive, or the reason why one failed.

        Each task has a single thread, so that results do not depend on `n_jobs`; those that have
        threads of their own follow one by one, unless the tasks run on a cluster.
        """
        remote = is_remote_backend()
        parallel = Parallel(
            n_jobs=self.context.n_jobs, prefer="threads", return_as="generator_unordered"
        )
        # the folds of a single fit have threads, too
        single = len(tasks) == 1 and tasks[0][0].one_fit
        alone = {spec.label for spec, _ in tasks if not remote and (single or spec.has_threads)}
        with limit_threads(1):
            self._impute(spec for spec, _ in tasks)
            shared, specs = (self.context, self.rows), {spec.label: spec for spec, _ in tasks}
            results = parallel(
                delayed(_run_task)(spec, fold, *shared, self.imputed.get(fold))
                for spec, fold in tasks
                if spec.label not in alone
            )
            for label, result in results:
                yield specs[label], result
            for spec, fold in tasks:
                if spec.label in alone:
                    with parallel_config("threading", n_jobs=self.context.n_jobs):
                        yield spec, _run_task(spec, fold, *shared, self.imputed.get(fold))[1]

    def _join(self, spec: MemberSpec, parts: list[_TaskResult | str]) -> list[MemberResult]:
        """The result of a member from those of its fits; none where one has failed."""
        fits = [part for part in parts if isinstance(part, _TaskResult)]
        if len(fits) < len(parts):
            self.skipped[spec.label] = next(part for part in parts if isinstance(part, str))
            return []
        prediction = np.full(len(self.rows), np.nan)
        for part in fits:
            if part.prediction is not None:
                held_out = slice(None) if spec.one_fit else self.rows.fold == part.fold
                prediction[held_out] = part.prediction
        (member,) = (part.member for part in fits if part.member is not None)
        seconds = [(part.fit_seconds, part.predict_seconds) for part in fits]
        result = MemberResult(spec, member, prediction, *np.sum(seconds, axis=0).tolist())
        self.report(result)
        return [result]


def _run_task(
    spec: MemberSpec, fold: int, context: FitContext, rows: TrainingRows, imputed: Floats | None
) -> tuple[str, _TaskResult | str]:
    """The label of a member, and the result of its fit or the reason why it failed.

    It is fitted without a fold, or to all rows (fold −1), and predicts the held-out rows.
    """
    try:
        with one_thread_if_remote(), limit_openmp(1):
            start, share = time.perf_counter(), 1.0
            prediction: Floats | None = None
            member = fit_member(spec, context, rows.without(fold), rows.n_folds, imputed)
            fitted = time.perf_counter()
            if spec.one_fit:
                prediction = np.asarray(member.estimator.out_of_fold_prediction_, np.float64)
                member.predict(rows.matrix[:_TIMED_ROWS])
                share = min(_TIMED_ROWS, len(rows)) / len(rows)
            elif fold >= 0:
                prediction = member.predict(rows.matrix[rows.fold == fold])
            held_out = rows.held_out if spec.one_fit else slice(None)
            if prediction is not None and not np.isfinite(prediction[held_out]).all():
                raise UnsuitableDataError("its out-of-fold predictions are not finite")
            seconds = fitted - start, (time.perf_counter() - fitted) / share
            return spec.label, _TaskResult(fold, member if fold < 0 else None, prediction, *seconds)
    except _FAILURES as error:
        return spec.label, f"failed: {error}"


class _Clock:
    """Remaining time, and expected times corrected by those of the members so far."""

    def __init__(self, deadline: float, finishing: float, model: CostModel) -> None:
        self._deadline, self._finishing, self._model = deadline, finishing, model
        self._expected, self._actual = 1.0, 1.0

    @property
    def remaining(self) -> float:
        """Seconds until the blend must be computed."""
        return self._deadline - time.perf_counter() - self.reserve

    @property
    def reserve(self) -> float:
        """Seconds for the blend and its intervals, more on a slow or busy machine."""
        return self._finishing * max(0.7, self._slowness)

    def fits(self, spec: MemberSpec, share: float) -> bool:
        """Whether a member is expected to take at most this share of the remaining time."""
        return self.expected(spec) < share * self.remaining / _SAFETY

    def expected(self, spec: MemberSpec) -> float:
        return self._model.seconds(spec) * self._slowness

    @property
    def _slowness(self) -> float:
        return self._actual / self._expected

    def seconds_per_gain(self, spec: MemberSpec) -> float:
        return self._model.seconds(spec) / _GAIN.get(spec.plain.name, 1.0)

    def calibrate(self, spec: MemberSpec, seconds: float) -> None:
        self._expected += self._model.seconds(spec)
        self._actual += seconds


# --- expected times ---


class CostModel(NamedTuple):
    """Expected seconds of the fits of a member on a recent machine."""

    n_rows: int
    n_columns: int
    n_folds: int
    n_jobs: int

    def seconds(self, spec: MemberSpec) -> float:
        """Expected seconds of all fits of a member, with `n_jobs`."""
        if spec.plain.name != spec.name:
            choice = self._replace(n_rows=min(self.n_rows, CHOICE_ROWS))
            transforming = 4e-6 * self.n_folds * self.n_rows * self.n_columns
            return 3 * choice.seconds(spec.plain) + self.seconds(spec.plain) + transforming
        if spec.name in ("neural", "neural_twin"):
            return self._networks(spec)
        one, rounds = self._one_fit(spec), -(-(self.n_folds + 1) // self.n_jobs)
        if spec.one_fit and spec.name in _GPS:  # the search in a fold starts from that of all rows
            n_rows, p = min(self.n_rows, SIZES[spec.effort].gp_rows // 2), self.n_columns
            few = self.n_rows * (1 - 1 / self.n_folds) < _ROWS_PER_FEATURE * p
            fold = one if few else _FOLD_STEPS * _likelihood_seconds(n_rows, p)
            return one + rounds * (fold + 0.03)
        return one * (1 + self.n_folds / 2 if spec.one_fit else rounds) + 0.05

    def _one_fit(self, spec: MemberSpec) -> float:
        n, p, sizes = self.n_rows, self.n_columns, SIZES[spec.effort]
        p = SCREENED_FEATURES + p // 4 if spec.screened else p  # the others take some time, too
        if spec.name == "ridge":
            return 8e-9 * n * p**2 + 0.02
        if spec.name == "extra_trees":
            return sizes.trees * (2e-8 * n * np.log2(n + 1) * p + 1.2e-3)
        if spec.name == "boosting":
            per_tree = (4e-8 * n * p + 1e-4 * p + 1e-3) * (0.25 + 0.75 * sizes.leaves(n) / 31)
            return sizes.boosting_iterations * per_tree
        if spec.name in _GPS:
            selecting = 6e-7 * n * np.log2(n + 1) * self.n_columns * spec.screened
            return gp_seconds(min(n, sizes.gp_rows // 2), p) + selecting
        if spec.name == "tree_twin":
            twin = TWIN_SIZES.get(spec.effort)
            if twin is None or p > twin.max_features:
                p = min(p, MAX_FEATURES)
                twin = TwinSizes(default_iterations(n), default_n_pairs(p), p)
            pairs, iterations = min(twin.pairs, n * n / 2), twin.iterations
            return iterations * (6e-9 * pairs * 3 * p + 2e-3) + 2e-6 * n * n
        if spec.name == "catboost":
            return 0.8 + (0.1 + 2e-4 * n) * p
        return 1e-6 * n * p + 0.5

    def _networks(self, spec: MemberSpec) -> float:
        from twinned.models.neural.parameters import EFFORTS as NEURAL_EFFORTS

        sizes = NEURAL_EFFORTS[spec.effort]
        fold_steps = int(sizes.blend_fold_share * sizes.max_steps)
        n_refits = self.n_folds if self.n_folds <= sizes.blend_refit_folds else 0
        n_steps = (sizes.blend_members + n_refits) * sizes.max_steps
        n_steps += sizes.n_settings * self.n_folds * fold_steps
        per_step = (1.7e-5 if spec.name == "neural_twin" else 1e-5) * sizes.batch_size
        per_step *= 1 + min(self.n_columns, _NEURAL_FEATURES) / 30
        return 10.0 + n_steps * per_step / self.n_jobs


def gp_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of the search for the hyperparameters of a Gaussian process."""
    if n_columns > _NARROW_FEATURES and n_rows < _ROWS_PER_FEATURE * n_columns:
        return _WIDE_STEPS * _likelihood_seconds(n_rows, n_columns)
    seconds = _COARSE_STEPS * _likelihood_seconds(min(n_rows, _COARSE_ROWS), n_columns)
    if n_rows > _COARSE_ROWS:
        seconds += _FINE_STEPS * _likelihood_seconds(n_rows, n_columns)
    return seconds


def _likelihood_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of a likelihood and its gradient."""
    return 2.1e-11 * n_rows**3 + (1e-7 + 1e-10 * n_columns) * n_rows**2


def finishing_seconds(n_rows: int, n_columns: int, n_folds: int) -> float:
    """Expected seconds of the blend, the calibration of intervals and the learned metric."""
    features = min(n_columns + 7, 2 * MAX_SPLIT_FEATURES)
    calibrating = (1 + n_folds) * (0.1 + 6e-7 * n_rows * np.log2(n_rows + 1) * features)
    return 0.5 + calibrating + gp_seconds(min(n_rows, METRIC_ROWS), n_columns)


def affordable_rows(n_rows: int, n_columns: int, seconds: float, n_jobs: int | None) -> int:
    """How many of `n_rows` rows can be fitted and calibrated within `seconds`, at least 1,000."""
    least = min(n_rows, _LEAST_SUBSET)
    (spec,) = resolve_members(["boosting:fast"], "fast")
    size = n_rows
    while size > least:
        cost = CostModel(size, n_columns, 5, effective_n_jobs(n_jobs))
        if finishing_seconds(size, n_columns, 5) + cost.seconds(spec) <= _SUBSET_SHARE * seconds:
            break
        size = max(least, int(0.8 * size))
    return size


def member_seconds(name: str, n_rows: int, n_columns: int, n_jobs: int | None) -> float:
    """Expected seconds of all fits of a member of a blend of these rows."""
    (spec,) = resolve_members([name], "balanced")
    n_folds = default_folds(n_rows, "balanced")
    return CostModel(n_rows, n_columns, n_folds, effective_n_jobs(n_jobs)).seconds(spec)
