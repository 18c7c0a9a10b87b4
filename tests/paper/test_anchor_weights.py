"""Weights of anchors that are learned from held-out rows."""

import numpy as np
import pytest

from benchmarks.anchors.anchor_weights import inverse_variance, least_squares


def test_inverse_variance_equals_the_loop_over_anchors(rng):
    estimates, y = rng.normal(size=(20, 6)), rng.normal(size=20)
    slow = [1 / np.mean([(estimates[i, a] - y[i]) ** 2 for i in range(20)]) for a in range(6)]
    np.testing.assert_allclose(inverse_variance(estimates, y), slow)


def test_least_squares_minimizes_its_loss(rng):
    """No small step within the simplex lowers its loss."""
    estimates, target = rng.normal(size=(40, 6)), rng.normal(size=40)
    scale = np.mean((estimates - target[:, None]) ** 2)

    def loss(w):
        drawn = 0.5 * 40 * 6 * scale * np.sum((w - 1 / 6) ** 2)
        return np.sum((estimates @ w - target) ** 2) + drawn

    learned = least_squares(estimates, target, 0.5)
    assert learned.sum() == pytest.approx(1)
    assert (learned >= 0).all()
    for _ in range(200):
        other = np.abs(learned + 0.02 * rng.normal(size=6))
        assert loss(other / other.sum()) >= loss(learned) - 1e-5 * loss(learned)


def test_strong_shrinkage_means_equal_weights(rng):
    estimates, target = rng.normal(size=(40, 6)), rng.normal(size=40)
    np.testing.assert_allclose(least_squares(estimates, target, 1e6), np.full(6, 1 / 6), atol=1e-4)


@pytest.mark.parametrize("learn", [inverse_variance, least_squares])
def test_an_anchor_with_a_wrong_label_gets_less_weight(rng, learn):
    estimates = rng.normal(size=(40, 6)) + 20.0 * (np.arange(6) == 5)
    learned = learn(estimates, np.zeros(40))
    assert learned[-1] < 0.2 * np.median(learned)


def test_anchors_without_errors_have_equal_weights():
    np.testing.assert_array_equal(inverse_variance(np.ones((3, 2)), np.ones(3)), [1, 1])
