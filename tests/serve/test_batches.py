"""Batches of the rows of a request, and of a model that is exported."""

import json

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
    assert ": missing. A few known rows of a batch suffice: known of a request" in missing
    without = json_of(client.post("/predict", json={"rows": X.to_dict("records")}))
    np.testing.assert_allclose(without["prediction"], model.predict(X))
    (warning,) = without["warnings"]
    assert "predictions are those of the mean of all batches; a column 'lab' names" in warning
    unknown = [dict(row, lab="D") for row in rows]
    warned = json_of(client.post("/predict", json={"rows": unknown}))
    assert "wider intervals: D. A few known rows" in warned["warnings"][-1]


def test_explanations_and_files_know_the_batch(client, model):
    X, _, _ = make_table(4)
    rows = [dict(row, lab="B") for row in X.to_dict("records")]
    explained = json_of(client.post("/explain", json={"rows": rows}))
    for case in explained["comparables"][0]:
        assert case["columns"]["batch (offset)"] in "ABC"
        total = case["known"] + sum(case["adjustments"].values())
        assert total == pytest.approx(case["estimate"])
    text = X.assign(lab="B").to_csv(index=False)
    table = client.post("/batch", content=text, headers={"Content-Type": "text/csv"}).text
    predicted = [float(line.split(",")[3]) for line in table.splitlines()[1:]]
    np.testing.assert_allclose(predicted, model.predict(X, batch="B"), rtol=1e-5)
    text = X.to_csv(index=False)
    table = client.post("/batch", content=text, headers={"Content-Type": "text/csv"}).text
    predicted = [float(line.split(",")[2]) for line in table.splitlines()[1:]]
    np.testing.assert_allclose(predicted, model.predict(X), rtol=1e-5)


def make_known():
    """A few rows of a new laboratory, three units above the mean of all, and rows to predict."""
    X, y, batch = make_table(90)
    codes = np.array(["ABC".index(label) for label in batch])
    X, y = X[60:], (y - codes)[60:] + 4.0
    rows = [dict(row, lab="D") for row in X.to_dict("records")]
    known = [dict(row, y=value) for row, value in zip(rows[:3], y[:3], strict=True)]
    return known, X.iloc[3:], rows[3:]


def test_known_rows_of_a_new_batch_are_those_of_one_request(client, model):
    known, X, rows = make_known()
    table = pd.DataFrame(known)
    y = table["y"].to_numpy()
    if isinstance(model, TransformedTargetTwin):
        twin = model.regressor_.add_anchors(table[["a", "b"]], np.log(y), batch="D")
        extended = TransformedTargetTwin.around(twin)
    else:
        extended = model.add_anchors(table[["a", "b"]], y, batch="D")
    before = json_of(client.post("/predict", json={"rows": rows}))
    request = {"rows": rows, "confidence": 0.9, "known": known}
    result = json_of(client.post("/predict", json=request))
    np.testing.assert_allclose(result["prediction"], extended.predict(X, batch="D"))
    low, high = extended.predict_interval(X, batch="D").T
    np.testing.assert_allclose([result["low"], result["high"]], [low, high])
    assert all("far beyond the known ones" in note for note in result.get("warnings", []))
    explained = json_of(client.post("/explain", json=request))
    cases = [case for each in explained["comparables"] for case in each]
    assert "D" in {case["columns"]["batch (offset)"] for case in cases}
    text = X.assign(lab="D").to_csv(index=False)
    parameters = {"known": json.dumps(known)}
    lines = client.post("/batch", params=parameters, content=text).text.splitlines()[1:]
    predicted = [float(line.split(",")[3]) for line in lines]
    np.testing.assert_allclose(predicted, result["prediction"], rtol=1e-5)
    assert json_of(client.post("/predict", json={"rows": rows})) == before  # nothing is stored
    assert "D" not in json_of(client.get("/about"))["inputs"][-1]["choices"]


def test_bad_known_rows_get_one_sentence(client, model):
    known, _, rows = make_known()
    first = known[0]
    of_first = {name: value for name, value in first.items() if name != "y"}
    cases = [
        ([{**first, "y": "high"}], 422, "known rows, row 1, column 'y': 'high' is text"),
        ([first, {**first, "lab": None}], 422, "known rows, row 2, column 'lab' has no value"),
        ([of_first], 422, "known rows has no column 'y' (known); its columns are 'a', 'b', 'lab'"),
        ([first] * 11, 413, "there are too many known rows; send at most 10."),
        ("D", 422, "'known': input should be a valid list, not 'D'"),
    ]
    if isinstance(model, TransformedTargetTwin):
        cases.append(([{**first, "y": -1}], 422, "column 'y' must be a positive number"))
    for value, status, message in cases:
        for url in ("/predict", "/explain"):
            response = client.post(url, json={"rows": rows, "known": value})
            assert response.status_code == status
            assert message in response.json()["error"]
    parameters = {"known": "[{"}
    response = client.post("/batch", params=parameters, content="a,b\n1,1\n")
    assert response.json()["error"].startswith("the parameter known must be JSON")


def test_only_a_model_with_batches_takes_known_rows(client):
    assert json_of(client.get("/about"))["known_rows"] == 10
    X, y, _ = make_table()
    app = make_app(TwinRegressor(Ridge()).fit(X, y), "plain")
    other = testclient.TestClient(app, base_url="http://localhost")
    assert json_of(other.get("/about"))["known_rows"] == 0
    rows = X[:1].to_dict("records")
    response = other.post("/predict", json={"rows": rows, "known": [{**rows[0], "y": 1}]})
    assert response.json()["error"] == "known rows need a model that was fitted with batches."


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
