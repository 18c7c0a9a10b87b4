"""`twinned datasets`: list and fetch the data sets of the paper."""

from operator import attrgetter
from typing import Annotated

import typer

from twinned.app.cli.messages import make_table, print_result, progress_bar, table_lines
from twinned.app.cli.options import AsJson, flag_option

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    help=(
        "The nine data sets of the paper. Files are searched for in the folder of the environment "
        "variable TWINNED_DATA, then in the cache (TWINNED_CACHE), then downloaded; each is "
        "verified by its SHA-256. `fetch` also takes the keys of the UCI standard splits."
    ),
)


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the data sets: size and licence.

    Example: twinned datasets list
    """
    from twinned.datasets import KEYS, info

    names = ("key", "name", "rows", "features", "licence")
    table = make_table(*names, left=2)
    table.columns[-1].justify = "left"
    summaries = [dict(zip(names, attrgetter(*names)(info(key)), strict=True)) for key in KEYS]
    for summary in summaries:
        table.add_row(*map(str, summary.values()))
    print_result(summaries, "\n".join(table_lines(table)), as_json)


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
    from twinned.datasets import KEYS, fetch, info

    if all_sets == bool(keys):
        raise ValueError(f"give keys of data sets ({', '.join(KEYS)}) or --all.")
    # All keys are checked before the first download.
    wanted = dict.fromkeys(info(key).key for key in keys or KEYS)
    with progress_bar(len(wanted)) as begin_step:
        paths = {}
        for key in wanted:
            begin_step(f"fetching {key}")
            paths[key] = fetch(key)
    content = [{"key": key, "path": path and str(path)} for key, path in paths.items()]
    lines = [f"{key}\t{path or 'built in, needs no file'}" for key, path in paths.items()]
    print_result(content, "\n".join(lines), as_json)
