"""`twinned query`: the rows of a table to measure next, by a saved twin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import messages
from twinned.app.cli.options import SavedModelOptions, flag_option, seed_option

if TYPE_CHECKING:
    from twinned.app.prediction import Columns, FeatureRows, TablePredictor
    from twinned.app.tables.table import Table
    from twinned.rows.schema import Indices


@dataclass(frozen=True, kw_only=True)
class QueryOptions(SavedModelOptions):
    """Select the rows of a table to measure next, with a saved model.

    The result has the selected rows with all columns of the table, the most useful first, and the
    columns row (the line of a CSV file, or the row of an Excel or Parquet file), prediction, std,
    which is calibrated where the model is, and probability_better: that a measurement of the row is
    better than the best known value. After --log-target, the improvement is that of the logarithm.

    For example:

        twinned query yield.twin candidates.csv -n 8 -o next.csv

        twinned query cost.twin candidates.csv -n 4 --minimize --pending next.csv

    Parameters
    ----------
    table
        A CSV, Excel (.xlsx) or Parquet file with the candidates: rows with the features of the
        model.
    n
        Number of rows to select, which are measured together.
    strategy
        improvement (expected improvement on the best known value) or thompson, to find the best
        row; uncertainty, to learn the target everywhere.
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
    batch
        The batch in which the rows will be measured, such as the name of a laboratory, of a model
        that was fitted with batches. The best known value is that of all batches, in this one.
    seed
        Seed of the joint samples.
    """

    n: Annotated[int, typer.Option("-n")] = 1
    strategy: Annotated[str, typer.Option(metavar="NAME")] = "improvement"
    minimize: Annotated[bool, flag_option("--minimize")] = False
    best: Annotated[float | None, typer.Option(metavar="VALUE")] = None
    pending: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    batch: Annotated[str | None, typer.Option("--batch", "-b", metavar="NAME")] = None
    seed: Annotated[int, seed_option()] = 0


def query_command(options: QueryOptions) -> None:
    """Select the rows of a table to measure next, with a saved model."""
    from twinned.app.cli import saved_model

    path = options.result_path(options.pending)
    predictor, table = saved_model.load_with_table(options)
    rows = saved_model.read_rows(predictor, table)
    predictor.require_single_target("query")
    saved_model.note_unknown_batch(predictor, options.batch)
    with messages.print_warnings():
        selected, columns = _select_rows(options, table, predictor, rows)
    copied = dict(zip(table.names, table.take(selected.tolist()).columns, strict=True))
    facts = {"rows": len(table), "strategy": options.strategy}
    summary = f"{options.n:,} of {messages.counted(len(table), 'row')}"
    saved_model.output_result(options, path, copied, columns, facts, summary)


def _select_rows(
    options: QueryOptions, table: Table, predictor: TablePredictor, rows: FeatureRows
) -> tuple[Indices, Columns]:
    """Return the indices of the rows to measure next, and the columns of the result."""
    import numpy as np

    from twinned import query
    from twinned._compat import safe_indexing
    from twinned.app.cli.saved_model import read_other_table

    batch, maximize = options.batch, not options.minimize
    pending = None
    if options.pending is not None:
        pending = predictor.read(read_other_table(options, options.pending, predictor.names)).X
    best = _best_value(options, predictor, rows)
    selected = query(
        predictor.twin,
        rows.X,
        options.n,
        strategy=options.strategy,
        maximize=maximize,
        best=float(predictor.fitted.target.apply(np.array(best))),
        pending=pending,
        batch=batch,
        random_state=options.seed,
    )
    chosen, model = safe_indexing(rows.X, selected), predictor.model
    prediction = model.predict_distribution(chosen, batch=batch)
    better = model.probability_better(chosen, best, maximize=maximize, batch=batch)
    return selected, {
        "row": np.array(table.lines)[selected],
        "prediction": prediction.mean,
        "std": prediction.std,
        "probability_better": better,
    }


def _best_value(options: QueryOptions, predictor: TablePredictor, rows: FeatureRows) -> float:
    """Return the value to improve on, as it would be measured in the batch."""
    from twinned.search.forward import known_values

    fitted = predictor.fitted
    if options.best is None:
        known_y = known_values(fitted, options.batch)
        return float(known_y.min() if options.minimize else known_y.max())
    if fitted.target.is_log and options.best <= 0:
        raise ValueError(f"--best must be positive after --log-target, not {options.best:g}.")
    return options.best
