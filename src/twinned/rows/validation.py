"""Input validation of parameters, tables, targets, weights and batches."""

import numbers
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, check_array, check_random_state
from sklearn.utils.validation import column_or_1d, validate_data

from twinned._compat import column_indices, num_samples
from twinned.rows.columns import check_text_column, is_categorical_dtype, is_text_dtype, to_number
from twinned.rows.schema import (
    Floats,
    TableSchema,
    column_list,
    encode_columns,
    extend_schema,
    is_table,
    learn_schema,
)

# Squares of differences must stay within the numbers of a saved model, and finite where they are
# multiplied, else an estimator returns NaN without an error. In float32 the limit is the largest
# difference that can be represented.
_LARGEST = {np.dtype(np.float32): 1.7e38, np.dtype(np.float64): 1e75}
_WHOLE = re.compile(r"\A(-?\d+)\.0+\Z")  # label of a batch


def check_integer(name: str, value: object, minimum: int = 1) -> int:
    """Validate an integer of at least `minimum`; booleans are refused.

    >>> check_integer("k", 3)
    3
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, not {value!r}.")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {value!r}.")
    return int(value)


def check_real(name: str, value: object) -> float:
    """Validate a finite number; booleans are refused."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{name} must be finite, not {value!r}.")
    return number


def check_choice(name: str, value: object, choices: Sequence[str], otherwise: str = "") -> None:
    """Validate one of several strings; `otherwise` names other valid types in the message."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"{name} must be one of {listed}{otherwise}, not {value!r}.")


def check_bool(name: str, value: object) -> bool:
    """Validate True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {value!r}.")
    return bool(value)


def draw_seed(random_state: object) -> int:
    """Draw a seed from a seed, a generator or None, as scikit-learn has them."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def check_n_jobs(n_jobs: object) -> None:
    """Validate n_jobs as in scikit-learn: None or a nonzero integer."""
    if n_jobs is not None and check_integer("n_jobs", n_jobs, minimum=-(2**31)) == 0:
        raise ValueError("n_jobs must not be 0; use None or 1 for a single thread.")


def validate_table(
    estimator: Any,
    X: object,
    schema: TableSchema | None,
    pair_dtype: np.dtype,
    *,
    learn_categories: bool = False,
) -> tuple[Floats, TableSchema]:
    """Validate and encode a table by the schema of the training table.

    Without a schema, X is the training table: the schema is learned, by the parameter
    `categorical_features` of the estimator. Returns the (n, n_features) float64 matrix and the
    schema, which with `learn_categories` includes new categories.
    """
    names, is_training = None, schema is None
    if is_training:
        declared = _declared_indices(X, estimator.categorical_features)
        if declared or is_table(X) or _holds_objects(X):
            schema = learn_schema(column_list(X)[0], declared)
    # non-finite values are refused below, with their row and column
    # of one order, on which the rounding of means and sums depends
    options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": False, "order": "C"}
    options["ensure_min_samples"] = 2 if is_training else 1
    if schema is not None and (is_table(X) or not schema.is_all_numeric or _holds_objects(X)):
        values, names = column_list(X)
        validate_data(estimator, X, reset=is_training, skip_check_array=True)
        if learn_categories:
            schema = extend_schema(schema, values)
        matrix = check_array(encode_columns(schema, values, names), **options)
    else:
        matrix = validate_data(estimator, X, reset=is_training, **options)
        schema = schema or TableSchema.all_numeric(matrix.shape[1])
    has_missing = bool(np.isnan(matrix).any())
    allow_nan = has_missing and bool(estimator.__sklearn_tags__().input_tags.allow_nan)
    check_finite(matrix, names, allow_nan, pair_dtype, is_training=is_training)
    return matrix, schema


def validate_target(
    estimator: object,
    y: Any,
    n_rows: int,
    *,
    multi_output: bool,
    unlabelled: bool = False,
    allow_missing: bool = False,
) -> Floats:
    """Validate y: (n,) or, with several outputs, (n, n_outputs); float64 and finite.

    With `unlabelled`, rows that are NaN in all outputs are allowed; with `allow_missing`, rows and
    outputs that are NaN in part.
    """
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    given = y
    if is_table(y):
        y = np.column_stack([np.asarray(column.to_numpy()) for column in column_list(y)[0]])
    y = check_numbers("y", y)
    if y.ndim == 2 and y.shape[1] > 1 and not multi_output:
        raise ValueError(
            f"y has {y.shape[1]} columns, but the base estimator predicts one output; wrap it in "
            "sklearn.multioutput.MultiOutputRegressor."
        )
    if not multi_output:
        y = column_or_1d(y, warn=True)
    bad = ~np.isfinite(y)
    if allow_missing:
        missing = np.isnan(y)
        bad &= ~missing
        if (empty := missing.all(axis=0)).any():
            name = target_names(given)[empty.argmax()]
            raise ValueError(f"The target {name!r} has no values; drop it.")
        if (empty := missing.all(axis=1)).any():
            raise ValueError(f"Row {empty.argmax()} has no value of any target; drop it.")
    if unlabelled:
        bad[np.isnan(y.reshape(len(y), -1)).all(axis=1)] = False
    if bad.any():
        where = _first_index(bad)
        what = "NaN" if np.isnan(y[where]) else "infinity"
        advice = "Drop the rows without a label"
        if unlabelled:
            advice = "An unlabelled row is NaN in all its outputs"
        elif hasattr(estimator, "loop_weight"):
            advice += ", or use them with loop_weight > 0"
        raise ValueError(f"Input y contains {what}: y{list(where)} = {y[where]}. {advice}.")
    # in float32, in which boosting and networks compute
    _check_range("y", y, np.dtype(np.float32), is_training=True)
    if len(y) != n_rows:
        raise ValueError(f"Each row needs a value, but X has {n_rows} and y has {len(y)}.")
    return y


def target_names(y: object) -> list[str]:
    """Names of several targets, those of the columns of a table; empty for a single one.

    >>> target_names([[1.0, 2.0]]), target_names([[1.0], [2.0]])
    (['y0', 'y1'], [])
    """
    if is_table(y):
        names = [str(name) for name in column_list(y)[1]]
    else:
        names = [f"y{j}" for j in range((*np.asarray(y, dtype=object).shape, 1, 1)[1])]
    return names if len(names) > 1 else []


def count_rows(X: Any) -> int:
    """The number of rows of a table or array."""
    is_table(X)  # which refuses a lazy one
    return num_samples(X)


def check_row_numbers(name: str, given: object, n_rows: int) -> Floats:
    """Validate one number for all rows, or one for each: (n,) float64, finite, not negative."""
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        given = np.full(n_rows, float(given))
    values = check_numbers(name, given, finite=True)
    if values.shape != (n_rows,):
        raise ValueError(f"{name} has the shape {values.shape}, but X has {n_rows} rows.")
    if (values < 0).any():
        row = int(np.argmax(values < 0))
        raise ValueError(f"{name}[{row}] = {values[row]} is negative.")
    _check_range(name, values, np.dtype(np.float64))
    return values


def check_sample_weight(sample_weight: object, n_rows: int) -> Floats:
    """Validate sample weights: (n,) float64, finite and not negative."""
    weight = check_row_numbers("sample_weight", sample_weight, n_rows)
    if (n_positive := int((weight > 0).sum())) < 2:
        raise ValueError(f"sample_weight is zero but for {n_positive} rows; a pair needs two.")
    return weight


@contextmanager
def restore_on_failure(estimator: object) -> Iterator[None]:
    """Context in which an exception restores the attributes of the estimator."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def _declared_indices(X, categorical_features):
    """Indices of the columns that the user, or their dtype, declares as categorical."""
    if categorical_features is None:
        return set()
    if isinstance(categorical_features, str):
        check_choice(
            "categorical_features", categorical_features, ["from_dtype"], ", None or a list"
        )
        if not is_table(X):
            return set()
        columns, names = column_list(X)
        for column, name in zip(columns, names, strict=True):
            if is_text_dtype(column):
                check_text_column(column, name)
        return {j for j, column in enumerate(columns) if is_categorical_dtype(column)}
    names = column_list(X)[1]
    try:
        return set(column_indices(names, categorical_features))
    except ValueError as error:
        raise ValueError(
            f"categorical_features={categorical_features!r}: {error}; the columns are {names}."
        ) from None


def _holds_objects(X: object) -> bool:
    """Whether an array or a list holds values that are no numbers, such as text."""
    return (X if hasattr(X, "dtype") else np.asarray(X)).dtype.kind not in "fiubc"


def check_numbers(name: str, values: object, *, finite: bool = False) -> Floats:
    """Validate an array of numbers, which may be NaN or infinite unless `finite`: float64.

    >>> check_numbers("y_std", [0.1, "high"])
    Traceback (most recent call last):
    ValueError: y_std must be numeric, but holds 'high' (value 1).
    """
    if isinstance(values, str):
        values = [values]
    options: dict[str, Any] = {"ensure_2d": False, "dtype": None, "ensure_all_finite": False}
    array = check_array(values, **options, input_name=name)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        array = np.asarray(values, dtype=object)  # numpy would make text of the numbers
    is_numeric = array.dtype.kind in "fiub"
    numbers = array.astype(np.float64) if is_numeric else np.empty(array.shape)
    for position, value in enumerate(() if is_numeric else array.flat):
        try:
            numbers.flat[position] = to_number(value)
        except (TypeError, ValueError):
            texts = [str(text).lstrip() for text in array.flat]
            limits = [i for i, text in enumerate(texts) if text[:1] in ("<", ">")]
            position = limits[0] if limits and name == "y" else position
            hint = " Limits of detection are given by y_lower and y_upper." if limits else ""
            shown = f"{array.ravel().tolist()[position]!r} (value {position}).{hint}"
            raise ValueError(f"{name} must be numeric, but holds {shown}") from None
    if finite:
        assert_all_finite(numbers, input_name=name)
    return numbers


def check_finite(
    matrix: Floats,
    names: Sequence[Hashable] | None,
    allow_nan: bool,
    dtype: np.dtype,
    is_training: bool = False,
) -> None:
    """Refuse infinite values and, unless `allow_nan`, missing ones; the message names the cell.

    So are values whose differences `dtype` does not have, and in training too small spreads.
    """
    bad = ~np.isfinite(matrix)
    if allow_nan:
        bad &= ~np.isnan(matrix)
    if bad.any():
        row, column = _first_index(bad)
        where = f"row {row}, column {column if names is None else names[column]!r}"
        if np.isnan(matrix[row, column]):
            raise ValueError(
                f"Input X contains NaN ({where}), which the base estimator does not support; "
                "impute it (sklearn.impute.SimpleImputer), or use HistGradientBoostingRegressor()."
            )
        raise ValueError(f"Input X contains infinity ({where} = {matrix[row, column]}).")
    _check_range("X", matrix, dtype, is_training=is_training)


def _check_range(name: str, values: Floats, dtype: np.dtype, is_training: bool = False) -> None:
    """Refuse values, and columns of training rows, whose differences `dtype` cannot represent."""
    largest = _LARGEST[dtype]
    with np.errstate(invalid="ignore"):
        too_large = np.abs(values) > largest
    if too_large.any():
        where = _first_index(too_large)
        raise ValueError(
            f"{name}{list(where)} = {values[where]} is a value too large for {dtype} differences "
            f"(largest {largest:g}); rescale it."
        )
    if not is_training:
        return
    spread, least = np.fmax.reduce(values) - np.fmin.reduce(values), 1.0 / largest
    too_small = (spread > 0) & (spread < least)
    if np.any(too_small):
        raise ValueError(
            f"{name} has values that differ by {np.max(spread[too_small]):g} at most, too little "
            f"for {dtype} differences (least {least:g}); rescale it."
        )


def _first_index(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.argwhere(mask)[0].tolist())


def check_predictions(values: Floats) -> Floats:
    """Return predictions (query, output) if they are finite; raise otherwise."""
    finite = np.isfinite(values)
    if not finite.all():
        row, output = np.argwhere(~finite)[0]
        raise ValueError(
            f"The prediction of row {row} is {values[row, output]}; check the scale of X and y."
        )
    return values


# --- batches ---


def unknown_batches(
    labels: Sequence[str | None], remedy: str = "add_anchors(X, y, batch=…)"
) -> str:
    """Return the message of an `UnknownBatchWarning`; a remedy makes rows of a batch known.

    >>> unknown_batches(["lab 7", None])
    'Batches without known rows have the mean offset and wider intervals: lab 7, missing. A few...'
    """
    names = sorted({label or "missing" for label in labels})
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return (
        f"Batches without known rows have the mean offset and wider intervals: {shown}. A few "
        f"known rows of a batch suffice: {remedy}."
    )


def batch_labels(batch: ArrayLike, n_rows: int) -> list[str | None]:
    """(row,): labels of batches as text, None where missing; a single label is that of all rows.

    Whole numbers have no decimals, also as the text of a table.

    >>> batch_labels(np.array([1.0, 2.0, np.nan]), 3), batch_labels("lab A", 2)
    (['1', '2', None], ['lab A', 'lab A'])
    >>> batch_labels(["1.0", "01"], 2)
    ['1', '01']
    """
    is_one = np.ndim(batch) == 0
    values: list[Any] = [batch] * n_rows if is_one else list(np.asarray(batch, dtype=object))
    if len(values) != n_rows or np.ndim(batch) > 1:
        raise ValueError(f"batch must be one label, or one for each of the {n_rows} rows.")
    texts = {
        value: None if pd.isna(value) else _WHOLE.sub(r"\1", str(value))
        for value in dict.fromkeys(values)
    }
    return [texts[value] for value in values]


def check_batch_labels(batch: ArrayLike, y: Floats) -> NDArray[np.str_]:
    """(row,): labels of the batches of training rows; values of `y` (row, …) may be NaN."""
    labels = batch_labels(batch, len(y))
    if None in labels:
        raise ValueError(f"Row {labels.index(None)} has no batch.")
    n_batches = len({*labels})
    if n_batches < 2:
        raise ValueError(f"All rows are of one batch, {labels[0]}; offsets need at least two.")
    if n_batches == len(y):
        raise ValueError("Each row has a batch of its own; offsets need batches of several rows.")
    if any(labels == batch_labels(own, len(y)) for own in y.reshape(len(y), -1).T):
        raise ValueError(
            "batch has the values of y; give the laboratory or instrument of each row."
        )
    return np.array(labels, dtype=str)
