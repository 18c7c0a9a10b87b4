"""Values beyond those of known rows, and warnings of rows outside of the training rows."""

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
from twinned.fitted.applicability import KnownValues

values = st.sampled_from([0.0, 0.5, 1.0, 2.0, 9.0, np.nan])
margins = st.sampled_from([0.0, 1.0])


def outside(twin, X):
    """(n,): whether each row is outside of the training rows."""
    return (twin.applicability(X)["label"] == "outside").to_numpy()


def is_beyond(value, known, margin, *, categorical):
    known = known[~np.isnan(known)]
    if np.isnan(value):
        return False
    if categorical:
        return value not in known
    if len(known) == 0:
        return False
    low, high = known.min(), known.max()
    return not low - margin * (high - low) <= value <= high + margin * (high - low)


@given(arrays(float, (4, 2), elements=values), arrays(float, (3, 2), elements=values), margins)
def test_beyond_equals_a_loop(rows, known, margin):
    found = KnownValues(known, categorical=[1]).beyond(rows, margin)
    for i, j in np.ndindex(found.shape):
        expected = is_beyond(rows[i, j], known[:, j], margin, categorical=j == 1)
        assert found[i, j] == expected


@given(
    arrays(float, (5, 2), elements=values), margins, st.sampled_from(["01234", "01012", "00111"])
)
def test_beyond_others_equals_a_loop(known, margin, groups):
    groups = np.array([*map(int, groups)])
    ranges = KnownValues(known, [1], None if groups[-1] == 4 else groups)
    found = ranges.beyond_others(np.arange(5), margin)
    missing = ranges.newly_missing(known, n_missing=1)
    for i, j in np.ndindex(found.shape):
        others = known[groups != groups[i], j]
        assert found[i, j] == is_beyond(known[i, j], others, margin, categorical=j == 1)
        assert missing[i, j] == (np.isnan(known[i, j]) and not np.isnan(others).any())


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
    twin = crossed
    assert not outside(twin, X).any()
    rows = X[:3].assign(a=[0.5, 2.0, np.nan])
    assert outside(twin, rows).tolist() == [False, True, True]


def test_many_rows_outside_give_a_warning(calibrated):
    X, y, crossed = calibrated
    fitted = TwinRegressor(LinearRegression()).fit(X[:40], y[:40])
    for model in (crossed, crossed, conformal(fitted, X[40:], y[40:])):
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
    twin = cross_conformal(twin, X, X.sum(axis=1), cv=3)
    between = np.full((5, 2), 5.0)
    assert outside(twin, between).all()
    with pytest.warns(ShiftWarning, match="5 of 5 rows lie outside of the training rows\\. There"):
        twin.predict_interval(between)


def test_a_new_category_is_outside_and_warned_of(calibrated):
    X, _, crossed = calibrated
    twin = crossed
    rows = X.assign(kind=["w", *X["kind"][1:]])
    assert outside(twin, rows).tolist() == [True] + 79 * [False]
    with pytest.warns(ShiftWarning, match=r"1 of 80 .*'kind'\); 1 of them have a category that no"):
        twin.predict_interval(rows)
