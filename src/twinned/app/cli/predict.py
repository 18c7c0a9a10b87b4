"""`twinned predict`: predict the rows of a table with a saved twin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import messages
from twinned.app.cli.options import BatchOptions, column_option, flag_option
from twinned.app.tables.table import join_names

if TYPE_CHECKING:
    from twinned.app.prediction import Columns


@dataclass(frozen=True, kw_only=True)
class PredictOptions(BatchOptions):
    """Predict the rows of a table with a saved model.

    The table is a CSV, Excel or Parquet file; its notation of numbers is detected and reported, and
    need not be that of the training table. The columns of the table may be in any order; those that
    are not features of the model are ignored. The result has the columns of --keep, the column
    prediction, and std, low, high and applicability if requested; where a column of --keep has such
    a name, that of the result ends with _. Its rows are in the order of the table. With several
    targets, the names of these columns end with those of the targets, as in prediction_yield.

    For example:

        twinned predict houses.twin new.csv --std -o prices.csv

        twinned predict houses.twin new.csv --interval 0.9 --keep address

        twinned predict houses.twin new.xlsx --sheet 2025 -o prices.xlsx

        twinned predict assay.twin new.csv --batch instrument --known reference.csv

    The files of a folder or a pattern are predicted one after the other; -o is a folder with a CSV
    file for each:

        twinned predict houses.twin 'data/*.parquet' -o prices

    Parameters
    ----------
    table
        A CSV, Excel (.xlsx) or Parquet file with the features of the model; or a folder or a
        quoted pattern of such files, as 'data/*.parquet'.
    output
        File of the predictions, .csv or .xlsx; printed without it. Of several files, a folder.
    std
        Add the standard deviation: of the errors, where the model was cross-validated, or else of
        the anchors' estimates, which is not calibrated. After --log-target it is that of the
        target by the delta method: the prediction times the standard deviation of the logarithm.
    interval
        Add the ends, low and high, of prediction intervals with this confidence, such as 0.9, and
        the column applicability. The model must have been cross-validated when it was fitted.
    of
        measurement, for intervals and quantiles of a further measurement of the row, or value, for
        those of the value that is measured, after a fit with --error.
    quantiles
        Add quantiles of the predictive distribution at these probabilities, such as 0.05,0.5,0.95,
        as columns q0.05, q0.5 and q0.95. The model must have been cross-validated, too.
    applicability
        Add the column applicability: whether the row is inside, at the edge or outside of the
        known rows. Outside, the prediction is an extrapolation. A row with a category that no
        known row has is outside.
    bounds
        The least and the largest possible value of the target, such as 0 100 for a yield in %, or
        0 inf: predictions and intervals are cut there.
    keep
        A column of the table to copy, such as an identifier. May be repeated.
    as_json
        Print JSON; with -o, without the predictions.
    """

    std: Annotated[bool, flag_option("--std")] = False
    interval: Annotated[float | None, typer.Option(metavar="P")] = None
    of: Annotated[str, typer.Option(metavar="measurement|value")] = "measurement"
    quantiles: Annotated[str | None, typer.Option(metavar="P,P,…")] = None
    applicability: Annotated[bool, flag_option("--applicability")] = False
    bounds: Annotated[
        tuple[float, float] | None, typer.Option("--bounds", metavar="LOW HIGH", show_default=False)
    ] = None
    keep: Annotated[list[str] | None, column_option()] = None

    def validate(self) -> None:
        """Raise a ValueError for an interval or bounds that are impossible."""
        if self.interval is not None and not 0 < self.interval < 1:
            confidence = f"{self.interval:g}"
            raise ValueError(f"--interval must be between 0 and 1, such as 0.9, not {confidence}.")
        try:
            levels = list(self.levels.values())
        except ValueError:
            levels = [0.0]
        if not all(0 < level < 1 for level in levels):
            raise ValueError("--quantiles must be between 0 and 1, such as 0.05,0.5,0.95.")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            low, high = self.bounds
            raise ValueError(f"--bounds {low:g} {high:g}: the first must be less.")

    @property
    def levels(self) -> dict[str, float]:
        """The probabilities of quantiles by the names of their columns."""
        levels = [] if self.quantiles is None else self.quantiles.split(",")
        return {f"q{level.strip()}": float(level) for level in levels}


def predict_command(options: PredictOptions) -> None:
    """Predict the rows of one table, or of each table of a folder or a pattern."""
    options.validate()
    for options_of_table in _options_of_tables(options):
        _predict_table(options_of_table)


def _options_of_tables(options: PredictOptions) -> Iterator[PredictOptions]:
    """Yield the options of each file of a folder or a pattern, whose result is in the folder -o."""
    table, folder = options.table, options.output
    is_pattern = not table.exists() and any(sign in str(table) for sign in "*?[")
    if not is_pattern and not table.is_dir():
        yield options
        return
    pattern = table if is_pattern else table / "*.*"
    files = sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))
    files = [path for path in files if path.suffix.lower() in (".csv", ".parquet", ".xlsx")]
    if not files:
        raise FileNotFoundError(f"there is no file {table}; give CSV, Excel or Parquet files.")
    if folder is None or folder.is_file():
        raise ValueError(f"{table}: results are written to a folder; give one with -o.")
    names = [f"{path.stem}.csv" for path in files]
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"several files would have the result {join_names(repeated)}; rename one.")
    folder.mkdir(exist_ok=True)
    for path, name in zip(files, names, strict=True):
        yield replace(options, table=path, output=folder / name)


def _predict_table(options: PredictOptions) -> None:
    """Predict the rows of one file."""
    from twinned.app.cli import saved_model

    path = options.result_path(options.known)
    predictor, table = saved_model.load_with_table(options)
    predictor = saved_model.with_batches(predictor, options)
    kept = options.keep or []
    table.require(kept, "--keep")
    rows = saved_model.read_rows(predictor, table)
    saved_model.note_unknown_batch(predictor, rows.batch)
    with messages.print_warnings():
        columns = predictor.predict(
            rows,
            std=options.std,
            confidence=options.interval,
            of=options.of,
            levels=options.levels,
            bounds=options.bounds,
            applicability=options.applicability or options.interval is not None,
        )
    messages.print_notes(predictor.describe_unlike_known(rows.X))
    _note_outside(columns)
    used = {*predictor.source_columns(table), *kept}
    ignored = [name for name in table.names if name not in used]
    if ignored:
        note = f"columns that are not features of the model are ignored: {join_names(ignored)}."
        messages.print_message("note", note)
    copied = {name: table.column(name) for name in kept}
    facts = {"rows": len(table), "ignored_columns": ignored}
    summary = messages.counted(len(table), "prediction")
    saved_model.output_result(options, path, copied, columns, facts, summary)


def _note_outside(columns: Columns) -> None:
    """Print a line on rows that are outside of the known rows, of any target."""
    labels = [values for name, values in columns.items() if name.startswith("applicability")]
    is_outside = ["outside" in row for row in zip(*labels, strict=True)]
    if any(is_outside):
        rows = f"{sum(is_outside):,} of {len(is_outside):,} rows are outside of the known rows"
        note = "their predictions are extrapolations, and intervals may cover less than stated"
        messages.print_message("note", f"{rows}: {note}.")
