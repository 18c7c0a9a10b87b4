"""`twinned datasets`: list and fetch the data sets of the paper."""

import json
from operator import attrgetter
from typing import Annotated

import typer
from rich.console import Console

from twinned.app.cli.messages import make_table, progress_bar
from twinned.app.cli.options import AsJson, flag_option
from twinned.datasets import KEYS, STANDARD_KEYS, Dataset, fetch, info
from twinned.datasets.files import locate
from twinned.exceptions import IntegrityError

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "The nine data sets of the paper. Files are searched for in the folder of the environment "
        "variable TWINNED_DATA, then in the cache (TWINNED_CACHE), then downloaded; each is "
        "verified by its SHA-256. `fetch` also takes the keys of the UCI standard "
        f"splits: {', '.join(STANDARD_KEYS)}."
    ),
)


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the data sets: size, licence, and whether the file is at hand.

    "at hand" is where the file was found: TWINNED_DATA or cache; "built in" needs no file,
    "absent" would be downloaded, "refused" has the wrong SHA-256.

    Example: twinned datasets list
    """
    names = ("key", "name", "rows", "features", "licence")
    summaries = [
        dict(zip(names, attrgetter(*names)(info(key)), strict=True))
        | {"at_hand": _location(info(key))}
        for key in KEYS
    ]
    if as_json:
        _print_json(summaries)
        return
    table = make_table("key", "name", "rows", "features", "licence", "at hand", left=2)
    for column in table.columns[4:]:
        column.justify, column.no_wrap = "left", column.header == "at hand"
    for summary in summaries:
        table.add_row(*map(str, summary.values()))
    Console().print(table)


@app.command("fetch")
def fetch_command(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys, such as BC YH.")] = None,
    all_sets: Annotated[bool, flag_option("--all", help="Fetch all nine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download files, verify them, and print their paths.

    A file that is already at hand is verified, not downloaded again.

    Examples: twinned datasets fetch BC YH; twinned datasets fetch --all
    """
    paths = {}
    # All keys are checked before the first download.
    records = list(dict.fromkeys(info(key) for key in _selected_keys(keys, all_sets)))
    with progress_bar(len(records)) as begin_step:
        for record in records:
            begin_step(f"fetching {record.key}")
            paths[record.key] = fetch(record.key)
    if as_json:
        _print_json([{"key": key, "path": path and str(path)} for key, path in paths.items()])
        return
    for key, path in paths.items():
        typer.echo(f"{key}\t{path or 'built in, needs no file'}")


def _location(record: Dataset) -> str:
    # A file with a wrong hash must not hide the other eight; fetch reports the error.
    try:
        return locate(record)[1]
    except IntegrityError:
        return "refused"


def _selected_keys(keys: list[str] | None, all_sets: bool) -> list[str]:
    if all_sets and keys:
        raise ValueError(f"both --all and keys ({' '.join(keys)}) are given; give one of them.")
    if all_sets:
        return list(KEYS)
    if not keys:
        raise ValueError(f"no data set is named; give keys ({', '.join(KEYS)}) or --all.")
    return keys


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
