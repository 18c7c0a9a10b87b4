"""What a release needs: one address of the project, one version and one list of requirements."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from sklearn.base import BaseEstimator

import twinned
from twinned.estimators.regressors import GPRegressor

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE, DOCS = PROJECT["urls"]["Source"], PROJECT["urls"]["Documentation"]
# Files that have an address of the project, besides pyproject.toml.
WITH_ADDRESS = [
    "CITATION.cff",
    "mkdocs.yml",
    "conda/recipe.yaml",
    ".github/ISSUE_TEMPLATE/config.yml",
]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", WITH_ADDRESS)
def test_addresses_are_those_of_the_project(path):
    addresses = re.findall(r"https://(?:github\.com|[\w-]+\.readthedocs\.io)[^\s\"']*", read(path))
    assert addresses
    assert all(address.startswith((SOURCE, DOCS)) for address in addresses)


def test_authors_are_those_of_the_citation():
    authors = yaml.safe_load(read("CITATION.cff"))["authors"]
    assert [author["name"] for author in PROJECT["authors"]] == [one["name"] for one in authors]


def test_the_recipe_has_the_requirements_and_the_version_of_the_package():
    recipe = read("conda/recipe.yaml")
    run = re.findall(r"^    - ([\w-]+) (>=[\d.]+)$", recipe.partition("  run:\n")[2], re.MULTILINE)
    names = {"matplotlib-base": "matplotlib"}
    assert [names.get(name, name) + bound for name, bound in run] == PROJECT["dependencies"]
    assert f"\n  version: {twinned.__version__}\n" in recipe


def test_links_of_the_readme_are_absolute_on_the_package_index():
    pytest.importorskip("hatchling")
    sys.path.insert(0, str(ROOT))
    from hatch_build import absolute_links

    text = "![a\nb](docs/a.png) [c](docs/c.md#d) [e](#f) [g](https://h.example)"
    assert absolute_links(text, "https://x.example", "1.0") == (
        "![a\nb](https://x.example/raw/v1.0/docs/a.png) [c](https://x.example/blob/v1.0/docs/c.md#d)"
        " [e](#f) [g](https://h.example)"
    )
    assert not re.search(r"\]\((?!https?://|#)", absolute_links(read("README.md"), SOURCE, "1"))


def test_every_workflow_runs_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    used = {
        target
        for path in workflows
        for target in re.findall(r"run: make ([\w-]+)", path.read_text(encoding="utf-8"))
    }
    assert used
    assert used <= targets


def test_boxes_of_estimators_link_to_their_pages():
    for name in twinned.__all__:
        value = getattr(twinned, name)
        if isinstance(value, type) and issubclass(value, BaseEstimator):
            assert (ROOT / f"docs/api/{name}.md").exists()
            assert value.__new__(value)._get_doc_link() == f"{DOCS}/api/{name}/"
    assert f'href="{DOCS}/api/TwinRegressor/"' in twinned.TwinRegressor()._repr_html_()
    assert GPRegressor()._get_doc_link() == ""
