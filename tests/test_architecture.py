"""Imports: what importing the package loads, and which public names it has."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def modules_after(code: str) -> set[str]:
    """Names of all modules that are loaded after running `code` in a new process."""
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stdout.split())


def test_import_loads_no_heavy_library():
    code = (
        "from sklearn.tree import DecisionTreeRegressor\n"
        "from twinned import TwinRegressor, NearestAnchors, RandomPairs, datasets\n"
        "X = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [8.0, 9.0], [10.0, 11.0]]\n"
        "y = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n"
        "TwinRegressor(DecisionTreeRegressor()).fit(X, y).predict(X)"
    )
    heavy = {
        "onnx",
        "jax",
        "numba",
        "treelite",
        "matplotlib",
        "torch",
        "lightgbm",
        "skops",
        "pooch",
        "dask",
    }
    assert not heavy & modules_after(code)


def test_import_of_the_package_loads_no_dependency():
    assert not {"numpy", "sklearn", "pandas"} & modules_after("import twinned")


def test_every_public_name_exists():
    import twinned

    for name in twinned.__all__:
        assert getattr(twinned, name) is not None
    assert set(twinned.__all__) <= set(dir(twinned))
    with pytest.raises(AttributeError, match="'Twim'"):
        twinned.Twim  # noqa: B018


def test_type_checkers_see_every_public_name_in_its_module():
    import twinned

    source = (
        inspect.getsource(twinned).partition("if TYPE_CHECKING:\n")[2].partition("\n_MODULES")[0]
    )
    names = {}
    exec(textwrap.dedent(source), names)
    assert {name: names.get(name) for name in twinned._MODULES} == {
        name: getattr(twinned, name) for name in twinned._MODULES
    }
    assert {*twinned._MODULES, *twinned._SUBMODULES} == names.keys() - {"__builtins__"}


def test_no_name_of_a_package_hides_its_module():
    import twinned

    for module in pkgutil.walk_packages(twinned.__path__, "twinned."):
        if module.name.endswith("__main__"):
            continue
        package, _, name = module.name.rpartition(".")
        found = vars(importlib.import_module(package)).get(name)
        assert found is None or inspect.ismodule(found), module.name


def test_files_are_written_atomically():
    """By `write_atomically`, so that a full disk or an interruption leaves the old file."""
    writes = re.compile(
        r"""\.write_(text|bytes)\(|\.to_csv\((?!(index=False[^)]*)?\))|savefig\((?!buffer)|open\([^)]*["'][wax]b?["']"""
    )
    own = {
        "src/twinned/persistence/archive.py",  # write_atomically
        "examples/demo.py",
        "examples/twinned_forest.py",
    }
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "paper", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if writes.search(path.read_text())
    }
    assert found <= own
    assert "src/twinned/persistence/archive.py" in found  # or the pattern finds nothing


def test_named_files_exist():
    """Files and modules of benchmarks and of the paper that code and documentation name."""
    texts = [*ROOT.glob("*.md"), *ROOT.glob(".ci/*"), *ROOT.glob(".github/**/*.yml")]
    texts += [ROOT / "Makefile", *ROOT.glob("src/**/*.py"), *ROOT.glob("docs/*.md")]
    missing = []
    for path in texts:
        if not path.is_file() or path.name == "reproduction.md":  # its records name former files
            continue
        text = path.read_text(encoding="utf-8")
        files = re.findall(r"(?<![\w/])(?:benchmarks|paper)/[a-z_0-9/]+\.(?:py|md|csv)", text)
        modules = re.findall(r"-m ((?:benchmarks|paper)(?:\.[a-z_0-9]+)*)", text)
        folders = [module.replace(".", "/") for module in modules]
        missing += [f"{path.name}: {file}" for file in files if not (ROOT / file).exists()]
        missing += [
            f"{path.name}: {folder}"
            for folder in folders
            if not ((ROOT / f"{folder}.py").exists() or (ROOT / folder).is_dir())
        ]
    assert not missing
