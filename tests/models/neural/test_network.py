import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.neural.conftest import initial_parameters
from twinned.models.neural.network import Network, Shape
from twinned.models.neural.trainable_network import TrainableNetwork

KEY = jnp.uint32(7)


def slow_output(parameters, shape, a, b, gate):
    """One pair through the network, written out."""

    def embedding(x):
        angle = 2 * np.pi * x[:, None] * np.asarray(parameters["frequency"])
        return (gate * np.concatenate([np.sin(angle), np.cos(angle) - 1], axis=1)).ravel()

    value = np.asarray(parameters["bias_0"], dtype=np.float64)
    for side, x in enumerate((a, b)):
        value = value + x @ np.asarray(parameters[f"linear_{side}"])
        value = value + embedding(x) @ np.asarray(parameters[f"periodic_{side}"])
    for layer in range(1, len(shape.hidden_sizes) + 1):
        value = value / (1 + np.exp(-value))  # silu
        value = value @ np.asarray(parameters[f"weight_{layer}"]) + np.asarray(
            parameters[f"bias_{layer}"]
        )
    return value


@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_halves_sum_to_the_first_layer(rng, gate):
    shape = Shape(3, 2, (5, 4), 2, "silu", twin=True)
    parameters = initial_parameters(shape, KEY, jnp.int32(3), jnp.float32(0.3))
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    network = Network(shape, parameters, jnp.float32(gate))

    @jax.jit
    def differences(A, B):
        return network.differences(network.first_layer(A), network.first_layer(B))

    fast = differences(A, B)
    slow = [
        0.5
        * (slow_output(parameters, shape, a, b, gate) - slow_output(parameters, shape, b, a, gate))
        for a, b in zip(A, B, strict=True)
    ]
    np.testing.assert_allclose(fast, slow, atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "relu", "tanh"])
def test_differences_are_antisymmetric_to_the_last_bit(rng, activation):
    shape = Shape(4, 1, (16, 16), 2, activation, twin=True)
    parameters = initial_parameters(shape, KEY, jnp.int32(4), jnp.float32(0.3))
    network = Network(shape, parameters, jnp.float32(1.0))
    first_layer = jax.jit(network.first_layer)
    sides = [first_layer(rng.normal(size=(64, 4)).astype(np.float32)) for _ in range(2)]
    compiled = jax.jit(network.differences)
    forward = np.asarray(compiled(*sides))
    assert np.array_equal(forward, -np.asarray(compiled(*sides[::-1])))


def test_silu_equals_that_of_jax(rng):
    silu = TrainableNetwork.activations["silu"]
    x = jnp.asarray(
        np.concatenate([5 * rng.normal(size=200), [0.0, -1e4, 1e4, -90.0]]), jnp.float32
    )
    np.testing.assert_allclose(jax.jit(silu)(x), jax.nn.silu(x), atol=1e-6, rtol=1e-6)
    slopes = [jax.jit(jax.vmap(jax.grad(f)))(x) for f in (silu, jax.nn.silu)]
    np.testing.assert_allclose(*slopes, atol=1e-6)


@pytest.mark.slow
def test_padded_features_change_nothing(rng):
    narrow, wide = (Shape(d, 1, (6,), 3, "relu", twin=False) for d in (2, 5))
    X = rng.normal(size=(4, 2)).astype(np.float32)
    outputs = []
    for shape, padded in ((narrow, X), (wide, np.pad(X, ((0, 0), (0, 3))))):
        parameters = initial_parameters(shape, KEY, jnp.int32(2), jnp.float32(0.1))
        network = Network(shape, parameters, jnp.float32(1.0))
        first = network.first_layer(jnp.asarray(padded))
        outputs.append(np.asarray(network.output(first[0])))
    np.testing.assert_allclose(*outputs, atol=1e-6)
