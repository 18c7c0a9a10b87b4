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
from typing import Annotated, ClassVar, get_type_hints

import typer

from twinned.app.tables.table import ReadOptions

_LONG_BUDGET = 1800.0  # seconds, in which all members of a small table are fitted thoroughly
KINDS = ("categorical", "numeric", "date")  # of a column, each an option
_NOT_WRITTEN = (".xls", ".ods", ".parquet", ".json", ".pdf", ".doc", ".docx", ".html")
column_option = partial(typer.Option, metavar="COLUMN")
# below the options that most calls need, in the help of a command
advanced_option = partial(typer.Option, rich_help_panel="Advanced")
_reading_option = partial(advanced_option, show_default=False)
# without a metavar, typer shows a flag as an option that takes a value
flag_option = partial(typer.Option, metavar="")
json_option = partial(advanced_option, "--json", metavar="")
seed_option = partial(advanced_option, metavar="N", min=0, max=2**32 - 1)
output_option = partial(typer.Option, "--output", "-o")
table_argument = partial(typer.Argument, metavar="TABLE")

SavedModel = Annotated[
    Path, typer.Argument(help="A model saved by twinned fit or advise.", metavar="MODEL")
]
NearFile = Annotated[Path | None, typer.Option("--near", metavar="FILE")]
KeyFile = Annotated[
    Path | None,
    advanced_option("--key-file", metavar="FILE", help="File of the secret key of its signature."),
]
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
class TableOptions:
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

    separator: Annotated[str | None, _reading_option(metavar="CHAR")] = None
    decimal: Annotated[str | None, _reading_option(metavar=".|,")] = None
    thousands: Annotated[str | None, _reading_option(metavar="CHAR")] = None
    encoding: Annotated[str | None, _reading_option(metavar="NAME")] = None
    sheet: Annotated[str | None, _reading_option(metavar="SHEET")] = None
    header_row: Annotated[int | None, _reading_option(metavar="N", min=1)] = None
    missing: Annotated[list[str] | None, _reading_option(metavar="TEXT")] = None

    @property
    def reading(self) -> ReadOptions:
        return ReadOptions(
            separator=self.separator,
            decimal=self.decimal,
            thousands=self.thousands,
            encoding=self.encoding,
            sheet=self.sheet,
            header_row=self.header_row,
            missing=frozenset(map(str.casefold, self.missing or ())),
        )


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
    lower_bound
        The least possible value of the target, for cells such as <5: 0 for a concentration. It is
        0 by default if all values are positive; -inf is none.
    categorical
        A column of numbers that are categories, such as a postcode. May be repeated.
    numeric
        A column to use as a numeric feature although it counts the rows, such as the time of a
        regular measurement. May be repeated.
    date
        A column of dates: days since 1970, month, weekday and hour become features, as far as they
        vary. May be repeated.
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
    coordinates
        Two or three columns of places, such as lat,lon: blocks of near rows are held out together,
        as with --group, so that errors are those of new places. They stay features.
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
    lower_bound: Annotated[float | None, advanced_option(metavar="NUMBER")] = None
    categorical: Annotated[list[str] | None, column_option("--categorical", "-c")] = None
    numeric: Annotated[list[str] | None, advanced_option(metavar="COLUMN")] = None
    date: Annotated[list[str] | None, column_option()] = None
    drop: Annotated[list[str] | None, column_option("--drop", "-d")] = None
    group: Annotated[str | None, column_option("--group", "-g")] = None
    error: Annotated[str | None, advanced_option(metavar="COLUMN")] = None
    time_column: Annotated[str | None, advanced_option(metavar="COLUMN")] = None
    coordinates: Annotated[str | None, advanced_option(metavar="LAT,LON")] = None
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
        coordinates = (self.coordinates or "").split(",")
        single = {
            "group": self.group,
            "time-column": self.time_column,
            "error": self.error,
            "batch": self.batch,
            "label": self.label,
        }
        return {option: [name] if name else [] for option, name in single.items()} | {
            "drop": self.drop or [],
            "categorical": self.categorical or [],
            "numeric": self.numeric or [],
            "date": self.date or [],
            "coordinates": [name.strip() for name in coordinates if name],
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
    key_file: KeyFile = None
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


<<<<<<< HEAD
@dataclass(frozen=True, kw_only=True)
class ResultColumns:
    """The columns of a result besides the prediction: options of `twinned predict`.

    Parameters
    ----------
    std
        Add the standard deviation: of the errors, where the model was cross-validated, or else of
        the anchors' estimates, which is not calibrated. After --log-target it is that of the
        target by the delta method: the prediction times the standard deviation of the logarithm.
    interval
        Add the ends, low and high, of prediction intervals with this confidence, such as 0.9. The
        model must have been cross-validated when it was fitted.
    of
        measurement, for intervals and quantiles of a further measurement of the row, or value, for
        those of the value that is measured, after a fit with --error.
    quantiles
        Add quantiles of the predictive distribution at these probabilities, such as 0.05,0.5,0.95,
        as columns q0.05, q0.5 and q0.95. The model must have been cross-validated, too.
    applicability
        Add the column applicability: whether the row is inside, at the edge or outside of the
        known rows. Outside, the prediction is an extrapolation. A row with a category that no
        known row has is outside.
    bounds
        The least and the largest possible value of the target, such as 0 100 for a yield in %, or
        0 inf: predictions and intervals are cut there.
    keep
        A column of the table to copy, such as an identifier. May be repeated.
    """

    std: Annotated[bool, flag_option("--std")] = False
    interval: Annotated[float | None, typer.Option(metavar="P")] = None
    of: Annotated[str, typer.Option(metavar="measurement|value")] = "measurement"
    quantiles: Annotated[str | None, typer.Option(metavar="P,P,…")] = None
    applicability: Annotated[bool, flag_option("--applicability")] = False
    bounds: Annotated[
        tuple[float, float] | None, typer.Option("--bounds", metavar="LOW HIGH", show_default=False)
    ] = None
    keep: Annotated[list[str] | None, column_option()] = None

    def validate(self) -> None:
        """Raise a ValueError for an interval or bounds that are impossible."""
        if self.interval is not None and not 0 < self.interval < 1:
            given = f"{self.interval:g}"
            raise ValueError(f"--interval must be between 0 and 1, such as 0.9, not {given}.")
        try:
            levels = list(self.levels.values())
        except ValueError:
            levels = [0.0]
        if not all(0 < level < 1 for level in levels):
            raise ValueError("--quantiles must be between 0 and 1, such as 0.05,0.5,0.95.")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            low, high = self.bounds
            raise ValueError(f"--bounds {low:g} {high:g}: the first must be less.")

    @property
    def levels(self) -> dict[str, float]:
        """The probabilities of quantiles by the names of their columns."""
        given = [] if self.quantiles is None else self.quantiles.split(",")
        return {f"q{part.strip()}": float(part) for part in given}

    @property
    def copied(self) -> list[str]:
        """The columns to copy."""
        return self.keep or []


# --- the commands -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AdviseOptions(TrainingOptions):
    """Recommend a model for a table, and state whether twinning helps.

    Twins, networks, trees, Gaussian processes and ridge regression are cross-validated on the same
    folds, as many as fit into the budget. The recommended model is the best that was found: a blend
    of several of them, or a single one. All errors are errors of held-out rows.

    For example:

        twinned advise houses.csv --target price --report advice.html

        twinned advise houses.csv --target price --log-target --budget 2m -o houses.twin

        twinned advise houses.csv --target price --test offers.csv

        twinned advise sales.xlsx --sheet 2024 --target price --label address -r advice.html

    Parameters
    ----------
    report
        The HTML report to write: advice.html. With several targets, one for each, such as
        advice-yield.html.
    output
        The recommended model to write: model.twin.
    test
        A table of rows to predict later: a finding reports how many lie outside of the training
        rows.
    budget
        About how long it may take, of which 6 %, at least 1.5 s, are for checks and the report.
        Models that would take longer are fitted with less effort or skipped, as are checks; from
        30 minutes on, models have more effort. The default is 60 seconds. Several targets share it.
    seed
        The same seed gives the same advice, if the same checks fit into the time.
    as_json
        Print the report as JSON; with several targets, a line for each.
    """

    report: Annotated[Path | None, typer.Option("--report", "-r")] = None
    output: Annotated[Path | None, output_option()] = None
    test: Annotated[Path | None, typer.Option(metavar="TABLE")] = None
    seed: Annotated[int, seed_option()] = 0
    as_json: Annotated[bool, json_option()] = False

    def of_each_target(self) -> list["AdviseOptions"]:
        """The options of each of several targets, for which the others are no features."""
        if self.output is not None:
            raise ValueError("-o needs one --target; twinned fit saves a model of several.")
        parts, budget = [], f"{self.seconds / len(self.targets):.3f}s"
        for name in self.targets:
            drop = [*(self.drop or ()), *(other for other in self.targets if other != name)]
            clean = re.sub(r"[^\w.-]+", "_", name)
            report = self.report and self.report.with_stem(f"{self.report.stem}-{clean}")
            parts.append(replace(self, targets=[name], drop=drop, budget=budget, report=report))
        return parts


@dataclass(frozen=True, kw_only=True)
class FitOptions(TrainingOptions):
    """Fit a model to a table and save it.

    The table is a CSV, Excel or Parquet file. Separator, encoding, decimal commas, thousands
    separators, the sheet and the row with the names of the columns are detected and reported.
    Columns of text become categorical features. Row counters, texts that differ in most rows and
    dates are not used; a note names each and the option that uses it. A missing value is an empty
    cell, NA, n/a, NaN, null, None, ? or -. A cell such as <5 of a feature is read as half the
    limit, and a further feature marks it. In the target, <5 and >100 are censored labels: values
    that are only known to lie below or above a limit; <5 is at least 0 if all values are positive.
    Rows without a value of the target or of any feature are not used.

    Twins, networks, trees, Gaussian processes and ridge regression are cross-validated on the same
    folds and blended; the output has their errors and whether twins help. The model is the one that
    twinned advise recommends within the same time; without its checks and report, there is a little
    more time for the members. Of several targets, each has a blend of all members, on the same
    folds. With another --model, a single twin is fitted and compared with its
    plain base estimator.

    For example:

        twinned fit houses.csv --target price -o houses.twin

        twinned fit houses.csv --target price --log-target --drop id -o houses.twin

        twinned fit houses.csv --target price --budget 10m -o houses.twin

        twinned fit houses.csv --target price --model forest -c postcode -o houses.twin

        twinned fit sales.xlsx --sheet 2024 --target price --date sold --group street -o sales.twin

        twinned fit assay.csv --target content --batch laboratory -o assay.twin

    Parameters
    ----------
    output
        File of the model, such as model.twin.
    model
        auto, the model that twinned advise recommends: a blend of twins, networks, trees, Gaussian
        processes and ridge regression, or one of them; or twin, a twin of gradient boosting; or the
        base estimator of another twin: forest, extra-trees, boost, knn, ridge, neural.
    pairs
        The training pairs: all, M random partners for each row, or auto, which bounds time and
        memory (8 partners for knn).
    anchors
        The anchors of a prediction: all rows, or the K nearest. Distances are computed on the
        columns as they are, so scale them first.
    budget
        With --model auto: about how long the fit may take. Members that would take too long are
        fitted with less effort or skipped; from 30 minutes on, they have more effort. The default
        is 5 minutes.
    jobs
        Number of threads; the default is all cores for --model auto, and 1 for twins.
    seed
        The same seed gives the same model, if the same members fit into the time.
    check
        Cross-validate a twin and its plain base estimator, which takes several times as long as
        the fit. Prediction intervals need it. --model auto always does.
    """

    output: Annotated[Path, output_option()]
    model: Annotated[str, typer.Option("--model", "-m", metavar="NAME")] = "auto"
    default_budget: ClassVar[str] = "5m"
    pairs: Annotated[str, advanced_option(metavar="auto|all|M")] = "auto"
    anchors: Annotated[str, advanced_option(metavar="all|K")] = "all"
    jobs: Annotated[int | None, advanced_option("--jobs", "-j", min=1, metavar="N")] = None
    seed: Annotated[int, seed_option()] = 0
    check: Annotated[bool, advanced_option("--check/--no-check", metavar="")] = True
    key_file: KeyFile = None
    as_json: AsJson = False

    @property
    def is_blend(self) -> bool:
        return self.model == "auto"

    @property
    def n_anchors(self) -> int | None:
        """The number of nearest anchors, None for all."""
        return None if self.anchors == "all" else int(self.anchors)

    def validate(self) -> None:
        """Raise a ValueError for values that no table allows."""
        if self.model not in MODELS:
            raise ValueError(f"--model must be one of {', '.join(MODELS)}, not {self.model}.")
        for option in ("budget", "batch"):
            if vars(self)[option] and not self.is_blend:
                raise ValueError(f"--{option} needs --model auto.")
        single = not self.is_blend or self.log_target or self.lower_bound or self.error
        if len(self.targets) > 1 and (single or self.batch):
            raise ValueError(
                "several targets need --model auto, without --log-target, --error, --batch and "
                "limits."
            )
        for option, value, words in (
            ("--pairs", self.pairs, ("auto", "all")),
            ("--anchors", self.anchors, ("all",)),
        ):
            if self.is_blend and value != words[0]:
                twin = "use a twin, such as --model twin"
                raise ValueError(f"{option} does not apply to --model auto; {twin}.")
            if value not in words and not (value.isdecimal() and int(value) > 0):
                choices = f"{', '.join(words)} or a positive whole number"
                raise ValueError(f"{option} must be {choices}, not {value!r}.")
        _ = self.seconds


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ResultColumns, BatchOptions):
    """Predict the rows of a table with a saved model.

    The table is a CSV, Excel or Parquet file; its notation of numbers is detected and reported, and
    need not be that of the training table. The columns of the table may be in any order; those that
    are not features of the model are ignored. The result has the columns of --keep, the column
    prediction, and std, low, high and applicability if requested; its rows are in the order of the
    table. With several targets, the names of these columns end with those of the targets, as in
    prediction_yield.

    For example:

        twinned predict houses.twin new.csv --std -o prices.csv

        twinned predict houses.twin new.csv --interval 0.9 --keep address

        twinned predict houses.twin new.xlsx --sheet 2025 -o prices.xlsx

        twinned predict assay.twin new.csv --batch instrument --known reference.csv

    The files of a folder or a pattern are predicted one after the other; -o is a folder with a CSV
    file for each:

        twinned predict houses.twin 'data/*.parquet' -o prices

    Parameters
    ----------
    table
        A CSV, Excel (.xlsx) or Parquet file with the features of the model; or a folder or a
        quoted pattern of such files, as 'data/*.parquet'.
    output
        File of the predictions, .csv or .xlsx; printed without it. Of several files, a folder.
    as_json
        Print JSON; with -o, without the predictions. Of several files, a line for each.
    """


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(BatchOptions):
    """Explain predictions by comparable known cases.

    For each row of the table, the known cases that are most like it are shown in a grid, one in
    each column: its known value, what each feature adds because it differs from this row, their
    sum, the adjusted value, and its weight. The last column has the means of all other cases. The
    weighted mean of the adjusted values is the prediction. Below the grid is that of the cases
    shown alone. A row at the edge of the known rows or outside of them is marked, as by
    twinned predict --applicability.

    For example:

        twinned explain yield.twin candidates.csv --rows 4

        twinned explain yield.twin candidates.csv --label sample --rows A12,A15 -k 3

        twinned explain yield.twin next.xlsx -o explained.xlsx

    Parameters
    ----------
    rows
        The rows to explain: lines of a CSV file or rows of an Excel file, such as 4 or 4,7-9 (the
        names of the columns are in the first), or names in the column of --label. May be repeated.
        All rows by default, of which the first ten are printed.
    k
        Number of known cases for each row.
    label
        A column of the table with the names of its rows. Known cases have the names that --label
        of twinned fit gave them.
    output
        File to write instead: a .csv or .xlsx table with one row for each known case and one for
        all other cases, or .json.
    """

    rows: Annotated[list[str] | None, typer.Option(metavar="ROWS")] = None
    k: Annotated[int, typer.Option("-k", min=1, metavar="K")] = 5
    label: Annotated[str | None, column_option("--label", "-l")] = None


@dataclass(frozen=True, kw_only=True)
class QueryOptions(SavedModelOptions):
    """Select the rows of a table to measure next, with a saved model.

    The result has the selected rows with all columns of the table, the most useful first, and the
    columns row (the line of a CSV file, or the row of an Excel or Parquet file), prediction, std,
    which is calibrated where the model is, and probability_better: that a measurement of the row is
    better than the best known value. After --log-target, the improvement is that of the logarithm.

    For example:

        twinned query yield.twin candidates.csv -n 8 -o next.csv

        twinned query cost.twin candidates.csv -n 4 --minimize --pending next.csv

    Parameters
    ----------
    table
        A CSV, Excel (.xlsx) or Parquet file with the candidates: rows with the features of the
        model.
    n
        Number of rows to select, which are measured together.
    strategy
        improvement (expected improvement on the best known value) or thompson, to find the best
        row; uncertainty, to learn the target everywhere.
    minimize
        The smallest value is the best.
    best
        The value to improve on. Without it, the best known value; limits such as <0.5 are not
        known values.
    pending
        A file of rows that are being measured, such as an earlier result: none of them is
        selected, nor rows like them.
    output
        File of the selected rows, .csv or .xlsx; printed without it.
    batch
        The batch in which the rows will be measured, such as the name of a laboratory, of a model
        that was fitted with batches. The best known value is that of all batches, in this one.
    seed
        Seed of the joint samples.
    """

    n: Annotated[int, typer.Option("-n")] = 1
    strategy: Annotated[str, typer.Option(metavar="NAME")] = "improvement"
    minimize: Annotated[bool, flag_option("--minimize")] = False
    best: Annotated[float | None, typer.Option(metavar="VALUE")] = None
    pending: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    batch: Annotated[str | None, typer.Option("--batch", "-b", metavar="NAME")] = None
    seed: Annotated[int, seed_option()] = 0


@dataclass(frozen=True, kw_only=True)
class SolveOptions(SavedModelOptions):
    """Find inputs whose predicted target is as wanted, with a saved model.

    The answer is a table with one column for each proposal: the inputs and, in brackets, how they
    differ from the row of --near, or else from the nearest known row; the predicted value with its
    interval, the probability that a measurement reaches the goal, and whether the row is inside of
    the known rows. Proposals differ from each other. Where none reaches the goal, the closest rows
    are shown with a warning.

    For example:

        twinned solve alloy.twin --goal ">=60"

        twinned solve alloy.twin --goal ">=60" --near row.csv --fix temperature --confidence 0.9

        twinned solve mix.twin --goal 45..50 --bounds "time:1..8" --sum-to "a,b,c=100" -o new.xlsx

        twinned solve both.twin --goal "hardness:>=60" --goal cost:min

    Parameters
    ----------
    goal
        The wanted target: 60, 45..50, ">=60", "<=5", max or min. Of a model of several targets, the
        name of one and its goal, such as "yield:>=60"; may be repeated.
    table
        A file with one row: the present inputs, which are to change little.
    fix
        A column that keeps the value of --near, or a value, as in "temperature=180". May be
        repeated.
    bounds
        The range of a numeric column, such as "time:1..8"; that of the known rows by default. May
        be repeated.
    sum_to
        Columns with a fixed sum, such as "a,b,c=100". May be repeated.
    constraint
        A linear equation or inequality of columns, such as "a + 2 b <= 5". May be repeated.
    n
        Number of proposals.
    confidence
        The interval with this confidence must reach the goal, such as 0.9, not only the prediction.
    batch
        The batch in which rows will be measured, of a model that was fitted with batches.
    seed
        Seed of the search.
    """

    goal: Annotated[list[str], typer.Option("--goal", metavar="GOAL")]
    table: NearFile = None  # type: ignore[assignment]
    fix: Annotated[list[str] | None, column_option("--fix")] = None
    bounds: Annotated[list[str] | None, typer.Option("--bounds", metavar="COLUMN:LOW..HIGH")] = None
    sum_to: Annotated[list[str] | None, typer.Option("--sum-to", metavar="COLUMNS=SUM")] = None
    constraint: Annotated[list[str] | None, typer.Option("--constraint", metavar="TEXT")] = None
    n: Annotated[int, typer.Option("-n", min=1)] = 5
    confidence: Annotated[float | None, typer.Option("--confidence", metavar="P")] = None
    batch: Annotated[str | None, typer.Option("--batch", "-b", metavar="NAME")] = None
    seed: Annotated[int, seed_option()] = 0


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Export a saved model to a file that runs without Python.

    Prints the size of the file, the type of the numeric inputs of an ONNX file, and the largest
    difference of its predictions to those of the model, on the stored anchors (of an ONNX file,
    where onnxruntime is installed).

    For example:

        twinned export houses.twin -o houses.onnx

        twinned export houses.twin -o houses.onnx --outputs mean --confidence 0.9

        twinned export houses.twin -o houses.h --anchors 32

        twinned export blend.twin -o blend.h --member tree_twin

    Parameters
    ----------
    output
        File to write; its suffix sets the format: .onnx or .h (C).
    outputs
        Outputs of the exported model.
    confidence
        Also export the ends, lower and upper, of prediction intervals with this confidence, such
        as 0.9. The model must have been cross-validated when it was fitted.
    anchors
        Number of anchors to store, chosen so that they predict as all do.
    member
        Export this member of a blend instead of the blend, such as tree_twin: C has no blends.
    dtype
        ONNX: type of the numeric inputs, float64 (the default) or float32.
    """

    model: SavedModel
    output: Annotated[Path, output_option()]
    outputs: Annotated[str, typer.Option(metavar="NAMES")] = "mean,std"
    confidence: Annotated[float | None, typer.Option(metavar="P")] = None
    anchors: Annotated[int | None, typer.Option(metavar="N", min=1)] = None
    member: Annotated[str | None, typer.Option(metavar="NAME")] = None
    dtype: Annotated[str | None, typer.Option(metavar="TYPE")] = None
    key_file: KeyFile = None
    as_json: AsJson = False


_APPLYING = PredictOptions, ExplainOptions, QueryOptions, SolveOptions
COMMANDS = AdviseOptions, FitOptions, *_APPLYING, ExportOptions


=======
>>>>>>> app
# --- checks of values ---------------------------------------------------------------------------


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
