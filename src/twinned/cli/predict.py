"""`twinned predict`: predict the rows of a table with a saved twin."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinned.cli import options, tables
from twinned.cli._errors import exit_on_bad_input, print_message, print_warnings

if TYPE_CHECKING:
    import numpy as np


def predict_command(
    model: options.SavedModel,
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV, Excel (.xlsx) or Parquet file with the features of the model.",
            metavar="TABLE",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File of the predictions; printed without it."),
    ] = None,
    std: Annotated[
        bool,
        options.flag_option(
            "--std",
            help="Add the standard deviation: of the anchors' estimates, which is not calibrated, "
            "or of a blend, which is. "
            "After --log-target it is that of the target by the delta method: the prediction "
            "times the standard deviation of the logarithm.",
        ),
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            help="Add the ends, low and high, of prediction intervals with this confidence, such "
            "as 0.9. The model must have been cross-validated when it was fitted.",
            metavar="P",
        ),
    ] = None,
    applicability: Annotated[
        bool,
        options.flag_option(
            "--applicability",
            help="Add the column applicability: whether the row is inside, at the edge or outside "
            "of the known rows. Outside, the prediction is an extrapolation.",
        ),
    ] = False,
    keep: options.Keep = None,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    key_file: options.KeyFile = None,
    as_json: Annotated[
        bool, options.flag_option("--json", help="Print JSON; with -o, without the predictions.")
    ] = False,
) -> None:
    """Predict the rows of a table with a saved model.

    The table is a CSV, Excel or Parquet file; its notation of numbers is detected and reported, and
    need not be that of the training table. The columns of the table may be in any order; those that
    are not features of the model are ignored. The result has the columns of --keep, the column
    prediction, and std, low, high and applicability if requested; its rows are in the order of the
    table.

    For example:

        twinned predict houses.twin new.csv --std -o prices.csv

        twinned predict houses.twin new.csv --interval 0.9 --keep address

        twinned predict houses.twin new.xlsx --sheet 2025 -o prices.csv
    """
    with exit_on_bad_input():
        if interval is not None and not 0 < interval < 1:
            raise ValueError(f"--interval must be between 0 and 1, such as 0.9, not {interval:g}.")
        keep = keep or []
        resolved = None if output is None else options.check_output_path(output, [model, table])
        tables.check_argument_order(model, table, "predict")
        reading = tables.ReadOptions(separator, decimal, thousands, encoding, sheet)
        rows = tables.read_table(table, reading)
        rows.require(keep, "--keep")
        with print_warnings():
            fitted = load_twin(model, key_file)
        X, ignored, notes = read_features(rows, fitted, model)
        ignored = [name for name in ignored if name not in keep]
        for note in (*tables.reading_note(rows), *notes):
            print_message("note", note)
        with print_warnings():
            columns = _predict(fitted, X, std, model)
            if interval is not None:
                columns |= _predict_interval(fitted, X, interval, model)
            if applicability:
                columns["applicability"] = inner_twin(fitted).applicability(X)["label"].to_numpy()
                if n_outside := int((columns["applicability"] == "outside").sum()):
                    outside = f"{n_outside:,} of {len(X):,} rows are outside of the known rows"
                    print_message("note", f"{outside}: their predictions are extrapolations.")
        for name in keep:
            if name in columns:
                raise ValueError(f"--keep {name}: the result has a column of that name.")
        copied = {name: rows.column(name) for name in keep}
        if resolved is not None:
            from twinned.persistence.archive import write_atomically

            write_atomically(resolved, to_csv(copied, columns).encode())
    if ignored:
        names = tables.join_names(ignored)
        print_message("note", f"columns that are not features of the model are ignored: {names}.")
    if as_json:
        facts: dict[str, Any] = {"model": str(model), "table": str(table), "rows": len(X)}
        facts |= {"ignored_columns": ignored, "output": None if output is None else str(output)}
        if output is None:
            facts |= {"copied_columns": copied} if copied else {}
            facts |= {name: values.tolist() for name, values in columns.items()}
        typer.echo(json.dumps(facts, ensure_ascii=False))
    elif output is None:
        typer.echo(to_csv(copied, columns), nl=False)
    else:
        typer.echo(f"{len(X):,} prediction{'' if len(X) == 1 else 's'} in {output}")


def load_twin(path: Path, key_file: Path | None = None) -> Any:
    """Load a saved twin, or the regressor with a log-transformed target around one.

    With a key file, the signature of the model is verified.
    """
    from twinned import load
    from twinned.estimators.base import BaseTwin

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a model saved by twinned fit.")
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}; create one with twinned fit.")
    model = load(path, key=options.read_key(key_file))
    if not isinstance(inner_twin(model), BaseTwin):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, not a twin; use twinned.load in Python."
        )
    return model


def inner_twin(model: Any) -> Any:
    """Return the twin inside a regressor with a transformed target, else the model itself."""
    return getattr(model, "regressor_", model)


def read_features(table: tables.Table, model: Any, path: Path) -> tuple[Any, list[str], list[str]]:
    """Return the features of the model, the columns of the file that are none, and notes."""
    from sklearn.utils import get_tags

    twin = inner_twin(model)
    schema = twin._schema
    categories = [
        values if kind != "numeric" else None
        for kind, values in zip(schema.kinds, schema.categories, strict=True)
    ]
    has_names = hasattr(twin, "feature_names_in_")
    if has_names:
        names = [str(name) for name in twin.feature_names_in_]
        sources = tables.source_columns(table, names)
        table.require(sources, f"features of {path}")
        ignored = [name for name in table.names if name not in sources]
    else:
        # fitted in Python to an array: features have an order, but no names
        names, ignored = table.names, []
        if len(names) != schema.n_features or "" in names:
            raise ValueError(
                f"{path} was fitted to {schema.n_features} columns without names, but "
                f"{table.path} has {len(names)}: {tables.join_names(names)}."
            )
    X, notes = tables.prediction_frame(table, names, categories)
    missing = tables.first_missing(table, X)
    if missing and not get_tags(twin).input_tags.allow_nan:
        raise ValueError(f"{missing} has no value, and {path} takes no missing values.")
    return (X if has_names else X.to_numpy()), ignored, notes


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


def check_transform(model: Any, option: str, path: Path) -> None:
    """Raise a ValueError if the target of the model is transformed by more than the logarithm."""
    import numpy as np

    if model is inner_twin(model) or (model.func is np.log and model.inverse_func is np.exp):
        return
    raise ValueError(f"{option}: the target of {path} is transformed, but not by the logarithm.")


def to_csv(copied: dict[str, list[str]], columns: dict[str, np.ndarray]) -> str:
    """Return the text of a CSV file with copied and computed columns."""
    # repr of a float is the shortest text that parses to the same number
    numbers = [
        [value if isinstance(value, str) else repr(value) for value in values.tolist()]
        for values in columns.values()
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*copied, *columns])
    writer.writerows(zip(*copied.values(), *numbers, strict=True))
    return text.getvalue()
