import numpy as np

from twinned import TwinRegressor
from twinned.pairing.differences import draw_loops


def test_loops_go_through_two_distinct_anchors(rng):
    i, j = draw_loops(30, 4, 50, rng)
    assert i.shape == j.shape == (30, 50)
    assert (i != j).all()
    assert set(np.unique(i)) == set(np.unique(j)) == {0, 1, 2, 3}


def test_a_loop_with_a_single_anchor(rng):
    i, j = draw_loops(2, 1, 3, rng)
    assert (i == 0).all()
    assert (j == 0).all()


def test_inconsistency_equals_the_sums_of_single_loops(rng):
    X, y = rng.rand(25, 3), rng.rand(25)
    twin = TwinRegressor().fit(X, y)
    queries = rng.rand(4, 3)
    fast = twin.loop_inconsistency(queries, n_loops=6, random_state=5)
    i, j = draw_loops(4, 25, 6, np.random.RandomState(5))

    def difference(a, b):
        return twin.predict_difference(a[None], b[None])[0]

    for q in range(4):
        sums = [
            abs(
                difference(queries[q], X[i[q, loop]])
                + difference(X[i[q, loop]], X[j[q, loop]])
                + difference(X[j[q, loop]], queries[q])
            )
            for loop in range(6)
        ]
        np.testing.assert_allclose(fast[q], np.mean(sums), atol=1e-12)
