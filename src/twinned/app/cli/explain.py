"""`twinned explain`: comparable known cases of the rows of a table, with adjustment grids."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twinned._compat import safe_indexing
from twinned.app.cli import messages, prediction
from twinned.app.cli.options import ExplainOptions, ResultColumns, check_output_path
from twinned.app.report.grid import Grid, make_grid, number_format, show_number, summarize_features
from twinned.app.tables.table import Table
from twinned.fitted.explanation import ComparableCases, Value, find_comparables
from twinned.persistence.archive import write_atomically
from twinned.rows.formatting import shorten

FORMATS = (".csv", ".xlsx", ".json")
MAX_PRINTED = 10  # rows, without --rows
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
    found: ComparableCases

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        first = {"row": self.row, "name": self.name, **self.numbers}
        first |= {"applicability": self.applicability, "values": self.values}
        return first | self.found.as_dict()


def explain_command(options: ExplainOptions) -> None:
    """Explain predictions by comparable known cases."""
    output, path = options.output, None
    if output is not None:
        if output.suffix.lower() not in FORMATS:
            raise ValueError(f"-o {output} must end with {', '.join(FORMATS)}.")
        path = check_output_path(output, [options.model, options.table])
    loaded, table = prediction.load_with_table(options, "explain")
    loaded = loaded.with_batches(options)
    table.require([] if options.label is None else [options.label], "--label")
    selected = select_rows(table, table.row_names(options.label), options.rows or [])
    is_shortened = not options.rows and output is None and not options.as_json
    table = table.take(selected[:MAX_PRINTED] if is_shortened else selected)
    X = prediction.read_features(loaded, table)
    loaded.require_single_target("explain")
    with messages.print_warnings():
        explained = _explain(options, table, loaded, X)
    facts = {"model": str(options.model), "table": str(options.table), "target": loaded.target}
    content: dict[str, object] = facts | {"rows": [row.as_dict() for row in explained]}
    if path is None:
        text = "" if options.as_json else _format_text(explained, loaded)
    else:
        if path.suffix.lower() == ".json":
            write_atomically(path, json.dumps(content, ensure_ascii=False, indent=1).encode())
        else:
            prediction.write_table(path, grid_columns(explained), options.digits)
        each = f"with at most {messages.counted(options.k, 'known case')} each"
        text = f"{messages.counted(len(explained), 'row')} in {output}, {each}"
        content = facts | {"rows": len(explained), "output": str(output)}
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
    rows: list[int] = []
    for option in wanted:
        parts = [option] if option in labels else [part.strip() for part in option.split(",")]
        for part in filter(None, parts):
            named = [row for row, label in enumerate(labels) if label == part]
            rows += named or _numbered_rows(table, part)
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
    options: ExplainOptions, table: Table, loaded: prediction.LoadedTwin, X: prediction.Features
) -> list[ExplainedRow]:
    """Return the explanation of each row, in the units of the target."""
    confidence = None if loaded.twin.calibration_ is None else _CONFIDENCE
    wanted = ResultColumns(interval=confidence, applicability=True)
    batch = loaded.read_batch(table)
    columns = loaded.predict_columns(X, wanted, batch)
    applicability = columns.pop("applicability")
    labels, rows = table.row_names(options.label), np.asarray(X, dtype=object)
    explained = []
    for i, found in enumerate(_find_cases(loaded, X, options.k, batch)):
        numbers = {name: float(column[i]) for name, column in columns.items()}
        estimates = [case.estimate for case in found.with_others]
        if not np.isfinite([*numbers.values(), *estimates]).all():
            raise ValueError(f"{labels[i]}: the prediction is not a finite number.")
        own = [*rows[i], None if batch is None else batch[i]]  # the last with batches only
        values = dict(zip(found.cases[0].values, map(_plain, own), strict=False))
        explained.append(
            ExplainedRow(table.lines[i], labels[i], numbers, applicability[i], values, found)
        )
    return explained


def _find_cases(
    loaded: prediction.LoadedTwin, X: prediction.Features, k: int, batch: prediction.Batches
) -> list[ComparableCases]:
    """Return the comparable known cases of each row, with a progress bar."""
    found: list[ComparableCases] = []
    starts = range(0, len(X), _ROWS_PER_STEP)
    with messages.progress_bar(len(starts)) as begin_step:
        for start in starts:
            begin_step(f"row {start + 1} of {len(X)}")
            block = slice(start, start + _ROWS_PER_STEP)
            parts = safe_indexing(X, block), k, None if batch is None else batch[block]
            found += find_comparables(loaded.twin, loaded.transform, *parts)
    return found


def _plain(value: object) -> Value:
    """Return a number, the text of a category, or None for a missing value."""
    if value is None or value != value:  # NaN
        return None
    return float(value) if isinstance(value, int | float) else str(value)


# --- adjustment grids -------------------------------------------------------------------------


def _format_text(explained: Sequence[ExplainedRow], loaded: prediction.LoadedTwin) -> str:
    width = min(shutil.get_terminal_size((100, 24)).columns, _MAX_WIDTH)
    lines = [line for row in explained for line in (*format_grid(row, loaded.target, width), "")]
    lines += ["A column is a known case: known value + adjustments = adjusted value."]
    return "\n".join([*lines, "The weighted mean of all adjusted values is the prediction."])


def format_grid(explained: ExplainedRow, target: str, width: int) -> list[str]:
    """Return the adjustment grid of a row as lines.

    Each known case is a column: its value, what each feature adds, their sum, and its weight.
    Columns that do not fit into `width` characters are below the others; each block has at least
    one.
    """
    found, predicted = summarize_features(explained.found), explained.numbers["prediction"]
    grid = make_grid(explained.values, predicted, found)
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

    spec = number_format(explained.numbers["prediction"], explained.found)
    value, *ends = (show_number(number, spec) for number in explained.numbers.values())
    interval = f", 90 % prediction interval {' to '.join(ends)}" if ends else ""
    name, mark = shorten(explained.name, _MAX_HEADING), _MARKS[explained.applicability]
    return f"{name}: predicted {target} {value}{interval}{mark}"


def grid_columns(explained: Sequence[ExplainedRow]) -> dict[str, list[object]]:
    """Return the columns of a table with one row for each known case, and one for all others.

    Of each feature it has the value of the row, that of the known case, and the adjustment.
    """
    lines = []
    pairs = ((row, case) for row in explained for case in row.found.with_others)
    for row, case in pairs:
        cells: dict[str, object] = {"row": row.name, **row.numbers}
        cells |= {"applicability": row.applicability, "known case": case.label}
        cells["known value"] = case.known
        for name, value in row.values.items():
            cells[f"{name} (this row)"] = value
            cells[f"{name} (known case)"] = case.values.get(name)
            cells[f"{name} (adjustment)"] = case.adjustments.get(name)
        cells |= {"adjusted value": case.estimate, "weight": case.weight, "rows": case.count}
        cells["mean of shown cases"] = row.found.estimate
        lines.append(cells)
    return {name: [cells[name] for cells in lines] for name in lines[0]}
