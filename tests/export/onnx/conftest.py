import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture
def evaluate():
    """Run what a function `add(X)` adds to the graph of a tensor, on a float64 array X."""
    from onnx import TensorProto, helper

    from twinned.export.onnx.graph import Graph, Tensor

    def run(add, X):
        graph = Graph()
        out = add(Tensor(graph, "X"))
        graph.nodes.append(helper.make_node("Identity", [out.name], ["out"]))
        X = np.asarray(X, dtype=np.float64)
        info = helper.make_tensor_value_info("X", TensorProto.DOUBLE, [None] * X.ndim)
        result = helper.make_tensor_value_info("out", TensorProto.DOUBLE, None)
        proto = helper.make_model(
            helper.make_graph(graph.nodes, "g", [info], [result], list(graph.constants.values())),
            opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)],
            ir_version=10,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
        return session.run(None, {"X": X})[0]

    return run


@pytest.fixture
def check(tmp_path):
    """Export a model and compare its outputs with those of `predict` on a table."""
    from tests.export.onnx.runtime import predict_onnx
    from twinned.export.onnx import to_onnx

    def compare(model, X, mean=1e-6, std=1e-6, **options):
        to_onnx(model, tmp_path / "model.onnx", **options)
        found = predict_onnx(tmp_path / "model.onnx", X)
        expected, spread = model.predict(X, return_std=True)
        scale = np.std(expected)
        assert scale > 0
        assert found["mean"].shape == expected.shape
        np.testing.assert_allclose(found["mean"], expected, rtol=0, atol=mean * scale)
        np.testing.assert_allclose(found["std"], spread, rtol=0, atol=std * scale)
        return found

    return compare


def make_rows(n, rng, n_features=3):
    """Rows that are exact in float32."""
    return rng.normal(size=(n, n_features)).astype(np.float32).astype(np.float64)


@pytest.fixture
def rows(rng):
    """60 training rows, their target values, and 40 other rows."""
    X = make_rows(60, rng)
    y = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) + 20.0
    return X, y, make_rows(40, rng)
