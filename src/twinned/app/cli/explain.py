"""`twinned explain`: comparable known cases of the rows of a table, with adjustment grids."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import messages, prediction
from twinned.app.cli.options import SavedModelOptions, check_output_path
from twinned.app.cli.training_data import name_rows
from twinned.app.tables.table import Table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from twinned.fitted.explanation import ComparableCase, Value

FORMATS = (".csv", ".xlsx", ".json")
MAX_PRINTED = 10  # rows, without --rows
MAX_FEATURES = 12  # lines of a grid; the adjustments of all others are summed
_CONFIDENCE = 0.9
_ROWS_PER_STEP = 8
_MAX_WIDTH = 140  # characters of a line
_MAX_NAME, _MAX_VALUE, _MAX_HEADING = 24, 16, 60  # characters
_MARKS = {
    "inside": "",
    "edge": "; at the edge of the known rows",
    "outside": "; outside of the known rows, so an extrapolation",
}


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(SavedModelOptions):
    """Options of `twinned explain`.

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
        File to write instead: a .csv or .xlsx table with one row for each known case, or .json.
    """

    rows: Annotated[list[str] | None, typer.Option("--rows", metavar="ROWS")] = None
    k: Annotated[int, typer.Option("-k", min=1, metavar="K")] = 5
    label: Annotated[str | None, typer.Option("--label", "-l", metavar="COLUMN")] = None


@dataclass(frozen=True)
class ExplainedRow:
    """A row of the user's table, its prediction and its comparable known cases.

    `numbers` are the prediction and, of a calibrated model, the ends of its interval.
    """

    row: int
    name: str
    numbers: dict[str, float]
    applicability: str
    values: dict[str, Value]
    cases: list[ComparableCase]

    @property
    def share(self) -> float:
        """The share of the cases in the weight of the prediction."""
        return sum(case.weight for case in self.cases)

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        cases = [case.as_dict() for case in self.cases]
        first = {"row": self.row, "name": self.name, **self.numbers}
        first |= {"applicability": self.applicability, "values": self.values}
        return first | {"share": self.share, "comparables": cases}


def explain_command(options: ExplainOptions) -> None:
    """Explain predictions by comparable known cases.

    For each row of the table, the known cases that are most like it are shown in a grid, one in
    each column: its known value, what each feature adds because it differs from this row, and
    their sum, the adjusted value. The prediction is the weighted mean of the adjusted values of all
    known cases, of which the nearest are shown; after --log-target, it is their geometric mean. A
    row at the edge of the known rows or outside of them is marked, as by twinned predict
    --applicability.

    For example:

        twinned explain yield.twin candidates.csv --rows 4

        twinned explain yield.twin candidates.csv --label sample --rows A12,A15 -k 3

        twinned explain yield.twin next.xlsx -o explained.xlsx
    """
    output, path = options.output, None
    with messages.exit_on_bad_input():
        if output is not None:
            if output.suffix.lower() not in FORMATS:
                raise ValueError(f"-o {output} must end with {', '.join(FORMATS)}.")
            path = check_output_path(output, [options.model, options.table])
        loaded, table = prediction.load_with_table(options, "explain")
        table.require([] if options.label is None else [options.label], "--label")
        selected = select_rows(table, name_rows(table, options.label), options.rows or [])
        is_shortened = not options.rows and output is None and not options.as_json
        table = table.take(selected[:MAX_PRINTED] if is_shortened else selected)
        X = prediction.read_features(loaded, table)
        loaded.require_single_target("explain")
        with messages.print_warnings():
            explained = _explain(options, table, loaded, X)
        facts = {"model": str(options.model), "table": str(options.table), "target": loaded.target}
        content: dict[str, object] = facts | {"rows": [row.as_dict() for row in explained]}
        if path is not None:
            _write(path, content, explained, options.digits)
    if output is not None:
        each = f"with at most {messages.counted(options.k, 'known case')} each"
        text = f"{messages.counted(len(explained), 'row')} in {output}, {each}"
        content = facts | {"rows": len(explained), "output": str(output)}
    else:
        text = "" if options.as_json else _format_text(explained, loaded.target)
    messages.print_result(content, text, options.as_json)
    if len(explained) < len(selected):
        more = f"the first {len(explained)} of {len(selected):,} rows are explained"
        messages.print_message("note", f"{more}; --rows selects others, and -o writes all.")


def select_rows(table: Table, labels: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the indices of the rows that --rows names, all without it.

    A part is a label or the number of a line or row of the file, or a range of numbers.
    """
    if not wanted:
        return list(range(len(table)))
    by_label: dict[str, list[int]] = {}
    for row, name in enumerate(labels):
        by_label.setdefault(name, []).append(row)
    rows: list[int] = []
    for option in wanted:
        parts = [option] if option in by_label else [part.strip() for part in option.split(",")]
        for part in filter(None, parts):
            rows += by_label.get(part) or _numbered_rows(table, part)
    return list(dict.fromkeys(rows))


def _numbered_rows(table: Table, part: str) -> list[int]:
    """Return the rows whose line or row of the file is a number or in a range."""
    numbers = re.fullmatch(r"(\d+)(?:\s*[-–]\s*(\d+))?", part)
    if numbers is None:
        wanted = f"the number of a {table.line_word} such as 4 or 4-6, or a name of --label"
        raise ValueError(f"--rows {part}: {table.path} has no such row; give {wanted}.")
    first, last = sorted((int(numbers[1]), int(numbers[2] or numbers[1])))
    rows = [row for row, line in enumerate(table.lines) if first <= line <= last]
    if not rows:
        span = f"{table.line_word}s {table.lines[0]} to {table.lines[-1]}"
        raise ValueError(f"--rows {part}: the rows of {table.path} are in {span}.")
    return rows


def _explain(
    options: ExplainOptions,
    table: Table,
    loaded: prediction.LoadedTwin,
    X: pd.DataFrame | np.ndarray,
) -> list[ExplainedRow]:
    """Return the explanation of each row, in the units of the target."""
    import numpy as np

    confidence = None if loaded.twin.calibration_ is None else _CONFIDENCE
    wanted = prediction.ResultColumns(interval=confidence, applicability=True)
    columns = loaded.predict_columns(X, wanted)
    applicability = columns.pop("applicability")
    labels = name_rows(table, options.label)
    explained = []
    for i, cases in enumerate(_find_cases(loaded, X, options.k)):
        numbers = {name: float(column[i]) for name, column in columns.items()}
        if not np.isfinite([*numbers.values(), *(case.estimate for case in cases)]).all():
            raise ValueError(f"{labels[i]}: the prediction is not a finite number.")
        row = np.asarray(X, dtype=object)[i]
        values = dict(zip(cases[0].values, map(_plain, row), strict=True))
        explained.append(
            ExplainedRow(table.lines[i], labels[i], numbers, applicability[i], values, cases)
        )
    return explained


def _find_cases(
    loaded: prediction.LoadedTwin, X: pd.DataFrame | np.ndarray, k: int
) -> list[list[ComparableCase]]:
    """Return the comparable known cases of each row, with a progress bar."""
    from twinned._compat import safe_indexing
    from twinned.fitted.explanation import comparable_cases

    cases: list[list[ComparableCase]] = []
    starts = range(0, len(X), _ROWS_PER_STEP)
    with messages.progress_bar(len(starts)) as begin_step:
        for start in starts:
            begin_step(f"row {start + 1} of {len(X)}")
            rows = safe_indexing(X, slice(start, start + _ROWS_PER_STEP))
            cases += comparable_cases(loaded.model, rows, k)
    return cases


def _plain(value: object) -> Value:
    """Return a number, the text of a category, or None for a missing value."""
    if value is None or value != value:  # NaN
        return None
    return float(value) if isinstance(value, int | float) else str(value)


# --- adjustment grids -------------------------------------------------------------------------


def _format_text(explained: Sequence[ExplainedRow], target: str) -> str:
    from twinned.rows.formatting import format_significant

    width = min(shutil.get_terminal_size((100, 24)).columns, _MAX_WIDTH)
    lines: list[str] = []
    for row in explained:
        lines += [*format_grid(row, target, width), ""]
    share = format_significant(100 * min(row.share for row in explained), 2)
    least = "" if len(explained) == 1 or share == "100" else "at least "
    legend = "A column is a known case: known value + adjustments = adjusted value."
    weight = f"The cases shown have {least}{share} % of the weight of the prediction."
    return "\n".join([*lines, f"{legend} {weight}"])


def format_grid(explained: ExplainedRow, target: str, width: int) -> list[str]:
    """Return the adjustment grid of a row as lines.

    Each known case is a column: its value, what each feature adds, and their sum. Columns that do
    not fit into `width` characters are below the others; each block has at least one.
    """
    cases = explained.cases
    known_y = [value for case in cases for value in (case.known, case.estimate)]
    spec = _number_format([explained.numbers["prediction"], *known_y])
    lines = [_heading(explained, target, spec)]
    while cases:
        n_cases = len(cases)
        block = _grid_lines(explained, cases, spec)
        while n_cases > 1 and max(map(len, block)) > width:
            n_cases -= 1
            block = _grid_lines(explained, cases[:n_cases], spec)
        lines += ["", *block]
        cases = cases[n_cases:]
    return lines


def _grid_lines(explained: ExplainedRow, cases: Sequence[ComparableCase], spec: str) -> list[str]:
    """Return the lines of a grid of some of the cases: the value and the adjustment of each."""
    from twinned.rows.formatting import shorten

    features = _shown_features(explained.cases)
    has_others = any(_other_adjustments(case, features) for case in explained.cases)
    others = ["other features"] if has_others else []
    values = ["", *(_value_text(explained.values[name]) for name in features)]
    values += [""] * has_others + [_number(explained.numbers["prediction"], spec)]
    columns = []
    for case in cases:
        column = messages.make_table("", "")
        column.show_header = False
        column.add_row("", _number(case.known, spec))
        adjustments = [case.adjustments[name] for name in features]
        adjustments += [_other_adjustments(case, features)] * has_others
        cells = [*(_value_text(case.values[name]) for name in features), ""]
        for cell, adjustment in zip(cells, adjustments, strict=False):
            column.add_row(cell, _number(adjustment, f"+{spec}") if adjustment else "")
        column.add_row("", _number(case.estimate, spec))
        columns.append(column)
    labels = [shorten(case.label, _MAX_NAME) for case in cases]
    table = messages.make_table("", "this row", *labels, left=2 + len(cases))
    titles = ["known value", *features, *others, "adjusted value"]
    names = "\n".join(shorten(title, _MAX_NAME) for title in titles)
    table.add_row(names, "\n".join(values), *columns)
    return [f"  {line}" for line in messages.table_lines(table)]


def _heading(explained: ExplainedRow, target: str, spec: str) -> str:
    from twinned.rows.formatting import shorten

    value, *ends = (_number(number, spec) for number in explained.numbers.values())
    interval = f", 90 % prediction interval {' to '.join(ends)}" if ends else ""
    name, mark = shorten(explained.name, _MAX_HEADING), _MARKS[explained.applicability]
    return f"{name}: predicted {target} {value}{interval}{mark}"


def _shown_features(cases: Sequence[ComparableCase]) -> list[str]:
    """The features that are adjusted for in any case, the largest adjustment first."""
    largest = {name: max(abs(case.adjustments[name]) for case in cases) for name in cases[0].values}
    shown = sorted((name for name in largest if largest[name] > 0), key=lambda n: -largest[n])
    return shown[:MAX_FEATURES]


def _other_adjustments(case: ComparableCase, shown: Sequence[str]) -> float:
    """What the features that are not shown add."""
    return sum(value for name, value in case.adjustments.items() if name not in shown)


def _number_format(values: Sequence[float]) -> str:
    """A format with the same decimals for all values, so that they sum to each other."""
    largest = max(map(abs, values))
    if largest == 0 or not 1e-6 <= largest < 1e12:
        return ".3e"
    return f",.{max(0, 3 - math.floor(math.log10(largest)))}f"


def _number(value: float, spec: str) -> str:
    return format(value, spec).replace("-", "−")


def _value_text(value: Value) -> str:
    from twinned.rows.formatting import format_value, shorten

    return shorten(format_value(value), _MAX_VALUE)


def grid_columns(explained: Sequence[ExplainedRow]) -> dict[str, list[object]]:
    """Return the columns of a table with one row for each known case.

    Of each feature it has the value of the row, that of the known case, and the adjustment.
    """
    columns: dict[str, list[object]] = {}
    pairs = ((row, case) for row in explained for case in row.cases)
    for row, case in pairs:
        cells: dict[str, object] = {"row": row.name, **row.numbers}
        cells |= {"applicability": row.applicability, "known case": case.label}
        cells["known value"] = case.known
        for name, value in row.values.items():
            cells[f"{name} (this row)"] = value
            cells[f"{name} (known case)"] = case.values[name]
            cells[f"{name} (adjustment)"] = case.adjustments[name]
        cells |= {"adjusted value": case.estimate, "weight": case.weight}
        for name, cell in cells.items():
            columns.setdefault(name, []).append(cell)
    return columns


def _write(path: Path, content: object, explained: Sequence[ExplainedRow], digits: int) -> None:
    """Write the file, completely or not at all."""
    from twinned.persistence.archive import write_atomically

    if path.suffix.lower() == ".json":
        write_atomically(path, json.dumps(content, ensure_ascii=False, indent=1).encode())
    else:
        prediction.write_table(path, grid_columns(explained), digits)
