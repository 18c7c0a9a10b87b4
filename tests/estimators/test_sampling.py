"""`sample`, `rank` and `probability_better` of fitted twins."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NeuralTraining,
    SemiSupervisedTwinRegressor,
    TwinNeuralRegressor,
    TwinRegressor,
    cross_conformal,
)
from twinned.datasets import make_tf
from twinned.fitted.prediction import SPREAD_FACTOR

X, y = (part.to_numpy() for part in make_tf(60, random_state=0))
KNOWN, NEW = slice(0, 40), slice(40, 60)
TREES = ExtraTreesRegressor(5, random_state=0)


@pytest.fixture(scope="module")
def twin():
    return TwinRegressor(TREES, random_state=0).fit(X[KNOWN], y[KNOWN])


@pytest.fixture(scope="module")
def blend():
    members = ["ridge", ("trees", TREES)]
    return AutoTwinRegressor(members=members, cv=3, random_state=0).fit(X[KNOWN], y[KNOWN])


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("sample_weight", [None, np.linspace(0.1, 1.0, 40)])
def test_deviations_of_functions_have_the_spread_of_predict(weights, sample_weight):
    twin = TwinRegressor(TREES, weights=weights).fit(
        X[KNOWN], y[KNOWN], sample_weight=sample_weight
    )
    deviations = twin.fitted_.deviations(twin.encode(X[NEW]), np.arange(40))
    assert deviations.shape == (20, 2 * 40)  # both orders of a pair
    std = twin.predict(X[NEW], return_std=True)[1]
    np.testing.assert_allclose(np.linalg.norm(deviations, axis=1), std)


def test_functions_are_all_anchors_whatever_the_strategy():
    twin = TwinRegressor(TREES, anchors=NearestAnchors(3)).fit(X[KNOWN], y[KNOWN])
    found = twin.fitted_.deviations(twin.encode(X[NEW]), np.arange(40))
    expected = twin.with_strategies(anchors="all")
    expected = expected.fitted_.deviations(twin.encode(X[NEW]), np.arange(40))
    np.testing.assert_allclose(found, expected)


def test_samples_are_reproducible_and_do_not_depend_on_their_number(twin):
    samples = twin.sample(X[NEW], 5, random_state=1)
    assert samples.shape == (5, 20)
    np.testing.assert_array_equal(twin.sample(X[NEW], 3, random_state=1), samples[:3])
    np.testing.assert_array_equal(twin.sample(X[NEW], 2), twin.sample(X[NEW], 2))
    assert not np.array_equal(twin.sample(X[NEW], 5, random_state=2), samples)


def test_samples_of_a_raw_twin_have_a_multiple_of_its_spread(twin):
    mean, std = twin.predict(X[NEW], return_std=True)
    samples = twin.sample(X[NEW], 20_000, random_state=0)
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=0.05 * std.max())
    np.testing.assert_allclose(samples.std(axis=0), SPREAD_FACTOR * std, rtol=0.03)


def test_samples_have_the_calibrated_deviation_where_it_is_stored(twin, blend):
    std = blend.predict(X[NEW], return_std=True)[1]
    np.testing.assert_allclose(blend.sample(X[NEW], 20_000).std(axis=0), std, rtol=0.03)
    calibrated = cross_conformal(twin, X[KNOWN], y[KNOWN], cv=3)
    low, high = calibrated.predict_interval(X[NEW], 0.9).T
    stored = calibrated.calibration_
    expected = (
        (high - low)
        / np.ptp(stored.distribution.quantile(np.array([0.05, 0.95])))
        * np.sqrt(np.mean(stored.scores**2))
    )
    np.testing.assert_allclose(calibrated.sample(X[NEW], 20_000).std(axis=0), expected, rtol=0.03)


def test_near_rows_are_more_correlated_than_distant_ones(twin):
    rows = np.concatenate([X[NEW][:1], X[NEW][:1] + 1e-3, X[NEW][:1] + 100])
    correlation = np.corrcoef(twin.sample(rows, 5000, random_state=0).T)
    assert correlation[0, 1] > correlation[0, 2] + 0.2


@pytest.mark.parametrize("maximize", [True, False])
def test_rank_agrees_with_samples(twin, maximize):
    table = pd.DataFrame(X[NEW], index=[f"row {i}" for i in range(20)])
    named = TwinRegressor(Ridge()).fit(pd.DataFrame(X[KNOWN]), y[KNOWN])
    assert list(named.rank(table).index[:1]) == [f"row {np.argmax(named.predict(table))}"]
    ranked = twin.rank(X[NEW], maximize=maximize, n_samples=50, random_state=3)
    sign = 1 if maximize else -1
    prediction = twin.predict(X[NEW])
    np.testing.assert_array_equal(ranked["row"], np.argsort(-sign * prediction, kind="stable"))
    np.testing.assert_array_equal(ranked["prediction"], prediction[ranked["row"]])
    samples = sign * twin.sample(X[NEW], 50, random_state=3)
    ranks = [[1 + sum(other > value for other in row) for value in row] for row in samples]
    np.testing.assert_allclose(ranked["expected_rank"], np.mean(ranks, axis=0)[ranked["row"]])
    best = np.mean(np.array(ranks) == 1, axis=0)
    np.testing.assert_allclose(ranked["probability_best"], best[ranked["row"]])


def test_probability_better_agrees_with_samples(twin):
    rows, other = X[NEW][:10], X[NEW][10:]
    samples = twin.sample(X[NEW], 20_000, random_state=0)
    value = float(np.median(y))
    expected = np.mean(samples[:, :10] > value, axis=0)
    np.testing.assert_allclose(twin.probability_better(rows, value), expected, atol=0.02)
    expected = np.mean(samples[:, :10] > samples[:, 10:], axis=0)
    found = twin.probability_better(rows, other)
    np.testing.assert_allclose(found, expected, atol=0.02)
    np.testing.assert_allclose(twin.probability_better(other, rows), 1 - found)
    np.testing.assert_allclose(twin.probability_better(rows, other, maximize=False), 1 - found)
    expected = np.mean(samples[:, :10] > samples[:, [10]], axis=0)
    np.testing.assert_allclose(twin.probability_better(rows, other[:1]), expected, atol=0.02)


def test_every_twin_has_the_methods(blend):
    semi = SemiSupervisedTwinRegressor(TwinRegressor(Ridge())).fit(X[KNOWN], y[KNOWN])
    neural = TwinNeuralRegressor(
        (8,), n_members=2, training=NeuralTraining(max_steps=20, n_folds=1), random_state=0
    )
    neural.fit(X[KNOWN], y[KNOWN])
    for model in (semi, neural, blend):
        assert model.sample(X[NEW], 3, random_state=0).shape == (3, 20)
        assert set(model.rank(X[NEW], random_state=0)["row"]) == set(range(20))
        probability = model.probability_better(X[NEW], than=X[KNOWN][:1])
        assert ((probability >= 0) & (probability <= 1)).all()


def test_impossible_requests_are_refused(twin):
    with pytest.raises(ValueError, match="than has 2 rows; give one, or 20 as in X"):
        twin.probability_better(X[NEW], X[NEW][:2])
    with pytest.raises(ValueError, match="5001 rows; joint samples have at most 5000"):
        twin.sample(np.repeat(X[:1], 5001, axis=0))
    several = TwinRegressor(KNeighborsRegressor(2)).fit(X[KNOWN], np.column_stack([y, y])[KNOWN])
    with pytest.raises(ValueError, match="single output, but y has 2"):
        several.sample(X[NEW])
