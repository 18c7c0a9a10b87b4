"""Compilation of the kernel in new processes: the file cache, and bounds checking."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import twinned.models.trees

# `compilation` is imported from here in new processes, as the whole package takes longer.
MODULES = str(Path(twinned.models.trees.__file__).parent)


def start(code, **variables):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def output_of(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output.split()


def write_module(folder, **constants):
    """A compiled function that uses a constant of another module; returns code that calls it."""
    lines = [f"{name} = {value}\n" for name, value in constants.items()]
    (folder / "constants.py").write_text("".join(lines))
    (folder / "function.py").write_text(
        "from constants import SIZE\n"
        "from compilation import entry_point\n"
        "@entry_point\n"
        "def add_size(x):\n"
        "    return x + SIZE\n"
    )
    return (
        f"import sys; sys.path[:0] = [{str(folder)!r}, {MODULES!r}]\n"
        "from function import add_size\n"
        "print(add_size(1), sum(add_size.stats.cache_misses.values()))\n"
    )


@pytest.mark.slow
def test_a_changed_constant_of_another_module_is_compiled_again(tmp_path):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    code = write_module(tmp_path, SIZE=1)
    assert output_of(start(code, **cache)) == ["2", "1"]
    write_module(tmp_path, SIZE=40)
    assert output_of(start(code, **cache)) == ["41", "1"]


@pytest.mark.slow
def test_without_a_folder_for_the_cache_functions_are_compiled_all_the_same(tmp_path):
    code = (
        "import numba.core.caching as caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        f"import sys; sys.path.insert(0, {MODULES!r})\n"
        "from compilation import entry_point\n"
        "print(entry_point(lambda x: x + 1)(41))\n"
    )
    assert output_of(start(code)) == ["42"]


@pytest.fixture(scope="module")
def checked_output():
    """Output of `checked_kernel.py` under bounds checking, line by line."""
    code = Path(__file__).with_name("checked_kernel.py").read_text()
    # without optimization, which takes longer than the predictions
    return output_of(start(code, NUMBA_BOUNDSCHECK="1", NUMBA_OPT="0"))


@pytest.mark.slow
def test_the_kernel_stays_within_its_arrays(checked_output):
    assert checked_output[0] == "equal"


@pytest.mark.slow
def test_bounds_are_checked_in_the_kernel_and_in_all_intrinsics(checked_output):
    assert checked_output[1:] == ["IndexError"] * 30
