"""Selection of features and of pair features of wide tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinned.models.wide_tables import distinct_features, important_features


def distinct_one_by_one(matrix):
    """The slow version: each feature beside all distinct ones before it."""
    distinct = []
    for j in range(matrix.shape[1]):
        column = matrix[:, j]
        if np.ptp(column) == 0:
            continue
        order = np.argsort(np.argsort(column))  # no ties in the tests
        copies = [
            abs(np.corrcoef(column, matrix[:, i])[0, 1]) > 0.999
            and abs(np.corrcoef(order, np.argsort(np.argsort(matrix[:, i])))[0, 1]) > 0.999
            for i in distinct
        ]
        if not any(copies):
            distinct.append(j)
    return distinct


@given(seed=st.integers(0, 999), n_rows=st.integers(3, 40), n_copies=st.integers(0, 6))
def test_distinct_features(seed, n_rows, n_copies):
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(n_rows, 4))
    copies = X[:, rng.randint(4, size=n_copies)] * rng.choice([-3.0, 0.5, 1e6], size=n_copies)
    X = np.column_stack([X, np.full(n_rows, 7.0), copies + rng.normal()])
    X = X[:, rng.permutation(X.shape[1])]
    assert distinct_features(X).tolist() == distinct_one_by_one(X)


def test_one_outlier_makes_no_copies():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(50, 2))
    X[0] = 1e6
    assert np.corrcoef(X.T)[0, 1] > 0.999
    assert distinct_features(X).tolist() == [0, 1]


def test_missing_values_are_information():
    X = np.ones((20, 3))
    X[:5, 1] = np.nan
    X[:, 2] = np.nan
    assert distinct_features(X).tolist() == [1]


@pytest.mark.parametrize("n_outputs", [0, 2])
@pytest.mark.parametrize("scale", [1.0, 1e200])
def test_important_features(n_outputs, scale):
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(120, 30))
    y = X[:, 3] + 2 * X[:, 7] * X[:, 20]
    y = np.column_stack([y, 1e-6 * X[:, 11]]) if n_outputs else y
    expected = {3, 7, 20, 11} if n_outputs else {3, 7, 20}
    X[:, 5] = 4 - X[:, 7]
    X[rng.uniform(size=X.shape) < 0.02] = np.nan
    selected = important_features(X * scale, y, 6)
    assert len(selected) == 6
    assert expected <= {7 if j == 5 else j for j in selected}
    assert (np.diff(selected) > 0).all()


def test_a_weight_is_a_repetition():
    rng = np.random.RandomState(1)
    X, y = rng.uniform(size=(40, 30)), rng.uniform(size=40)
    weight = rng.randint(1, 4, size=40)
    repeated = np.repeat(np.arange(40), weight)
    weighted = important_features(X, y, 10, weight)
    assert weighted.tolist() == important_features(X[repeated], y[repeated], 10).tolist()
    assert weighted.tolist() != important_features(X, y, 10).tolist()


def test_few_features_are_all_selected():
    assert important_features(np.ones((5, 3)), np.arange(5.0), 3).tolist() == [0, 1, 2]


def test_one_of_constant_features_is_selected():
    assert important_features(np.ones((5, 3)), np.arange(5.0), 2).tolist() == [0]
