"""`twinned solve`: inputs whose predicted target is as wanted, by a saved twin."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import messages
from twinned.app.cli.options import NearFile, SavedModelOptions, column_option, seed_option
from twinned.app.tables.reader import read_table

if TYPE_CHECKING:
    import pandas as pd

    from twinned.app.prediction import TablePredictor

# of the arguments with which messages begin
_OPTIONS = {
    "target": "--goal",
    "near": "--near",
    "fixed": "--fix",
    "bounds": "--bounds",
    "confidence": "--confidence",
}


@dataclass(frozen=True, kw_only=True)
class SolveOptions(SavedModelOptions):
    """Find inputs whose predicted target is as wanted, with a saved model.

    The answer is a table with one row for each proposal: the inputs, and how they differ from the
    row of --near, or else from the nearest known row; the predicted value with its interval, the
    probability that a measurement reaches the goal, and whether the row is inside of the known
    rows. Proposals differ from each other. Where none reaches the goal, the closest rows are shown
    with a warning.

    For example:

        twinned solve alloy.twin --goal ">=60"

        twinned solve alloy.twin --goal ">=60" --near row.csv --fix temperature --confidence 0.9

        twinned solve mix.twin --goal 45..50 --bounds "time:1..8" --constraint "a+b+c=100"

        twinned solve both.twin --goal "hardness:>=60" --goal cost:min

    Parameters
    ----------
    goal
        The wanted target: 60, 45..50, ">=60", "<=5", max or min. Of a model of several targets, the
        name of one and its goal, such as "yield:>=60"; may be repeated.
    table
        A file with one row: the present inputs, which are to change little.
    fix
        A column that keeps the value of --near, or a value, as in "temperature=180". May be
        repeated.
    bounds
        The range of a numeric column, such as "time:1..8"; that of the known rows by default. May
        be repeated.
    constraint
        A linear equation or inequality of columns, such as "a + b = 100" or "a + 2 b <= 5". May be
        repeated.
    n
        Number of proposals.
    confidence
        The interval with this confidence must reach the goal, such as 0.9, not only the prediction.
    batch
        The batch in which rows will be measured, of a model that was fitted with batches.
    seed
        Seed of the search.
    """

    goal: Annotated[list[str], typer.Option("--goal", metavar="GOAL")]
    table: NearFile = None  # type: ignore[assignment]
    fix: Annotated[list[str] | None, column_option("--fix")] = None
    bounds: Annotated[list[str] | None, typer.Option("--bounds", metavar="COLUMN:LOW..HIGH")] = None
    constraint: Annotated[list[str] | None, typer.Option("--constraint", metavar="TEXT")] = None
    n: Annotated[int, typer.Option("-n", min=1)] = 5
    confidence: Annotated[float | None, typer.Option("--confidence", metavar="P")] = None
    batch: Annotated[str | None, typer.Option("--batch", "-b", metavar="NAME")] = None
    seed: Annotated[int, seed_option()] = 0


def solve_command(options: SolveOptions) -> None:
    """Find inputs whose predicted target is as wanted, with a saved model."""
    from twinned.app.cli import saved_model

    path = options.result_path()
    predictor = saved_model.load_predictor(options.model)
    saved_model.note_unknown_batch(predictor, options.batch)
    near = None
    if options.table is not None:
        table = read_table(options.table, options, predictor.names)
        near = saved_model.read_rows(predictor, table).X
    proposals = _find_proposals(options, predictor, near)
    facts = {"goal": options.goal, "reached_rows": int(proposals.iloc[:, -1].sum())}
    summary = messages.counted(len(proposals), "proposal")
    columns = {str(name): column.to_numpy() for name, column in proposals.items()}
    saved_model.output_result(options, path, {}, columns, facts, summary)


def _find_proposals(options: SolveOptions, predictor: TablePredictor, near: object) -> pd.DataFrame:
    """Return the table of `twinned.solve`; errors name the options."""
    from twinned import solve

    names = predictor.twin.feature_labels()
    with messages.print_warnings(), messages.progress_bar() as begin_step:
        begin_step("searching")
        try:
            return solve(
                predictor.model,
                _goals(options.goal, predictor),
                near=near,
                fixed=dict(_fixed(text, names) for text in options.fix or ()),
                bounds=_by_name(options.bounds or (), "--bounds", "time:1..8"),
                constraints=options.constraint or [],
                n=options.n,
                confidence=options.confidence,
                batch=options.batch,
                random_state=options.seed,
            )
        except ValueError as error:
            message = re.sub(r"^\w+", lambda word: _OPTIONS.get(word[0], word[0]), str(error))
            raise ValueError(message) from error


def _by_name(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Texts such as the example, by the names before their colons.

    >>> _by_name(["time: 1..8"], "--bounds", "time:1..8")
    {'time': '1..8'}
    """
    pairs = [text.rpartition(":") for text in texts]
    if wrong := [text for name, _, text in pairs if not name]:
        raise ValueError(f"{option} must be such as {example}, not {wrong[0]!r}.")
    return {name.strip(): text.strip() for name, _, text in pairs}


def _goals(goals: list[str], predictor: TablePredictor) -> str | dict[str, str]:
    """The target of `solve`: a text, or one for each of several targets."""
    if predictor.twin.targets_:
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
