"""The grid search of forests by cuts, against trees and forests of scikit-learn."""

from itertools import product

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_score
from sklearn.tree import DecisionTreeRegressor

from paper import forest_grid, forests
from paper.experiments import STUDIES
from paper.forest_grid import GRID, grid_scores, search_grid, sort_columns

DEPTHS, SPLITS = np.array([2, 4, 32]), np.array([2, 3, 4, 9])


@pytest.fixture
def not_compiled(monkeypatch):
    """Compilation takes longer than these tests."""
    for name in ("predict_cuts", "grow_tree", "choose_split", "partition", "add_cuts"):
        monkeypatch.setattr(forest_grid, name, getattr(forest_grid, name).py_func)


def sample(n_features, n_rows=90):
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(n_rows, n_features)).astype(np.float32)
    return X, X[:, 0] + X[:, -1] ** 3 / 4 + 0.1 * rng.normal(size=n_rows)


def predict_tree(X, y, counts, leaf, rows):
    """Return depth × split × row: predictions of a tree that tries all features."""
    columns = np.ascontiguousarray(X.T)
    order, rng = sort_columns(columns), np.random.default_rng(0)
    tree = forest_grid.grow_tree(columns, y, order, counts, DEPTHS.max(), len(columns), leaf, rng)
    predicted = np.zeros((len(DEPTHS), len(SPLITS), len(rows)))
    forest_grid.add_cuts(columns, tree, rows, DEPTHS, SPLITS, predicted)
    return predicted


# With several features, two of them may separate the rows of a small node equally well: then only
# the predictions of training rows are determined.
@pytest.mark.parametrize(("n_features", "rows"), [(1, np.arange(60, 90)), (4, np.arange(60))])
@pytest.mark.parametrize("leaf", [1, 2])
@pytest.mark.usefixtures("not_compiled")
def test_a_cut_tree_is_the_tree_that_was_stopped_there(n_features, rows, leaf):
    X, y = sample(n_features)
    counts = np.zeros(len(y))
    counts[:60] = np.random.default_rng(1).multinomial(60, np.full(60, 1 / 60))
    rows = rows[(counts[rows] > 0) | (rows >= 60)]
    predicted = predict_tree(X, y, counts, leaf, rows)
    for (i, depth), (j, split) in product(enumerate(DEPTHS), enumerate(SPLITS)):
        tree = DecisionTreeRegressor(
            max_depth=depth, min_samples_split=split, min_samples_leaf=leaf, random_state=0
        ).fit(X[:60], y[:60], sample_weight=counts[:60])
        np.testing.assert_allclose(predicted[i, j], tree.predict(X[rows]), atol=1e-12)


@pytest.mark.slow
def test_scores_are_those_of_forests_that_are_grown_apart(monkeypatch):
    few = {"max_depth": (3, 32), "max_features": (0.5,), "min_samples_leaf": (2,)}
    monkeypatch.setattr(forest_grid, "GRID", few | {"min_samples_split": (2, 12)})
    X, y = sample(4)
    scores = grid_scores(X, y, 1000, 0)
    assert len(scores) == 4
    for point, score in scores.items():
        own = dict(zip(GRID, point, strict=True))
        forest = RandomForestRegressor(200, random_state=0, **own)
        expected = cross_val_score(forest, X, y, cv=KFold(5)).mean()
        assert score == pytest.approx(expected, abs=0.01), own
    spread = max(scores.values()) - min(scores.values())
    assert spread > 0.04  # which is more than the tolerance


def test_the_point_of_the_highest_score_is_chosen(monkeypatch):
    def scores(*arguments):
        return {point: -float(point[0] == 8) for point in product(*GRID.values())}

    monkeypatch.setattr(forest_grid, "grid_scores", scores)
    assert list(search_grid(None, None, 1, 0).values()) == [16, 0.33, 1, 2]


@pytest.mark.usefixtures("not_compiled")
def test_forests_as_published_are_searched_on_each_split():
    trial, twin = STUDIES["forests"].trials("as_published", "TF", 3)
    assert (trial.settings["search"], twin.settings["search"]) == ("rf", "twinned_rf")
    trial.settings["trees"] = 2
    ((_, result),) = forests.run_forests([trial])
    assert result["parameters"] == forests.search_parameters(trial)
    assert all(value in GRID[name] for name, value in result["parameters"].items())
    assert result["rf"] == forests.forest_error(trial, "rf", result["parameters"])
