"""Trained networks as a `DifferenceModel` and an `AnchoredModel`."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.neural.conftest import initial_parameters
from twinned.models.neural.difference_model import NeuralDifferenceModel
from twinned.models.neural.inputs import Scale
from twinned.models.neural.network import Shape
from twinned.rows.schema import Rows

N_MEMBERS, N_QUERIES, N_ANCHORS, N_FEATURES = 3, 7, 20, 3


def rows(n, seed):
    numeric = np.random.RandomState(seed).normal(size=(n, N_FEATURES))
    return Rows(numeric, np.zeros((n, 0)), np.zeros((n, 0)))


def model(memory_limit=None):
    shape = Shape(4, 2, (8, 6), 2, "silu", twin=True)
    own = [
        initial_parameters(shape, jnp.uint32(7 + i), jnp.int32(N_FEATURES), jnp.float32(0.3))
        for i in range(N_MEMBERS)
    ]
    return NeuralDifferenceModel(
        shape=shape,
        parameters={name: np.stack([np.asarray(p[name]) for p in own]) for name in own[0]},
        scale=Scale(
            np.zeros(3), np.ones(3), np.array([5.0, -100.0]), np.array([2.0, 30.0]), np.zeros(3)
        ),
        member_weights=np.array([0.5, 0.2, 0.3]),
        memory_limit=memory_limit,
    )


QUERIES, ANCHORS = rows(N_QUERIES, 0), rows(N_ANCHORS, 1)
ANCHORS_Y = np.random.RandomState(2).normal(size=(N_ANCHORS, 2)) * [2.0, 30.0] + [5.0, -100.0]


def single_differences(networks, queries, anchors):
    """(member, query, anchor, output), one pair at a time."""
    out = [
        [networks.differences(queries.take([i]), anchors.take([j]))[:, 0] for j in range(N_ANCHORS)]
        for i in range(len(queries))
    ]
    return np.moveaxis(np.array(out), 2, 0)


@pytest.fixture(scope="module")
def expected():
    return single_differences(model(), QUERIES, ANCHORS)


@pytest.mark.slow
def test_a_grid_of_sides_equals_single_pairs(expected):
    grid = model().differences(QUERIES.take(np.s_[:, None]), ANCHORS.take(None))
    np.testing.assert_allclose(grid, expected, atol=1e-4)
    assert np.array_equal(
        model().differences(QUERIES, QUERIES.take(slice(None, None, -1))),
        -model().differences(QUERIES.take(slice(None, None, -1)), QUERIES),
    )


@given(
    memory_limit=st.sampled_from([5_000, 20_000, 10**6, None]), n_jobs=st.sampled_from([None, 2])
)
@settings(max_examples=3)
def test_anchored_differences_equal_single_pairs(expected, memory_limit, n_jobs):
    anchored = model(memory_limit).at_anchors(ANCHORS, ANCHORS_Y, 0)
    every = anchored.differences(QUERIES, None, n_jobs=n_jobs)
    np.testing.assert_allclose(every, expected, atol=1e-4)
    indices = np.random.RandomState(0).randint(0, N_ANCHORS, (N_QUERIES, 7))
    selected = anchored.differences(QUERIES, indices, n_jobs=n_jobs)
    np.testing.assert_allclose(
        selected, expected[:, np.arange(N_QUERIES)[:, None], indices], atol=1e-4
    )


@pytest.mark.parametrize("weights", [None, np.random.RandomState(3).uniform(0.1, 2.0, N_ANCHORS)])
@pytest.mark.parametrize(("memory_limit", "n_jobs"), [(None, None), (10_000, 2)])
@pytest.mark.parametrize("few_pairs", [0, 10**6], ids=["compiled", "numpy"])
def test_moments_are_those_of_all_estimates(
    expected, weights, memory_limit, n_jobs, few_pairs, monkeypatch
):
    monkeypatch.setattr("twinned.models.neural.difference_model._FEW_PAIRS", few_pairs)
    networks = model(memory_limit)
    mean, variance = networks.at_anchors(ANCHORS, ANCHORS_Y, 0).moments(
        QUERIES, weights, variance=True, n_jobs=n_jobs
    )
    estimates = expected + ANCHORS_Y
    share = np.ones(N_ANCHORS) if weights is None else weights
    share = networks.member_weights[:, None, None, None] * (share / share.sum())[:, None]
    slow = (share * estimates).sum(axis=(0, 2))
    np.testing.assert_allclose(mean, slow, rtol=1e-5)
    np.testing.assert_allclose(
        variance, (share * (estimates - slow[:, None]) ** 2).sum(axis=(0, 2)), rtol=1e-4
    )
    only_mean, none = networks.at_anchors(ANCHORS, ANCHORS_Y, 0).moments(
        QUERIES, weights, variance=False, n_jobs=None
    )
    np.testing.assert_allclose(only_mean, mean, rtol=1e-6)
    assert none is None


def test_a_repeated_anchor_is_an_anchor_of_that_weight():
    weights = np.random.RandomState(4).randint(1, 4, N_ANCHORS)
    order = np.random.RandomState(5).permutation(np.repeat(np.arange(N_ANCHORS), weights))
    repeated = model().at_anchors(ANCHORS.take(order), ANCHORS_Y[order], 0)
    weighted = model().at_anchors(ANCHORS, ANCHORS_Y, 0)
    for a, b in zip(
        repeated.moments(QUERIES, None, variance=True, n_jobs=None),
        weighted.moments(QUERIES, weights.astype(float), variance=True, n_jobs=None),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
