"""A saved model applied to the rows of a table, and files and printed tables of results."""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pandas as pd
import typer

from twinned import load
from twinned.app.cli.messages import print_message, print_notes, print_result, print_warnings
from twinned.app.cli.options import BatchOptions, SavedModelOptions
from twinned.app.prediction import Columns, FeatureRows, TablePredictor
from twinned.app.tables.reader import ReadOptions, read_table, reading_note
from twinned.app.tables.table import Table, combine_columns, to_csv
from twinned.exceptions import install_extra, require_extra
from twinned.persistence.archive import write_atomically
from twinned.rows.formatting import number_text

_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")


def load_predictor(path: Path) -> TablePredictor:
    """Load a saved twin."""
    with print_warnings():
        return TablePredictor.of(load(path), str(path))


def load_with_table(options: SavedModelOptions) -> tuple[TablePredictor, Table]:
    """Load the model and read the table of a command."""
    predictor = load_predictor(options.model)
    return predictor, read_table(options.table, options, predictor.names)


def with_batches(predictor: TablePredictor, options: BatchOptions) -> TablePredictor:
    """With the column of batches that an option names, and with further known rows."""
    predictor = replace(predictor, batch=options.batch)
    if options.known is None:
        return predictor
    names = [predictor.target, *filter(None, [predictor.batch_column]), *predictor.names]
    table = read_other_table(options, options.known, names)
    return predictor.with_known_rows(table, "--known")


def read_other_table(options: ReadOptions, path: Path, names: Iterable[str]) -> Table:
    """A further table, whose file may be of another kind: its sheet is the first."""
    reading = replace(options, encoding=None, sheet=None, header_row=None)
    return read_table(path, reading, names)


def read_rows(predictor: TablePredictor, table: Table) -> FeatureRows:
    """Read the features of a model from a table; print notes."""
    rows = predictor.read(table)
    print_notes((*reading_note(table), *rows.notes))
    return rows


def note_unknown_batch(predictor: TablePredictor, batch: object) -> None:
    """Print a line where a model with batches predicts without one, or one without known rows."""
    if_missing = f"--batch names it, or a column {predictor.batch_column!r} of the table"
    if_new = "--known FILE, or add_anchors in Python"
    for warning in predictor.describe_unknown_batch(batch, if_missing, if_new):
        print_message("warning", warning)


# --- results ------------------------------------------------------------------------------------


def write_table(path: Path, columns: Mapping[str, Sequence[object]], digits: int) -> None:
    """Write a CSV or Excel file, completely or not at all, numbers with that many digits."""
    to_bytes = _to_excel if path.suffix.lower() == ".xlsx" else to_csv
    write_atomically(path, to_bytes(columns, digits))


def output_result(
    options: SavedModelOptions,
    path: Path | None,
    copied: Mapping[str, Sequence[str]],
    columns: Columns,
    facts: Mapping[str, object],
    summary: str,
) -> None:
    """Write a result to the resolved path of -o, or print it as CSV or JSON."""
    output = None if path is None else str(options.output)
    table = options.table and str(options.table)  # None without the row of `twinned solve`
    facts = {"model": str(options.model), "table": table, **facts, "output": output}
    values = {name: column.tolist() for name, column in columns.items()}
    if path is not None:
        write_table(path, combine_columns(copied, values), options.digits)
        print_result(facts, f"{summary} in {output}", options.as_json)
    elif options.as_json:
        facts |= {"copied_columns": copied} if copied else {}
        for name, column in values.items():  # JSON has no infinite numbers
            facts[name] = [None if x in (math.inf, -math.inf) or x != x else x for x in column]
        print_result(facts, "", as_json=True)
    else:
        content = to_csv(combine_columns(copied, values), options.digits)
        typer.echo(content.decode(), nl=False)


def numbers_of_text(column: Sequence[object]) -> Sequence[object]:
    """Return the numbers of a column of text where all its cells are plain numbers or empty.

    >>> [numbers_of_text(column) for column in (["2.50", "", "-7"], ["2.5", "1E5"], ["007"])]
    [[2.5, None, -7.0], ['2.5', '1E5'], ['007']]
    """
    texts = [cell for cell in column if isinstance(cell, str)]
    if len(texts) < len(column) or not all(map(_PLAIN_NUMBER.fullmatch, filter(None, texts))):
        return column
    return [float(cell) if cell else None for cell in texts]


def _to_excel(columns: Mapping[str, Sequence[object]], digits: int) -> bytes:
    """Return a workbook of one sheet whose header stays visible."""
    with require_extra(f"Excel files need openpyxl: {install_extra('excel')}; or write CSV."):
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    def to_cell(value: object) -> object:
        if isinstance(value, float):  # None for a number that Excel cannot hold
            return float(number_text(value, digits)) if math.isfinite(value) else None
        return ILLEGAL_CHARACTERS_RE.sub("", value) if isinstance(value, str) else value

    cells = {name: map(to_cell, numbers_of_text(column)) for name, column in columns.items()}
    lists = {to_cell(name): list(column) for name, column in cells.items()}
    frame = pd.DataFrame(lists, dtype=object)
    stream = io.BytesIO()
    with pd.ExcelWriter(stream, engine="openpyxl") as writer:
        frame.to_excel(writer, sheet_name="result", index=False, freeze_panes=(1, 1))
        for cell in chain.from_iterable(writer.sheets["result"].iter_rows()):
            if cell.data_type in ("f", "e"):  # texts such as "=1+1" and "#N/A" stay as they are
                cell.data_type = "s"
    return stream.getvalue()
