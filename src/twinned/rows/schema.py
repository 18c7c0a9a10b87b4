"""Table schema, encoding and queries: numeric, ordinal and categorical features as arrays.

Numeric features can be subtracted. A categorical feature enters a model as one indicator per known
category, and its difference as a flag that is 1 where two categories differ. An ordinal feature (an
ordered pandas category) is the position of its level and numeric from then on. Missing values of
any kind are NaN.
"""

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_array

from twinned.rows.columns import (
    Column,
    as_codes,
    new_categories,
    ordered_levels,
    plain_value,
    to_numeric,
)

NUMERIC, CATEGORICAL, ORDINAL = "numeric", "categorical", "ordinal"
# Labels of training rows: their number, characters of each, and bytes of JSON. A saved model, whose
# JSON has at most 4 MB, can hold them.
_MAX_LABELS, _MAX_LABEL, _MAX_LABEL_BYTES = 100_000, 10_000, 3_000_000
Floats = NDArray[np.floating]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Rows:
    """Encoded rows of a table. All three arrays share their leading axes.

    `numeric` (..., n_numeric) are the numeric and ordinal features, `one_hot` (..., n_indicators)
    the indicators of the categorical features and then those of missing numbers, and `codes`
    (..., n_categorical) the codes of the categorical features.
    """

    numeric: Floats
    one_hot: Floats
    codes: Floats

    @property
    def features(self) -> Floats:
        """(..., n_numeric + n_indicators): numeric features and indicators, for distances."""
        if self.one_hot.shape[-1] == 0:
            return self.numeric
        return np.concatenate([self.numeric, self.one_hot], axis=-1)

    def take(self, rows: Any) -> Self:
        """The rows at an index of the leading axes: `np.s_[:, None]` adds an axis for anchors."""
        return type(self)(self.numeric[rows], self.one_hot[rows], self.codes[rows])

    def take_columns(self, *columns: Indices) -> Self:
        """Some columns of each of the three arrays."""
        return type(self)(
            *(array[..., chosen] for array, chosen in zip(self, columns, strict=True))
        )

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.numeric, self.one_hot, self.codes))

    def __len__(self) -> int:
        return len(self.numeric)


@dataclass(frozen=True, eq=False)
class TableSchema:
    """Kinds and categories of the features of a table, learned in `fit`.

    `kinds` are `"numeric"`, `"categorical"` or `"ordinal"`. `categories` are the known ones of each
    feature, none for numeric features; the first `n_indicators` of them have an indicator.
    Categories that are added later, with new anchors, have a code but no indicator. A numeric
    feature has an indicator of missing values where `mark_missing` adds one.
    """

    kinds: list[str]
    categories: list[list[Hashable]]
    n_indicators: list[int]

    @classmethod
    def all_numeric(cls, n_features: int) -> Self:
        """The schema of a table whose features are all numeric."""
        return cls([NUMERIC] * n_features, [[] for _ in range(n_features)], [0] * n_features)

    @property
    def is_all_numeric(self) -> bool:
        return set(self.kinds) <= {NUMERIC}

    @cached_property
    def numeric(self) -> list[int]:
        return [j for j, kind in enumerate(self.kinds) if kind != CATEGORICAL]

    @cached_property
    def categorical(self) -> list[int]:
        return [j for j, kind in enumerate(self.kinds) if kind == CATEGORICAL]

    @property
    def marked(self) -> list[int]:
        """Numeric features with an indicator of missing values."""
        return [j for j in self.numeric if self.n_indicators[j]]

    @property
    def n_encoded(self) -> int:
        return len(self.numeric) + sum(self.n_indicators)

    @property
    def n_features(self) -> int:
        return len(self.kinds)

    def take(self, features: Sequence[int] | Indices) -> Self:
        """The schema of a table with these features only."""
        return type(self)(
            [self.kinds[j] for j in features],
            [self.categories[j] for j in features],
            [self.n_indicators[j] for j in features],
        )

    def row_columns(self, features: Indices) -> tuple[Indices, Indices, Indices]:
        """The columns of `Rows.numeric`, `one_hot` and `codes` that belong to these features.

        >>> schema = TableSchema(["numeric", "categorical"], [[], ["brick", "wood"]], [0, 2])
        >>> schema.row_columns(np.array([1]))
        (array([], dtype=int64), array([0, 1]), array([0]))
        """
        of_indicators = [j for j in self.categorical for _ in range(self.n_indicators[j])]
        return (
            np.flatnonzero(np.isin(self.numeric, features)),
            np.flatnonzero(np.isin(of_indicators + self.marked, features)),
            np.flatnonzero(np.isin(self.categorical, features)),
        )

    def encoded_columns(self, features: Indices) -> Indices:
        """The columns of `Rows.features` that belong to these features."""
        numeric, indicators, _ = self.row_columns(features)
        return np.concatenate([numeric, len(self.numeric) + indicators])

    def to_rows(self, matrix: Floats) -> Rows:
        """Split an encoded (n, n_features) matrix into `Rows`.

        >>> schema = TableSchema(["numeric", "categorical"], [[], ["brick", "wood"]], [0, 2])
        >>> rows = schema.to_rows(np.array([[1.5, 0.0], [2.5, 1.0]]))
        >>> rows.features
        array([[1.5, 1. , 0. ],
               [2.5, 0. , 1. ]])
        """
        if CATEGORICAL not in self.kinds and not any(self.n_indicators):
            empty = np.empty((len(matrix), 0))
            return Rows(matrix, empty, empty)
        indicators = [np.empty((len(matrix), 0))]
        for j in self.categorical:
            codes = matrix[:, j, None]
            one_hot = (codes == np.arange(self.n_indicators[j])).astype(matrix.dtype)
            indicators.append(np.where(np.isnan(codes), np.nan, one_hot))
        indicators.append(np.isnan(matrix[:, self.marked]).astype(matrix.dtype))
        one_hot = np.concatenate(indicators, axis=1)
        return Rows(matrix[:, self.numeric], one_hot, matrix[:, self.categorical])

    def to_matrix(self, rows: Rows) -> Floats:
        """(..., n_features): the encoded matrix from which `to_rows` made these rows.

        >>> schema = TableSchema(["categorical", "numeric"], [["a", "b"], []], [2, 0])
        >>> matrix = np.array([[1.0, 2.5], [0.0, 3.5]])
        >>> np.array_equal(schema.to_matrix(schema.to_rows(matrix)), matrix)
        True
        """
        matrix = np.empty((*rows.numeric.shape[:-1], self.n_features))
        matrix[..., self.numeric] = rows.numeric
        matrix[..., self.categorical] = rows.codes
        return matrix


class RowScale(Protocol):
    """Scale of encoded rows, for a model that is fitted to scaled features."""

    def transform(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True, eq=False)
class Queries:
    """Validated rows to predict, encoded block by block, as indicators take much memory."""

    schema: TableSchema
    scale: RowScale | None
    matrix: Floats  # (query, feature), with categories as codes
    # (query,): deviation of the batch, its standard error, the factor of the other errors, and a
    # number of the batch that equals that of other queries of the same batch; None without batches
    offset: Floats | None = None
    offset_std: Floats | None = None
    error_ratio: Floats | None = None
    batch: Indices | None = None

    def take(self, rows: slice | Indices) -> Rows:
        """Encoded rows, as the model sees them."""
        encoded = self.schema.to_rows(self.matrix[rows])
        return encoded if self.scale is None else self.scale.transform(encoded)

    def encode(self) -> Rows:
        """All rows, encoded."""
        return self.take(slice(None))

    @property
    def encoded_features(self) -> Floats:
        """(query, encoded feature), not scaled."""
        return self.schema.to_rows(self.matrix).features

    def append(self, others: Self) -> Self:
        """These rows and, after them, others of the same model."""
        joined: dict[str, Any] = {"matrix": np.concatenate([self.matrix, others.matrix])}
        for name in ("offset", "offset_std", "error_ratio", "batch"):
            first, second = vars(self)[name], vars(others)[name]
            joined[name] = None if first is None else np.concatenate([first, second])
        return replace(self, **joined)

    def __len__(self) -> int:
        return len(self.matrix)


def is_table(X: Any) -> bool:
    """Whether X is a data frame with named, typed columns (pandas, polars and others).

    A lazy one is refused.
    """
    if isinstance(X, np.ndarray):
        return False
    native = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(native, nw.DataFrame):
        return True
    if hasattr(X, "collect_schema") or is_dask(X):
        call = "compute" if is_dask(X) else "collect"
        raise TypeError(f"X is lazy ({type(X).__name__}); call .{call}() first.")
    return False


def is_dask(X: Any) -> bool:
    """Whether X is a Dask DataFrame or Array; Dask is not imported to find out."""
    kind = type(X)
    return kind.__module__.startswith("dask") and kind.__name__ in ("DataFrame", "Array")


def column_list(X: Any) -> tuple[list[Any], list[Any]]:
    """The columns of a table or two-dimensional array, and their names or indices."""
    if is_table(X):
        frame = nw.from_native(X, eager_only=True)
        return list(frame.iter_columns()), list(frame.columns)
    array = check_array(X, dtype=object, ensure_all_finite=False)
    return list(array.T), list(range(array.shape[1]))


def row_labels(X: Any) -> list[Hashable] | None:
    """Labels of the rows of a pandas table: strings or numbers; None without an own index.

    >>> import pandas as pd
    >>> row_labels(pd.DataFrame({"area": [1.0, 2.0]}, index=["north", "south"]))
    ['north', 'south']
    """
    index = nw.maybe_get_index(nw.from_native(X, eager_only=True)) if is_table(X) else None
    if index is None:
        return None
    labels = [plain_value(value) for value in index]
    if labels == list(range(len(labels))):
        return None
    return [value if isinstance(value, str | int) else str(value) for value in labels]


def storable_labels(labels: list[Hashable] | None) -> list[Hashable] | None:
    """Labels of training rows as a saved model can hold them; None if they are too large for it."""
    if labels is None or len(labels) > _MAX_LABELS:
        return None
    labels = [label[:_MAX_LABEL] if isinstance(label, str) else label for label in labels]
    return labels if len(json.dumps(labels)) <= _MAX_LABEL_BYTES else None


def learn_schema(columns: Iterable[Column], categorical: set[int]) -> TableSchema:
    """The schema of a training table.

    `categorical` are the indices of the columns that the user, or their dtype, declares as
    unordered categories; ordered ones are recognized by their dtype here.
    """
    kinds, categories, n_indicators = [], [], []
    for j, column in enumerate(columns):
        levels, is_categorical = ordered_levels(column), j in categorical
        known_categories = new_categories(column, []) if is_categorical else levels or []
        kind = NUMERIC if levels is None else ORDINAL
        kinds.append(CATEGORICAL if is_categorical else kind)
        categories.append(known_categories)
        n_indicators.append(len(known_categories) if is_categorical else 0)
    return TableSchema(kinds, categories, n_indicators)


def encode_columns(schema: TableSchema, values: list[Column], names: Sequence[Hashable]) -> Floats:
    """(n, n_features) float64: numeric values, codes of categories, NaN for missing values."""
    if not values:
        raise ValueError("Found a table with 0 feature(s) while a minimum of 1 is required.")
    encoded = []
    for column, name, kind, known_categories in zip(
        values, names, schema.kinds, schema.categories, strict=True
    ):
        if kind == NUMERIC:
            encoded.append(to_numeric(column, name))
        else:
            encoded.append(as_codes(column, name, known_categories, strict=kind == ORDINAL))
    return np.column_stack(encoded)


def extend_schema(schema: TableSchema, values: list[Column]) -> TableSchema:
    """The schema with the new categories in `values` added, without indicators."""
    categories = list(schema.categories)
    for j in schema.categorical:
        categories[j] = categories[j] + new_categories(values[j], categories[j])
    return replace(schema, categories=categories)


def mark_missing(schema: TableSchema, matrix: Floats) -> TableSchema:
    """The schema with an indicator for each numeric feature that has missing values in the matrix.

    >>> mark_missing(TableSchema.all_numeric(2), np.array([[1.0, np.nan], [2.0, 3.0]])).n_indicators
    [0, 1]
    """
    missing = np.any(np.isnan(matrix), axis=0)
    n_indicators = list(schema.n_indicators)
    for j in schema.numeric:
        n_indicators[j] = int(missing[j])
    return replace(schema, n_indicators=n_indicators)


def known_medians(values: Floats) -> Floats:
    """(column,): medians of the known values; 0 where there are none.

    >>> known_medians(np.array([[1.0, np.nan], [4.0, np.nan], [2.0, np.nan], [np.nan, np.nan]]))
    array([2., 0.])
    """
    return pd.DataFrame(values).median().fillna(0.0).to_numpy()
