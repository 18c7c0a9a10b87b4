"""Out-of-fold predictions, the baselines, and how many rows fit into the time."""

import threading
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor
from twinned.diagnostics.baselines import encode_features, features_for, plain_estimator
from twinned.diagnostics.cross_validation import (
    affordable_rows,
    cross_validate_models,
    use_all_cores,
)
from twinned.neural import NeuralRegressor, TwinNeuralRegressor


def test_predictions_are_those_of_models_fitted_without_the_rows(bridge, bridge_cv, tree_twin):
    X, y = bridge
    train, held_out = bridge_cv.folds[2]
    alone = tree_twin.fit(X.iloc[train], y.iloc[train]).predict(X.iloc[held_out])
    np.testing.assert_array_equal(bridge_cv.predictions["twin"][held_out], alone)
    assert sorted(np.concatenate([rows for _, rows in bridge_cv.folds])) == list(range(120))


# --- the base estimator on plain rows ---------------------------------------------------------


def test_default_twin_is_compared_with_the_same_boosting(bridge):
    """Only the size of a leaf and the seed differ: pairs are counted in the twin, rows here."""
    X, y = (part.iloc[:40] for part in bridge)
    cv = cross_validate_models(X, y)
    in_twin = cv.twins[0].estimator_
    plain = plain_estimator(cv.twin, cv.twins[0], 32, 0)
    assert type(plain) is type(in_twin) is HistGradientBoostingRegressor
    differing = {
        name for name, value in plain.get_params().items() if in_twin.get_params()[name] != value
    }
    assert differing == {"min_samples_leaf", "random_state"}
    assert plain.min_samples_leaf == 4
    assert plain_estimator(cv.twin, cv.twins[0], 1_000, 0).min_samples_leaf == 10
    train, held_out = cv.folds[0]
    features = encode_features(X)
    alone = plain.fit(features[train], y.iloc[train]).predict(features[held_out])
    np.testing.assert_array_equal(cv.predictions["base estimator"][held_out], alone)
    settings = "HistGradientBoostingRegressor(early_stopping=False, learning_rate=0.2"
    for name in ("twin", "base estimator"):
        assert settings in cv.descriptions[name]


def test_network_is_compared_with_the_same_network():
    twin = TwinNeuralRegressor((16, 8), max_steps=20, n_members=2, dropout=0.1, random_state=3)
    plain = plain_estimator(twin, twin, 100, 0)
    assert type(plain) is NeuralRegressor
    assert plain.get_params() == {name: twin.get_params()[name] for name in plain.get_params()}


def test_given_estimator_is_seeded_only_where_it_has_no_seed():
    for seed, expected in ((None, 7), (3, 3)):
        twin = TwinRegressor(RandomForestRegressor(4, random_state=seed))
        assert plain_estimator(twin, twin, 100, 7).random_state == expected
        assert twin.estimator.random_state is seed


def test_missing_values_reach_estimators_that_accept_them():
    features = np.array([[1.0, np.nan], [2.0, 3.0]])
    accepted = features_for(DecisionTreeRegressor(), features, np.array([0, 1]))
    np.testing.assert_array_equal(accepted, features)
    complete = features_for(Lasso(), features, np.array([0, 1]))
    np.testing.assert_array_equal(complete, [[1.0, 0.0], [2.0, 3.0]])
    # the only training row does not know the second feature
    unknown = features_for(DecisionTreeRegressor(), features, np.array([0]))
    np.testing.assert_array_equal(unknown, [[1.0, 0.0], [2.0, 0.0]])


def test_categories_become_indicators():
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan], "c": pd.Categorical(["x", "y", "x"])})
    features = encode_features(frame)
    assert features.shape == (3, 3)
    np.testing.assert_array_equal(features[:, 1:], [[1, 0], [0, 1], [1, 0]])
    text = pd.DataFrame({"a": [1.0, 2.0, 3.0], "s": ["x", "y", "x"]})
    assert encode_features(text, ["s"]).shape == (3, 3)


# --- warnings ---------------------------------------------------------------------------------


class UnconvergedTree(DecisionTreeRegressor):
    def fit(self, X, y, **options):
        warnings.warn("not converged", ConvergenceWarning, stacklevel=2)
        return super().fit(X, y, **options)


def test_only_unknown_categories_are_silent(tree_twin):
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"a": rng.rand(40), "c": pd.Categorical(["x", "y"] * 19 + ["x", "rare"])})
    y = X["a"] + rng.rand(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cross_validate_models(X, y, tree_twin)
    with pytest.warns(ConvergenceWarning, match="not converged"):
        cross_validate_models(X, y, TwinRegressor(UnconvergedTree(random_state=0)))


# --- threads ----------------------------------------------------------------------------------


def test_base_estimator_with_own_threads_is_called_from_one_thread(monkeypatch):
    """Gradient boosting starts a thread on every core: n_jobs threads must not call it at once."""
    rng = np.random.RandomState(0)
    X, y = rng.rand(30, 2), rng.rand(30)
    twin = TwinRegressor(HistGradientBoostingRegressor(max_iter=3), random_state=0).fit(X, y)
    threads, original = set(), HistGradientBoostingRegressor.predict

    def predict(self, X):
        threads.add(threading.current_thread())
        return original(self, X)

    monkeypatch.setattr(HistGradientBoostingRegressor, "predict", predict)
    with use_all_cores(twin, 5):
        twin.predict(X[:5])
    assert threads == {threading.current_thread()}


def test_tree_kernel_uses_all_cores_and_leaves_n_jobs_as_it_was():
    rng = np.random.RandomState(0)
    X, y = rng.rand(300, 2), rng.rand(300)
    twin = TwinRegressor(RandomForestRegressor(50, max_depth=4), pairs=4, random_state=0).fit(X, y)
    with use_all_cores(twin, 300):
        assert twin.n_jobs == -1
    assert twin.n_jobs is None
    twin.set_params(n_jobs=1)
    with use_all_cores(twin, 300):
        assert twin.n_jobs == 1


# --- rows that fit into the time --------------------------------------------------------------


class SlowTwin(BaseEstimator):
    """Twin that needs a millisecond for each pair of query and anchor of a simulated clock."""

    def __init__(self, used, clock):
        self.anchors_y_, self._used, self._clock = np.zeros(4_000), used, clock

    @property
    def anchors(self):
        from twinned import NearestAnchors

        return "all" if self._used == len(self.anchors_y_) else NearestAnchors(self._used)

    def predict(self, X, return_std):
        self._clock[0] += 1e-3 * len(X) * self._used


@pytest.mark.parametrize(
    ("used", "seconds", "expected"),
    [
        # all: 1,000 rows per fold with 4,000 anchors each
        (4_000, 5 * 1_000 * 4.0 + 10, 5_000),
        # half of the rows are a quarter of the pairs; rounded down to 1,000 times a power of two
        (4_000, 5 * 500 * 2.0 + 10, 2_000),
        # with 16 anchors each, half of the rows are half of the pairs
        (16, 5 * 500 * 0.016 + 10, 2_000),
        (16, 5 * 250 * 0.016 + 10, 1_000),
        (4_000, 0.0, 1_000),
        (4_000, None, 5_000),
    ],
)
def test_affordable_rows(used, seconds, expected, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("twinned.diagnostics.cross_validation.time.perf_counter", lambda: clock[0])
    twin, held_out = SlowTwin(used, clock), np.zeros((1_000, 1))
    assert affordable_rows(twin, held_out, 5_000, 5, 2.0, seconds) == expected
