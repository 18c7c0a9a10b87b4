"""Numbers and tables as text."""

import pandas as pd

from twinned.diagnostics.errors import Ratio
from twinned.rows.formatting import ResultTable


def test_interval_of_a_ratio_has_enough_digits():
    assert str(Ratio(0.999, 0.997, 1.002)) == "0.999 (0.997 to 1.002)"
    assert str(Ratio(1.0, 1.0, 1.0)).startswith("1.00")
    assert str(Ratio(0.8, 0.7, 0.95)) == "0.80 (0.70 to 0.95)"


def test_result_table_is_a_plain_frame_after_an_operation():
    made = ResultTable({"weight": [0.123456, 1.0]})
    assert type(made.head(1)) is type(made[made["weight"] < 1]) is pd.DataFrame
    pd.testing.assert_frame_equal(pd.DataFrame(made), pd.DataFrame({"weight": [0.123456, 1.0]}))


def test_a_console_shows_all_columns_of_a_result():
    columns = {f"a long name of column {j}": [j] for j in range(30)}
    assert all(name in repr(ResultTable(columns)) for name in columns)
    assert len(repr(ResultTable({"x": range(1000)})).splitlines()) < 70
