"""`twinned predict`: predict the rows of a table with a saved twin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from twinned.app.cli import messages, prediction
from twinned.app.cli.options import PredictOptions
from twinned.app.tables.reader import check_argument_order, is_pattern, read_table
from twinned.app.tables.table import join_names
from twinned.fitted.known_values import TargetRange

_SUFFIXES = (".csv", ".parquet", ".xlsx")  # of the tables in a folder


def predict_command(options: PredictOptions) -> None:
    """Predict the rows of one table, or of each table of a folder or a pattern."""
    options.validate()
    check_argument_order(options.model, options.table, "predict")
    with messages.print_warnings():
        loaded = prediction.load_twin(options.model, options.key_file).with_batches(options)
    if not is_pattern(options.table):
        _predict_table(options, loaded)
        return
    for options_of_file in _options_of_files(options):
        _predict_table(options_of_file, loaded)


def _predict_table(options: PredictOptions, loaded: prediction.LoadedTwin) -> None:
    """Predict the rows of one file."""
    path = options.result_path(options.known)
    table = read_table(options.table, options.reading, loaded.names or ())
    table.require(options.copied, "--keep")
    X = prediction.read_features(loaded, table)
    with messages.print_warnings():
        columns = loaded.predict_columns(X, options, loaded.read_batch(table))
    if options.applicability:
        _note_outside(columns, options)
    if options.interval is not None and options.bounds is None:
        for suffix, loaded_target in loaded.of_targets.items():
            _note_range(loaded_target, columns[f"low{suffix}"], columns[f"high{suffix}"])
    used = {*loaded.select(table)[1], *options.copied}
    ignored = [name for name in table.names if name not in used]
    if ignored:
        note = f"columns that are not features of the model are ignored: {join_names(ignored)}."
        messages.print_message("note", note)
    copied = {name: table.column(name) for name in options.copied}
    facts = {"rows": len(table), "ignored_columns": ignored}
    summary = messages.counted(len(table), "prediction")
    prediction.output_result(options, path, copied, columns, facts, summary)


def _options_of_files(options: PredictOptions) -> Iterator[PredictOptions]:
    """Yield the options of each file of a folder or a pattern, whose result is in the folder -o."""
    folder, files = options.output, _find_files(options.table)
    if folder is None:
        raise ValueError(f"{options.table}: results are written to a folder; give one with -o.")
    names = [f"{path.stem}.csv" for path in files]
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"several files would have the result {join_names(repeated)}; rename one.")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"-o {folder} is a file; give a folder for the results of several files.")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"-o {folder}: there is no folder {folder.parent}; create it.")
    folder.mkdir(exist_ok=True)
    for path, name in zip(files, names, strict=True):
        yield replace(options, table=path, output=folder / name)


def _find_files(pattern: Path) -> list[Path]:
    """Return the files of a folder or a pattern, sorted."""
    if pattern.is_dir():
        paths = [path for path in pattern.iterdir() if path.suffix.lower() in _SUFFIXES]
    else:
        paths = list(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))
    files = sorted(path for path in paths if path.is_file())
    if not files:
        raise FileNotFoundError(f"there is no file {pattern}; give CSV, Excel or Parquet files.")
    return files


def _note_range(loaded: prediction.LoadedTwin, low: np.ndarray, high: np.ndarray) -> None:
    """Print a line on intervals that reach beyond the possible values of the target."""
    fitted = loaded.twin.fitted_
    known_y = loaded.transform.invert(fitted.known_y)
    possible = TargetRange.of(loaded.target, known_y)
    beyond = possible.describe_beyond(low, high)
    if not beyond:
        return
    ends = " ".join(f"{end:g}" for end in possible)
    logarithm = ""
    if known_y.min() > 0 > low.min():
        logarithm = " After twinned fit --log-target, none begins below 0."
    messages.print_message("note", f"{beyond}. --bounds {ends} cuts them there.{logarithm}")


def _note_outside(columns: prediction.Columns, options: PredictOptions) -> None:
    """Print a line on rows that are outside of the known rows, of any target."""
    labels = [values for name, values in columns.items() if name.startswith("applicability")]
    is_outside = np.any([values == "outside" for values in labels], axis=0)
    if not is_outside.any():
        return
    outside = f"{is_outside.sum():,} of {len(is_outside):,} rows are outside of the known rows"
    confidence = ""
    if options.interval is not None:
        confidence = ", and the confidence of their intervals does not hold"
    note = f"{outside}: their predictions are extrapolations{confidence}."
    messages.print_message("note", note)
