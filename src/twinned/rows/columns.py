"""Columns of tables: their dtypes, and their values as numbers or codes of categories."""

import datetime
import warnings
from collections.abc import Hashable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from twinned.exceptions import TextFeatureWarning, UnknownCategoryWarning

_MAX_TEXTS = 20  # more different texts in most of the rows are taken for an identifier
_MAX_COMPARED = 1000  # known categories, with a new one
_DATES = "; turn it into numbers, or put skrub's TableVectorizer() before the model."
Column = nw.Series[Any] | np.ndarray  # of a data frame, or of an array


def is_categorical_dtype(column: Column) -> bool:
    """Whether the dtype is an unordered category or text."""
    if is_text_dtype(column):
        return True
    is_category = isinstance(column.dtype, nw.Categorical | nw.Enum)
    return is_category and ordered_levels(column) is None


def is_text_dtype(column: Column) -> bool:
    """Whether a column of a table holds plain strings, also in a pandas column of objects."""
    return isinstance(column, nw.Series) and column.dtype == nw.String and len(column) > 0


def check_text_column(column: nw.Series[Any], name: Hashable) -> None:
    """Raise or warn where plain strings, which become categories, seem to be something else.

    Numbers written as text raise a `ValueError`. Numbers among text, and texts that differ in most
    of the rows, cause a `TextFeatureWarning`.
    """
    distinct = [value for value in dict.fromkeys(column.to_list()) if not _is_missing(value)]
    n_numbers = sum(map(_is_number_text, distinct))
    remedy = "give the column the dtype 'category' to use it as it is"
    if n_numbers > 2 and n_numbers == len(distinct):
        raise ValueError(
            f"Column {name!r} holds numbers written as text, such as {distinct[0]!r}; convert it, "
            f"for example with pandas.to_numeric, or {remedy}."
        )
    n_texts = f"{len(distinct)} different texts in {len(column)} rows"
    if n_numbers and 2 * n_numbers >= len(distinct) > 2:
        text = next(value for value in distinct if not _is_number_text(value))
        reason = f"{n_texts}, {n_numbers} of them numbers, but also {text!r}"
    elif len(distinct) > _MAX_TEXTS and 2 * len(distinct) > len(column):
        reason = f"{n_texts}, such as {distinct[0]!r}: it seems to be an identifier or a date"
    else:
        return
    warnings.warn(
        f"Column {name!r} becomes a category, with {reason}; drop or convert it, or {remedy}.",
        TextFeatureWarning,
        stacklevel=2,
    )


def is_numeric_dtype(column: Column) -> bool:
    """Whether the dtype is numeric or boolean."""
    if not isinstance(column, nw.Series):
        return np.asarray(column).dtype.kind in "fiub"
    return bool(column.dtype.is_numeric() or column.dtype == nw.Boolean)


def ordered_levels(column: Column) -> list[Hashable] | None:
    """The levels of an ordered pandas category, lowest first; None for anything else."""
    # a column of pyarrow has none
    dtype = getattr(column.to_native(), "dtype", None) if isinstance(column, nw.Series) else None
    if dtype is None or not getattr(dtype, "ordered", False):
        return None
    return [plain_value(level) for level in dtype.categories]


def to_numeric(column: Column, name: Hashable) -> NDArray[np.floating]:
    """(n,) float64; raises with the first value that is not a number."""
    values: Iterable[object] = column
    if isinstance(column, nw.Series):
        if is_numeric_dtype(column):
            # polars and nullable pandas columns mark a missing value by null, not by NaN
            return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
        if column.dtype.is_temporal():
            raise TypeError(f"Column {name!r} holds {column.dtype}{_DATES}")
        values = column.to_list()
    elif np.iscomplexobj(column):
        raise ValueError(f"Complex data not supported: column {name!r}.")
    numbers = np.empty(len(column))
    for row, value in enumerate(values):
        if isinstance(value, datetime.date | datetime.timedelta):
            raise TypeError(f"Column {name!r} holds {type(value).__name__}{_DATES}")
        reason = f"Column {name!r} is not numeric: row {row} holds {value!r}"
        if isinstance(value, str | bytes):
            raise ValueError(
                f"{reason}. Convert it; or, in fit, give it the dtype 'category' (with "
                "categorical_features='from_dtype'), or name it in the list categorical_features."
            )
        try:
            numbers[row] = to_number(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{reason} ({error}; must be a string or a number).") from None
    return numbers


def to_number(value: Any) -> float:
    """A value of any type as a number; NaN if it is missing; raises for text."""
    if isinstance(value, str | bytes):
        raise ValueError("text")
    return np.nan if _is_missing(value) else float(value)


def as_codes(
    column: Column, name: Hashable, known_categories: list[Hashable], *, strict: bool
) -> NDArray[np.floating]:
    position = {value: code for code, value in enumerate(known_categories)}
    n_known = len(position)
    codes = np.empty(len(column))
    for row, value in enumerate(_values(column)):
        if _is_missing(value):
            codes[row] = np.nan
            continue
        if value not in position and strict:
            raise ValueError(
                f"Column {name!r} has no level {value!r}; its levels are {known_categories}."
            )
        # an unknown category gets a code of its own: it differs from all others and equals itself
        codes[row] = position.setdefault(value, len(position))
    if len(position) > n_known:
        unknown = unknown_categories(name, list(position)[n_known:], known_categories)
        warnings.warn(unknown, UnknownCategoryWarning, stacklevel=2)
    return codes


def unknown_categories(
    name: Hashable, values: Sequence[Hashable], known: Sequence[Hashable]
) -> str:
    """Return the message of an `UnknownCategoryWarning`, with the known categories most alike.

    >>> unknown_categories("metal", ["pd"], ["Cu", "Ni", "Pd"])
    "Column 'metal': 'pd' was not among the categories at fit, such as 'Pd'; it counts as..."
    >>> unknown_categories("metal", ["Fe", "Ag", "Au", "Pt", "Zn"], ["Cu", "Ni"])
    "Column 'metal': 'Fe', 'Ag', 'Au' and 2 others were not among the categories at fit, such as..."
    """
    texts = {str(category).strip().casefold(): category for category in known[:_MAX_COMPARED]}
    alike = get_close_matches(str(values[0]).strip().casefold(), texts, 1, 0.0)
    example = repr(texts[alike[0]])[:80] if alike else "none"
    shown = [text if len(text) <= 80 else f"{text[:79]}…" for text in map(repr, values[:3])]
    more = len(values) - len(shown)
    listed = ", ".join(shown) + (f" and {more} other{'s' * (more > 1)}" if more else "")
    verb, counts = ("was", "it counts") if len(values) == 1 else ("were", "each counts")
    return (
        f"Column {name!r}: {listed} {verb} not among the categories at fit, such as {example}; "
        f"{counts} as different from all of them."
    )


def _values(column: Column) -> list[Hashable]:
    raw = column.to_list() if isinstance(column, nw.Series) else column
    values = [plain_value(value) for value in raw]
    for row, value in enumerate(values):
        try:
            hash(value)
        except TypeError:
            raise TypeError(f"Category {value!r} of row {row} is not hashable.") from None
    return values


def new_categories(column: Column, known_categories: list[Hashable]) -> list[Hashable]:
    """The categories of a column that are not known yet, in order."""
    present = {value for value in _values(column) if not _is_missing(value)}
    return sorted(present - set(known_categories), key=_sort_key)


def _is_number_text(value: str) -> bool:
    """Whether a text is a number, with a decimal point or comma."""
    try:
        return bool(np.isfinite(float(value.strip().replace(",", ".", 1))))
    except ValueError:
        return False


def plain_value(value: object) -> object:
    """A Python scalar, so that a saved model holds no numpy or pandas objects."""
    return value.item() if isinstance(value, np.generic) else value


def _is_missing(value: object) -> bool:
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    # by name, as pandas.NA and pandas.NaT cannot be compared and pandas need not be imported
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _sort_key(value):
    return type(value).__name__, value if isinstance(value, str | int | float) else str(value)
