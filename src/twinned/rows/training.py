"""TrainingRows: the validated arguments of `fit`."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from twinned.rows.folds import Folds, encode_groups, number_folds
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, Rows, TableSchema, row_labels, storable_labels
from twinned.rows.validation import (
    check_batch_labels,
    check_numbers,
    check_row_numbers,
    check_sample_weight,
    target_names,
    validate_table,
    validate_target,
)

FLOAT64 = np.dtype(np.float64)
# Attributes of an estimator that describe the table of its fit, not the rows.
VALIDATED = {"n_features_in_", "feature_names_in_", "batch_name_", "_pair_dtype"}


class TargetBounds(NamedTuple):
    """(row,) lower and upper bounds of the target, which are equal where it is known.

    Otherwise the value is censored and lies between them: below a detection limit (the lower bound
    is −∞), above one (the upper bound is ∞), or in an interval.
    """

    lower: Floats
    upper: Floats

    @property
    def censored(self) -> NDArray[np.bool_]:
        """(row,): whether the value is not known."""
        censored: NDArray[np.bool_] = self.lower < self.upper
        return censored

    @property
    def beyond(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(row,): whether the value is below a limit, and whether it is above one."""
        return np.isneginf(self.lower), np.isposinf(self.upper)

    def take(self, rows: Any) -> Self:
        return type(self)(self.lower[rows], self.upper[rows])

    def scaled(self, unit: float) -> Self:
        """The bounds in units of `unit`."""
        return type(self)(self.lower / unit, self.upper / unit)

    def logarithm(self) -> Self:
        """The bounds of the logarithm. A lower bound of at most 0 is none.

        A ValueError names a row without a positive bound.
        """
        wrong = (self.upper <= 0) | ((self.lower <= 0) & np.isposinf(self.upper))
        if wrong.any():
            row = int(wrong.argmax())
            bounds = f"between {self.lower[row]:g} and {self.upper[row]:g}"
            raise ValueError(f"The logarithm needs a positive bound; y[{row}] is {bounds}.")
        with np.errstate(divide="ignore"):
            return type(self)(np.log(np.maximum(self.lower, 0.0)), np.log(self.upper))

    def limits(self) -> Floats:
        """(row,): the known value, the only finite bound, or the middle of both.

        >>> TargetBounds(np.array([1.0, -np.inf, 2.0]), np.array([1.0, 5.0, 3.0])).limits()
        array([1. , 5. , 2.5])
        """
        lower = np.where(np.isfinite(self.lower), self.lower, self.upper)
        upper = np.where(np.isfinite(self.upper), self.upper, self.lower)
        return lower + 0.5 * (upper - lower)

    def errors(self, predicted: Floats) -> Floats:
        """(row,): signed distances of predictions to the interval between the bounds.

        That of a known row is its error, and that of a prediction between the bounds is 0.

        >>> bounds = TargetBounds(np.array([1.0, -np.inf, 2.0]), np.array([1.0, 5.0, 3.0]))
        >>> bounds.errors(np.array([4.0, 4.0, 1.5]))
        array([ 3. ,  0. , -0.5])
        """
        return predicted - np.clip(predicted, self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of a table with their targets: what every fit starts from."""

    schema: TableSchema
    matrix: Floats  # (row, feature), encoded
    y: Floats  # (row,) or (row, output); of a censored row its limit or an imputed value
    weight: Floats | None = None  # (row,)
    bounds: TargetBounds | None = None  # (row,), where values are censored
    groups: NDArray[Any] | None = None  # (row,)
    fold: Indices | None = None  # (row,): the fold that holds out each row; −1 where none does
    table_rows: Indices = field(default_factory=lambda: np.arange(0))  # (row,): of the table given
    labels: list[Hashable] | None = None  # (row,): those of the index of the table
    n_table_rows: int = 0
    unlabelled: Floats | None = None  # (row, feature): further rows of the table, without y
    y_std: Floats | None = None  # (row,): known standard deviations of the errors of y
    # of the errors that these do not explain, and of the noise among them; then weights are by both
    variances: tuple[float, float] | None = None
    # (fold, row): the training rows of each fold; None is all rows that it does not hold out
    fold_training: NDArray[np.bool_] | None = None
    batch: NDArray[Any] | None = None  # (row,): labels of batches, and with `effects` their codes
    deviation: Floats | None = None  # (row,): of the batch, which y does not have
    effects: Any = None  # `BatchEffects`, the first estimates of the deviations
    common: Any = None  # `CommonFunction`, that of all batches, of rows that are known

    def __len__(self) -> int:
        return len(self.matrix)

    @cached_property
    def rows(self) -> Rows:
        """The encoded rows."""
        return self.schema.to_rows(self.matrix)

    @cached_property
    def targets(self) -> Floats:
        """(row,) or (row, output): y for a model, of a single output flat."""
        return self.y[:, 0] if self.y.ndim == 2 and self.y.shape[1] == 1 else self.y

    @cached_property
    def outputs(self) -> Floats:
        """(row, output)."""
        return self.y.reshape(len(self.y), -1)

    @property
    def censored(self) -> NDArray[np.bool_]:
        """(row,): whether the value is not known."""
        return np.zeros(len(self), bool) if self.bounds is None else self.bounds.censored

    @property
    def censored_matrix(self) -> Floats | None:
        """(row, feature): the rows whose value is not known; None without bounds."""
        return None if self.bounds is None else self.matrix[self.censored]

    @property
    def known(self) -> Indices:
        """Indices of the rows whose value is known, which may be anchors."""
        return np.arange(len(self)) if self.bounds is None else np.flatnonzero(~self.censored)

    @property
    def process_weight(self) -> Floats | None:
        """(row,): weights in Gaussian processes, whose noise includes no errors of the model."""
        if self.weight is None or self.y_std is None or self.variances is None:
            return self.weight
        remaining, noise = self.variances
        return self.weight * (remaining + self.y_std**2) / (noise + self.y_std**2)

    @cached_property
    def n_folds(self) -> int:
        assert self.fold is not None, "the rows have folds"
        return int(self.fold.max()) + 1

    @property
    def held_out(self) -> NDArray[np.bool_]:
        """(row,): whether a fold holds out the row, so that its error is known."""
        assert self.fold is not None, "the rows have folds"
        return self.fold >= 0

    @property
    def folds(self) -> Folds:
        """(training rows, held-out rows) of each fold."""
        numbers = range(self.n_folds)
        return [(np.flatnonzero(self.training(k)), np.flatnonzero(self.fold == k)) for k in numbers]

    def with_folds(self, folds: Folds | None) -> Self:
        """The rows with these folds of the rows of the table, if there are any."""
        if folds is None:
            return self
        fold, training = number_folds(folds, self.n_table_rows)
        training = None if training is None else training[:, self.table_rows]
        return replace(self, fold=fold[self.table_rows], fold_training=training)

    def join_folds(self, n_folds: int) -> Self:
        """The rows with at most so many folds, each of which holds out some of these together."""
        if self.fold is None or self.n_folds <= n_folds or self.fold_training is not None:
            return self
        return replace(self, fold=np.where(self.fold < 0, -1, self.fold % n_folds))

    def of_positive_weight(self) -> Self:
        """The rows whose weight is not 0, which are as if they were not there."""
        weight = self.weight
        return self if weight is None or weight.all() else self.take(np.flatnonzero(weight))

    def take(self, rows: Indices | NDArray[np.bool_]) -> Self:
        """Some of the rows."""
        names = ("matrix", "y", "weight", "groups", "fold", "y_std", "batch", "deviation")
        values = {name: vars(self)[name] for name in names}
        taken: dict[str, Any] = {
            name: None if value is None else value[rows] for name, value in values.items()
        }
        table_rows, labels, training = self.table_rows, self.labels, self.fold_training
        return replace(
            self,
            **taken,
            bounds=self.bounds and self.bounds.take(rows),
            fold_training=None if training is None else training[:, rows],
            table_rows=table_rows[rows] if len(table_rows) else table_rows,
            labels=labels and [labels[i] for i in np.arange(len(self))[rows]],
        )

    def training(self, fold: int) -> NDArray[np.bool_]:
        """(row,): whether a row is a training row of a fold."""
        assert self.fold is not None, "the rows have folds"
        return self.fold != fold if self.fold_training is None else self.fold_training[fold]

    def without(self, fold: int) -> Self:
        """The training rows of a fold; all where it is −1."""
        return self if fold < 0 else self.take(self.training(fold))


def validate_training_rows(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    y_lower: ArrayLike | None = None,
    y_upper: ArrayLike | None = None,
    y_std: ArrayLike | None = None,
    pair_dtype: np.dtype[np.floating] = FLOAT64,
    multi_output: bool,
    unlabelled: bool = False,
    allow_missing: bool = False,
    batch: ArrayLike | None = None,
) -> TrainingRows:
    """Validate the arguments of `fit`.

    Parameters
    ----------
    estimator : estimator
        Its parameter `categorical_features` and its tags are used; it learns the names and the
        number of features, and the name of a Series of batches.
    X, y, sample_weight, groups, y_lower, y_upper, y_std : arguments of `fit`
        With bounds, y is NaN where the value is censored.
    pair_dtype : dtype, default=float64
        Type of the differences of features, which must be finite.
    multi_output : bool
        Whether y may have several outputs.
    unlabelled : bool, default=False
        Whether rows may have no target; their y is NaN.
    allow_missing : bool, default=False
        Whether values of some outputs may be NaN.
    batch : argument of `fit`, default=None
        Unless values may be missing, it needs a single output.

    Returns
    -------
    TrainingRows
        `y` of a censored row is its limit.
    """
    matrix, schema = validate_table(estimator, X, None, pair_dtype)
    vars(estimator).pop("batch_name_", None)  # of an earlier fit
    if isinstance(batch, pd.Series) and isinstance(batch.name, str):
        estimator.batch_name_ = batch.name
    bounds = weight = None
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, len(matrix))
    multi_output &= batch is None or allow_missing
    if y_lower is None and y_upper is None:
        kinds = {"unlabelled": unlabelled, "allow_missing": allow_missing}
        target = validate_target(estimator, y, len(matrix), multi_output=multi_output, **kinds)
    else:
        bounds = validate_bounds(estimator, y, y_lower, y_upper, len(matrix), weight)
        target = bounds.limits()
    if groups is not None:
        encode_groups(groups, len(matrix))  # which refuses wrong labels
    if y_std is not None and target.ndim == 2 and target.shape[1] > 1:
        raise ValueError(f"y_std needs a single output, not {target.shape[1]}.")
    return TrainingRows(
        schema,
        matrix,
        target,
        weight,
        bounds,
        None if groups is None else np.asarray(groups),
        table_rows=np.arange(len(matrix)),
        labels=storable_labels(row_labels(X)),
        n_table_rows=len(matrix),
        y_std=None if y_std is None else check_row_numbers("y_std", y_std, len(matrix)),
        batch=None if batch is None else check_batch_labels(batch, target),
    )


def validate_bounds(
    estimator: BaseEstimator | None,
    y: ArrayLike,
    y_lower: ArrayLike | None,
    y_upper: ArrayLike | None,
    n_rows: int,
    sample_weight: Floats | None,
) -> TargetBounds:
    """Validate y and its bounds: both (n,) float64; `sample_weight` is validated.

    A bound that is None or NaN is the value of y or, where y is NaN, infinite. A finite y must lie
    within its bounds; where they differ, it is not used.
    """
    if n_targets := len(target_names(y)):
        raise ValueError(f"y_lower and y_upper need a single output, not {n_targets}.")
    y = validate_target(estimator, y, n_rows, multi_output=True, unlabelled=True).ravel()
    lower = _validate_bound("y_lower", y_lower, y, -np.inf)
    upper = _validate_bound("y_upper", y_upper, y, np.inf)
    empty = (lower > upper) | (lower == np.inf) | (upper == -np.inf)
    message = "y_lower[{0}] = {1:g} and y_upper[{0}] = {2:g} leave no value of y."
    _refuse(empty, message, lower, upper)
    outside, unbounded = (y < lower) | (y > upper), np.isneginf(lower) & np.isposinf(upper)
    message = "y[{0}] = {3:g} is outside of its bounds, y_lower = {1:g} and y_upper = {2:g}."
    _refuse(outside, message, lower, upper, y)
    _refuse(unbounded, "y[{0}] is NaN and has no bound; give one, or drop the row.")
    n_known = int(np.sum((lower == upper) & (True if sample_weight is None else sample_weight > 0)))
    if n_known < 2:
        raise ValueError(f"{n_known} of {n_rows} rows have a known value; a pair needs two.")
    return TargetBounds(lower, upper)


def _refuse(wrong: NDArray[np.bool_], message: str, *values: Floats) -> None:
    """Raise the message for the first wrong row, with its number and its values."""
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(message.format(row, *(column[row] for column in values)))


def _validate_bound(name: str, given: ArrayLike | None, y: Floats, infinity: float) -> Floats:
    """A bound of each row (n,), with y, or infinity where y is NaN, for what is not given."""
    default = np.where(np.isnan(y), infinity, y)
    if given is None:
        return default
    bound = check_numbers(name, given)
    if bound.shape != y.shape:
        raise ValueError(f"{name} has the shape {bound.shape}, but y has {y.shape}.")
    return np.where(np.isnan(bound), default, bound)
