import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from twinned import NearestAnchors, RandomAnchors, SemiSupervisedTwinRegressor, TwinRegressor
from twinned.export.onnx import to_onnx

SMALL = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"symmetric": False},
        {"pair_features": "concat"},
        {"pair_features": "difference"},
        {"anchors": RandomAnchors(7)},
        {"estimator": DecisionTreeRegressor(max_depth=5)},
        {"estimator": RandomForestRegressor(3)},
        {"estimator": Ridge(), "symmetric": False},
    ],
    ids=str,
)
def test_predictions_are_the_same(check, rows, options):
    X, y, new = rows
    new = np.concatenate([new, X[:3]])  # at distance 0 from anchors
    twin = TwinRegressor(**{"estimator": SMALL, "pairs": 10, "random_state": 0} | options)
    check(twin.fit(X, y), new)


def test_sample_weights_and_several_outputs(check, rows, rng):
    X, y, new = rows
    twin = TwinRegressor(RandomForestRegressor(3), pairs=10, random_state=0)
    twin.fit(X, np.column_stack([y, 3 * X[:, 0]]), sample_weight=rng.uniform(size=len(X)))
    assert check(twin, new)["mean"].shape == (40, 2)


def test_extreme_targets_and_large_means(check, rows):
    X, y, new = rows
    check(TwinRegressor(SMALL, pairs=10, random_state=0).fit(X, 1e-9 * y), new)
    tree = DecisionTreeRegressor(random_state=0)
    check(TwinRegressor(tree, pairs=10, random_state=0).fit(X, y + 1e6), new)


def test_new_anchors_are_exported(check, rows):
    X, y, new = rows
    twin = TwinRegressor(SMALL, pairs=10, random_state=0).fit(X, y)
    check(twin.add_anchors(new[:20], np.full(20, 100.0)), new[20:])


def test_semi_supervised(check, rows):
    X, y, new = rows
    twin = SemiSupervisedTwinRegressor(TwinRegressor(SMALL, pairs=5), random_state=0)
    check(twin.fit(X, np.where(np.arange(60) < 40, y, np.nan)), new)


def test_pairs_are_rounded_to_float32_as_in_predict(check, rng):
    X = rng.normal(size=(60, 2)) * 1e-6 + 1.0  # differences lose most digits in float32
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0), pairs=20, random_state=0)
    check(twin.fit(X, X[:, 0] * 1e6), X.astype(np.float32).astype(np.float64))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pair_features": lambda a, b: a - b}, "pair_features is a Python function; use"),
        ({"weights": lambda d, e, i: np.ones(i.shape)}, "exports use all anchors equally, not"),
        (
            {"anchors": NearestAnchors(3)},
            r"not anchors=NearestAnchors\(k=3\), .*; use twinned.thin",
        ),
        ({"weights": "distance"}, "weights=DistanceWeights"),
    ],
)
def test_other_strategies_are_refused(tmp_path, rows, options, reason):
    X, y, _ = rows
    twin = TwinRegressor(Ridge(), **options).fit(X, y)
    with pytest.raises(TypeError, match=reason):
        to_onnx(twin, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
