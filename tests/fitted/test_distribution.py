"""Predictive distributions: quantiles, distribution functions, densities, and their metrics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score

from twinned import (
    AutoTwinRegressor,
    TransformedTargetTwin,
    TwinRegressor,
    cross_conformal,
    load,
    metrics,
    save,
)
from twinned.fitted.quantiles import ScoreDistribution

rng = np.random.RandomState(0)
X = rng.uniform(size=(80, 2))
Y = 2 + X[:, 0] + rng.normal(scale=0.2, size=80)


@pytest.fixture(scope="module")
def twin():
    model = TwinRegressor(Ridge(), random_state=0)
    return cross_conformal(model, X[:60], Y[:60], cv=5, random_state=0)


def draw(seed, n, decimals):
    return np.sort(np.random.RandomState(seed).standard_t(3, size=n).round(decimals))


@given(st.integers(0, 1000), st.integers(2, 300), st.sampled_from([0, 1, 9]))
def test_quantiles_and_distribution_function_are_inverse(seed, n, decimals):
    distribution = ScoreDistribution.of(draw(seed, n, decimals))
    levels = np.array([1e-6, 0.01, 0.025, 0.2, 0.5, 0.77, 0.95, 1 - 1e-6])
    scores = distribution.quantile(levels)
    assert (np.diff(scores) > 0).all()
    np.testing.assert_allclose(distribution.cdf(scores), levels, rtol=1e-4)


@given(st.integers(0, 1000), st.integers(30, 300))
def test_the_density_is_the_slope_of_the_distribution_function(seed, n):
    distribution = ScoreDistribution.of(draw(seed, n, 9))
    # between knots, as the density has steps there
    points = np.convolve(distribution.scores, [0.5, 0.5], mode="valid")
    step = 1e-4 * np.diff(distribution.scores).min()
    slope = (distribution.cdf(points + step) - distribution.cdf(points - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(distribution.log_density(points)), slope, rtol=1e-3)
    far = distribution.log_density(np.array([-1e12, 1e12, np.finfo(float).max]))
    assert np.isfinite(far).all()


def test_quantiles_are_those_of_conformal_prediction():
    scores = np.sort(np.random.RandomState(0).normal(size=199))
    found = ScoreDistribution.of(scores).quantile(np.array([0.025, 0.05, 0.1, 0.25, 0.5, 0.9]))
    np.testing.assert_allclose(found, scores[[4, 9, 19, 49, 99, 179]])


def test_equal_scores_have_a_narrow_distribution():
    distribution = ScoreDistribution.of(np.full(20, 3.0))
    assert distribution.quantile(np.array([0.05, 0.95])) == pytest.approx([3.0, 3.0], abs=1e-6)
    assert np.isfinite(distribution.log_density(np.array([0.0, 3.0]))).all()


def test_one_or_two_scores():
    assert ScoreDistribution.of(np.array([4.0])).quantile(np.array([0.5])) == pytest.approx([4.0])
    low, high = ScoreDistribution.of(np.array([-5e5, 5e5])).quantile(np.array([0.05, 0.95]))
    assert low == pytest.approx(-high)


def test_extreme_levels_and_infinite_scores():
    distribution = ScoreDistribution.of(draw(0, 99, 9))
    levels = np.array([1e-300, 1e-60, 1e-16, 0.5, 1 - 1e-16])
    scores = distribution.quantile(levels)
    assert (np.diff(scores) > 0).all()
    np.testing.assert_allclose(distribution.cdf(scores[1:4]), levels[1:4], rtol=1e-9)
    with_infinite = np.concatenate([[-np.inf] * 2, draw(0, 99, 9), [np.inf] * 9])
    distribution = ScoreDistribution.of(with_infinite)
    found = distribution.quantile(np.array([0.001, 0.25, 0.5, 0.99]))
    assert (np.diff(found) > 0).all()
    assert found[0] < -1e6
    assert abs(found[1]) < 10
    assert found[3] > 1e6
    assert np.isfinite(distribution.log_density(np.array([-np.inf, 0.0, 1e100, np.inf]))).all()


def test_an_error_scale_that_is_ten_times_too_small_costs_few_nats():
    distribution = ScoreDistribution.of(np.sort(np.random.RandomState(0).normal(size=199)))
    usual, wrong = distribution.log_density(np.array([1.0, 10.0]))
    assert usual - wrong < 10  # 49.5 with a normal distribution


def test_quantiles_of_a_twin_are_the_ends_of_its_interval(twin):
    low, high = twin.predict_interval(X[60:], 0.9).T
    quantiles = twin.predict_quantiles(X[60:], [0.05, 0.5, 0.95])
    np.testing.assert_allclose(quantiles[:, [0, 2]], np.column_stack([low, high]))
    np.testing.assert_allclose(twin.predict_cdf(X[60:], high), 0.95)
    mean, std = twin.predict(X[60:], return_std=True)
    errors = twin.calibration_.scores
    scale = twin.predict_distribution(X[60:]).scale
    np.testing.assert_allclose(std, scale * np.sqrt(np.mean(errors**2)))  # calibrated
    assert std.mean() == pytest.approx(0.2, rel=0.4)
    np.testing.assert_array_equal(mean, twin.predict(X[60:]))


@pytest.mark.parametrize("log_target", [False, True])
def test_the_density_integrates_to_one(twin, log_target):
    model = twin
    if log_target:
        model = TransformedTargetTwin(TwinRegressor(Ridge())).fit(X[:60], np.exp(Y[:60]))
        model.regressor_ = twin
    grid = np.exp(np.linspace(0, 8, 20001)) if log_target else np.linspace(-8, 14, 20001)
    density = np.exp(model.log_density(X[[60] * len(grid)], grid))
    assert trapezoid(density, grid) == pytest.approx(1.0, abs=0.01)
    value = model.predict_quantiles(X[60:61], [0.3])[0, 0]
    assert model.predict_cdf(X[60:61], value) == pytest.approx(0.3)
    below = grid <= value
    assert trapezoid(density[below], grid[below]) == pytest.approx(0.3, abs=0.03)
    ends = model.predict_interval(X[60:61], 0.8)
    np.testing.assert_allclose(ends, model.predict_quantiles(X[60:61], [0.1, 0.9]))


def test_metrics_equal_their_definitions(twin):
    grid = np.linspace(-3, 9, 3001)
    rows, values = X[60:63], Y[60:63]
    expected = [
        trapezoid((twin.predict_cdf(rows[[i] * len(grid)], grid) - (grid >= y)) ** 2, grid)
        for i, y in enumerate(values)
    ]
    assert metrics.crps(twin, rows, values) == pytest.approx(np.mean(expected), rel=0.02)
    assert metrics.neg_crps(twin, rows, values) == -metrics.crps(twin, rows, values)
    density = twin.log_density(rows, values)
    assert metrics.log_likelihood(twin, rows, values) == pytest.approx(density.mean())


def test_metrics_are_scorers():
    blend = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0)
    for scorer, largest in ((metrics.log_likelihood, 1.5), (metrics.neg_crps, 0.0)):
        found = cross_val_score(blend, X, Y, scoring=scorer, cv=2)
        assert ((found > -1.5) & (found < largest)).all()


def test_metrics_of_several_targets_are_means_of_those_of_each():
    targets = np.column_stack([Y, 10 * X[:, 1] + Y])
    model = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0).fit(X, targets)
    for metric in (metrics.crps, metrics.log_likelihood):
        of_each = [metric(model.targets_[i], X[:9], targets[:9, i]) for i in range(2)]
        assert metric(model, X[:9], targets[:9]) == pytest.approx(np.mean(of_each))
        with pytest.raises(ValueError, match=r"y has the shape \(9,\)"):
            metric(model, X[:9], targets[:9, 0])


def test_wrong_arguments_raise(twin):
    with pytest.raises(ValueError, match="between 0 and 1"):
        twin.predict_quantiles(X, [0.0, 0.5])
    with pytest.raises(ValueError, match="one for each of the 80 rows"):
        twin.predict_cdf(X, [1.0, 2.0])
    with pytest.raises(AttributeError, match="stores no calibration"):
        TwinRegressor(Ridge()).fit(X, Y).predict_quantiles(X)


def test_a_loaded_twin_has_the_same_quantiles(twin, tmp_path):
    save(twin, tmp_path / "m.twin")
    loaded = load(tmp_path / "m.twin")
    np.testing.assert_array_equal(loaded.predict_quantiles(X), twin.predict_quantiles(X))
