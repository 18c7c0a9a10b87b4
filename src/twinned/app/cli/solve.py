"""`twinned solve`: inputs whose predicted target is as wanted, by a saved twin."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from twinned import solve
from twinned.app.cli import messages, prediction
from twinned.app.cli.options import SolveOptions
from twinned.app.tables.reader import read_table
from twinned.inverse.problem import find_columns
from twinned.rows.formatting import format_interval, format_value

_OPTIONS = {"target": "--goal", "near": "--near", "fixed": "--fix", "bounds": "--bounds"}
_OPTIONS |= {"confidence": "--confidence"}


def solve_command(options: SolveOptions) -> None:
    """Find inputs whose predicted target is as wanted, with a saved model."""
    path = options.result_path()
    with messages.print_warnings():
        loaded = prediction.load_twin(options.model, options.key_file)
    near, names = None, loaded.twin.feature_labels()
    if options.table is not None:
        table = read_table(options.table, options.reading, loaded.names or ())
        near = prediction.read_features(loaded, table)
    sums = [_sum(text, names) for text in options.sum_to or ()]
    with messages.print_warnings(), messages.progress_bar() as begin_step:
        begin_step("searching")
        try:
            found = solve(
                loaded.model,
                _goals(options.goal, loaded),
                near=near,
                fixed=dict(_fixed(text, names) for text in options.fix or ()),
                bounds=dict(map(_range, options.bounds or ())),
                constraints=[*sums, *(options.constraint or ())],
                n=options.n,
                confidence=options.confidence,
                batch=options.batch,
                random_state=options.seed,
            )
        except ValueError as error:  # many messages begin with an argument
            message = re.sub(r"^\w+", lambda word: _OPTIONS.get(word[0], word[0]), str(error))
            raise ValueError(message) from error
    if path is None and not options.as_json:
        confidence = 0.9 if options.confidence is None else options.confidence
        messages.print_result({}, "\n".join(_grid(found, names, confidence)), False)
        return
    columns = {str(name): column.to_numpy() for name, column in found.items()}
    facts = {"goal": options.goal, "reached_rows": int(found["reached"].sum())}
    summary = messages.counted(len(found), "proposal")
    prediction.output_result(options, path, {}, columns, facts, summary)


def _goals(goals: list[str], loaded: prediction.LoadedTwin) -> Any:
    """The target of `solve`: a text, or one for each of several targets."""
    if not loaded.twin.targets_:
        if len(goals) > 1:
            raise ValueError(f"--goal is given {len(goals)} times, but the model has one target.")
        return goals[0].strip()
    parts = [goal.rpartition(":") for goal in goals]
    return {name.strip(): goal.strip() for name, _, goal in parts}


def _fixed(text: str, names: list[str]) -> tuple[str, float | str | None]:
    """The column and the value of --fix, None without one.

    >>> _fixed("heat=180", ["heat"]), _fixed("heat", ["heat"]), _fixed("heat=low", ["heat"])
    (('heat', 180.0), ('heat', None), ('heat', 'low'))
    """
    name, sign, value = (text, "", "") if text in names else text.partition("=")
    try:
        return name.strip(), float(value) if sign else None
    except ValueError:
        return name.strip(), value.strip()


def _range(text: str) -> tuple[str, tuple[float | None, float | None]]:
    """The column and the ends of --bounds.

    >>> _range("time:1..8"), _range("time: ..8")
    (('time', (1.0, 8.0)), ('time', (None, 8.0)))
    """
    name, _, ends = text.rpartition(":")
    try:
        low, high = (float(end) if end.strip() else None for end in ends.split(".."))
    except ValueError:
        raise ValueError(f"--bounds must be such as time:1..8, not {text!r}.") from None
    return name.strip(), (low, high)


def _sum(text: str, names: list[str]) -> str:
    """The constraint of --sum-to.

    >>> _sum("a, b=100", ["a", "b", "c"])
    'a + b = 100'
    """
    given, sign, total = text.rpartition("=")
    if not sign:
        raise ValueError(f"--sum-to must be such as a,b,c=100, not {text!r}.")
    columns = [name.strip() for name in given.split(",")]
    find_columns(names, columns, "--sum-to")
    return f"{' + '.join(columns)} = {total.strip()}"


def _grid(found: pd.DataFrame, names: list[str], confidence: float) -> list[str]:
    """The lines of a table with one column for each proposal."""
    table = messages.make_table("", *(f"proposal {i + 1}" for i in range(len(found))))
    for name in names:
        pairs = zip(found[name], found[f"change of {name}"], strict=True)
        table.add_row(name, *(_with_change(value, change) for value, change in pairs))
    for name in found.columns[2 * len(names) :]:
        if name.startswith("predicted"):
            ends = [name, *(name.replace("predicted", end, 1) for end in ("lower", "upper"))]
            if ends[1] in found:
                label = f"{name} ({100 * confidence:g} % interval)"
                table.add_row(label, *(format_interval(*row) for row in found[ends].to_numpy()))
                continue
        if name == "reached":
            table.add_row(name, *("yes" if value else "no" for value in found[name]))
        elif not name.startswith(("lower", "upper")):
            table.add_row(name, *(_with_change(value, 0.0) for value in found[name]))
    return messages.table_lines(table)


def _with_change(value: Any, change: Any) -> str:
    """A value and, in brackets, its change, unless that is missing or rounding error.

    >>> _with_change(150.0, 10.0), _with_change("oil", "air → oil"), _with_change(3, 1e-7)
    ('150 (+10)', 'oil (air → oil)', '3')
    """
    shown = format_value(value if value is None or isinstance(value, str) else float(value))
    if not change or not (isinstance(change, str) or abs(change) > 1e-6 * abs(value)):
        return shown
    return f"{shown} ({change if isinstance(change, str) else f'{change:+.4g}'})"
