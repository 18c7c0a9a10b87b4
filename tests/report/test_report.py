"""The report has the results of the diagnosis, on one page that loads nothing else."""

import json
import re
from html.parser import HTMLParser
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from twinned import AutoTwinRegressor, diagnose, write_report
from twinned.app.report.collect import collect
from twinned.app.report.render import draw_bars, draw_charts, render
from twinned.datasets import make_wsb

SECTIONS = [
    "summary",
    "findings",
    "predictions",
    "comparison",
    "curves",
    "calibration",
    "comparables",
]


@pytest.fixture(scope="module")
def table():
    X, y = make_wsb(80, random_state=0)
    X = X.copy()
    X["</script><b>"] = pd.Categorical(["left", "right"] * 40)
    return X, y


@pytest.fixture(scope="module")
def diagnosis(table):
    return diagnose(*table, estimator=AutoTwinRegressor(members=["ridge", "gp_rbf"]))


def quick_diagnosis(X, y, **options):
    estimator = AutoTwinRegressor(members=["ridge"])
    return diagnose(X, y, estimator=estimator, budget=0.001, **options)


@pytest.fixture(scope="module")
def report(diagnosis):
    return collect(diagnosis, title="bridges & <others>", target="voltage")


@pytest.fixture(scope="module")
def charts(report):
    return draw_charts(report)


@pytest.fixture(scope="module")
def page(report, charts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twinned.app.report.render.draw_charts", lambda report: charts)
        return render(report)


@pytest.fixture
def drawn(charts, monkeypatch):
    """Where only the text of a page is tested, its charts are those that are drawn already."""
    monkeypatch.setattr("twinned.app.report.render.draw_charts", lambda report: charts)


def test_write_report_writes_the_page(diagnosis, tmp_path):
    write_report(diagnosis, tmp_path / "report.html", title="bridges", target="voltage")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<h1>bridges" in page
    assert "voltage" in page
    assert f"{diagnosis.n_rows} rows" in page


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


def test_verdict_is_that_of_the_error_beside_the_mean(report, page):
    errors = report["errors"]
    is_good = 2 * errors["rmse"] ** 2 <= errors["mean_rmse"] ** 2
    assert report["verdict"] == ("good" if is_good else "fair")
    assert f'<p class="conclusion {report["verdict"]}">' in page


def test_the_error_of_the_mean_is_in_the_table_and_not_in_the_chart(page, charts):
    assert "mean of y" in page
    assert "mean of y" not in charts["comparison"]


def test_report_can_be_written_as_json(report):
    again = json.loads(json.dumps(report, allow_nan=False))
    assert again["rows"] == again["fitted_rows"] == 80
    assert again["conclusion"] == "unknown"  # no member is a twin
    assert len(again["predictions"]["truth"]) == 80
    assert again["importance"][0]["share"] > 0
    assert [row["model"] for row in again["leaderboard"]] == ["gp_rbf", "ridge", "mean of y"]
    assert again["leaderboard"][2]["weight"] is None
    assert again["recommended"] == {"gp_rbf": 1.0}


def test_predictions_are_those_of_the_recommended_model(report, diagnosis):
    twin, shown = diagnosis.twin, report["predictions"]
    rows = np.array(shown["row"]) - 1
    assert shown["predicted"] == pytest.approx(twin.out_of_fold_prediction_[rows], rel=1e-5)
    assert shown["truth"] == pytest.approx(diagnosis.y[rows], rel=1e-5)


def test_importance_is_the_relevance_of_the_recommended_model(report, diagnosis, table):
    X, _ = table
    shares = {feature["name"]: feature["share"] for feature in report["importance"]}
    expected = dict(zip(X.columns, diagnosis.model.feature_relevance_, strict=True))
    assert shares == pytest.approx(expected, abs=1e-4)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert shares["unused1"] < 0.1 < shares["R1"]


@pytest.mark.parametrize("log_target", [False, True])
def test_comparables_add_up(table, log_target):
    X, y = table[0], np.exp(table[1])
    diagnosis = quick_diagnosis(X, y, log_target=log_target)
    predicted = diagnosis.out_of_fold["prediction"].to_numpy()
    queries = collect(diagnosis, title="t")["comparables"]
    assert len(queries) == 40
    apply = np.log if log_target else np.asarray
    fold, known = diagnosis.out_of_fold["fold"].to_numpy(), np.asarray(y)
    for query in queries[:5]:
        row, cases, others = query["row"] - 1, query["comparables"], query["others"]
        assert len(cases) == 5
        assert query["truth"] == pytest.approx(known[row], rel=1e-5)
        assert query["predicted"] == pytest.approx(predicted[row], rel=1e-4)
        weights, estimates = (
            np.array([case[name] for case in (*cases, others)]) for name in ("weight", "estimate")
        )
        assert weights.sum() == pytest.approx(1.0, rel=1e-12)
        assert weights @ estimates == pytest.approx(predicted[row], rel=1e-9)
        alone = np.average(estimates[:5], weights=weights[:5])
        assert query["comparables_estimate"] == pytest.approx(alone)
        assert sum(case["count"] for case in (*cases, others)) == (fold != fold[row]).sum()
        gaps = [apply(case["estimate"]) - apply(predicted[row]) for case in cases]
        errors = diagnosis.twin.anchor_residuals_[[case["anchor"] for case in cases]]
        np.testing.assert_allclose(np.diff(gaps), np.diff(errors), atol=1e-9)
        for case in cases:
            assert fold[case["anchor"]] != fold[row]
            assert case["known"] == pytest.approx(known[case["anchor"]], rel=1e-9)
            total = sum(case["adjustments"].values())
            assert total == pytest.approx(case["estimate"] - case["known"], abs=1e-9)
        *_, (_, own, values), (_, _, shares) = query["grid"]["lines"]
        assert float(own.replace("−", "-").replace(",", "")) == pytest.approx(predicted[row], 1e-3)
        assert len(values) == len(shares) == len(query["grid"]["headings"]) == 6
        assert sum(float(share.split()[0]) for _, share in shares) == pytest.approx(100, abs=0.05)


def test_near_cases_have_the_local_weights_of_the_model(rng):
    X = pd.DataFrame(rng.uniform(size=(60, 2)), columns=["a", "b"])
    diagnosis = quick_diagnosis(X, np.sin(3 * X["a"]) + X["b"] ** 2)  # errors of ridge are smooth
    assert diagnosis.twin.local_power_ > 0
    for query in collect(diagnosis, title="t")["comparables"]:
        cases = [*query["comparables"], query["others"]]
        weights, estimates = ([case[name] for case in cases] for name in ("weight", "estimate"))
        assert sorted(weights[:5], reverse=True) == weights[:5]
        assert weights[0] > 5 / 60
        predicted = diagnosis.out_of_fold["prediction"][query["row"] - 1]
        assert np.dot(weights, estimates) == pytest.approx(predicted, rel=1e-9)


def test_copies_are_one_case(table):
    rows = [*range(60), *range(20)]
    X, y = table[0].iloc[rows].reset_index(drop=True), np.asarray(table[1])[rows]
    queries = collect(quick_diagnosis(X, y), title="t")["comparables"]
    counts = {case["anchor"]: case["count"] for query in queries for case in query["comparables"]}
    assert {anchor for anchor, count in counts.items() if count == 2} == {
        anchor for anchor in counts if anchor < 20
    }
    assert max(counts) < 60
    headings = {heading for query in queries for heading in query["grid"]["headings"]}
    assert any(heading.endswith("(2 rows)") for heading in headings)


def test_comparables_are_the_nearest_by_the_metric_of_explain(report, diagnosis, table):
    fold = diagnosis.out_of_fold["fold"].to_numpy()
    for query in report["comparables"][:5]:
        row = query["row"] - 1
        explained = diagnosis.twin.explain(table[0].iloc[[row]], n=40)["anchor"].to_numpy()
        nearest = [i for i in explained if i >= 0 and fold[i] != fold[row]]
        assert [case["anchor"] for case in query["comparables"]] == nearest[:5]


def test_adjustments_within_a_time_limit(diagnosis, drawn):
    report = collect(diagnosis, title="t", seconds=0.0)
    for query in report["comparables"]:
        assert all("adjustments" not in case for case in query["comparables"])
        assert list(query["values"]) == list(diagnosis.X.columns)
    page = render(report)
    assert "Row to explain" in page
    assert "The last rows have no adjustments: the time did not suffice." in page


def test_rows_are_marked_where_they_are_outside_of_the_others(report, diagnosis):
    labels = [query["applicability"] for query in report["comparables"]]
    assert labels.count("inside") > 20
    assert set(labels) <= {"inside", "edge", "outside"}


def test_coverage_of_intervals_calibrated_on_other_folds(report):
    calibration = report["calibration"]
    coverage = dict(zip(calibration["confidence"], calibration["coverage"], strict=True))
    assert coverage[0.5] < coverage[0.95]
    assert abs(coverage[0.9] - 0.9) < 0.15


def test_coverage_of_held_out_rows_by_their_distance(report, page, diagnosis):
    table = diagnosis.out_of_fold
    covered = (table["lower"] <= table["y"]) & (table["y"] <= table["upper"])
    classes = {row["class"]: row for row in report["classes"]}
    assert set(classes) <= {"inside", "edge", "outside"}
    assert sum(row["rows"] for row in classes.values()) == len(table) == 80
    total = sum(row["rows"] * row["coverage"] for row in classes.values())
    assert total == pytest.approx(covered.sum())
    squares = sum(row["rows"] * row["error"] ** 2 for row in classes.values())
    assert squares == pytest.approx(((table["y"] - table["prediction"]) ** 2).sum())
    share = f"{100 * classes['inside']['coverage']:.0f} %"
    inside = re.search(r'<th scope="row">inside</th>(.*?)</tr>', page, re.S)[1]
    assert f"<td>{classes['inside']['rows']:.0f}</td>" in inside
    assert f"<td>{share}</td>" in inside


def test_page_is_valid_and_loads_nothing(report, page):
    assert len(page) < 5_000_000
    parsed = PageParser(page)
    assert not parsed.problems
    assert not parsed.open
    assert set(SECTIONS) <= set(parsed.ids)
    assert all(link.startswith("#") for link in parsed.links)
    assert not re.search(r"https?://", page)
    assert "bridges &amp; &lt;others&gt;" in page
    assert report["summary"] in page


def test_page_has_the_leaderboard_with_error_bars(report, page):
    for row in report["leaderboard"]:
        assert re.search(f'<th scope="row"[^>]*>{row["model"]}<', page)
    assert page.count(">recommended<") == 1
    for name, text in report["error_summary"].items():
        assert f'<th scope="row">{name}</th><td>{text}</td>' in page


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_empty_column_causes_no_warning_of_numpy(table):
    X, y = table
    found = collect(quick_diagnosis(X.assign(empty=np.nan), y), title="t")
    assert all(query["comparables"] for query in found["comparables"])


def test_page_shows_findings_with_codes_and_advice(table, report, page, drawn):
    assert report["findings"] == []
    assert "No replicates" in page
    X, y = table
    found = collect(quick_diagnosis(X.assign(copy=2 * y + 1), y), title="t")
    (finding,) = found["findings"]
    assert (finding["code"], finding["level"]) == ("TW201", "warning")
    page = render(found)
    for part in (
        ">TW201</a>",
        'href="#tw201-1"',
        'id="tw201-1"',
        "TW201 has a section on the page",
    ):
        assert part in page
    assert "Exclude" in page


def test_coverage_and_errors_have_error_bars(report, charts):
    coverage = report["calibration"]
    expected = [np.sqrt(c * (1 - c) / 80) for c in coverage["confidence"]]
    assert coverage["standard_error"] == pytest.approx(expected)
    assert charts["comparison"].count("stroke: var(--ink)") == 2  # without the mean


def test_page_of_a_subset_names_the_rows_of_the_table(table, monkeypatch, drawn):
    module = import_module("twinned.diagnostics.diagnosis")
    monkeypatch.setattr(module, "affordable_rows", lambda *sizes: 50)
    report = collect(quick_diagnosis(*table), title="subset")
    assert (report["rows"], report["fitted_rows"]) == (80, 50)
    assert "(50 fitted)" in render(report)
    for query in report["comparables"]:
        assert query["truth"] == pytest.approx(table[1].iloc[query["row"] - 1], rel=1e-5)


def test_data_cannot_end_its_script_element(report, page):
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1]
    assert json.loads(data)["queries"] == json.loads(json.dumps(report["comparables"]))
    assert page.count("</script>") == 2


def test_page_of_a_diagnosis_with_skipped_checks(table):
    report = collect(quick_diagnosis(*table), title="t")
    page = render(report)
    assert "Would more labels help?" not in page
    assert "learning curve of ridge: expected to take" in page


def test_columns_of_arrays_have_names():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(40, 2))
    report = collect(quick_diagnosis(X, X[:, 0]), title="t")
    assert report["columns"] == ["x0", "x1"]
    assert report["importance"][0]["name"] == "x0"


def test_charts_are_those_of_the_page(report, charts):
    """Each point has its text, all colors are variables of the page, and texts are no paths."""
    assert set(charts) == {
        "predictions", "residuals", "calibration", "comparison", "importance", "learning"
    }  # fmt: skip
    for chart in charts.values():
        assert not re.search("#[0-9a-f]{6}|font-family", chart)
        assert "<text" in chart
        assert chart.startswith('<svg viewBox="0 0 400 ')
    shown = report["predictions"]
    for name in ("predictions", "residuals"):
        texts = re.findall("<title>(.*?): known", charts[name])
        assert sorted(texts) == sorted(shown["name"])
    coverage = report["calibration"]["coverage"]
    assert (
        f"<title>confidence 50 %, coverage {100 * coverage[0]:.0f} %</title>"
        in (charts["calibration"])
    )
    assert charts["learning"].count("<title>") == len(report["checks"]["learning"]["numbers"]["x"])


def test_names_and_numbers_of_bars():
    name = "<b> of $a very$ longer name"
    chart = draw_bars([(name, 1.0, 0.1), ("東京", 12345.6, 0.0)], "RMSE")
    assert ">&lt;b&gt; of $a very$ longe…</text>" in chart
    assert "&lt;b&gt; of $a very$ longer name" in chart  # for screen readers
    assert ">12,346</text>" in chart
    assert ">東京</text>" in chart
    assert "<b>" not in chart


def test_nullable_columns_and_categories_of_digits():
    rng = np.random.RandomState(0)
    frame = pd.DataFrame({"n": pd.array([*range(39), None], dtype="Int64")})
    frame["b"] = pd.array([True, None] * 20, dtype="boolean")
    frame["postcode"] = pd.Categorical(["10135", "10136"] * 20)
    report = collect(quick_diagnosis(frame, rng.rand(40)), title="t", seconds=0.0)
    lines = [line for query in report["comparables"] for line in query["grid"]["lines"]]
    shown = {text for _, own, cells in lines for text in (own, *(value for value, _ in cells))}
    assert "10135" in shown
    assert "missing" in shown


def test_nothing_to_learn_is_the_headline(rng, drawn):
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["year", "b"])
    report = collect(
        quick_diagnosis(X.assign(year=rng.randint(1990, 2020, 60)), rng.rand(60)), title="t"
    )
    assert report["conclusion"] == "no prediction"
    assert '<p class="conclusion no-prediction">These features do not predict y: ' in render(report)
    lines = [line for query in report["comparables"] for line in query["grid"]["lines"]]
    years = {own for title, own, _ in lines if title == "year"}
    assert years <= {str(year) for year in range(1990, 2020)}  # without separators of thousands


def test_rows_have_the_numbers_of_the_file(rng):
    X = pd.DataFrame({"a": rng.uniform(size=60)})
    diagnosis = diagnose(
        X, X["a"] + rng.normal(size=60), estimator=AutoTwinRegressor(members=["ridge"])
    )
    content = collect(diagnosis, title="t", row_numbers=list(range(2, 62)))
    assert content["predictions"]["row"] == list(range(2, 62))
    assert content["predictions"]["name"][0] == "row 2"
