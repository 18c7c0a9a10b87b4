"""`twinned query`: the rows of a table to measure next, by a saved twin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinned.app import tables
from twinned.app.cli import options
from twinned.app.cli._errors import exit_on_bad_input, print_message, print_warnings
from twinned.app.cli.prediction import (
    ModelFeatures,
    check_transform,
    inner_twin,
    load_twin,
    print_columns,
    read_features,
    result_content,
)
from twinned.app.cli.result_files import check_result_path

if TYPE_CHECKING:
    import numpy as np


def query_command(
    model: options.SavedModel,
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV, Excel (.xlsx) or Parquet file with the candidates: rows with the features "
            "of the model.",
            metavar="TABLE",
        ),
    ],
    n: Annotated[
        int, typer.Option("-n", help="Number of rows to select, which are measured together.")
    ] = 1,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            help="improvement (expected improvement on the best known value) or thompson, to find "
            "the best row; uncertainty, inconsistency, change or difference, to learn the target "
            "everywhere.",
            metavar="NAME",
        ),
    ] = "improvement",
    minimize: Annotated[
        bool, options.flag_option("--minimize", help="The smallest value is the best.")
    ] = False,
    best: Annotated[
        float | None,
        typer.Option(
            "--best",
            help="The value to improve on. Without it, the best known value; limits such as <0.5 "
            "are not known values.",
            metavar="VALUE",
        ),
    ] = None,
    pending: Annotated[
        Path | None,
        typer.Option(
            "--pending",
            help="A file of rows that are being measured, such as an earlier result: none of them "
            "is selected, nor rows like them.",
            metavar="FILE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File of the selected rows, .csv or .xlsx; printed without it."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the joint samples.")] = 0,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    key_file: options.KeyFile = None,
    digits: options.Digits = 6,
    as_json: Annotated[
        bool, options.flag_option("--json", help="Print JSON; with -o, without the rows.")
    ] = False,
) -> None:
    """Select the rows of a table to measure next, with a saved model.

    The result has the selected rows with all columns of the table, the most useful first, and the
    columns row (the line of a CSV file, or the row of an Excel or Parquet file), prediction, std,
    which is calibrated where the model is, and probability_better: that a measurement of the row is
    better than the best known value. After --log-target, the improvement is that of the logarithm.

    For example:

        twinned query yield.twin candidates.csv -n 8 -o next.csv

        twinned query cost.twin candidates.csv -n 4 --minimize --pending next.csv
    """
    with exit_on_bad_input():
        options.check_seed(seed)
        inputs = [model, table] if pending is None else [model, table, pending]
        resolved = None if output is None else check_result_path(output, inputs)
        tables.check_argument_order(model, table, "query")
        reading = tables.ReadOptions(separator, decimal, thousands, encoding, sheet)
        rows = tables.read_table(table, reading)
        with print_warnings():
            fitted = load_twin(model, key_file)
        check_transform(fitted, "query", model)
        features = ModelFeatures.of(fitted, model)
        X, _, notes = read_features(rows, features)
        for note in (*tables.reading_note(rows), *notes):
            print_message("note", note)
        pending_X = None
        if pending is not None:
            # of another kind of file, perhaps: its sheet is the first
            read = tables.read_table(pending, tables.ReadOptions(separator, decimal, thousands))
            pending_X = read_features(read, features)[0]
        import numpy as np

        with print_warnings():
            columns = _select(fitted, X, n, strategy, not minimize, best, pending_X, seed)
        selected = columns["row"]
        columns["row"] = np.array(rows.lines)[selected]
        cells = tables.copied_columns(rows, features.names or rows.names, features.categories)
        copied = {name: [own[i] for i in selected] for name, own in cells.items()}
        for name in columns:
            if name in copied:
                raise ValueError(f"{table} has a column {name!r}, as the result has; rename it.")
        if resolved is not None:
            from twinned.persistence.archive import write_atomically

            write_atomically(resolved, result_content(resolved, copied, columns, digits))
    facts: dict[str, Any] = {"model": str(model), "table": str(table), "rows": len(X)}
    facts |= {"strategy": strategy, "output": None if output is None else str(output)}
    written = f"{n:,} of {len(X):,} row{'' if len(X) == 1 else 's'} in {output}"
    written_to = None if output is None else written
    print_columns(facts, copied, columns, written_to, as_json, digits)


def _select(
    model: Any,
    X: Any,
    n: int,
    strategy: str,
    maximize: bool,
    best: float | None,
    pending: Any,
    seed: int,
) -> dict[str, np.ndarray]:
    """Return the columns of the result: the selected rows and their predictions."""
    import numpy as np

    from twinned import query
    from twinned._compat import safe_indexing

    twin = inner_twin(model)
    if twin.anchors_y_.ndim > 1:
        raise ValueError("query needs a model of a single target.")
    if best is None:
        best = float(twin.anchors_y_.max() if maximize else twin.anchors_y_.min())
    elif model is not twin:  # of the logarithm
        if best <= 0:
            raise ValueError(f"--best must be positive after --log-target, not {best:g}.")
        best = float(np.log(best))
    selected = query(
        twin,
        X,
        n,
        strategy=strategy,
        maximize=maximize,
        pending=pending,
        best=best,
        random_state=seed,
    )
    chosen = safe_indexing(X, selected)
    mean, std = twin._predict_error(chosen)
    better = twin.probability_better(chosen, best, maximize=maximize)
    if model is not twin:  # the logarithm; the standard deviation by the delta method
        mean = np.exp(mean)
        std = mean * std
    columns = {"row": selected, "prediction": mean, "std": std}
    return {**columns, "probability_better": better}
