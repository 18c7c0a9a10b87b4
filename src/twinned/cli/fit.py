"""`twinned fit`: learn a twin from a CSV file, check it honestly, save it."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinned.cli._errors import one_clear_line, say, warnings_as_lines
from twinned.cli.csv_input import (
    check_output,
    first_missing,
    read_cells,
    read_target,
    table_to_fit,
)
from twinned.cli.model_options import MODELS, TAKE_MISSING, Plan, cross_validate, plan_folds
from twinned.cli.options import (
    Categorical,
    Drop,
    Group,
    LogTarget,
    Separator,
    Table,
    Target,
    check_seed,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from twinned.cli.csv_input import Cells

FEWEST_TO_CHECK = 10


def fit_command(
    table: Table,
    target: Target,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the model goes, such as model.twin.")
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help=f"What learns the differences: {', '.join(MODELS)}.",
            metavar="NAME",
        ),
    ] = "default",
    log_target: LogTarget = False,
    categorical: Categorical = None,
    drop: Drop = None,
    group: Group = None,
    pairs: Annotated[
        str,
        typer.Option(
            "--pairs",
            help="Which pairs are learned: all of them, M random partners for each row, or auto, "
            "which bounds time and memory.",
            metavar="auto|all|M",
        ),
    ] = "auto",
    anchors: Annotated[
        str,
        typer.Option(
            "--anchors",
            help="Which rows a prediction starts from: all, or the K nearest. Nearness is measured "
            "on the columns as they are, so bring them to one scale first.",
            metavar="all|K",
        ),
    ] = "all",
    seed: Annotated[
        int, typer.Option("--seed", help="The same seed gives the same model.", metavar="N")
    ] = 0,
    separator: Separator = ",",
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="Cross-validate the twin beside its plain base estimator, which takes several "
            "times as long as the fit.",
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Learn a twin from a CSV file and save it.

    TableSchema of text become categories; a missing value is an empty cell, NA,
    n/a, NaN, null or None. The model is
    checked by cross-validation beside the plain estimator that it is made of, so that you see
    whether twinning pays on your data.

    For example:

        twinned fit houses.csv --target price -o houses.twin

        twinned fit houses.csv --target price --log-target --drop id -o houses.twin

        twinned fit houses.csv --target price --model forest -c postcode -o houses.twin
    """
    with one_clear_line(), warnings_as_lines():
        _check_model(model)
        pairs_wanted = _count_or("--pairs", pairs, ("auto", "all"))
        anchors_wanted = _count_or("--anchors", anchors, ("all",))
        check_seed(seed)
        resolved = check_output(output, [table])
        cells = read_cells(table, separator)
        X, y, groups = open_cells(cells, target, categorical or [], drop or [], log_target, group)
        if isinstance(anchors_wanted, int) and anchors_wanted > len(X):
            raise ValueError(f"--anchors {anchors} asks for more rows than the {len(X)} there are.")
        missing = first_missing(cells, X.columns)
        if missing and model not in TAKE_MISSING:
            raise ValueError(
                f"{missing} has no value, and --model {model} takes no missing values; "
                f"{', '.join(TAKE_MISSING)} do."
            )
        plan = Plan(model, log_target, pairs_wanted, anchors_wanted, seed, bool(missing))
        checked = check and len(X) >= FEWEST_TO_CHECK
        folds = plan_folds(len(X), seed, groups) if checked else []
        twin = plan.twin(len(X))  # here scikit-learn is imported, which is not the fit's time
        with _progress(1 + len(folds)) as advance:
            advance("fitting")
            start = time.perf_counter()
            fitted = twin.fit(X, y)
            seconds = time.perf_counter() - start
            scores = cross_validate(plan, X, y, folds, fitted, advance) if checked else None

        from twinned import save

        save(fitted, resolved)
    if check and not checked:
        say("note", f"{len(X)} rows are too few for a check; {FEWEST_TO_CHECK} are the least.")
    twin = fitted.regressor_ if log_target else fitted
    facts = {
        "table": str(table),
        "rows": len(X),
        "target": target,
        "log_target": log_target,
        "numbers": [name for name in X.columns if X[name].dtype != "category"],
        "categories": {
            name: len(X[name].cat.categories) for name in X.columns if X[name].dtype == "category"
        },
        "model": model,
        "pairs": twin.n_pairs_,
        "anchors": anchors_wanted if isinstance(anchors_wanted, int) else len(twin.anchors_y_),
        "seed": seed,
        "seconds": round(seconds, 3),
        "check": scores,
        "output": str(output),
        "bytes": resolved.stat().st_size,
    }
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        _report(facts)


# --- opening ----------------------------------------------------------------------------------


def _check_model(model: str) -> None:
    if model not in MODELS:
        raise ValueError(f"there is no --model {model}; there are {', '.join(MODELS)}.")


def _count_or(option: str, value: str, words: tuple[str, ...]) -> str | int:
    if value in words:
        return value
    if value.isdecimal() and int(value) > 0:
        return int(value)
    raise ValueError(
        f"{option} must be {', '.join(words)} or a positive whole number, not {value!r}."
    )


def open_cells(
    cells: Cells,
    target: str,
    categorical: list[str],
    drop: list[str],
    log_target: bool,
    group: str | None = None,
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray | None]:
    """The table to learn from, the target and the groups, or an error that names the cell."""
    if group is not None:
        cells.demand([group], "--group")
        drop = [*drop, group]
    cells.demand([target], "--target")
    cells.demand(drop, "--drop")
    cells.demand(categorical, "--categorical")
    for option, names in (("--group", [group]), ("--drop", drop), ("--categorical", categorical)):
        if target in names:
            raise ValueError(f"{option} names {target!r}, which is the --target.")
    names = [name for name in cells.names if name != target and name not in drop]
    if "" in names:
        raise ValueError(
            f"{cells.path}, column {cells.names.index('') + 1} has no name; give it one, or leave "
            'it out with --drop "" (pandas writes its index so, unless told index=False).'
        )
    if not names:
        raise ValueError(f"{cells.path} has no column to learn from besides {target!r}.")
    y = read_target(cells, target)
    if len(cells) < 2:
        raise ValueError(f"{cells.path} has 1 row; a pair needs two.")
    if log_target and (y <= 0).any():
        row = int((y <= 0).argmax())
        raise ValueError(
            f"{cells.at(row, target)}: {cells.column(target)[row]} has no logarithm; --log-target "
            "takes positive values only."
        )
    table = table_to_fit(cells, names, [name for name in categorical if name != group])
    if group is None:
        return table, y, None

    from twinned.pairing.splits import encode_groups

    missing = first_missing(cells, [group])
    if missing:
        raise ValueError(f"{missing} has no value, and it is the --group.")
    return table, y, encode_groups(cells.column(group), len(cells))


# --- telling ----------------------------------------------------------------------------------


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on a terminal's stderr; elsewhere nothing, so that logs stay clean."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        started = False

        def advance(what: str) -> None:
            nonlocal started
            progress.update(task, advance=int(started), description=what)
            started = True

        yield advance


def _report(facts: dict[str, Any]) -> None:
    numbers, categories = facts["numbers"], facts["categories"]
    lines = [
        ("table", f"{facts['table']}, {_counted(facts['rows'], 'row')}"),
        ("target", facts["target"] + (", learned as its logarithm" if facts["log_target"] else "")),
    ]
    if numbers:
        lines.append(("numbers", f"{len(numbers)}: {_plainly(numbers)}"))
    if categories:
        named = [f"{name} ({_counted(n, 'name')})" for name, n in categories.items()]
        lines.append(("names", f"{len(categories)}: {_plainly(named)}"))
    nearest = "nearest " if facts["anchors"] < facts["rows"] else ""
    lines.append(
        (
            "model",
            f"{facts['model']}, learned {_counted(facts['pairs'], 'pair')} in "
            f"{facts['seconds']:.1f} s, predicts from {facts['anchors']:,} {nearest}anchors",
        )
    )
    if facts["check"]:
        scores = facts["check"]
        rows = (
            ("twin", scores["rmse_twin"]),
            (f"plain {MODELS[facts['model']]}", scores["rmse_plain"]),
            ("always the mean", scores["rmse_mean"]),
        )
        lines.append(
            ("check", f"error (RMSE) on rows not seen, {scores['folds']}-fold cross-validation:")
        )
        width = max(len(name) for name, _ in rows)
        lines += [("", f"  {name:<{width}}  {_rounded(score)}") for name, score in rows]
    lines.append(("saved", f"{facts['output']} ({_size(facts['bytes'])})"))
    for heading, text in lines:
        typer.echo(f"{heading:<8} {text}")
    if sys.stdout.isatty():
        more = "--interval 0.9" if facts["check"] else "--std"
        typer.echo(f"\nNext: twinned predict {facts['output']} NEW.csv {more}")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _plainly(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


def _rounded(score: float) -> str:
    """Four digits that count, and an exponent only where the zeros would not be read.

    >>> _rounded(65327.42), _rounded(0.0123456), _rounded(1.5e-9)
    ('65,327', '0.01235', '1.5e-09')
    """
    if not 1e-5 <= score < 1e9:
        return f"{score:.4g}"
    return f"{score:,.{max(0, 3 - math.floor(math.log10(score)))}f}"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{max(1, n_bytes // 1000)} kB"
