"""Thinning: few anchors that predict as all of them do."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge

from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
)
from twinned.datasets import make_tf
from twinned.export.thinning import choose_anchors, fit_anchor_weights, thin

QUICK = {"max_steps": 40, "n_folds": 1}


@pytest.fixture(scope="module")
def rows():
    X, y = make_tf(110, random_state=0)
    return X, y


@pytest.fixture(scope="module")
def forest_twin(rows):
    forest = RandomForestRegressor(8, min_samples_leaf=2, random_state=0)
    return TwinRegressor(forest, pairs=20, random_state=0).fit(rows[0][:80], rows[1][:80])


@pytest.fixture(scope="module")
def neural_twin(rows):
    twin = TwinNeuralRegressor(
        (8,), n_members=4, training=NeuralTraining(selection="mean", **QUICK), random_state=0
    )
    return twin.fit(rows[0][:80], rows[1][:80])


@given(st.integers(0, 1000), st.integers(1, 3))
def test_choice_is_nearly_the_best_subset(seed, n_anchors):
    deviations = np.random.RandomState(seed).normal(size=(12, 6)) + 0.3
    gram = deviations.T @ deviations

    def error(subset):
        return np.mean(deviations[:, list(subset)].mean(axis=1) ** 2)

    chosen = choose_anchors(gram, n_anchors)
    assert len(set(chosen)) == n_anchors
    every = sorted(error(subset) for subset in combinations(range(6), n_anchors))
    assert error(chosen) <= every[len(every) // 4] + 1e-12


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.01, 1.0]))
def test_weights_minimize_the_penalized_error(seed, shrinkage):
    rng = np.random.RandomState(seed)
    deviations = rng.normal(size=(20, 4)) + rng.normal(size=4)
    gram = deviations.T @ deviations
    size = np.mean(np.diag(gram))

    def objective(w):
        return w @ gram @ w + shrinkage * size * np.sum((w - 0.25) ** 2)

    weights = fit_anchor_weights(gram, shrinkage)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    others = rng.dirichlet(np.ones(4), size=300)
    assert objective(weights) <= min(map(objective, others)) * (1 + 1e-4)


@pytest.mark.parametrize(
    "kind", ["forest_twin", pytest.param("neural_twin", marks=pytest.mark.slow)]
)
def test_closer_to_all_anchors_than_random_ones(kind, rows, request):
    twin = request.getfixturevalue(kind)
    X = rows[0][80:]
    whole = twin.predict(X)
    small = thin(twin, 8)
    apart = np.sqrt(np.mean((small.predict(X) - whole) ** 2))
    _, estimates = twin.predict_anchors(X)
    rng = np.random.RandomState(0)
    random = [
        np.sqrt(np.mean((estimates[:, rng.permutation(80)[:8]].mean(axis=1) - whole) ** 2))
        for _ in range(50)
    ]
    assert apart < 0.7 * np.mean(random)
    assert len(twin.anchors_X_) == 80  # the original is unchanged


def test_result_is_a_subset_with_weights(forest_twin, rows):
    small = thin(forest_twin, 5)
    index = [list(forest_twin.anchor_rows_).index(row) for row in small.anchor_rows_]
    np.testing.assert_array_equal(small.anchors_X_, forest_twin.anchors_X_[index])
    np.testing.assert_array_equal(small.anchors_y_, forest_twin.anchors_y_[index])
    _, estimates = forest_twin.predict_anchors(rows[0][80:])
    expected = np.average(estimates[:, index], axis=1, weights=small.anchor_weights_)
    np.testing.assert_allclose(small.predict(rows[0][80:]), expected, rtol=1e-9)
    np.testing.assert_allclose(small.feature_relevance_, forest_twin.feature_relevance_)


def test_labels_of_held_out_rows_count(forest_twin, rows):
    X, y = rows[0][80:], rows[1][80:]
    # labels that only the anchors of low value can explain
    shifted = y - 3 * np.std(y)
    small = thin(forest_twin, 4, X, shifted)
    plain = thin(forest_twin, 4, X)
    assert np.mean(small.predict(X)) < np.mean(plain.predict(X))


def test_more_anchors_than_there_are(forest_twin, rows):
    every = thin(forest_twin, 500)
    assert len(every.anchors_X_) == 80
    X = rows[0][80:]
    np.testing.assert_allclose(
        every.predict(X), forest_twin.predict(X), atol=0.05 * np.std(rows[1])
    )


def test_nearest_anchors_are_replaced_by_fixed_ones(rows):
    twin = TwinRegressor(Ridge(), anchors=NearestAnchors(5), weights="distance")
    twin.fit(rows[0][:80], rows[1][:80])
    small = thin(twin, 6)
    assert small.predict_anchors(rows[0][80:])[0].shape == (30, 6)


def test_new_anchors_weigh_as_much_as_the_mean_thinned_one(forest_twin, rows):
    small = thin(forest_twin, 5).add_anchors(rows[0][80:82], rows[1][80:82])
    assert small.anchor_weights_[:5].mean() == pytest.approx(1)
    np.testing.assert_array_equal(small.anchor_weights_[5:], 1.0)


def test_bad_input(forest_twin, rows):
    with pytest.raises(TypeError, match="TwinRegressor"):
        thin(Ridge(), 3)
    blend = AutoTwinRegressor(members=["ridge"], cv=2).fit(*rows)
    with pytest.raises(TypeError, match=r"not AutoTwinRegressor; fit one"):
        thin(blend, 3)
    with pytest.raises(ValueError, match="belong together"):
        thin(forest_twin, 3, y=rows[1])
    several = TwinRegressor(Ridge()).fit(rows[0], np.column_stack([rows[1], rows[1]]))
    with pytest.raises(ValueError, match="single output"):
        thin(several, 3)
