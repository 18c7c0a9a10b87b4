"""Arguments and options that several commands have, their help, and checks of their values.

The options of a command are the fields of a dataclass: `Annotated` types as `typer` takes them, and
defaults. Its docstring is the help of the command, and has the help texts of the options as
parameters.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

from twinned.app.tables.reader import ReadOptions

_LONG_BUDGET = 1800.0  # seconds, in which all members of a small table are fitted thoroughly
KINDS = ("categorical", "numeric", "date", "smiles")  # of a column, each an option
_NOT_WRITTEN = (".xls", ".ods", ".parquet", ".json", ".pdf", ".doc", ".docx", ".html")
Facts = dict[str, Any]  # what is printed, by name
OptionMaker = partial[Any]  # of an option or argument with common settings
column_option: OptionMaker = partial(typer.Option, metavar="COLUMN")
# below the options that most calls need, in the help of a command
advanced_option: OptionMaker = partial(typer.Option, rich_help_panel="Advanced")
# without a metavar, typer shows a flag as an option that takes a value
flag_option: OptionMaker = partial(typer.Option, metavar="")
json_option: OptionMaker = partial(advanced_option, "--json", metavar="")
seed_option: OptionMaker = partial(advanced_option, metavar="N", min=0, max=2**32 - 1)
output_option: OptionMaker = partial(typer.Option, "--output", "-o")
table_argument: OptionMaker = partial(typer.Argument, metavar="TABLE")

SavedModel = Annotated[
    Path, typer.Argument(help="A model saved by twinned fit or advise.", metavar="MODEL")
]
NearFile = Annotated[Path | None, typer.Option("--near", metavar="FILE")]
AsJson = Annotated[bool, json_option(help="Print JSON.")]


def make_command(options: type, run: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command for `typer`, whose parameters are the fields of `options`.

    It calls `run` with an instance of the class. `FitOptions` are those of `twinned fit`. The help
    of the command is the docstring of the class. A field without a help text has that of its name
    in the docstring of the class or a parent.
    """
    hints = get_type_hints(options, include_extras=True)
    helps: dict[str, str] = {}
    for parent in reversed(options.__mro__):
        description, _, parameters = (inspect.getdoc(parent) or "").partition("\nParameters\n---")
        matches = re.findall(r"^(\w+)\n((?:    .+\n?)+)", parameters, re.MULTILINE)
        helps |= {field: " ".join(text.split()) for field, text in matches}
    signature = []
    for field in fields(options):
        info = copy(hints[field.name].__metadata__[0])
        if isinstance(info, str):  # of `ReadOptions`
            info = advanced_option(metavar=info, show_default=False)
        info.help = info.help or helps[field.name]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        annotation = Annotated[hints[field.name].__origin__, info]  # type: ignore[valid-type]
        parameter = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default)
        signature.append(parameter.replace(annotation=annotation))

    def command(**values: object) -> None:
        run(options(**values))

    command.__name__ = options.__name__.removesuffix("Options").lower()
    command.__doc__ = description
    command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    return command


@dataclass(frozen=True, kw_only=True)
class TableOptions(ReadOptions):
    """How the file of a table is read; what is None is detected.

    Parameters
    ----------
    separator
        Field separator of a text file: , ; | tab or space. Detected by default.
    decimal
        Decimal sign, a point or a comma, as in 3,14. Detected by default; 1,234 alone is ambiguous
        and needs this option or --thousands.
    thousands
        Separator of thousands, as in 1.234.567 or 1'234. Detected by default.
    encoding
        Encoding of a text file, such as utf-8, latin-1, cp1252 or utf-16. Detected by default.
    sheet
        Name or number of the sheet of an Excel file. By default the first whose first rows name the
        target or the features of the model, else the first that is not empty.
    header_row
        Number of the line or row with the names of the columns. By default the one that names the
        target or the most features of the model, of the first 20.
    missing
        Text of a missing value, such as n.d., besides empty cells, NA and others. May be repeated.
        A saved model does not store it.
    """


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(TableOptions):
    """Options of `twinned fit` and `twinned advise` that determine the training data.

    Parameters
    ----------
    table
        A CSV, Excel (.xlsx) or Parquet file; one of its first rows names the columns.
    targets
        The column to predict. May be repeated: a row is then used for the targets that it has.
    log_target
        Fit the logarithm of the target, as for prices.
    categorical
        A column of numbers that are categories, such as a postcode. May be repeated.
    numeric
        A column to use as a numeric feature although it counts the rows, such as the time of a
        regular measurement. May be repeated.
    date
        A column of dates: days since 1970, month, weekday and hour become features, as far as they
        vary. May be repeated.
    smiles
        A column of molecules as SMILES, which is replaced by their descriptors and counted
        fragments (needs pip install rdkit). May be repeated. The report and serve show pictures of
        comparable molecules where the SMILES are the names of the rows, as without --label.
    drop
        A column to exclude. May be repeated.
    group
        A column of groups of rows, such as the number of a sample: the rows of a group are in the
        same fold of the cross-validation, so that errors, intervals and applicability are those of
        new groups. It is not a feature.
    error
        A column with the standard deviations of the errors of measurement of the target, in its
        units. Accurate rows count more, and intervals tell the value from a further measurement.
        It is not a feature.
    time_column
        A column of dates or numbers by which the rows are in time: later rows are held out, and
        predicted by models of the earlier ones, so that errors and intervals are those of the
        future. It is a feature only with --date or --numeric.
    batch
        A column of batches of rows, such as laboratories, instruments or lots, whose values of the
        target have unknown offsets. They are estimated and removed, so that differences between
        rows of different batches are those of their features. It is not a feature. fit needs
        --model auto for it.
    label
        A column with the names of the rows, such as an address: the report, explain and serve show
        them, so the model stores them. It is not a feature.
    """

    table: Annotated[Path, table_argument()]
    targets: Annotated[list[str], typer.Option("--target", "-t")]
    log_target: Annotated[bool, flag_option("--log-target")] = False
    categorical: Annotated[list[str] | None, column_option("--categorical", "-c")] = None
    numeric: Annotated[list[str] | None, advanced_option(metavar="COLUMN")] = None
    date: Annotated[list[str] | None, column_option()] = None
    smiles: Annotated[list[str] | None, advanced_option(metavar="COLUMN")] = None
    drop: Annotated[list[str] | None, column_option("--drop", "-d")] = None
    group: Annotated[str | None, column_option("--group", "-g")] = None
    error: Annotated[str | None, advanced_option(metavar="COLUMN")] = None
    time_column: Annotated[str | None, advanced_option(metavar="COLUMN")] = None
    batch: Annotated[str | None, column_option("--batch", "-b")] = None
    label: Annotated[str | None, column_option("--label", "-l")] = None
    budget: Annotated[str | None, typer.Option(metavar="60s|2m")] = None
    default_budget: ClassVar[str] = "60s"

    @property
    def target(self) -> str:
        """The only column to predict."""
        if len(self.targets) > 1:
            raise ValueError(f"this needs one --target, not {len(self.targets)}.")
        return self.targets[0]

    @property
    def seconds(self) -> float:
        """The time budget of a blend."""
        return parse_budget(self.budget or self.default_budget)

    @property
    def effort(self) -> str:
        """The largest effort of the members of a blend; short budgets allow less."""
        return "thorough" if self.seconds >= _LONG_BUDGET else "balanced"

    def named_columns(self) -> dict[str, list[str]]:
        """Return the columns that each option names."""
        names = ("group", "time_column", "error", "batch", "label", "drop", *KINDS)
        values = {name.replace("_", "-"): vars(self)[name] for name in names}
        return {
            option: [value] if isinstance(value, str) else value or []
            for option, value in values.items()
        }


@dataclass(frozen=True, kw_only=True)
class SavedModelOptions(TableOptions):
    """Options of the commands that apply a saved model to the rows of a table.

    Parameters
    ----------
    table
        A CSV, Excel (.xlsx) or Parquet file with the features of the model.
    output
        File of the result, .csv or .xlsx; printed without it.
    digits
        Significant digits of numbers in CSV and Excel; 17 are all.
    as_json
        Print JSON; with -o, without the rows.
    """

    model: SavedModel
    table: Annotated[Path, table_argument()]
    output: Annotated[Path | None, output_option()] = None
    digits: Annotated[int, advanced_option(min=1, max=17, metavar="N")] = 6
    as_json: Annotated[bool, json_option()] = False

    def result_path(self, *inputs: Path | None) -> Path | None:
        """The resolved path of a table to write; a ValueError for files that are not written."""
        if self.output is None:
            return None
        if self.output.suffix.lower() in _NOT_WRITTEN:
            suffix = f"a {self.output.suffix} file cannot be written"
            raise ValueError(f"-o {self.output}: {suffix}; use .csv or .xlsx.")
        read = (self.model, self.table, *inputs)
        return check_output_path(self.output, [path for path in read if path is not None])


@dataclass(frozen=True, kw_only=True)
class BatchOptions(SavedModelOptions):
    """Options of the commands that predict rows of batches, for a model that was fitted with them.

    Parameters
    ----------
    batch
        The column with the batch of each row, such as the laboratory. By default the column of
        twinned fit --batch; without it, predictions are those of the mean of all batches.
    known
        A table of known rows with the target and the column of batches: a few rows of a new batch,
        such as an instrument, suffice to predict its other rows. The model file is not changed.
    """

    batch: Annotated[str | None, column_option("--batch", "-b")] = None
    known: Annotated[Path | None, typer.Option(metavar="TABLE")] = None


# --- checks of values ---------------------------------------------------------------------------


def parse_budget(text: str) -> float:
    """Return the time of `--budget` as seconds.

    >>> [parse_budget(text) for text in ("90", "60s", "2m", "2min")]
    [90.0, 60.0, 120.0, 120.0]
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min)?", text.strip())
    if not match or float(match[1]) == 0:
        raise ValueError(f"--budget must be a time such as 60s or 2m, not {text!r}.")
    return float(match[1]) * (60.0 if match[2] in ("m", "min") else 1.0)


def check_output_path(path: Path, inputs: Iterable[Path], option: str = "-o") -> Path:
    """Raise an error for an output path that cannot be written to, before any work is done.

    Returns the path with links resolved, so that the target of a link is replaced.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path} is a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{option} {path}: there is no folder {path.parent}; create it.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path} is not a regular file.")
    resolved = path.resolve()
    if any(resolved == source.resolve() for source in inputs):
        raise ValueError(f"{option} {path} would replace the input; give another name.")
    if not os.access(resolved.parent, os.W_OK):
        raise PermissionError(f"{option} {path}: the folder {path.parent} is not writable.")
    return resolved
