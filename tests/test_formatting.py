"""HTML views: rounded, escaped, and without colors of their own."""

import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from twinned import AutoTwinRegressor, TwinRegressor, diagnose
from twinned.datasets import make_wsb
from twinned.diagnostics.errors import Ratio
from twinned.rows.formatting import ResultTable, table


class Parser(HTMLParser):
    """Collects the text, and fails at tags that are not closed."""

    def __init__(self, html):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"] and data.strip():
            self.texts.append(data)


@pytest.fixture(scope="module")
def rows():
    X, y = make_wsb(60, random_state=0)
    return X.rename(columns={X.columns[0]: "<b>&"}), y


def test_cells_are_escaped_and_rounded():
    html = table({"a<b": ["x&y", "z"], "value": [1234.5678, -0.000123456], "n": [3, None]})
    texts = Parser(html).texts
    assert texts == ["a<b", "value", "n", "x&y", "1,235", "3", "z", "−0.0001235"]
    assert "&lt;" in html


def test_interval_of_a_ratio_has_enough_digits():
    assert str(Ratio(0.999, 0.997, 1.002)) == "0.999 (0.997 to 1.002)"
    assert str(Ratio(1.0, 1.0, 1.0)).startswith("1.00")
    assert str(Ratio(0.8, 0.7, 0.95)) == "0.80 (0.70 to 0.95)"


def test_result_table_is_a_plain_frame_after_an_operation():
    made = ResultTable.create(pd.DataFrame({"weight": [0.123456, 1.0]}), {"weight": ".1%"})
    assert "12.3 %" in made._repr_html_()
    assert type(made.head(1)) is type(made[made["weight"] < 1]) is pd.DataFrame
    pd.testing.assert_frame_equal(pd.DataFrame(made), pd.DataFrame({"weight": [0.123456, 1.0]}))


def test_long_tables_are_cut():
    html = ResultTable.create({"x": range(1000)}, {})._repr_html_()
    assert html.count("<tr>") == 61  # of which one is "..."
    assert "1000 rows" in html


def test_comparables(rows):
    X, y = rows
    twin = TwinRegressor(Ridge()).fit(X[:40], y[:40])
    html = twin.explain(X[40:42], 2, adjustments=True)._repr_html_()
    texts = Parser(html).texts
    assert "<b>&" in texts
    assert texts.count("2.5 %") == 4  # weights of 40 anchors


def test_leaderboard(rows):
    model = AutoTwinRegressor(members=["ridge"], random_state=0).fit(*rows)
    texts = Parser(model.leaderboard_._repr_html_()).texts
    assert {"member", "ridge", "1.00"} <= set(texts)


def test_diagnosis(rows):
    blend = AutoTwinRegressor(members=["ridge", "extra_trees:fast"], random_state=0)
    result = diagnose(*rows, estimator=blend, budget=5.0)
    html = result._repr_html_()
    texts = Parser(html).texts
    assert result.summary in texts
    assert result.code in texts
    assert texts.count("✓") == 1


def test_views_have_no_colors_of_their_own():
    style = ResultTable.create({"x": [1.0]}, {})._repr_html_()
    colors = re.findall(r"(?:color|background):([^;}]+)", style)
    assert set(colors) <= {"inherit", "transparent", "rgba(128,128,128,.12)"}
