"""The report has the results of the diagnosis, on one page that loads nothing else."""

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
from twinned.report.charts import Chart, bar_chart, format_number, powers, ticks

SECTIONS = ["summary", "predictions", "comparison", "curves", "calibration", "comparables", "next"]


@pytest.fixture(scope="module")
def table():
    X, y = make_wsb(80, random_state=0)
    X = X.copy()
    X["</script><b>"] = pd.Categorical(["left", "right"] * 40)
    return X, y


@pytest.fixture(scope="module")
def diagnosis(table):
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=8, random_state=0), random_state=0)
    return diagnose(*table, estimator=twin)


@pytest.fixture(scope="module")
def report(diagnosis):
    return collect(diagnosis, title="bridges & <others>", target="voltage")


class PageParser(HTMLParser):
    """Collects ids and links, and tags that are closed in the wrong order."""

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


def test_report_can_be_written_as_json(report):
    again = json.loads(json.dumps(report))
    assert again["rows"] == 80
    assert again["conclusion"] in ("helps", "does not help", "no clear difference")
    assert len(again["predictions"]["truth"]) == 80
    assert again["importance"][0]["share"] > 0
    assert again["next_steps"]


def test_comparables_add_up(report, diagnosis):
    cv = diagnosis.cross_validation
    held_out = np.empty(80)
    for (mean, _), (_, rows) in zip(diagnosis.held_out, cv.folds, strict=True):
        held_out[rows] = mean
    assert len(report["comparables"]) == 40
    for query in report["comparables"][:5]:
        assert len(query["anchors"]) == 8
        assert query["truth"] == pytest.approx(cv.y[query["row"] - 1], rel=1e-5)
        assert query["predicted"] == pytest.approx(held_out[query["row"] - 1], rel=1e-4)
        for anchor in query["anchors"]:
            assert anchor["known"] == pytest.approx(cv.y[anchor["row"] - 1], rel=1e-5)
            total = anchor["known"] + anchor["difference"]
            assert anchor["estimate"] == pytest.approx(total, abs=1e-4)


def test_coverage_of_intervals_calibrated_on_other_folds(report):
    calibration = report["calibration"]
    coverage = dict(zip(calibration["confidence"], calibration["coverage"], strict=True))
    assert coverage[0.5] < coverage[0.95]
    assert abs(coverage[0.9] - 0.9) < 0.15


def test_page_is_valid_and_loads_nothing(report):
    page = render(report)
    assert len(page) < 5_000_000
    parsed = PageParser(page)
    assert not parsed.problems
    assert not parsed.open
    assert set(SECTIONS) <= set(parsed.ids)
    assert all(link.startswith("#") for link in parsed.links)
    assert not re.search(r"https?://", page)
    assert "bridges &amp; &lt;others&gt;" in page
    assert report["summary"].replace("'", "&#39;") in page


def test_page_names_the_settings_of_the_compared_estimators(report):
    assert "<code>DecisionTreeRegressor(max_depth=8, random_state=0)</code>" in render(report)


def test_data_cannot_end_its_script_element(report):
    page = render(report)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1]
    assert json.loads(data) == report["comparables"]
    assert page.count("</script>") == 2


def test_page_of_a_diagnosis_with_skipped_checks(table):
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    X, y = table
    report = collect(diagnose(X, y, estimator=twin, budget=0.001), title="t")
    assert "Do more pairs help?" not in render(report)
    assert any("--budget" in step for step in report["next_steps"])


def test_columns_of_arrays_have_names():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(40, 2))
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    report = collect(diagnose(X, X[:, 0], estimator=twin, budget=0.001), title="t")
    assert report["columns"] == ["x0", "x1"]
    assert report["importance"][0]["name"] == "x0"


@pytest.mark.parametrize("limits", [(0.0, 1.0), (-3.0, 7e5), (1e-9, 2e-9), (5.0, 5.0)])
def test_ticks_lie_within_the_axis(limits):
    chart = Chart(limits, limits, "x", "y")
    marks = ticks(*chart.y_range)
    assert 2 <= len(marks) <= 8
    assert all(chart.y_range[0] <= mark <= chart.y_range[1] for mark in marks)
    assert "NaN" not in chart.svg("description")


def test_numbers_and_names_in_charts():
    assert powers(0.9, 5000.0)[0] == 1.0
    assert len(powers(1.0, 1e9)) <= 8
    assert format_number(-0.0001234) == "-0.0001234"
    assert "<b>" not in bar_chart(["<b>"], [1.0], "one <b>")


def test_nullable_columns_and_categories_of_digits():
    rng = np.random.RandomState(0)
    frame = pd.DataFrame({"n": pd.array([*range(39), None], dtype="Int64")})
    frame["b"] = pd.array([True, None] * 20, dtype="boolean")
    frame["postcode"] = pd.Categorical(["10135", "10136"] * 20)
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    report = collect(diagnose(frame, rng.rand(40), estimator=twin, budget=0.001), title="t")
    shown = {value for query in report["comparables"] for value in query["values"]}
    assert "10135" in shown
    assert "missing" in shown
