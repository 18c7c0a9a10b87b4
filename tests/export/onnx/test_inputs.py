import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from tests.export.onnx.runtime import predict_onnx
from twinned import TwinRegressor
from twinned.export.onnx import to_onnx

SMALL = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5)


def make_table(n, rng, walls=("brick", "clay", "wood"), missing=0.0):
    table = pd.DataFrame(
        {
            "area": rng.normal(size=n).astype(np.float32).astype(np.float64),
            "wall": rng.choice(walls, n),
            "rooms": rng.randint(1, 9, n),
            "post": pd.Categorical(rng.choice([1001, 2002, 3003], n)),
            "size": pd.Categorical(rng.choice(["S", "M", "L"], n), ["S", "M", "L"], ordered=True),
        }
    )
    return table.mask(rng.rand(*table.shape) < missing) if missing else table


def values_of(table):
    y = table["area"].fillna(0) + (table["wall"] == "wood") + 0.3 * table["rooms"].fillna(0)
    return (y + table["size"].cat.codes).to_numpy()


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_text_categories_and_missing_values(check, rng, missing):
    X = make_table(80, rng, missing=missing)
    twin = TwinRegressor(SMALL, pairs=10, random_state=0).fit(X, values_of(X))
    new = make_table(200, rng, walls=("brick", "wood", "glass"), missing=missing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the new category
        check(twin, new)


def test_columns_are_the_inputs(tmp_path, rng):
    import onnxruntime

    X = make_table(40, rng)
    to_onnx(TwinRegressor(Ridge()).fit(X, values_of(X)), tmp_path / "text.onnx")
    inputs = onnxruntime.InferenceSession(tmp_path / "text.onnx").get_inputs()
    assert [each.name for each in inputs] == ["area", "wall", "rooms", "post", "size"]
    kinds = ["double", "string", "double", "double", "string"]
    assert [each.type for each in inputs] == [f"tensor({kind})" for kind in kinds]
    assert all(each.shape == ["batch", 1] for each in inputs)
    numbers = X[["area", "rooms"]]
    to_onnx(TwinRegressor(Ridge()).fit(numbers, values_of(X)), tmp_path / "numbers.onnx")
    (matrix,) = onnxruntime.InferenceSession(tmp_path / "numbers.onnx").get_inputs()
    assert (matrix.name, matrix.type, matrix.shape) == ("X", "tensor(double)", ["batch", 2])


def test_categories_that_are_numbers(check, rng):
    X = np.column_stack([rng.normal(size=60), rng.choice([0.1, 0.2, 5.0], 60)])
    twin = TwinRegressor(SMALL, pairs=10, categorical_features=[1], random_state=0)
    twin.fit(X, X[:, 0] + (X[:, 1] == 0.2))
    X = X.astype(np.float32).astype(np.float64)
    X[:, 1] = X[:, 1].round(1)  # predict compares the numbers of the fit
    check(twin, X)


def test_an_unknown_level_is_missing(tmp_path, rng):
    X = make_table(60, rng)[["area", "size"]]
    X.loc[0, "size"] = None  # else rows without it are completed
    twin = TwinRegressor(SMALL, pairs=10, random_state=0).fit(X, values_of(make_table(60, rng)))
    to_onnx(twin, tmp_path / "model.onnx")
    unknown = pd.DataFrame({"area": [0.5, 0.5], "size": ["XL", None]})
    found = predict_onnx(tmp_path / "model.onnx", unknown)["mean"]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["a", 1, "b", 2], "has both text and numbers as categories; convert"),
        ([2**25, 2**25 + 1, 1, 2], 'are equal in float32; use dtype="float64", or convert'),
        ([(1, 2), (3,), (4,), (5,)], "has categories that are neither text nor numbers; convert"),
    ],
)
def test_categories_that_no_tensor_holds_are_refused(tmp_path, values, reason):
    X = pd.DataFrame({"a": np.arange(40.0), "code": pd.Series(values * 10, dtype=object)})
    twin = TwinRegressor(Ridge(), categorical_features=["code"]).fit(X, X["a"])
    with pytest.raises(TypeError, match=reason):
        to_onnx(twin, tmp_path / "model.onnx", dtype="float32")


@pytest.mark.parametrize("other", ["text", 3.0])
def test_categories_that_differ_in_double_precision(tmp_path, other):
    codes = [2**25, 2**25 + 1, 0.1, 7]
    X = pd.DataFrame({"code": pd.Series(codes * 10, dtype=object), "other": other})
    y = np.arange(40) % 4
    twin = TwinRegressor(Ridge(), categorical_features=["code", "other"]).fit(X, y)
    to_onnx(twin, tmp_path / "model.onnx", dtype="float64")
    X = X.assign(code=X["code"].astype(float))
    found = predict_onnx(tmp_path / "model.onnx", X)["mean"]
    np.testing.assert_allclose(found, twin.predict(X), rtol=0, atol=1e-9)
    assert np.ptp(found[:4]) > 2
    X = pd.DataFrame({"code": pd.Series([2**60, 2**60 + 1] * 10, dtype=object), "a": range(20)})
    twin = TwinRegressor(Ridge(), categorical_features=["code"]).fit(X, X["a"])
    with pytest.raises(TypeError, match="are equal in float64; convert"):
        to_onnx(twin, tmp_path / "model.onnx", dtype="float64")


def test_a_column_named_as_an_output_is_refused(tmp_path, rng):
    X = make_table(40, rng).rename(columns={"area": "mean"})
    twin = TwinRegressor(Ridge()).fit(X, X["rooms"])
    with pytest.raises(TypeError, match="a column 'mean', as an output; rename the column"):
        to_onnx(twin, tmp_path / "model.onnx")


def test_inputs_of_double_precision(tmp_path, rng):
    X = pd.DataFrame({"time": 1.7e9 + rng.uniform(size=60), "wall": rng.choice(["a", "b"], 60)})
    y = X["time"] - 1.7e9 + (X["wall"] == "a")
    for columns in (["time"], ["time", "wall"]):
        twin = TwinRegressor(Ridge(), random_state=0).fit(X[columns], y)
        to_onnx(twin, tmp_path / "model.onnx", dtype="float64")
        found = predict_onnx(tmp_path / "model.onnx", X[columns])["mean"]
        np.testing.assert_allclose(found, twin.predict(X[columns]), rtol=0, atol=1e-6)
        to_onnx(twin, tmp_path / "model.onnx", dtype="float32")  # all times are equal
        rounded = predict_onnx(tmp_path / "model.onnx", X[columns])["mean"]
        assert np.abs(rounded - found).max() > 0.1
    with pytest.raises(ValueError, match="dtype must be one of 'float64', 'float32'"):
        to_onnx(twin, tmp_path / "model.onnx", dtype="float16")
