"""One headless Chromium for all pages."""

import shutil
import tempfile
from pathlib import Path

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PICTURES = Path("out/screenshots")


@pytest.fixture(scope="session")
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


@pytest.fixture
def opened(browser):
    """Opens an address in a window of a desk's size; at the end the console must be empty."""

    def go(address):
        browser.set_window_size(1100, 900)
        browser.get(address)
        return browser

    yield go
    assert browser.get_log("browser") == []  # no error, no warning


@pytest.fixture
def picture(browser):
    """Keeps a screenshot of the whole page, to be looked at."""

    def take(name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.set_window_size(browser.get_window_size()["width"], height)
        browser.save_screenshot(str(PICTURES / f"{name}.png"))

    return take


@pytest.fixture
def dark(browser):
    """The reader prefers dark pages."""

    def prefer(wanted):
        features = [{"name": "prefers-color-scheme", "value": "dark"}] if wanted else []
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        body = browser.find_element("tag name", "body")
        numbers = body.value_of_css_property("background-color").strip("rgba()").split(",")[:3]
        return sum(float(number) for number in numbers) / 3  # how bright it is now

    yield prefer
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def telephone(browser):
    """A narrow screen; gives the width of the page on it."""
    narrow = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}

    def turn():
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        return browser.execute_script("return document.documentElement.scrollWidth")

    yield turn
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
