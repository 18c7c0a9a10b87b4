"""The picture of the report in the documentation: a part of the page that the demo writes.

Needs Chromium, its driver and selenium, as `make test-browser` does.

    make demo
    python examples/report_picture.py out/advice.html docs/pictures/report.png
"""

import argparse
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

WIDTH, HEIGHT = 1000, 1080
FIRST_SECTION = "calibration"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="HTML file of the report")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    arguments = parser.parse_args()
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(arguments.report.resolve().as_uri())
        section = f"document.getElementById('{FIRST_SECTION}')"
        driver.execute_script(section + ".scrollIntoView({behavior: 'instant'})")
        driver.save_screenshot(str(arguments.picture))
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
