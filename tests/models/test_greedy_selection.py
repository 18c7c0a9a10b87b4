"""Greedy selection: against a slow version that evaluates the error of every mean."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinned.models.greedy_selection import greedy_selection


def one_by_one(errors, max_rounds, least_gain, stop_early):
    """Greedy selection with the models of every round in a list."""

    def square(models):
        return np.sum(np.mean(errors[:, models], axis=1) ** 2)

    n_models = errors.shape[1]
    models = [min(range(n_models), key=lambda model: square([model]))]
    best, best_square = models, square(models)
    while len(models) < max_rounds:
        models = min(([*models, added] for added in range(n_models)), key=square)
        if square(models) < best_square * (1 - least_gain):
            best, best_square = models, square(models)
        elif stop_early:
            break
    return np.bincount(best, minlength=n_models) / len(best)


@pytest.mark.parametrize("stop_early", [True, False])
@given(seed=st.integers(0, 10_000), max_rounds=st.integers(1, 12), n_models=st.integers(1, 5))
def test_equals_the_slow_version(seed, max_rounds, n_models, stop_early):
    rng = np.random.RandomState(seed)
    errors = rng.normal(size=(20, n_models)) * rng.uniform(0.1, 2, n_models)
    errors += rng.uniform(0, 2) * rng.normal(size=(20, 1))
    expected = one_by_one(errors, max_rounds, 1e-4, stop_early)
    found = greedy_selection(errors, max_rounds, 1e-4, stop_early=stop_early)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_later_round_may_be_the_best():
    # the optimum has weights 0.6 and 0.4: after two rounds the error is larger than after one
    errors = np.array([[0.4, -0.6], [0.0, 1.0]])
    early, late = (
        greedy_selection(errors, 20, 1e-9, stop_early=stop_early) for stop_early in (True, False)
    )
    assert early.tolist() == [1.0, 0.0]
    assert np.sum((errors @ late) ** 2) < 0.16


def test_perfect_models():
    assert greedy_selection(np.zeros((4, 2)), 20, 1e-9, stop_early=False).tolist() == [1.0, 0.0]
