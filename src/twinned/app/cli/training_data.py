"""Training data of a table: features, target, groups and labels, as the options specify."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from twinned.app.cli.options import KINDS, TrainingOptions
from twinned.app.tables import frames
from twinned.app.tables.columns import date_columns, numeric_column, parse_column, target_column
from twinned.app.tables.numbers import is_missing
from twinned.app.tables.reader import read_table, reading_note
from twinned.app.tables.table import Table, join_names
from twinned.rows.folds import ForwardFolds, encode_groups
from twinned.rows.training import TargetBounds
from twinned.rows.validation import check_batch_labels

# Words that begin a row below a table, in lower case.
_SUMMARIES = {"mean", "average", "median", "sum", "total", "min", "max", "sd", "std", "mittelwert"}


@dataclass(frozen=True)
class TrainingData:
    """Features, target in its own units, and the groups of the rows, if there are any.

    The index of `X` has the cells of `--label`, or of `--smiles`, or the lines or rows of the file.
    `y` is NaN where a cell of the target is a limit, such as <5; `arguments` are further ones of
    `fit`, (row,) each: then `y_lower` and `y_upper`, with `--error` `y_std`, and
    with `--batch` `batch`.
    Of several targets, `y` has a column for each, and NaN where a cell is empty.
    `notes` are lines for the user: what was detected, and which columns are not used and why.
    """

    table: Table
    X: pd.DataFrame
    y: np.ndarray
    groups: np.ndarray | None  # or times, where `cv` is in their order
    notes: list[str]
    arguments: dict[str, Any] = field(default_factory=dict)
    n_dropped: int = 0  # rows without a value of the target or of any feature
    cv: ForwardFolds | None = None

    @property
    def is_known(self) -> np.ndarray:
        """(row,): whether the target is a value, not a limit."""
        return self.y == self.y  # NaN differs from itself

    @property
    def n_censored(self) -> int:
        """Number of rows whose target is a limit."""
        return int((~self.is_known).sum()) if self.arguments else 0

    @property
    def categories(self) -> dict[str, list[str]]:
        """The categories of each categorical feature."""
        columns = self.X.select_dtypes("category")
        return {str(name): list(columns[name].cat.categories) for name in columns}

    def feature_lines(self) -> Iterator[tuple[str, str]]:
        """Yield (kind, text) of numeric and categorical features; twelve of a kind are named."""
        counts = [(name, len(values)) for name, values in self.categories.items()]
        described = [f"{name} ({n} {'category' if n == 1 else 'categories'})" for name, n in counts]
        numeric = [str(name) for name in self.X.select_dtypes(exclude="category")]
        for kind, names in (("numeric", numeric), ("categorical", described)):
            more = f" and {len(names) - 12} more" if len(names) > 12 else ""
            if names:
                yield kind, f"{len(names)}: {', '.join(names[:12])}{more}"

    @property
    def unused_dates(self) -> dict[str, np.ndarray]:
        """The days of each column of dates that gives no features."""
        days = {}
        for name in (name for name in self.table.names if f"{name} (days)" not in self.X):
            with suppress(ValueError):  # no dates
                days[f"{name} (days)"] = date_columns(self.table, name, ["days"])["days"]
        return days

    @property
    def row_names(self) -> list[str]:
        """Labels of the rows with the line or row of the file that holds each."""
        both = zip(self.X.index, self.table.row_names(), strict=True)
        return [name if label == name else f"{label} ({name})" for label, name in both]


def read_training_data(options: TrainingOptions) -> TrainingData:
    """Read the training data of a CSV, Excel or Parquet file.

    A ValueError names the option or the line of the file.
    """
    all_rows = read_table(options.table, options, options.targets)
    kinds = _check_columns(all_rows, options)
    table, dropped = _drop_rows(all_rows, options.targets)
    excluded = ["", *options.targets, *(options.drop or ()), options.group, options.error]
    excluded += [options.batch, *({options.label, options.time_column} - kinds.keys())]
    names = [name for name in table.names if name not in excluded]
    X, notes = frames.training_frame(table, names, kinds)
    if X.shape[1] == 0:
        reasons = f" ({' '.join(notes)})" if notes else ""
        besides = join_names(options.targets)
        raise ValueError(f"{table.path} has no feature besides {besides}{reasons}.")
    values = X[[name for name in X if frames.derived_from(str(name))[1] != frames.LIMIT]]
    rows = values.notna().any(axis=1).to_numpy().nonzero()[0].tolist()
    table, empty = _keep_rows(table, rows, "have no value of any feature")
    read = _read_target if len(options.targets) == 1 else _read_targets
    target, limits = read(table, options)
    groups = _read_groups(table, options)
    arguments, of_errors = _read_errors(table, options.error)
    if options.batch is not None:
        column = table.column(options.batch)
        arguments["batch"] = pd.Series(column, dtype=object, name=options.batch)
        check_batch_labels(arguments["batch"], target.lower)
    # a fitted model stores them as the names of anchors
    label = options.label or next(iter(options.smiles or ()), None)
    X = X.iloc[rows].set_axis(pd.Index(table.row_names(label), dtype=object))
    y = np.where(target.censored, np.nan, target.lower)
    if target.censored.any():
        arguments |= {"y_lower": target.lower, "y_upper": target.upper}
    if nameless := [str(j + 1) for j, name in enumerate(table.names) if not name]:
        notes.append(f"columns without a name ({', '.join(nameless)}) are not used; name them.")
    notes = [*reading_note(table), *dropped, *empty, *limits, *of_errors, *notes]
    cv = None if options.time_column is None else ForwardFolds()
    return TrainingData(table, X, y, groups, notes, arguments, len(all_rows) - len(table), cv)


def _check_columns(table: Table, options: TrainingOptions) -> dict[str, str]:
    """Return the kinds of columns that options name; a ValueError for absent ones and for two."""
    table.require(options.targets, "--target")
    if len(set(options.targets)) < len(options.targets):
        raise ValueError(f"--target names a column twice: {join_names(options.targets)}.")
    kinds: dict[str, str] = {}
    for option, names in options.named_columns().items():
        table.require(names, f"--{option}")
        if both := [name for name in options.targets if name in names]:
            raise ValueError(f"--{option} names {both[0]!r}, which is the --target.")
        for name in names if option in KINDS else ():
            other = kinds.setdefault(name, option)
            if other != option:
                raise ValueError(f"--{other} and --{option} both name {name!r}.")
    return kinds


def _drop_rows(table: Table, targets: list[str]) -> tuple[Table, list[str]]:
    """Return the rows with a value of a target that are no summary, and notes on the others."""
    words = [cell.casefold().strip(" :.") for cell in table.columns[0]]
    rows = [i for i, word in enumerate(words) if word not in _SUMMARIES or words.count(word) > 1]
    table, notes = _keep_rows(table, rows, "begin with a word such as Mean")
    missing = np.array([list(map(is_missing, table.column(name))) for name in targets])
    if (empty := missing.all(axis=1)).any():
        name = targets[int(empty.argmax())]
        raise ValueError(f"{table.path}, column {name!r} has no value, and it is the --target.")
    rows = np.flatnonzero(~missing.all(axis=0)).tolist()
    table, others = _keep_rows(table, rows, f"have no value of {join_names(targets)}")
    return table, notes + others


def _keep_rows(table: Table, rows: Sequence[int], reason: str) -> tuple[Table, list[str]]:
    """Return these rows of a table, and a note on the others, if there are any."""
    n_rows, n_others = len(table), len(table) - len(rows)
    note = f"{table.path}: {n_others:,} of {n_rows:,} rows {reason} and are not used."
    return (table.take(rows), [note]) if n_others else (table, [])


def _read_target(table: Table, options: TrainingOptions) -> tuple[TargetBounds, list[str]]:
    """Return the bounds of the target, and a note on its limits, if there are any."""
    target, column = target_column(table, options.target), f"column {options.target!r}"
    n_limits = int(target.censored.sum())
    if len(table) - n_limits < 2:
        number = f"{len(table) - n_limits} values that are not limits"
        raise ValueError(f"{table.path}, {column} has {number}; at least 2 are needed.")
    if not n_limits and target.lower.min() == target.lower.max():
        same = f"{target.lower[0]:g} in all rows"
        raise ValueError(f"{table.path}, {column} is {same}; there is nothing to predict.")
    if options.log_target:
        reason = "has no logarithm; --log-target takes positive values and limits only"
        _refuse_cells(table, options.target, target.limits() <= 0, reason)
    if not n_limits:
        return target, []
    number = f"{n_limits} of {len(table)} values are limits such as <5 or >100"
    fitted = "they are fitted as censored labels, and errors are those of the others"
    note = f"{table.path}, {column}: {number}; {fitted}."
    below, _ = target.beyond
    if below.any() and target.upper.min() > 0:
        target = TargetBounds(np.where(below, 0.0, target.lower), target.upper)
        note += " Those below a limit are at least 0, as all values are positive."
    return target, [note]


def _read_targets(table: Table, options: TrainingOptions) -> tuple[TargetBounds, list[str]]:
    """Return the values of several targets, (row, target), with NaN where a cell is empty."""
    columns = []
    for name in options.targets:
        target = target_column(table, name)
        _refuse_cells(table, name, target.censored, "is a limit, which needs a single --target")
        if np.nanmin(target.lower) == np.nanmax(target.lower):
            raise ValueError(f"{table.path}, column {name!r} has one value; that is no target.")
        columns.append(target.lower)
    values = np.column_stack(columns)
    return TargetBounds(values, values), []


def _refuse_cells(table: Table, name: str, is_wrong: np.ndarray, reason: str) -> None:
    """Raise a ValueError for the first cell of a column that is wrong."""
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise ValueError(f"{table.location(row, name)}: {table.column(name)[row]} {reason}.")


def _read_groups(table: Table, options: TrainingOptions) -> np.ndarray | None:
    """Return the names of the groups of rows, or their times.

    Missing values and a single group are refused.
    """
    named = options.named_columns()
    if options.group is not None and options.time_column is not None:
        raise ValueError("--group and --time-column cannot be combined; use one of them.")
    checked = {option: named[option] for option in ("group", "time-column", "batch")}
    for option, name in ((option, name) for option, names in checked.items() for name in names):
        cells = enumerate(table.column(name))
        if missing := [table.location(row, name) for row, cell in cells if is_missing(cell)]:
            raise ValueError(f"{missing[0]} has no value, and it is the --{option}.")
    if options.group is None:
        return None if options.time_column is None else _read_times(table, options.time_column)
    labels = np.array(table.column(options.group), dtype=object)
    encode_groups(labels, len(table))
    return labels


def _read_errors(table: Table, error: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the errors of measurement as an argument of `fit`, and a note on them."""
    if error is None:
        return {}, []
    y_std, sides = numeric_column(table, error, "; the --error must be a number in every row")
    is_wrong = (sides != 0) | ~(y_std >= 0)
    _refuse_cells(table, error, is_wrong, "is no standard deviation; --error takes 0 and more")
    median = f"their median is {np.median(y_std):.3g}"
    return {"y_std": y_std}, [f"{table.path}, column {error!r}: errors of measurement; {median}."]


def _read_times(table: Table, name: str) -> np.ndarray:
    """Return numbers, or the days of dates."""
    if parse_column(table, name).texts:
        times = date_columns(table, name, ["days"])["days"]
    else:
        times = numeric_column(table, name)[0]
    if len(list(ForwardFolds().split(times, groups=times))) < 2:
        few = f"has too few times in the later half of its rows ({len(np.unique(times))} differ)"
        raise ValueError(f"{table.path}, column {name!r} {few}; --time-column needs two folds.")
    return times
