"""What the columns of a table are: numbers or names, and how both become points.

A *number* can be subtracted. A *nominal* column (an unordered category) can only be the same or
different, so it enters the learner as one indicator per known category, and its difference as a
flag. An *ordinal* column (an ordered pandas category) counts its levels and is a number from
then on. A missing value of any kind is NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from twinned.exceptions import UnknownCategoryWarning

NUMERIC, CATEGORICAL, ORDINAL = "numeric", "categorical", "ordinal"
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Rows:
    """Rows ready for pairing. All three share their leading axes.

    `numeric` (..., n_numeric) can be subtracted; `hot` (..., n_indicators) are the indicators of
    the nominal columns; `codes` (..., n_nominal) tell whether two names are the same.
    """

    numeric: Floats
    one_hot: Floats
    codes: Floats

    @property
    def features(self) -> Floats:
        """(..., n_numeric + n_indicators): the space in which distances are measured."""
        if self.one_hot.shape[-1] == 0:
            return self.numeric
        return np.concatenate([self.numeric, self.one_hot], axis=-1)

    def take(self, rows: Any) -> Rows:
        """The points at `rows`, an index, slice or mask of the first axis."""
        return Rows(self.numeric[rows], self.one_hot[rows], self.codes[rows])

    def as_queries(self) -> Rows:
        """(n, …) → (n, 1, …), so that a grid of pairs broadcasts: these down, others across."""
        return Rows(*(part[:, None] for part in self))

    def as_anchors(self) -> Rows:
        """(n, …) → (1, n, …): the other side of `as_queries`."""
        return Rows(*(part[None] for part in self))

    def across(self, rows: slice) -> Rows:
        """A part of the second axis, of points that are `as_anchors` or taken in two dimensions."""
        return Rows(*(part[:, rows] for part in self))

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.numeric, self.one_hot, self.codes))

    def __len__(self) -> int:
        return len(self.numeric)


class TableSchema:
    """How the columns of one table are read; learned at fit and kept with the model.

    Parameters
    ----------
    kinds : list of str
        One of `"numeric"`, `"categorical"`, `"ordinal"` for each column.
    categories : list of list
        The known values of each column, empty for numbers.
    n_indicators : list of int
        How many of those the learner has an indicator for. Categories that arrive later, with
        new anchors, are told apart from others but have no indicator.
    """

    def __init__(
        self, kinds: list[str], categories: list[list[Any]], n_indicators: list[int]
    ) -> None:
        self.kinds = kinds
        self.categories = categories
        self.n_indicators = n_indicators

    @classmethod
    def all_numeric(cls, n_features: int) -> TableSchema:
        """A table of numbers alone."""
        return cls([NUMERIC] * n_features, [[] for _ in range(n_features)], [0] * n_features)

    @property
    def is_all_numeric(self) -> bool:
        return all(kind == NUMERIC for kind in self.kinds)

    @property
    def numeric(self) -> list[int]:
        return [j for j, kind in enumerate(self.kinds) if kind != CATEGORICAL]

    @property
    def categorical(self) -> list[int]:
        return [j for j, kind in enumerate(self.kinds) if kind == CATEGORICAL]

    @property
    def n_encoded(self) -> int:
        return len(self.numeric) + sum(self.n_indicators)

    @property
    def n_features(self) -> int:
        return len(self.kinds)

    def to_rows(self, matrix: Floats) -> Rows:
        """Split an encoded (n, n_features) matrix into points.

        >>> columns = TableSchema(["numeric", "categorical"], [[], ["brick", "wood"]], [0, 2])
        >>> points = columns.to_rows(np.array([[1.5, 0.0], [2.5, 1.0]]))
        >>> points.features
        array([[1.5, 1. , 0. ],
               [2.5, 0. , 1. ]])
        """
        nominal = self.categorical
        if not nominal:
            nothing = np.empty((len(matrix), 0))
            return Rows(matrix, nothing, nothing)
        codes = matrix[:, nominal]
        indicators = []
        for position, j in enumerate(nominal):
            known = np.arange(self.n_indicators[j])
            hot = (codes[:, position, None] == known).astype(matrix.dtype)
            hot[np.isnan(codes[:, position])] = np.nan
            indicators.append(hot)
        return Rows(matrix[:, self.numeric], np.concatenate(indicators, axis=1), codes)


def is_table(X: Any) -> bool:
    """Whether X has named, typed columns (pandas, polars, and what narwhals knows)."""
    return isinstance(nw.from_native(X, eager_only=True, pass_through=True), nw.DataFrame)


def column_list(X: Any) -> tuple[list[Any], list[Any]]:
    """The columns of a table or of a two-dimensional array, and their names or positions."""
    if is_table(X):
        frame = nw.from_native(X, eager_only=True)
        return list(frame.iter_columns()), list(frame.columns)
    array = check_array(X, dtype=object, ensure_all_finite=False)
    return list(array.T), list(range(array.shape[1]))


def learn_schema(columns: Iterable[Any], nominal: set[int]) -> TableSchema:
    """Read kinds and categories off the table that is being fitted.

    `nominal` are the positions that the user, or their dtype, calls unordered categories; ordered
    ones are found here.
    """
    kinds, categories, n_indicators = [], [], []
    for j, column in enumerate(columns):
        levels = ordered_levels(column)
        if j in nominal:
            kind, known = CATEGORICAL, sorted(set(_present(column)), key=_sort_key)
        elif levels is not None:
            kind, known = ORDINAL, levels
        else:
            kind, known = NUMERIC, []
        kinds.append(kind)
        categories.append(known)
        n_indicators.append(len(known) if kind == CATEGORICAL else 0)
    return TableSchema(kinds, categories, n_indicators)


def encode(columns: TableSchema, values: list[Any], names: list[Any]) -> Floats:
    """(n, n_features) float64: numbers as they are, names as codes, missing as NaN."""
    if not values:
        raise ValueError("Found a table with 0 feature(s) while a minimum of 1 is required.")
    encoded = [
        to_numeric(column, name)
        if kind == NUMERIC
        else _as_codes(column, name, known, strict=kind == ORDINAL)
        for column, name, kind, known in zip(
            values, names, columns.kinds, columns.categories, strict=True
        )
    ]
    return np.column_stack(encoded)


def extend(columns: TableSchema, values: list[Any]) -> TableSchema:
    """The same columns, aware of the new categories in `values` (for anchors added later)."""
    categories = [list(known) for known in columns.categories]
    for j, column in enumerate(values):
        if columns.kinds[j] == CATEGORICAL:
            new = set(_present(column)) - set(categories[j])
            categories[j] += sorted(new, key=_sort_key)
    return TableSchema(columns.kinds, categories, columns.n_indicators)


def is_categorical_dtype(column: Any) -> bool:
    """Whether the dtype itself says *unordered category*."""
    if not isinstance(column, nw.Series):
        return False
    return isinstance(column.dtype, nw.Categorical | nw.Enum) and ordered_levels(column) is None


def is_numeric_dtype(column: Any) -> bool:
    """Whether the dtype itself says *number* (or yes and no)."""
    if not isinstance(column, nw.Series):
        return np.asarray(column).dtype.kind in "fiub"
    return bool(column.dtype.is_numeric() or column.dtype == nw.Boolean)


def ordered_levels(column: Any) -> list[Any] | None:
    """The levels of an ordered pandas category, lowest first; None for anything else."""
    if not isinstance(column, nw.Series):
        return None
    dtype = column.to_native().dtype
    if getattr(dtype, "ordered", False):
        return [_plain(level) for level in dtype.categories]
    return None


def to_numeric(column: Any, name: Any) -> Floats:
    """(n,) float64, or an error that shows the first value that is no number."""
    values = column
    if isinstance(column, nw.Series):
        if column.dtype.is_numeric() or column.dtype == nw.Boolean:
            # polars and nullable pandas columns mark a missing value by null, not by NaN
            return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
        if column.dtype.is_temporal():
            raise TypeError(
                f"Column {name!r} holds {column.dtype}; turn it into numbers first, such as days "
                "since a fixed date."
            )
        values = np.asarray(column.to_list(), dtype=object)
    if np.iscomplexobj(values):
        raise ValueError(f"Complex data not supported: column {name!r}.")
    numbers = np.empty(len(values))
    for row, value in enumerate(values):
        if _is_missing(value):
            numbers[row] = np.nan
            continue
        if isinstance(value, str | bytes):
            raise ValueError(
                f"Column {name!r} is not numeric: row {row} holds {value!r}. Give the column the "
                "dtype 'category' (with categorical_features='from_dtype'), or name it in the list "
                "categorical_features."
            )
        try:
            numbers[row] = float(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"Column {name!r} is not numeric: row {row} holds {value!r} "
                f"({error}; an argument must be a string or a number)."
            ) from None
    return numbers


def _as_codes(column: Any, name: Any, known: list[Any], *, strict: bool) -> Floats:
    position = {value: code for code, value in enumerate(known)}
    n_known = len(position)
    codes = np.empty(len(column))
    for row, value in enumerate(_values(column)):
        if _is_missing(value):
            codes[row] = np.nan
            continue
        if value not in position and strict:
            raise ValueError(
                f"Column {name!r} is ordered and has no level {value!r}; its levels are {known}."
            )
        # an unknown name gets a code of its own: it differs from all others, and equals itself
        codes[row] = position.setdefault(value, len(position))
    if len(position) > n_known:
        unknown = list(position)[n_known]
        warnings.warn(
            f"Column {name!r}: {unknown!r} was not among the categories at fit; it counts as "
            "different from all of them.",
            UnknownCategoryWarning,
            stacklevel=2,
        )
    return codes


def _values(column: Any) -> list[Any]:
    raw = column.to_list() if isinstance(column, nw.Series) else column
    values = [_plain(value) for value in raw]
    for row, value in enumerate(values):
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"Row {row} of a categorical column holds {value!r}, no name."
            ) from None
    return values


def _present(column: Any) -> list[Any]:
    return [value for value in _values(column) if not _is_missing(value)]


def _plain(value: Any) -> Any:
    """A Python scalar, so that a saved model holds no numpy or pandas objects."""
    return value.item() if isinstance(value, np.generic) else value


def _is_missing(value: Any) -> bool:
    # NaN and pandas.NA are the values that are not equal to themselves
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return type(value).__name__ in ("NAType", "NaTType")


def _sort_key(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value if isinstance(value, str | int | float) else str(value)
