"""`twinned query`: the rows of a table to measure next, by a saved twin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from twinned import query
from twinned._compat import safe_indexing
from twinned.app.cli import messages, prediction
from twinned.app.cli.options import QueryOptions
from twinned.app.tables.frames import copied_columns
from twinned.app.tables.reader import read_table
from twinned.app.tables.table import Table


def query_command(options: QueryOptions) -> None:
    """Select the rows of a table to measure next, with a saved model."""
    path = options.result_path(options.pending)

    loaded, table = prediction.load_with_table(options, "query")
    X = prediction.read_features(loaded, table)
    loaded.require_single_target("query")
    with messages.print_warnings():
        selected, columns = _select_rows(options, table, loaded, X)
    cells = copied_columns(table, loaded.names or table.names, loaded.categories)
    if taken := [name for name in columns if name in cells]:
        raise ValueError(f"{table.path} has a column {taken[0]!r}, as the result; rename it.")
    copied = {name: [column[i] for i in selected] for name, column in cells.items()}
    facts = {"rows": len(table), "strategy": options.strategy}
    summary = f"{options.n:,} of {messages.counted(len(table), 'row')}"
    prediction.output_result(options, path, copied, columns, facts, summary)


def _select_rows(
    options: QueryOptions, table: Table, loaded: prediction.LoadedTwin, X: prediction.Features
) -> tuple[np.ndarray, prediction.Columns]:
    """Return the indices of the rows to measure next, and the columns of the result."""
    twin, transform, maximize = loaded.twin, loaded.transform, not options.minimize
    pending = None
    if options.pending is not None:
        # of another kind of file, perhaps: its sheet is the first
        reading = replace(options.reading, encoding=None, sheet=None, header_row=None)
        pending, _ = loaded.read(read_table(options.pending, reading, loaded.names or ()))
    best = _best_value(options, loaded)
    batch, seed = options.batch, options.seed
    goal = {"strategy": options.strategy, "maximize": maximize, "best": best}
    selected = query(twin, X, options.n, **goal, pending=pending, batch=batch, random_state=seed)
    chosen = safe_indexing(X, selected)
    _, std = twin.predict_error(chosen, batch)
    mean = loaded.model.predict(chosen, batch=batch)
    return selected, {
        "row": np.array(table.lines)[selected],
        "prediction": mean,
        "std": transform.slope(mean) * std,
        "probability_better": twin.probability_better(chosen, best, maximize=maximize, batch=batch),
    }


def _best_value(options: QueryOptions, loaded: prediction.LoadedTwin) -> float:
    """Return the value to improve on, on the scale of the twin."""
    if options.best is None:
        offset, _ = loaded.twin.offsets_of(options.batch, 1)
        known_y = loaded.twin.anchors_y_ + (0.0 if offset is None else offset)
        return float(known_y.min() if options.minimize else known_y.max())
    if loaded.transform.is_log and options.best <= 0:
        raise ValueError(f"--best must be positive after --log-target, not {options.best:g}.")
    return float(loaded.transform.apply(np.array(options.best)))
