"""Arguments and options shared by several commands."""

import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

_column_option = partial(typer.Option, metavar="COLUMN")
# without a metavar, typer shows a flag as an option that takes a value
flag_option = partial(typer.Option, metavar="")

Table = Annotated[
    Path,
    typer.Argument(
        help="A CSV, Excel (.xlsx) or Parquet file; its first row names the columns.",
        metavar="TABLE",
    ),
]
SavedModel = Annotated[
    Path, typer.Argument(help="A model saved by twinned fit or advise.", metavar="MODEL")
]
Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.")]
LogTarget = Annotated[
    bool, flag_option("--log-target", help="Fit the logarithm of the target, as for prices.")
]
LowerBound = Annotated[
    float | None,
    typer.Option(
        "--lower-bound",
        help="The least possible value of the target, for cells such as <5: 0 for a concentration. "
        "It is 0 by default if all values are positive; -inf is none.",
        metavar="NUMBER",
        show_default=False,
    ),
]
Categorical = Annotated[
    list[str] | None,
    _column_option(
        "--categorical",
        "-c",
        help="A column of numbers that are categories, such as a postcode. May be repeated.",
    ),
]
Numeric = Annotated[
    list[str] | None,
    _column_option(
        "--numeric",
        help="A column to use as a numeric feature although it counts the rows, such as the time "
        "of a regular measurement. May be repeated.",
    ),
]
Date = Annotated[
    list[str] | None,
    _column_option(
        "--date",
        help="A column of dates: days since 1970, month, weekday and hour become features, as far "
        "as they vary. May be repeated.",
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
        help="A column with the names of the rows, such as an address: the report, explain and "
        "serve show them, so the model stores them. It is not a feature.",
    ),
]
Keep = Annotated[
    list[str] | None,
    _column_option(
        "--keep", help="A column of the table to copy, such as an identifier. May be repeated."
    ),
]
Digits = Annotated[
    int,
    typer.Option(
        "--digits",
        min=1,
        max=17,
        help="Significant digits of numbers in CSV and Excel; 17 are all.",
        metavar="N",
    ),
]
_reading_option = partial(typer.Option, rich_help_panel="Reading the table", show_default=False)
Separator = Annotated[
    str | None,
    _reading_option(
        "--separator",
        help="Field separator of a text file: , ; | tab or space. Detected by default.",
        metavar="CHAR",
    ),
]
Decimal = Annotated[
    str | None,
    _reading_option(
        "--decimal",
        help="Decimal sign, a point or a comma, as in 3,14. Detected by default; 1,234 alone is "
        "ambiguous and needs this option or --thousands.",
        metavar=".|,",
    ),
]
Thousands = Annotated[
    str | None,
    _reading_option(
        "--thousands",
        help="Separator of thousands, as in 1.234.567 or 1'234. Detected by default.",
        metavar="CHAR",
    ),
]
Encoding = Annotated[
    str | None,
    _reading_option(
        "--encoding",
        help="Encoding of a text file, such as utf-8, latin-1, cp1252 or utf-16. Detected by "
        "default.",
        metavar="NAME",
    ),
]
Sheet = Annotated[
    str | None,
    _reading_option(
        "--sheet",
        help="Name or number of the sheet of an Excel file; the first that is not empty by "
        "default.",
        metavar="SHEET",
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help="A file with the secret key of the signature of the model.",
        metavar="FILE",
    ),
]
AsJson = Annotated[bool, flag_option("--json", help="Print JSON.")]


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


def check_output_path(path: Path, inputs: Iterable[Path], option: str = "-o") -> Path:
    """Raise an error for an output path that cannot be written to, before any work is done.

    Returns the path with links resolved, so that the target of a link is replaced.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path} is a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{option} {path}: there is no folder {path.parent}; create it first."
        )
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path} is not a regular file.")
    resolved = path.resolve()
    if any(resolved == source.resolve() for source in inputs):
        raise ValueError(f"{option} {path} would replace the input; give another name.")
    if not os.access(resolved.parent, os.W_OK):
        raise PermissionError(f"{option} {path}: the folder {path.parent} is not writable.")
    return resolved
