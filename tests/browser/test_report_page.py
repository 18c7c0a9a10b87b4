"""The report of `twinned advise` in a real browser; `make test-browser` runs it."""

import pytest

from twinned import AutoTwinRegressor, diagnose
from twinned.app.report.collect import collect
from twinned.app.report.render import render
from twinned.datasets import make_wsb

pytestmark = pytest.mark.browser
SECTIONS = ["summary", "predictions", "comparison", "curves", "calibration", "comparables"]


@pytest.fixture(scope="module")
def report():
    X, y = make_wsb(80, random_state=0)
    blend = AutoTwinRegressor(members=["ridge", "gp_rbf"])
    return collect(diagnose(X, y, estimator=blend), title="bridge.csv", target="V")


@pytest.fixture
def page(open_page, report, tmp_path):
    path = tmp_path / "advice.html"
    path.write_text(render(report), encoding="utf-8")
    return open_page(path.as_uri())


def test_every_section_has_a_heading(page, save_screenshot):
    for name in SECTIONS:
        section = page.find_element("id", name)
        assert section.is_displayed()
        assert section.find_element("tag name", "h2").text
    for chart in page.find_elements("css selector", "main svg"):
        assert chart.size["height"] > 40
        assert chart.get_attribute("aria-label")
    save_screenshot("report-light")


def test_selecting_a_row_changes_the_comparables(page, report):
    from selenium.webdriver.support.ui import Select

    def shown():
        return [cell.text for cell in page.find_elements("css selector", "#anchors thead > tr > *")]

    first = shown()
    assert first[1:] == ["this row", *report["comparables"][0]["grid"]["headings"]]
    Select(page.find_element("id", "query")).select_by_index(5)
    assert shown() != first
    query = report["comparables"][5]
    assert f"for row {query['row']}:" in page.find_element("id", "prediction").text
    assert shown()[1:] == ["this row", *query["grid"]["headings"]]
    assert shown()[-1].startswith("all other cases (")
    rows = page.find_elements("css selector", "#anchors tbody tr")
    assert [row.text.split()[0] for row in rows[-2:]] == ["adjusted", "weight"]
    assert page.find_element("id", "alone").text == query["grid"]["summary"]


def test_keyboard_reaches_the_selection(page):
    from selenium.webdriver.common.keys import Keys

    page.find_element("tag name", "body").send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("class") == "skip"
    select = page.find_element("id", "query")
    before = page.find_element("id", "prediction").text
    select.send_keys(Keys.ARROW_DOWN)
    assert page.find_element("id", "prediction").text != before


def test_dark_color_scheme(page, set_dark, save_screenshot, assert_accessible):
    assert set_dark(False) > 200
    assert_accessible()
    assert set_dark(True) < 60
    assert_accessible()
    save_screenshot("report-dark")


def test_page_fits_on_a_telephone(page, set_narrow, save_screenshot, assert_accessible):
    assert set_narrow() <= 390
    assert_accessible()
    save_screenshot("report-narrow")
