"""Mean and variance reduced in tiles, compared with those of all estimates."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.neural.conftest import initial_parameters
from twinned import DistanceWeights, NearestAnchors, NeuralTraining, TwinNeuralRegressor
from twinned.models.neural.inference import (
    BlockLimits,
    anchor_differences,
    block_limits,
    mean_and_variance,
    row_outputs,
    tile_size,
)
from twinned.models.neural.network import Shape, TrainedNetworks
from twinned.models.resources import MemoryBudget

N_MEMBERS, N_QUERIES, N_ANCHORS = 3, 37, 90


def ensemble(hidden_sizes=(16, 12), activation="silu", n_outputs=2, twin=True):
    shape = Shape(4, n_outputs, hidden_sizes, 3, activation, twin=twin)
    own = [
        initial_parameters(shape, jnp.uint32(7 + i), jnp.int32(4), jnp.float32(0.3))
        for i in range(N_MEMBERS)
    ]
    parameters = {name: np.stack([np.asarray(p[name]) for p in own]) for name in own[0]}
    return TrainedNetworks(shape, parameters), np.array([0.5, 0.2, 0.3])


@pytest.fixture(scope="module")
def grid():
    rng = np.random.RandomState(3)
    queries, anchors = (rng.normal(size=(n, 4)).astype("f4") for n in (N_QUERIES, N_ANCHORS))
    return queries, anchors, rng.normal(size=(N_ANCHORS, 2)), rng.uniform(0.1, 3.0, N_ANCHORS)


def slowly(networks, of_members, queries, anchors, anchor_y, weight):
    """All estimates in float64, then their weighted moments by definition."""
    differences = anchor_differences(networks, queries, anchors).astype("f8")
    estimates = differences + anchor_y
    share = of_members[:, None, None, None] * (weight / weight.sum())[:, None]
    mean = (share * estimates).sum(axis=(0, 2))
    return mean, (share * (estimates - mean[:, None]) ** 2).sum(axis=(0, 2))


@pytest.mark.parametrize(
    ("hidden_sizes", "activation"),
    [
        ((16, 12), "silu"),
        *(
            pytest.param(sizes, activation, marks=pytest.mark.slow)
            for sizes, activation in [
                ((16,), "silu"),
                ((8, 16, 8), "silu"),
                ((16, 12), "relu"),
                ((16, 12), "tanh"),
            ]
        ),
    ],
)
def test_moments_are_those_of_all_estimates(grid, hidden_sizes, activation):
    networks = ensemble(hidden_sizes, activation)
    fast = mean_and_variance(*networks, *grid, BlockLimits(1024, 4096))
    slow = slowly(*networks, *grid)
    np.testing.assert_allclose(fast[0], slow[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fast[1], slow[1], rtol=1e-5)
    few = networks[0].moments(networks[1], *grid, most_pairs=200)
    np.testing.assert_allclose(few[0], slow[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(few[1], slow[1], rtol=1e-5)


def test_plain_networks_of_numpy_are_those_compiled(grid):
    networks, _ = ensemble(twin=False)
    few = networks.outputs(grid[0])
    np.testing.assert_allclose(few, row_outputs(networks, grid[0]), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@given(pairs=st.integers(1, 5000), rows=st.integers(N_QUERIES, 200) | st.just(10**6))
@settings(max_examples=8)
def test_tile_size_does_not_matter(grid, pairs, rows):
    networks = ensemble()
    whole = mean_and_variance(*networks, *grid, BlockLimits(1024, 4096))
    cut = mean_and_variance(*networks, *grid, BlockLimits(pairs, rows))
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_blocks_of_anchors_do_not_matter(grid):
    networks = ensemble()
    queries, *rest = grid
    whole = mean_and_variance(*networks, queries[:5], *rest, BlockLimits(1024, 4096))
    cut = mean_and_variance(*networks, queries[:5], *rest, BlockLimits(1024, 7))
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_large_mean_does_not_change_the_variance(grid):
    networks = ensemble()
    queries, anchors, anchor_y, weight = grid
    near = mean_and_variance(*networks, queries, anchors, anchor_y, weight, BlockLimits(512, 64))
    far = mean_and_variance(
        *networks, queries, anchors, anchor_y + 1e7, weight, BlockLimits(512, 64)
    )
    np.testing.assert_allclose(far[0] - 1e7, near[0], atol=1e-5)
    np.testing.assert_allclose(far[1], near[1], rtol=1e-5)


@given(
    n_queries=st.integers(1, 10**5), n_anchors=st.integers(1, 10**5), pairs=st.integers(1, 10**6)
)
def test_a_tile_has_at_most_the_allowed_pairs(n_queries, n_anchors, pairs):
    down, across = tile_size(n_queries, n_anchors, pairs)
    assert down * across <= pairs
    assert down < 2 * n_queries


def test_blocks_are_within_the_memory_limit():
    shape = ensemble()[0].shape
    unlimited = block_limits(shape, MemoryBudget(None, None))
    limits = block_limits(shape, MemoryBudget(100_000, None))
    assert limits.pairs < unlimited.pairs
    assert limits.rows < unlimited.rows
    # the first layer of the queries and of the anchors, a quarter of the limit each
    assert 2 * limits.rows * shape.first_layer_bytes <= 50_000
    halved = block_limits(shape, MemoryBudget(100_000, 2))
    assert halved.pairs <= limits.pairs // 2


def test_indexed_differences_equal_row_differences(grid, rng):
    networks, _ = ensemble()
    queries, anchors, *_ = grid
    indices = rng.randint(0, N_ANCHORS, (N_QUERIES, 5))
    shared = anchor_differences(networks, queries, anchors, indices)
    each = row_outputs(networks, np.repeat(queries, 5, axis=0), anchors[indices.ravel()])
    np.testing.assert_allclose(shared.reshape(each.shape), each, atol=1e-6)


@pytest.fixture(scope="module")
def weighted_twin():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(60, 3))
    y = np.column_stack([X[:, 0] + X[:, 1] ** 2, 1e4 + X[:, 2]])
    twin = TwinNeuralRegressor(
        (12, 12), n_members=4, training=NeuralTraining(n_folds=1, max_steps=40), random_state=0
    )
    return twin.fit(X, y, sample_weight=rng.uniform(0.2, 2.0, 60)), X


@pytest.mark.parametrize(
    ("memory_limit", "few_pairs"), [("40KB", 0), ("512MB", 0), (None, 0), ("512MB", 10**6)]
)
def test_fast_path_equals_single_estimates(weighted_twin, memory_limit, few_pairs, monkeypatch):
    """Equal weights from a callable use the single estimates; uniform weights use the fast path."""
    monkeypatch.setattr("twinned.models.neural.difference_model._FEW_PAIRS", few_pairs)
    twin, X = weighted_twin
    twin.set_params(memory_limit=memory_limit)
    fast = twin.predict(X, return_std=True)
    equal = twin.with_strategies(
        weights=lambda distances, estimates, indices: np.ones(distances.shape)
    )
    slow = equal.predict(X, return_std=True)
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)


def test_all_anchors_equal_nearest_anchors_with_the_largest_k(weighted_twin):
    twin, X = weighted_twin
    twin.set_params(memory_limit="512MB")
    every = twin.predict(X, return_std=True)
    nearest = twin.with_strategies(anchors=NearestAnchors(60))
    for a, b in zip(every, nearest.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)
    assert np.isfinite(twin.with_strategies(weights=DistanceWeights()).predict(X)).all()
