import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from twinned.rows.neighbors import NeighborIndex, distance_matrix


def test_a_row_is_not_its_own_neighbor_even_with_duplicates():
    points = np.array([[0.0], [0.0], [0.0], [7.0]])
    neighbors = NeighborIndex(points).kneighbors_self(2)
    assert all(i not in row for i, row in enumerate(neighbors))
    # the duplicates are neighbors of each other, before the distant row
    assert set(neighbors[0]) == {1, 2}


def test_a_row_is_its_own_neighbor_with_include_self():
    points = np.array([[0.0], [1.0], [5.0]])
    np.testing.assert_array_equal(
        NeighborIndex(points).kneighbors_self(2, include_self=True), [[0, 1], [1, 0], [2, 1]]
    )


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
def test_kneighbors_equals_a_full_sort(rng, metric):
    points, queries = rng.rand(50, 3), rng.rand(20, 3)
    indices, distances = NeighborIndex(points, metric).kneighbors(queries, 7)
    full = distance_matrix(queries, points, metric)
    np.testing.assert_array_equal(indices, np.argsort(full, axis=1)[:, :7])
    np.testing.assert_allclose(distances, np.sort(full, axis=1)[:, :7])


@given(
    arrays(np.float64, st.tuples(st.integers(6, 40), st.just(3)), elements=st.integers(0, 3)),
    st.integers(1, 6),
    st.sampled_from(["euclidean", "manhattan"]),
)
def test_of_equally_near_rows_the_first_are_neighbors(grid, k, metric):
    points = grid / 10 + 0.1  # decimals, whose sums depend on the order of the features
    queries = np.vstack([points[::3] + 0.05, points[::-1, ::-1]])
    indices, distances = NeighborIndex(points, metric).kneighbors(queries, k)
    full = distance_matrix(queries, points, metric)
    expected = np.argsort(full.round(9), axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(distances, np.take_along_axis(full, expected, axis=1), atol=1e-14)


def test_many_equally_near_rows_need_little_memory(rng, monkeypatch):
    """Candidates of few queries are compared at once, and equal queries only once."""
    rows, queries = rng.randint(2, size=(3000, 2)) * 1.0, rng.randint(2, size=(2000, 2)) * 1.0
    monkeypatch.setattr("twinned.rows.neighbors._CELLS_PER_BLOCK", 5000)
    search, n_cells = NeighborIndex(rows), []
    candidates = search._candidates

    def count(own, n):
        n_cells.append(len(own) * n)
        return candidates(own, n)

    monkeypatch.setattr(search, "_candidates", count)
    indices, distances = search.kneighbors(queries, 4)
    order = np.argsort(distance_matrix(queries, rows), axis=1, kind="stable")
    np.testing.assert_array_equal(indices, order[:, :4])
    assert not distances.any()
    assert max(n_cells) <= 5000
    assert sum(n_cells) < 100_000


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_magnitudes_outside_of_float32(rng, unit):
    points, queries = rng.rand(50, 3), rng.rand(20, 3)
    indices, _ = NeighborIndex(unit * points).kneighbors(unit * queries, 3)
    np.testing.assert_array_equal(indices, NeighborIndex(points).kneighbors(queries, 3)[0])


def test_missing_values_need_nan_euclidean(rng):
    points = rng.rand(10, 3)
    points[0, 0] = np.nan
    with pytest.raises(ValueError, match="nan_euclidean"):
        NeighborIndex(points)
    indices, _ = NeighborIndex(points, "nan_euclidean").kneighbors(points, 1)
    assert len(indices) == 10


def test_an_unknown_metric_raises(rng):
    with pytest.raises(ValueError, match="furlong"):
        NeighborIndex(rng.rand(5, 2), "furlong")


@pytest.mark.parametrize("columns", [3, 16, 40])
def test_distances_of_a_feature_far_from_zero_are_exact(rng, columns):
    """Years and identifiers, whose differences cancel in a search by inner products."""
    points = rng.rand(300, columns)
    points[:, 0] = 1.6e9 + rng.permutation(300)
    indices, distances = NeighborIndex(points).kneighbors(points, 5)
    np.testing.assert_array_equal(indices[:, 0], np.arange(300))
    np.testing.assert_array_equal(distances[:, 0], 0.0)
    np.testing.assert_allclose(distances[:, -1], np.sort(distance_matrix(points, points))[:, 4])


def test_distances_with_missing_values(rng):
    from sklearn.metrics.pairwise import nan_euclidean_distances

    queries, points = rng.rand(6, 4), rng.rand(9, 4)
    queries[rng.rand(6, 4) < 0.2] = np.nan
    points[rng.rand(9, 4) < 0.2] = np.nan
    np.testing.assert_allclose(
        distance_matrix(queries, points), nan_euclidean_distances(queries, points), atol=1e-7
    )


def test_include_self_comes_first_among_duplicates():
    nearest = NeighborIndex(np.zeros((5, 2))).kneighbors_self(1, include_self=True)
    np.testing.assert_array_equal(nearest, np.arange(5)[:, None])


@pytest.mark.filterwarnings("error")
def test_an_empty_column_causes_no_warning(rng):
    points = rng.rand(9, 3)
    points[:, 1] = np.nan
    index = NeighborIndex(points, metric="nan_euclidean")
    assert index.kneighbors(points, 1)[1].shape == (9, 1)
