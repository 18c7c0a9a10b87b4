"""`twinned predict`: predict the rows of a CSV file with a saved twin."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinned.cli._errors import one_clear_line, say, warnings_as_lines
from twinned.cli.csv_input import (
    check_output,
    first_missing,
    listed,
    read_cells,
    table_to_predict,
)
from twinned.cli.options import SavedModel

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from twinned.cli.csv_input import Cells


def predict_command(
    model: SavedModel,
    table: Annotated[
        Path, typer.Argument(help="A CSV file with the model's columns.", metavar="TABLE")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where the predictions go; without it, they are printed."
        ),
    ] = None,
    std: Annotated[
        bool,
        typer.Option(
            "--std",
            help="Add the spread of the anchors' estimates, a raw standard deviation. After "
            "--log-target it is carried over to the target by the delta method: prediction times "
            "the deviation of the logarithm.",
        ),
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            help="Add the ends, low and high, of intervals that hold the value with this "
            "probability, such as 0.9. The model must have been checked when it was fitted.",
            metavar="P",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            help="A column of the table to carry along, such as an identifier; may be repeated.",
            metavar="COLUMN",
        ),
    ] = None,
    separator: Annotated[
        str,
        typer.Option("--separator", help="What is between fields: , ; | or tab.", metavar="CHAR"),
    ] = ",",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON, for machines; with -o, facts about what was done."
        ),
    ] = False,
) -> None:
    """Predict the rows of a CSV file with a saved model.

    The result has the columns that are kept, a column prediction, and std, low and high where asked
    for, row by row as in the table.
    TableSchema may come in any order; those that the model does not know are left out of account.

    For example:

        twinned predict houses.twin new.csv --std -o prices.csv

        twinned predict houses.twin new.csv --interval 0.9 --keep address
    """
    with one_clear_line():
        if interval is not None and not 0 < interval < 1:
            raise ValueError(f"--interval is a probability, such as 0.9, not {interval:g}.")
        resolved = None if output is None else check_output(output, [model, table])
        cells = read_cells(table, separator)
        cells.demand(keep or [], "--keep")
        with warnings_as_lines():
            fitted = load_twin(model)
        X, ignored = _open(cells, fitted, model)
        ignored = [name for name in ignored if name not in (keep or [])]
        with warnings_as_lines():
            columns = _predict(fitted, X, std, model)
            if interval is not None:
                columns |= _interval(fitted, X, interval, model)
        kept = {name: cells.column(name) for name in keep or []}
        for name in kept:
            if name in columns:
                raise ValueError(f"--keep {name}: the result has a column of that name.")
        if resolved is not None:
            from twinned.persistence.archive import write_atomically

            write_atomically(resolved, _as_csv(kept, columns).encode())
    if ignored:
        say("note", f"columns that the model does not know are left out: {listed(ignored)}.")
    if as_json:
        facts: dict[str, Any] = {"model": str(model), "table": str(table), "rows": len(X)}
        facts |= {"ignored_columns": ignored, "output": None if output is None else str(output)}
        if output is None:
            facts |= {"kept": kept} if kept else {}
            facts |= {name: values.tolist() for name, values in columns.items()}
        typer.echo(json.dumps(facts, ensure_ascii=False))
    elif output is None:
        typer.echo(_as_csv(kept, columns), nl=False)
    else:
        rows = f"{len(X):,} prediction{'' if len(X) == 1 else 's'}"
        typer.echo(f"{rows} in {output}")


def load_twin(path: Path) -> Any:
    from twinned import load
    from twinned.estimators.base import BaseTwin

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a model saved by twinned fit.")
    if not path.exists():
        raise FileNotFoundError(
            f"there is no model {path}; `twinned fit --help` tells how to make one."
        )
    model = load(path)
    if not isinstance(_twin(model), BaseTwin):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, not a twin; twinned.load opens it in Python."
        )
    return model


def _twin(model: Any) -> Any:
    """The twin itself, where the model learned a transformed target."""
    return getattr(model, "regressor_", model)


def _open(cells: Cells, model: Any, path: Path) -> tuple[Any, list[str]]:
    """The model's table, and the columns of the file that it has no use for."""
    from sklearn.utils import get_tags

    twin = _twin(model)
    columns = twin._schema
    known = [
        categories if kind != "numeric" else None
        for kind, categories in zip(columns.kinds, columns.categories, strict=True)
    ]
    if hasattr(twin, "feature_names_in_"):
        names = [str(name) for name in twin.feature_names_in_]
        cells.demand(names, f"{path} was fitted with it")
        ignored = [name for name in cells.names if name not in names]
    else:
        # fitted in Python on an array: the columns have an order and no names
        names, ignored = cells.names, []
        if len(names) != columns.n_features or "" in names:
            raise ValueError(
                f"{path} was fitted on {columns.n_features} columns without names, but "
                f"{cells.path} has {len(names)}: {listed(names)}."
            )
    missing = first_missing(cells, names)
    if missing and not get_tags(twin).input_tags.allow_nan:
        raise ValueError(f"{missing} has no value, and {path} takes no missing values.")
    X = table_to_predict(cells, names, known)
    if not hasattr(twin, "feature_names_in_"):
        return X.to_numpy(), ignored
    return X, ignored


def _predict(model: Any, X: pd.DataFrame, std: bool, path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    twin = _twin(model)
    if std and model is not twin:
        if model.func is not np.log or model.inverse_func is not np.exp:
            raise ValueError(f"--std: {path} learned a target transformed otherwise than by log.")
        mean, spread = twin.predict(X, return_std=True)
        return _columns(np.exp(mean), np.exp(mean) * spread)
    if std:
        return _columns(*twin.predict(X, return_std=True))
    return _columns(model.predict(X))


def _interval(model: Any, X: Any, confidence: float, path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    twin = _twin(model)
    if not hasattr(twin, "intervals_"):
        raise ValueError(
            f"--interval: {path} keeps no errors of rows that were left out; twinned fit, with its "
            "check, and twinned advise save models that do."
        )
    if model is not twin and (model.func is not np.log or model.inverse_func is not np.exp):
        raise ValueError(f"--interval: {path} learned a target transformed otherwise than by log.")
    ends = twin.predict_interval(X, confidence)
    low, high = ends.T if model is twin else np.exp(ends).T
    return {"low": low, "high": high}


def _columns(prediction: np.ndarray, std: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Name them; a model of several outputs, fitted in Python, has one column for each."""
    columns = {"prediction": prediction} if std is None else {"prediction": prediction, "std": std}
    if prediction.ndim == 1:
        return columns
    return {
        f"{name}_{output}": values[:, output]
        for name, values in columns.items()
        for output in range(values.shape[1])
    }


def _as_csv(kept: dict[str, list[str]], columns: dict[str, np.ndarray]) -> str:
    # repr of a float is the shortest text that reads back as the same number
    told = [[repr(value) for value in values.tolist()] for values in columns.values()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*kept, *columns])
    writer.writerows(zip(*kept.values(), *told, strict=True))
    return text.getvalue()
