"""Learning curves."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor
from twinned.diagnostics.curves import learning_curve
from twinned.rows.folds import row_folds


def curve_of(estimator, table, folds=None, **options):
    X, y = (np.asarray(values) for values in table)
    return learning_curve(estimator, X, y, folds or row_folds(len(y), 5, 0), **options)


def test_summary_names_the_model(bridge):
    text = str(curve_of(Ridge(), bridge, name="ridge"))
    assert text.startswith("Would more labels help? (ridge) ")
    assert text.endswith(".")


def test_curve_ends_at_the_error_of_cross_validation(bridge):
    X, y = (np.asarray(values) for values in bridge)
    folds, tree = row_folds(120, 3, 1), DecisionTreeRegressor(random_state=0)
    numbers = learning_curve(tree, X, y, folds).numbers
    errors = []
    for training, held_out in folds:
        predicted = clone(tree).fit(X[training], y[training]).predict(X[held_out])
        errors.append(np.sqrt(np.mean((predicted - y[held_out]) ** 2)))
    assert numbers["x"] == [20, 40, 60, 80]
    assert numbers["rmse"][-1] == pytest.approx(np.mean(errors))
    assert numbers["standard_error"][-1] == pytest.approx(np.std(errors, ddof=1) / np.sqrt(3))


def test_groups_are_added_as_a_whole(rng):
    X, groups = rng.normal(size=(60, 1)), np.repeat(np.arange(12), 5)
    fitted_rows = []

    class Recorder(DummyRegressor):
        def fit(self, X, y):
            fitted_rows.append(X[:, 0])
            return super().fit(X, y)

    folds = row_folds(60, 3, 0, groups)
    learning_curve(Recorder(), X, X[:, 0], folds, groups)
    for rows in fitted_rows:
        counts = np.bincount(groups[np.isin(X[:, 0], rows)])
        assert np.isin(counts[counts > 0], 5).sum() >= np.count_nonzero(counts) - 1


@pytest.mark.parametrize(
    ("errors", "trend"),
    [
        ([[1, 0, 0, 0.1], [1, 1, 1, 1]], "unclear"),  # errors of exactly 0
        ([[2, 1, 1.5, 2], [2, 2, 1.5, 1]], "unclear"),  # opposite folds
        ([[9, 1, 1, 1], [9, 1, 1, 1]], "level"),
        ([[8, 4, 8 / 3, 2], [8, 4.4, 8 / 3, 2]], "falls"),
        ([[0, 0, 0, 0], [0, 0, 0, 0]], "level"),
    ],
)
def test_trend_of_the_learning_curve(bridge, monkeypatch, errors, trend):
    def learning_curve(*arguments, train_sizes, **options):
        return np.array(train_sizes), None, -np.transpose(errors)

    monkeypatch.setattr("sklearn.model_selection.learning_curve", learning_curve)
    numbers = curve_of(DummyRegressor(), bridge, row_folds(120, 5, 0)[:2]).numbers
    assert numbers["trend"] == trend
    assert numbers["interval"][0] <= numbers["interval"][1]


@pytest.mark.slow
def test_more_labels_help(tree_twin, bridge):
    result = curve_of(tree_twin, bridge)
    assert result.numbers["trend"] == "falls"
    assert "Twice as many labels" in result.summary


class UnconvergedTree(DecisionTreeRegressor):
    def fit(self, X, y, **options):
        warnings.warn("not converged", ConvergenceWarning, stacklevel=2)
        return super().fit(X, y, **options)


def test_only_unknown_categories_are_silent(tree_twin):
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"a": rng.rand(40), "c": pd.Categorical(["x", "y"] * 19 + ["x", "rare"])})
    y = (X["a"] + rng.rand(40)).to_numpy()
    folds = [(np.arange(30), np.arange(30, 40)), (np.arange(10, 40), np.arange(10))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curve = learning_curve(tree_twin, X, y, folds)
    assert np.isfinite(curve.numbers["rmse"]).all()
    with pytest.warns(ConvergenceWarning, match="not converged"):
        learning_curve(TwinRegressor(UnconvergedTree(random_state=0)), X, y, folds)
