"""`twinned advise`: recommend a model for a table, and state whether twinning helps."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import options
from twinned.app.cli._errors import exit_on_bad_input, print_message, print_warnings, printable
from twinned.app.cli._progress import progress_lines
from twinned.app.cli.blend_summary import align_columns, rounded
from twinned.app.cli.options import check_output_path
from twinned.app.cli.training_data import (
    TrainingOptions,
    read_new_rows,
    read_training_data,
    reading_code,
)
from twinned.app.tables import ColumnKinds, ReadOptions

if TYPE_CHECKING:
    from twinned.app.report.collect import Content


def advise_command(
    table: options.Table,
    target: options.Target,
    report: Annotated[
        Path | None, typer.Option("--report", "-r", help="The HTML report to write: advice.html.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The recommended model to write: model.twin."),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            "--test",
            help="A table of rows to predict later: a finding reports how many lie outside of the "
            "training rows.",
            metavar="TABLE",
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            help="About how long it may take. Models and checks that would take longer are "
            "skipped, and at least one model is fitted.",
            metavar="60s|2m",
        ),
    ] = "60s",
    log_target: options.LogTarget = False,
    lower_bound: options.LowerBound = None,
    categorical: options.Categorical = None,
    numeric: options.Numeric = None,
    date: options.Date = None,
    drop: options.Drop = None,
    group: options.Group = None,
    label: options.Label = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            help="The same seed gives the same advice, if the same checks fit into the time.",
            metavar="N",
        ),
    ] = 0,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    as_json: Annotated[
        bool, options.flag_option("--json", help="Print the report as JSON.")
    ] = False,
) -> None:
    """Recommend a model for a table, and state whether twinning helps.

    Twins, networks, trees, Gaussian processes and ridge regression are cross-validated on the same
    folds, as many as fit into the budget. The recommended model is the best that was found: a blend
    of several of them, or a single one. All errors are errors of held-out rows.

    For example:

        twinned advise houses.csv --target price --report advice.html

        twinned advise houses.csv --target price --log-target --budget 2m -o houses.twin

        twinned advise houses.csv --target price --test offers.csv

        twinned advise sales.xlsx --sheet 2024 --target price --label address -r advice.html
    """
    start = time.perf_counter()
    with exit_on_bad_input(), print_warnings():
        seconds = options.parse_seconds("--budget", budget)
        options.check_seed(seed)
        report_path = None if report is None else check_output_path(report, [table], "--report")
        model_path = None if output is None else check_output_path(output, [table])
        reading = ReadOptions(separator, decimal, thousands, encoding, sheet)
        kinds = ColumnKinds(categorical or (), numeric or (), date or ())
        training = TrainingOptions(
            target, log_target, drop or [], group, label, kinds, reading, lower_bound
        )
        data = read_training_data(table, training)
        new_rows = None if test is None else read_new_rows(test, data, reading)
        for note in data.notes:
            print_message("note", note)

        from joblib import cpu_count

        from twinned import AutoTwinRegressor, diagnose, save
        from twinned.app.report import collect, render
        from twinned.persistence.archive import write_atomically

        with progress_lines() as progress:
            diagnosis = diagnose(
                data.X,
                data.y,
                **data.bounds,
                estimator=AutoTwinRegressor(verbose=1),
                budget=max(0.01, seconds - (time.perf_counter() - start)),
                groups=data.groups,
                log_target=log_target,
                X_new=new_rows,
                n_jobs=cpu_count(),
                progress=progress,
                random_state=seed,
            )
            progress("collecting the report")
            left = seconds - (time.perf_counter() - start)
            content = collect(
                diagnosis,
                title=table.name,
                target=target,
                labels=data.row_names,
                row_numbers=data.table.lines,
                seconds=max(0.5, 0.5 * left),
                random_state=seed,
            )
        content["code"] = f"{reading_code(data, training)}\n{content['code']}"
        if model_path is not None:
            diagnosis.twin.target_name_ = target
            save(diagnosis.model, model_path)
            content["output"] = str(output)
        content["seconds"] = round(time.perf_counter() - start, 1)
        if report_path is not None:
            write_atomically(report_path, render(content).encode())
            content["report"] = str(report)
    text = json.dumps(content, ensure_ascii=False) if as_json else printable(format_text(content))
    typer.echo(text)


def format_text(content: Content) -> str:
    """Return the summary, the errors and the code as lines of text."""
    lines = [content["summary"], content["error_summary"], "", *format_findings(content), ""]
    lines.append(f"Root mean square errors (RMSE) of {content['target']} on held-out rows:")
    rows = [("model", "RMSE", "weight", "seconds")]
    for row in content["leaderboard"]:
        error = f"{rounded(row['rmse'])} ± {rounded(row['rmse_se'], 2)}"
        weight = "" if row["weight"] is None else f"{row['weight']:.2f}"
        rows.append((row["model"], error, weight, f"{row['fit_seconds']:.1f}"))
    marks = ["", *("  recommended" if row["recommended"] else "" for row in content["leaderboard"])]
    lines += [f"  {line}{mark}" for line, mark in zip(align_columns(rows), marks, strict=True)]
    for check in content["checks"].values():
        model = f" ({check['model']})" if check["model"] else ""
        lines.append(f"{check['title']}{model} {check['summary']}")
    lines += content["notes"]
    lines += [f"skipped {name}: {reason}" for name, reason in content["skipped"].items()]
    lines.append("To make it in Python:")
    lines += [f"  {line}" for line in content["code"].splitlines()]
    files = (("output", "model"), ("report", "report"))
    lines += [f"{name}: {content[key]}" for key, name in files if key in content]
    return "\n".join(line.rstrip() for line in lines)


def format_findings(content: Content) -> list[str]:
    """Return the findings of the data checks as lines of text."""
    if not content["findings"]:
        return ["Data checks: no finding."]
    lines = ["Data checks (docs/checks.md has a section for each code):"]
    for own in content["findings"]:
        lines.append(f"  {own['code']} {own['level']}: {own['title']}. {own['message']}")
        lines.append(f"    {own['advice']}")
    return lines
