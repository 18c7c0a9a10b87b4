"""Mutated model files: no crash, no hang, bounded memory, finite predictions of twins, or errors.

`make test-slow` runs this for a minute. The variables FUZZ_FILES, FUZZ_SECONDS and FUZZ_SEED set
the number of files, the time and the seed; `pytest -s` prints the outcomes, a failure the seed.
"""

import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from ctypes.util import find_library
from itertools import count
from pathlib import Path

import pytest

from tests.fuzz.models import MODELS, TWINS, save_models
from tests.fuzz.mutations import AMPLIFY
from twinned.persistence.archive import MODEL, read_zip
from twinned.persistence.values import KINDS

FILES = int(os.environ.get("FUZZ_FILES", 2000))
SECONDS = float(os.environ.get("FUZZ_SECONDS", 60))
SEED = int(os.environ.get("FUZZ_SEED", time.time()))
# parts of the paths of the fields of twins
TWIN_FIELDS = ["anchors/", "/params/", "calibration/", "n_features"]
TWIN_FIELDS += ["selected_features_", "_y_unit", "_pair_dtype", "names", "estimator_"]
WAIT_SECONDS = 120.0  # for a process, on a machine that is busy


class Worker:
    """A process that tries mutated files, and is replaced after a crash or a hang."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_PERTURB_": "165"}
        if library := find_library("c_malloc_debug"):  # checks the heap of glibc
            environment |= {"LD_PRELOAD": library, "GLIBC_TUNABLES": "glibc.malloc.check=3"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", str(folder), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._read() == "ready"

    def try_file(self, task: str) -> str:
        """Return the outcome of a mutated file."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{task}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return "fault: crash"
        return self._read()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> str:
        output = self._process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], WAIT_SECONDS)
        if not ready:
            return "fault: hang"
        return output.readline().strip() or "fault: crash"


def run(folder: Path, names: list[str], focuses: list[str]) -> tuple[Counter, dict[str, str]]:
    """Try mutated files; return the number of each outcome, and the faults by task."""
    outcomes: Counter = Counter()
    faults: dict[str, str] = {}
    worker, end = Worker(folder, names), time.monotonic() + SECONDS
    for task in tasks(names, focuses):
        if sum(outcomes.values()) >= FILES or time.monotonic() > end:
            break
        outcome = worker.try_file(task)
        outcomes[outcome.partition(":")[0]] += 1
        if sum(outcomes.values()) % 1000 == 0:
            print(f"seed {SEED}: {dict(outcomes)}", flush=True)
        if outcome.startswith("fault"):
            faults[task] = outcome
            print(f"{task}: {outcome}", flush=True)
            if outcome in ("fault: crash", "fault: hang"):
                worker.stop()
                worker = Worker(folder, names)
    worker.stop()
    print(f"seed {SEED}: {sum(outcomes.values()):,} files, {dict(outcomes)}", flush=True)
    return outcomes, faults


def tasks(names: list[str], focuses: list[str]) -> Iterator[str]:
    """Yield model, seed and focus of each mutated file."""
    for number in count():
        for name in names:
            yield f"{name} {SEED + number} {focuses[number % len(focuses)]}"


@pytest.mark.slow
def test_mutations_of_all_kinds(tmp_path):
    save_models(tmp_path, list(MODELS))
    outcomes, faults = run(tmp_path, list(MODELS), ["-"])
    assert outcomes["refused"] > outcomes["used"] > 0
    assert faults == {}


@pytest.mark.slow
def test_mutations_of_the_fields_of_twins(tmp_path):
    save_models(tmp_path, TWINS)
    outcomes, faults = run(tmp_path, TWINS, TWIN_FIELDS)
    assert outcomes["refused"] > 0 < outcomes["used"]
    assert faults == {}


@pytest.mark.slow
def test_small_files_of_models_that_need_much_memory(tmp_path):
    save_models(tmp_path, list(MODELS))
    outcomes, faults = run(tmp_path, list(MODELS), [AMPLIFY])
    assert outcomes["refused"] > 0 < outcomes["used"]
    assert faults == {}


@pytest.mark.slow
def test_every_estimator_of_twinned_is_mutated(tmp_path):
    save_models(tmp_path, list(MODELS))
    files = [read_zip(path.read_bytes())[MODEL].decode() for path in tmp_path.glob("*.twin")]
    own = {name for name, kind in KINDS.items() if kind.module.startswith("twinned.estimators")}
    if "molecules" not in MODELS:  # without RDKit
        own.remove("MoleculeFeatures")
    assert {name for name in own if any(f'"class":"{name}"' in text for text in files)} == own
