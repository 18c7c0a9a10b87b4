"""Arguments and options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

Table = Annotated[Path, typer.Argument(help="A CSV file with a header line.", metavar="TABLE")]
SavedModel = Annotated[
    Path, typer.Argument(help="A model saved by twinned fit or advise.", metavar="MODEL")
]
Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.")]
LogTarget = Annotated[
    bool, typer.Option("--log-target", help="Fit the logarithm of the target, as for prices.")
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        "-c",
        help="A column of numbers that are categories, such as a postcode. May be repeated.",
        metavar="COLUMN",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", "-d", help="A column to exclude. May be repeated.", metavar="COLUMN"),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        help="A column of groups of rows, such as the number of a sample: the rows of a group are "
        "in the same fold of the cross-validation. It is not a feature.",
        metavar="COLUMN",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        "-l",
        help="A column with the names of the rows, such as an address, to show in the report. It "
        "is not a feature.",
        metavar="COLUMN",
    ),
]
Separator = Annotated[
    str, typer.Option("--separator", help="Field separator: , ; | or tab.", metavar="CHAR")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def check_seed(seed: int) -> None:
    """Raise a ValueError for a seed that NumPy does not accept."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be between 0 and {2**32 - 1}, not {seed}.")
