"""Explanations of the rows of a table: comparable known cases, as grids and as a table."""

import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twinned.app.cli import messages
from twinned.app.prediction import FeatureRows, TablePredictor
from twinned.app.report.grid import Grid, make_grid, number_format, show_number, summarize_features
from twinned.app.tables.table import Table
from twinned.fitted.explanation import ComparableCases, Value
from twinned.rows.formatting import shorten

_CONFIDENCE = 0.9
_ROWS_PER_STEP = 8
_MAX_WIDTH = 140  # characters of a line
_MAX_HEADING = 60  # characters
_MARKS = {
    "inside": "",
    "edge": "; at the edge of the known rows",
    "outside": "; outside of the known rows, so an extrapolation",
}


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
    comparables: ComparableCases

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        first = {"row": self.row, "name": self.name, **self.numbers}
        first |= {"applicability": self.applicability, "values": self.values}
        return first | self.comparables.as_dict()


def select_rows(table: Table, labels: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the indices of the rows that --rows names, all without it.

    It names labels, or numbers of lines or rows of the file, or ranges of them.
    """
    rows = [] if wanted else list(range(len(table)))
    for option in wanted:
        names = [option] if option in labels else map(str.strip, option.split(","))
        for name in filter(None, names):
            named = [row for row, label in enumerate(labels) if label == name]
            rows += named or _numbered_rows(table, name)
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


def explain_rows(
    predictor: TablePredictor, table: Table, rows: FeatureRows, labels: Sequence[str], k: int
) -> list[ExplainedRow]:
    """Return the explanation of each row by `k` known cases, in the units of the target."""
    confidence = None if predictor.fitted.calibration is None else _CONFIDENCE
    columns = predictor.predict(rows, confidence=confidence, applicability=True)
    applicability = columns.pop("applicability")
    features = np.asarray(rows.X, dtype=object)
    explained = []
    for i, comparables in enumerate(_find_cases(predictor, rows, k)):
        numbers = {name: float(column[i]) for name, column in columns.items()}
        estimates = [case.estimate for case in comparables.with_others]
        if not np.isfinite([*numbers.values(), *estimates]).all():
            raise ValueError(f"{labels[i]}: the prediction is not a finite number.")
        # the last is a value of models with batches only
        row_values = [*features[i], None if rows.batch is None else rows.batch[i]]
        names = comparables.cases[0].values
        explained.append(
            ExplainedRow(
                row=table.lines[i],
                name=labels[i],
                numbers=numbers,
                applicability=applicability[i],
                values=dict(zip(names, map(_plain, row_values), strict=False)),
                comparables=comparables,
            )
        )
    return explained


def _find_cases(predictor: TablePredictor, rows: FeatureRows, k: int) -> list[ComparableCases]:
    """Return the comparable known cases of each row, with a progress bar."""
    comparables: list[ComparableCases] = []
    starts = range(0, len(rows), _ROWS_PER_STEP)
    with messages.progress_bar(len(starts)) as begin_step:
        for start in starts:
            begin_step(f"row {start + 1} of {len(rows)}")
            block = rows.take(slice(start, start + _ROWS_PER_STEP))
            comparables += predictor.find_comparables(block, k)
    return comparables


def _plain(value: object) -> Value:
    """Return a number, the text of a category, or None for a missing value."""
    if value is None or value != value:  # NaN
        return None
    return float(value) if isinstance(value, int | float) else str(value)


# --- adjustment grids -------------------------------------------------------------------------


def format_grids(explained: Sequence[ExplainedRow], target: str) -> str:
    """Return the grids of all rows as text."""
    width = min(shutil.get_terminal_size((100, 24)).columns, _MAX_WIDTH)
    lines = [line for row in explained for line in (*format_grid(row, target, width), "")]
    lines += ["A column is a known case: known value + adjustments = adjusted value."]
    return "\n".join([*lines, "The weighted mean of all adjusted values is the prediction."])


def format_grid(explained: ExplainedRow, target: str, width: int) -> list[str]:
    """Return the adjustment grid of a row as lines.

    Each known case is a column: its value, what each feature adds, their sum, and its weight.
    Columns that do not fit into `width` characters are below the others; each block has at least
    one.
    """
    comparables = summarize_features(explained.comparables)
    grid = make_grid(explained.values, explained.numbers["prediction"], comparables)
    lines, columns = [_heading(explained, target)], range(len(grid.headings))
    while columns:
        for n_more in range(1, len(columns) + 1):
            wider = _grid_lines(grid, columns[:n_more])
            if n_more > 1 and max(map(len, wider)) > width:
                break
            n_columns, block = n_more, wider
        lines += ["", *block]
        columns = columns[n_columns:]
    return [*lines, "", *textwrap.wrap(f"  {grid.summary}", width, subsequent_indent="  ")]


def _grid_lines(grid: Grid, columns: Sequence[int]) -> list[str]:
    """Return the lines of some columns of a grid: the value and the adjustment of each."""
    cases = []
    for j in columns:
        case = messages.make_table("", "")
        case.show_header = False
        for _, _, cells in grid.lines:
            case.add_row(*cells[j])
        cases.append(case)
    headings = [grid.headings[j] for j in columns]
    table = messages.make_table("", "this row", *headings, left=2 + len(columns))
    titles, values, _ = zip(*grid.lines, strict=True)
    table.add_row("\n".join(titles), "\n".join(values), *cases)
    return [f"  {line}" for line in messages.table_lines(table)]


def _heading(explained: ExplainedRow, target: str) -> str:
    spec = number_format(explained.numbers["prediction"], explained.comparables)
    value, *ends = (show_number(number, spec) for number in explained.numbers.values())
    interval = f", 90 % prediction interval {' to '.join(ends)}" if ends else ""
    name, mark = shorten(explained.name, _MAX_HEADING), _MARKS[explained.applicability]
    return f"{name}: predicted {target} {value}{interval}{mark}"


def grid_columns(explained: Sequence[ExplainedRow]) -> dict[str, list[object]]:
    """Return the columns of a table with one row for each known case, and one for all others.

    Of each feature it has the value of the row, that of the known case, and the adjustment.
    """
    lines = []
    pairs = ((row, case) for row in explained for case in row.comparables.with_others)
    for row, case in pairs:
        cells: dict[str, object] = {"row": row.name, **row.numbers}
        cells |= {"applicability": row.applicability, "known case": case.label}
        cells["known value"] = case.known
        for name, value in row.values.items():
            cells[f"{name} (this row)"] = value
            cells[f"{name} (known case)"] = case.values.get(name)
            cells[f"{name} (adjustment)"] = case.adjustments.get(name)
        cells |= {"adjusted value": case.estimate, "weight": case.weight, "rows": case.count}
        cells["mean of shown cases"] = row.comparables.estimate
        lines.append(cells)
    return {name: [cells[name] for cells in lines] for name in lines[0]}
