"""Check for new rows outside of the training rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned._table import Floats, column_list, encode, extend_schema, is_table
from twinned.diagnostics.data_checks.findings import CheckedTable, Finding, list_names
from twinned.diagnostics.result import format_percent
from twinned.intervals.shift import expected_share, is_unlikely, rows_outside


def check_new_rows(table: CheckedTable, X_new: Any) -> list[Finding]:
    """Find new rows beyond the ranges or the categories of the training rows, or far from all."""
    matrix = _encode(table, X_new)
    known = table.matrix
    outside, beyond = rows_outside(matrix, known, table.schema.numeric)
    n_outside, n_rows = int(outside.sum()), len(matrix)
    if not is_unlikely(n_outside, n_rows, expected_share(known)):
        return []
    counts = beyond.sum(axis=0)
    features = [int(j) for j in np.argsort(-counts, kind="stable") if counts[j] > 0]
    where = f", most often in {list_names([table.names[j] for j in features])}" if features else ""
    return [
        Finding(
            "TW401",
            f"{n_outside:,} of {n_rows:,} new rows ({format_percent(n_outside / n_rows)}) lie "
            f"outside of the training rows{where}; of rows like those, "
            f"{format_percent(expected_share(known))} would.",
            "Errors and intervals reported here do not hold there: label such rows and add them to "
            "the table (twinned.query selects them), or restrict predictions to rows inside.",
            {
                "rows": n_outside,
                "share": n_outside / n_rows,
                "expected_share": expected_share(known),
                "features": {table.names[j]: int(counts[j]) for j in features},
            },
        )
    ]


def _encode(table: CheckedTable, X_new: Any) -> Floats:
    """(row, feature) codes and numbers; a new category has a code beyond the known ones."""
    if not is_table(X_new):
        return np.asarray(X_new, dtype=np.float64)
    values, names = column_list(X_new)
    by_name = dict(zip(map(str, names), values, strict=True))
    missing = [name for name in table.names if name not in by_name]
    if missing:
        raise ValueError(f"The new rows lack the features {list_names(missing)}.")
    columns = [by_name[name] for name in table.names]
    return encode(extend_schema(table.schema, columns), columns, table.names)
