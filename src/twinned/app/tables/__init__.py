"""Table files of the command line and the service: CSV, Excel and Parquet.

`reader` splits a file into columns of text, a `table`; `numbers` detects and parses notations;
`columns` converts a column of text to numbers, categories or parts of dates, and `frames` those
that are features to a DataFrame.
"""

# ruff: noqa: F401 (names for other packages)

from twinned.app.tables.columns import (
    BOOLEANS,
    EPOCH,
    PARTS,
    find_no_date,
    parse_dates,
    parse_limit,
)
from twinned.app.tables.frames import (
    LIMIT,
    copied_columns,
    derived_from,
    prediction_frame,
    source_columns,
)
from twinned.app.tables.numbers import is_missing
from twinned.app.tables.reader import parse_table
from twinned.app.tables.table import ReadOptions, Table
