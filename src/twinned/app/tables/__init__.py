"""Table files of the command line and the service: CSV, Excel and Parquet.

`reader` splits a file into columns of text, with `text_files` and `binary_files`; `numbers` and
`dates` detect and parse notations; `roles` recognizes columns that are no features; `columns` and
`frames` convert text to numeric and categorical features.
"""

from twinned.app.tables.columns import Target, parse_limit, target_column
from twinned.app.tables.dates import EPOCH, PARTS, find_no_date, parse_dates
from twinned.app.tables.frames import (
    LIMIT,
    ColumnKinds,
    copied_columns,
    derived_from,
    first_missing,
    prediction_frame,
    source_columns,
    training_frame,
)
from twinned.app.tables.reader import (
    check_argument_order,
    is_model,
    is_pattern,
    parse_table,
    read_table,
    reading_note,
    table_from_text,
)
from twinned.app.tables.table import ReadOptions, Table, is_missing, join_names

__all__ = [
    "EPOCH",
    "LIMIT",
    "PARTS",
    "ColumnKinds",
    "ReadOptions",
    "Table",
    "Target",
    "check_argument_order",
    "copied_columns",
    "derived_from",
    "find_no_date",
    "first_missing",
    "is_missing",
    "is_model",
    "is_pattern",
    "join_names",
    "parse_dates",
    "parse_limit",
    "parse_table",
    "prediction_frame",
    "read_table",
    "reading_note",
    "source_columns",
    "table_from_text",
    "target_column",
    "training_frame",
]
