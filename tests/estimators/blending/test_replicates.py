import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinned import AutoTwinRegressor, load, save
from twinned.pairing.anchors import EqualRows, replicate_correlation, weigh_replicates


@given(st.integers(0, 2**16), st.integers(20, 30))
def test_correlation_is_that_of_all_pairs(seed, n_distinct):
    rng = np.random.RandomState(seed)
    codes = np.repeat(np.arange(n_distinct), rng.randint(2, 4, size=n_distinct))
    errors = rng.normal(size=n_distinct)[codes] + 0.5 * rng.normal(size=len(codes))
    products, squares = 0.0, 0.0
    for code in range(n_distinct):
        own = errors[codes == code]
        others = [np.mean(np.delete(own, i)) for i in range(len(own))]
        products += np.sum(own * others)
        squares += np.sum(own**2)
    expected = np.clip(products / squares, 0, 1)
    assert replicate_correlation(codes[:, None].astype(float), errors) == pytest.approx(expected)


def test_no_correlation_with_weights_or_without_replicates(rng):
    X = rng.normal(size=(50, 2))
    assert replicate_correlation(X, np.ones(50)) == 0
    doubled = np.concatenate([X, X])
    assert replicate_correlation(doubled, np.ones(100)) == 1
    assert replicate_correlation(doubled, np.ones(100), np.ones(100)) == 0
    assert replicate_correlation(doubled, np.repeat([1.0, -1.0], 50)) == 0


def test_missing_values_are_equal():
    known = np.array([[np.nan, 1.0], [0.0, 1.0]])
    queries = np.array([[np.nan, 1.0], [np.nan, 2.0]])
    matches = EqualRows(known).match(queries)
    assert weigh_replicates(np.full((2, 2), 0.5), *matches, 1.0).tolist() == [[1, 0], [0.5, 0.5]]


@pytest.fixture(scope="module")
def replicated():
    """Rows, and twice the same value of each, half of which no feature explains."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + rng.normal(size=40)
    return np.concatenate([X, X]), np.concatenate([y, y])


def test_known_rows_are_predicted_by_their_values(replicated, tmp_path):
    X, y = replicated
    model = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X, y)
    assert model.replicate_correlation_ == pytest.approx(1)
    new = X[:5] + 0.1
    ridge = model.predict_members(np.concatenate([X[:5], new]))[0]
    np.testing.assert_allclose(model.predict(X[:5]), y[:5])
    assert np.abs(ridge[:5] - y[:5]).max() > 0.5
    np.testing.assert_allclose(model.predict(new), ridge[5:])
    np.testing.assert_allclose(model.predict(X[:5], return_std=True)[0], y[:5])
    save(model, tmp_path / "model.twin")
    np.testing.assert_array_equal(load(tmp_path / "model.twin").predict(X), model.predict(X))


def test_weights_may_stand_for_repeated_rows(replicated):
    X, y = replicated
    model = AutoTwinRegressor(members=["ridge"], random_state=0)
    model.fit(X, y, sample_weight=np.linspace(1, 2, len(y)))
    assert model.replicate_correlation_ == 0
