"""`twinned solve`: inputs whose predicted target is as wanted, by a saved twin."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from twinned import solve
from twinned.app.cli import messages, prediction
from twinned.app.cli.options import SolveOptions
from twinned.app.tables.reader import read_table
from twinned.rows.formatting import format_value

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
    sums = [text.replace(",", " + ") for text in options.sum_to or ()]
    with messages.print_warnings(), messages.progress_bar() as begin_step:
        begin_step("searching")
        try:
            found = solve(
                loaded.model,
                _goals(options.goal, loaded),
                near=near,
                fixed=dict(_fixed(text, names) for text in options.fix or ()),
                bounds=_by_name(options.bounds or (), "--bounds", "time:1..8"),
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
        messages.print_result({}, _grid(found, names, options.confidence or 0.9), False)
        return
    facts = {"goal": options.goal, "reached_rows": int(found["reached"].sum())}
    summary = messages.counted(len(found), "proposal")
    prediction.output_result(options, path, {}, dict(found), facts, summary)


def _by_name(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Texts such as the example, by the names before their colons.

    >>> _by_name(["time: 1..8"], "--bounds", "time:1..8")
    {'time': '1..8'}
    """
    parts = [text.rpartition(":") for text in texts]
    if wrong := [text for name, _, text in parts if not name]:
        raise ValueError(f"{option} must be such as {example}, not {wrong[0]!r}.")
    return {name.strip(): text.strip() for name, _, text in parts}


def _goals(goals: list[str], loaded: prediction.LoadedTwin) -> Any:
    """The target of `solve`: a text, or one for each of several targets."""
    if loaded.twin.targets_:
        return _by_name(goals, "--goal", "yield:>=60")
    if len(goals) > 1:
        raise ValueError(f"--goal is given {len(goals)} times, but the model has one target.")
    return goals[0].strip()


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


def _grid(found: pd.DataFrame, names: list[str], confidence: float) -> str:
    """A table with one column for each proposal."""
    table = messages.make_table("", *(f"proposal {i + 1}" for i in range(len(found))))
    for name in found.columns.drop([f"change of {name}" for name in names]):
        is_end = name.startswith(("lower", "upper"))
        label = f"{name} ({100 * confidence:g} % interval)" if is_end else name
        changes = found.get(f"change of {name}", [0.0] * len(found))
        table.add_row(label, *map(_with_change, found[name], changes))
    return "\n".join(messages.table_lines(table))


def _with_change(value: Any, change: Any) -> str:
    """A value and, in brackets, its change, unless that is missing or rounding error.

    >>> _with_change(150.0, 10.0), _with_change("oil", "air → oil"), _with_change(3, 1e-7)
    ('150 (+10)', 'oil (air → oil)', '3')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    shown = format_value(value if value is None or isinstance(value, str) else float(value))
    if not change or not (isinstance(change, str) or abs(change) > 1e-6 * abs(value)):
        return shown
    return f"{shown} ({change if isinstance(change, str) else f'{change:+.4g}'})"
