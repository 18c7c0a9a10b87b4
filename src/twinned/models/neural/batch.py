"""Batches of training problems and members: arrays of one shape, and the run of their training.

Problems are padded to one shape with rows that are never drawn. A GPU is filled by all members of
all problems as one batch. On a CPU a batch falls out of the cache at every layer, so the program
is that of one member of one problem, which also compiles in half the time, and the members are
distributed over `n_jobs` threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from twinned.models.neural.inference import MemberParameters
from twinned.models.neural.inputs import NetworkInputs
from twinned.models.neural.padding import pad_to, round_up, stack_fields
from twinned.models.neural.parameters import Setting
from twinned.models.neural.problem import TrainingProblem
from twinned.models.neural.training import (
    Check,
    MemberArrays,
    ProblemArrays,
    TrainingConfig,
    initial_state,
    train_to_check,
)
from twinned.models.resources import count_threads
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

NO_STOP = 10**6  # a check that no training reaches


class EnsembleMember(NamedTuple):
    """A network to be trained."""

    setting: Setting
    fold: int | None  # that is held out; None trains on all rows
    number: int  # determines the random numbers
    last_check: int = NO_STOP  # whose parameters are taken, if training reaches it

    def held_out(self, problem: TrainingProblem) -> Indices:
        """Rows that are not trained on."""
        return np.empty(0, dtype=np.intp) if self.fold is None else problem.folds[self.fold]

    def inputs(self, problem: TrainingProblem) -> NetworkInputs:
        return problem.inputs[-1 if self.fold is None else self.fold]

    def feature_scale(self, problem: TrainingProblem) -> Floats:
        """(feature,) factors of the features: their relevance, or ones; 0 if they are not used."""
        inputs = self.inputs(problem)
        factors = inputs.relevance if self.setting.relevance else inputs.used
        return factors[int(self.setting.all_features)]

    def n_features(self, problem: TrainingProblem) -> int:
        """Number of features that are used."""
        return int(self.inputs(problem).used[int(self.setting.all_features)].sum())


def stack_problems(
    group: list[TrainingProblem], members: list[list[EnsembleMember]], n_features: int
) -> tuple[ProblemArrays, MemberArrays]:
    """Return the arrays of all problems, and of the members of each.

    Sizes are rounded up to a few, so that folds, grid searches and data sets of about one size
    share one compiled program.
    """
    n_rows = round_up(max(len(problem.X) for problem in group), 64)
    n_held_out = round_up(max(len(fold) for problem in group for fold in problem.folds), 32)
    arrays = [
        stack_fields(
            [_member_arrays(problem, own, n_rows, n_held_out, n_features) for own in of_problem]
        )
        for problem, of_problem in zip(group, members, strict=True)
    ]
    return stack_fields(_problem_arrays(group, n_rows)), stack_fields(arrays)


def _problem_arrays(group: list[TrainingProblem], n_rows: int) -> list[ProblemArrays]:
    n_columns = round_up(max(problem.X.shape[1] for problem in group), 4)
    empty = np.zeros((1, 1))  # nothing that depends on the number of rows
    tables = [empty if problem.partners is None else problem.partners for problem in group]
    bounds = [(empty, empty) if problem.bounds is None else problem.bounds for problem in group]
    n_table_rows = 1 if group[0].partners is None else n_rows
    n_bound_rows = 1 if group[0].bounds is None else n_rows
    n_partners = max(table.shape[1] for table in tables)
    return [
        ProblemArrays(
            X=pad_to(problem.X, n_rows, n_columns),
            y=pad_to(problem.y, n_rows, problem.y.shape[1]),
            weight=pad_to(problem.row_weight, n_rows),
            partners=pad_to(table, n_table_rows, n_partners, dtype=np.int32),
            n_partners=np.uint32(table.shape[1]),
            lower=pad_to(lower, n_bound_rows, lower.shape[1]),
            upper=pad_to(upper, n_bound_rows, upper.shape[1]),
        )
        for problem, table, (lower, upper) in zip(group, tables, bounds, strict=True)
    ]


def _member_arrays(
    problem: TrainingProblem, member: EnsembleMember, n_rows: int, n_held_out: int, n_features: int
) -> MemberArrays:
    setting, fold = member.setting, member.held_out(problem)
    loop_weight = problem.options.loop_weight
    training_rows = np.setdiff1d(np.arange(problem.n_train), fold)
    is_censored = problem.is_censored[training_rows]
    training_rows = training_rows[np.argsort(is_censored, kind="stable")]  # known rows first
    is_training = np.zeros(n_rows, dtype=np.float32)
    is_training[training_rows] = 1.0
    loop_rows = np.zeros(1, dtype=np.int32)
    if loop_weight > 0:
        loop_rows = pad_to(np.append(training_rows, problem.unlabelled), n_rows, dtype=np.int32)
    return MemberArrays(
        key=np.uint32((problem.seed + 7919 * member.number) % 2**32),
        rows=pad_to(training_rows, n_rows, dtype=np.int32),
        n_rows=np.int32(len(training_rows)),
        n_anchors=np.int32(len(training_rows) - is_censored.sum()),
        is_training=is_training,
        held_out=pad_to(fold, n_held_out, dtype=np.int32),
        n_held_out=np.int32(len(fold)),
        last_check=np.int32(member.last_check),
        learning_rate=np.float32(setting.learning_rate),
        dropout=np.float32(setting.dropout),
        weight_decay=np.float32(setting.weight_decay),
        gate=np.float32(setting.frequency_scale > 0),
        frequency_scale=np.float32(setting.frequency_scale),
        n_features=np.int32(member.n_features(problem)),
        columns=pad_to(member.inputs(problem).columns, n_features, dtype=np.int32),
        feature_scale=pad_to(member.feature_scale(problem), n_features),
        loop_weight=np.float32(loop_weight),
        loop_rows=loop_rows,
        n_loop_rows=np.int32(len(training_rows) + len(problem.unlabelled)),
    )


class TrainingRun:
    """Training of all members of a group of problems, from one check to the next.

    `schedule` is (steps between checks, steps in total). On a CPU, `n_jobs` members are trained at
    once.
    """

    def __init__(
        self,
        config: TrainingConfig,
        problems: ProblemArrays,
        members: MemberArrays,
        schedule: tuple[int, int],
        n_jobs: int | None = None,
    ) -> None:
        self._config, self._n_problems, self._n_jobs = config, len(members.key), n_jobs
        self._parts = _split(config, problems, members)
        self._states = _run_parts(
            lambda *part: initial_state(config, *part), self._parts, n_jobs, compiled=False
        )
        self._schedule = np.array(schedule, np.int32)

    def advance(self, check: int) -> Check:
        """Train up to the next check; leading axes problem and member."""

        def one(problem, member, state):
            number = np.int32(check)
            return train_to_check(self._config, problem, member, state, number, self._schedule)

        parts = [(*part, state) for part, state in zip(self._parts, self._states, strict=True)]
        results = _run_parts(one, parts, self._n_jobs, compiled=check > 0)
        self._states = [state for state, _ in results]
        return self._join([of_part for _, of_part in results])

    @property
    def best(self) -> MemberParameters:
        """The best parameters of each member so far; leading axes problem and member."""
        return self._join([state.best for state in self._states])

    def _join(self, results):
        """Join the results of all parts; leading axes problem and member."""
        if not self._config.one_member:
            return jax.tree.map(np.asarray, results[0])

        def join(*values):
            joined = np.stack([np.asarray(value) for value in values])
            return joined.reshape(self._n_problems, -1, *values[0].shape)

        return jax.tree.map(join, *results)


def _split(config, problems, members):
    """Return the arguments of each call: all at once, or one member of one problem at a time."""
    if not config.one_member:
        return [jax.device_put((problems, members))]

    def pick(values, index):
        return jax.device_put(jax.tree.map(lambda value: np.asarray(value)[index], values))

    each_problem = [pick(problems, i) for i in range(len(members.key))]
    numbers = np.ndindex(members.key.shape)
    return [(each_problem[i], pick(members, (i, j))) for i, j in numbers]


def _run_parts(program, parts, n_jobs, *, compiled):
    """Run a program on all parts, tuples of its arguments, on `n_jobs` threads.

    Where it is not `compiled`, the first part alone compiles it.
    """
    device = getattr(jax.config, "jax_default_device", None)

    def one(part):
        # a thread has a default device of its own
        with jax.default_device(device):
            return jax.block_until_ready(program(*part))

    n_threads = count_threads(n_jobs)
    if n_threads == 1:
        return [one(part) for part in parts]
    n_alone = 0 if compiled else 1
    results = [one(part) for part in parts[:n_alone]]
    with ThreadPoolExecutor(n_threads) as threads:
        results += threads.map(one, parts[n_alone:])
    return results
