import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor

from twinned.export.onnx.regressors import add_trees
from twinned.models.trees.reader import read_trees

REGRESSORS = [
    DecisionTreeRegressor(max_depth=5, random_state=0),
    RandomForestRegressor(5, random_state=0),
    ExtraTreesRegressor(5, random_state=0),
    GradientBoostingRegressor(n_estimators=20, random_state=0),
    HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=3),
    MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=3)),
]


def near_thresholds(estimator, rng, n_features):
    """Rows with values at thresholds and next to them."""
    trees = read_trees(estimator).trees
    values = np.concatenate([tree.threshold[tree.left >= 0] for tree in trees])
    values = rng.choice(values, size=(300, n_features))
    towards = rng.choice([-np.inf, np.inf], size=values.shape)
    return np.where(rng.rand(*values.shape) < 0.5, values, np.nextafter(values, towards))


@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda each: type(each).__name__)
def test_comparisons_at_thresholds_are_the_same(evaluate, rng, estimator):
    X = rng.normal(size=(80, 3)).round(1)
    y = X[:, 0] + rng.normal(size=80) + 1000.0
    y = np.column_stack([y, -y]) if isinstance(estimator, MultiOutputRegressor) else y
    estimator.fit(X, y)
    rows = near_thresholds(estimator, rng, 3)
    found = evaluate(lambda X: add_trees(read_trees(estimator), X), rows)
    expected = estimator.predict(rows).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_rows_of_float32_are_exact(evaluate, seed):
    rng = np.random.RandomState(seed)
    X = rng.randint(0, 5, size=(30, 2)).astype(np.float64) / 3
    tree = DecisionTreeRegressor(random_state=0).fit(X, rng.randint(0, 50, size=30))
    rows = X.astype(np.float32).astype(np.float64)
    found = evaluate(lambda X: add_trees(read_trees(tree), X), rows)
    np.testing.assert_allclose(found[:, 0], tree.predict(rows), rtol=1e-6)


@pytest.mark.parametrize("kind", [HistGradientBoostingRegressor, DecisionTreeRegressor])
def test_missing_values_go_the_same_way(evaluate, rng, kind):
    X = np.where(rng.rand(200, 2) < 0.3, np.nan, rng.normal(size=(200, 2)))
    y = np.where(np.isnan(X[:, 0]), 3.0, X[:, 0]) - np.isnan(X[:, 1])
    estimator = kind(random_state=0).fit(X, y)
    found = evaluate(lambda X: add_trees(read_trees(estimator), X), X)
    np.testing.assert_allclose(found[:, 0], estimator.predict(X), rtol=0, atol=1e-6)


def test_several_outputs(evaluate, rng):
    X = rng.normal(size=(50, 2))
    forest = RandomForestRegressor(3, random_state=0).fit(X, X @ [[1.0, 2.0, 0.0], [0.0, 1.0, 5.0]])
    found = evaluate(lambda X: add_trees(read_trees(forest), X), X)
    np.testing.assert_allclose(found, forest.predict(X), rtol=0, atol=1e-5)


def test_a_tree_without_splits(evaluate):
    tree = DecisionTreeRegressor().fit([[0.0], [1.0]], [5.0, 5.0])
    found = evaluate(lambda X: add_trees(read_trees(tree), X), [[1.0], [2.0]])
    np.testing.assert_array_equal(found, [[5.0], [5.0]])


def test_lightgbm(evaluate, rng):
    lightgbm = pytest.importorskip("lightgbm")
    X = np.where(rng.rand(200, 2) < 0.1, np.nan, rng.normal(size=(200, 2)))
    estimator = lightgbm.LGBMRegressor(n_estimators=20, n_jobs=1, verbose=-1)
    estimator.fit(X, np.nan_to_num(X[:, 0]) + 3)
    found = evaluate(lambda X: add_trees(read_trees(estimator), X), X)
    np.testing.assert_allclose(found[:, 0], estimator.predict(X), rtol=1e-12)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_leaf_below_the_root(evaluate, rng, side):
    """onnxruntime takes a root for a leaf where a leaf and a split below it have the same index."""
    X = rng.normal(size=(40, 2))
    y = X[:, 0] * X[:, 1]
    X[0], y[0] = [10.0 * side, 0.0], 100.0  # the root splits off this row
    estimator = GradientBoostingRegressor(n_estimators=3, random_state=0).fit(X, y)
    found = evaluate(lambda X: add_trees(read_trees(estimator), X), X)
    np.testing.assert_allclose(found[:, 0], estimator.predict(X), rtol=0, atol=1e-5)
