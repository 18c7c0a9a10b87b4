"""Check for new rows outside of the training rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned.diagnostics.data_checks.findings import CheckedTable, Finding, list_names
from twinned.diagnostics.result import format_percent
from twinned.fitted.applicability import ApplicabilityDomain, count_outside
from twinned.fitted.known_values import is_unlikely
from twinned.models.learned_metric import learn_metric
from twinned.rows.schema import Floats, column_list, encode_columns, extend_schema, is_table

_MAX_ROWS = 200  # of which the metric is learned


def check_new_rows(table: CheckedTable, X_new: Any) -> list[Finding]:
    """Find new rows that are outside of the training rows, as `applicability` of a twin does."""
    matrix, schema = _encode(table, X_new), table.schema
    known = schema.to_rows(table.matrix).features
    metric = learn_metric(known, table.y, max_rows=_MAX_ROWS)
    domain = ApplicabilityDomain(table.matrix, known, metric, table.y, schema.categorical)
    classes = domain.classify(matrix, domain.score(schema.to_rows(matrix).features))
    n_outside, n_rows = count_outside(classes), len(matrix)
    expected = domain.expected_share()
    if not is_unlikely(n_outside, n_rows, expected):
        return []
    counts = domain.known_values.beyond(matrix).sum(axis=0)
    features = [int(j) for j in np.argsort(-counts, kind="stable") if counts[j] > 0]
    where = f", most often in {list_names([table.names[j] for j in features])}" if features else ""
    return [
        Finding(
            "TW401",
            f"{n_outside:,} of {n_rows:,} new rows ({format_percent(n_outside / n_rows)}) lie "
            f"outside of the training rows{where}; of rows like those, "
            f"{format_percent(expected)} would.",
            "Errors and intervals reported here do not hold there: label such rows and add them to "
            "the table (twinned.query selects them), or restrict predictions to rows inside.",
            {
                "rows": n_outside,
                "share": n_outside / n_rows,
                "expected_share": expected,
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
    return encode_columns(extend_schema(table.schema, columns), columns, table.names)
