"""The page "With other libraries": the blocks of a section run where its library is installed."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "with-other-libraries.md"
INTRODUCTION, *SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def blocks(text):
    return "".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def namespace():
    names = {}
    exec(blocks(INTRODUCTION), names)
    return names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_section_runs(section, namespace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks(section)
    for library in re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed: make test-clients")
    exec(code, dict(namespace))
