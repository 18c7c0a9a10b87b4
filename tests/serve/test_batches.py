"""Batches of the rows of a request, and of a model that is exported."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from starlette import testclient

from twinned import AutoTwinRegressor, TransformedTargetTwin, TwinRegressor
from twinned.app.serve.app import make_app
from twinned.export import thin, to_c, to_onnx


def make_table(n_rows=60):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(1, 2, (n_rows, 2)), columns=["a", "b"])
    codes = rng.permutation(np.arange(n_rows) % 3)
    y = X["a"] * X["b"] + codes
    return X, y.to_numpy(), np.array(["A", "B", "C"])[codes]


@pytest.fixture(scope="module", params=["plain", "logarithm"])
def model(request):
    X, y, batch = make_table()
    blend = AutoTwinRegressor(members=["ridge", "gp_rbf"], random_state=0)
    model = TransformedTargetTwin(blend) if request.param == "logarithm" else blend
    model.fit(X, y, batch=batch)
    (model.regressor_ if model is not blend else model).batch_name_ = "lab"
    return model


@pytest.fixture(scope="module")
def client(model):
    return testclient.TestClient(make_app(model, "assay"), base_url="http://localhost")


def json_of(response):
    assert response.status_code == 200, response.text
    return response.json()


def test_the_form_has_a_field_for_the_batch(client):
    about = json_of(client.get("/about"))
    assert [each["name"] for each in about["columns"]] == ["a", "b"]
    assert about["inputs"][-1]["name"] == "lab"
    assert about["inputs"][-1]["choices"] == ["A", "B", "C"]


def test_predictions_know_the_batch(client, model):
    X, _, _ = make_table(9)
    labels = ["A", "B", None] * 3
    rows = [dict(row, lab=label) for row, label in zip(X.to_dict("records"), labels, strict=True)]
    result = json_of(client.post("/predict", json={"rows": rows, "confidence": 0.9}))
    np.testing.assert_allclose(result["prediction"], model.predict(X, batch=labels))
    low, high = model.predict_interval(X, batch=labels).T
    np.testing.assert_allclose([result["low"], result["high"]], [low, high])
    *far, missing = result["warnings"]
    assert all("far beyond the known ones" in note for note in far)
    assert missing.startswith("Batches without known rows have the mean offset")
    assert ": missing. A few known rows of a batch suffice: --known of twinned" in missing
    without = json_of(client.post("/predict", json={"rows": X.to_dict("records")}))
    np.testing.assert_allclose(without["prediction"], model.predict(X))
    (warning,) = without["warnings"]
    assert "predictions are those of the mean of all batches; a column 'lab' names" in warning
    unknown = [dict(row, lab="D") for row in rows]
    warned = json_of(client.post("/predict", json={"rows": unknown}))
    assert "wider intervals: D. A few known rows" in warned["warnings"][-1]


def test_explanations_know_the_batch(client):
    X, _, _ = make_table(4)
    rows = [dict(row, lab="B") for row in X.to_dict("records")]
    explained = json_of(client.post("/explain", json={"rows": rows}))
    for case in explained["comparables"][0]:
        assert case["columns"]["batch (offset)"] in "ABC"
        total = case["known"] + sum(case["adjustments"].values())
        assert total == pytest.approx(case["estimate"])


def test_exports_refuse_batches(model, tmp_path):
    X, y, batch = make_table()
    twin = TwinRegressor(Ridge()).fit(X, y, batch=batch)
    trees = TwinRegressor(ExtraTreesRegressor(3, random_state=0)).fit(X, y, batch=batch)
    several = AutoTwinRegressor(members=["ridge"], random_state=0)
    several.fit(X, np.column_stack([y, y]), batch=batch)
    calls = [
        lambda: to_onnx(several, tmp_path / "m.onnx"),
        lambda: to_onnx(model, tmp_path / "m.onnx"),
        lambda: to_onnx(twin, tmp_path / "m.onnx"),
        lambda: to_c(twin, tmp_path / "m.h"),
        lambda: thin(trees, 8),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="offsets of batches cannot be exported"):
            call()
