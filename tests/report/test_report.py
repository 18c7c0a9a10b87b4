"""The page says what the diagnosis found, and needs nothing but itself."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor, diagnose
from twinned.datasets import make_wsb
from twinned.report import collect, render
from twinned.report.charts import Chart, bar_chart, number, powers, ticks

SECTIONS = ["summary", "predictions", "comparison", "curves", "calibration", "comparables", "next"]


@pytest.fixture(scope="module")
def table():
    X, y = make_wsb(80, random_state=0)
    X = X.copy()
    X["</script><b>"] = pd.Categorical(["left", "right"] * 40)
    return X, y


@pytest.fixture(scope="module")
def found(table):
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=8, random_state=0), random_state=0)
    return diagnose(*table, estimator=twin)


@pytest.fixture(scope="module")
def facts(found):
    return collect(found, title="bridges & <others>", target="voltage")


class Reader(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.links, self.problems = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        own = dict(attributes)
        self.ids += [own["id"]] if "id" in own else []
        self.links += [own[name] for name in ("href", "src") if name in own]
        if tag not in {"meta", "link", "br", "img", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass


def test_facts_are_json_and_whole(facts):
    again = json.loads(json.dumps(facts))
    assert again["rows"] == 80
    assert again["answer"] in ("helps", "does not help", "no clear difference")
    assert len(again["predictions"]["truth"]) == 80
    assert again["importance"][0]["share"] > 0
    assert again["next"]


def test_comparables_add_up(facts, found):
    assert len(facts["comparables"]) == 40
    for query in facts["comparables"][:5]:
        assert len(query["anchors"]) == 8
        assert query["truth"] == pytest.approx(found.evidence.y[query["row"] - 1], rel=1e-5)
        told = found.evidence.told["twin"][query["row"] - 1]
        assert query["predicted"] == pytest.approx(told, rel=1e-4)
        for anchor in query["anchors"]:
            assert anchor["known"] == pytest.approx(found.evidence.y[anchor["row"] - 1], rel=1e-5)
            total = anchor["known"] + anchor["difference"]
            assert anchor["estimate"] == pytest.approx(total, abs=1e-4)


def test_intervals_of_other_folds_cover(facts):
    covered = dict(zip(facts["calibration"]["level"], facts["calibration"]["covered"], strict=True))
    assert covered[0.5] < covered[0.95]
    assert abs(covered[0.9] - 0.9) < 0.15


def test_the_page_is_whole_and_alone(facts):
    page = render(facts)
    assert len(page) < 5_000_000
    read = Reader(page)
    assert not read.problems
    assert not read.open
    assert set(SECTIONS) <= set(read.ids)
    assert all(link.startswith("#") for link in read.links)
    assert not re.search(r"https?://", page)
    assert "bridges &amp; &lt;others&gt;" in page
    assert facts["verdict"].replace("'", "&#39;") in page


def test_data_cannot_end_the_script_that_holds_it(facts):
    page = render(facts)
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1]
    assert json.loads(held) == facts["comparables"]
    assert page.count("</script>") == 2


def test_a_budget_that_left_things_out_still_makes_a_page(table):
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    X, y = table
    facts = collect(diagnose(X, y, estimator=twin, budget=0.001), title="t")
    assert "Do more pairs help?" not in render(facts)
    assert any("--budget" in step for step in facts["next"])


def test_arrays_have_names_too():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(40, 2))
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    facts = collect(diagnose(X, X[:, 0], estimator=twin, budget=0.001), title="t")
    assert facts["columns"] == ["x0", "x1"]
    assert facts["importance"][0]["name"] == "x0"


@pytest.mark.parametrize("span", [(0.0, 1.0), (-3.0, 7e5), (1e-9, 2e-9), (5.0, 5.0)])
def test_ticks_lie_within(span):
    chart = Chart(span, span, "x", "y")
    marks = ticks(*chart._y)
    assert 2 <= len(marks) <= 8
    assert all(chart._y[0] <= mark <= chart._y[1] for mark in marks)
    assert "NaN" not in chart.svg("picture")


def test_small_things():
    assert powers(0.9, 5000.0)[0] == 1.0
    assert len(powers(1.0, 1e9)) <= 8
    assert number(-0.0001234) == "-0.0001234"
    assert "<b>" not in bar_chart(["<b>"], [1.0], "one <b>")


def test_nullable_columns_and_names_of_digits():
    rng = np.random.RandomState(0)
    frame = pd.DataFrame({"n": pd.array([*range(39), None], dtype="Int64")})
    frame["b"] = pd.array([True, None] * 20, dtype="boolean")
    frame["postcode"] = pd.Categorical(["10135", "10136"] * 20)
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    facts = collect(diagnose(frame, rng.rand(40), estimator=twin, budget=0.001), title="t")
    shown = {value for query in facts["comparables"] for value in query["values"]}
    assert "10135" in shown
    assert "missing" in shown
