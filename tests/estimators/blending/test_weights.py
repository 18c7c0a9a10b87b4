"""Blend weights: against brute force, and in the cases in which blends go wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinned.estimators.blending.weights import (
    METHODS,
    bagged_greedy_selection,
    fit_weights,
    ratio_of_rmse,
    simplex_least_squares,
)
from twinned.models.greedy_selection import greedy_selection

pytestmark = pytest.mark.usefixtures("shipped_defaults")

SEEDS = st.integers(0, 10_000)


def random_errors(seed, n_models=3, n_rows=30):
    rng = np.random.RandomState(seed)
    shared = rng.normal(size=(n_rows, 1)) * rng.uniform(0, 2)
    return shared + rng.normal(size=(n_rows, n_models)) * rng.uniform(0.01, 3, n_models)


@pytest.mark.parametrize("method", METHODS.values())
@given(seed=SEEDS)
def test_weights_are_on_the_simplex(method, seed):
    weights = method(random_errors(seed))
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)


@given(seed=SEEDS)
def test_simplex_weights_have_the_smallest_error_of_a_grid(seed):
    errors = random_errors(seed)
    grid = np.array([(i, j, 40 - i - j) for i in range(41) for j in range(41 - i)]) / 40
    smallest = ((errors @ grid.T) ** 2).sum(axis=0).min()
    found = ((errors @ simplex_least_squares(errors)) ** 2).sum()
    assert found <= smallest * (1 + 1e-9)


@given(seed=SEEDS)
def test_greedy_weights_are_the_mean_over_bootstrap_samples(seed):
    errors = random_errors(seed)
    rng = np.random.RandomState(0)
    samples = [errors[rng.randint(30, size=30)] for _ in range(20)]
    each = [greedy_selection(own, 41, 1e-4, stop_early=True) for own in samples]
    np.testing.assert_allclose(bagged_greedy_selection(errors), np.mean(each, axis=0), atol=1e-12)


def test_one_row_with_a_large_error_does_not_decide_the_greedy_weights():
    rng = np.random.RandomState(0)
    errors = rng.normal(size=(100, 2)) * [0.1, 1.0]
    errors[0] = [30.0, 0.0]
    assert greedy_selection(errors, 41, 1e-4, stop_early=True)[0] < 0.1
    assert bagged_greedy_selection(errors)[0] > 0.25


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_member_that_is_a_thousand_times_better_has_all_the_weight(scale):
    rng = np.random.RandomState(0)
    y = rng.normal(size=200) * scale
    noise = rng.normal(size=(200, 4)) * scale
    predictions = y[:, None] + noise * [1e-6, 1e-3, 1e-3, 2e-3]
    blend = fit_weights(predictions, y)
    error = np.sqrt(np.mean((predictions @ blend.weights - y) ** 2))
    assert blend.weights[0] > 0.999
    assert error <= 1.001 * 1e-6 * scale * np.sqrt(np.mean((noise[:, 0] / scale) ** 2))


def test_blend_is_better_than_its_members_where_errors_are_independent():
    rng = np.random.RandomState(0)
    y = rng.normal(size=300)
    predictions = y[:, None] + rng.normal(size=(300, 4))
    blend = fit_weights(predictions, y)
    single = np.sqrt(np.mean((predictions - y[:, None]) ** 2, axis=0)).min()
    assert min(blend.nested_rmse.values()) < 0.7 * single
    assert np.sqrt(np.mean((blend.nested_prediction - y) ** 2)) == pytest.approx(0.5, abs=0.06)


def test_perfect_member():
    y = np.arange(10.0)
    blend = fit_weights(np.column_stack([y + 1, y]), y)
    np.testing.assert_array_equal(blend.weights, [0, 1])
    np.testing.assert_array_equal(blend.nested_prediction, y)


def test_nested_prediction_does_not_use_the_row_itself():
    """Members that are right by chance on single rows gain nothing in nested folds."""
    rng = np.random.RandomState(0)
    y = rng.normal(size=60)
    predictions = rng.normal(size=(60, 30))
    blend = fit_weights(predictions, y)
    in_sample = np.sqrt(
        np.mean((predictions @ simplex_least_squares(predictions - y[:, None]) - y) ** 2)
    )
    nested = np.sqrt(np.mean((blend.nested_prediction - y) ** 2))
    assert nested > 1.1 * in_sample


def test_sample_weights_equal_repetitions():
    errors = random_errors(3, n_rows=12)
    counts = np.resize([1, 2, 3], 12)
    repeated = simplex_least_squares(np.repeat(errors, counts, axis=0))
    weighted = simplex_least_squares(errors * np.sqrt(counts)[:, None])
    np.testing.assert_allclose(repeated, weighted, atol=1e-9)


@pytest.mark.slow
def test_bootstrap_interval_has_its_coverage():
    rng = np.random.RandomState(0)
    covered = 0
    for seed in range(40):
        errors, others = rng.normal(size=(2, 150)) * [[0.9], [1.0]]
        result = ratio_of_rmse(errors, others, seed=seed)
        covered += result["lower"] <= 0.9 <= result["upper"]
        assert result["ratio"] == pytest.approx(result["rmse"] / result["baseline_rmse"])
    assert 31 <= covered <= 40


def test_groups_are_drawn_together():
    """Rows that repeat each other widen the interval of rows, not that of groups."""
    rng = np.random.RandomState(0)
    errors, others = rng.normal(size=(2, 40))
    once = ratio_of_rmse(errors, others)
    groups = np.repeat(np.arange(40), 5)
    grouped = ratio_of_rmse(np.repeat(errors, 5), np.repeat(others, 5), groups=groups)
    assert grouped["ratio"] == pytest.approx(once["ratio"])
    assert grouped["lower"] == pytest.approx(once["lower"])
    ignored = ratio_of_rmse(np.repeat(errors, 5), np.repeat(others, 5))
    assert ignored["upper"] - ignored["lower"] < 0.7 * (once["upper"] - once["lower"])
