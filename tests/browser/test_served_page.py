"""The web page of `twinned serve` in headless Chromium."""

import socket
import threading
import time
from contextlib import contextmanager

import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

from twinned import AutoTwinRegressor, TwinRegressor, cross_conformal
from twinned.datasets import make_wsb

pytestmark = pytest.mark.browser
X, y = make_wsb(60, random_state=0)
X = X.iloc[:, :3].assign(material=pd.Categorical(["wood", "brick"] * 30))


@pytest.fixture(scope="module")
def twin():
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0))
    return cross_conformal(twin, X, y, cv=5)


@contextmanager
def served(model):
    """Context with the address of a service of the model."""
    import uvicorn

    from twinned.app.serve import make_app

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(model, "bridge.twin"), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def address(twin):
    with served(twin) as address:
        yield address


@pytest.fixture
def page(open_page, address):
    page = open_page(address)
    wait_until(page, lambda: text_of(page, "predicted-value"))
    return page


def wait_until(page, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(page, 30).until(lambda _: condition())


def text_of(page, element_id):
    return page.find_element("id", element_id).text


def predicted_value(page):
    return float(page.find_element("id", "predicted-value").get_attribute("data-value"))


def test_form_shows_the_prediction_of_the_model(page, twin, save_screenshot):
    from selenium.webdriver.support.ui import Select

    before = predicted_value(page)
    for index, number in enumerate(("2,25", "1.5", "2.75")):  # a decimal comma is accepted
        field = page.find_element("id", f"column-{index}")
        field.clear()
        field.send_keys(number)
    Select(page.find_element("id", "column-3")).select_by_visible_text("wood")
    page.find_element("css selector", "form button").click()
    wait_until(page, lambda: predicted_value(page) != before)
    row = pd.DataFrame({"U": [2.25], "R1": [1.5], "R2": [2.75]})
    row["material"] = pd.Categorical(["wood"], categories=["brick", "wood"])
    assert predicted_value(page) == pytest.approx(twin.predict(row)[0], rel=1e-12)
    low, high = twin.predict_interval(row, 0.9)[0]
    interval = f"90 % prediction interval: {low:.4g} to {high:.4g} · inside"
    assert text_of(page, "interval") == interval
    rows = [line.text for line in page.find_elements("css selector", "#cases tbody tr")]
    assert len(rows) == 9
    assert rows[8].startswith("all other cases (52 rows) ")
    shares = [float(text.split(" %")[0].split()[-1]) for text in rows]
    assert sum(shares) == pytest.approx(100.0, abs=0.1)
    assert text_of(page, "alone").endswith(f"of the prediction, {twin.predict(row)[0]:.4g}.")
    plot = page.find_element("css selector", "#plot svg")
    labels = [text.text for text in plot.find_elements("tag name", "text")]
    assert labels[-8:] == [" ".join(line.split()[:2]) for line in rows[:8]]
    band = plot.find_element("class name", "band")
    assert 0 < band.size["width"] < plot.size["width"]
    save_screenshot("serve-light")


@pytest.mark.filterwarnings("ignore::twinned.exceptions.UnknownCategoryWarning")
def test_new_category_is_predicted_with_a_warning(page):
    from selenium.webdriver.support.ui import Select

    text = page.find_element("id", "new-3")
    assert not text.is_displayed()
    Select(page.find_element("id", "column-3")).select_by_visible_text("new category…")
    assert text.is_displayed()
    text.send_keys("straw")
    page.find_element("css selector", "form button").click()
    message = "'straw' was not among the categories at fit"
    wait_until(page, lambda: message in text_of(page, "warnings"))


def test_missing_category_is_predicted(page, twin):
    from selenium.webdriver.support.ui import Select

    Select(page.find_element("id", "column-3")).select_by_visible_text("missing")
    page.find_element("css selector", "form button").click()
    wait_until(page, lambda: text_of(page, "applicability").startswith("Outside"))


def test_the_form_has_missing_values(open_page):
    notes = pd.Categorical(["wood", "brick", *[None] * 58])
    table = X.assign(U=X["U"].where(X.index < 9), material=notes)
    model = TwinRegressor(HistGradientBoostingRegressor(max_iter=3), pairs=4).fit(table, y)
    with served(model) as address:
        page = open_page(address)
        wait_until(page, lambda: text_of(page, "predicted-value"))
        fields = [page.find_element("id", f"column-{i}") for i in (0, 3)]
        assert [field.get_attribute("value") for field in fields] == ["", "missing"]
        assert text_of(page, "predicted-value").startswith("y: ")


@pytest.fixture(scope="module")
def assay():
    """A blend of rows of three laboratories, with offsets of 0, 10 and 20."""
    laboratory = pd.Series(["A", "B", "C"] * 20)
    blend = AutoTwinRegressor(members=["ridge", "gp_rbf"], random_state=0)
    blend.fit(
        X[["U", "R1"]], X["U"] * X["R1"] + 10.0 * laboratory.map("ABC".index), batch=laboratory
    )
    blend.batch_name_, blend.target_name_ = "laboratory", "yield"
    return blend


def test_invalid_number_shows_the_error(page):
    field = page.find_element("id", "column-0")
    field.clear()
    field.send_keys("many")
    page.find_element("css selector", "form button").click()
    wait_until(page, lambda: "column 'U'" in text_of(page, "predicted-value"))
    assert not page.find_element("id", "comparables").is_displayed()
    field.clear()
    field.send_keys("1,234")  # with a comma between thousands?
    page.find_element("css selector", "form button").click()
    wait_until(page, lambda: "write a number such as 1.5" in text_of(page, "predicted-value"))
    # the browser logs the failed request; nothing else may be in its console
    assert all("422" in entry["message"] for entry in page.get_log("browser"))


def test_results_of_another_input_are_gray(page, assert_accessible):
    def stale():
        return [part.get_attribute("id") for part in page.find_elements("class name", "stale")]

    assert stale() == []
    page.find_element("id", "column-0").send_keys("1")
    wait_until(page, lambda: stale() == ["prediction", "comparables"])
    assert_accessible()
    page.find_element("css selector", "form button").click()
    wait_until(page, lambda: stale() == [])


def test_controls_can_be_touched(open_page, assay, assert_accessible):
    with served(assay) as address:
        page = open_page(address)
        wait_until(page, lambda: text_of(page, "predicted-value"))
        controls = page.find_elements("css selector", "input, select, button")
        sizes = [control.size["height"] for control in controls if control.is_displayed()]
        assert len(sizes) > 3
        assert min(sizes) >= 41
        assert_accessible()


def test_dark_and_narrow(page, set_dark, set_narrow, save_screenshot, assert_accessible):
    assert set_dark(True) < 60
    save_screenshot("serve-dark")
    assert_accessible()
    assert set_narrow() <= 390
    assert_accessible()
    table = page.find_element("id", "cases")
    assert table.size["height"] < 440  # ten rows
    assert table.value_of_css_property("display") == "table"
    save_screenshot("serve-narrow")
