"""Predictions of the command line: loading a twin, its features in a table, columns of results."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinned.app import tables
from twinned.app.cli import options
from twinned.exceptions import ShiftWarning

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ResultColumns:
    """The columns of a result besides the prediction: options of `twinned predict`."""

    std: bool = False
    interval: float | None = None
    applicability: bool = False
    keep: tuple[str, ...] = ()
    digits: int = 6  # significant ones, in CSV
    bounds: tuple[float, float] | None = None  # at which predictions and intervals are cut


@dataclass(frozen=True)
class ModelFeatures:
    """Names, categories and missing values that a fitted model takes.

    `names` is None for a model fitted to an array. `categories` has the known ones of each feature,
    None for a numeric one. `path` is that of the model, for messages.
    """

    names: list[str] | None
    categories: list[Sequence[Any] | None]
    allow_nan: bool
    path: Path

    @classmethod
    def of(cls, model: Any, path: Path) -> ModelFeatures:
        """The features of a loaded model."""
        from sklearn.utils import get_tags

        twin = inner_twin(model)
        schema = twin.fitted_.anchors.schema
        categories = [
            values if kind != "numeric" else None
            for kind, values in zip(schema.kinds, schema.categories, strict=True)
        ]
        names = None
        if hasattr(twin, "feature_names_in_"):
            names = [str(name) for name in twin.feature_names_in_]
        return cls(names, categories, bool(get_tags(twin).input_tags.allow_nan), path)

    def select(self, table: tables.Table) -> tuple[list[str], list[str]]:
        """The names of the features and the columns of the table that they are computed from."""
        if self.names is not None:
            sources = tables.source_columns(table, self.names)
            empty = " The model takes missing values, so that an absent column may be added empty."
            table.require(sources, f"features of {self.path}", empty if self.allow_nan else "")
            return self.names, sources
        # fitted in Python to an array: features have an order, but no names
        if len(table.names) != len(self.categories) or "" in table.names:
            raise ValueError(
                f"{self.path} was fitted to {len(self.categories)} columns without names, but "
                f"{table.path} has {len(table.names)}: {tables.join_names(table.names)}."
            )
        return table.names, table.names

    def check_missing(self, table: tables.Table, X: Any) -> None:
        """Raise a ValueError for a missing value, where the model takes none."""
        missing = None if self.allow_nan else tables.first_missing(table, X)
        if missing:
            raise ValueError(f"{missing} has no value, and {self.path} takes no missing values.")

    def as_input(self, X: Any) -> Any:
        """A DataFrame as the model takes it."""
        return X if self.names is not None else X.to_numpy()


def read_features(table: tables.Table, features: ModelFeatures) -> tuple[Any, list[str], list[str]]:
    """Return the features of the model, the columns of the file that are none, and notes."""
    names, sources = features.select(table)
    X, notes = tables.prediction_frame(table, names, features.categories)
    features.check_missing(table, X)
    ignored = [name for name in table.names if name not in sources]
    return features.as_input(X), ignored, notes


def load_twin(path: Path, key_file: Path | None = None) -> Any:
    """Load a saved twin, or the regressor with a log-transformed target around one.

    With a key file, the signature of the model is verified.
    """
    from twinned import load

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a model saved by twinned fit.")
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}; create one with twinned fit.")
    model = load(path, key=options.read_key(key_file))
    # imported after `load`, which reads the file while it imports scikit-learn
    from twinned.estimators.base import BaseTwin

    if not isinstance(inner_twin(model), BaseTwin):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, not a twin; use twinned.load in Python."
        )
    return model


def inner_twin(model: Any) -> Any:
    """Return the twin inside a regressor with a transformed target, else the model itself."""
    return getattr(model, "regressor_", model)


def predict_columns(model: Any, X: Any, wanted: ResultColumns, path: Path) -> dict[str, np.ndarray]:
    """Return the columns of the result, without those that are copied."""
    columns = _predict(model, X, wanted.std, path)
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


def _predict(model: Any, X: Any, std: bool, path: Path) -> dict[str, np.ndarray]:
    """Return the columns of the result; a model of several outputs has one for each output."""
    import numpy as np

    if std:
        twin = inner_twin(model)
        check_transform(model, "--std", path)
        mean, deviation = twin.predict(X, return_std=True)
        if model is not twin:
            mean = np.exp(mean)
            deviation = mean * deviation
        columns = {"prediction": mean, "std": deviation}
    else:
        columns = {"prediction": model.predict(X)}
    if columns["prediction"].ndim == 1:
        return columns
    return {
        f"{name}_{output}": values[:, output]
        for name, values in columns.items()
        for output in range(values.shape[1])
    }


def _predict_interval(model: Any, X: Any, confidence: float, path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    twin = inner_twin(model)
    if not hasattr(twin, "intervals_"):
        raise ValueError(
            f"--interval: {path} has no stored calibration; fit it with its check (without "
            "--no-check), or save it with twinned advise."
        )
    check_transform(model, "--interval", path)
    ends = twin.predict_interval(X, confidence)
    low, high = ends.T if model is twin else np.exp(ends).T
    return {"low": low, "high": high}


def range_note(model: Any, columns: dict[str, np.ndarray]) -> str | None:
    """Return a line on intervals that reach beyond the possible values of the target."""
    import numpy as np

    from twinned.fitted.known_values import TargetRange

    twin = inner_twin(model)
    known = twin.anchors_y_ if model is twin else np.exp(twin.anchors_y_)
    possible = TargetRange.of(getattr(twin, "target_name_", "y"), known)
    beyond = possible.describe_beyond(columns["low"], columns["high"])
    if not beyond:
        return None
    ends = " ".join(f"{end:g}" for end in possible)
    logarithm = ""
    if known.min() > 0 > columns["low"].min():
        logarithm = " After twinned fit --log-target, none begins below 0."
    return f"{beyond}. --bounds {ends} cuts them there.{logarithm}"


def check_transform(model: Any, option: str, path: Path) -> None:
    """Raise a ValueError if the target of the model is transformed by more than the logarithm."""
    import numpy as np

    if model is inner_twin(model) or (model.func is np.log and model.inverse_func is np.exp):
        return
    raise ValueError(f"{option}: the target of {path} is transformed, but not by the logarithm.")


def result_content(
    path: Path, copied: dict[str, list[str]], columns: dict[str, np.ndarray], digits: int = 6
) -> bytes:
    """Return the content of a CSV or Excel file of copied columns and results."""
    from twinned.app.cli.result_files import is_excel, numbers_of_text, table_content

    cells: dict[str, Sequence[Any]] = {**copied}
    if is_excel(path):
        cells = {name: numbers_of_text(own) for name, own in copied.items()}
    return table_content(path, [*copied, *columns], _rows(cells, columns), digits)


def _rows(
    copied: Mapping[str, Sequence[Any]], columns: dict[str, np.ndarray]
) -> Iterator[tuple[Any, ...]]:
    return zip(*copied.values(), *(own.tolist() for own in columns.values()), strict=True)


def _json_values(values: np.ndarray) -> list[Any]:
    """Return values for JSON, which has no infinite numbers: null in their place."""
    return [
        None if isinstance(each, float) and not math.isfinite(each) else each
        for each in values.tolist()
    ]


def print_columns(
    facts: dict[str, Any],
    copied: dict[str, list[str]],
    columns: dict[str, np.ndarray],
    written: str | None,
    as_json: bool,
    digits: int,
) -> None:
    """Print a result as JSON or CSV; where it was `written` to a file, that and the facts."""
    if as_json:
        if written is None:
            facts |= {"copied_columns": copied} if copied else {}
            facts |= {name: _json_values(values) for name, values in columns.items()}
        typer.echo(json.dumps(facts, ensure_ascii=False))
    elif written is None:
        from twinned.app.cli.result_files import to_csv

        typer.echo(to_csv([*copied, *columns], _rows(copied, columns), digits), nl=False)
    else:
        typer.echo(written)
