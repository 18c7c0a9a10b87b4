"""Folds of rows, and the leak of folds of pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from twinned import AllPairs, RandomPairs, TwinRegressor
from twinned.pairing.pairs import pair_folds
from twinned.rows.folds import held_out_rows


@given(n=st.integers(6, 25), folds=st.integers(2, 5), seed=st.integers(0, 99), every=st.booleans())
def test_no_held_out_row_is_in_a_training_pair(n, folds, seed, every):
    rng = np.random.RandomState(seed)
    first, second = (AllPairs() if every else RandomPairs(3)).draw(n, None, rng)
    tested = []
    splitter = KFold(folds, shuffle=True, random_state=seed)
    for (train, test), (training, held_out) in zip(
        pair_folds(splitter, first, second, np.zeros(n)),
        splitter.split(np.zeros((n, 1))),
        strict=True,
    ):
        assert set(first[train]) | set(second[train]) <= set(training)
        for row in test:
            pair = {first[row], second[row]}
            assert len(pair & set(held_out)) == 1
            assert len(pair & set(training)) == 1
        tested += list(test)
    if every:
        # each pair of rows in different folds is tested in both orders
        assert len(tested) == 2 * sum(
            1
            for _, held_out in splitter.split(np.zeros((n, 1)))
            for i in held_out
            for j in range(n)
            if j not in held_out
        )


def test_a_fold_without_pairs_raises():
    with pytest.raises(ValueError, match=r"A fold of cv=2 has 0 training pairs"):
        pair_folds(2, np.array([0, 1]), np.array([2, 3]), np.zeros(4))


def test_at_least_one_row_is_held_out_and_never_all():
    held_out = held_out_rows(3, 0.1, np.random.RandomState(0))
    assert held_out.sum() == 1
    assert held_out_rows(2, 0.99, np.random.RandomState(0)).sum() == 1


@pytest.fixture(scope="module")
def noise():
    """Targets that do not depend on X, so that any positive score is due to a leak."""
    rng = np.random.RandomState(0)
    return rng.uniform(size=(40, 3)), rng.normal(size=40)


def test_folds_of_pairs_leak_and_folds_of_rows_do_not(noise):
    X, y = noise
    first, second = AllPairs().draw(len(y), None, None)
    pairs = np.column_stack([X[first], X[second], X[first] - X[second]])
    target = y[first] - y[second]
    forest = RandomForestRegressor(20, random_state=0)
    leaking = cross_val_score(forest, pairs, target, cv=KFold(5, shuffle=True, random_state=0))
    sound = cross_val_score(forest, pairs, target, cv=pair_folds(5, first, second, y))
    # with the author's folds of pairs, noise is predicted almost perfectly
    assert leaking.mean() > 0.8
    # one row of each pair is known, and its half of the variance can be predicted
    assert sound.mean() < 0.5


def test_the_score_of_a_search_in_a_twin_holds_for_new_rows(noise):
    """Folds of rows and the author's folds of pairs, compared on new rows."""
    X, y = noise
    rng = np.random.RandomState(1)
    X_new, y_new = rng.uniform(size=(200, 3)), rng.normal(size=200)
    grid = {"min_samples_leaf": [1, 20]}
    forest = RandomForestRegressor(4, random_state=0)
    search = GridSearchCV(forest, grid, cv=5)
    twin = TwinRegressor(search, pairs="all", random_state=0).fit(X, y)

    first, second = AllPairs().draw(len(y), None, None)
    pairs = np.column_stack([X[first], X[second], X[first] - X[second]])
    folds = KFold(5, shuffle=True, random_state=0)
    leaking = GridSearchCV(forest, grid, cv=folds).fit(pairs, y[first] - y[second])

    i, j = np.repeat(np.arange(200), 40), np.tile(np.arange(40), 200)
    new_pairs = np.column_stack([X_new[i], X[j], X_new[i] - X[j]])
    truth = twin.estimator_.score(new_pairs, y_new[i] - y[j])
    assert abs(twin.estimator_.best_score_ - truth) < 0.15
    assert leaking.best_score_ > truth + 0.3
    assert search.cv == 5  # the user's search is unchanged
