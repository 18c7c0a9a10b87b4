"""A saved model with the table that a command applies it to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from twinned import load
from twinned.app.cli.messages import print_message, print_notes, print_warnings
from twinned.app.cli.options import BatchOptions, SavedModelOptions
from twinned.app.prediction import FeatureRows, TablePredictor
from twinned.app.tables.reader import ReadOptions, read_table, reading_note
from twinned.app.tables.table import Table


def load_predictor(path: Path) -> TablePredictor:
    """Load a saved twin."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a model saved by twinned fit.")
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}; create one with twinned fit.")
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
    columns = [predictor.target, *filter(None, [predictor.batch_column])]
    names = [*columns, *predictor.names]
    table = read_table(options.known, reading_of_other_file(options), names)
    return predictor.with_known_rows(table, "--known")


def reading_of_other_file(options: SavedModelOptions) -> ReadOptions:
    """How a second file is read, which may be of another kind: its sheet is the first."""
    return replace(options, encoding=None, sheet=None, header_row=None)


def read_rows(predictor: TablePredictor, table: Table) -> FeatureRows:
    """Read the features of a model from a table; print notes."""
    rows = predictor.read(table)
    print_notes((*reading_note(table), *rows.notes))
    return rows


def note_unknown_batch(
    predictor: TablePredictor, batch: object, if_missing: str, if_new: str = "--known FILE"
) -> None:
    """Print a line where a model with batches predicts without one, or one without known rows."""
    for warning in predictor.describe_unknown_batch(batch, if_missing, if_new):
        print_message("warning", warning)
