"""`twinned datasets`: list, fetch and show the data sets of the paper."""

import json
from collections.abc import Hashable
from operator import attrgetter
from typing import Annotated

import typer
from rich.console import Console

from twinned.app.cli.messages import make_table, progress_bar
from twinned.app.cli.options import AsJson, flag_option
from twinned.datasets import KEYS, STANDARD_KEYS, Dataset, fetch, info, load
from twinned.datasets.files import locate
from twinned.exceptions import IntegrityError

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "The nine data sets of the paper. Files are searched for in the folder of the environment "
        "variable TWINNED_DATA, then in the cache (TWINNED_CACHE), then downloaded; each is "
        "verified by its SHA-256. `fetch` and `show` also take the keys of the UCI standard "
        f"splits: {', '.join(STANDARD_KEYS)}."
    ),
)

N_FIRST_ROWS = 5


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the data sets: size, licence, and whether the file is at hand.

    "at hand" is where the file was found: TWINNED_DATA or cache; "built in" needs no file,
    "absent" would be downloaded, "refused" has the wrong SHA-256.

    Example: twinned datasets list
    """
    summaries = [_summary(info(key), _location(info(key))) for key in KEYS]
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


@app.command("show")
def show_command(
    key: Annotated[str, typer.Argument(help=f"One of {', '.join(KEYS)}, in any case.")],
    as_json: AsJson = False,
) -> None:
    """Show one data set: source, licence, columns, differences from the paper, first rows.

    The first rows are shown if the file is at hand; nothing is downloaded.

    Example: twinned datasets show RCL
    """
    record = info(key)
    _, location = locate(record)
    rows = None if location == "absent" else _first_rows(record)
    if as_json:
        details = _facts(record, "target", "columns", "source", "file", "sha256", "url", "notes")
        _print_json(_summary(record, location) | details | {"first_rows": rows})
    else:
        _print_record(record, location, rows)


def _print_record(record: Dataset, location: str, rows: list[dict[Hashable, float]] | None) -> None:
    # Plain lines that the terminal wraps: a URL or a hash stays whole when it is copied.
    typer.echo(f"{record.key}: {record.name}, {record.rows} rows, {record.features} features")
    typer.echo(f"target:   {record.target}\ncolumns:  {', '.join(record.columns)}")
    typer.echo(f"source:   {record.source}\nlicence:  {record.licence}")
    if record.file is not None:
        typer.echo(f"file:     {record.file} ({location}), SHA-256 {record.sha256}")
    for note in record.notes:
        typer.echo(f"note:     {note}")
    if rows is None:
        typer.echo(f"rows:     not at hand; `twinned datasets fetch {record.key}` downloads them")
        return
    typer.echo("first rows:")
    table = make_table(*map(str, rows[0]), left=0)
    for row in rows:
        table.add_row(*(f"{value:.6g}" for value in row.values()))
    Console().print(table)


def _first_rows(record: Dataset) -> list[dict[Hashable, float]]:
    X, y = load(record.key)
    return X.assign(**{record.target: y}).head(N_FIRST_ROWS).to_dict("records")


def _location(record: Dataset) -> str:
    # A file with a wrong hash must not hide the other eight; fetch and show report the error.
    try:
        return locate(record)[1]
    except IntegrityError:
        return "refused"


def _summary(record: Dataset, location: str) -> dict[str, object]:
    return _facts(record, "key", "name", "rows", "features", "licence") | {"at_hand": location}


def _facts(record: Dataset, *names: str) -> dict[str, object]:
    return dict(zip(names, attrgetter(*names)(record), strict=True))


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
