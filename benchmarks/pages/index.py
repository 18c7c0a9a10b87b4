"""The index of the benchmarks, `benchmarks/README.md`, written from the docstrings of the modules.

python -m benchmarks.pages.index
"""

import ast

from benchmarks import frame

FOLDER = frame.ROOT / "benchmarks"
QUESTIONS = {
    "accuracy": "How accurate are the estimators, beside others and by their settings?",
    "anchors": "Which weights and metrics of anchors help?",
    "intervals": "Do intervals and standard deviations hold?",
    "batches": "How well are rows of known and new batches predicted?",
    "labels": "Which labels help most, and what of labels that are censored?",
    "inverse": "Do proposed inputs reach a wanted target?",
    "speed": "How much time and memory do fits and predictions take?",
    "pages": "The pages and pictures that are written from results.",
}


def index_text():
    """Return the index: for each question its modules, what they do and where results are."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks.pages.index` from the docstrings. Each module is run as "
        "`python -m benchmarks.FOLDER.MODULE`; its docstring names the options and the time it "
        "takes. `frame.py` has the common arguments, resuming and tables.",
    ]
    for folder, question in QUESTIONS.items():
        rows = [row(path) for path in sorted((FOLDER / folder).glob("[!_]*.py"))]
        header = ["module", "what it does", "results"]
        lines += ["", f"## {folder}", "", question, "", *frame.markdown_table(header, rows)]
    return "\n".join([*lines, ""])


def row(path):
    """Return the cells of a module: name, first line of its docstring, committed results."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    results = sorted(frame.RESULTS.glob(f"{path.stem}.*"))
    return [f"`{path.stem}`", text.splitlines()[0], ", ".join(f"`{own.name}`" for own in results)]


def main():
    frame.write_file(FOLDER / "README.md", index_text().encode())


if __name__ == "__main__":
    main()
