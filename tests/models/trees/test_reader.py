"""Predictions of trees as read, compared with the predictions of the ensemble itself."""

from inspect import signature

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from twinned._compat import unwrap_search
from twinned.models.trees import reader
from twinned.models.trees.reader import count_trees, inclusive_threshold, read_trees

NEEDS = "the extra 'boost' is not installed"


def predict_slowly(trees, X):
    """One row, one tree, one node at a time, in the types that the reader gives."""
    X = X.astype(trees.value_type).astype(np.float64)
    result = np.tile(trees.offset, (len(X), 1))
    for row, x in enumerate(X):
        for tree in trees.trees:
            node = 0
            while tree.left[node] >= 0:
                value, threshold = x[tree.feature[node]], float(tree.threshold[node])
                left = tree.missing_left[node] if np.isnan(value) else value <= threshold
                node = tree.left[node] if left else tree.right[node]
            leaf = tree.value[node] * tree.scale
            result[row, tree.output : tree.output + len(leaf)] += leaf
    return result


def tenths(rng, shape, missing=False):
    """Numbers with ties, which float32 and float64 round differently."""
    X = rng.randint(-10, 11, shape) / 10
    if missing:
        X[rng.uniform(size=shape) < 0.15] = np.nan
    return X


def check_read(estimator, rng, missing=False, n_outputs=1):
    X = tenths(rng, (150, 3), missing)
    known = np.nan_to_num(X)
    y = known[:, 0] * known[:, 1] + 0.1 * rng.normal(size=150)
    if n_outputs > 1:
        y = np.column_stack([y, known[:, 2] - 2 * y])
    estimator.fit(X, y)
    new = np.vstack([X[:40], tenths(rng, (40, 3), missing)])
    trees = read_trees(estimator)
    expected = estimator.predict(new).reshape(len(new), -1)
    np.testing.assert_allclose(predict_slowly(trees, new), expected, rtol=0, atol=1e-12)
    assert 0 < count_trees(estimator) <= len(trees.trees)


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeRegressor(random_state=0),
        ExtraTreeRegressor(random_state=0),
        RandomForestRegressor(7, random_state=0),
        ExtraTreesRegressor(7, min_samples_leaf=2, random_state=0),
        GradientBoostingRegressor(n_estimators=9, random_state=0),
        GradientBoostingRegressor(n_estimators=9, loss="huber", init="zero", random_state=0),
        GradientBoostingRegressor(n_estimators=9, loss="quantile", random_state=0),
        HistGradientBoostingRegressor(max_iter=9, min_samples_leaf=2),
        HistGradientBoostingRegressor(max_iter=9, loss="absolute_error"),
    ],
    ids=str,
)
def test_scikit_learn(estimator, rng):
    check_read(estimator, rng)


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeRegressor(random_state=0),
        ExtraTreesRegressor(7, random_state=0),
        RandomForestRegressor(7, random_state=0),
        HistGradientBoostingRegressor(max_iter=9, min_samples_leaf=2),
    ],
    ids=str,
)
def test_missing_values(estimator, rng):
    check_read(estimator, rng, missing=True)


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestRegressor(7, random_state=0),
        ExtraTreeRegressor(random_state=0),
        MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=9)),
        MultiOutputRegressor(GradientBoostingRegressor(n_estimators=9, random_state=0)),
    ],
    ids=str,
)
def test_several_outputs(estimator, rng):
    check_read(estimator, rng, n_outputs=2)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
        {"objective": "quantile"},
        {"use_missing": False},
    ],
    ids=str,
)
def test_lightgbm(options, missing, rng):
    lightgbm = pytest.importorskip("lightgbm", reason=NEEDS)
    learner = lightgbm.LGBMRegressor(n_estimators=9, min_child_samples=2, n_jobs=1, verbose=-1)
    check_read(learner.set_params(**options), rng, missing)


def stop_lightgbm_early(X, y, y_val):
    lightgbm = pytest.importorskip("lightgbm", reason=NEEDS)
    learner = lightgbm.LGBMRegressor(n_estimators=50, n_jobs=1, verbose=-1)
    validation = {"eval_X": X, "eval_y": y_val}
    if "eval_X" not in signature(learner.fit).parameters:  # before LightGBM 4.7
        validation = {"eval_set": [(X, y_val)]}
    return learner.fit(X, y, callbacks=[lightgbm.early_stopping(3, verbose=False)], **validation)


def test_early_stopping_of_lightgbm(rng):
    X, y, noise = tenths(rng, (150, 3)), rng.normal(size=150), rng.normal(size=150)
    estimator = stop_lightgbm_early(X, y, noise)
    trees = read_trees(estimator)
    assert len(trees.trees) < 50
    np.testing.assert_allclose(
        predict_slowly(trees, X)[:, 0], estimator.predict(X), rtol=0, atol=1e-12
    )


class Doubled(RandomForestRegressor):
    def predict(self, X):
        return 2 * super().predict(X)


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        Doubled(3),
        AdaBoostRegressor(n_estimators=3),
        MultiOutputRegressor(Ridge()),
        GradientBoostingRegressor(n_estimators=3, init=Ridge()),
        HistGradientBoostingRegressor(max_iter=3, loss="poisson"),
        HistGradientBoostingRegressor(max_iter=3, categorical_features=[0]),
    ],
    ids=str,
)
def test_other_models_are_not_read(estimator, rng):
    X = np.abs(tenths(rng, (60, 2)))
    y = X[:, 0] + 1
    y = np.column_stack([y, y]) if isinstance(estimator, MultiOutputRegressor) else y
    assert read_trees(estimator.fit(X, y)) is None


def test_a_dummy_and_an_unfitted_forest_are_not_read():
    assert read_trees(DummyRegressor().fit([[0.0]], [1.0])) is None
    assert read_trees(RandomForestRegressor()) is None
    assert read_trees("no estimator") is None
    assert count_trees("no estimator") == 0


def test_a_failed_reading_is_logged(rng, caplog, monkeypatch):
    estimator = HistGradientBoostingRegressor(max_iter=3).fit(tenths(rng, (60, 2)), np.arange(60.0))
    nodes = estimator._predictors[0][0].nodes
    estimator._predictors[0][0].nodes = nodes[["value", "left"]]
    assert read_trees(estimator) is None
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("twinned", "WARNING")
    assert "HistGradientBoostingRegressor" in record.message
    assert "is_leaf" in str(record.exc_info[1])
    caplog.clear()
    del estimator._predictors
    assert read_trees(estimator) is None
    assert "_predictors" in caplog.text
    # a model that is known to be no sum of trees is no failure
    caplog.clear()
    assert read_trees(DummyRegressor().fit([[0.0]], [1.0])) is None
    assert not caplog.records


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError, IndexError])
def test_errors_of_the_reader_itself_are_raised(error, rng, monkeypatch):
    def fail(*args):
        raise error("a bug")

    monkeypatch.setattr(reader, "_read_members", fail)
    with pytest.raises(error, match="a bug"):
        read_trees(DecisionTreeRegressor().fit([[0.0], [1.0]], [0.0, 1.0]))


def test_a_search_is_read_as_its_best_estimator(rng):
    X, y = tenths(rng, (60, 2)), rng.normal(size=(60, 2))
    forest = RandomForestRegressor(4, random_state=0)
    for search_type in (GridSearchCV, RandomizedSearchCV):
        search = search_type(forest, {"max_depth": [2]}, cv=2)
        search = search.set_params(n_iter=1) if search_type is RandomizedSearchCV else search
        assert unwrap_search(search) is search  # not fitted
        search.fit(X, y)
        assert unwrap_search(search) is search.best_estimator_
        assert count_trees(search) == 4
        np.testing.assert_allclose(predict_slowly(read_trees(search), X), search.predict(X))
    both = MultiOutputRegressor(GridSearchCV(forest, {"max_depth": [2]}, cv=2)).fit(X, y)
    np.testing.assert_allclose(predict_slowly(read_trees(both), X), both.predict(X))
    assert count_trees(both) == 8


class DoubledSearch(GridSearchCV):
    def predict(self, X):
        return 2 * super().predict(X)


def test_a_search_that_predicts_otherwise_is_not_read(rng):
    X, y = tenths(rng, (60, 2)), rng.normal(size=60)
    search = DoubledSearch(RandomForestRegressor(4), {"max_depth": [2]}, cv=2).fit(X, y)
    assert read_trees(search) is None


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "poisson"},
        {"boosting_type": "dart"},
        {"linear_tree": True},
        {"zero_as_missing": True},
        {"reg_sqrt": True},
        {"categorical_feature": [0], "min_data_per_group": 1, "cat_smooth": 1},
    ],
    ids=str,
)
def test_lightgbm_not_read(options, rng):
    lightgbm = pytest.importorskip("lightgbm", reason=NEEDS)
    X = np.abs(tenths(rng, (80, 2)))
    X[:, 0] = rng.randint(0, 6, 80)
    y = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0])[X[:, 0].astype(int)]
    learner = lightgbm.LGBMRegressor(
        n_estimators=5, min_child_samples=2, n_jobs=1, verbose=-1, **options
    )
    assert read_trees(learner.fit(X, y)) is None


@pytest.mark.parametrize(
    ("field", "node", "wrong"),
    [
        ("left", 0, 0),
        ("left", 0, 2),
        ("right", 0, 10**6),
        ("feature", 0, -3),
        ("threshold", 0, np.nan),
        ("value", -1, np.inf),
    ],
)
def test_damaged_trees_are_not_valid(field, node, wrong, rng):
    """The kernel follows child indices without checking them."""
    estimator = DecisionTreeRegressor(max_leaf_nodes=4).fit(
        tenths(rng, (50, 2)), rng.normal(size=50)
    )
    trees = read_trees(estimator)
    assert trees.is_valid
    damaged = np.array(getattr(trees.trees[0], field))
    damaged[node] = wrong
    assert not trees._replace(trees=[trees.trees[0]._replace(**{field: damaged})]).is_valid


@pytest.mark.parametrize("value_type", [np.float32, np.float64])
def test_inclusive_threshold_with_ties(value_type, rng):
    near = (rng.randint(-30, 31, 500) / 10).astype(value_type)
    threshold = np.concatenate([near.astype(np.float64), rng.randint(-30, 31, 500) / 10, [1e300]])
    value = np.concatenate([near, near, near[:1]])
    found = inclusive_threshold(threshold, np.dtype(value_type))
    np.testing.assert_array_equal(value <= found, value <= threshold)
    assert found.dtype == value_type
