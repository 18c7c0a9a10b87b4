"""Rows outside of the training rows: they are marked, and many of them give a warning."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor, conformal, cross_conformal
from twinned.exceptions import ShiftWarning
from twinned.intervals.shift import (
    expected_share,
    far_from_known,
    is_unlikely,
    outside_range,
)

values = st.sampled_from([0.0, 0.5, 1.0, 2.0, np.nan])


@given(arrays(float, (4, 2), elements=values), arrays(float, (3, 2), elements=values))
def test_outside_range_equals_a_loop(rows, known):
    for i, row in enumerate(outside_range(rows, known)):
        for j, outside in enumerate(row):
            own = known[~np.isnan(known[:, j]), j]
            value = rows[i, j]
            expected = len(own) > 0 and not np.isnan(value) and not own.min() <= value <= own.max()
            assert outside == expected


@given(st.integers(0, 100), st.integers(2, 8))
def test_far_from_known_equals_a_loop(seed, n_known):
    rng = np.random.RandomState(seed)
    rows, known = rng.normal(size=(5, 2)) * 2, rng.normal(size=(n_known, 2))
    own = [
        min(np.hypot(*(known[i] - known[j])) for j in range(n_known) if j != i)
        for i in range(n_known)
    ]
    expected = [min(np.hypot(*(row - other)) for other in known) > max(own) for row in rows]
    assert far_from_known(rows, known, lambda rows: rows).tolist() == expected
    scaled = [part * [1.0, 1e6] for part in (rows, known)]
    np.testing.assert_array_equal(far_from_known(*scaled), far_from_known(rows, known))


@given(arrays(float, (5, 2), elements=values))
def test_expected_share_equals_a_loop(known):
    outside = [
        outside_range(known[[i]], np.delete(known, i, axis=0)).any() for i in range(len(known))
    ]
    # a row that alone knows a feature is beyond no other, and counts as outside
    alone = (~np.isnan(known)).sum(axis=0) == 1
    only = (~np.isnan(known[:, alone])).any(axis=1)
    assert expected_share(known) == (np.sum(outside | only) + 1) / 6


def test_exchangeable_rows_are_rarely_unlikely():
    rng = np.random.RandomState(0)
    n_unlikely = 0
    for _ in range(200):
        X = rng.normal(size=(150, 4))
        outside = outside_range(X[100:], X[:100]).any(axis=1) | far_from_known(X[100:], X[:100])
        n_unlikely += is_unlikely(int(outside.sum()), 50, expected_share(X[:100]))
    assert n_unlikely <= 6


@pytest.fixture(scope="module")
def calibrated():
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(80, 2)), columns=["a", "b"]).assign(
        kind=pd.Categorical(["u", "v"] * 40)
    )
    y = X["a"] + rng.normal(scale=0.1, size=80)
    crossed = cross_conformal(TwinRegressor(DecisionTreeRegressor(max_depth=3)), X, y, cv=3)
    return X, y, crossed


def test_rows_outside_are_marked(calibrated):
    X, _, crossed = calibrated
    twin = crossed.store_in()
    assert not twin.outside_training_rows(X).any()
    rows = X[:3].assign(a=[0.5, 2.0, np.nan])
    assert twin.outside_training_rows(rows).tolist() == [False, True, False]


def test_many_rows_outside_give_a_warning(calibrated):
    X, y, crossed = calibrated
    fitted = TwinRegressor(LinearRegression()).fit(X[:40], y[:40])
    for model in (crossed, crossed.store_in(), conformal(fitted, X[40:], y[40:])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.predict_interval(X)
        with pytest.warns(ShiftWarning, match=r"80 of 80 rows .*'b'.* applicability"):
            model.predict_interval(X.assign(b=X["b"] + 3))


def test_rows_between_the_training_rows_are_found_by_their_distance():
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(60, 2))
    X[::2] += 10  # two groups
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=4, random_state=0))
    twin = cross_conformal(twin, X, X.sum(axis=1), cv=3).store_in()
    between = np.full((5, 2), 5.0)
    assert twin.outside_training_rows(between).all()
    with pytest.warns(ShiftWarning, match="5 of 5 rows lie outside of the training rows, where"):
        twin.predict_interval(between)
