"""`twinned advise`: recommend a model for a table, and state whether twinning helps."""

from __future__ import annotations

import time

import pandas as pd
from joblib import cpu_count

from twinned import AutoTwinRegressor, diagnose, save
from twinned.app.cli import messages
from twinned.app.cli.options import AdviseOptions, check_output_path
from twinned.app.cli.training_data import TrainingData, read_new_rows, read_training_data
from twinned.app.report.collect import Content, collect
from twinned.app.report.render import leaderboard_rows, render
from twinned.diagnostics import Diagnosis
from twinned.diagnostics.recommendation import describe_efforts
from twinned.diagnostics.row_checks import check_time_order
from twinned.persistence.archive import write_atomically
from twinned.rows.formatting import aligned, format_number, format_significant

_MAX_BATCHES = 10  # whose offsets are printed


def advise_command(options: AdviseOptions) -> None:
    """Recommend a model for a table, and state whether twinning helps."""
    if len(options.targets) > 1:
        for own in options.of_each_target():
            advise_command(own)
        return
    start = time.perf_counter()
    with messages.print_warnings():
        end = start + options.seconds
        report, output, inputs = options.report, options.output, [options.table]
        report_path = report and check_output_path(report, inputs, "--report")
        model_path = output and check_output_path(output, inputs)

        data = read_training_data(options)
        new_rows = read_new_rows(options.test, data, options.reading) if options.test else None
        messages.print_notes(data.notes)
        diagnosis, content = _diagnose(options, data, new_rows, end)

        if model_path is not None:
            diagnosis.twin.target_name_, diagnosis.twin.batch_name_ = options.target, options.batch
            save(diagnosis.model, model_path)
            content["output"] = str(output)
        content["seconds"] = round(time.perf_counter() - start, 1)
        if report_path is not None:
            write_atomically(report_path, render(content).encode())
            content["report"] = str(report)
    messages.print_result(content, format_text(content, data), options.as_json)


def _diagnose(
    options: AdviseOptions, data: TrainingData, new_rows: pd.DataFrame | None, end: float
) -> tuple[Diagnosis, Content]:
    """Return the diagnosis and the content of its report, as far as there is time until `end`."""
    with messages.progress_lines() as progress:
        diagnosis = diagnose(
            data.X,
            data.y,
            **data.arguments,
            estimator=AutoTwinRegressor(effort=options.effort, cv=data.cv, verbose=1),
            budget=max(0.01, end - time.perf_counter()),
            groups=data.groups,
            log_target=options.log_target,
            X_new=new_rows,
            n_jobs=cpu_count(),
            progress=progress,
            random_state=options.seed,
        )
        if data.groups is None and all(each.code != "TW105" for each in diagnosis.findings):
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


def format_text(content: Content, data: TrainingData) -> str:
    """Return the summary, the errors, the features and the code as lines of text."""
    errors = [f"  {line}" for line in aligned(content["error_summary"])]
    lines = [content["summary"], f"Errors of {content['target']} on held-out rows:", *errors]
    features = [f"  {line}" for line in aligned(dict(data.feature_lines()))]
    lines += ["Features:", *features, "", *format_findings(content), ""]
    lines.append(f"Root mean square errors (RMSE) of {content['target']} on held-out rows:")
    lines += [f"  {line}" for line in leaderboard_lines(content["leaderboard"])]
    for check in content["checks"].values():
        model = f" ({check['model']})" if check["model"] else ""
        lines.append(f"{check['title']}{model} {check['summary']}")
    if content["batches"]:
        lines += ["Batches:", *batch_lines(content["batches"], content["log_target"])]
    lines += content["notes"]
    lines += [f"skipped {name}: {reason}" for name, reason in content["skipped"].items()]
    lines.append("To make it in Python, from features X and target y:")
    lines += [f"  {line}" for line in content["code"].splitlines()]
    files = (("output", "model"), ("report", "report"))
    lines += [f"{name}: {content[key]}" for key, name in files if key in content]
    return "\n".join(line.rstrip() for line in lines)


def leaderboard_lines(board: list[Content]) -> list[str]:
    """Return the errors of all models as a table, and what the suffixes of their names mean."""
    table = messages.make_table("model", "RMSE", "weight", "seconds", "", left=2)
    table.columns[-1].justify = "left"
    for row in leaderboard_rows(board):
        table.add_row(*(row[key] for key in ("name", "rmse", "weight", "seconds", "mark")))
    return [*messages.table_lines(table), *describe_efforts(row["model"] for row in board)]


def batch_lines(batches: Content, is_log: bool) -> list[str]:
    """Return the errors of known and new batches, and the largest offsets with standard errors."""
    scale, shown = " of the logarithm" if is_log else "", {}
    known, new = (format_number(batches["errors"][name]) for name in ("known", "new"))
    for row in batches["offsets"][:_MAX_BATCHES]:
        error = format_significant(row["std_error"], 2)
        shown[row["batch"]] = f"{format_number(row['offset'])} ± {error} ({row['n_rows']:g} rows)"
    return [
        f"RMSE{scale} of rows of known batches {known}, of a new batch {new}",
        f"offsets{scale} from their mean ({len(shown)} of {len(batches['offsets'])}):",
        *(f"  {line}" for line in aligned(shown)),
    ]


def format_findings(content: Content) -> list[str]:
    """Return the findings of the data checks as lines of text."""
    if not content["findings"]:
        return ["Data checks: no finding."]
    lines = ["Data checks (docs/checks.md has a section for each code):"]
    for finding in content["findings"]:
        heading = f"  {finding['code']} {finding['level']}: {finding['title']}."
        lines += [f"{heading} {finding['message']}", f"    {finding['advice']}"]
    return lines
