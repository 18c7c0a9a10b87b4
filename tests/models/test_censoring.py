"""Bounds of censored labels: validation, one-sided errors, truncated moments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from twinned.estimators.target import bound_arguments
from twinned.fitted.target import TargetTransform
from twinned.models.censored_values import truncated_moments
from twinned.rows.training import TargetBounds, validate_bounds

NAN, INF = np.nan, np.inf


def log_target_arguments(y, lower, upper):
    bounds = validate_bounds(None, y, lower, upper, len(y), None)
    y, ends = bound_arguments(TargetTransform(is_log=True).apply_bounds(bounds))
    nan = np.full(len(y), np.nan)
    return y, ends.get("y_lower", nan), ends.get("y_upper", nan)


def bounds_of(y, lower=None, upper=None, weight=None):
    return validate_bounds(None, y, lower, upper, len(y), weight)


def test_bounds_default_to_y_and_to_infinity_where_y_is_missing():
    lower, upper = bounds_of([1.0, 2.0, NAN, NAN], [NAN, 2.0, 7.0, 4.0], [1.0, NAN, NAN, 6.0])
    assert lower.tolist() == [1.0, 2.0, 7.0, 4.0]
    assert upper.tolist() == [1.0, 2.0, INF, 6.0]
    assert TargetBounds(lower, upper).censored.tolist() == [False, False, True, True]


def test_bounds_define_whether_a_row_is_censored():
    # the limit itself as y, as some files have it
    bounds = bounds_of([1.0, 2.0, 5.0], [1.0, 2.0, -INF], [1.0, 2.0, 5.0])
    assert bounds.censored.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("y", "lower", "upper", "message"),
    [
        (
            [1.0, 2.0, NAN],
            [NAN, NAN, 3.0],
            [NAN, NAN, 2.0],
            "y_lower[2] = 3 and y_upper",
        ),
        ([1.0, 2.0, 4.0], None, [1.0, 2.0, 3.0], "y_lower[2] = 4 and y_upper[2] = 3 leave"),
        ([1.0, 2.0, 4.0], [1.0, 2.0, -INF], [1.0, 2.0, 3.0], "y[2] = 4 is outside"),
        ([1.0, 2.0, NAN], None, [1.0, 2.0, NAN], "y[2] is NaN and has no bound"),
        ([1.0, 2.0, NAN], None, [1.0, 2.0, -INF], "y_upper[2] = -inf"),
        ([1.0, NAN, NAN], None, [1.0, 2.0, 3.0], "1 of 3 rows have a known value"),
        ([1.0, 2.0, NAN], None, [1.0, 2.0], "y_upper has the shape (2,)"),
        ([[1.0, 2.0], [3.0, 4.0]], None, [1.0, 2.0], "single output"),
    ],
)
def test_invalid_bounds_give_one_line(y, lower, upper, message):
    with pytest.raises(ValueError) as error:
        bounds_of(y, lower, upper)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_known_rows_without_weight_do_not_count():
    with pytest.raises(ValueError, match="1 of 3 rows"):
        bounds_of([1.0, 2.0, NAN], None, [1.0, 2.0, 3.0], np.array([0.0, 1.0, 1.0]))


@given(
    mean=st.floats(-5, 5),
    std=st.floats(0.1, 3),
    lower=st.floats(-6, 6),
    width=st.floats(0.2, 4),
    side=st.sampled_from(["below", "above", "interval"]),
)
def test_truncated_moments_equal_integrals(mean, std, lower, width, side):
    ends = {"below": (-INF, lower), "above": (lower, INF), "interval": (lower, lower + width)}[side]
    # integrated where nearly all of the mass is, relative to the largest density
    near = np.clip(mean, *ends)
    low, high = max(ends[0], near - 9 * std), min(ends[1], near + 9 * std)

    def density(v):
        return np.exp(-0.5 * ((v - mean) ** 2 - (near - mean) ** 2) / std**2)

    total, first, second = (
        quad(lambda v, p=p: (v - near) ** p * density(v), low, high, points=[near], limit=200)[0]
        for p in range(3)
    )
    bounds = TargetBounds(*(np.array([end]) for end in ends))
    inside, variance = truncated_moments(np.array([mean]), np.array([std]), bounds)
    assert inside[0] == pytest.approx(near + first / total, abs=1e-6 * std)
    expected = second / total - (first / total) ** 2
    assert variance[0] == pytest.approx(expected, abs=3e-5 * std**2)


def test_truncated_moments_far_beyond_a_limit_are_finite():
    bounds = TargetBounds(np.array([-INF, 50.0, 1e9]), np.array([-1e4, INF, 1e9 + 1]))
    inside, variance = truncated_moments(np.zeros(3), np.ones(3), bounds)
    assert np.isfinite(variance).all()
    np.testing.assert_allclose(inside, [-1e4, 50.02, 1e9], rtol=1e-3)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.sampled_from("=<>[")), min_size=3, max_size=9))
def test_log_target_arguments_are_those_of_the_logarithm(cells):
    values = np.array([2.0, 3.0, *(value for value, _ in cells)])
    kinds = np.array(["=", "=", *(kind for _, kind in cells)])
    y = np.where(kinds == "=", values, np.nan)
    lower = np.where(kinds == "<", 0.0, values)
    upper = np.where(kinds == ">", np.inf, np.where(kinds == "[", 2 * values, values))
    filled, log_lower, log_upper = log_target_arguments(y, lower, upper)
    found = validate_bounds(None, filled, log_lower, log_upper, len(y), None)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found.lower, np.log(lower))
    np.testing.assert_allclose(found.upper, np.log(upper))
    np.testing.assert_array_equal(found.censored, kinds != "=")


def test_log_target_arguments_take_bounds_as_fit_does():
    y = [2.0, 3.0, 4.0, np.nan]
    expected = log_target_arguments(y, [2.0, 3.0, 1.0, -np.inf], [2.0, 3.0, 5.0, 5.0])
    nan = np.nan
    for lower in ([nan, nan, 1.0, nan], [2.0, nan, 1.0, -1.0]):
        found = log_target_arguments(y, lower, [nan, nan, 5.0, 5.0])
        np.testing.assert_array_equal(found, expected)
    middle = (np.log(1.0) + np.log(5.0)) / 2
    np.testing.assert_allclose(expected[0], [np.log(2.0), np.log(3.0), middle, np.log(5.0)])
    filled, _, upper = log_target_arguments(y, None, [nan, nan, nan, 5.0])
    assert np.isfinite(filled).all()
    assert upper[3] == np.log(5.0)


@pytest.mark.parametrize("bounds", [(-np.inf, 0.0), (0.0, np.inf), (-2.0, -1.0)])
def test_log_target_arguments_refuse_rows_without_a_positive_bound(bounds):
    lower, upper = ([np.nan, np.nan, bound] for bound in bounds)
    with pytest.raises(ValueError, match=r"positive bound; y\[2\] is between"):
        log_target_arguments([1.0, 2.0, np.nan], lower, upper)
