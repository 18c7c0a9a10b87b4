"""`twinned explain`: comparable known cases of the rows of a table, with adjustment grids."""

from dataclasses import dataclass
from typing import Annotated

import typer

from twinned.app.cli import messages
from twinned.app.cli.options import BatchOptions, column_option

_MAX_PRINTED = 10  # rows, without --rows


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
        all other cases.
    """

    rows: Annotated[list[str] | None, typer.Option(metavar="ROWS")] = None
    k: Annotated[int, typer.Option("-k", min=1, metavar="K")] = 5
    label: Annotated[str | None, column_option("--label", "-l")] = None


def explain_command(options: ExplainOptions) -> None:
    """Explain predictions by comparable known cases."""
    from twinned.app.cli import explanation, saved_model

    path = options.result_path(options.known)
    predictor, table = saved_model.load_with_table(options)
    predictor = saved_model.with_batches(predictor, options)
    table.require([] if options.label is None else [options.label], "--label")
    selected = explanation.select_rows(table, table.row_names(options.label), options.rows or [])
    is_shortened = not options.rows and path is None and not options.as_json
    table = table.take(selected[:_MAX_PRINTED] if is_shortened else selected)
    rows = saved_model.read_rows(predictor, table)
    saved_model.note_unknown_batch(predictor, rows.batch)
    predictor.require_single_target("explain")
    with messages.print_warnings():
        labels = table.row_names(options.label)
        explained = explanation.explain_rows(predictor, table, rows, labels, options.k)
    facts = {"model": str(options.model), "table": str(options.table), "target": predictor.target}
    content: dict[str, object] = facts | {"rows": [row.as_dict() for row in explained]}
    if path is None:
        text = "" if options.as_json else explanation.format_grids(explained, predictor.target)
    else:
        saved_model.write_table(path, explanation.grid_columns(explained), options.digits)
        cases = f"with at most {messages.counted(options.k, 'known case')} each"
        text = f"{messages.counted(len(explained), 'row')} in {options.output}, {cases}"
        content = facts | {"rows": len(explained), "output": str(options.output)}
    messages.print_result(content, text, options.as_json)
    if len(explained) < len(selected):
        more = f"the first {len(explained)} of {len(selected):,} rows are explained"
        messages.print_message("note", f"{more}; --rows selects others, and -o writes all.")
