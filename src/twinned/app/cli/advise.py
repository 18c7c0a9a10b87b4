"""`twinned advise`: recommend a model for a table, and state whether twinning helps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import messages
from twinned.app.cli.options import (
    TrainingOptions,
    check_output_path,
    json_option,
    output_option,
    seed_option,
)

if TYPE_CHECKING:
    from twinned.app.cli.training_data import TrainingData
    from twinned.app.report.collect import Content
    from twinned.diagnostics import Diagnosis


@dataclass(frozen=True, kw_only=True)
class AdviseOptions(TrainingOptions):
    """Recommend a model for a table, and state whether twinning helps.

    Twins, networks, trees, Gaussian processes and ridge regression are cross-validated on the same
    folds, as many as fit into the budget. The recommended model is the best that was found: a blend
    of several of them, or a single one. All errors are errors of held-out rows.

    For example:

        twinned advise houses.csv --target price --report advice.html

        twinned advise houses.csv --target price --log-target --budget 2m -o houses.twin

        twinned advise sales.xlsx --sheet 2024 --target price --label address -r advice.html

    Parameters
    ----------
    report
        The HTML report to write: advice.html.
    output
        The recommended model to write: model.twin.
    budget
        About how long it may take, of which 6 %, at least 1.5 s, are for checks and the report.
        Models that would take longer are fitted with less effort or skipped, as are checks; from
        30 minutes on, models have more effort. The default is 60 seconds.
    seed
        The same seed gives the same advice, if the same checks fit into the time.
    as_json
        Print the report as JSON.
    """

    report: Annotated[Path | None, typer.Option("--report", "-r")] = None
    output: Annotated[Path | None, output_option()] = None
    seed: Annotated[int, seed_option()] = 0
    as_json: Annotated[bool, json_option()] = False


def advise_command(options: AdviseOptions) -> None:
    """Recommend a model for a table, and state whether twinning helps."""
    from twinned import save
    from twinned.app.cli.summary import format_advice
    from twinned.app.cli.training_data import read_training_data
    from twinned.app.report.render import render
    from twinned.persistence.archive import write_atomically

    target = options.target  # an error where there are several
    start = time.perf_counter()
    with messages.print_warnings():
        end = start + options.seconds
        report, output, inputs = options.report, options.output, [options.table]
        report_path = report and check_output_path(report, inputs, "--report")
        model_path = output and check_output_path(output, inputs)

        data = read_training_data(options)
        messages.print_notes(data.notes)
        diagnosis, content = _diagnose(options, data, end)

        if model_path is not None:
            diagnosis.twin.target_name_ = target
            diagnosis.twin.batch_name_ = options.batch
            save(diagnosis.model, model_path)
            content["output"] = str(output)
        content["seconds"] = round(time.perf_counter() - start, 1)
        if report_path is not None:
            write_atomically(report_path, render(content).encode())
            content["report"] = str(report)
    messages.print_result(content, format_advice(content, data), options.as_json)


def _diagnose(options: AdviseOptions, data: TrainingData, end: float) -> tuple[Diagnosis, Content]:
    """Return the diagnosis and the content of its report, as far as there is time until `end`."""
    from joblib import cpu_count

    from twinned import AutoTwinRegressor, diagnose
    from twinned.app.report.collect import collect
    from twinned.diagnostics.data_checks import check_time_order

    with messages.progress_lines() as progress:
        diagnosis = diagnose(
            data.X,
            data.y,
            **data.arguments,
            estimator=AutoTwinRegressor(effort=options.effort, cv=data.cv, verbose=1),
            budget=max(0.01, end - time.perf_counter()),
            groups=data.groups,
            log_target=options.log_target,
            n_jobs=cpu_count(),
            progress=progress,
            random_state=options.seed,
        )
        if data.groups is None and all(finding.code != "TW105" for finding in diagnosis.findings):
            diagnosis.findings[:0] = check_time_order(data.unused_dates)
        progress("collecting the report")
        content = collect(
            diagnosis,
            title=options.table.name,
            target=options.target,
            labels=data.row_names,
            row_numbers=data.table.lines,
            seconds=max(0.5, 0.5 * (end - time.perf_counter())),
            random_state=options.seed,
        )
    return diagnosis, content
