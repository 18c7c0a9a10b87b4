import numpy as np
import pytest

from twinned.neighbours import NeighbourIndex, all_distances


def test_a_point_is_not_its_own_neighbour_even_with_duplicates():
    points = np.array([[0.0], [0.0], [0.0], [7.0]])
    neighbours = NeighbourIndex(points).among(2)
    assert all(i not in row for i, row in enumerate(neighbours))
    # the duplicates are neighbours of each other, before the far point
    assert set(neighbours[0]) == {1, 2}


def test_a_point_is_its_own_neighbour_when_asked():
    points = np.array([[0.0], [1.0], [5.0]])
    np.testing.assert_array_equal(
        NeighbourIndex(points).among(2, include_self=True), [[0, 1], [1, 0], [2, 1]]
    )


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
def test_nearest_is_a_full_sort(rng, metric):
    points, queries = rng.rand(50, 3), rng.rand(20, 3)
    indices, distances = NeighbourIndex(points, metric).nearest(queries, 7)
    full = all_distances(queries, points, metric)
    np.testing.assert_array_equal(indices, np.argsort(full, axis=1)[:, :7])
    np.testing.assert_allclose(distances, np.sort(full, axis=1)[:, :7])


def test_missing_values_need_a_metric_that_knows_them(rng):
    points = rng.rand(10, 3)
    points[0, 0] = np.nan
    with pytest.raises(ValueError, match="nan_euclidean"):
        NeighbourIndex(points)
    indices, _ = NeighbourIndex(points, "nan_euclidean").nearest(points, 1)
    assert len(indices) == 10


def test_an_unknown_metric_is_named(rng):
    with pytest.raises(ValueError, match="furlong"):
        NeighbourIndex(rng.rand(5, 2), "furlong")


@pytest.mark.parametrize("columns", [3, 16, 40])
def test_a_column_far_from_zero_keeps_its_differences(rng, columns):
    """Years and identifiers: the search by inner products alone would lose them."""
    points = rng.rand(300, columns)
    points[:, 0] = 1.6e9 + rng.permutation(300)
    indices, distances = NeighbourIndex(points).nearest(points, 5)
    np.testing.assert_array_equal(indices[:, 0], np.arange(300))
    np.testing.assert_array_equal(distances[:, 0], 0.0)
    np.testing.assert_allclose(distances[:, -1], np.sort(all_distances(points, points))[:, 4])


def test_distances_past_missing_values(rng):
    from sklearn.metrics.pairwise import nan_euclidean_distances

    queries, points = rng.rand(6, 4), rng.rand(9, 4)
    queries[rng.rand(6, 4) < 0.2] = np.nan
    points[rng.rand(9, 4) < 0.2] = np.nan
    np.testing.assert_allclose(
        all_distances(queries, points), nan_euclidean_distances(queries, points), atol=1e-7
    )


def test_itself_comes_first_even_among_duplicates():
    nearest = NeighbourIndex(np.zeros((5, 2))).among(1, include_self=True)
    np.testing.assert_array_equal(nearest, np.arange(5)[:, None])
