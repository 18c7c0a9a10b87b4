"""`twinned predict`: predict the rows of a table with a saved twin."""

from __future__ import annotations

import numpy as np

from twinned.app.cli import messages, partitions, prediction
from twinned.app.cli.options import PredictOptions, ResultColumns
from twinned.app.tables.reader import is_pattern
from twinned.app.tables.table import join_names
from twinned.fitted.known_values import TargetRange


def predict_command(options: PredictOptions) -> None:
    """Predict the rows of a table with a saved model."""
    options.validate()
    if is_pattern(options.table) or options.scheduler or options.workers:
        _predict_many(options)
    else:
        _predict_table(options)


def _predict_table(options: PredictOptions) -> None:
    """Predict the rows of one file."""
    path = options.result_path(options.known)
    loaded, table = prediction.load_with_table(options, "predict")
    loaded = loaded.with_batches(options)
    table.require(options.copied, "--keep")
    X = prediction.read_features(loaded, table)
    with messages.print_warnings():
        columns = loaded.predict_columns(X, options, loaded.read_batch(table))
    if options.applicability:
        _note_outside(prediction.rows_outside(columns), len(table), options)
    if options.interval is not None and options.bounds is None:
        for suffix, each in loaded.of_targets.items():
            _note_range(each, columns[f"low{suffix}"], columns[f"high{suffix}"])
    used = {*loaded.select(table)[1], *options.copied}
    ignored = [name for name in table.names if name not in used]
    _note_ignored(ignored)
    copied = {name: table.column(name) for name in options.copied}
    facts = {"rows": len(table), "ignored_columns": ignored}
    summary = messages.counted(len(table), "prediction")
    prediction.output_result(options, path, copied, columns, facts, summary)


def _predict_many(options: PredictOptions) -> None:
    """Predict the partitions of files on a Dask cluster, those that are not finished."""
    output = options.output
    with messages.print_warnings():
        loaded = prediction.load_twin(options.model, options.key_file).with_batches(options)
    if output is None:
        raise ValueError(f"{options.table}: partitions are written to a folder; give one with -o.")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"-o {output}: there is no folder {output.parent}; create it.")
    plan = partitions.make_plan(options.table, output, loaded, options)
    missing = partitions.prepare_output(options.model, plan)
    n_finished = len(plan.partitions) - len(missing)
    if plan.detected:
        messages.print_message("note", f"{plan.files[0]} is read with {', '.join(plan.detected)}.")
    _note_ignored(plan.ignored)
    results = []
    if missing:
        cluster = partitions.connect(options.scheduler, options.workers)
        with messages.progress_bar(len(missing)) as begin_step, cluster as client:
            for partition, result in partitions.predict_partitions(client, loaded, plan, missing):
                results.append(result)
                begin_step(partition.output)
    all_messages = [message for result in results for message in result.messages]
    for kind, text in dict.fromkeys(sorted(all_messages, key=lambda message: message[0])):
        messages.print_message(kind, text)
    n_rows = sum(result.n_rows for result in results)
    _note_outside(sum(result.n_outside for result in results), n_rows, options)
    facts = {"model": str(options.model), "table": str(options.table), "rows": n_rows}
    facts |= {"output": str(output), "partitions": len(missing), "finished_before": n_finished}
    before = f", {n_finished:,} finished before" if n_finished else ""
    done = messages.counted(len(missing), "partition")
    text = f"{messages.counted(n_rows, 'prediction')} of {done} in {output}{before}"
    messages.print_result(facts | {"ignored_columns": plan.ignored}, text, options.as_json)


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


def _note_ignored(names: list[str]) -> None:
    if names:
        ignored = f"columns that are not features of the model are ignored: {join_names(names)}."
        messages.print_message("note", ignored)


def _note_outside(n_outside: int, n_rows: int, wanted: ResultColumns) -> None:
    if n_outside:
        outside = f"{n_outside:,} of {n_rows:,} rows are outside of the known rows"
        void = ", and the confidence of their intervals does not hold"
        about = "" if wanted.interval is None else void
        messages.print_message("note", f"{outside}: their predictions are extrapolations{about}.")
