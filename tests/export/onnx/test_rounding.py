import numpy as np
import onnx
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from twinned import NeuralRegressor, NeuralTraining, TwinRegressor
from twinned.export.onnx import to_onnx
from twinned.export.onnx.runtime import (
    LARGEST_ROUNDING,
    changes_predictions,
    choose_dtype,
    predict_onnx,
    relative_rounding,
    rounded_features,
)


def make_table(rng, n_rows=60):
    """A table whose density needs more digits than float32 has."""
    X = pd.DataFrame(
        {
            "acid": rng.uniform(4, 16, n_rows),
            "density": 0.9968 + 0.0019 * rng.normal(size=n_rows),
            "year": 2020.0 + rng.randint(0, 5, n_rows),
        }
    )
    return X, X["acid"] / 4 + (X["density"] - 0.9968) / 0.0019


def input_type(path):
    return onnx.load(path).graph.input[0].type.tensor_type.elem_type


def test_auto_is_float64_where_float32_rounds_too_much(tmp_path, rng):
    X, y = make_table(rng)
    path = tmp_path / "model.onnx"
    new, _ = make_table(rng, 500)
    for columns, expected in (
        (["acid", "density"], onnx.TensorProto.DOUBLE),
        (
            ["acid", "year"],
            onnx.TensorProto.FLOAT,
        ),
    ):
        twin = TwinRegressor(LinearRegression()).fit(X[columns], y)
        to_onnx(twin, path)
        assert input_type(path) == expected
        apart = predict_onnx(path, new[columns])["mean"] - twin.predict(new[columns])
        assert np.abs(apart).max() < 1e-5 * y.std()
    twin = TwinRegressor(LinearRegression()).fit(X[["density"]], y)
    to_onnx(twin, path, dtype="float32")
    assert input_type(path) == onnx.TensorProto.FLOAT
    apart = predict_onnx(path, new[["density"]])["mean"] - twin.predict(new[["density"]])
    assert np.abs(apart).max() > 5e-6 * y.std()


def test_rounded_features_are_those_of_the_table(rng):
    X, y = make_table(rng)
    assert rounded_features(TwinRegressor(Ridge()).fit(X, y)) == ["density"]
    # categorical features are not rounded
    X["wall"] = rng.choice(["brick", "wood"], len(X))
    assert rounded_features(TwinRegressor(Ridge()).fit(X, y)) == ["density"]
    array = X[["year", "density"]].to_numpy()
    assert rounded_features(TwinRegressor(Ridge()).fit(array, y)) == ["1"]


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler()], ids=str)
def test_rounding_is_before_the_scalers_of_a_pipeline(scaler, rng):
    X, y = make_table(rng)
    array = X.to_numpy()
    assert choose_dtype(make_pipeline(scaler, TwinRegressor(Ridge())).fit(array, y)) == "float64"
    assert choose_dtype(make_pipeline(scaler, TwinRegressor(Ridge())).fit(array[:, :1], y)) == (
        "float32"
    )


def test_networks_without_stored_rows(rng):
    X, y = make_table(rng)
    networks = NeuralRegressor(
        (4,), n_members=1, training=NeuralTraining(max_steps=2, n_folds=1), random_state=0
    )
    assert "density" in rounded_features(networks.fit(X, y))
    assert choose_dtype(networks.fit(X[["acid"]], y)) == "float32"
    X["level"] = pd.Categorical(rng.choice(list("abc"), len(X)), list("abc"), ordered=True)
    assert rounded_features(networks.fit(X[["level", "density"]], y)) == ["density"]


def test_constant_missing_and_huge_values():
    rows = np.array([[0.1, np.nan, 1e39], [0.1, 0.1, 2e39], [0.1, 0.3, 3e39]])
    changes = relative_rounding(rows)
    assert changes[0] == 0
    assert changes[1] < LARGEST_ROUNDING
    assert changes[2] == np.inf
    assert relative_rounding(np.full((3, 1), np.nan))[0] == 0


@given(
    center=st.floats(-1e6, 1e6),
    spread=st.floats(1e-3, 1e3),
    seed=st.integers(0, 1000),
)
def test_rounding_is_the_largest_change_of_a_row(center, spread, seed):
    rows = center + spread * np.random.RandomState(seed).uniform(-2, 2, size=(30, 1))
    slow = max(abs(float(np.float32(x)) - x) for x in rows[:, 0]) / np.std(rows[:, 0])
    change = relative_rounding(rows)[0]
    np.testing.assert_allclose(change, slow, rtol=1e-6)


def test_auto_does_not_change_the_model_after_a_scaler_without_copies(tmp_path, rng):
    X, y = make_table(rng)
    array = X.to_numpy()
    pipeline = make_pipeline(StandardScaler(copy=False), TwinRegressor(Ridge()))
    pipeline.fit(array.copy(), y)
    before = pipeline.predict(array.copy())
    to_onnx(pipeline, tmp_path / "model.onnx")
    np.testing.assert_array_equal(pipeline.predict(array.copy()), before)


def test_auto_is_float64_for_a_constant_that_float32_cannot_hold(rng):
    X, y = make_table(rng)
    X["year"] = 1e40
    assert rounded_features(TwinRegressor(Ridge()).fit(X[["acid", "year"]], y)) == ["year"]


def test_auto_is_float64_where_differences_are_equal_to_thresholds(tmp_path, rng):
    """Differences of features with two decimals lie within rounding of thresholds: 0.3 − 0.25.

    With a validation set, thresholds of boosting are not moved away from them.
    """
    X = rng.randint(0, 20, size=(60, 2)) / 20
    boosting = HistGradientBoostingRegressor(max_iter=10, early_stopping=True)
    twin = TwinRegressor(boosting, random_state=0).fit(X, X[:, 0] + X[:, 1] ** 2)
    assert not rounded_features(twin)
    assert changes_predictions(twin)
    to_onnx(twin, tmp_path / "model.onnx")
    assert_allclose(predict_onnx(tmp_path / "model.onnx", X)["mean"], twin.predict(X), rtol=1e-12)
    whole = twin.fit(20 * X, X[:, 0] + X[:, 1] ** 2)
    assert not changes_predictions(whole)
    assert choose_dtype(whole) == "float32"
