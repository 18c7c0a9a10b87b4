"""`twinned predict`: predict the rows of a table with a saved twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from twinned.app import tables
from twinned.app.cli import options
from twinned.app.cli._errors import exit_on_bad_input, print_message, print_warnings
from twinned.app.cli._progress import progress_bar
from twinned.app.cli.prediction import (
    ModelFeatures,
    ResultColumns,
    load_twin,
    predict_columns,
    print_columns,
    range_note,
    read_features,
    result_content,
)
from twinned.app.cli.result_files import check_result_path


class ClusterOptions(NamedTuple):
    """Address of a scheduler, or the number of processes of this computer."""

    scheduler: str | None
    n_workers: int | None


def predict_command(
    model: options.SavedModel,
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV, Excel (.xlsx) or Parquet file with the features of the model; or a folder "
            "or a quoted pattern, such as 'data/*.parquet', of CSV or Parquet files.",
            metavar="TABLE",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File of the predictions, .csv or .xlsx; printed without it. Of several files, a "
            "folder.",
        ),
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
            "of the known rows. Outside, the prediction is an extrapolation. A row with a category "
            "that no known row has is outside.",
        ),
    ] = False,
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--bounds",
            help="The least and the largest possible value of the target, such as 0 100 for a "
            "yield in %, or 0 inf: predictions and intervals are cut there.",
            metavar="LOW HIGH",
            show_default=False,
        ),
    ] = None,
    keep: options.Keep = None,
    digits: options.Digits = 6,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    key_file: options.KeyFile = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            help="Address of the scheduler of a Dask cluster, such as tcp://host:8786. Its workers "
            "need twinned and the same paths of files. By default, processes of this computer.",
            metavar="ADDRESS",
            rich_help_panel="Many files",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            help="Number of processes; the number of cores by default.",
            min=1,
            rich_help_panel="Many files",
        ),
    ] = None,
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

        twinned predict houses.twin new.xlsx --sheet 2025 -o prices.xlsx

    A folder or a pattern of CSV or Parquet files is predicted partition by partition with Dask, on
    all cores or on a cluster; -o is a folder with one file for each partition. A command that was
    interrupted continues where it was when it is started again:

        twinned predict houses.twin 'data/*.parquet' -o prices

        twinned predict houses.twin 'data/*.csv' -o prices --scheduler tcp://host:8786
    """
    wanted = ResultColumns(std, interval, applicability, tuple(keep or ()), digits, bounds)
    reading = tables.ReadOptions(separator, decimal, thousands, encoding, sheet)
    with exit_on_bad_input():
        if interval is not None and not 0 < interval < 1:
            raise ValueError(f"--interval must be between 0 and 1, such as 0.9, not {interval:g}.")
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError(f"--bounds {bounds[0]:g} {bounds[1]:g}: the first must be less.")
        if tables.is_pattern(table) or scheduler or workers:
            with print_warnings():
                fitted = load_twin(model, key_file)
            cluster = ClusterOptions(scheduler, workers)
            _predict_many(fitted, model, table, output, wanted, reading, cluster, as_json)
            return
        keep = keep or []
        resolved = None if output is None else check_result_path(output, [model, table])
        tables.check_argument_order(model, table, "predict")
        rows = tables.read_table(table, reading)
        rows.require(keep, "--keep")
        with print_warnings():
            fitted = load_twin(model, key_file)
        X, ignored, notes = read_features(rows, ModelFeatures.of(fitted, model))
        ignored = [name for name in ignored if name not in keep]
        for note in (*tables.reading_note(rows), *notes):
            print_message("note", note)
        with print_warnings():
            columns = predict_columns(fitted, X, wanted, model)
        if applicability:
            _note_outside(int((columns["applicability"] == "outside").sum()), len(X), wanted)
        if interval is not None and bounds is None and (beyond := range_note(fitted, columns)):
            print_message("note", beyond)
        copied = {name: rows.column(name) for name in keep}
        if resolved is not None:
            from twinned.persistence.archive import write_atomically

            write_atomically(resolved, result_content(resolved, copied, columns, digits))
    _note_ignored(ignored)
    facts: dict[str, Any] = {"model": str(model), "table": str(table), "rows": len(X)}
    facts |= {"ignored_columns": ignored, "output": None if output is None else str(output)}
    written = None if output is None else f"{_count(len(X), 'prediction')} in {output}"
    print_columns(facts, copied, columns, written, as_json, digits)


def _predict_many(
    fitted: Any,
    model: Path,
    table: Path,
    output: Path | None,
    wanted: ResultColumns,
    reading: tables.ReadOptions,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Predict the partitions of files on a Dask cluster, those that are not finished."""
    from twinned.app.cli.cluster import connect, predict_partitions, prepare_output
    from twinned.app.cli.partition_tasks import Finished, Job
    from twinned.app.cli.partitions import Partition, find_files, make_plan

    if output is None:
        raise ValueError(f"{table}: partitions are written to a folder; give one with -o.")
    if not output.parent.is_dir():
        raise FileNotFoundError(
            f"-o {output}: there is no folder {output.parent}; create it first."
        )
    plan = make_plan(find_files(table), ModelFeatures.of(fitted, model), wanted.keep, reading)
    job = Job.of(plan, model, output.resolve(), wanted)
    missing = prepare_output(output, job, plan)
    n_finished = len(plan.partitions) - len(missing)
    if plan.detected:
        print_message("note", f"{plan.files[0]} is read with {', '.join(plan.detected)}.")
    _note_ignored(plan.ignored)
    results: list[Finished] = []
    if missing:
        with progress_bar(len(missing)) as step, connect(*cluster) as client:

            def report(partition: Partition, finished: Finished) -> None:
                results.append(finished)
                step(partition.output)

            predict_partitions(client, fitted, job, missing, report)
    for kind in ("note", "warning"):
        texts = [text for each in results for text in getattr(each, f"{kind}s")]
        for text in dict.fromkeys(texts):
            print_message(kind, text)
    n_rows = sum(each.n_rows for each in results)
    _note_outside(sum(each.n_outside for each in results), n_rows, wanted)
    if as_json:
        facts = {"model": str(model), "table": str(table), "rows": n_rows, "output": str(output)}
        facts |= {"partitions": len(missing), "finished_before": n_finished}
        typer.echo(json.dumps(facts | {"ignored_columns": plan.ignored}, ensure_ascii=False))
        return
    before = f", {n_finished:,} finished before" if n_finished else ""
    done = f"{_count(n_rows, 'prediction')} of {_count(len(missing), 'partition')}"
    typer.echo(f"{done} in {output}{before}")


def _note_ignored(names: list[str]) -> None:
    if names:
        shown = tables.join_names(names)
        print_message("note", f"columns that are not features of the model are ignored: {shown}.")


def _note_outside(n_outside: int, n_rows: int, wanted: ResultColumns) -> None:
    if n_outside:
        outside = f"{n_outside:,} of {n_rows:,} rows are outside of the known rows"
        void = ", and the confidence of their intervals does not hold"
        about = "" if wanted.interval is None else void
        print_message("note", f"{outside}: their predictions are extrapolations{about}.")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
