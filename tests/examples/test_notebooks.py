"""Notebooks: all cells run, and the pages of the documentation have the same cells."""

import json

import pytest

from examples.render_notebooks import (
    FOLDER,
    PAGES,
    Cell,
    read_cells,
    run_cells,
    to_ipynb,
    to_markdown,
)

NOTEBOOKS = sorted(FOLDER.glob("*.py"))


@pytest.fixture
def example(tmp_path):
    path = tmp_path / "example.py"
    path.write_text(
        "# %% [markdown]\n# # A title\n#\n# Text.\n\n# %%\nx = 2\nprint('<x>')\n\n\n# %%\nx + 1\n"
    )
    return path


def test_cells_are_read(example):
    assert read_cells(example) == [
        Cell("markdown", "# A title\n\nText.", 1),
        Cell("code", "x = 2\nprint('<x>')", 6),
        Cell("code", "x + 1", 11),
    ]


def test_outputs_are_in_the_page(example):
    cells = read_cells(example)
    outputs = run_cells(cells, "example.py")
    assert [own and own.printed for own in outputs] == [None, "<x>\n", "3\n"]
    text, files = to_markdown(cells, outputs, "example")
    assert text.startswith(
        "# A title\n\nText.\n\n```python\nx = 2\nprint('<x>')\n```\n\n```text\n<x>"
    )
    assert files == {}


def test_figures_and_views_are_in_the_page():
    code = (
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\n"
        "import pandas as pd\npd.DataFrame({'a': [1]})"
    )
    cells = [Cell("code", code, 1)]
    text, files = to_markdown(cells, run_cells(cells, "own.py"), "own")
    assert list(files) == ["own-1.png"]
    assert files["own-1.png"].startswith(b"\x89PNG")
    assert "![figure](own-1.png)" in text
    assert "<table" in text


def test_error_has_the_line_of_the_file(example):
    example.write_text("# %%\nx = 1\n\n# %%\n\ny = 1 / 0\n")
    with pytest.raises(ZeroDivisionError) as error:
        run_cells(read_cells(example), "example.py")
    assert error.traceback[-1].lineno + 1 == 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_jupyter_file_has_all_cells(path):
    cells = read_cells(path)
    notebook = json.loads(to_ipynb(cells))
    assert notebook["nbformat"] == 4
    assert ["".join(cell["source"]) for cell in notebook["cells"]] == [own.text for own in cells]
    assert cells[0].kind == "markdown"
    assert cells[0].text.startswith("# ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_page_has_the_cells_of_the_notebook(path):
    """If it fails: `python examples/render_notebooks.py`."""
    text = (PAGES / f"{path.stem}.md").read_text("utf-8")
    for cell in read_cells(path):
        assert cell.text in text


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch, shipped_defaults):
    monkeypatch.delenv("TWINNED_DATA", raising=False)
    outputs = run_cells(read_cells(path), path.name)
    assert any(own and own.figures for own in outputs)
