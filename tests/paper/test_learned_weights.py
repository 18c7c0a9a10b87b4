"""Anchor weights learned from held-out rows."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from benchmarks.anchors.learned_weights import (
    FixedWeights,
    inverse_variance,
    learn_weights,
    least_squares,
)
from twinned import NearestAnchors, TwinRegressor
from twinned.datasets import make_tf

X, y = (part.to_numpy() for part in make_tf(80, random_state=0))


def fitted(values=y, **changes):
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=5, random_state=0), **changes)
    return twin.fit(X[:30], values[:30])


def test_inverse_variance_equals_the_loop_over_anchors():
    twin = fitted()
    _, estimates = twin.predict_anchors(X[30:50])
    slow = [1 / np.mean([(estimates[i, a] - y[30 + i]) ** 2 for i in range(20)]) for a in range(30)]
    np.testing.assert_allclose(learn_weights(twin, X[30:50], y[30:50]).weights, slow)


def test_predictions_use_the_learned_weights():
    twin = fitted()
    learned = learn_weights(twin, X[30:50], y[30:50])
    _, estimates = twin.predict_anchors(X[50:])
    weighted = twin.with_strategies(weights=learned).predict(X[50:])
    np.testing.assert_allclose(weighted, np.average(estimates, axis=1, weights=learned.weights))


@pytest.mark.parametrize("by", ["variance", "least squares"])
def test_a_wrong_label_gets_less_weight_and_the_error_falls(by):
    twin = fitted().add_anchors(X[50:51], y[50:51] + 20)
    plain = np.mean((twin.predict(X[51:]) - y[51:]) ** 2)
    learned = learn_weights(twin, X[30:50], y[30:50], by=by)
    assert learned.weights[-1] < 0.2 * np.median(learned.weights)
    assert np.mean((twin.with_strategies(weights=learned).predict(X[51:]) - y[51:]) ** 2) < plain


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


def test_anchors_without_errors_have_equal_weights():
    np.testing.assert_array_equal(inverse_variance(np.ones((3, 2)), np.ones(3)), [1, 1])


def test_more_anchors_than_weights_raise():
    twin = fitted()
    twin = twin.with_strategies(weights=learn_weights(twin, X[30:50], y[30:50]))
    with pytest.raises(ValueError, match="weights belong to the fit that they were learned for"):
        twin.add_anchors(X[50:52], y[50:52]).predict(X[:2])
    with pytest.raises(ValueError, match=r"30,.* for 15 anchors"):
        twin.fit(X[:15], y[:15]).predict(X[:2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: learn_weights(LinearRegression(), X, y), "twin must be a fitted twin"),
        (lambda: learn_weights(TwinRegressor(), X, y), "not fitted"),
        (lambda: learn_weights(fitted(), X, y, by="taste"), "'taste'"),
        (lambda: learn_weights(fitted(), X, y[:5]), "X has 80 and y has 5"),
        (lambda: learn_weights(fitted(), X, y, shrinkage=-1), "shrinkage must not be negative"),
        (
            lambda: learn_weights(fitted(anchors=NearestAnchors(3)), X, y),
            "weights need anchors='all'",
        ),
        (lambda: FixedWeights([[1.0]])(None, None, np.array([[0]])), r"shape \(1, 1\)"),
        (lambda: learn_weights(fitted().set_params().fit(X, y, y**2), X, y), "sample_weight"),
        (lambda: learn_weights(fitted().fit(X, np.c_[y, y]), X, np.c_[y, y]), "the twin has 2"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(Exception, match=message):
        call()
