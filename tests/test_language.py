"""Vocabulary of names, docstrings, comments, messages and pages: no retired words.

To list all findings: `python tests/test_language.py`.
"""

import ast
import io
import re
import tokenize
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Retired words, and what to write instead. Phrases are two words.
RETIRED = {
    **dict.fromkeys(["tell", "tells", "telling", "told"], "predict, report, state, specify"),
    **dict.fromkeys(["ask", "asks", "asked", "asking"], "request, query, evaluate, exceed"),
    **dict.fromkeys(["say", "says", "said", "saying"], "state, report, prediction"),
    **dict.fromkeys(["answer", "answers", "answered", "answering"], "response, prediction, return"),
    **dict.fromkeys(["question", "questions"], "request, query"),
    **dict.fromkeys(["judge", "judges", "judged"], "estimate, evaluate, error scale"),
    **dict.fromkeys(["verdict", "verdicts"], "conclusion, result"),
    "evidence": "out-of-fold predictions",
    **dict.fromkeys(["lesson", "lessons"], "training set"),
    **dict.fromkeys(["teach", "teaches", "taught"], "fit, train, explain"),
    "kept": "stored",
    "surroundings": "neighbor features",
    "shortcut": "fast path",
    **dict.fromkeys(["left out", "leave out", "leaves out", "leaving out"], "held out, excluded"),
    **dict.fromkeys(["door", "doors"], "input validation"),
    **dict.fromkeys(["house", "room", "rooms"], "architecture, module, package"),
    **dict.fromkeys(["nobody", "everybody", "everyone", "somebody"], "none, all"),
    **dict.fromkeys(["company", "rival", "rivals", "newcomer"], "members, baseline, user"),
    **dict.fromkeys(["bear", "bears", "manners", "riddle", "riddles"], "a plain term"),
    **dict.fromkeys(["walk", "walks", "walking"], "visit, traverse"),
    "lost": "missing",
    **dict.fromkeys(["neighbour", "neighbours", "neighbouring"], "neighbor"),
    **dict.fromkeys(["optimiser", "optimisers"], "optimizer"),
    "behaviour": "behavior",
    **dict.fromkeys(["symmetrise", "symmetrised"], "symmetric"),
}
# Also words that are retired as names only.
RETIRED_IN_NAMES = RETIRED | {
    **dict.fromkeys(["some", "who", "whose", "whom"], "sample, subset, rows, models"),
    **dict.fromkeys(["place", "places"], "index, indices, position"),
}
PHRASES = re.compile("|".join(key.replace(" ", "[^a-z]*") for key in RETIRED if " " in key), re.I)


class Exemption(NamedTuple):
    """A retired word that is the right one in lines of a file that match a pattern."""

    word: str
    file: str
    line: str
    reason: str


EXEMPTIONS = [
    Exemption("rooms", "docs/serving.md", r'"rooms": \d', "a feature of the example data"),
]


class Finding(NamedTuple):
    file: str
    line: int
    word: str
    advice: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.word!r} (use: {self.advice})"


# --- words of names and texts ---------------------------------------------------------------------


def split_words(text):
    """Lower-case words of a text, split at all non-letters and at capitals within a name."""
    return [
        word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text.replace("’", "'"))
    ]


def retired_words(text, retired):
    words = split_words(text)
    phrases = [f"{first} {second}" for first, second in pairwise(words)]
    return [word for word in (*words, *phrases) if word in retired]


def defined_names(nodes):
    """(line, name) of all classes, functions, parameters, variables and attributes of a module."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


def texts(source, nodes):
    """(line, text) of all strings and comments of a module, docstrings included."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def passages(path, names_only):
    """(line, text, retired words) of everything that is checked in a file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from ((n, line, RETIRED) for n, line in enumerate(source.splitlines(), 1))
        return
    # most files have no such word anywhere, and need not be parsed
    retired = RETIRED_IN_NAMES.keys() & set(split_words(re.sub(r"\\[nrt]", " ", source)))
    if not retired and not PHRASES.search(source):
        return
    nodes = list(ast.walk(ast.parse(source)))
    yield from ((n, name, RETIRED_IN_NAMES) for n, name in defined_names(nodes))
    if not names_only:
        yield from ((n, text, RETIRED) for n, text in texts(source, nodes))


# --- files ----------------------------------------------------------------------------------------


def checked_files():
    """(path, names only) of all files whose language is checked."""
    for folder in ("src", "paper", "benchmarks", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".html", ".js", ".css"} and "results" not in path.parts:
                yield path, False
    for path in sorted((ROOT / "tests").rglob("*.py")):
        yield path, True
    for path in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]:
        yield path, False
    yield ROOT / "CONTRIBUTING.md", False


def exempt(file, word, line):
    return any(
        word == exemption.word
        and Path(file).match(exemption.file)
        and re.search(exemption.line, line)
        for exemption in EXEMPTIONS
    )


def check(path, names_only=False, root=ROOT):
    file = str(path.relative_to(root))
    lines = path.read_text(encoding="utf-8").splitlines()
    found = {
        Finding(file, 0, word, RETIRED_IN_NAMES[word])
        for word in retired_words(path.stem, RETIRED_IN_NAMES)
    }
    for number, text, retired in passages(path, names_only):
        line = lines[min(number, len(lines)) - 1] if lines else ""
        found |= {
            Finding(file, number, word, retired[word])
            for word in retired_words(text, retired)
            if not exempt(file, word, f"{line}\n{text}")
        }
    return sorted(found)


def all_findings():
    return [finding for path, names_only in checked_files() for finding in check(path, names_only)]


# --- tests ----------------------------------------------------------------------------------------


def test_no_retired_words():
    findings = all_findings()
    assert not findings, "\n".join(["", *map(str, findings), f"{len(findings)} retired words"])


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("module.py", "def ask_model(x): pass", [(1, "ask")]),
        ("module.py", "class ToldRows: pass", [(1, "told")]),
        ("module.py", "def f(left_out): pass", [(1, "left out")]),
        ("module.py", "a, self.kept = 1, 2", [(1, "kept")]),
        ("module.py", "some = [place for place in x]", [(1, "place"), (1, "some")]),
        ("module.py", '"""A title.\n\nWhat is told."""', [(3, "told")]),
        ("module.py", "x = 1  # what it says", [(1, "says")]),
        ("module.py", "raise ValueError(f'{x} asks for more')", [(1, "asks")]),
        ("module.py", "place_holder = 'some text in place'", [(1, "place")]),
        ("module.py", "stored, toldest = 1, 'untold'", []),
        ("told.py", "", [(0, "told")]),
        ("page.md", "# Title\n\nLeave out the *door*.", [(3, "door"), (3, "leave out")]),
        ("page.html", "<p>Nobody</p>", [(1, "nobody")]),
    ],
)
def test_retired_words_are_found(tmp_path, name, source, expected):
    path = tmp_path / name
    path.write_text(source, encoding="utf-8")
    assert [(f.line, f.word) for f in check(path, root=tmp_path)] == expected


def test_texts_of_tests_are_not_checked(tmp_path):
    path = tmp_path / "test_module.py"
    path.write_text("def test_one():\n    assert 'told' in text  # asked\n", encoding="utf-8")
    assert check(path, names_only=True, root=tmp_path) == []


if __name__ == "__main__":
    print(*all_findings(), sep="\n")
