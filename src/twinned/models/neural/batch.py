"""A batch of training problems: arrays of one shape, padded with rows that are never drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.neural.ensemble import NO_STOP, Setting
from twinned.models.neural.inputs import FeatureFactors, NetworkInputs
from twinned.models.neural.padding import pad_to, round_up
from twinned.models.neural.problem import TrainingProblem
from twinned.models.neural.training import MemberArrays, ProblemArrays
from twinned.rows.schema import Floats


class Member(NamedTuple):
    """A network to be trained."""

    setting: Setting
    fold: int | None  # that is held out; None trains on all rows
    number: int  # determines the random numbers
    last_check: int = NO_STOP  # whose parameters are taken, if training reaches it

    def held_out(self, problem: TrainingProblem) -> NDArray[np.intp]:
        """Rows that are not trained on."""
        return np.empty(0, dtype=np.intp) if self.fold is None else problem.folds[self.fold]

    def inputs(self, problem: TrainingProblem) -> NetworkInputs:
        return problem.inputs[-1 if self.fold is None else self.fold]

    def feature_scale(self, problem: TrainingProblem) -> Floats:
        """(feature,) factors of the features: their relevance, or ones; 0 if they are not used."""
        factors = self._factors(problem)
        if factors.relevance is None or not self.setting.relevance:
            return factors.used
        return factors.relevance

    def n_features(self, problem: TrainingProblem) -> int:
        """Number of features that are used."""
        return int(np.count_nonzero(self._factors(problem).used))

    def _factors(self, problem: TrainingProblem) -> FeatureFactors:
        inputs = self.inputs(problem)
        return inputs.every if self.setting.all_features else inputs.relevant


def fold_members(problem: TrainingProblem, settings: list[Setting]) -> list[Member]:
    """Return a member for each setting and fold, in this order."""
    each = [(setting, fold) for setting in settings for fold in range(len(problem.folds))]
    return [Member(*one, number) for number, one in enumerate(each)]


def stack_problems(
    group: list[TrainingProblem],
    members: list[list[Member]],
    n_features: int,
    loop_weight: float,
) -> tuple[ProblemArrays, MemberArrays]:
    """Return the arrays of all problems, and of the members of each.

    Sizes are rounded up to a few, so that folds, grid searches and data sets of about one size
    share one compiled program.
    """
    n_rows = round_up(max(len(problem.X) for problem in group), 64)
    n_held_out = round_up(max(len(fold) for problem in group for fold in problem.folds), 32)
    n_columns = round_up(max(problem.X.shape[1] for problem in group), 4)
    problems = _stack(_problem_arrays(group, n_rows, n_columns))
    sizes = (n_rows, n_held_out, n_features)
    arrays = [
        _stack([_member_arrays(problem, member, sizes, loop_weight) for member in own])
        for problem, own in zip(group, members, strict=True)
    ]
    return problems, _stack(arrays)


def _stack(items: list[Any]) -> Any:
    """Stack the fields of named tuples of one type along a new leading axis."""
    return type(items[0])(*(np.stack(field) for field in zip(*items, strict=True)))


def _problem_arrays(
    group: list[TrainingProblem], n_rows: int, n_columns: int
) -> list[ProblemArrays]:
    tables = [np.zeros((1, 1)) if p.partners is None else p.partners for p in group]
    n_partners = max(table.shape[1] for table in tables)
    n_table_rows = 1 if group[0].partners is None else n_rows
    return [
        ProblemArrays(
            X=pad_to(problem.X, n_rows, n_columns),
            y=pad_to(problem.y, n_rows, problem.y.shape[1]),
            weight=pad_to(problem.row_weight, n_rows),
            partners=pad_to(table, n_table_rows, n_partners, dtype=np.int32),
            n_partners=np.uint32(table.shape[1]),
            **_padded_bounds(problem, n_rows),
        )
        for problem, table in zip(group, tables, strict=True)
    ]


def _padded_bounds(problem: TrainingProblem, n_rows: int) -> dict[str, Any]:
    """The bounds of y; without censored rows nothing that depends on the number of rows."""
    if problem.bounds is None:
        return {"lower": np.zeros(1, np.float32), "upper": np.zeros(1, np.float32)}
    bounds = problem.bounds._asdict()
    return {name: pad_to(bound, n_rows, bound.shape[1]) for name, bound in bounds.items()}


def _member_arrays(
    problem: TrainingProblem, member: Member, sizes: tuple[int, int, int], loop_weight: float
) -> MemberArrays:
    setting, fold = member.setting, member.held_out(problem)
    columns = member.inputs(problem).columns
    n_rows, n_held_out, n_features = sizes
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
        columns=pad_to(columns, n_features, dtype=np.int32),
        feature_scale=pad_to(member.feature_scale(problem), n_features),
        loop_weight=np.float32(loop_weight),
        loop_rows=loop_rows,
        n_loop_rows=np.int32(len(training_rows) + len(problem.unlabelled)),
    )
