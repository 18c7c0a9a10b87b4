"""A picture of a web page for the documentation: of the report of the demo, or of a served model.

Needs Chromium, its driver and selenium, as `make test-browser` does.

    make demo
    python examples/page_picture.py out/advice.html docs/pictures/report.png \\
        --section calibration --height 1430
    twinned serve houses.twin &  # of docs/command-line.md
    python examples/page_picture.py http://127.0.0.1:8000 docs/pictures/serving.png --height 1138
    twinned serve assay.twin &  # of the molecules of docs/molecules.md
    python examples/page_picture.py http://127.0.0.1:8000 docs/pictures/molecules.png \\
        --input "CCCCC(C)O" --width 600 --height 1900
"""

import argparse
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

SECONDS = 8  # for the answers of a service


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", help="HTML file, or address of a page")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    parser.add_argument("--input", help="value to predict, of the first field of a service")
    parser.add_argument("--section", help="id of the element to begin with")
    parser.add_argument("--height", type=int, default=1080, help="number of pixels")
    parser.add_argument("--width", type=int, default=1000, help="number of pixels")
    arguments = parser.parse_args()
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        size = {"width": arguments.width, "height": arguments.height}
        size |= {"deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        served = arguments.page.startswith("http")
        driver.get(arguments.page if served else Path(arguments.page).resolve().as_uri())
        if served:
            time.sleep(SECONDS)
        if arguments.input:
            field = driver.find_element("id", "column-0")
            field.clear()
            field.send_keys(arguments.input)
            field.submit()
            time.sleep(SECONDS)
        if arguments.section:
            section = f"document.getElementById('{arguments.section}')"
            driver.execute_script(section + ".scrollIntoView({behavior: 'instant'})")
        driver.save_screenshot(str(arguments.picture))
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
