"""The page of `twinned serve` in a real browser."""

import socket
import threading
import time

import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor, cross_conformal
from twinned.datasets import make_wsb

pytestmark = pytest.mark.browser
X, y = make_wsb(60, random_state=0)
X = X.iloc[:, :3].assign(material=pd.Categorical(["wood", "brick"] * 30))


@pytest.fixture(scope="module")
def twin():
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0))
    return cross_conformal(twin, X, y, cv=5).store_in()


@pytest.fixture(scope="module")
def address(twin):
    import uvicorn

    from twinned.serve import make_app

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(twin, "bridge.twin"), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def page(opened, address):
    page = opened(address)
    wait(page, lambda: page.find_element("id", "answer").text)
    return page


def wait(page, what):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(page, 10).until(lambda _: what())


def value(page):
    return float(page.find_element("id", "answer").get_attribute("data-value"))


def test_the_form_gives_the_number_of_predict(page, twin, picture):
    from selenium.webdriver.support.ui import Select

    before = value(page)
    for place, number in enumerate(("2.25", "1.5", "2.75")):
        field = page.find_element("id", f"column-{place}")
        field.clear()
        field.send_keys(number)
    Select(page.find_element("id", "column-3")).select_by_visible_text("wood")
    page.find_element("css selector", "form button").click()
    wait(page, lambda: value(page) != before)
    row = pd.DataFrame({"U": [2.25], "R1": [1.5], "R2": [2.75]})
    row["material"] = pd.Categorical(["wood"], categories=["brick", "wood"])
    assert value(page) == pytest.approx(twin.predict(row)[0], rel=1e-12)
    low, high = twin.predict_interval(row, 0.9)[0]
    told = page.find_element("id", "interval").text
    assert told == f"90 % interval: {low:.6g} to {high:.6g}"
    assert len(page.find_elements("css selector", "#anchors tbody tr")) == 8
    assert page.find_element("css selector", "#picture svg").size["height"] > 100
    picture("serve-light")


def test_a_table_is_predicted(page, tmp_path):
    X.to_csv(tmp_path / "some.csv", index=False)
    page.find_element("id", "file").send_keys(str(tmp_path / "some.csv"))
    told = page.find_element("id", "batch-answer")
    wait(page, lambda: "60 rows were predicted" in told.text)


def test_a_wrong_number_is_told(opened, address):
    page = opened(address)
    wait(page, lambda: page.find_element("id", "answer").text)
    field = page.find_element("id", "column-0")
    field.clear()
    field.send_keys("many")
    page.find_element("css selector", "form button").click()
    wait(page, lambda: "'U' must be a number" in page.find_element("id", "answer").text)
    # the browser notes the refusal in its console; nothing else may be there
    noted = page.get_log("browser")
    assert all("422" in line["message"] for line in noted)


def test_dark_and_narrow(page, dark, telephone, picture):
    assert dark(True) < 60
    picture("serve-dark")
    assert telephone() <= 390
    picture("serve-narrow")
