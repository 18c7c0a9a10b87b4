import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from twinned import AllAnchors, DistanceWeights, NearestAnchors, RandomAnchors
from twinned.pairing.anchors import as_anchor_strategy, as_weight_strategy, clearly_lowest
from twinned.pairing.differences import check_anchor_weights, combine

numbers = st.floats(-1e6, 1e6)


@given(
    estimates=arrays(float, (2, 3, 4, 2), elements=numbers),
    weights=arrays(float, (3, 4), elements=st.floats(0.01, 10)),
    first_member=st.floats(0, 1),
)
def test_combine_is_the_weighted_mean_and_standard_deviation(estimates, weights, first_member):
    member_weights = np.array([first_member, 1 - first_member])
    mean, std = combine(estimates, member_weights, weights)
    for q in range(3):
        for k in range(2):
            share = np.outer(member_weights, weights[q] / weights[q].sum())
            values = estimates[:, q, :, k]
            slow_mean = (share * values).sum()
            slow_std = (share * (values - slow_mean) ** 2).sum() ** 0.5
            np.testing.assert_allclose(mean[q, k], slow_mean, rtol=1e-9, atol=1e-6)
            np.testing.assert_allclose(std[q, k], slow_std, rtol=1e-6, atol=1e-6)


@given(estimates=arrays(float, (1, 2, 5, 1), elements=numbers))
def test_weights_are_equal_by_default(estimates):
    for with_weights, without in zip(
        combine(estimates, np.ones(1), np.full((2, 5), 0.3)),
        combine(estimates, np.ones(1), None),
        strict=True,
    ):
        np.testing.assert_allclose(with_weights, without, rtol=1e-9, atol=1e-5)


def test_distance_weights_at_tiny_distances():
    weights = DistanceWeights()(np.array([[1e-310, 2e-310, 1.0]]), None, None)
    assert np.isfinite(weights).all()
    assert weights[0, 0] == pytest.approx(2 * weights[0, 1], rel=1e-6)


def test_random_anchors_are_distinct_and_fixed(rng):
    stored = RandomAnchors(5).store(20, rng)
    assert len(set(stored)) == 5
    assert stored.max() < 20


def test_strategies_are_created_from_strings():
    assert isinstance(as_anchor_strategy("all"), AllAnchors)
    with pytest.raises(ValueError, match="'nearest'"):
        as_anchor_strategy("nearest")
    with pytest.raises(TypeError, match="5"):
        as_anchor_strategy(5)
    with pytest.raises(TypeError, match="NearestAnchors"):
        as_anchor_strategy(NearestAnchors)
    with pytest.raises(ValueError, match="'gaussian'"):
        as_weight_strategy("gaussian")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((2, 2)), "shape"),
        (np.array([[1.0, -1.0, 2.0]]), "-1.0"),
        (np.array([[1.0, np.nan, 2.0]]), "nan"),
        (np.zeros((1, 3)), "query 0"),
    ],
)
def test_invalid_anchor_weights_raise(weights, message):
    with pytest.raises(ValueError, match=message):
        check_anchor_weights(weights, (1, 3))


def test_more_anchors_than_rows_raise():
    with pytest.raises(ValueError, match="k=9 exceeds the 4 anchors"):
        NearestAnchors(9).nearest(4)
    with pytest.raises(ValueError, match="n=9 of RandomAnchors"):
        RandomAnchors(9).store(4, np.random.RandomState(0))


def test_few_large_errors_do_not_decide():
    rows, ones = np.arange(100.0)[:, None], np.ones(100)
    outlier = np.where(np.arange(100) == 0, 30.0, 1.0)
    assert clearly_lowest([ones, 0.9 * ones, 0.8 * ones], rows) == 2
    assert clearly_lowest([ones, 0.99 * ones], rows) == 0
    assert clearly_lowest([outlier, ones], rows) == 0
    assert clearly_lowest([ones, 0.5 * ones], rows[:1] * ones[:, None]) == 0
    # a row of weight 2 is the row twice
    errors, weight = [ones, np.linspace(0.2, 1.3, 100)], np.resize([1.0, 2.0], 100)
    twice = np.repeat(np.arange(100), weight.astype(int))
    repeated = clearly_lowest([own[twice] for own in errors], rows[twice])
    assert clearly_lowest(errors, rows, weight) == repeated == 1
