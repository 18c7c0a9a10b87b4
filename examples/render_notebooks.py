"""Run the notebooks of `examples/notebooks` and write them as pages of the documentation.

A notebook is a Python file in the percent format of jupytext: `# %%` begins a cell of code, and
`# %% [markdown]` a cell of text. Jupyter opens it with jupytext, and editors run its cells.

    python examples/render_notebooks.py                    # all pages, in docs/notebooks
    python examples/render_notebooks.py molecules          # one page
    python examples/render_notebooks.py --ipynb out        # Jupyter files without outputs, in out
"""

import argparse
import ast
import contextlib
import io
import json
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot

from twinned.persistence.archive import write_atomically

FOLDER = Path(__file__).resolve().parent / "notebooks"
PAGES = Path(__file__).resolve().parents[1] / "docs" / "notebooks"


class Cell(NamedTuple):
    """A cell of a notebook: its kind, "code" or "markdown", its text, and the line before it."""

    kind: str
    text: str
    line: int


class Output(NamedTuple):
    """What a cell of code printed, the HTML view or text of its last value, and its figures."""

    printed: str
    html: str
    figures: list[bytes]


def read_cells(path):
    """Return the cells of a notebook."""
    cells, kind, lines, first = [], None, [], 0
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), "# %%"], 1):
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        if kind == "markdown":
            lines = [own.removeprefix("#").removeprefix(" ") for own in lines]
        text = "\n".join(lines).rstrip("\n")
        blank = len(text) - len(text.lstrip("\n"))
        if kind and text:
            cells.append(Cell(kind, text[blank:], first + blank))
        kind = "markdown" if "[markdown]" in line else "code"
        lines, first = [], number
    return cells


def run_cells(cells, name):
    """Run the cells of code in one namespace, and return an output for each, None for text."""
    mpl.use("Agg")
    pyplot.close("all")  # figures of the caller are not those of a cell
    namespace = {"__name__": "notebook"}
    return [run_cell(cell, name, namespace) if cell.kind == "code" else None for cell in cells]


def run_cell(cell, name, namespace):
    # preceded by blank lines, so that a traceback shows the line of the file
    tree = ast.parse("\n" * cell.line + cell.text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    figures = [save_figure(pyplot.figure(number)) for number in pyplot.get_fignums()]
    pyplot.close("all")
    html = value.to_html(float_format="{:.4g}".format) if isinstance(value, pd.DataFrame) else ""
    text = "" if html or value is None else f"{value!r}\n"
    return Output(printed.getvalue() + text, html, figures)


def save_figure(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90, metadata={"Software": None})
    return buffer.getvalue()


def to_markdown(cells, outputs, name):
    """Return the text of a page, and the PNG files of its figures by name."""
    parts, files = [], {}
    for cell, output in zip(cells, outputs, strict=True):
        if output is None:
            parts.append(cell.text)
            continue
        parts.append(f"```python\n{cell.text}\n```")
        if output.printed:
            parts.append(f"```text\n{output.printed.rstrip()}\n```")
        if output.html:
            parts.append(output.html)
        for data in output.figures:
            files[file := f"{name}-{len(files) + 1}.png"] = data
            parts.append(f"![figure]({file})")
    source = f"examples/notebooks/{name}.py"
    parts.append(f"*This page is `{source}`, run by `examples/render_notebooks.py`.*")
    return "\n\n".join(parts) + "\n", files


def to_ipynb(cells):
    """Return the notebook as the text of a Jupyter file without outputs."""
    entries = []
    for number, cell in enumerate(cells):
        entry = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}}
        entry["source"] = cell.text.splitlines(keepends=True)
        if cell.kind == "code":
            entry |= {"execution_count": None, "outputs": []}
        entries.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": entries, "metadata": {"kernelspec": kernel}}
    return json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def main():
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(names)}")
    parser.add_argument("--ipynb", type=Path, metavar="FOLDER", help="write Jupyter files here")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"There is no notebook {sorted(unknown)}; use {names}.")
    (options.ipynb or PAGES).mkdir(parents=True, exist_ok=True)
    for name in options.names or names:
        cells = read_cells(FOLDER / f"{name}.py")
        if options.ipynb:
            write_atomically(options.ipynb / f"{name}.ipynb", to_ipynb(cells).encode())
            continue
        text, files = to_markdown(cells, run_cells(cells, f"{name}.py"), name)
        for file, data in {**files, f"{name}.md": text.encode()}.items():
            write_atomically(PAGES / file, data)
        print(f"docs/notebooks/{name}.md")


if __name__ == "__main__":
    main()
