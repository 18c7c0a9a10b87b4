"""Properties of twins that hold for any data."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NearestPairs,
    RandomAnchors,
    RandomPairs,
    TwinRegressor,
)

ZERO = DummyRegressor(strategy="constant", constant=0)
numbers = st.floats(-1000, 1000).map(lambda x: round(x, 6))


@st.composite
def tables(draw, min_rows=3, max_rows=25, max_features=4):
    """Draw X and y of any size, with ties and duplicates."""
    n = draw(st.integers(min_rows, max_rows))
    d = draw(st.integers(1, max_features))
    grid = draw(st.sampled_from([numbers, st.integers(-2, 2).map(float)]))
    return draw(arrays(float, (n, d), elements=grid)), draw(arrays(float, n, elements=numbers))


@st.composite
def well_posed_tables(draw):
    """Draw X with more rows than features, at any scale and offset: least squares is unique."""
    seed, d = draw(st.integers(0, 10**6)), draw(st.integers(1, 4))
    n = draw(st.integers(2 * d + 3, 40))
    rng = np.random.RandomState(seed)
    scale = 10.0 ** draw(st.integers(-2, 3))
    X = scale * (rng.normal(size=(n, d)) + draw(st.integers(-3, 3)))
    return X, rng.normal(size=n) + X @ rng.normal(size=d) / scale


bases = st.sampled_from(
    [
        DecisionTreeRegressor(max_depth=4, random_state=0),
        ExtraTreesRegressor(3, random_state=0),
        HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=2),
        KNeighborsRegressor(2),
        Ridge(),
    ]
)


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@given(table=tables(), k=st.integers(1, 25), queries=st.integers(0, 10**6))
def test_zero_differences_give_k_nearest_neighbors(weights, table, k, queries):
    """F = 0 with nearest anchors is k-NN regression (equation 5 of the paper).

    Where further rows are as near as the k-th neighbor, scikit-learn may select others, and it
    rounds tiny distances to zero.
    """
    X, y = table
    k = min(k, len(X))
    new = np.vstack([X, np.random.RandomState(queries).uniform(-5, 5, (10, X.shape[1]))])
    distances = np.sort(cdist(new, X), axis=1)
    usable = ((distances == 0) | (distances > 1e-6 * np.abs(X).max())).all(axis=1)
    if k < len(X):
        usable &= distances[:, k] > (1 + 1e-6) * distances[:, k - 1]
    new = new[usable]
    assume(len(new))
    twin = TwinRegressor(ZERO, anchors=NearestAnchors(k), weights=weights).fit(X, y)
    neighbors = KNeighborsRegressor(k, weights=weights).fit(X, y)
    np.testing.assert_allclose(
        twin.predict(new), neighbors.predict(new), rtol=1e-12, atol=1e-12 * np.abs(y).max()
    )


@given(table=well_posed_tables(), seed=st.integers(0, 99))
def test_twinned_least_squares_is_least_squares(table, seed):
    X, y = table
    new = X[:5] + np.random.RandomState(seed).normal(size=(5, 1))
    twin = TwinRegressor(LinearRegression(), pairs="all").fit(X, y)
    plain = LinearRegression().fit(X, y)
    np.testing.assert_allclose(twin.predict(new), plain.predict(new), rtol=1e-7, atol=1e-7)


@given(table=well_posed_tables(), seed=st.integers(0, 99))
def test_loops_of_a_linear_twin_close(table, seed):
    X, y = table
    twin = TwinRegressor(LinearRegression()).fit(X, y)
    inconsistency = twin.loop_inconsistency(X, n_loops=8, random_state=seed)
    assert (inconsistency < 1e-9 * max(1.0, np.abs(y).max())).all()


@given(table=tables(min_rows=6), base=bases, features=st.sampled_from(["concat", "difference"]))
def test_symmetric_differences_are_exactly_antisymmetric(table, base, features):
    X, y = table
    twin = TwinRegressor(base, pair_features=features, pairs=4, random_state=0).fit(X, y)
    forward = twin.predict_difference(X, X[::-1])
    backward = twin.predict_difference(X[::-1], X)
    assert np.array_equal(forward, -backward)
    assert np.array_equal(twin.predict_difference(X, X), np.zeros(len(X)))


@pytest.mark.slow
@given(
    table=tables(min_rows=6),
    base=bases,
    anchors=st.sampled_from(["all", NearestAnchors(3)]),
    weights=st.sampled_from(["uniform", "distance"]),
    limit=st.integers(600, 20_000),
)
def test_predictions_do_not_depend_on_the_block_size(table, base, anchors, weights, limit):
    X, y = table
    twin = TwinRegressor(base, anchors=anchors, weights=weights, random_state=0).fit(X, y)
    whole = (*twin.predict(X, return_std=True), twin.predict_anchors(X)[1])
    difference = twin.predict_difference(X, X[::-1])
    loops = twin.loop_inconsistency(X, n_loops=3, random_state=0)
    twin.set_params(memory_limit=limit)
    scale = 1e-12 * max(1.0, np.abs(y).max())
    blocks = (*twin.predict(X, return_std=True), twin.predict_anchors(X)[1])
    for a, b in zip(whole, blocks, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=scale)
    np.testing.assert_allclose(difference, twin.predict_difference(X, X[::-1]), atol=scale)
    np.testing.assert_allclose(
        loops, twin.loop_inconsistency(X, n_loops=3, random_state=0), rtol=1e-9, atol=4 * scale
    )


@given(table=tables(min_rows=6), base=bases, seed=st.integers(0, 99))
def test_predictions_do_not_depend_on_the_order_of_anchors(table, base, seed):
    X, y = table
    twin = TwinRegressor(base, pairs=4, anchors=RandomAnchors(1), random_state=0).fit(X, y)
    order = np.random.RandomState(seed).permutation(len(X))
    twin = twin.with_strategies(anchors="all")
    mean, std = twin.add_anchors(X, y).predict(X, return_std=True)
    other_mean, other_std = twin.add_anchors(X[order], y[order]).predict(X, return_std=True)
    scale = max(1.0, np.abs(y).max())
    np.testing.assert_allclose(mean, other_mean, rtol=1e-12, atol=1e-12 * scale)
    # a std near zero is computed from a difference of large numbers: compare the squares
    np.testing.assert_allclose(std**2, other_std**2, rtol=1e-9, atol=1e-12 * scale**2)


@given(table=tables(min_rows=4), shift=numbers, base=bases)
def test_shifted_target_gives_shifted_predictions(table, shift, base):
    """Differences do not contain a constant; only the anchors do."""
    X, y = table
    y, shift = np.round(y), round(shift)  # differences of integers are exact
    plain = TwinRegressor(base, pairs=3, random_state=0).fit(X, y).predict(X)
    shifted = TwinRegressor(base, pairs=3, random_state=0).fit(X, y + shift).predict(X)
    np.testing.assert_allclose(shifted, plain + shift, rtol=1e-9, atol=1e-9)


factors = st.one_of(st.sampled_from([1000.0, 0.3048, 1 / 7, 1e-6]), st.floats(1e-9, 1e9))


@settings(max_examples=8)
@given(
    decimals=st.integers(0, 3),
    offset=st.sampled_from([0.0, 20.0]),
    factors=arrays(float, 3, elements=factors),
    seed=st.integers(0, 999),
)
def test_units_of_features_do_not_matter(decimals, offset, factors, seed):
    """Equal differences are rounded to different numbers in each unit."""
    rng = np.random.RandomState(seed)
    X = np.round(rng.uniform(0, 10, (55, 3)) + offset, decimals)
    X[rng.uniform(size=X.shape) < 0.05] = np.nan
    X, new, y = X[:30], X[30:], np.sin(X[:30, 0]) + rng.normal(size=30)
    y[np.isnan(y)] = 0.0
    twin = TwinRegressor(cv=0, random_state=0)  # so few rows have no local weights
    plain = twin.fit(X, y).predict(new)
    scaled = twin.fit(X * factors, y).predict(new * factors)
    np.testing.assert_allclose(scaled, plain, rtol=1e-6, atol=1e-6)


@given(table=tables(min_rows=5), seed=st.integers(0, 99))
def test_random_and_nearest_pairs_with_all_partners_are_equal(table, seed):
    X, y = table
    n = len(X)
    random = TwinRegressor(LinearRegression(), pairs=RandomPairs(n), random_state=seed).fit(X, y)
    nearest = TwinRegressor(LinearRegression(), pairs=NearestPairs(n)).fit(X, y)
    assert random.n_pairs_ == nearest.n_pairs_ == 2 * n * (n - 1)
    scale = max(1.0, np.abs(y).max())
    np.testing.assert_allclose(random.predict(X), nearest.predict(X), rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize(
    "model",
    [
        TwinRegressor(effort="small", random_state=0),
        AutoTwinRegressor(members=["extra_trees:small"], random_state=0),
    ],
    ids=["twin", "extra_trees"],
)
def test_rounding_chooses_no_split(model):
    """Predictions do not depend on the unit of y, nor on the order of X in memory.

    Where several splits of a tree are equally good, as those of the last rows are, rounding of
    sums would choose one of them.
    """
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(40, 3))
    y = 2 * X[:, 0] + np.sin(5 * X[:, 1]) + 0.1 * rng.normal(size=40)
    mean, std = model.fit(X, y).predict(X + 0.1, return_std=True)
    in_other_unit = model.fit(np.asfortranarray(X), 1000 * y).predict(X + 0.1, return_std=True)
    np.testing.assert_allclose(in_other_unit, [1000 * mean, 1000 * std], rtol=1e-6)
