"""Weighted conformal prediction: quantiles, likelihood ratios, and coverage under shift."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

import twinned
from twinned import TwinRegressor, cross_conformal
from twinned.fitted.quantiles import (
    MAX_RATIO,
    likelihood_ratio,
    weighted_quantiles,
)

confidences = st.sampled_from([0.5, 0.8, 0.9])


@given(st.integers(0, 1000), st.integers(9, 40), confidences)
def test_equal_weights_give_the_usual_quantile(seed, n, level):
    scores = np.sort(np.random.RandomState(seed).uniform(size=n))
    found = weighted_quantiles(scores, np.full(n, 3.0), np.array([3.0]), level)
    assert found[0] == scores[int(np.ceil(level * (n + 1) - 1e-9)) - 1]


@given(st.integers(0, 1000), st.integers(1, 12), confidences)
def test_weights_equal_repetitions(seed, n, level):
    rng = np.random.RandomState(seed)
    scores, weights = np.sort(rng.uniform(size=n)), rng.randint(1, 5, size=n)
    own = int(rng.randint(1, 5))
    repeated = np.concatenate([np.repeat(scores, weights), np.full(own, np.inf)])
    expected = repeated[int(np.ceil(level * len(repeated) - 1e-9)) - 1]
    found = weighted_quantiles(scores, weights.astype(float), np.array([float(own)]), level)
    assert found[0] == expected


def test_ratios_are_one_without_shift_and_clipped_with_much():
    rng = np.random.RandomState(0)
    known, same = rng.normal(size=(2, 1000, 2))
    ratio = likelihood_ratio(known, same)(known)
    np.testing.assert_allclose(ratio, 1.0, atol=0.5)
    far = likelihood_ratio(known, same + 20)
    assert far(np.array([[20.0, 20.0]]))[0] == pytest.approx(MAX_RATIO)
    assert far(np.array([[-20.0, np.nan]]))[0] == pytest.approx(1 / MAX_RATIO)
    constant = likelihood_ratio(np.ones((5, 2)), np.ones((3, 2)))
    assert constant(np.ones((2, 2))).tolist() == [1.0, 1.0]


@pytest.fixture(scope="module")
def calibrated():
    """A twin whose errors grow with the first feature, with intervals of constant width."""
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(1000, 2)), columns=["a", "b"])
    y = X["a"] + X["a"] ** 2 * rng.normal(scale=0.5, size=1000)
    twin = TwinRegressor(LinearRegression(), pairs=4, random_state=0)
    return cross_conformal(twin, X, y, cv=5, width="constant")


def coverage(ends, y):
    return np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))


def test_coverage_under_a_shift_of_the_features(calibrated, tmp_path):
    rng = np.random.RandomState(1)
    X = pd.DataFrame({"a": rng.beta(5, 1, size=2000), "b": rng.uniform(size=2000)})
    y = X["a"] + X["a"] ** 2 * rng.normal(scale=0.5, size=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = calibrated.predict_interval(X, 0.9)
        weighted = calibrated.predict_interval(X, 0.9, X_shifted=X[:200])
    assert coverage(plain, y) < 0.87
    assert coverage(weighted, y) == pytest.approx(0.9, abs=0.03)
    twinned.save(calibrated, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = loaded.predict_interval(X[:50], 0.9, X_shifted=X[:200])
    np.testing.assert_array_equal(again, weighted[:50])


def test_rows_without_alike_calibration_rows_have_infinite_intervals(calibrated):
    X = pd.DataFrame({"a": [0.5, 30.0], "b": [0.5, 0.5]})
    shifted = pd.DataFrame({"a": np.linspace(20, 40, 50), "b": 0.5})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = calibrated.predict_interval(X, 0.9, X_shifted=shifted)
    assert np.isinf(ends[1]).all()


def test_scores_belong_to_their_rows(calibrated):
    rows = calibrated.calibration_.rows
    assert sorted(rows) == list(range(1000))
    large = calibrated.anchors_X_[rows[-100:], 0]
    assert large.min() > 0.4  # where errors are large


def test_a_calibration_without_rows_is_refused(calibrated):
    X = calibrated.anchors_X_[:3]
    fitted = calibrated.fitted_
    calibration = replace(fitted.calibration, rows=None)
    without = calibrated.with_fitted(replace(fitted, calibration=calibration))
    with warnings.catch_warnings(), pytest.raises(ValueError, match="cross_conformal again"):
        warnings.simplefilter("ignore")
        without.predict_interval(X, X_shifted=X)
