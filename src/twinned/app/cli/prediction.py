"""A saved twin applied to the rows of a table: its features, columns of results and their files."""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli.messages import print_notes, print_result, print_warnings
from twinned.app.cli.options import SavedModelOptions, column_option, flag_option, read_key
from twinned.app.tables import frames
from twinned.app.tables.reader import check_argument_order, read_table, reading_note
from twinned.app.tables.table import Table, join_names
from twinned.exceptions import ShiftWarning, require_extra

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from sklearn.base import BaseEstimator

    from twinned.fitted.target import TargetTransform

Columns = dict[str, "np.ndarray"]  # of a result, by name
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")


@dataclass(frozen=True, kw_only=True)
class ResultColumns:
    """The columns of a result besides the prediction: options of `twinned predict`.

    Parameters
    ----------
    std
        Add the standard deviation: of the anchors' estimates, which is not calibrated, or of a
        blend, which is. After --log-target it is that of the target by the delta method: the
        prediction times the standard deviation of the logarithm.
    interval
        Add the ends, low and high, of prediction intervals with this confidence, such as 0.9. The
        model must have been cross-validated when it was fitted.
    applicability
        Add the column applicability: whether the row is inside, at the edge or outside of the
        known rows. Outside, the prediction is an extrapolation. A row with a category that no
        known row has is outside.
    bounds
        The least and the largest possible value of the target, such as 0 100 for a yield in %, or
        0 inf: predictions and intervals are cut there.
    keep
        A column of the table to copy, such as an identifier. May be repeated.
    """

    std: Annotated[bool, flag_option("--std")] = False
    interval: Annotated[float | None, typer.Option("--interval", metavar="P")] = None
    applicability: Annotated[bool, flag_option("--applicability")] = False
    bounds: Annotated[
        tuple[float, float] | None, typer.Option("--bounds", metavar="LOW HIGH", show_default=False)
    ] = None
    keep: Annotated[list[str] | None, column_option("--keep")] = None

    def validate(self) -> None:
        """Raise a ValueError for an interval or bounds that are impossible."""
        if self.interval is not None and not 0 < self.interval < 1:
            given = f"{self.interval:g}"
            raise ValueError(f"--interval must be between 0 and 1, such as 0.9, not {given}.")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            low, high = self.bounds
            raise ValueError(f"--bounds {low:g} {high:g}: the first must be less.")

    @property
    def copied(self) -> list[str]:
        """The columns to copy."""
        return self.keep or []


# --- the model and its features ---------------------------------------------------------------


@dataclass(frozen=True)
class LoadedTwin:
    """A saved twin, or the regressor with a transformed target around one, and its file."""

    model: BaseEstimator
    path: Path

    @cached_property
    def twin(self) -> BaseEstimator:
        """The twin inside a regressor with a transformed target, else the model itself."""
        return vars(self.model).get("regressor_", self.model)

    @cached_property
    def transform(self) -> TargetTransform:
        """The transformation of the target; a ValueError if it is not the logarithm."""
        from twinned.fitted.target import split_target

        try:
            return split_target(self.model)[1]
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None

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
        schema = self.twin.fitted_.anchors.schema
        kinds = zip(schema.kinds, schema.categories, strict=True)
        return [None if kind == "numeric" else categories for kind, categories in kinds]

    @cached_property
    def allow_nan(self) -> bool:
        """Whether the model takes missing values."""
        from sklearn.utils import get_tags

        return bool(get_tags(self.twin).input_tags.allow_nan)

    def require_single_target(self, command: str) -> None:
        """Raise a ValueError for a model of several targets."""
        if self.twin.anchors_y_.ndim > 1:
            raise ValueError(f"{command} needs a model of a single target.")

    def select(self, table: Table) -> tuple[list[str], list[str]]:
        """The names of the features and the columns of the table that they are computed from."""
        if self.names is not None:
            sources = frames.source_columns(table, self.names)
            empty = " The model takes missing values, so that an absent column may be added empty."
            table.require(sources, f"features of {self.path}", empty if self.allow_nan else "")
            return self.names, sources
        # fitted in Python to an array: features have an order, but no names
        if len(table.names) != len(self.categories) or "" in table.names:
            fitted = f"{self.path} was fitted to {len(self.categories)} columns without names"
            given = f"{table.path} has {len(table.names)}: {join_names(table.names)}"
            raise ValueError(f"{fitted}, but {given}.")
        return table.names, table.names

    def as_input(self, table: Table, X: pd.DataFrame) -> pd.DataFrame | np.ndarray:
        """Return features as the model takes them; a ValueError for a missing value it does not."""
        missing = None if self.allow_nan else frames.first_missing(table, X)
        if missing:
            raise ValueError(f"{missing} has no value, and {self.path} takes no missing values.")
        return X if self.names is not None else X.to_numpy()

    def read(self, table: Table) -> tuple[pd.DataFrame | np.ndarray, list[str]]:
        """Return the features of the rows of a table, and notes."""
        X, notes = frames.prediction_frame(table, self.select(table)[0], self.categories)
        return self.as_input(table, X), notes

    def predict_columns(self, X: pd.DataFrame | np.ndarray, wanted: ResultColumns) -> Columns:
        """Return the columns of the result, without those that are copied.

        A model of several outputs has one for each output.
        """
        from twinned.fitted.target import predict_target

        if wanted.std:
            mean, std = predict_target(self.model, X, return_std=True)
            columns = _name_outputs("prediction", mean) | _name_outputs("std", std)
        else:
            columns = _name_outputs("prediction", predict_target(self.model, X))
        if wanted.interval is not None:
            with warnings.catch_warnings():
                if wanted.applicability:  # which marks the same rows
                    warnings.simplefilter("ignore", ShiftWarning)
                columns |= self._predict_interval(X, wanted.interval)
        if wanted.bounds is not None:
            numbers = {name for name in columns if not name.startswith("std")}
            columns |= {name: columns[name].clip(*wanted.bounds) for name in numbers}
        if wanted.applicability:
            columns["applicability"] = self.twin.applicability(X)["label"].to_numpy()
        for name in wanted.copied:
            if name in columns:
                raise ValueError(f"--keep {name}: the result has a column of that name.")
        return columns

    def empty_columns(self, wanted: ResultColumns) -> Columns:
        """The columns of `predict_columns`, of no rows."""
        import numpy as np

        empty = np.empty((0, *self.twin.anchors_y_.shape[1:]))
        columns = _name_outputs("prediction", empty)
        if wanted.std:
            columns |= _name_outputs("std", empty)
        if wanted.interval is not None:
            columns |= {"low": empty, "high": empty}
        return columns | ({"applicability": empty.astype(object)} if wanted.applicability else {})

    def _predict_interval(self, X: pd.DataFrame | np.ndarray, confidence: float) -> Columns:
        if self.twin.calibration_ is None:
            fit = "fit it with its check, without --no-check"
            raise ValueError(f"--interval: {self.path} has no stored calibration; {fit}.")
        ends = self.transform.invert(self.twin.predict_interval(X, confidence))
        return dict(zip(("low", "high"), ends.T, strict=True))


def load_twin(path: Path, key_file: Path | None = None) -> LoadedTwin:
    """Load a saved twin; with a key file, the signature of the model is verified."""
    from twinned import load

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a model saved by twinned fit.")
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}; create one with twinned fit.")
    loaded = LoadedTwin(load(path, key=read_key(key_file)), path)
    # imported after `load`, which reads the file while it imports scikit-learn
    from twinned.estimators.base import BaseTwin

    if not isinstance(loaded.twin, BaseTwin):
        kind = type(loaded.model).__name__
        raise ValueError(f"{path} holds a {kind}, not a twin; use twinned.load in Python.")
    return loaded


def load_with_table(options: SavedModelOptions, command: str) -> tuple[LoadedTwin, Table]:
    """Load the model and read the table of a command; a ValueError where they are exchanged."""
    check_argument_order(options.model, options.table, command)
    with print_warnings():
        loaded = load_twin(options.model, options.key_file)
    return loaded, read_table(options.table, options.reading, loaded.names or ())


def read_features(loaded: LoadedTwin, table: Table) -> pd.DataFrame | np.ndarray:
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
    from twinned.persistence.archive import write_atomically

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
    facts = {"model": str(options.model), "table": str(options.table), **facts, "output": output}
    if path is not None:
        cells: Mapping[str, Sequence[object]] = copied
        if _is_excel(path):
            cells = {name: numbers_of_text(column) for name, column in copied.items()}
        write_table(path, {**cells, **plain_values(columns)}, options.digits)
        print_result(facts, f"{summary} in {output}", options.as_json)
    elif options.as_json:
        facts |= {"copied_columns": copied} if copied else {}
        for name, values in plain_values(columns).items():  # JSON has no infinite numbers
            finite = (not isinstance(each, float) or math.isfinite(each) for each in values)
            facts[name] = [x if ok else None for x, ok in zip(values, finite, strict=True)]
        print_result(facts, "", as_json=True)
    else:
        content = to_csv({**copied, **plain_values(columns)}, options.digits)
        typer.echo(content.decode(), nl=False)


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


def to_csv(columns: Mapping[str, Sequence[object]], digits: int) -> bytes:
    """Return the content of a CSV file.

    >>> print(to_csv({"a": [1 / 3], "b": ["x, y"]}, digits=3).decode(), end="")
    a,b
    0.333,"x, y"
    """
    from twinned.rows.formatting import number_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([number_text(x, digits) if isinstance(x, float) else x for x in row])
    return text.getvalue().encode()


def _to_excel(columns: Mapping[str, Sequence[object]], digits: int) -> bytes:
    """Return a workbook of one sheet whose header stays visible."""
    with require_extra("Excel files need openpyxl: pip install 'twinned[excel]'; or write CSV."):
        from openpyxl import Workbook
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
        from openpyxl.styles import Font
    from twinned.rows.formatting import number_text

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
