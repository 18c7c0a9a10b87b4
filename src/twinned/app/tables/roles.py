"""Columns that are no features: row counters, identifiers and dates."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from twinned.app.tables.columns import column_contents
from twinned.app.tables.dates import are_dates
from twinned.app.tables.numbers import common_unit
from twinned.app.tables.table import Table, distinct_values, quoted

# In smaller tables, different texts and consecutive numbers are taken for features.
MIN_DISTINCT = 20
# Names of the index that pandas writes, the second kind to Parquet files.
_INDEX_NAMES = ("", "Unnamed: 0", "index")
_STORED_INDEX = re.compile(r"__index_level_\d+__")
_IDENTIFIER_NAME = re.compile(r"(?:.*[\W_])?(?:id|nr|no|key|uuid|index|#)\.?|.*[a-z]I[dD]", re.I)


def recognize_role(table: Table, name: str) -> str | None:
    """Return why a column is not used as a feature and what to do, None for a feature."""
    column = table.column(name)
    distinct = distinct_values(column)
    option = shlex.quote(name)
    if not distinct or table.number_format(name).ambiguous:
        return None
    if are_dates(distinct):
        return (
            f"column {name!r} holds dates, such as {quoted(distinct[0])}, and is not used; "
            f"--date {option} uses its parts (days, month, weekday, hour) as features, "
            f"--group {option} groups the rows by it."
        )
    contents = column_contents(table, name)
    if not contents.texts and not contents.limits:
        return _number_role(table, name, len(distinct))
    if contents.is_numeric or contents.is_mostly_numeric or common_unit(contents.texts):
        return None
    if len(distinct) > MIN_DISTINCT and 2 * len(distinct) > len(column):
        return (
            f"column {name!r} holds {len(distinct)} different texts in {len(column)} rows, such as "
            f"{quoted(distinct[0])}, and is not used; --label {option} names the rows by it, "
            f"--group {option} groups them, --categorical {option} makes it a feature."
        )
    return None


def _number_role(table: Table, name: str, n_distinct: int) -> str | None:
    """Return why a numeric column is not used as a feature, None for a feature."""
    is_stored_index = _STORED_INDEX.fullmatch(name) is not None
    is_index = is_stored_index or name in _INDEX_NAMES
    if n_distinct <= MIN_DISTINCT and not is_index:
        return None
    numbers = [number for number in table.numbers(name) if number is not None]
    if len(numbers) < len(table) or not all(number.is_integer() for number in numbers):
        return None
    first_rows = range(len(table)) if n_distinct == len(table) else table.first_of_equal_rows
    if n_distinct < len(first_rows):
        return None
    whole = [int(numbers[row]) for row in first_rows]
    if _counts_rows(whole):
        shown = f"column {name!r}" if name else f"column {table.names.index('') + 1} (no name)"
        reason = f"{shown} counts the rows"
    elif is_stored_index:
        reason = f"column {name!r} is the index of a DataFrame"
    elif _IDENTIFIER_NAME.fullmatch(name):
        reason = f"column {name!r} is an identifier, with a different whole number in each row,"
    else:
        return None
    if not name:
        return f"{reason} and is not used."
    option = shlex.quote(name)
    return (
        f"{reason} and is not used; --label {option} names the rows by it, --numeric {option} "
        "makes it a feature."
    )


def _counts_rows(numbers: Sequence[int]) -> bool:
    return all(number == numbers[0] + row for row, number in enumerate(numbers))
