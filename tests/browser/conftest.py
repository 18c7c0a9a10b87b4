"""Fixtures for tests of web pages: one headless Chromium for all of them."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SCREENSHOTS = Path("out/screenshots")
PACKAGES = Path("build/npm")
AXE = "axe-core@4.14"


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


@pytest.fixture(scope="session")
def axe_script():
    """The program of axe-core, which npm installs."""
    path = PACKAGES / "node_modules/axe-core/axe.min.js"
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not installed, so axe-core is missing")
        command = [npm, "install", "--silent", "--prefix", PACKAGES, AXE]
        if subprocess.run(command, timeout=300).returncode:
            pytest.skip("npm could not install axe-core")
    return path.read_text(encoding="utf-8")


@pytest.fixture
def assert_accessible(browser, axe_script):
    """Function that requires that axe-core has no serious finding, such as too little contrast."""

    def check():
        browser.execute_script(axe_script)
        violations = browser.execute_async_script(
            "axe.run().then((result) => arguments[arguments.length - 1](result.violations))"
        )
        assert [
            (finding["id"], node["target"], node["failureSummary"])
            for finding in violations
            for node in finding["nodes"]
            if finding["impact"] in ("serious", "critical")
        ] == []

    return check
