"""`twinned query`: the rows of a table to measure next, by a saved twin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import messages, prediction
from twinned.app.cli.options import SavedModelOptions, flag_option, seed_option
from twinned.app.tables.frames import copied_columns
from twinned.app.tables.reader import read_table
from twinned.app.tables.table import Table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class QueryOptions(SavedModelOptions):
    """Options of `twinned query`.

    Parameters
    ----------
    table
        A CSV, Excel (.xlsx) or Parquet file with the candidates: rows with the features of the
        model.
    n
        Number of rows to select, which are measured together.
    strategy
        improvement (expected improvement on the best known value) or thompson, to find the best
        row; uncertainty, inconsistency, change or difference, to learn the target everywhere.
    minimize
        The smallest value is the best.
    best
        The value to improve on. Without it, the best known value; limits such as <0.5 are not
        known values.
    pending
        A file of rows that are being measured, such as an earlier result: none of them is
        selected, nor rows like them.
    output
        File of the selected rows, .csv or .xlsx; printed without it.
    seed
        Seed of the joint samples.
    """

    n: Annotated[int, typer.Option("-n")] = 1
    strategy: Annotated[str, typer.Option("--strategy", metavar="NAME")] = "improvement"
    minimize: Annotated[bool, flag_option("--minimize")] = False
    best: Annotated[float | None, typer.Option("--best", metavar="VALUE")] = None
    pending: Annotated[Path | None, typer.Option("--pending", metavar="FILE")] = None
    seed: Annotated[int, seed_option()] = 0


def query_command(options: QueryOptions) -> None:
    """Select the rows of a table to measure next, with a saved model.

    The result has the selected rows with all columns of the table, the most useful first, and the
    columns row (the line of a CSV file, or the row of an Excel or Parquet file), prediction, std,
    which is calibrated where the model is, and probability_better: that a measurement of the row is
    better than the best known value. After --log-target, the improvement is that of the logarithm.

    For example:

        twinned query yield.twin candidates.csv -n 8 -o next.csv

        twinned query cost.twin candidates.csv -n 4 --minimize --pending next.csv
    """
    with messages.exit_on_bad_input():
        path = options.result_path(options.pending)
        loaded, table = prediction.load_with_table(options, "query")
        X = prediction.read_features(loaded, table)
        loaded.require_single_target("query")
        with messages.print_warnings():
            selected, columns = _select_rows(options, table, loaded, X)
        cells = copied_columns(table, loaded.names or table.names, loaded.categories)
        for name in columns:
            if name in cells:
                raise ValueError(f"{table.path} has a column {name!r}, as the result; rename it.")
        copied = {name: [column[i] for i in selected] for name, column in cells.items()}
        facts = {"rows": len(table), "strategy": options.strategy}
        summary = f"{options.n:,} of {messages.counted(len(table), 'row')}"
        prediction.output_result(options, path, copied, columns, facts, summary)


def _select_rows(
    options: QueryOptions, table: Table, loaded: prediction.LoadedTwin, X: pd.DataFrame | np.ndarray
) -> tuple[np.ndarray, prediction.Columns]:
    """Return the indices of the rows to measure next, and the columns of the result."""
    import numpy as np

    from twinned import query
    from twinned._compat import safe_indexing
    from twinned.fitted.target import predict_target

    twin, transform, maximize = loaded.twin, loaded.transform, not options.minimize
    pending = None
    if options.pending is not None:
        # of another kind of file, perhaps: its sheet is the first
        reading = replace(options.reading, encoding=None, sheet=None, header_row=None)
        pending, _ = loaded.read(read_table(options.pending, reading, loaded.names or ()))
    best = _best_value(options, loaded)
    goal = {"strategy": options.strategy, "maximize": maximize, "best": best}
    selected = query(twin, X, options.n, pending=pending, random_state=options.seed, **goal)
    chosen = safe_indexing(X, selected)
    _, std = twin.predict_error(chosen)
    mean = predict_target(loaded.model, chosen)
    return selected, {
        "row": np.array(table.lines)[selected],
        "prediction": mean,
        "std": transform.invert_std(mean, std),
        "probability_better": twin.probability_better(chosen, best, maximize=maximize),
    }


def _best_value(options: QueryOptions, loaded: prediction.LoadedTwin) -> float:
    """Return the value to improve on, on the scale of the twin."""
    import numpy as np

    if options.best is None:
        known_y = loaded.twin.anchors_y_
        return float(known_y.min() if options.minimize else known_y.max())
    if loaded.transform.is_log and options.best <= 0:
        raise ValueError(f"--best must be positive after --log-target, not {options.best:g}.")
    return float(loaded.transform.apply(np.array(options.best)))
