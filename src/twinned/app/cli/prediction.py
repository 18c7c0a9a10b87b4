"""A saved twin applied to the rows of a table: its features, columns of results and their files."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import typer
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from twinned import load
from twinned.app.cli.messages import print_notes, print_result, print_warnings
from twinned.app.cli.options import BatchOptions, ResultColumns, SavedModelOptions, read_key
from twinned.app.tables import frames
from twinned.app.tables.columns import target_column
from twinned.app.tables.numbers import is_missing
from twinned.app.tables.reader import check_argument_order, read_table, reading_note
from twinned.app.tables.table import Table, join_names, to_csv
from twinned.estimators.base import BaseTwin
from twinned.estimators.target import replace_twin, split_target
from twinned.exceptions import ShiftWarning, require_extra
from twinned.fitted.target import TargetTransform
from twinned.persistence.archive import write_atomically
from twinned.rows.formatting import number_text

Columns = dict[str, np.ndarray]  # of a result, by name
Features = pd.DataFrame | np.ndarray  # of rows, as a model takes them
Batches = np.ndarray | None  # (row,): names, None where missing; or no batches
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")


# --- the model and its features ---------------------------------------------------------------


@dataclass(frozen=True)
class LoadedTwin:
    """A saved twin, or the regressor with a transformed target around one, and its file."""

    model: BaseEstimator
    path: Path
    twin: BaseEstimator  # in a regressor with a transformed target, else the model itself
    transform: TargetTransform
    batch: str | None = None  # the column of batches that an option names

    @property
    def batch_column(self) -> str | None:
        """The column of batches, None for a model without batches."""
        stored = vars(self.twin).get("batch_name_") or "batch"
        return self.batch or (None if self.twin.batches_ is None else stored)

    def with_batches(self, options: BatchOptions) -> LoadedTwin:
        """With the column of batches that an option names, and with further known rows."""
        loaded = replace(self, batch=options.batch)
        if options.known is None:
            return loaded
        reading = replace(options.reading, encoding=None, sheet=None, header_row=None)
        columns = [self.target, *filter(None, [loaded.batch_column])]
        table = read_table(options.known, reading, [*columns, *(self.names or ())])
        table.require(columns, "--known")
        X, y = loaded.read(table)[0], target_column(table, self.target)
        if y.censored.any():
            raise ValueError(f"--known: {table.path} has limits of {self.target!r}, not values.")
        known_y = self.transform.apply(y.lower)
        twin = self.twin.add_anchors(X, known_y, batch=loaded.read_batch(table))
        return replace(loaded, model=replace_twin(self.model, twin), twin=twin)

    @property
    def target(self) -> str:
        """The name of the target."""
        return vars(self.twin).get("target_name_", "y")

    @cached_property
    def names(self) -> list[str] | None:
        """The names of the features, None for a model fitted to an array."""
        names = vars(self.twin).get("feature_names_in_")
        return None if names is None else [str(name) for name in names]

    @cached_property
    def categories(self) -> list[Sequence[object] | None]:
        """The known categories of each feature, None for a numeric one."""
        schema = self.twin.schema_
        kinds = zip(schema.kinds, schema.categories, strict=True)
        return [None if kind == "numeric" else categories for kind, categories in kinds]

    @cached_property
    def allow_nan(self) -> bool:
        """Whether the model takes missing values."""
        return bool(get_tags(self.twin).input_tags.allow_nan)

    def require_single_target(self, command: str) -> None:
        """Raise a ValueError for a model of several targets."""
        if not self.twin.has_single_target:
            raise ValueError(f"{command} needs a model of a single target.")

    def select(self, table: Table) -> tuple[list[str], list[str]]:
        """The names of the features and the columns of the table that they are computed from."""
        if self.batch is not None:
            table.require([self.batch], "--batch")
        batch = [name for name in table.names if name == self.batch_column]
        if self.names is not None:
            sources = frames.source_columns(table, self.names)
            empty = " The model takes missing values, so that an absent column may be added empty."
            table.require(sources, f"features of {self.path}", empty if self.allow_nan else "")
            return self.names, [*sources, *batch]
        # fitted in Python to an array: features have an order, but no names
        names = [name for name in table.names if name not in batch]
        if len(names) != len(self.categories) or "" in names:
            fitted = f"{self.path} was fitted to {len(self.categories)} columns without names"
            given = f"{table.path} has {len(names)}: {join_names(names)}"
            raise ValueError(f"{fitted}, but {given}.")
        return names, table.names

    def read(self, table: Table) -> tuple[Features, list[str]]:
        """Return the features of the rows of a table as the model takes them, and notes."""
        X, notes = frames.prediction_frame(table, self.select(table)[0], self.categories)
        if not self.allow_nan and (missing := frames.first_missing(table, X)):
            raise ValueError(f"{missing} has no value, and {self.path} takes no missing values.")
        if self.batch_column and self.batch_column not in table.names:
            absent = f"there is no column {self.batch_column!r}"
            notes.append(f"{absent}, so that predictions are those of the mean of all batches.")
        return (X if self.names is not None else X.to_numpy()), notes

    @property
    def of_targets(self) -> dict[str, LoadedTwin]:
        """The model of each target, by the suffix of the names of its columns."""
        several = {f"_{each.target_name_}": each for each in self.twin.targets_}
        parts = {name: replace(self, model=each, twin=each) for name, each in several.items()}
        return parts or {"": self}

    def read_batch(self, table: Table) -> Batches:
        """Return the batches of the rows of a table; None without batches or their column."""
        if self.batch_column not in table.names:
            return None
        cells = table.column(str(self.batch_column))
        return np.array([None if is_missing(cell) else cell for cell in cells], dtype=object)

    def predict_columns(self, X: Features, wanted: ResultColumns, batch: Batches) -> Columns:
        """Return the columns of the result, without those that are copied.

        A model of several outputs has one for each output.
        """
        columns: Columns = {}
        for suffix, each in self.of_targets.items():
            own = each.columns_of_target(X, wanted, batch)
            columns |= {f"{name}{suffix}": values for name, values in own.items()}
        if taken := [name for name in wanted.copied if name in columns]:
            raise ValueError(f"--keep {taken[0]}: the result has a column of that name.")
        return columns

    def columns_of_target(self, X: Features, wanted: ResultColumns, batch: Batches) -> Columns:
        """The columns of the result of a single target."""
        if wanted.std:
            mean, std = self.model.predict(X, return_std=True, batch=batch)
            columns = _name_outputs("prediction", mean) | _name_outputs("std", std)
        else:
            columns = _name_outputs("prediction", self.model.predict(X, batch=batch))
        if wanted.interval is not None:
            self._require_calibration("--interval")
            with warnings.catch_warnings():
                if wanted.applicability:  # which marks the same rows
                    warnings.simplefilter("ignore", ShiftWarning)
                ends = self.model.predict_interval(X, wanted.interval, of=wanted.of, batch=batch)
            columns |= dict(zip(("low", "high"), ends.T, strict=True))
        if levels := wanted.levels:
            self._require_calibration("--quantiles")
            given = {"of": wanted.of, "batch": batch}
            values = self.model.predict_quantiles(X, [*levels.values()], **given)
            columns |= dict(zip(levels, values.T, strict=True))
        if wanted.bounds is not None:
            numbers = {name for name in columns if not name.startswith("std")}
            columns |= {name: columns[name].clip(*wanted.bounds) for name in numbers}
        if wanted.applicability:
            columns["applicability"] = self.twin.applicability(X)["label"].to_numpy()
        return columns

    def _require_calibration(self, option: str) -> None:
        if self.twin.calibration_ is None:
            fit = "fit it with its check, without --no-check"
            raise ValueError(f"{option}: {self.path} has no stored calibration; {fit}.")


def load_twin(path: Path, key_file: Path | None = None) -> LoadedTwin:
    """Load a saved twin; with a key file, the signature of the model is verified."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a model saved by twinned fit.")
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}; create one with twinned fit.")
    model = load(path, key=read_key(key_file))
    twin, transform = split_target(model)
    if not isinstance(twin, BaseTwin):
        kind = type(model).__name__
        raise ValueError(f"{path} holds a {kind}, not a twin; use twinned.load in Python.")
    return LoadedTwin(model, path, twin, transform)


def load_with_table(options: SavedModelOptions, command: str) -> tuple[LoadedTwin, Table]:
    """Load the model and read the table of a command; a ValueError where they are exchanged."""
    check_argument_order(options.model, options.table, command)
    with print_warnings():
        loaded = load_twin(options.model, options.key_file)
    return loaded, read_table(options.table, options.reading, loaded.names or ())


def read_features(loaded: LoadedTwin, table: Table) -> Features:
    """Read the features of a model from a table; print notes."""
    X, notes = loaded.read(table)
    print_notes((*reading_note(table), *notes))
    return X


# --- columns of results -----------------------------------------------------------------------


def _name_outputs(name: str, values: np.ndarray) -> Columns:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{output}": column for output, column in enumerate(values.T)}


# --- files of results -------------------------------------------------------------------------


def write_table(path: Path, columns: Mapping[str, Sequence[object]], digits: int) -> None:
    """Write a CSV or Excel file, completely or not at all, numbers with that many digits."""
    to_bytes = _to_excel if _is_excel(path) else to_csv
    write_atomically(path, to_bytes(columns, digits))


def plain_values(columns: Columns) -> dict[str, list[object]]:
    """Return the columns of a result as lists of Python values."""
    return {name: values.tolist() for name, values in columns.items()}


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
    if path is not None:
        cells: Mapping[str, Sequence[object]] = copied
        if _is_excel(path):
            cells = {name: numbers_of_text(column) for name, column in copied.items()}
        write_table(path, {**cells, **plain_values(columns)}, options.digits)
        print_result(facts, f"{summary} in {output}", options.as_json)
    elif options.as_json:
        facts |= {"copied_columns": copied} if copied else {}
        for name, values in plain_values(columns).items():  # JSON has no infinite numbers
            facts[name] = [None if x in (math.inf, -math.inf) or x != x else x for x in values]
        print_result(facts, "", as_json=True)
    else:
        typer.echo(to_csv({**copied, **plain_values(columns)}, options.digits).decode(), nl=False)


def _is_excel(path: Path) -> bool:
    return path.suffix.lower() == ".xlsx"


def numbers_of_text(column: Sequence[str]) -> Sequence[object]:
    """Return the numbers of a column of text where all its cells are plain numbers or empty.

    >>> [numbers_of_text(column) for column in (["2.50", "", "-7"], ["2.5", "1E5"], ["007"])]
    [[2.5, None, -7.0], ['2.5', '1E5'], ['007']]
    """
    if not all(cell == "" or _PLAIN_NUMBER.fullmatch(cell) for cell in column):
        return column
    return [float(cell) if cell else None for cell in column]


def _to_excel(columns: Mapping[str, Sequence[object]], digits: int) -> bytes:
    """Return a workbook of one sheet whose header stays visible."""
    with require_extra("Excel files need openpyxl: pip install 'twinned[excel]'; or write CSV."):
        from openpyxl import Workbook
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
        from openpyxl.styles import Font

    def to_cell(value: object) -> object:
        if isinstance(value, float):  # None for a number that Excel cannot hold
            return float(number_text(value, digits)) if math.isfinite(value) else None
        return ILLEGAL_CHARACTERS_RE.sub("", value) if isinstance(value, str) else value

    workbook = Workbook()
    sheet = workbook.active
    sheet.title, sheet.freeze_panes = "result", "B2"
    for row in (columns, *zip(*columns.values(), strict=True)):
        sheet.append([to_cell(value) for value in row])
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    for cell in (cell for row in sheet.iter_rows() for cell in row):
        if cell.data_type in ("f", "e"):  # texts such as "=1+1" and "#N/A" stay as they are
            cell.data_type = "s"
    stream = io.BytesIO()
    workbook.save(stream)
    return stream.getvalue()
