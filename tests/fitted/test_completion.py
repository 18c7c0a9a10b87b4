"""Rows that miss values which all training rows have, against a slow version and by property."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    TransformedTargetTwin,
    TwinRegressor,
    cross_conformal,
)
from twinned.exceptions import ShiftWarning
from twinned.export import to_onnx

rng = np.random.RandomState(0)
X = pd.DataFrame(rng.uniform(size=(90, 3)), columns=["a", "b", "c"])
X["c"] = X["b"] + 0.1 * X["c"]
X["kind"] = rng.choice(["red", "green"], size=90)
Y = (2 * X["a"] + 3 * X["b"] + (X["kind"] == "red") + 5 + 0.1 * rng.normal(size=90)).to_numpy()
ROWS = pd.DataFrame(
    {
        "a": [0.5, np.nan, 0.5, np.nan, 0.5],
        "b": [0.5, 0.9, np.nan, np.nan, 0.9],
        "c": [0.5, 0.9, 0.9, np.nan, 0.9],
        "kind": ["red", "red", "green", None, None],
    }
)
BLEND = AutoTwinRegressor(members=["ridge", "extra_trees:fast"], random_state=0)
TREES = TwinRegressor(ExtraTreesRegressor(4, max_depth=5, random_state=0))
MODELS = {
    "blend": BLEND,
    "nearest": TREES.set_params(anchors=NearestAnchors(6, "learned")),
    "log": TransformedTargetTwin(BLEND),
}


@pytest.fixture(scope="module")
def blend():
    return BLEND.fit(X, Y)


def complete(fitted, row):
    """Rows with the missing values of the 30 nearest known rows by the other features."""
    known, metric, schema = fitted.anchors, fitted.anchors.metric, fitted.schema
    missing = np.isnan(row)
    columns = schema.encoded_columns(np.flatnonzero(~missing))
    encoded = fitted.queries(np.vstack([row, known.matrix])).encode().features
    scaled = metric.transform(encoded)[:, columns]
    nearest = np.argsort(((scaled[1:] - scaled[0]) ** 2).sum(axis=1), kind="stable")[:30]
    return np.where(missing, known.matrix[nearest], row)


def test_predictions_and_intervals_are_those_of_similar_rows(blend):
    fitted, queries = blend.fitted_, blend.encode(ROWS)
    prediction = fitted.predict(queries)
    for i in (1, 2, 4):
        completed = fitted.predict(fitted.queries(complete(fitted, queries.matrix[i])))
        assert prediction.mean[i] == pytest.approx(completed.mean.mean())
        expected = np.mean(completed.std**2) + np.var(completed.mean)
        assert prediction.std[i] == pytest.approx(np.sqrt(expected))
    assert (prediction.std[1:] > prediction.std[0]).all()


@pytest.mark.parametrize("name", MODELS)
def test_explanations_and_blocks_agree_with_predictions(name):
    model = MODELS[name].fit(X, Y)
    predicted = model.predict(ROWS)
    alone = [model.predict(ROWS[i : i + 1])[0] for i in range(len(ROWS))]
    np.testing.assert_allclose(predicted, alone, rtol=1e-9)
    table = model.explain(ROWS, n=3)
    sums = (table["weight"] * table["estimate"]).groupby(table["query"]).sum()
    np.testing.assert_allclose(sums, predicted)
    small = model.set_params(**{key: "20kB" for key in model.get_params() if "memory" in key})
    np.testing.assert_allclose(small.predict(ROWS), predicted, rtol=1e-9)


def test_missing_values_of_the_training_rows_are_left_to_the_model():
    rows = X.assign(a=X["a"].mask(np.arange(90) < 5))
    blend = BLEND.fit(rows, Y)
    assert not blend.fitted_.find_incomplete(blend.encode(ROWS[1:2])).any()
    assert blend.fitted_.find_incomplete(blend.encode(ROWS[2:])).all()
    BLEND.fit(X, Y)


def test_incomplete_rows_are_outside_and_named(blend):
    assert blend.applicability(ROWS)["label"].tolist()[1:] == ["outside"] * 4
    with pytest.warns(ShiftWarning, match="1 of them miss 'b', which every training row has"):
        blend.predict_interval(ROWS[2:3])


def test_several_targets(blend):
    both = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X, np.column_stack([Y, -Y]))
    with pytest.warns(ShiftWarning, match="miss"):
        ends = both.predict_interval(ROWS)
    np.testing.assert_allclose(ends[:, 0], -ends[:, 1, ::-1], rtol=0.2)
    assert (np.ptp(ends, axis=2)[1:] > np.ptp(ends, axis=2)[0]).all()


def test_known_errors_of_measurement_are_added_once():
    y_std = np.full(90, 0.1)
    model = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X, Y, y_std=y_std)
    widths = [
        np.ptp(model.predict_quantiles(ROWS, [0.1, 0.9], **options), axis=1)
        for options in ({"of": "value"}, {}, {"y_std": np.arange(5.0)})
    ]
    assert (widths[0] < widths[1]).all()
    known = model.calibration_.distribution.quantile(np.array([0.1, 0.9]))
    np.testing.assert_allclose(widths[2] ** 2, widths[0] ** 2 + (np.arange(5) * np.ptp(known)) ** 2)


def test_onnx_does_not_predict_incomplete_rows(blend, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    crossed = cross_conformal(TwinRegressor(random_state=0), X[["a"]].to_numpy(), Y, cv=3)
    to_onnx(crossed, tmp_path / "model.onnx", confidence=0.9)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    rows = {session.get_inputs()[0].name: np.array([[0.5], [np.nan]])}
    for output in session.run(None, rows):
        assert np.isnan(output).tolist() == [False, True]
