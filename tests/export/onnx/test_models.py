import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from tests.export.conftest import with_local_power
from tests.export.onnx.runtime import predict_onnx
from twinned import AutoTwinRegressor, TwinRegressor, cross_conformal
from twinned.export.onnx import to_onnx

SMALL = TwinRegressor(HistGradientBoostingRegressor(max_iter=10), pairs=10, random_state=0)


@pytest.fixture(scope="module")
def table():
    rng = np.random.RandomState(0)

    def make(n):
        X = pd.DataFrame(
            {
                "a": rng.normal(size=n).astype(np.float32).astype(np.float64),
                "b": rng.normal(size=n).astype(np.float32).astype(np.float64),
                "wall": rng.choice(["brick", "clay", "wood"], n),
            }
        )
        X.loc[rng.rand(n) < 0.1, "b"] = np.nan
        X.loc[rng.rand(n) < 0.1, "wall"] = None
        return X

    X, new = make(100), make(200)
    new.loc[:20, "wall"] = "glass"
    y = X["a"] ** 2 + X["b"].fillna(1.0) + 3.0 * (X["wall"] == "wood")
    return X, y.to_numpy(), new


@pytest.fixture(scope="module")
def blend(table):
    trees = ExtraTreesRegressor(20, min_samples_leaf=2)
    members = ["ridge", "gp_matern:fast", "boosting:fast", ("trees", trees), ("twin", SMALL)]
    return AutoTwinRegressor(members=members, cv=3, random_state=0).fit(*table[:2])


def test_a_blend_with_its_intervals(check, table, blend):
    new = pd.concat([table[2], table[2][:3].assign(a=9.0)], ignore_index=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check(blend, new, std=1e-4, confidence=0.9)
        expected = blend.predict_interval(new, confidence=0.9)
        prediction = blend.predict_distribution(new)
    assert (prediction.spread[-3:] > 2 * prediction.calibration.scale.largest_std).all()
    intervals = np.column_stack([found["lower"], found["upper"]])
    np.testing.assert_allclose(intervals, expected, rtol=1e-6, atol=1e-4)


def test_members_with_power_transformations(check, table):
    X, y, new = table
    X, new = (part.assign(a=np.exp(2 * part["a"])) for part in (X, new))
    members = ["ridge_power", "gp_rbf_power"]
    blend = AutoTwinRegressor(members=members, cv=3, random_state=0).fit(X, np.exp(y))
    powers = [member.model_.target.power[0] for member in blend.members_.values()]
    assert min(powers) < 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(blend, new, std=1e-4)


def test_the_mean_alone_needs_fewer_members(table, blend, tmp_path):
    to_onnx(blend, tmp_path / "all.onnx")
    to_onnx(blend, tmp_path / "mean.onnx", outputs="mean")
    sizes = [(tmp_path / name).stat().st_size for name in ("all.onnx", "mean.onnx")]
    assert sizes[1] < 0.9 * sizes[0]


@pytest.mark.parametrize("width", ["learned", "std", "constant"])
def test_a_twin_with_stored_intervals(check, rows, width):
    X, y, new = rows
    twin = TwinRegressor(Ridge(), random_state=0).fit(X, y)
    own = cross_conformal(twin, X, y, cv=3, width=width, random_state=0)
    found = check(own, new, confidence=0.8)
    intervals = np.column_stack([found["lower"], found["upper"]])
    np.testing.assert_allclose(intervals, own.predict_interval(new, 0.8), rtol=0, atol=1e-4)


@pytest.mark.parametrize("width", ["learned", "constant"])
def test_intervals_include_known_errors_of_measurement(check, rows, width):
    X, y, new = rows
    y_std = np.linspace(0.1, 1.0, len(y))
    twin = TwinRegressor(Ridge(), random_state=0)
    crossed = cross_conformal(twin, X, y, y_std=y_std, cv=3, width=width, random_state=0)
    found = check(own := crossed, new, confidence=0.8)
    intervals = np.column_stack([found["lower"], found["upper"]])
    np.testing.assert_allclose(intervals, own.predict_interval(new, 0.8), rtol=0, atol=1e-4)


def test_a_learned_width_with_equally_near_rows(check, rng):
    X = rng.randint(3, size=(80, 3)) / 4  # 27 distinct rows
    y = X[:, 0] + rng.normal(size=80)
    twin = TwinRegressor(Ridge(), random_state=0).fit(X, y)
    own = cross_conformal(twin, X, y, cv=3, width="learned", random_state=0)
    queries = rng.randint(5, size=(300, 3)) / 8
    found = check(own, queries, confidence=0.8)
    intervals = np.column_stack([found["lower"], found["upper"]])
    np.testing.assert_allclose(intervals, own.predict_interval(queries, 0.8), rtol=0, atol=1e-6)


def test_intervals_grow_away_from_known_rows(check, rng):
    X = pd.DataFrame({"x": rng.uniform(size=60), "kind": rng.choice(list("abc"), size=60)})
    y = np.sin(5 * X["x"]) + 2 * (X["kind"] == "a")
    twin = TwinRegressor(Ridge(), random_state=0)
    crossed = cross_conformal(twin, X, y.to_numpy(), cv=3, random_state=0)
    queries = pd.DataFrame({"x": [0.5, 0.5, 2.0, -1.0], "kind": ["a", "d", "b", "c"]})
    found = check(crossed, queries, confidence=0.8)
    expected = crossed.predict_interval(queries, 0.8)
    np.testing.assert_allclose(found["upper"] - found["lower"], np.ptp(expected, axis=1), rtol=1e-6)
    widths = np.ptp(expected, axis=1)
    assert (widths[2:] > 2 * widths[0]).all()


def test_intervals_need_a_calibration(tmp_path, rows):
    X, y, _ = rows
    with pytest.raises(TypeError, match=r"stores no calibration.*cross_conformal"):
        to_onnx(TwinRegressor(Ridge()).fit(X, y), tmp_path / "model.onnx", confidence=0.9)


def test_members_of_unknown_kind_are_refused(tmp_path, rows):
    from sklearn.svm import SVR

    X, y, _ = rows
    blend = AutoTwinRegressor(members=["ridge", ("svr", SVR())], cv=3, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match=r"the member 'svr'.*SVR is not a kind"):
        to_onnx(blend, tmp_path / "model.onnx")


@pytest.mark.parametrize("local_power", [0.0, 2.0])
def test_known_values_of_replicates(tmp_path, local_power):
    rng = np.random.RandomState(0)
    X = np.repeat(np.arange(25.0), 2)[:, None]
    y = np.repeat(rng.normal(size=25), 2) + 0.1 * rng.normal(size=50)
    blend = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X, y)
    assert blend.fitted_.replicate_correlation > 0.5
    blend = with_local_power(blend, local_power).add_anchors(X[-1:], y[-1:])  # three replicates
    to_onnx(blend, tmp_path / "blend.onnx")
    queries = np.concatenate([X, X + 0.5])
    found = predict_onnx(tmp_path / "blend.onnx", queries)["mean"]
    np.testing.assert_allclose(found, blend.predict(queries), atol=1e-8)
