"""Members of training problems as arrays, and their training on a device or on threads.

Problems are padded to one shape with rows that are never drawn. A GPU is filled by all members of
all problems as one batch. On a CPU a batch falls out of the cache at every layer, so the program
is that of one member of one problem, which also compiles in half the time, and the members are
distributed over `n_jobs` threads.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from twinned.models.neural.inputs import NetworkInputs
from twinned.models.neural.network import MemberParameters, pad_to, round_up
from twinned.models.neural.parameters import Setting
from twinned.models.neural.problem import TrainingProblem
from twinned.models.neural.trainable_network import stack_fields
from twinned.models.neural.training import (
    Check,
    MemberArrays,
    ProblemArrays,
    PseudoArrays,
    TrainingConfig,
    initial_state,
    train_to_check,
)
from twinned.models.resources import count_threads
from twinned.rows.schema import Floats, Indices

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
            [
                _member_arrays(problem, member, n_rows, n_held_out, n_features)
                for member in of_problem
            ]
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
            pseudo=_pseudo_arrays(problem),
        )
        for problem, table, (lower, upper) in zip(group, tables, bounds, strict=True)
    ]


def _pseudo_arrays(problem: TrainingProblem) -> PseudoArrays | None:
    if problem.pseudo is None:
        return None
    n_pairs = len(problem.pseudo[0])
    parts = (pad_to(part, round_up(n_pairs, 64), part.shape[1]) for part in problem.pseudo)
    first, second, difference = parts
    weight = np.float32(n_pairs / problem.n_pairs)
    return PseudoArrays(first, second, difference, np.int32(n_pairs), weight)


def _member_arrays(
    problem: TrainingProblem, member: EnsembleMember, n_rows: int, n_held_out: int, n_features: int
) -> MemberArrays:
    fold, loop_weight = member.held_out(problem), problem.options.loop_weight
    every = np.arange(problem.n_train)
    training_rows = every if member.fold is None else problem.training[member.fold]
    is_censored = problem.is_censored[training_rows]
    training_rows = training_rows[np.argsort(is_censored, kind="stable")]  # known rows first
    loop_rows = np.zeros(1, dtype=np.int32)
    if loop_weight > 0:
        loop_rows = pad_to(np.append(training_rows, problem.unlabelled), n_rows, dtype=np.int32)
    return MemberArrays(
        key=np.uint32((problem.seed + 7919 * member.number) % 2**32),
        rows=pad_to(training_rows, n_rows, dtype=np.int32),
        n_rows=np.int32(len(training_rows)),
        n_anchors=np.int32(np.sum(~is_censored)),
        is_training=np.isin(np.arange(n_rows), training_rows).astype(np.float32),
        held_out=pad_to(fold, n_held_out, dtype=np.int32),
        n_held_out=np.int32(len(fold)),
        last_check=np.int32(member.last_check),
        setting=jax.tree.map(np.float32, member.setting),
        n_features=np.int32(member.n_features(problem)),
        columns=pad_to(member.inputs(problem).columns, n_features, dtype=np.int32),
        feature_scale=pad_to(member.feature_scale(problem), n_features),
        loop_weight=np.float32(loop_weight),
        loop_rows=loop_rows,
        n_loop_rows=np.int32(len(training_rows) + len(problem.unlabelled)),
    )


@dataclass(eq=False)
class TrainingRun:
    """Training of all members of a group of problems, from one check to the next.

    `schedule` is (steps between checks, steps in total). On a CPU, `n_jobs` members are trained at
    once.
    """

    config: TrainingConfig
    problems: ProblemArrays
    members: MemberArrays
    schedule: tuple[int, int]
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        start = partial(initial_state, self.config)
        self._data = _split(self.config, self.problems, self.members)
        self._states = _run_all(start, self._data, self.n_jobs, compiled=False)

    def advance(self, check: int) -> Check:
        """Train up to the next check; leading axes problem and member."""
        train, schedule = partial(train_to_check, self.config), np.array(self.schedule, np.int32)
        arguments = [
            (*data, state, np.int32(check), schedule)
            for data, state in zip(self._data, self._states, strict=True)
        ]
        results = _run_all(train, arguments, self.n_jobs, compiled=check > 0)
        self._states = [state for state, _ in results]
        return self._join([result for _, result in results])

    @property
    def best(self) -> MemberParameters:
        """The best parameters of each member so far; leading axes problem and member."""
        return self._join([state.best for state in self._states])

    def _join(self, results):
        """Join the results of all calls; leading axes problem and member."""
        if not self.config.one_member:
            return jax.tree.map(np.asarray, results[0])

        def join(*values):
            return np.stack(values).reshape(len(self.members.key), -1, *values[0].shape)

        return jax.tree.map(join, *results)


def _split(config, problems, members):
    """Return the arguments of each call: all at once, or one member of one problem at a time."""
    if not config.one_member:
        return [jax.device_put((problems, members))]

    def pick(values, index):
        return jax.device_put(jax.tree.map(lambda value: np.asarray(value)[index], values))

    each_problem = [pick(problems, i) for i in range(len(members.key))]
    return [(each_problem[i], pick(members, (i, j))) for i, j in np.ndindex(members.key.shape)]


def _run_all(program, argument_tuples, n_jobs, *, compiled):
    """Run a program on all tuples of its arguments, on `n_jobs` threads.

    Where it is not `compiled`, the first call alone compiles it.
    """
    device = getattr(jax.config, "jax_default_device", None)

    def one(arguments):
        # a thread has a default device of its own
        with jax.default_device(device):
            return jax.block_until_ready(program(*arguments))

    n_threads = count_threads(n_jobs)
    n_alone = len(argument_tuples) if n_threads == 1 else int(not compiled)
    results = [one(arguments) for arguments in argument_tuples[:n_alone]]
    with ThreadPoolExecutor(n_threads) as threads:
        results += threads.map(one, argument_tuples[n_alone:])
    return results
