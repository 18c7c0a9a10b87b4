"""Everything is checked at the door, here; what lies behind trusts its inputs."""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import _num_samples, column_or_1d, validate_data

from twinned._table import (
    Floats,
    TableSchema,
    column_list,
    encode,
    extend,
    is_categorical_dtype,
    is_table,
    learn_schema,
)

# Squares of differences, summed over the rows, must stay finite, else a learner gives NaN
# without a word. In float32 the limit is set by what a difference can hold.
_LARGEST = {np.dtype(np.float32): 1.7e38, np.dtype(np.float64): 1e150}

# What scikit-learn's door may let in here: NaN and infinity are told more precisely below.
_ANY_NUMBER: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": False}

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def check_integer(name: str, value: Any, minimum: int = 1) -> int:
    """A whole number, at least `minimum`. True is not 1 here.

    >>> check_integer("k", 3)
    3
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, not {value!r}.")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {value!r}.")
    return int(value)


def check_real(name: str, value: Any) -> float:
    """A finite number. True is not 1 here either."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{name} must be finite, not {value!r}.")
    return number


def check_choice(name: str, value: Any, choices: Sequence[str], otherwise: str = "") -> None:
    """One of the named choices; `otherwise` says what else would have been taken."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"{name} must be one of {listed}{otherwise}, not {value!r}.")


def check_bool(name: str, value: Any) -> bool:
    """True or False, nothing that merely counts as such."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {value!r}.")
    return bool(value)


def check_n_jobs(n_jobs: Any) -> None:
    """As in scikit-learn: None, or a number of threads, negative to count from all cores."""
    if n_jobs is not None and (
        isinstance(n_jobs, bool) or not isinstance(n_jobs, numbers.Integral)
    ):
        raise TypeError(f"n_jobs must be None or a whole number, not {n_jobs!r}.")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0; use None or 1 for a single thread.")


def parse_memory_limit(limit: Any) -> int | None:
    """Bytes, from a number of bytes or a string such as `"512MB"` (decimal) or `"1GiB"`.

    >>> parse_memory_limit("512MB"), parse_memory_limit("1GiB"), parse_memory_limit(None)
    (512000000, 1073741824, None)
    """
    if limit is None:
        return None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B)?\s*", limit, re.IGNORECASE)
        if match is None:
            raise ValueError(
                f"memory_limit must be bytes or a string such as '512MB', not {limit!r}."
            )
        size = float(match[1]) * _UNITS[(match[2] or "B").upper()]
    elif isinstance(limit, numbers.Real) and not isinstance(limit, bool | np.bool_):
        size = float(limit)
    else:
        raise TypeError(f"memory_limit must be bytes or a string such as '512MB', not {limit!r}.")
    if not 1 <= size < 2**63:
        raise ValueError(f"memory_limit must be at least one byte, and finite, not {limit!r}.")
    return int(size)


def validate_training_table(
    estimator: Any, X: Any, categorical_features: Any, *, allow_nan: bool, pair_dtype: np.dtype[Any]
) -> tuple[Floats, TableSchema]:
    """Encode the table that is being fitted and learn its columns. (n, n_features) float64."""
    _refuse_lazy(X)
    declared = _declared_positions(X, categorical_features)
    if declared or is_table(X):
        values, names = column_list(X)
        validate_data(estimator, X, reset=True, skip_check_array=True)
        columns = learn_schema(values, declared)
        matrix = check_array(encode(columns, values, names), **_ANY_NUMBER, ensure_min_samples=2)
    else:
        matrix = validate_data(estimator, X, reset=True, **_ANY_NUMBER, ensure_min_samples=2)
        columns, names = TableSchema.all_numeric(matrix.shape[1]), None
    _check_finite(matrix, names, allow_nan, pair_dtype)
    return matrix, columns


def validate_table(
    estimator: Any,
    X: Any,
    columns: TableSchema,
    *,
    allow_nan: bool,
    pair_dtype: np.dtype[Any],
    learn_categories: bool = False,
) -> tuple[Floats, TableSchema]:
    """Encode a table like the one that was fitted. (n, n_features) float64.

    With `learn_categories`, the returned columns know the new categories too.
    """
    _refuse_lazy(X)
    names = None
    if is_table(X) or not columns.is_all_numeric:
        values, names = column_list(X)
        validate_data(estimator, X, reset=False, skip_check_array=True)
        if learn_categories:
            columns = extend(columns, values)
        matrix = check_array(encode(columns, values, names), **_ANY_NUMBER)
    else:
        matrix = validate_data(estimator, X, reset=False, **_ANY_NUMBER)
    _check_finite(matrix, names, allow_nan, pair_dtype)
    return matrix, columns


def validate_target(
    estimator: Any, y: Any, n_rows: int, *, multi_output: bool, unlabelled: bool = False
) -> Floats:
    """(n,) or, where the base learns several outputs, (n, n_outputs); float64 and finite.

    Where `unlabelled` rows are welcome, NaN marks them, in all their outputs.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    if is_table(y):
        y = np.column_stack([np.asarray(column.to_numpy()) for column in column_list(y)[0]])
    y = check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y")
    if y.ndim == 2 and y.shape[1] > 1 and not multi_output:
        raise ValueError(
            f"y has {y.shape[1]} columns, but the base estimator learns one output; wrap it in "
            "sklearn.multioutput.MultiOutputRegressor."
        )
    if y.ndim > 2:
        raise ValueError(f"y should be a 1d array or have one row per sample, got shape {y.shape}.")
    if not multi_output:
        y = column_or_1d(y, warn=True)
    if y.dtype.kind not in "fiub":
        y = _numbers_from_objects(y)
    y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite=False, input_name="y")
    bad = ~np.isfinite(y)
    if unlabelled:
        bad &= ~_without_label(y)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        what = "NaN" if np.isnan(y[where]) else "infinity"
        way_out = "Leave out the rows whose value is not known"
        if unlabelled:
            way_out = "A row without a label is NaN in all its outputs"
        elif hasattr(estimator, "loop_weight"):
            way_out += ", or learn from their loops with loop_weight > 0"
        raise ValueError(
            f"Input y contains {what}: y[{', '.join(map(str, where))}] = {y[where]}. {way_out}."
        )
    _check_size("y", y, np.dtype(np.float64))
    if len(y) != n_rows:
        raise ValueError(
            f"X and y must have one row per point, but X has {n_rows} and y has {len(y)}."
        )
    return y


def count_rows(X: Any) -> int:
    """How many rows a table or array has, before it is opened."""
    _refuse_lazy(X)
    return int(_num_samples(X))


def _without_label(y: Floats) -> NDArray[np.bool_]:
    """Like y: True in the rows that are NaN throughout."""
    missing = np.isnan(y)
    if y.ndim == 1:
        return missing
    return np.broadcast_to(np.all(missing, axis=1, keepdims=True), y.shape)


def check_sample_weight(sample_weight: Any, n_rows: int) -> Floats | None:
    """(n,) float64, finite and not negative; None where every row counts the same."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Real) and not isinstance(sample_weight, bool):
        sample_weight = np.full(n_rows, float(sample_weight))
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.ndim != 1:
        raise ValueError(f"sample_weight must be 1D, got shape {weight.shape}.")
    if len(weight) != n_rows:
        raise ValueError(f"sample_weight has {len(weight)} values for {n_rows} rows.")
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise ValueError(f"sample_weight[{row}] = {weight[row]} is negative.")
    if (weight > 0).sum() < 2:
        raise ValueError(
            f"sample_weight is zero for all but {int((weight > 0).sum())} of {n_rows} rows; a pair "
            "needs two rows of positive weight."
        )
    _check_size("sample_weight", weight, np.dtype(np.float64))
    return weight


@contextmanager
def restore_on_failure(estimator: Any) -> Iterator[None]:
    """A fit that is refused leaves the estimator as it was."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def check_same_rows(first: Any, second: Any) -> None:
    """Both sides of row-by-row pairs have the same number of rows."""
    check_consistent_length(first, second)


def _refuse_lazy(X: Any) -> None:
    if not is_table(X) and hasattr(X, "collect_schema"):
        raise TypeError(f"X is lazy ({type(X).__name__}); call .collect() first.")


def _declared_positions(X: Any, categorical_features: Any) -> set[int]:
    """The positions of the columns that the user, or their dtype, calls nominal."""
    if categorical_features is None:
        return set()
    if isinstance(categorical_features, str):
        check_choice(
            "categorical_features", categorical_features, ["from_dtype"], ", None or a list"
        )
        if not is_table(X):
            return set()
        return {j for j, column in enumerate(column_list(X)[0]) if is_categorical_dtype(column)}
    try:
        chosen = list(categorical_features)
    except TypeError:
        raise TypeError(
            "categorical_features must be 'from_dtype', None, or a list of columns, not "
            f"{categorical_features!r}."
        ) from None
    if is_table(X):
        names = column_list(X)[1]
    else:
        shape = np.shape(X)
        if len(shape) != 2:
            raise ValueError(f"Expected 2D array, got an array of shape {shape} instead.")
        names = list(range(shape[1]))
    if chosen and all(isinstance(item, bool | np.bool_) for item in chosen):
        if len(chosen) != len(names):
            raise ValueError(
                f"categorical_features is a mask of {len(chosen)} for {len(names)} columns."
            )
        return {j for j, is_nominal in enumerate(chosen) if is_nominal}
    positions = set()
    for item in chosen:
        if isinstance(item, str) and item in names:
            positions.add(names.index(item))
        elif isinstance(item, int | np.integer) and 0 <= item < len(names):
            positions.add(int(item))
        else:
            raise ValueError(f"categorical_features names {item!r}; the columns are {names}.")
    return positions


def _numbers_from_objects(y: NDArray[Any]) -> Floats:
    flat = y.ravel()
    out = np.empty(flat.shape)
    for row, value in enumerate(flat):
        try:
            if isinstance(value, str | bytes):
                raise ValueError("text")
            out[row] = np.nan if value is None else float(value)
        except (TypeError, ValueError):
            raise ValueError(f"y must be numeric, but holds {value!r} (value {row}).") from None
    return out.reshape(y.shape)


def _check_finite(
    matrix: Floats, names: list[Any] | None, allow_nan: bool, dtype: np.dtype[Any]
) -> None:
    """Turn away what no difference can be made of, and say where it stands."""
    bad = ~np.isfinite(matrix)
    if allow_nan:
        bad &= ~np.isnan(matrix)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        where = f"row {row}, column {column if names is None else names[column]!r}"
        if np.isnan(matrix[row, column]):
            raise ValueError(
                f"Input X contains NaN ({where}), and the base estimator takes no missing values; "
                "impute them first (sklearn.impute.SimpleImputer in a pipeline) or use a base that "
                "takes them, such as HistGradientBoostingRegressor()."
            )
        raise ValueError(f"Input X contains infinity ({where} = {matrix[row, column]}).")
    _check_size("X", matrix, dtype)


def _check_size(name: str, matrix: Floats, dtype: np.dtype[Any]) -> None:
    largest = _LARGEST[dtype]
    with np.errstate(invalid="ignore"):
        too_large = np.abs(matrix) > largest
    if too_large.any():
        where = tuple(int(i) for i in np.argwhere(too_large)[0])
        raise ValueError(
            f"{name}[{', '.join(map(str, where))}] = {matrix[where]} is a value too large for "
            f"{dtype} differences (largest {largest:g}); rescale it."
        )
