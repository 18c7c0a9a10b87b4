"""The house's own rules: what an import brings along, and who imports whom."""

import subprocess
import sys

import pytest


def modules_after(code: str) -> set[str]:
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
def test_an_import_brings_nothing_heavy_along(code):
    heavy = {"jax", "numba", "treelite", "matplotlib", "torch", "lightgbm", "skops", "pooch"}
    assert not heavy & modules_after(code)


def test_the_bare_import_is_bare():
    assert not {"numpy", "sklearn", "pandas"} & modules_after("import twinned")


def test_every_public_name_exists():
    import twinned

    for name in twinned.__all__:
        assert getattr(twinned, name) is not None
    assert set(twinned.__all__) <= set(dir(twinned))
    with pytest.raises(AttributeError, match="'Twim'"):
        twinned.Twim  # noqa: B018
