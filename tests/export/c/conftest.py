"""Models for the tests of the C export, and programs that are compiled from headers."""

import shutil
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest

from twinned.export.c import to_c

WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZERS = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
# a program takes seconds to start with this one
ADDRESS_SANITIZER = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# reads rows of floats and writes, for each, five floats
PROGRAM = """
#include <stdio.h>
#include "model.h"

int main(void)
{
    float x[MODEL_N_FEATURES], out[6];
    if (model_self_test() != 0) {
        return 1;
    }
    while (fread(x, sizeof x, 1, stdin) == 1) {
        out[0] = model_predict(x);
        out[1] = model_predict_std(x);
        out[2] = (float)model_interval(x, 90, &out[3], &out[4]);
        out[5] = (float)model_nearest_anchor(x);
        fwrite(out, sizeof out, 1, stdout);
    }
    return model_feature_name(0)[0] == 0;
}
"""


@dataclass
class Compiled:
    """What a compiled program returns for rows, and the report of the export."""

    report: object
    mean: np.ndarray
    std: np.ndarray
    interval_status: np.ndarray
    interval: np.ndarray
    nearest: np.ndarray


@pytest.fixture
def run_c(tmp_path):
    """A function that exports a model, compiles it with all checks and predicts rows."""

    def run(model, rows, compiler="gcc", flags=(), **options):
        if shutil.which(compiler) is None:
            pytest.skip(f"{compiler} is not installed")
        report = to_c(model, tmp_path / "model.h", name="model", **options)
        (tmp_path / "main.c").write_text(PROGRAM)
        program = tmp_path / "main"
        command = [compiler, *WARNINGS, *flags, "-O1", "-o", program, tmp_path / "main.c", "-lm"]
        subprocess.run(command, check=True, timeout=120)
        done = subprocess.run(
            [program],
            input=np.ascontiguousarray(rows, dtype=np.float32).tobytes(),
            capture_output=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr.decode()[:2000]
        out = np.frombuffer(done.stdout, dtype=np.float32).reshape(-1, 6).astype(np.float64)
        assert len(out) == len(rows)
        return Compiled(report, out[:, 0], out[:, 1], out[:, 2], out[:, 3:5], out[:, 5])

    return run


def make_rows(n_rows, seed=0):
    """Features that are exact in float32, and a smooth target of them."""
    X = np.random.RandomState(seed).uniform(-2, 2, size=(n_rows, 3)).astype(np.float32)
    X = X.astype(np.float64)
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 30.0


@pytest.fixture(scope="session")
def training_rows():
    return make_rows(40)


@pytest.fixture(scope="session")
def queries():
    """More than the range of the training rows."""
    return 1.2 * make_rows(160, seed=1)[0].astype(np.float32).astype(np.float64)
