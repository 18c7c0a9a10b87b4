"""`twinned advise`: check whether twinning helps on a table, and recommend a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.cli import options
from twinned.cli._errors import exit_on_bad_input, print_warnings, printable
from twinned.cli._progress import progress_bar
from twinned.cli.csv_input import check_output_path, read_csv
from twinned.cli.fit import read_training_data
from twinned.cli.model_options import with_log_target

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from twinned.diagnostics import Diagnosis
    from twinned.report.collect import Content


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
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            help="About how long it may take. The cross-validation is always done.",
            metavar="60s|2m",
        ),
    ] = "60s",
    log_target: options.LogTarget = False,
    categorical: options.Categorical = None,
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
    separator: options.Separator = ",",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check whether twinning helps on a table, and recommend a model.

    A twin, its base estimator on plain rows, k-NN, ridge regression and networks are
    cross-validated on the same folds; further checks vary the number of pairs, anchors and labels.
    All errors are errors of held-out rows.

    For example:

        twinned advise houses.csv --target price --report advice.html

        twinned advise houses.csv --target price --log-target --budget 2m -o houses.twin
    """
    with exit_on_bad_input(), print_warnings():
        seconds = options.parse_seconds("--budget", budget)
        options.check_seed(seed)
        report_path = None if report is None else check_output_path(report, [table], "--report")
        model_path = None if output is None else check_output_path(output, [table])
        csv_table = read_csv(table, separator)
        if label is not None:
            csv_table.require([label], "--label")
            if label == target:
                raise ValueError(f"--label names {target!r}, which is the --target.")
            drop = [*(drop or []), label]
        X, y, groups = read_training_data(csv_table, target, categorical, drop, log_target, group)

        import numpy as np

        from twinned.diagnostics import diagnose
        from twinned.persistence.archive import write_atomically
        from twinned.report import collect, render

        fitted_y, name = (np.log(y), f"log {target}") if log_target else (y, target)
        labels = None if label is None else csv_table.column(label)
        with progress_bar() as progress:
            diagnosis = diagnose(
                X, fitted_y, budget=seconds, groups=groups, progress=progress, random_state=seed
            )
            progress("collecting the report")
            content = collect(
                diagnosis, title=table.name, target=name, labels=labels, random_state=seed
            )
        opening = _opening_code(table, target, X, csv_table.names, log_target)
        content["code"] = f"{opening}\n{content['code']}"
        if log_target:
            content["next_steps"].append(
                "All errors here are errors of the logarithm: 0.1 is about 10 %."
            )
        if model_path is not None:
            _save(diagnosis, X, y, log_target, model_path)
            content["output"] = str(output)
        if report_path is not None:
            write_atomically(report_path, render(content).encode())
            content["report"] = str(report)
    text = json.dumps(content, ensure_ascii=False) if as_json else printable(format_text(content))
    typer.echo(text)


def _opening_code(
    table: Path, target: str, X: pd.DataFrame, columns: list[str], log_target: bool
) -> str:
    """Return the lines of Python that read the table as it was read here."""
    categories = {name: "category" for name in X.columns if X[name].dtype == "category"}
    dropped = [name for name in columns if name not in X.columns]
    y = f"data[{target!r}]"
    lines = ["import numpy as np"] if log_target else []
    lines += [
        "import pandas as pd",
        f"data = pd.read_csv({str(table)!r})" + (f".astype({categories!r})" if categories else ""),
        f"X, y = data.drop(columns={dropped!r}), {f'np.log({y})' if log_target else y}",
    ]
    return "\n".join(lines)


def _save(
    diagnosis: Diagnosis, X: pd.DataFrame, y: np.ndarray, log_target: bool, path: Path
) -> None:
    """Save the recommended model; with a log target it takes and returns the target itself."""
    from twinned import save

    model = twin = diagnosis.model
    if log_target:
        model = with_log_target(diagnosis.recommended).fit(X, y)
        twin = model.regressor_
    diagnosis.calibrated.store_in(twin)
    save(model, path)


def format_text(content: Content) -> str:
    """Return the summary, the errors and the code as lines of text."""
    checks = content["checks"].copy()
    comparison = checks.pop("comparison")["numbers"]
    lines = [content["summary"]]
    lines += [f"  {check['title']:<42}{check['summary']}" for check in checks.values()]
    lines.append(f"Errors (RMSE) of {content['target']} on held-out rows, by cross-validation:")
    lines += [
        f"  {name:<18}{error:<12.4g}{comparison['estimators'].get(name, '')}"
        for name, error in sorted(comparison["rmse"].items(), key=lambda item: item[1])
    ]
    lines += content["notes"]
    if content["skipped"]:
        lines.append(f"Skipped for lack of time: {', '.join(content['skipped'])}.")
    lines += [step for step in content["next_steps"] if "--log-target" in step]
    lines.append("To make it in Python:")
    lines += [f"  {line}" for line in content["code"].splitlines()]
    files = (("output", "model"), ("report", "report"))
    lines += [f"{name}: {content[key]}" for key, name in files if key in content]
    return "\n".join(line.rstrip() for line in lines)
