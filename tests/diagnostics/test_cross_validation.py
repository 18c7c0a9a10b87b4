"""Cross-validation of a twin, and its base estimator on plain rows."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.tree import DecisionTreeRegressor

from twinned import NeuralTraining, TwinRegressor
from twinned.diagnostics.twin_checks import anchor_curve, cross_validate_twin, plain_estimator
from twinned.neural import NeuralRegressor, TwinNeuralRegressor


def test_predictions_are_those_of_models_fitted_without_the_rows(bridge, bridge_cv, tree_twin):
    X, y = bridge
    train, held_out = bridge_cv.folds[2]
    alone = tree_twin.fit(X.iloc[train], y.iloc[train]).predict(X.iloc[held_out])
    predicted = bridge_cv.twins[2].predict(bridge_cv.rows(held_out))
    np.testing.assert_array_equal(predicted, alone)
    assert sorted(np.concatenate([rows for _, rows in bridge_cv.folds])) == list(range(120))


# --- the base estimator on plain rows ---------------------------------------------------------


def test_default_twin_is_compared_with_the_same_boosting(bridge):
    """Only the size of a leaf and the seed differ: pairs are counted in the twin, rows here."""
    X, y = (part.iloc[:40] for part in bridge)
    twin = TwinRegressor(random_state=0).fit(X, y)
    plain = plain_estimator(twin, 32, 0)
    assert type(plain) is type(twin.estimator_) is HistGradientBoostingRegressor
    settings = twin.estimator_.get_params()
    differing = {name for name, value in plain.get_params().items() if settings[name] != value}
    assert differing == {"min_samples_leaf", "random_state"}
    assert plain.min_samples_leaf == 4
    assert plain_estimator(twin, 1_000, 0).min_samples_leaf == 10


def test_network_is_compared_with_the_same_network():
    twin = TwinNeuralRegressor(
        (16, 8), training=NeuralTraining(max_steps=20, dropout=0.1), n_members=2, random_state=3
    )
    plain = plain_estimator(twin, 100, 0)
    assert type(plain) is NeuralRegressor
    assert plain.get_params() == {name: twin.get_params()[name] for name in plain.get_params()}


def test_given_estimator_is_seeded_only_where_it_has_no_seed():
    for seed, expected in ((None, 7), (3, 3)):
        twin = TwinRegressor(RandomForestRegressor(4, random_state=seed))
        assert plain_estimator(twin, 100, 7).random_state == expected
        assert twin.estimator.random_state is seed


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
        cv = cross_validate_twin(X, y, tree_twin)
        curve = anchor_curve(X, y, cross_validation=cv)
    assert np.isfinite(curve.numbers["rmse"]).all()
    with pytest.warns(ConvergenceWarning, match="not converged"):
        assert cross_validate_twin(X, y, TwinRegressor(UnconvergedTree(random_state=0))).twins
