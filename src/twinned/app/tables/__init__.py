"""Table files of the command line and the service: CSV, Excel and Parquet.

`reader` splits a file into columns of text, a `table`; `numbers` detects and parses notations;
`columns` converts a column of text to numbers, categories or parts of dates, and `frames` those
that are features to a DataFrame.
"""

from twinned.app.tables.columns import (
    BOOLEANS,
    EPOCH,
    PARTS,
    date_columns,
    parse_limit,
)
from twinned.app.tables.frames import (
    LIMIT,
    copied_columns,
    derived_from,
    prediction_frame,
    source_columns,
)
from twinned.app.tables.reader import parse_table
from twinned.app.tables.table import ReadOptions, Table, is_missing

__all__ = [
    "BOOLEANS",
    "EPOCH",
    "LIMIT",
    "PARTS",
    "ReadOptions",
    "Table",
    "copied_columns",
    "date_columns",
    "derived_from",
    "is_missing",
    "parse_limit",
    "parse_table",
    "prediction_frame",
    "source_columns",
]
