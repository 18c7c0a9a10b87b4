"""Training rows of `AutoTwinRegressor`: equal rows merged, and folds that all members share."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from twinned.models.censored_values import Imputation, impute_target
from twinned.rows.folds import distinct_rows, draw_folds, encode_groups, equal_features, given_folds
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TrainingRows
from twinned.rows.validation import check_integer

# Models of 5 folds have a fifth fewer rows than the final ones. Of a small table they are clearly
# worse, by a factor that differs between members: then weights and intervals are biased.
_FEW_ROWS = {"fast": 500, "balanced": 500, "thorough": 1000}
_FOLDS_OF_FEW_ROWS, _FOLDS = 10, 5
MIN_ROWS = 4  # so that at least two rows remain in each fold


@dataclass(frozen=True, eq=False)
class BlendRows:
    """Rows that the members of a blend are fitted to, with their folds."""

    anchors: TrainingRows  # the rows whose value is known, with their folds
    # The same rows, of which equal ones are merged, and then the censored rows, with their folds;
    # `groups` are codes of rows that no fold splits, or None.
    rows: TrainingRows
    merged_into: Indices  # (anchor,): the row that each anchor became

    @cached_property
    def held_out(self) -> TrainingRows:
        """The rows that a fold holds out: those by whose errors the blend is fitted."""
        rows = self.rows.take(self.rows.held_out)
        if rows.groups is None:
            return rows
        codes = np.unique(rows.groups, return_inverse=True)[1]
        return replace(rows, groups=codes if codes.any() else None)

    @cached_property
    def known(self) -> TrainingRows:
        """Those of the held-out rows whose value is known."""
        return self.held_out.take(self.held_out.known)

    @property
    def known_of_anchors(self) -> Indices:
        """(anchor,): the number among the known held-out rows; −1 for one that is not held out."""
        held_out = self.rows.held_out
        return np.where(held_out, np.cumsum(held_out) - 1, -1)[self.merged_into]

    def of_anchors(self, values: Floats) -> Floats:
        """(anchor, …) values of the known held-out rows; NaN for anchors that are not held out."""
        nothing = np.full((1, *values.shape[1:]), np.nan)
        return np.concatenate([values, nothing])[self.known_of_anchors]


def blend_rows(data: TrainingRows, cv: object, effort: str, seed: int) -> BlendRows:
    """Merge equal rows, and draw folds by the parameters of a blend.

    A repeated row is so the same as a weight. Rows with equal features are in the same random fold,
    unless there are groups; given folds, as the data may have them already, are not changed, and
    equal rows of different folds not merged.
    """
    if cv is not None and data.fold is None:
        data = data.with_folds(given_folds(cv, data.matrix, data.y, data.groups))
    if data.groups is not None:
        data = replace(data, groups=encode_groups(data.groups, len(data)))
    data = data.of_positive_weight()
    known_rows = data.known
    if data.fold is not None:
        data = _number_folds_of(data, known_rows)
    if data.weight is not None:
        data = replace(data, weight=data.weight / data.weight[known_rows].mean())
    anchors = replace(data.take(known_rows), bounds=None)
    rows, merged_into = merge_rows(anchors)
    if rows.fold is None:
        n_folds = default_folds(len(rows), effort) if cv is None else check_integer("cv", cv, 2)
        rows = replace(rows, fold=draw_folds(len(rows), n_folds, seed, rows.groups))
    folds = rows.take(merged_into)
    anchors = replace(anchors, fold=folds.fold, fold_training=folds.fold_training)
    if len(known_rows) < len(data):
        rows = _append_censored(rows, merged_into, data, seed)
    return BlendRows(anchors, rows, merged_into)


def _number_folds_of(data: TrainingRows, known_rows: Indices) -> TrainingRows:
    """The rows with numbers of those folds that hold out known ones."""
    folds = np.asarray(data.fold)
    used = np.setdiff1d(folds[known_rows], [-1])
    if len(used) < 2:
        raise ValueError("cv has only one fold with rows of positive weight; use two or more.")
    numbers = np.full(folds.max() + 2, -1)  # the last one is that of −1
    numbers[used] = np.arange(len(used))
    training = None if data.fold_training is None else data.fold_training[used]
    return replace(data, fold=numbers[folds], fold_training=training)


def merge_rows(rows: TrainingRows) -> tuple[TrainingRows, Indices]:
    """The distinct rows with the sums of their weights, of mean 1; and (row,) what each became.

    Without groups, rows of equal features become groups.
    """
    training = None if rows.fold_training is None else rows.fold_training.T
    keys = rows.matrix, rows.y, rows.groups, rows.fold, training
    first, merged_into = distinct_rows(np.column_stack([key for key in keys if key is not None]))
    if len(first) < MIN_ROWS:
        count = f"{len(first)} different rows (n_samples = {len(rows)})"
        raise ValueError(f"X and y have {count}; at least {MIN_ROWS} are needed.")
    total = np.bincount(merged_into, weights=rows.weight).astype(np.float64)
    total = total / total.mean()
    merged = rows.take(first)
    merged = replace(
        merged,
        batch=None,  # those of the anchors are used
        deviation=None,
        weight=None if np.allclose(total, 1.0, rtol=1e-12) else total,
        groups=equal_features(merged.matrix) if merged.groups is None else merged.groups,
    )
    return merged, merged_into


def _append_censored(
    rows: TrainingRows, merged_into: Indices, data: TrainingRows, seed: int
) -> TrainingRows:
    """The rows and, after them, the censored rows of the data, with given folds or by groups."""
    is_censored, n_censored = data.censored, int(data.censored.sum())
    first = np.unique(merged_into, return_index=True)[1]
    table = data.take(np.append(data.known[first], np.flatnonzero(is_censored)))
    fold, groups = table.fold, rows.groups
    if fold is None:
        assert rows.fold is not None, "the rows have folds"
        codes, of_known = data.groups, rows.fold[merged_into]
        parts = None if codes is None else (codes[is_censored], codes[data.known], of_known)
        fold = np.append(rows.fold, censored_folds(n_censored, rows.n_folds, seed, parts))
    if groups is not None:  # censored rows are groups of their own
        groups = np.append(groups, groups.max() + 1 + np.arange(n_censored))
    weight = np.ones(len(table)) if table.weight is None else table.weight
    # the weights of known rows were divided by their mean after merging
    weight = weight * (len(rows) / len(merged_into))
    weight[: len(rows)] = 1.0 if rows.weight is None else rows.weight
    assert table.bounds is not None, "there are censored rows"
    return replace(
        table,
        y=table.bounds.limits(),
        weight=None if np.allclose(weight, 1.0, rtol=1e-12) else weight,
        groups=groups,
        fold=fold,
        table_rows=np.arange(0),
        labels=None,
        batch=None,
        deviation=None,
    )


def impute_folds(rows: TrainingRows) -> dict[int, Floats]:
    """(row,) known and imputed values of the training rows of each fold, all rows first (−1).

    The values of a fold do not depend on its known rows; only the scale of the process and the
    start of its search are those of all rows.
    """
    values: dict[int, Floats] = {}
    similar: Imputation | None = None
    for fold in (-1, *range(rows.n_folds)):
        training = rows.without(fold)
        assert training.bounds is not None, "there are censored rows"
        imputed = impute_target(training.rows.features, training.bounds, training.weight, similar)
        values[fold], similar = imputed.y, similar or imputed
    return values


def censored_folds(
    n_rows: int, n_folds: int, seed: int, groups: tuple[Indices, Indices, Indices] | None = None
) -> Indices:
    """(row,): random folds of censored rows; those of a group with known rows are in its fold.

    `groups` are those of the censored rows (row,), and those of known rows with their folds.

    >>> groups = np.array([8, 7, 9, 9]), np.array([7, 8]), np.array([1, 0])
    >>> censored_folds(4, 2, 0, groups)[[0, 1]]
    array([0, 1])
    """
    fold = np.random.RandomState(seed).permutation(n_rows) % n_folds
    if groups is None:
        return fold
    codes, known_codes, known_folds = (part.tolist() for part in groups)
    fold_of_group = dict(zip(known_codes, known_folds, strict=True))
    for row, code in enumerate(codes):
        fold[row] = fold_of_group.setdefault(code, int(fold[row]))
    return fold


def default_folds(n_rows: int, effort: str) -> int:
    """Number of folds of a table: more of a small one."""
    return min(_FOLDS_OF_FEW_ROWS if n_rows < _FEW_ROWS[effort] else _FOLDS, n_rows)
