"""Predictions of a model by its exports, the command line and the service."""

import json
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from typer.testing import CliRunner

from twinned import save
from twinned.export import to_c, to_onnx

PROGRAM = """#include <stdio.h>
#include "model.h"
int main(void) {
    float x[MODEL_N_FEATURES];
    while (fread(x, sizeof x, 1, stdin) == 1) printf("%.9g\\n", model_predict(x));
    return model_self_test();
}
"""


def predict_by_c(model, X):
    """Predictions of the compiled code, for rows of single precision."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    with TemporaryDirectory() as folder:
        to_c(model, Path(folder) / "model.h", name="model")
        Path(folder, "main.c").write_text(PROGRAM)
        subprocess.run(["gcc", "-o", "main", "main.c", "-lm"], cwd=folder, check=True)
        singles = np.ascontiguousarray(X, dtype=np.float32)
        done = subprocess.run(Path(folder, "main"), input=singles.tobytes(), capture_output=True)
    assert done.returncode == 0, "the self-test fails"
    return np.array(done.stdout.split(), dtype=float)


def predict_by_onnx(model, X):
    """The output `mean` of the ONNX file."""
    runtime = pytest.importorskip("onnxruntime")
    with TemporaryDirectory() as folder:
        to_onnx(model, Path(folder) / "model.onnx", outputs=["mean"], dtype="float64")
        session = runtime.InferenceSession(str(Path(folder) / "model.onnx"))
    return session.run(None, {session.get_inputs()[0].name: np.asarray(X, dtype=float)})[0]


def predict_by_command(model, table):
    """The columns `prediction…` of `twinned predict`, (row,) or (row, target)."""
    from twinned.app.cli import app

    with TemporaryDirectory() as folder:
        save(model, Path(folder) / "model.twin")
        table.to_csv(Path(folder) / "new.csv", index=False)
        arguments = ["predict", f"{folder}/model.twin", f"{folder}/new.csv", "--json"]
        result = CliRunner().invoke(app, arguments)
    if result.exit_code:
        raise ValueError(result.output.strip())
    printed = json.loads(result.stdout)
    columns = [values for name, values in printed.items() if name.startswith("prediction")]
    return np.squeeze(np.transpose(columns))


def predict_by_service(model, table):
    """The response of the service."""
    from twinned.app.serve import make_app

    testclient = pytest.importorskip("starlette.testclient")
    client = testclient.TestClient(make_app(model), base_url="http://localhost")
    response = client.post("/predict", json={"rows": table.to_dict("records")})
    return np.array(response.json()["prediction"])
