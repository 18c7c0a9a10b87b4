"""`twinned advise`: should this table be twinned, how, and how far can it be trusted?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from twinned.cli._errors import exit_on_bad_input, print_warnings
from twinned.cli.csv_input import check_output_path, read_csv
from twinned.cli.fit import read_training_data
from twinned.cli.options import (
    Categorical,
    Drop,
    Group,
    Label,
    LogTarget,
    Separator,
    Table,
    Target,
    check_seed,
)


def advise_command(
    table: Table,
    target: Target,
    report: Annotated[
        Path | None,
        typer.Option("--report", "-r", help="Where the page goes, such as advice.html."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where the recommended model goes: model.twin."),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            help="About how long it may take. What is essential is done in any case.",
            metavar="60s|2m",
        ),
    ] = "60s",
    log_target: LogTarget = False,
    categorical: Categorical = None,
    drop: Drop = None,
    group: Group = None,
    label: Label = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            help="The same seed gives the same advice, where there is time for the same checks.",
            metavar="N",
        ),
    ] = 0,
    separator: Separator = ",",
    as_json: Annotated[bool, typer.Option("--json", help="Print all facts as JSON.")] = False,
) -> None:
    """Say whether and how to twin a table, and how far to trust the result.

    A twin, the plain estimator it is made of, k-NN and networks are cross-validated side by side;
    then come the paper's checks: do more pairs help, how many anchors, would more labels help?
    All errors are of rows that the model had not seen.

    For example:

        twinned advise houses.csv --target price --report advice.html

        twinned advise houses.csv --target price --log-target --budget 2m -o houses.twin
    """
    with exit_on_bad_input(), print_warnings():
        seconds = parse_budget(budget)
        check_seed(seed)
        page = None if report is None else check_output_path(report, [table], "--report")
        place = None if output is None else check_output_path(output, [table])
        cells = read_csv(table, separator)
        if label is not None:
            cells.require([label], "--label")
            if label == target:
                raise ValueError(f"--label names {target!r}, which is the --target.")
            drop = [*(drop or []), label]
        X, y, groups = read_training_data(
            cells, target, categorical or [], drop or [], log_target, group
        )

        import numpy as np

        from twinned.diagnostics import diagnose
        from twinned.report import collect, render

        learned = np.log(y) if log_target else y
        with _spinner() as tell:
            found = diagnose(
                X, learned, budget=seconds, groups=groups, random_state=seed, progress=tell
            )
            tell("collecting the facts")
            name = f"log {target}" if log_target else target
            labels = None if label is None else cells.column(label)
            facts = collect(found, title=table.name, target=name, labels=labels, random_state=seed)
            facts["code"] = _code(facts["code"], table, target, X, cells.names, log_target)
        if log_target:
            facts["next"].append(
                "All errors here are of the logarithm: 0.1 is an error of about 10 %."
            )
        if place is not None:
            _save(found, X, y, log_target, place)
            facts["output"] = str(output)
        if page is not None:
            page.write_text(render(facts), encoding="utf-8")
            facts["report"] = str(report)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        _tell(facts)


def parse_budget(text: str) -> float:
    """Seconds.

    >>> parse_budget("90"), parse_budget("60s"), parse_budget("2m")
    (90.0, 60.0, 120.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min)?", text.strip())
    if not found or float(found[1]) == 0:
        raise ValueError(f"--budget must be a time such as 60s or 2m, not {text!r}.")
    return float(found[1]) * (60.0 if found[2] in ("m", "min") else 1.0)


def _code(
    lines: str, table: Path, target: str, X: Any, columns: list[str], log_target: bool
) -> str:
    """The lines that make the twin, and before them those that open the table as it was here."""
    names = {name: "category" for name in X.columns if X[name].dtype == "category"}
    dropped = [name for name in columns if name not in X.columns]
    y = f"data[{target!r}]"
    opening = [
        "import pandas as pd",
        f"data = pd.read_csv({str(table)!r})" + (f".astype({names!r})" if names else ""),
        f"X, y = data.drop(columns={dropped!r}), {f'np.log({y})' if log_target else y}",
    ]
    return "\n".join([*(["import numpy as np"] if log_target else []), *opening, lines])


def _save(found: Any, X: Any, y: Any, log_target: bool, place: Path) -> None:
    from twinned import save

    model = found.model
    if log_target:
        import numpy as np
        from sklearn.compose import TransformedTargetRegressor

        model = TransformedTargetRegressor(
            regressor=found.recommended, func=np.log, inverse_func=np.exp
        ).fit(X, y)
    found.calibrated.store_in(model.regressor_ if log_target else model)
    save(model, place)


@contextmanager
def _spinner() -> Iterator[Callable[[str], None]]:
    """Say what is under way on a terminal's stderr; elsewhere nothing, so that logs stay clean."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("")
        yield lambda what: progress.update(task, description=what)


def _tell(facts: dict[str, Any]) -> None:
    typer.echo(facts["verdict"])
    for key, finding in facts["findings"].items():
        if key != "comparison":
            typer.echo(f"  {finding['title']:<36}{finding['verdict']}")
    errors = facts["findings"]["comparison"]["numbers"]["rmse"]
    typer.echo(f"Errors (RMSE) of {facts['target']}, of rows not seen, by cross-validation:")
    for name in sorted(errors, key=errors.get):
        typer.echo(f"  {name:<18}{errors[name]:.4g}")
    for note in facts["notes"]:
        typer.echo(note)
    if facts["left_out"]:
        typer.echo(f"Left out for lack of time: {', '.join(facts['left_out'])}.")
    for step in facts["next"]:
        if "--log-target" in step:
            typer.echo(step)
    typer.echo("To make it in Python:")
    for line in facts["code"].splitlines():
        typer.echo(f"  {line}")
    for word in ("output", "report"):
        if word in facts:
            typer.echo(f"{'model' if word == 'output' else 'page'}: {facts[word]}")
