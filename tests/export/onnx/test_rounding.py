import numpy as np
import onnx
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from tests.export.onnx.runtime import predict_onnx
from twinned import TwinRegressor
from twinned.export.onnx import to_onnx


@pytest.mark.parametrize(
    ("dtype", "elem_type", "tolerance"),
    [("float64", onnx.TensorProto.DOUBLE, 1e-9), ("float32", onnx.TensorProto.FLOAT, 1e-4)],
)
def test_type_of_the_inputs(tmp_path, rng, dtype, elem_type, tolerance):
    """A density needs more digits than float32 has."""
    X = pd.DataFrame({"density": 0.9968 + 0.0019 * rng.normal(size=60)})
    y = (X["density"] - 0.9968) / 0.0019
    twin = TwinRegressor(LinearRegression()).fit(X, y)
    to_onnx(twin, tmp_path / "model.onnx", dtype=dtype)
    (info,) = onnx.load(tmp_path / "model.onnx").graph.input
    assert info.type.tensor_type.elem_type == elem_type
    difference = np.abs(predict_onnx(tmp_path / "model.onnx", X)["mean"] - twin.predict(X)).max()
    assert difference < tolerance
    assert (difference > 5e-6) == (dtype == "float32")
