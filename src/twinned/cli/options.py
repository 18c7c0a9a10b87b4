"""Arguments and options shared by several commands."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

_column_option = partial(typer.Option, metavar="COLUMN")

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
    _column_option(
        "--categorical",
        "-c",
        help="A column of numbers that are categories, such as a postcode. May be repeated.",
    ),
]
Drop = Annotated[
    list[str] | None, _column_option("--drop", "-d", help="A column to exclude. May be repeated.")
]
Group = Annotated[
    str | None,
    _column_option(
        "--group",
        "-g",
        help="A column of groups of rows, such as the number of a sample: the rows of a group are "
        "in the same fold of the cross-validation. It is not a feature.",
    ),
]
Label = Annotated[
    str | None,
    _column_option(
        "--label",
        "-l",
        help="A column with the names of the rows, such as an address, to show in the report. It "
        "is not a feature.",
    ),
]
Keep = Annotated[
    list[str] | None,
    _column_option(
        "--keep", help="A column of the table to copy, such as an identifier. May be repeated."
    ),
]
Separator = Annotated[
    str, typer.Option("--separator", help="Field separator: , ; | or tab.", metavar="CHAR")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help="A file with the secret key of the signature of the model.",
        metavar="FILE",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def read_key(path: Path | None) -> bytes | None:
    """Return the content of a key file, without the line break at its end."""
    if path is None:
        return None
    if not path.is_file():
        raise FileNotFoundError(f"--key-file: there is no file {path}.")
    key = path.read_bytes().rstrip(b"\r\n")
    if not key:
        raise ValueError(f"--key-file: {path} is empty.")
    return key


def check_seed(seed: int) -> None:
    """Raise a ValueError for a seed that NumPy does not accept."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be between 0 and {2**32 - 1}, not {seed}.")


def parse_seconds(option: str, text: str) -> float:
    """Return a time as seconds.

    >>> [parse_seconds("--budget", text) for text in ("90", "60s", "2m", "2min")]
    [90.0, 60.0, 120.0, 120.0]
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min)?", text.strip())
    if not found or float(found[1]) == 0:
        raise ValueError(f"{option} must be a time such as 60s or 2m, not {text!r}.")
    return float(found[1]) * (60.0 if found[2] in ("m", "min") else 1.0)
