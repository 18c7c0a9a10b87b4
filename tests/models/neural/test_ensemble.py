import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twinned.models.neural.ensemble import choose, draw_folds, folds_for


@given(n=st.integers(2, 200), folds=st.integers(2, 7), seed=st.integers(0, 99))
def test_folds_leave_out_each_row_once(n, folds, seed):
    parts = draw_folds(n, min(folds, n), 0.1, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_one_fold_leaves_out_the_fraction():
    (rows,) = draw_folds(200, 1, 0.1, 0)
    assert len(set(rows)) == 20


@given(n=st.integers(1, 100), most=st.integers(1, 8))
def test_folds_share_members_evenly(n, most):
    assert n % folds_for(n, most) == 0
    assert 1 <= folds_for(n, most) <= most


@given(seed=st.integers(0, 200))
def test_choice_is_no_worse_than_the_best_single_setting(seed):
    rng = np.random.RandomState(seed)
    y = rng.normal(size=(30, 2))
    predictions = y + rng.uniform(0.1, 1, (6, 1, 1)) * rng.normal(size=(6, 30, 2))
    weight = rng.uniform(0.1, 2, 30)
    chosen = choose(predictions, y, weight)

    def error(prediction):
        return np.average(((prediction - y) ** 2).sum(axis=1), weights=weight)

    np.testing.assert_allclose(chosen.sum(), 1.0)
    assert error(np.tensordot(chosen, predictions, axes=1)) <= min(map(error, predictions)) + 1e-12
