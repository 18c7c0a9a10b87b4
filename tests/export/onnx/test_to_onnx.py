import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import twinned
from tests.export.conftest import with_local_power
from tests.export.onnx.runtime import predict_onnx
from twinned import TransformedTargetTwin, TwinRegressor
from twinned.export.onnx import to_onnx
from twinned.fitted.explanation import find_comparables

BOOSTING = HistGradientBoostingRegressor(max_iter=10, learning_rate=0.3)


@pytest.mark.parametrize(
    "base", [BOOSTING, pytest.param(ExtraTreesRegressor(5), marks=pytest.mark.slow)], ids=str
)
def test_ten_thousand_rows_and_the_size_of_the_file(tmp_path, rng, base):
    X = rng.normal(size=(80, 3))
    twin = TwinRegressor(base, pairs=20, anchors=twinned.RandomAnchors(8), random_state=0)
    twin.fit(X, X[:, 0] * X[:, 1] + X[:, 2])
    to_onnx(twin, tmp_path / "model.onnx")
    twinned.save(twin, tmp_path / "model.twin")
    sizes = [(tmp_path / f"model.{kind}").stat().st_size for kind in ("onnx", "twin")]
    assert sizes[0] < 1.5 * sizes[1]
    rows = rng.normal(size=(10_000, 3))
    mean, std = twin.predict(rows, return_std=True)
    found = predict_onnx(tmp_path / "model.onnx", rows)
    assert np.abs(found["mean"] - mean).max() < 1e-9 * mean.std()
    assert np.abs(found["std"] - std).max() < 1e-6 * mean.std()


@pytest.mark.parametrize("n", [1, 5])
def test_any_number_of_rows(tmp_path, rows, n):
    X, y, new = rows
    to_onnx(TwinRegressor(Ridge()).fit(X, y), tmp_path / "model.onnx")
    assert predict_onnx(tmp_path / "model.onnx", pd.DataFrame(new[:n]))["mean"].shape == (n,)


def test_outputs_are_chosen_and_ordered(tmp_path, rows):
    X, y, new = rows
    twin = TwinRegressor(Ridge()).fit(X, y)
    for outputs in (["std", "mean"], ["std"], "mean"):
        to_onnx(twin, tmp_path / "model.onnx", outputs=outputs)
        expected = [outputs] if isinstance(outputs, str) else outputs
        assert list(predict_onnx(tmp_path / "model.onnx", new)) == expected


@pytest.mark.parametrize(
    ("outputs", "error", "reason"),
    [
        (["mean", "median"], ValueError, "outputs must be one of 'mean', 'std', not 'median'"),
        ([], ValueError, "outputs must be one or both"),
        (["mean", "mean"], ValueError, "each once"),
        ([3], TypeError, "outputs must be one of"),
    ],
)
def test_bad_outputs(tmp_path, rows, outputs, error, reason):
    X, y, _ = rows
    with pytest.raises(error, match=reason):
        to_onnx(TwinRegressor(Ridge()).fit(X, y), tmp_path / "model.onnx", outputs=outputs)


def test_bad_paths_and_models(tmp_path, rows):
    X, y, _ = rows
    twin = TwinRegressor(Ridge())
    with pytest.raises(NotFittedError):
        to_onnx(twin, tmp_path / "model.onnx")
    twin.fit(X, y)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        to_onnx(twin, tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        to_onnx(twin, tmp_path / "missing" / "model.onnx")
    with pytest.raises(TypeError, match="Ridge is not a model of twinned; use skl2onnx"):
        to_onnx(Ridge().fit(X, y), tmp_path / "model.onnx")


def test_scalers_and_imputers_before_a_twin(check, rows, rng):
    X, y, new = rows
    twin = TwinRegressor(BOOSTING, pairs=10, random_state=0)
    pipeline = make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), twin)
    new = np.where(rng.rand(*new.shape) < 0.2, np.nan, new)
    check(pipeline.fit(np.where(rng.rand(*X.shape) < 0.2, np.nan, X), y), new)


def test_encoders_before_a_twin_are_refused(tmp_path, rng):
    X = rng.randint(0, 3, size=(40, 1)).astype(float)
    pipeline = make_pipeline(OneHotEncoder(sparse_output=False), TwinRegressor(Ridge()))
    with pytest.raises(TypeError, match=r"step OneHotEncoder .*; apply it before the model"):
        to_onnx(pipeline.fit(X, X[:, 0]), tmp_path / "model.onnx")


@pytest.mark.parametrize("local_power", [0.0, 2.0])
@pytest.mark.parametrize(
    "twin",
    [
        TwinRegressor(BOOSTING, pairs=10, random_state=0),
        TwinRegressor(BOOSTING, pairs=10, cv=3, random_state=0),
    ],
    ids=["equal", "errors"],
)
def test_the_logarithm_of_the_target(tmp_path, rows, twin, local_power):
    X, y, new = rows
    model = TransformedTargetTwin(twin).fit(X, y)
    if model.fitted_.residuals is not None:
        model = with_local_power(model, local_power)
    new = np.concatenate([new, X[:2]])
    mean, std = model.predict(new, return_std=True)
    to_onnx(model, tmp_path / "model.onnx", outputs=["std", "mean"])
    found = predict_onnx(tmp_path / "model.onnx", new)
    np.testing.assert_allclose(found["mean"], mean)
    np.testing.assert_allclose(found["std"], std, rtol=1e-6)
    (cases,) = find_comparables(model, X[:1], 3)
    total = sum(case.weight * case.estimate for case in cases.with_others)
    assert total == pytest.approx(model.predict(X[:1])[0], rel=1e-9)


@pytest.mark.parametrize("functions", [(np.sqrt, np.square), (np.log, np.exp)])
def test_other_transformations_of_the_target_are_refused(tmp_path, rows, functions):
    X, y, _ = rows
    twin = TwinRegressor(BOOSTING, pairs=10, random_state=0)
    model = TransformedTargetRegressor(twin, func=functions[0], inverse_func=functions[1])
    model.fit(X, y)
    with pytest.raises(TypeError, match=r"TransformedTargetRegressor is not .*; use .* Trans"):
        to_onnx(model, tmp_path / "model.onnx")


def test_a_power_of_the_target_is_refused(tmp_path, rows):
    X, y, _ = rows
    model = twinned.TransformedTargetTwin(TwinRegressor(Ridge()), "power").fit(X, y)
    with pytest.raises(TypeError, match=r"a power of its target is fitted; use .*'log'"):
        to_onnx(model, tmp_path / "model.onnx")


def test_rows_that_differ_in_a_constant_feature_only_are_not_equal(tmp_path, rows):
    X, y, _ = rows
    X = np.column_stack([X, np.ones(len(X))])
    model = TwinRegressor(BOOSTING, pairs=10, cv=3, random_state=0).fit(X, y)
    model = with_local_power(model, 4.0)
    new = np.concatenate([X[:5], X[:5]])
    new[:5, -1] = 2.0
    to_onnx(model, tmp_path / "model.onnx", outputs=["mean"], dtype="float64")
    found = predict_onnx(tmp_path / "model.onnx", new)["mean"]
    np.testing.assert_allclose(found, model.predict(new), rtol=1e-9)


def test_the_same_model_gives_the_same_file(tmp_path, rows):
    X, y, _ = rows
    twin = TwinRegressor(BOOSTING, pairs=10, random_state=0).fit(X, y)
    for name in ("a", "b"):
        to_onnx(twin, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_without_onnx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "twinned.export.onnx")
    with pytest.raises(ImportError, match=r"pip install -e '\.\[onnx\]'"):
        twinned.export.to_onnx  # noqa: B018


def test_unknown_names():
    with pytest.raises(AttributeError, match="'to_pmml'"):
        twinned.export.to_pmml  # noqa: B018
    assert "to_onnx" in dir(twinned.export)
