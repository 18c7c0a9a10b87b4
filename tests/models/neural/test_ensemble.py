import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twinned.models.neural.ensemble import draw_folds, largest_n_folds, select_settings


@given(n=st.integers(2, 200), folds=st.integers(2, 7), seed=st.integers(0, 99))
def test_each_row_is_held_out_once(n, folds, seed):
    parts = draw_folds(n, min(folds, n), 0.1, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_a_single_fold_holds_out_the_fraction():
    (rows,) = draw_folds(200, 1, 0.1, 0)
    assert len(set(rows)) == 20


@given(n=st.integers(1, 100), most=st.integers(1, 8))
def test_number_of_folds_divides_the_members(n, most):
    assert n % largest_n_folds(n, most) == 0
    assert 1 <= largest_n_folds(n, most) <= most


@given(seed=st.integers(0, 200))
def test_selection_is_no_worse_than_the_best_single_setting(seed):
    rng = np.random.RandomState(seed)
    y = rng.normal(size=(30, 2))
    predictions = y + rng.uniform(0.1, 1, (6, 1, 1)) * rng.normal(size=(6, 30, 2))
    weight = rng.uniform(0.1, 2, 30)
    selected = select_settings(predictions, y, weight)

    def error(prediction):
        return np.average(((prediction - y) ** 2).sum(axis=1), weights=weight)

    np.testing.assert_allclose(selected.sum(), 1.0)
    assert (
        error(np.tensordot(selected, predictions, axes=1)) <= min(map(error, predictions)) + 1e-12
    )
