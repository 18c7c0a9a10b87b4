"""`twinned explain`: comparable known cases of the rows of a table, with adjustment grids."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from twinned.app import tables
from twinned.app.cli import options
from twinned.app.cli._errors import exit_on_bad_input, print_message, print_warnings, printable
from twinned.app.cli._progress import progress_bar
from twinned.app.cli.adjustment_grid import ExplainedRow, format_grid, grid_rows
from twinned.app.cli.prediction import (
    ModelFeatures,
    ResultColumns,
    check_transform,
    inner_twin,
    load_twin,
    predict_columns,
    read_features,
)
from twinned.app.cli.training_data import row_labels

FORMATS = (".csv", ".xlsx", ".json")
MAX_PRINTED = 10  # rows, without --rows
_CONFIDENCE = 0.9
_ROWS_PER_STEP = 8
_MAX_WIDTH = 140  # characters of a line


def explain_command(
    model: options.SavedModel,
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV, Excel (.xlsx) or Parquet file with the features of the model.",
            metavar="TABLE",
        ),
    ],
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--rows",
            help="The rows to explain: lines of a CSV file or rows of an Excel file, such as 4 or "
            "4,7-9 (the names of the columns are in the first), or names in the column of --label. "
            "May be repeated. All rows by default, of which the first ten are printed.",
            metavar="ROWS",
        ),
    ] = None,
    k: Annotated[
        int, typer.Option("-k", min=1, help="Number of known cases for each row.", metavar="K")
    ] = 5,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            "-l",
            help="A column of the table with the names of its rows. Known cases have the names "
            "that --label of twinned fit gave them.",
            metavar="COLUMN",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write instead: a .csv or .xlsx table with one row for each known case, "
            "or .json.",
        ),
    ] = None,
    digits: options.Digits = 6,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    key_file: options.KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
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
    with exit_on_bad_input():
        if output is not None and output.suffix.lower() not in FORMATS:
            raise ValueError(f"-o {output} must end with {', '.join(FORMATS)}.")
        resolved = None if output is None else options.check_output_path(output, [model, table])
        tables.check_argument_order(model, table, "explain")
        reading = tables.ReadOptions(separator, decimal, thousands, encoding, sheet)
        read = tables.read_table(table, reading)
        read.require([] if label is None else [label], "--label")
        chosen = select_rows(read, row_labels(read, label), rows or [])
        n_selected = len(chosen)
        if not rows and output is None and not as_json:
            chosen = chosen[:MAX_PRINTED]
        read = read.take(chosen)
        with print_warnings():
            fitted = load_twin(model, key_file)
        check_transform(fitted, "explain", model)
        X, _, notes = read_features(read, ModelFeatures.of(fitted, model))
        for note in (*tables.reading_note(read), *notes):
            print_message("note", note)
        with print_warnings():
            explained = _explain(fitted, X, k, read, row_labels(read, label), model)
        target = getattr(inner_twin(fitted), "target_name_", "y")
        facts = {"model": str(model), "table": str(table), "target": target}
        content = facts | {"rows": [own.as_dict() for own in explained]}
        if resolved is not None:
            _write(resolved, content, explained, digits)
    if output is not None:
        count = f"{len(explained):,} row{'' if len(explained) == 1 else 's'}"
        summary = f"{count} in {output}, with at most {k} known case{'' if k == 1 else 's'} each"
        done = facts | {"rows": len(explained), "output": str(output)}
        typer.echo(json.dumps(done, ensure_ascii=False) if as_json else summary)
    elif as_json:
        typer.echo(json.dumps(content, ensure_ascii=False))
    else:
        typer.echo(printable(_format_text(explained, target)))
        if len(explained) < n_selected:
            more = f"the first {len(explained)} of {n_selected:,} rows are explained"
            print_message("note", f"{more}; --rows selects others, and -o writes all.")


def select_rows(table: tables.Table, labels: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the indices of the rows that --rows names, all without it.

    A part is a label or the number of a line or row of the file, or a range of numbers.
    """
    if not wanted:
        return list(range(len(table)))
    by_label: dict[str, list[int]] = {}
    for row, name in enumerate(labels):
        by_label.setdefault(name, []).append(row)
    found: list[int] = []
    for option in wanted:
        parts = [option] if option in by_label else [part.strip() for part in option.split(",")]
        for part in filter(None, parts):
            found += by_label.get(part) or _numbered_rows(table, part)
    return list(dict.fromkeys(found))


def _numbered_rows(table: tables.Table, part: str) -> list[int]:
    """Return the rows whose line or row of the file is a number or in a range."""
    numbers = re.fullmatch(r"(\d+)(?:\s*[-–]\s*(\d+))?", part)
    if numbers is None:
        raise ValueError(
            f"--rows {part}: {table.path} has no such row; give the number of a {table.line_word} "
            "such as 4 or 4-6, or a name in the column of --label."
        )
    first, last = sorted((int(numbers[1]), int(numbers[2] or numbers[1])))
    found = [row for row, line in enumerate(table.lines) if first <= line <= last]
    if not found:
        span = f"{table.line_word}s {table.lines[0]} to {table.lines[-1]}"
        raise ValueError(f"--rows {part}: the rows of {table.path} are in {span}.")
    return found


def _explain(
    model: Any, X: Any, k: int, table: tables.Table, labels: list[str], path: Path
) -> list[ExplainedRow]:
    """Return the explanation of each row, in the units of the target."""
    import numpy as np

    from twinned._compat import safe_indexing
    from twinned.fitted.explanation import comparable_cases

    twin = inner_twin(model)
    if twin.anchors_y_.ndim > 1:
        raise ValueError("explain needs a model of a single target.")
    confidence = _CONFIDENCE if hasattr(twin, "intervals_") else None
    wanted = ResultColumns(interval=confidence, applicability=True)
    columns = predict_columns(model, X, wanted, path)
    applicability = columns.pop("applicability")
    cases = []
    steps = range(0, len(X), _ROWS_PER_STEP)
    with progress_bar(len(steps)) as begin_step:
        for start in steps:
            block = np.arange(start, min(start + _ROWS_PER_STEP, len(X)))
            begin_step(f"row {start + 1} of {len(X)}")
            rows = safe_indexing(X, block)
            cases += comparable_cases(twin, rows, k, log_target=model is not twin)
    numbers = zip(labels, zip(*columns.values(), strict=True), cases, strict=True)
    for name, predicted, own in numbers:
        if not np.isfinite([*predicted, *(case.estimate for case in own)]).all():
            raise ValueError(f"{name}: the prediction is not a finite number.")
    values = np.asarray(X, dtype=object)
    return [
        ExplainedRow(
            row=table.lines[i],
            name=labels[i],
            prediction=float(columns["prediction"][i]),
            interval=(columns["low"][i].item(), columns["high"][i].item()) if confidence else None,
            applicability=str(applicability[i]),
            values={name: _plain(own) for name, own in zip(case[0].values, values[i], strict=True)},
            cases=case,
        )
        for i, case in enumerate(cases)
    ]


def _plain(value: Any) -> float | str | None:
    """Return a number, the text of a category, or None for a missing value."""
    if value is None or value != value:  # NaN
        return None
    return float(value) if isinstance(value, int | float) else str(value)


def _format_text(explained: Sequence[ExplainedRow], target: str) -> str:
    from twinned.rows.formatting import format_significant

    width = min(shutil.get_terminal_size((100, 24)).columns, _MAX_WIDTH)
    lines: list[str] = []
    for own in explained:
        lines += [*format_grid(own, target, width), ""]
    share = format_significant(100 * min(own.share for own in explained), 2)
    least = "" if len(explained) == 1 or share == "100" else "at least "
    lines.append(
        "A column is a known case: known value + adjustments = adjusted value. The cases shown "
        f"have {least}{share} % of the weight of the prediction."
    )
    return "\n".join(lines)


def _write(path: Path, content: Any, explained: Sequence[ExplainedRow], digits: int) -> None:
    """Write the file, completely or not at all."""
    from twinned.app.cli.result_files import table_content
    from twinned.persistence.archive import write_atomically

    if path.suffix.lower() == ".json":
        data = json.dumps(content, ensure_ascii=False, indent=1).encode()
    else:
        data = table_content(path, *grid_rows(explained), digits)
    write_atomically(path, data)
