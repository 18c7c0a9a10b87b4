"""Fixtures for tests of web pages: one headless Chromium for all of them."""

import shutil
import tempfile
from pathlib import Path

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SCREENSHOTS = Path("out/screenshots")


@pytest.fixture(scope="session")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not BROWSER or not DRIVER:
        pytest.skip("chromium or chromedriver is not installed")
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
def open_page(browser):
    """Function that opens an address in a desktop window; no page may log to the console."""

    def open_address(address):
        browser.set_window_size(1100, 900)
        browser.get(address)
        return browser

    yield open_address
    assert browser.get_log("browser") == []


@pytest.fixture
def save_screenshot(browser):
    """Function that saves a screenshot of the whole page for inspection."""

    def save(name):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.set_window_size(browser.get_window_size()["width"], height)
        browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))

    return save


@pytest.fixture
def set_dark(browser):
    """Function that switches the dark color scheme on or off, and returns the brightness."""

    def switch(dark):
        features = [{"name": "prefers-color-scheme", "value": "dark"}] if dark else []
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        body = browser.find_element("tag name", "body")
        colors = body.value_of_css_property("background-color").strip("rgba()").split(",")[:3]
        return sum(float(color) for color in colors) / 3

    yield switch
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def set_narrow(browser):
    """Function that switches to the screen of a phone, and returns the width of the page."""
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}

    def switch():
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        return browser.execute_script("return document.documentElement.scrollWidth")

    yield switch
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
