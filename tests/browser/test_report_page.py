"""The page of `twinned advise` in a real browser. `make test-browser` installs what it needs."""

import shutil
import tempfile
from pathlib import Path

import pytest
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor, diagnose
from twinned.datasets import make_wsb
from twinned.report import collect, render

pytestmark = pytest.mark.browser
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SECTIONS = ["summary", "predictions", "comparison", "curves", "calibration", "comparables", "next"]
PICTURES = Path("out/screenshots")


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not BROWSER or not DRIVER:
        pytest.skip("no chromium and chromedriver here; Debian has both as packages")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    with tempfile.TemporaryDirectory() as profile:
        for flag in (
            "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
            "disable-background-networking", "disable-component-update", "disable-sync",
            "hide-scrollbars", f"user-data-dir={profile}",
        ):  # fmt: skip
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        yield driver
        driver.quit()


@pytest.fixture(scope="module")
def facts():
    X, y = make_wsb(80, random_state=0)
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=8, random_state=0), random_state=0)
    return collect(diagnose(X, y, estimator=twin), title="bridge.csv", target="V")


@pytest.fixture
def page(browser, facts, tmp_path):
    path = tmp_path / "advice.html"
    path.write_text(render(facts), encoding="utf-8")
    browser.set_window_size(1100, 900)
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []  # no error, no warning


def picture(page, name):
    PICTURES.mkdir(parents=True, exist_ok=True)
    height = page.execute_script("return document.documentElement.scrollHeight")
    page.set_window_size(page.get_window_size()["width"], height)
    page.save_screenshot(str(PICTURES / f"{name}.png"))


def test_every_section_is_there_and_named(page):
    for name in SECTIONS:
        section = page.find_element("id", name)
        assert section.is_displayed()
        assert section.find_element("tag name", "h2").text
    for drawing in page.find_elements("css selector", "main svg"):
        assert drawing.size["height"] > 40
        assert drawing.get_attribute("aria-label")
    picture(page, "report-light")


def test_choosing_a_row_changes_the_comparables(page, facts):
    from selenium.webdriver.support.ui import Select

    def shown():
        return [row.text for row in page.find_elements("css selector", "#anchors tbody tr")]

    first = shown()
    assert len(first) == 8
    assert f"row {facts['comparables'][0]['anchors'][0]['row']}" in first[0]
    Select(page.find_element("id", "query")).select_by_index(5)
    assert shown() != first
    query = facts["comparables"][5]
    assert f"Row {query['row']}" in page.find_element("id", "told").text
    assert f"row {query['anchors'][0]['row']}" in shown()[0]


def test_the_keyboard_reaches_the_choice(page):
    from selenium.webdriver.common.keys import Keys

    page.find_element("tag name", "body").send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("class") == "skip"
    choice = page.find_element("id", "query")
    before = page.find_element("id", "told").text
    choice.send_keys(Keys.ARROW_DOWN)
    assert page.find_element("id", "told").text != before


def background(page):
    body = page.find_element("tag name", "body")
    numbers = body.value_of_css_property("background-color").strip("rgba()").split(",")[:3]
    return sum(float(number) for number in numbers) / 3


def test_dark_where_the_reader_wants_it(page):
    assert background(page) > 200
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert background(page) < 60
    picture(page, "report-dark")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_telephone_shows_all_of_it(page):
    narrow = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    wide = page.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 390
    picture(page, "report-narrow")
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
