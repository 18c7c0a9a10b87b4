"""Cross-validation of a twin."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor
from twinned.diagnostics.twin_checks import cross_validate_twin, learning_curve


def test_predictions_are_those_of_models_fitted_without_the_rows(bridge, bridge_cv, tree_twin):
    X, y = bridge
    train, held_out = bridge_cv.folds[2]
    alone = clone(tree_twin).fit(X.iloc[train], y.iloc[train]).predict(X.iloc[held_out])
    predicted = bridge_cv.fit_and_predict(clone(tree_twin), 2, train)
    np.testing.assert_array_equal(predicted, alone)
    assert sorted(np.concatenate([rows for _, rows in bridge_cv.folds])) == list(range(120))


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
        curve = learning_curve(X, y, cross_validation=cv)
    assert np.isfinite(curve.numbers["rmse"]).all()
    with pytest.warns(ConvergenceWarning, match="not converged"):
        learning_curve(X, y, TwinRegressor(UnconvergedTree(random_state=0)))
