"""Features of a table as a DataFrame, in training and in prediction.

A limit, a date or a molecule in a column gives further features, whose names are that of the column
and what they hold: `lead (limit)`, `day (month)`, `smiles (MolWt)`. Their names are all that a
model stores of them.
"""

import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from twinned.app.tables.columns import (
    PARTS,
    category_column,
    date_columns,
    is_categorical,
    known_category_column,
    molecule_columns,
    numeric_column,
    parse_column,
    read_dates,
)
from twinned.app.tables.numbers import distinct_values
from twinned.app.tables.table import Table, join_names, quoted
from twinned.estimators.molecules import DESCRIPTORS, FRAGMENT

LIMIT = "limit"
_PARTS_OF_NAMES = "|".join((LIMIT, *PARTS, *DESCRIPTORS, rf"{FRAGMENT} \d+"))
_DERIVED = re.compile(rf"(.+) \(({_PARTS_OF_NAMES})\)", re.DOTALL)


def training_frame(
    table: Table, names: Sequence[str], kinds: Mapping[str, str]
) -> tuple[pd.DataFrame, list[str]]:
    """Convert columns to features: numbers to float64, text to a pandas category.

    `kinds` are categorical, numeric, date or smiles, of columns whose kind is not to be recognized.

    Returns
    -------
    frame : DataFrame
        The features, those that limits, dates and molecules add last.
    notes : list of str
        One for each column that is not used, and for limits and molecules.
    """
    features: dict[str, object] = {}
    derived: dict[str, np.ndarray] = {}
    notes, limited = [], []
    for name in names:
        kind = kinds.get(name)
        role = None if kind else recognize_role(table, name)
        if role is not None:
            notes.append(role)
        elif kind in ("date", "smiles"):
            if kind == "date":
                of_name = date_columns(table, name, PARTS)
            else:
                of_name, molecule_notes = molecule_columns(table, name)
                notes += molecule_notes
            for part, values in of_name.items():
                if len(pd.unique(values[values == values])) > 1:  # without NaN
                    derived[f"{name} ({part})"] = values
        elif kind == "categorical" or (kind is None and is_categorical(table, name)):
            features[name] = category_column(table, name)
        else:
            features[name], sides = numeric_column(table, name)
            if sides.any():
                derived[f"{name} ({LIMIT})"] = sides
                limited.append(name)
    if taken := [name for name in derived if name in table.names]:
        made = "the name of a feature made from limits, dates or SMILES; rename or --drop it"
        raise ValueError(f"{table.path} has the column {join_names(taken)}, {made}.")
    notes += _limit_note(table, limited, f"; features such as '{{}} ({LIMIT})' mark them")
    return pd.DataFrame(features | derived), notes


def prediction_frame(
    table: Table, names: Sequence[str], categories: Sequence[Sequence[object] | None]
) -> tuple[pd.DataFrame, list[str]]:
    """Convert columns to the features of a fitted model, in the order of `names`.

    `categories` has the known categories of each feature, None for a numeric one. Also returns
    notes on limits.
    """
    features: dict[str, object] = {}
    molecules: dict[str, dict[str, np.ndarray]] = {}  # by the column of SMILES
    limited = []
    for name, known_categories in zip(names, categories, strict=True):
        source, part = _source(table.names, name)
        if part in PARTS:
            features[name] = date_columns(table, source, [part])[part]
        elif part is not None and part != LIMIT:
            if source not in molecules:
                molecules[source], _ = molecule_columns(table, source)
            features[name] = molecules[source][part]
        elif known_categories is not None:
            features[name] = known_category_column(table, name, known_categories)
        else:
            hint = "; correct it, or name it with --missing if the value is missing"
            values, sides = numeric_column(table, source, hint)
            features[name] = values if part is None else sides
            if part is None and sides.any():
                limited.append(name)
    notes = _limit_note(table, limited, "")
    return pd.DataFrame(features), notes


def source_columns(table: Table, names: Sequence[str]) -> list[str]:
    """Return the columns of a table that the features of a model are computed from.

    A date or a molecule that the table lacks is named, not its parts.
    """
    sources = Counter(derived_from(name)[0] for name in names if derived_from(name)[1])
    columns = {*table.names, *(source for source, n in sources.items() if n > 1)}
    return list(dict.fromkeys(_source(columns, name)[0] for name in names))


def first_missing(table: Table, frame: pd.DataFrame) -> str | None:
    """Return the location of the first missing value of features, None if there is none."""
    rows, columns = frame.isna().to_numpy().nonzero()
    if not len(rows):
        return None
    source, _ = _source(table.names, str(frame.columns[columns[0]]))
    return table.location(int(rows[0]), source)


def derived_from(name: str) -> tuple[str, str | None]:
    """Return the column of a feature and what it holds of it, by its name; None where it is whole.

    >>> derived_from("sold (month)"), derived_from("price (EUR)")
    (('sold', 'month'), ('price (EUR)', None))
    """
    match = _DERIVED.fullmatch(name)
    return (match[1], match[2]) if match else (name, None)


def _source(columns: Collection[str], name: str) -> tuple[str, str | None]:
    """Return the column of a feature and, if it is derived from it, what it holds."""
    source, part = derived_from(name)
    return (name, None) if name in columns or source not in columns else (source, part)


def _limit_note(table: Table, names: Sequence[str], remark: str) -> list[str]:
    """Return a note on the columns with limits, if there are any."""
    if not names:
        return []
    reading = "cells such as <5 are read as half the limit, and >100 as the limit"
    columns = f"column{'' if len(names) == 1 else 's'} {join_names(names)}"
    return [f"{table.path}, {columns}: {reading}{remark.format(names[0])}."]


# --- columns that are no features: row counters, identifiers and dates ------------------------

# In smaller tables, different texts and consecutive numbers are taken for features.
MIN_DISTINCT = 20
# Names of the rows that pandas and R write, and of row numbers.
_INDEX_NAME = re.compile(r"unnamed: \d+|index( level \d+)?|row\W?(names?|num.*|id|n[or])\.?", re.I)
_IDENTIFIER_NAME = re.compile(r"(?:.*[\W_])?(?:id|nr|no|key|uuid|index|#)\.?|.*[a-z]I[dD]", re.I)


def recognize_role(table: Table, name: str) -> str | None:
    """Return why a column is not used as a feature and what to do, None for a feature."""
    column = table.column(name)
    distinct = distinct_values(column)
    option = shlex.quote(name)
    if not distinct:
        return f"column {name!r} is empty and is not used."
    if read_dates(distinct):
        dates = f"column {name!r} holds dates, such as {quoted(distinct[0])}, and is not used"
        parts = f"--date {option} uses its parts ({', '.join(PARTS)}) as features"
        return f"{dates}; {parts}, --group {option} groups the rows by it."
    parsed = parse_column(table, name)
    if not parsed.texts and not parsed.n_limits:
        return _number_role(table, name, len(distinct))
    if parsed.is_numeric or parsed.has_wrong_text:
        return None
    if len(distinct) > MIN_DISTINCT and 2 * len(distinct) > len(column):
        smiles = f"--smiles {option} describes molecules, " if "smiles" in name.lower() else ""
        return (
            f"column {name!r} holds {len(distinct)} different texts in {len(column)} rows, such as "
            f"{quoted(distinct[0])}, and is not used; {smiles}"
            f"--label {option} names the rows by it, "
            f"--group {option} groups them, --categorical {option} makes it a feature."
        )
    return None


def _number_role(table: Table, name: str, n_distinct: int) -> str | None:
    """Return why a numeric column is not used as a feature, None for a feature."""
    is_index = _INDEX_NAME.fullmatch(name.replace("_", " ").strip()) is not None
    if n_distinct <= MIN_DISTINCT and not is_index:
        return None
    numbers = parse_column(table, name).values
    if (numbers != np.round(numbers)).any() or len(np.unique(numbers)) < len(numbers):
        return None
    if (np.diff(numbers) == 1).all():
        reason = f"column {name!r} counts the rows"
    elif is_index or _IDENTIFIER_NAME.fullmatch(name):
        reason = f"column {name!r} is an identifier, with a different whole number in each row,"
    else:
        return None
    option = shlex.quote(name)
    uses = f"--label {option} names the rows by it, --numeric {option} makes it a feature"
    return f"{reason} and is not used; {uses}."
