"""Command line of the reproduction."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import inf
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from paper.conclusions import evaluate
from paper.experiments import (
    EXPERIMENTS,
    STUDIES,
    Experiment,
    current_records,
    draw_figure,
    table_text,
)
from paper.origins import study_seconds, total_time
from paper.page import CachedRecords, write_pages
from paper.quick import DATASETS, HEADER, quick_table, run_quick
from paper.records import Records, Trial
from paper.studies import Study, list_trials, run_study
from paper.tables import RecordsByStudy
from twinned.datasets import KEYS, PAPER_SEEDS, fetch
from twinned.rows.validation import check_choice

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "The paper's tables and figures. The result of every finished trial is stored as a record, "
        "so an interrupted run continues where it stopped."
    ),
)

DEFAULT_RESULTS = Path("paper/results")
Results = Annotated[Path, typer.Option(help="Folder of the records.")]


@app.command("list")
def list_command(results: Results = DEFAULT_RESULTS) -> None:
    """List the experiments, their variants, and how many splits have results.

    Example: python -m paper list
    """
    records = CachedRecords(results)

    @cache
    def complete_splits(study: str, variant: str) -> dict[int, bool]:
        return _complete_splits(records, STUDIES[study], variant)

    def count_splits(experiment: Experiment, variant: str) -> str:
        """Return how many splits have all their results, in all studies, of how many."""
        studies = [complete_splits(study, variant) for study in experiment.studies]
        splits = set().union(*studies)
        n_complete = sum(all(study.get(split, True) for study in studies) for split in splits)
        return f"{variant} {n_complete}/{len(splits)}"

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("item", "key", "title", "variants: complete splits of all"):
        table.add_column(heading)
    for own in EXPERIMENTS.values():
        splits = ", ".join(count_splits(own, name) for name in own.variants)
        table.add_row(own.item, own.key, own.title, splits)
    Console().print(table)
    print(f"By the seconds of these results, `run all` takes {total_time(study_seconds(records))}.")


@app.command("run", no_args_is_help=True)
def run_command(
    keys: Annotated[list[str], typer.Argument(help=f"Of {' '.join(EXPERIMENTS)}; or all.")],
    variant: Annotated[
        list[str] | None, typer.Option(help="as_published, as_written or modern; default: all.")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(min=1, max=25, help="How many of the paper's 25.")
    ] = None,
    datasets: Annotated[
        list[str] | None, typer.Option(help="Keys of data sets; default: all nine.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    minutes: Annotated[
        float, typer.Option(help="Start no trial later; run again to continue.")
    ] = inf,
    results: Results = DEFAULT_RESULTS,
) -> None:
    """Run the trials that have no record yet; `list` states how long all of them take.

    With a GPU, all networks of a study and data set are trained as one program.

    Examples: python -m paper run T5 --variant modern --splits 25; python -m paper run all
    """
    with _exit_on_bad_input():
        studies = _studies(_experiments(keys))
        possible = list(dict.fromkeys(name for study in studies for name in study.variants))
        for name in variant or ():
            check_choice("variant", name, possible)
        names = variant or possible
        seeds = PAPER_SEEDS[:splits]
        uses_datasets = any(study.uses_datasets for study in studies)
        available = _available(datasets or list(KEYS)) if uses_datasets else []
        work = [
            (study, name, list_trials(study, name, available, seeds))
            for study in studies
            for name in study.variants
            if name in names
        ]
        if not any(trials for _, _, trials in work):
            raise ValueError(
                f"{', '.join(keys)} has no trials on {', '.join(available)} in the variant "
                f"{', '.join(names)}."
            )
    records = Records(results)
    deadline = time.monotonic() + 60 * minutes
    with _progress_bar() as progress:
        for study, name, trials in work:
            if not trials:  # not every study has every data set
                continue
            n_finished = len(trials) - len(records.pending(trials))
            task = progress.add_task(f"{study.key} {name}", total=len(trials), completed=n_finished)

            def report(finished: int, total: int, last: Trial, task: Any = task) -> None:
                progress.update(task, completed=finished)

            run_study(
                study,
                trials,
                records,
                together=jax.default_backend() != "cpu",
                n_jobs=jobs,
                deadline=deadline,
                report=report,
            )
            records.pack(study.key, name)


@app.command("quick")
def quick_command(
    results: Annotated[Path, typer.Option(help="Folder of its records.")] = Path("out/paper/quick"),
) -> None:
    """Run one split of tables 1 to 3 and 5 as published, and print it beside record and paper.

    Takes four to five minutes of one core.

    Example: python -m paper quick
    """
    with _exit_on_bad_input():
        _available(list(dict.fromkeys(DATASETS.values())))
    with _progress_bar() as progress:
        task = progress.add_task("quick run")

        def report(finished: int, total: int, last: Trial) -> None:
            name = f"{last.study}, {last.dataset}"
            progress.update(task, completed=finished, total=total, description=name)

        run_quick(Records(results), report)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in HEADER:
        table.add_column(heading, overflow="fold")
    for row in quick_table(Records(results), Records(DEFAULT_RESULTS)):
        table.add_row(*row)
    Console().print(table)


@app.command("show", no_args_is_help=True)
def show_command(
    key: Annotated[str, typer.Argument(help="An experiment, such as T5.")],
    variant: Annotated[str | None, typer.Option(help="Default: the first it has.")] = None,
    results: Results = DEFAULT_RESULTS,
) -> None:
    """Print a table with our error, the published one and their ratio; or draw a figure.

    Examples: python -m paper show T5 --variant modern; python -m paper show A
    """
    records = Records(results)
    with _exit_on_bad_input():
        experiment = _experiments([key])[0]
        name = variant or experiment.variants[0]
        check_choice("variant", name, list(experiment.variants))
        found = _read(records, experiment, name)
        if not found:
            raise ValueError(
                f"There are no records of {key} in the variant {name} in {records.folder}; "
                f"create them: python -m paper run {key} --variant {name}."
            )
    if experiment.table is not None:
        print(table_text(experiment, found, name))
    elif experiment.draw is not None:
        panels = draw_figure(experiment, found, name)
        print(panels.save(records.folder, f"{key}-{name}"))


@app.command("conclusions")
def conclusions_command(results: Results = DEFAULT_RESULTS) -> None:
    """Print the paper's conclusions, and what the records show of each.

    Example: python -m paper conclusions
    """
    for number, (conclusion, outcomes) in enumerate(evaluate(Records(results)).items(), 1):
        print(f"{number}. “{conclusion.quote}” ({conclusion.source})")
        for name, outcome in outcomes.items():
            print(f"   {name}: {outcome.status}: {outcome.details}")


@app.command("page")
def page_command(results: Results = DEFAULT_RESULTS) -> None:
    """Write all tables beside the records, and figures and pages of the reproduction in docs.

    Example: python -m paper page
    """
    print(*write_pages(Records(results)), sep="\n")


def _experiments(keys: list[str]) -> list[Experiment]:
    if "all" in keys:
        return list(EXPERIMENTS.values())
    for key in keys:
        check_choice("experiment", key, list(EXPERIMENTS))
    return [EXPERIMENTS[key] for key in keys]


def _available(datasets: list[str]) -> list[str]:
    """Return the data sets that can be loaded; print a line for each of the others."""
    found = []
    for key in datasets:
        try:
            fetch(key)
        except OSError as error:
            _print_line("note", f"{key} is skipped: {error}")
        else:
            found.append(key)
    if not found:
        raise ValueError("No data set is available; see twinned datasets list.")
    return found


def _studies(experiments: list[Experiment]) -> list[Study]:
    """Return the studies of the experiments, each once."""
    keys = dict.fromkeys(key for experiment in experiments for key in experiment.studies)
    return [STUDIES[key] for key in keys]


def _read(records: Records, experiment: Experiment, variant: str) -> RecordsByStudy | None:
    """Return the records of an experiment's current trials; None where its first study has none."""
    found = {key: current_records(records, key, variant) for key in experiment.studies}
    return found if found[experiment.studies[0]] else None


def _complete_splits(records: Records, study: Study, variant: str) -> dict[int, bool]:
    """Return for each split of a study whether all of its trials have a record."""
    finished = records.finished(study.key, variant)
    complete: dict[int, bool] = {}
    for trial in list_trials(study, variant, KEYS, PAPER_SEEDS):
        complete[trial.split] = complete.get(trial.split, True) and trial.identity in finished
    return complete


@contextmanager
def _exit_on_bad_input() -> Iterator[None]:
    """Print an error of the user's input as one line and exit with code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        _print_line("error", str(error))
        raise typer.Exit(2) from None


def _print_line(kind: str, message: str) -> None:
    print(f"paper: {kind}: {' '.join(message.split())}", file=sys.stderr)


def _progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
