import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinned import AllPairs, NearestPairs, RandomPairs
from twinned.pairing.differences import PairFeatures
from twinned.pairing.pairs import as_pair_strategy, draw_by_weight
from twinned.rows.neighbors import NeighborIndex
from twinned.rows.schema import TableSchema


def test_all_pairs_are_all_ordered_pairs():
    first, second = AllPairs().draw(5, None, None)
    assert sorted(zip(first, second, strict=True)) == [(i, j) for i in range(5) for j in range(5)]


@given(n=st.integers(2, 60), m=st.integers(1, 80), seed=st.integers(0, 99))
def test_random_partners_are_distinct_other_rows(n, m, seed):
    strategy = RandomPairs(m)
    first, second = strategy.draw(n, None, np.random.RandomState(seed))
    assert len(first) == strategy.count(n) == n * min(m, n - 1)
    for i in range(n):
        partners = second[first == i]
        assert len(set(partners)) == min(m, n - 1)
        assert i not in partners


def test_random_partners_are_uniform():
    """Each other row is drawn equally often, by both algorithms of `_distinct`."""
    n, m, times = 20, 3, 500
    rng = np.random.RandomState(0)
    counts = np.zeros((n, n))
    for _ in range(times):
        np.add.at(counts, RandomPairs(m).draw(n, None, rng), 1)
    expected = times * m / (n - 1)
    others = counts[~np.eye(n, dtype=bool)]
    # six standard deviations of a binomial count
    assert np.abs(others - expected).max() < 6 * np.sqrt(expected)


@pytest.mark.parametrize(("m", "per_row"), [(2, 3), (4, 9.7), (8, 33), (16, 104)])
def test_number_of_partner_pairs_equals_the_author_s(m, per_row):
    """Distinct pairs a row, as counted in the author's data.

    Some coincide, the more the smaller n is: 104 of 136 is what n = 470 gives.
    """
    n = 470
    first, second = RandomPairs(m, partner_pairs=True).draw(n, None, np.random.RandomState(0))
    unordered = {frozenset(pair) for pair in zip(first, second, strict=True)}
    assert len(unordered) == len(first)
    assert 0.4 < (first < second).mean() < 0.6  # in either order
    assert len(first) / n == pytest.approx(per_row, rel=0.03)


def test_nearest_pairs_are_the_nearest_neighbors(rng):
    points = rng.rand(30, 2)

    def index(metric):
        return NeighborIndex(points, metric)

    first, second = NearestPairs(4).draw(30, index, None)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(
        np.sort(second.reshape(30, 4)), np.sort(np.argsort(distances, axis=1)[:, :4])
    )
    first, second = NearestPairs(4, include_self=True).draw(30, index, None)
    assert all(i in second[first == i] for i in range(30))


@pytest.mark.parametrize(
    ("n", "most", "expected"),
    [
        (500, 2**62, AllPairs()),
        (501, 2**62, RandomPairs(249)),
        (100_000, 2**62, RandomPairs(8)),
        (500, 10_000, RandomPairs(10)),
        (100_000, 400_000, RandomPairs(2)),
    ],
)
def test_auto_bounds_memory_and_time(n, most, expected):
    strategy = as_pair_strategy("auto", n, most, mirrored=True)
    assert repr(strategy) == repr(expected)


def slow_features(kind, a, b):
    parts = [a, b] if "concat" in kind else []
    return np.concatenate(parts + ([a - b] if "difference" in kind else []))


@pytest.mark.parametrize("kind", ["concat", "difference", "concat+difference"])
def test_features_of_rows_and_of_grids(rng, kind):
    columns = TableSchema.all_numeric(3)
    a, b = rng.rand(4, 3), rng.rand(5, 3)
    features = PairFeatures(kind, columns, np.dtype(np.float64))
    grid = features.build(columns.to_rows(a).take(np.s_[:, None]), columns.to_rows(b).take(None))
    slow = np.array([[slow_features(kind, x, z) for z in b] for x in a])
    np.testing.assert_array_equal(grid, slow)
    rows = features.build(columns.to_rows(a), columns.to_rows(b[:4]))
    np.testing.assert_array_equal(rows, slow[np.arange(4), np.arange(4)])


def test_differences_are_rounded_after_subtraction():
    """Both sides are equal in float32, but their difference is not zero."""
    columns = TableSchema.all_numeric(1)
    features = PairFeatures("difference", columns, np.dtype(np.float32))
    a, b = np.array([[1.0 + 1e-9]]), np.array([[1.0]])
    assert np.float32(a[0, 0]) == np.float32(b[0, 0])
    built = features.build(columns.to_rows(a), columns.to_rows(b))
    assert built.dtype == np.float32
    assert built[0, 0] == np.float32(a[0, 0] - b[0, 0]) != 0


def test_a_callable_gets_both_sides():
    columns = TableSchema.all_numeric(2)
    features = PairFeatures(lambda a, b: a * b, columns, np.dtype(np.float64))
    a, b = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]])
    grid = features.build(columns.to_rows(a).take(np.s_[:, None]), columns.to_rows(b).take(None))
    np.testing.assert_array_equal(grid, [[[3.0, 8.0], [5.0, 12.0]]])


@pytest.mark.parametrize("bad", [lambda a, b: a[:1], lambda a, b: a[:, 0], lambda a, b: "text"])
def test_a_callable_with_a_wrong_result_raises(bad):
    with pytest.raises(ValueError, match="pair_features must return"):
        PairFeatures(bad, TableSchema.all_numeric(2), np.dtype(np.float64))


@given(
    weight=st.lists(st.floats(0, 9), min_size=1, max_size=40).filter(lambda w: sum(w) > 0.1),
    seed=st.integers(0, 9),
)
def test_drawing_by_weight_deviates_by_less_than_one_draw_from_the_share(weight, seed):
    weight = np.array(weight)
    rows = draw_by_weight(weight, 10**6, np.random.RandomState(seed))
    counts = np.bincount(rows, minlength=len(weight))
    if np.all(weight == np.floor(weight)):
        np.testing.assert_array_equal(counts, weight / np.gcd.reduce(weight.astype(int)))
    else:
        assert len(rows) == len(weight)
        assert (counts >= np.floor(weight * (len(weight) / weight.sum()))).all()
        assert (counts[weight == 0] == 0).all()


def test_drawing_by_weight_is_unbiased():
    weight = np.array([0.1, 0.2, 0.3, 1.4])
    rng = np.random.RandomState(0)
    counts = sum(np.bincount(draw_by_weight(weight, 100, rng), minlength=4) for _ in range(4000))
    np.testing.assert_allclose(counts / counts.sum(), weight / weight.sum(), atol=0.01)
