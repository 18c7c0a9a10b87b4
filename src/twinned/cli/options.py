"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Table = Annotated[Path, typer.Argument(help="A CSV file with a header line.", metavar="TABLE")]
SavedModel = Annotated[
    Path, typer.Argument(help="A model saved by twinned fit or advise.", metavar="MODEL")
]
Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.")]
LogTarget = Annotated[
    bool, typer.Option("--log-target", help="Learn the logarithm of the target, as for prices.")
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        "-c",
        help="A column of numbers that are names, such as a postcode. May be repeated.",
        metavar="COLUMN",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", "-d", help="A column to leave out. May be repeated.", metavar="COLUMN"),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        help="A column that tells which rows belong together, such as a sample's number: a check "
        "leaves them out together. Nothing is learned from it.",
        metavar="COLUMN",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        "-l",
        help="A column that says what a row is called, such as an address: the page shows it. "
        "Nothing is learned from it.",
        metavar="COLUMN",
    ),
]
Separator = Annotated[
    str, typer.Option("--separator", help="What is between fields: , ; | or tab.", metavar="CHAR")
]


def check_seed(seed: int) -> int:
    """A seed that random numbers can be drawn by."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be between 0 and {2**32 - 1}, not {seed}.")
    return seed
