"""A saved twin applied to the rows of a table: its features, columns of results and their files."""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinned.app.cli.messages import print_notes, print_result, print_warnings
from twinned.app.cli.options import SavedModelOptions, read_key
from twinned.app.tables.frames import first_missing, prediction_frame, source_columns
from twinned.app.tables.reader import check_argument_order, read_table, reading_note
from twinned.app.tables.table import Table, join_names
from twinned.exceptions import MissingExtraError, ShiftWarning

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from sklearn.base import BaseEstimator

Columns = dict[str, "np.ndarray"]  # of a result, by name
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")


# --- the model and its features ---------------------------------------------------------------


def load_twin(path: Path, key_file: Path | None = None) -> BaseEstimator:
    """Load a saved twin, or the regressor with a log-transformed target around one.

    With a key file, the signature of the model is verified.
    """
    from twinned import load

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a model saved by twinned fit.")
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}; create one with twinned fit.")
    model = load(path, key=read_key(key_file))
    # imported after `load`, which reads the file while it imports scikit-learn
    from twinned.estimators.base import BaseTwin

    if not isinstance(inner_twin(model), BaseTwin):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, not a twin; use twinned.load in Python."
        )
    return model


def fitted_attribute(model, name, default=None):
    """Return an attribute that not all fitted models have, such as `intervals_`."""
    return getattr(model, name, default)


def inner_twin(model: BaseEstimator) -> BaseEstimator:
    """Return the twin inside a regressor with a transformed target, else the model itself."""
    return fitted_attribute(model, "regressor_", model)


def check_transform(model: BaseEstimator, option: str, path: Path) -> None:
    """Raise a ValueError if the target of the model is transformed by more than the logarithm."""
    import numpy as np

    if model is inner_twin(model) or (model.func is np.log and model.inverse_func is np.exp):
        return
    raise ValueError(f"{option}: the target of {path} is transformed, but not by the logarithm.")


@dataclass(frozen=True)
class ModelFeatures:
    """Names, categories and missing values that a fitted model takes.

    `names` is None for a model fitted to an array. `categories` has the known ones of each feature,
    None for a numeric one. `path` is that of the model, for messages.
    """

    names: list[str] | None
    categories: list[Sequence[object] | None]
    allow_nan: bool
    path: Path

    @classmethod
    def of(cls, model: BaseEstimator, path: Path) -> ModelFeatures:
        """The features of a loaded model."""
        from sklearn.utils import get_tags

        twin = inner_twin(model)
        schema = twin.fitted_.anchors.schema
        categories = [
            values if kind != "numeric" else None
            for kind, values in zip(schema.kinds, schema.categories, strict=True)
        ]
        names = fitted_attribute(twin, "feature_names_in_")
        names = None if names is None else [str(name) for name in names]
        return cls(names, categories, bool(get_tags(twin).input_tags.allow_nan), path)

    def select(self, table: Table) -> tuple[list[str], list[str]]:
        """The names of the features and the columns of the table that they are computed from."""
        if self.names is not None:
            sources = source_columns(table, self.names)
            empty = " The model takes missing values, so that an absent column may be added empty."
            table.require(sources, f"features of {self.path}", empty if self.allow_nan else "")
            return self.names, sources
        # fitted in Python to an array: features have an order, but no names
        if len(table.names) != len(self.categories) or "" in table.names:
            raise ValueError(
                f"{self.path} was fitted to {len(self.categories)} columns without names, but "
                f"{table.path} has {len(table.names)}: {join_names(table.names)}."
            )
        return table.names, table.names

    def as_input(self, table: Table, X: pd.DataFrame) -> pd.DataFrame | np.ndarray:
        """Return features as the model takes them; a ValueError for a missing value it does not."""
        missing = None if self.allow_nan else first_missing(table, X)
        if missing:
            raise ValueError(f"{missing} has no value, and {self.path} takes no missing values.")
        return X if self.names is not None else X.to_numpy()

    def read(self, table: Table) -> tuple[pd.DataFrame | np.ndarray, list[str]]:
        """Return the features of the rows of a table, and notes."""
        names, _ = self.select(table)
        X, notes = prediction_frame(table, names, self.categories)
        return self.as_input(table, X), notes


@dataclass(frozen=True)
class ModelInput:
    """A loaded model, the rows of a table, and the features of these rows."""

    model: BaseEstimator
    table: Table
    features: ModelFeatures
    X: pd.DataFrame | np.ndarray

    @property
    def twin(self) -> BaseEstimator:
        return inner_twin(self.model)

    @property
    def target(self) -> str:
        """The name of the target."""
        return fitted_attribute(self.twin, "target_name_", "y")


def read_input(
    options: SavedModelOptions,
    command: str,
    prepare: Callable[[Table], Table],
    needs_transform: bool = True,
) -> ModelInput:
    """Read the table and load the model of a command, and print notes.

    `prepare` checks or selects rows of the table before the model is loaded. With
    `needs_transform`, the target may be transformed by the logarithm only.
    """
    check_argument_order(options.model, options.table, command)
    table = prepare(read_table(options.table, options.reading))
    with print_warnings():
        model = load_twin(options.model, options.key_file)
    if needs_transform:
        check_transform(model, command, options.model)
        if inner_twin(model).anchors_y_.ndim > 1:
            raise ValueError(f"{command} needs a model of a single target.")
    features = ModelFeatures.of(model, options.model)
    X, notes = features.read(table)
    print_notes((*reading_note(table), *notes))
    return ModelInput(model, table, features, X)


# --- columns of results -----------------------------------------------------------------------


@dataclass(frozen=True)
class ResultColumns:
    """The columns of a result besides the prediction: options of `twinned predict`."""

    std: bool = False
    interval: float | None = None
    applicability: bool = False
    keep: tuple[str, ...] = ()
    digits: int = 6  # significant ones, in CSV
    bounds: tuple[float, float] | None = None  # at which predictions and intervals are cut


def predict_columns(
    model: BaseEstimator, X: pd.DataFrame | np.ndarray, wanted: ResultColumns, path: Path
) -> Columns:
    """Return the columns of the result, without those that are copied.

    A model of several outputs has one for each output.
    """
    if wanted.std:
        check_transform(model, "--std", path)
        mean, std = in_units_of_target(model, *inner_twin(model).predict(X, return_std=True))
        columns = _name_outputs("prediction", mean) | _name_outputs("std", std)
    else:
        columns = _name_outputs("prediction", model.predict(X))
    if wanted.interval is not None:
        with warnings.catch_warnings():
            if wanted.applicability:  # which marks the same rows
                warnings.simplefilter("ignore", ShiftWarning)
            columns |= _predict_interval(model, X, wanted.interval, path)
    if wanted.bounds is not None:
        columns |= {
            name: values.clip(*wanted.bounds)
            for name, values in columns.items()
            if not name.startswith("std")
        }
    if wanted.applicability:
        columns["applicability"] = inner_twin(model).applicability(X)["label"].to_numpy()
    for name in wanted.keep:
        if name in columns:
            raise ValueError(f"--keep {name}: the result has a column of that name.")
    return columns


def in_units_of_target(
    model: BaseEstimator, mean: np.ndarray, std: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions of the inner twin in units of y, the deviation by the delta method."""
    import numpy as np

    if model is inner_twin(model):
        return mean, std
    return np.exp(mean), np.exp(mean) * std


def _name_outputs(name: str, values: np.ndarray) -> Columns:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{output}": values[:, output] for output in range(values.shape[1])}


def _predict_interval(
    model: BaseEstimator, X: pd.DataFrame | np.ndarray, confidence: float, path: Path
) -> Columns:
    import numpy as np

    twin = inner_twin(model)
    if fitted_attribute(twin, "intervals_") is None:
        raise ValueError(
            f"--interval: {path} has no stored calibration; fit it with its check (without "
            "--no-check), or save it with twinned advise."
        )
    check_transform(model, "--interval", path)
    ends = twin.predict_interval(X, confidence)
    low, high = ends.T if model is twin else np.exp(ends).T
    return {"low": low, "high": high}


# --- files of results -------------------------------------------------------------------------


def write_columns(
    path: Path, copied: Mapping[str, Sequence[str]], columns: Columns, digits: int = 6
) -> None:
    """Write a CSV or Excel file of copied columns and results, completely or not at all."""
    cells: Mapping[str, Sequence[object]] = copied
    if _is_excel(path):
        cells = {name: numbers_of_text(column) for name, column in copied.items()}
    write_table(path, [*copied, *columns], _rows(cells, columns), digits)


def write_table(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], digits: int
) -> None:
    """Write a CSV or Excel file, numbers with that many significant digits."""
    from twinned.persistence.archive import write_atomically

    if _is_excel(path):
        content = _to_excel(path, header, rows, digits)
    else:
        content = to_csv(header, rows, digits).encode()
    write_atomically(path, content)


def print_columns(
    facts: dict[str, object],
    copied: Mapping[str, Sequence[str]],
    columns: Columns,
    written: str,
    options: SavedModelOptions,
) -> None:
    """Print a result as JSON or CSV; where it is in the file of -o, `written` or the facts."""
    if options.output is None and not options.as_json:
        content = to_csv([*copied, *columns], _rows(copied, columns), options.digits)
        typer.echo(content, nl=False)
        return
    if options.output is None:
        facts |= {"copied_columns": copied} if copied else {}
        facts |= {name: _json_values(values) for name, values in columns.items()}
    print_result(facts, written, options.as_json)


def _rows(copied: Mapping[str, Sequence[object]], columns: Columns) -> Iterable[tuple[object, ...]]:
    return zip(*copied.values(), *(values.tolist() for values in columns.values()), strict=True)


def _json_values(values: np.ndarray) -> list[object]:
    """Return values for JSON, which has no infinite numbers: null in their place."""
    return [
        None if isinstance(each, float) and not math.isfinite(each) else each
        for each in values.tolist()
    ]


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


def to_csv(header: Sequence[str], rows: Iterable[Sequence[object]], digits: int) -> str:
    """Return the text of a CSV file.

    >>> print(to_csv(["a", "b"], [[1 / 3, "x, y"]], digits=3), end="")
    a,b
    0.333,"x, y"
    """
    from twinned.rows.formatting import number_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([number_text(x, digits) if isinstance(x, float) else x for x in row])
    return text.getvalue()


def _to_excel(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], digits: int
) -> bytes:
    """Return a workbook of one sheet whose header stays visible."""
    try:
        from openpyxl import Workbook
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
        from openpyxl.styles import Font
    except ImportError as error:
        raise MissingExtraError(
            f"{path} needs openpyxl: pip install 'twinned[excel]'; or write a .csv file."
        ) from error
    from twinned.rows.formatting import number_text

    def to_cell(value: object) -> object:
        if isinstance(value, float):  # None for a number that Excel cannot hold
            return float(number_text(value, digits)) if math.isfinite(value) else None
        return ILLEGAL_CHARACTERS_RE.sub("", value) if isinstance(value, str) else value

    workbook = Workbook()
    sheet = workbook.active
    sheet.title = "result"
    for row in (header, *rows):
        sheet.append([to_cell(value) for value in row])
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    sheet.freeze_panes = "B2"
    for row in sheet.iter_rows():
        for cell in row:
            if cell.data_type in ("f", "e"):  # texts such as "=1+1" and "#N/A" stay as they are
                cell.data_type = "s"
    stream = io.BytesIO()
    workbook.save(stream)
    return stream.getvalue()
