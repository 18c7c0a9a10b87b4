"""Benchmarks: normal predictive distributions, inverses, masks of networks, and the index."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from benchmarks.accuracy import standard_splits
from benchmarks.accuracy.tables import STANDARD_TABLES, split_table
from benchmarks.inverse import inverse
from benchmarks.pages import index, page
from paper import dropout_members
from twinned import NeuralRegressor, NeuralTraining
from twinned.metrics import crps, log_likelihood


def test_table_of_inverses_of_which_some_were_not_measured():
    columns = ["problem", "seed", "method", "mse", "floor"]
    rows = [(1, 0, "nearest row", 0.5, 1e-4), (2, 0, "solve", 0.25, 2e-4)]
    lines = inverse.summary(pd.DataFrame(rows, columns=columns))
    (first,), (second,) = ([line for line in lines if line.startswith(f"| {i}")] for i in (1, 2))
    assert first.endswith("| 0.5 (0.5) |  |  |")
    assert second.endswith("|  | 0.25 (0.25) | 2.0e-04 |")


def test_normal_predictive_distribution():
    X, y = np.zeros((3, 1)), np.array([-1.0, 0.5, 2.0])
    constant = standard_splits.NormalErrors(
        SimpleNamespace(predict=lambda X: np.ones(len(X))), std=2.0
    )
    own = standard_splits.NormalErrors(
        SimpleNamespace(predict=lambda X, return_std: (np.ones(len(X)), np.full(len(X), 2.0)))
    )
    z = (y - 1) / 2
    slow = 2 * np.mean(z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    for model in (constant, own):
        assert log_likelihood(model, X, y) == pytest.approx(norm(1, 2).logpdf(y).mean())
        assert crps(model, X, y) == pytest.approx(slow, rel=0.01)
        np.testing.assert_allclose(model.predict_cdf(X, y), norm(1, 2).cdf(y))
    found = standard_splits.figures(constant, X, y)
    assert found["coverage_80"] == 1.0
    assert found["pit"] == "159 401 691"


def test_distance_from_the_uniform_distribution():
    runs = pd.DataFrame({"pit": ["100 300 500", "700 900"]})
    assert standard_splits.largest_difference(runs) == pytest.approx(0.1)


def test_names_of_the_repository_are_accepted():
    assert STANDARD_TABLES["uci bostonHousing"] == STANDARD_TABLES["uci boston"] == "boston"


def test_standard_splits_are_tables(data_folder):
    (X, y), (X_test, y_test) = split_table("uci yacht", 0)
    assert (X.shape, y.shape, X_test.shape, y_test.shape) == ((277, 6), (277,), (31, 6), (31,))


def test_losses_are_where_another_figure_is_lower(monkeypatch):
    figures = pd.DataFrame(
        {"method": ["A", "B"], "dataset": "yacht", "rmse": [0.5, 0.4], "nll": [0.1, np.nan]}
    )
    monkeypatch.setattr(standard_splits, "published", lambda: figures)
    runs = pd.DataFrame(
        {"model": ["twinned", "catboost"], "dataset": "yacht", "rmse": [0.3, 0.2], "nll": [0.2, 1]}
    )
    assert page.compare_standard(runs, "rmse") == [("yacht", 0.3, 0.2, "CatBoost", 0.4)]
    assert page.standard_losses(runs.assign(crps=np.nan), ("rmse", "nll")) == [
        "Standard splits, yacht: RMSE 0.3, CatBoost 0.2.",
        "Standard splits, yacht: negative log-likelihood 0.2, A 0.1.",
    ]


def test_correlation_of_errors_is_that_of_all_pairs_of_members(rng):
    errors = rng.normal(size=(4, 30)) + rng.normal(size=30)
    products = [np.mean(errors[i] * errors[j]) for i in range(4) for j in range(4) if i != j]
    found = dropout_members.describe_errors(errors)
    assert found["correlation"] == pytest.approx(np.mean(products) / np.mean(errors**2))
    assert found["rmse_mean"] == pytest.approx(np.sqrt(np.mean(errors.mean(axis=0) ** 2)))


@pytest.mark.slow
def test_masked_weights_are_masked_units(rng):
    X = rng.normal(size=(30, 2))
    training = NeuralTraining(max_steps=20, n_folds=1, embedding=None, scaling="standard")
    model = NeuralRegressor((5, 4), n_members=1, training=training, random_state=0)
    networks = model.fit(X, X[:, 0]).networks()
    masked = dropout_members.with_masks(networks, 0.5, np.random.RandomState(0))
    rows = SimpleNamespace(features=rng.normal(size=(6, 2)))
    random, value = np.random.RandomState(0), networks.matrix(rows)
    value = value @ networks.parameters["linear_0"][0] + networks.parameters["bias_0"][0]
    for layer, size in enumerate((5, 4), 1):
        mask = random.uniform(size=(dropout_members.N_MEMBERS, size, 1))[3, :, 0] >= 0.5
        hidden = value / (1 + np.exp(-value)) * mask / 0.5
        weight, bias = (networks.parameters[f"{name}_{layer}"][0] for name in ("weight", "bias"))
        value = hidden @ weight + bias
    expected = networks.scale.inverse_transform_y(value)
    np.testing.assert_allclose(masked.predict(rows)[3], expected, atol=1e-5)


def test_index_lists_the_modules():
    """Run `python -m benchmarks.pages.index` where this fails."""
    assert (index.FOLDER / "README.md").read_text("utf-8") == index.index_text()
    folders = {path.parent.name for path in index.FOLDER.glob("*/__init__.py")}
    assert folders == set(index.QUESTIONS)
