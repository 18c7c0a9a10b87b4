"""Imports: what importing the package loads, and which public names it has."""

import subprocess
import sys

import pytest


def modules_after(code: str) -> set[str]:
    """Names of all modules that are loaded after running `code` in a new process."""
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import twinned",
        "from twinned import TwinRegressor, NearestAnchors, RandomPairs",
        "import twinned.datasets",
    ],
)
def test_import_loads_no_heavy_library(code):
    heavy = {"jax", "numba", "treelite", "matplotlib", "torch", "lightgbm", "skops", "pooch"}
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
