"""`twinned query`: the rows of a table to measure next, by a saved twin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import messages, prediction
from twinned.app.cli.options import (
    SavedModelOptions,
    check_result_path,
    check_seed,
    flag_option,
    output_option,
    table_argument,
)
from twinned.app.tables.frames import copied_columns
from twinned.app.tables.reader import read_table
from twinned.app.tables.table import ReadOptions

if TYPE_CHECKING:
    import numpy as np


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

    table: Annotated[Path, table_argument()]
    n: Annotated[int, typer.Option("-n")] = 1
    strategy: Annotated[str, typer.Option("--strategy", metavar="NAME")] = "improvement"
    minimize: Annotated[bool, flag_option("--minimize")] = False
    best: Annotated[float | None, typer.Option("--best", metavar="VALUE")] = None
    pending: Annotated[Path | None, typer.Option("--pending", metavar="FILE")] = None
    output: Annotated[Path | None, output_option()] = None
    seed: Annotated[int, typer.Option("--seed")] = 0


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
        check_seed(options.seed)
        inputs = [each for each in (options.model, options.table, options.pending) if each]
        path = None if options.output is None else check_result_path(options.output, inputs)
        given = prediction.read_input(options, "query", lambda table: table)
        rows, features = given.table, given.features
        with messages.print_warnings():
            selected = _select_rows(options, given)
            columns = _result_columns(options, given, selected)
        cells = copied_columns(rows, features.names or rows.names, features.categories)
        copied = {name: [column[i] for i in selected] for name, column in cells.items()}
        for name in columns:
            if name in copied:
                raise ValueError(
                    f"{options.table} has a column {name!r}, as the result has; rename it."
                )
        if path is not None:
            prediction.write_columns(path, copied, columns, options.digits)
    facts: dict[str, object] = {
        "model": str(options.model),
        "table": str(options.table),
        "rows": len(rows),
        "strategy": options.strategy,
        "output": None if options.output is None else str(options.output),
    }
    written = f"{options.n:,} of {messages.counted(len(rows), 'row')} in {options.output}"
    prediction.print_columns(facts, copied, columns, written, options)


def _best_value(options: QueryOptions, given: prediction.ModelInput) -> float:
    """Return the value to improve on, on the scale of the twin."""
    import numpy as np

    if options.best is None:
        known_y = given.twin.anchors_y_
        return float(known_y.min() if options.minimize else known_y.max())
    if given.model is given.twin:
        return options.best
    if options.best <= 0:
        raise ValueError(f"--best must be positive after --log-target, not {options.best:g}.")
    return float(np.log(options.best))


def _select_rows(options: QueryOptions, given: prediction.ModelInput) -> np.ndarray:
    """Return the indices of the rows to measure next."""
    from twinned import query

    pending = None
    if options.pending is not None:
        # of another kind of file, perhaps: its sheet is the first
        reading = ReadOptions(options.separator, options.decimal, options.thousands)
        pending, _ = given.features.read(read_table(options.pending, reading))
    return query(
        given.twin,
        given.X,
        options.n,
        strategy=options.strategy,
        maximize=not options.minimize,
        pending=pending,
        best=_best_value(options, given),
        random_state=options.seed,
    )


def _result_columns(
    options: QueryOptions, given: prediction.ModelInput, selected: np.ndarray
) -> prediction.Columns:
    """Return the lines, predictions and probabilities of the selected rows."""
    import numpy as np

    from twinned._compat import safe_indexing

    chosen = safe_indexing(given.X, selected)
    mean, std = prediction.in_units_of_target(given.model, *given.twin.predict_error(chosen))
    better = given.twin.probability_better(
        chosen, _best_value(options, given), maximize=not options.minimize
    )
    rows = np.array(given.table.lines)[selected]
    return {"row": rows, "prediction": mean, "std": std, "probability_better": better}
