"""Imputation of censored values by a Gaussian process."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinned.models.censored_values import expected_within, finite_bounds, impute_target
from twinned.rows.training import TargetBounds

INF = np.inf


def censor_below(y, limit):
    low = y < limit
    return TargetBounds(np.where(low, -INF, y), np.where(low, limit, y))


def test_expected_values_within_bounds_equal_those_of_accepted_draws(rng):
    factor = rng.normal(size=(4, 4))
    covariance = factor @ factor.T / 4 + 0.1 * np.eye(4)
    mean = rng.normal(size=4)
    bounds = TargetBounds(
        mean + np.array([-INF, -0.5, 0.0, -INF]), mean + np.array([0.2, INF, 1.0, INF])
    )
    draws = rng.multivariate_normal(mean, covariance, size=400_000)
    accepted = draws[((draws > bounds.lower) & (draws < bounds.upper)).all(axis=1)]
    assert len(accepted) > 10_000
    expected = expected_within(mean, covariance, bounds)
    np.testing.assert_allclose(expected, accepted.mean(axis=0), atol=0.05)


def test_known_values_stay_and_others_are_within_their_bounds(rng):
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    lower, upper = y.copy(), y.copy()
    lower[:10], upper[:10] = -INF, y[:10] + 0.5
    lower[10:20], upper[10:20] = y[10:20] - 0.5, INF
    lower[20:30], upper[20:30] = y[20:30] - 0.2, y[20:30] + 0.3
    imputed = impute_target(X, TargetBounds(lower, upper)).y
    np.testing.assert_array_equal(imputed[30:], y[30:])
    assert ((imputed >= lower) & (imputed <= upper)).all()
    middle = TargetBounds(lower, upper).limits()
    assert np.mean((imputed - y)[:20] ** 2) < np.mean((middle - y)[:20] ** 2)


def test_values_beyond_a_limit_are_closer_than_the_limit(rng):
    X = rng.uniform(-1, 1, (120, 2))
    y = 2 * X[:, 0] + np.sin(3 * X[:, 1])
    for sign in (1.0, -1.0):
        own = sign * y
        bounds = censor_below(own, np.quantile(own, 0.4))
        if sign < 0:  # the same values, above a limit
            bounds = TargetBounds(-bounds.upper, -bounds.lower)
            own = -own
        error = np.abs(impute_target(X, bounds).y - own)[bounds.censored]
        assert error.mean() < 0.3 * np.abs(bounds.limits() - own)[bounds.censored].mean()


def test_values_of_a_smooth_function_without_noise_are_imputed_closely(shipped_defaults, rng):
    X = rng.uniform(-1, 1, (80, 2))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 0])
    bounds = censor_below(y, np.quantile(y, 0.3))
    error = (impute_target(X, bounds).y - y)[bounds.censored]
    assert np.sqrt(np.mean(error**2)) < 0.01 * y.std()


def test_a_limit_far_from_all_values_does_not_change_other_rows(rng):
    X = rng.uniform(-1, 1, (80, 2))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 0])
    bounds = censor_below(y, np.quantile(y, 0.3))
    wrong = np.flatnonzero(bounds.censored)[0]
    bounds.lower[wrong], bounds.upper[wrong] = 1e4, INF  # in another unit
    others = bounds.censored & (np.arange(80) != wrong)
    assert np.abs(impute_target(X, bounds).y - y)[others].max() < 0.2 * y.std()


@given(seed=st.integers(0, 10_000), repeated=st.booleans(), noise=st.sampled_from([0.0, 0.1]))
def test_bounds_that_contradict_the_process_hold(seed, repeated, noise):
    """Without noise, the process is certain of values that bounds exclude, or of equal rows."""
    rng = np.random.RandomState(seed)
    n = rng.randint(8, 50)
    X = rng.uniform(-1, 1, (n, rng.randint(1, 4)))
    if repeated:
        X = np.round(2 * X)
    y = rng.choice([np.sign, np.sin, np.exp])(3 * X[:, 0]) + noise * rng.normal(size=n)
    hidden = rng.permutation(n)[: n // 3]
    lower, upper = y.copy(), y.copy()
    lower[hidden], upper[hidden] = -INF, y[hidden] + rng.choice([-1.0, 1.0], len(hidden))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imputed = impute_target(X, TargetBounds(lower, upper)).y
    assert np.isfinite(imputed).all()
    assert ((imputed >= lower) & (imputed <= upper)).all()


def test_small_values_of_a_skewed_target_are_imputed_by_the_logarithm(rng):
    X = rng.uniform(size=(150, 1))
    y = np.exp(6 * X[:, 0] - 3)  # 0.05 to 20
    bounds = censor_below(y, np.quantile(y, 0.4))
    imputation = impute_target(X, bounds)
    assert imputation.uses_log[0]
    assert (imputation.y > 0).all()
    errors = np.abs(imputation.y - y)[bounds.censored]
    assert errors.mean() < 0.3 * np.abs(bounds.limits() - y)[bounds.censored].mean()


def test_the_lower_bound_0_of_positive_values_does_not_change_the_logarithm(rng):
    X = rng.uniform(size=(60, 1))
    y = np.exp(6 * X[:, 0] - 3)
    bounds = censor_below(y, np.quantile(y, 0.4))
    with_zero = bounds._replace(lower=np.where(bounds.censored, 0.0, bounds.lower))
    expected = impute_target(X, bounds)
    found = impute_target(X, with_zero)
    assert found.uses_log == expected.uses_log == (True, found.uses_log[1])
    np.testing.assert_allclose(found.y, expected.y)
    finite = finite_bounds(X, with_zero)
    np.testing.assert_allclose(finite.lower, np.maximum(finite_bounds(X, bounds).lower, 0.0))
    np.testing.assert_allclose(finite.upper, bounds.upper)


def test_positive_values_are_not_imputed_by_the_logarithm_of_a_linear_target(rng):
    X = rng.uniform(-1, 1, (60, 2))
    y = 2 * X[:, 0] + X[:, 1] + 0.05 * rng.normal(size=60)
    bounds = censor_below(y, 0.1)  # all known values are positive, most others are not
    imputation = impute_target(X, bounds)
    assert imputation.uses_log == (False, False)
    assert np.abs(imputation.y - y).max() < 0.5


def test_a_similar_imputation_gives_nearly_the_same_values(rng):
    X = rng.uniform(-1, 1, (80, 2))
    y = 3 + X[:, 0] + 0.5 * X[:, 1] ** 2
    bounds = censor_below(y, np.quantile(y, 0.3))
    similar = impute_target(X, bounds)
    again = impute_target(X[5:], bounds.take(np.arange(5, 80)), None, similar)
    assert again.uses_log == similar.uses_log
    np.testing.assert_allclose(again.y, similar.y[5:], atol=0.15 * y.std())


@pytest.mark.parametrize("missing", [False, True])
def test_more_rows_than_a_block_are_all_imputed(rng, monkeypatch, missing):
    monkeypatch.setattr("twinned.models.censored_values._BLOCK", 7)
    monkeypatch.setattr("twinned.models.censored_values._MAX_KNOWN", 30)
    X = rng.uniform(-1, 1, (90, 1))
    y = X[:, 0].copy()
    if missing:
        X[rng.permutation(90)[:9]] = np.nan
    bounds = censor_below(y, 0.0)
    imputed = impute_target(X, bounds).y
    assert (imputed[bounds.censored] < 0).all()
    known = bounds.censored & ~np.isnan(X[:, 0])
    assert np.corrcoef(imputed[known], y[known])[0, 1] > (0.5 if missing else 0.95)


def test_finite_bounds_reach_twice_as_far_as_expected(rng):
    X = rng.uniform(-1, 1, (60, 1))
    y = 2 * X[:, 0]
    bounds = censor_below(y, -0.5)
    bounds.lower[y > 1], bounds.upper[y > 1] = 1.0, INF
    limits, finite = bounds.limits(), finite_bounds(X, bounds)
    imputed = impute_target(X, bounds).y
    below, above = bounds.beyond
    for side, end in ((below, finite.lower), (above, finite.upper)):
        np.testing.assert_allclose((end - limits)[side], 2 * (imputed - limits)[side], atol=2e-3)
    np.testing.assert_array_equal(finite.upper[below], -0.5)
    np.testing.assert_array_equal(finite.censored, bounds.censored)
    known = ~bounds.censored
    np.testing.assert_array_equal(finite.lower[known], bounds.lower[known])


def test_a_lower_bound_of_0_without_an_upper_one_is_a_limit(rng):
    X = rng.uniform(size=(40, 1))
    y = 2 + X[:, 0]
    lower, upper = y.copy(), y.copy()
    lower[:3], upper[:3] = 0.0, INF
    finite = finite_bounds(X, TargetBounds(lower, upper))
    np.testing.assert_array_equal(finite.lower, lower)
    assert np.isfinite(finite.upper).all()


def test_intervals_from_0_stay_beside_negative_values(rng):
    X = rng.uniform(-1, 1, (40, 1))
    y = 3 * X[:, 0]
    lower, upper = y.copy(), y.copy()
    lower[:3], upper[:3] = 0.0, 2.5
    finite = finite_bounds(X, TargetBounds(lower, upper))
    np.testing.assert_array_equal(finite.lower, lower)
    np.testing.assert_array_equal(finite.upper, upper)
