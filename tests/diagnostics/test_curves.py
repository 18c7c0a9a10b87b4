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
from twinned.diagnostics import learning_curve
from twinned.rows.folds import row_folds


def test_curve_has_numbers_summary_and_plot(bridge):
    result = learning_curve(*bridge, Ridge(), name="ridge")
    assert result.summary.endswith(".")
    assert result.title.endswith("?")
    axes = result.plot()
    assert axes.get_title() == "Would more labels help? (ridge)"
    assert axes.has_data()


def test_curve_ends_at_the_error_of_cross_validation(bridge, tree_twin):
    X, y = (np.asarray(values) for values in bridge)
    folds = row_folds(120, 3, 1)
    numbers = learning_curve(X, y, tree_twin, folds=folds).numbers
    errors = []
    for training, held_out in folds:
        predicted = clone(tree_twin).fit(X[training], y[training]).predict(X[held_out])
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
    learning_curve(X, X[:, 0], Recorder(), folds=folds, groups=groups)
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
    found = iter(np.ravel(errors))
    monkeypatch.setattr("twinned.diagnostics.curves.rmse", lambda *_: next(found))
    two_folds = row_folds(120, 5, 0)[:2]
    numbers = learning_curve(*bridge, DummyRegressor(), folds=two_folds).numbers
    assert numbers["trend"] == trend
    assert numbers["interval"][0] <= numbers["interval"][1]


@pytest.mark.slow
def test_more_labels_help(tree_twin, bridge):
    result = learning_curve(*bridge, tree_twin)
    assert result.numbers["trend"] == "falls"
    assert "Twice as many labels" in result.summary


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
        curve = learning_curve(X, y, tree_twin)
    assert np.isfinite(curve.numbers["rmse"]).all()
    with pytest.warns(ConvergenceWarning, match="not converged"):
        learning_curve(X, y, TwinRegressor(UnconvergedTree(random_state=0)))
