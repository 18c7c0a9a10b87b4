"""The pages of the documentation in headless Chromium; `make docs` writes them into site/."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
SITE = Path("site")
PAGES = [
    "index", "getting-started/index", "command-line/index", "batches/index", "molecules/index",
    "benchmarks/index", "gallery/index", "api/AutoTwinRegressor/index",
]  # fmt: skip


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address():
    if not SITE.exists():
        pytest.skip("site/ does not exist; make docs writes it")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES)
def test_page_is_readable(open_page, address, set_dark, set_narrow, assert_accessible, name, dark):
    page = open_page(f"{address}/{name}.html")
    set_dark(dark)
    page.execute_script("localStorage.clear()")  # the theme keeps the colors of earlier pages
    page.refresh()
    assert (set_dark(dark) < 128) == dark
    assert_accessible()
    set_narrow()
    page.refresh()
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    assert_accessible()
    page.get_log("browser")  # the theme asks the host of the repository for its version
