import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twinned.models.neural.ensemble import allocate_members, draw_folds, select_settings


@given(n=st.integers(2, 200), folds=st.integers(2, 7), seed=st.integers(0, 99))
def test_each_row_is_held_out_once(n, folds, seed):
    parts = draw_folds(n, min(folds, n), 0.1, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_a_single_fold_holds_out_the_fraction():
    (rows,) = draw_folds(200, 1, 0.1, 0)
    assert len(set(rows)) == 20


@given(n_members=st.integers(1, 40), n_settings=st.integers(1, 9), seed=st.integers(0, 99))
def test_members_are_allocated_in_proportion_to_the_weights(n_members, n_settings, seed):
    rng = np.random.RandomState(seed)
    weights = rng.dirichlet(np.ones(n_settings)) * rng.randint(0, 2, n_settings)
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(n_settings, 1 / n_settings)
    counts = np.bincount(allocate_members(weights, n_members), minlength=n_settings)
    assert counts.sum() == n_members
    assert (np.abs(counts - weights * n_members) < 1).all()


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


def test_groups_are_held_out_together():
    groups = np.repeat(np.arange(20), 3)
    parts = draw_folds(60, 5, 0.1, 0, groups)
    assert sorted(np.concatenate(parts)) == list(range(60))
    assert sum(len(np.unique(groups[part])) for part in parts) == 20
