"""`twinned reproduce`: the paper's tables and figures, run here and set beside what it printed."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from twinned._validation import check_choice
from twinned.cli._errors import one_clear_line, say
from twinned.datasets import KEYS, PAPER_SEEDS, fetch
from twinned.experiments import EXPERIMENTS, Experiment, Records, Run, expand, perform
from twinned.experiments.tables import as_markdown, comparison

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "The paper's tables and figures. Every finished run is kept as a record: what is stopped "
        "or killed goes on where it was."
    ),
)

QUICK_SPLITS = 3
Results = Annotated[Path, typer.Option(help="Folder of the records.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
HERE = Path("paper/results")


@app.command("list")
def list_command(results: Results = HERE, as_json: AsJson = False) -> None:
    """List the experiments, their flavours, and how many splits have results.

    Example: twinned reproduce list
    """
    records = Records(results)
    rows: list[dict[str, Any]] = [
        {
            "key": one.key,
            "kind": one.kind,
            "title": one.title,
            "flavours": list(one.flavours),
            "splits": {name: _n_splits(records, one, name) for name in one.flavours},
        }
        for one in EXPERIMENTS.values()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("key", "kind", "what", "flavours: splits with results"):
        table.add_column(heading)
    for row in rows:
        splits = ", ".join(f"{name}: {count}" for name, count in row["splits"].items())
        table.add_row(row["key"], row["kind"], row["title"], splits)
    Console().print(table)


@app.command("run", no_args_is_help=True)
def run_command(
    keys: Annotated[list[str], typer.Argument(help="Experiments, such as T5 F; or all.")],
    flavour: Annotated[
        list[str] | None, typer.Option(help="as_published, as_written or modern; default: all.")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(min=1, max=25, help="How many of the paper's 25.")
    ] = None,
    datasets: Annotated[
        list[str] | None, typer.Option(help="Keys of data sets; default: all nine.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Small settings, three splits: a look.")] = False,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786.")
    ] = None,
    results: Results = HERE,
) -> None:
    """Do what is not done yet, and keep a record of each run.

    Examples: twinned reproduce run T5 --flavour modern --splits 25;
    twinned reproduce run all --quick
    """
    with one_clear_line():
        chosen = _chosen(keys)
        if "all" in keys:
            chosen = [one for one in chosen if not flavour or set(flavour) & set(one.flavours)]
        seeds = list(PAPER_SEEDS)[: splits or (QUICK_SPLITS if quick else len(PAPER_SEEDS))]
        at_hand = _at_hand(datasets or list(KEYS)) if any(one.of_data for one in chosen) else []
        todo = [
            (one, runs)
            for one in chosen
            for name in (flavour or one.flavours)
            if "all" not in keys or name in one.flavours
            if (runs := expand(one, name, at_hand, seeds, quick))
        ]
        # a look is kept apart from what counts
        records = Records(results / "quick" if quick else results)
        with _bar() as progress:
            for one, runs in todo:
                task = progress.add_task(f"{one.key} {runs[0].flavour}", total=len(runs))

                def report(done: int, total: int, last: Run, task: object = task) -> None:
                    progress.update(task, completed=done)  # type: ignore[arg-type]

                perform(one, runs, records, scheduler=scheduler, report=report)
                progress.update(task, completed=len(runs))
                records.pack(one.key, runs[0].flavour)


@app.command("show", no_args_is_help=True)
def show_command(
    key: Annotated[str, typer.Argument(help="An experiment, such as T5.")],
    flavour: Annotated[str | None, typer.Option(help="Default: the first it has.")] = None,
    quick: Annotated[bool, typer.Option(help="What `run --quick` made.")] = False,
    results: Results = HERE,
    as_json: AsJson = False,
) -> None:
    """Print a table: ours, the published figure, their ratio.

    Example: twinned reproduce show T5 --flavour modern
    """
    with one_clear_line():
        one = _chosen([key])[0]
        if one.kind != "table":
            raise ValueError(f"{one.key} is a {one.kind}; only tables can be shown so far.")
        name = flavour or one.flavours[0]
        check_choice("flavour", name, list(one.flavours))
        records = Records(results / "quick" if quick else results)
        compared = comparison(records, one.key, name, _identities(one, name, quick))
    if as_json:
        print(compared.to_json(orient="records", indent=2))
    else:
        print(as_markdown(one.key, one.title, name, compared))


def _chosen(keys: list[str]) -> list[Experiment]:
    if "all" in keys:
        return list(EXPERIMENTS.values())
    for key in keys:
        check_choice("experiment", key, list(EXPERIMENTS))
    return [EXPERIMENTS[key] for key in keys]


def _at_hand(datasets: list[str]) -> list[str]:
    """The data sets that can be had; of the others it is said what is missing."""
    found = []
    for key in datasets:
        try:
            fetch(key)
        except OSError as error:
            say("note", f"{key} is left out: {error}")
        else:
            found.append(key)
    if not found:
        raise ValueError("No data set is at hand; see twinned datasets list.")
    return found


def _n_splits(records: Records, one: Experiment, flavour: str) -> int:
    wanted = _identities(one, flavour, quick=False)
    found = [record for record in records.read(one.key, flavour) if record["identity"] in wanted]
    return len({record["config"]["split"] for record in found})


def _identities(one: Experiment, flavour: str, quick: bool) -> set[str]:
    """Of all runs as they are now."""
    return {run.identity for run in expand(one, flavour, KEYS, PAPER_SEEDS, quick)}


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
