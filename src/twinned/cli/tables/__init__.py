"""Tables of the command line: CSV, Excel and Parquet files as features and a target.

`reader` splits a file into columns of text, with `text_files` and `binary_files`; `numbers` and
`dates` detect and parse notations; `roles` recognizes columns that are no features; `columns` and
`frames` convert text to numeric and categorical features.
"""

from twinned.cli.tables.columns import Target, target_column
from twinned.cli.tables.frames import (
    ColumnKinds,
    first_missing,
    prediction_frame,
    source_columns,
    training_frame,
)
from twinned.cli.tables.reader import (
    check_argument_order,
    is_pattern,
    read_table,
    reading_note,
    table_from_text,
)
from twinned.cli.tables.table import ReadOptions, Table, is_missing, join_names

__all__ = [
    "ColumnKinds",
    "ReadOptions",
    "Table",
    "Target",
    "check_argument_order",
    "first_missing",
    "is_missing",
    "is_pattern",
    "join_names",
    "prediction_frame",
    "read_table",
    "reading_note",
    "source_columns",
    "table_from_text",
    "target_column",
    "training_frame",
]
