"""`python -m paper`: the paper's tables and figures, run here and set beside what it printed."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from paper import (
    EXPERIMENTS,
    STUDIES,
    Experiment,
    Records,
    Run,
    Study,
    expand,
    perform,
)
from paper.tables import as_markdown, comparison
from twinned._validation import check_choice
from twinned.cli._errors import exit_on_bad_input, print_message
from twinned.datasets import KEYS, PAPER_SEEDS, fetch

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
QuickResults = Annotated[bool, typer.Option("--quick", help="What `run --quick` made.")]
HERE = Path("paper/results")


@app.command("list")
def list_command(results: Results = HERE, as_json: AsJson = False) -> None:
    """List the experiments, their flavours, and how many splits have results.

    Example: python -m paper list
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
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--one-by-one",
            help="All networks of a study as one program; default: where JAX sees a GPU, and with "
            "--quick, there those of one data set.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786.")
    ] = None,
    results: Results = HERE,
) -> None:
    """Do what is not done yet, and keep a record of each run.

    Examples: python -m paper run T5 --flavour modern --splits 25;
    python -m paper run all --quick
    """
    with exit_on_bad_input():
        studies = _studies(_chosen(keys))
        for name in flavour or ():
            check_choice(
                "flavour", name, list(dict.fromkeys(f for s in studies for f in s.flavours))
            )
        seeds = list(PAPER_SEEDS)[: splits or (QUICK_SPLITS if quick else len(PAPER_SEEDS))]
        at_hand = _at_hand(datasets or list(KEYS)) if any(one.of_data for one in studies) else []
        wanted = flavour or (["modern"] if quick else None)
        todo = [
            (study, expand(study, name, at_hand, seeds, quick))
            for study in studies
            for name in study.flavours
            if wanted is None or name in wanted
        ]
        todo = [(study, runs) for study, runs in todo if runs]  # not every study has every data set
        if not todo:
            raise ValueError(f"{', '.join(keys)} has no runs on {', '.join(at_hand)}.")
        # a look is kept apart from what counts
        records = Records(results / "quick" if quick else results)
        together = quick or _has_accelerator() if together is None else together
        with _bar() as progress:
            for study, runs in todo:
                name = runs[0].flavour
                task = progress.add_task(f"{study.key} {name}", total=len(runs))

                def report(done: int, total: int, last: Run, task: object = task) -> None:
                    progress.update(task, completed=done)  # type: ignore[arg-type]

                perform(study, runs, records, together=together, scheduler=scheduler, report=report)
                progress.update(task, completed=len(runs))
                records.pack(study.key, name)


@app.command("show", no_args_is_help=True)
def show_command(
    key: Annotated[str, typer.Argument(help="An experiment, such as T5.")],
    flavour: Annotated[str | None, typer.Option(help="Default: the first it has.")] = None,
    quick: QuickResults = False,
    results: Results = HERE,
    as_json: AsJson = False,
) -> None:
    """Print a table: ours, the published figure, their ratio; or draw a figure.

    Examples: python -m paper show T5 --flavour modern; python -m paper show A
    """
    with exit_on_bad_input():
        one = _chosen([key])[0]
        name = flavour or one.flavours[0]
        check_choice("flavour", name, list(one.flavours))
        records = Records(results / "quick" if quick else results)
        found = _found(records, one, name, quick)
        if one.draw is not None:
            for place in one.draw(found, name).save(records.folder, f"{one.key}-{name}"):
                print(place)
            return
        assert one.table is not None  # an experiment is one or the other
        compared = comparison(one.key, one.table(found))
    if as_json:
        print(compared.to_json(orient="records", indent=2))
    else:
        print(as_markdown(one.key, one.title, name, compared))


@app.command("report")
def report_command(results: Results = HERE, quick: QuickResults = False) -> None:
    """Write every table (Markdown) and figure (SVG, PNG) that has records, beside them.

    Example: python -m paper report
    """
    with exit_on_bad_input():
        folder = results / "quick" if quick else results
        records, written = Records(folder), []
        for one in EXPERIMENTS.values():
            for name in one.flavours:
                try:
                    found = _found(records, one, name, quick)
                except ValueError:
                    continue
                place = folder / f"{one.key}-{name}"
                if one.table is not None:
                    compared = comparison(one.key, one.table(found))
                    text = as_markdown(one.key, one.title, name, compared)
                    place.with_suffix(".md").write_text(text, encoding="utf-8")
                    written.append(place.with_suffix(".md"))
                if one.draw is not None:
                    written += one.draw(found, name).save(folder, place.name)
        if not written:
            raise ValueError(f"There are no records in {folder}; see python -m paper run --help.")
    for place in written:
        print(place)


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
            print_message("note", f"{key} is left out: {error}")
        else:
            found.append(key)
    if not found:
        raise ValueError("No data set is at hand; see twinned datasets list.")
    return found


def _studies(chosen: list[Experiment]) -> list[Study]:
    """What must be run for some experiments, each once."""
    return [STUDIES[key] for key in dict.fromkeys(key for one in chosen for key in one.studies)]


def _found(records: Records, one: Experiment, flavour: str, quick: bool) -> dict[str, Any]:
    """Records of its studies, as they are configured now; those of an older config are not.

    Its first study must have some. Of the others what is there is shown.
    """
    found: dict[str, Any] = {}
    for key in one.studies:
        runs = expand(STUDIES[key], flavour, KEYS, PAPER_SEEDS, quick)
        wanted = {run.identity for run in runs}
        found[key] = [r for r in records.read(key, flavour) if r["identity"] in wanted]
        if not found[key] and len(found) == 1:
            raise ValueError(
                f"There are no records of {one.key} in the flavour {flavour} in {records.folder}; "
                f"make some with: python -m paper run {one.key} --flavour {flavour}"
                f"{' --quick' if quick else ''}."
            )
    return found


def _n_splits(records: Records, one: Experiment, flavour: str) -> int:
    """How many splits have all their results: of all data sets, in all studies."""
    wanted: dict[int, list[str]] = {}
    done: set[str] = set()
    for key in one.studies:
        for run in expand(STUDIES[key], flavour, KEYS, PAPER_SEEDS):
            wanted.setdefault(run.split, []).append(run.identity)
        done |= records.done(key, flavour)
    return sum(done.issuperset(identities) for identities in wanted.values())


def _has_accelerator() -> bool:
    import jax

    return jax.default_backend() != "cpu"


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
