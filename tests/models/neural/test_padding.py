"""Random numbers that do not depend on padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinned.models.neural import trainable_network as padding

KEY = jnp.uint32(12345)
# one program instead of one for each operation
uniform = jax.jit(padding.uniform, static_argnums=(1, 2))
normal = jax.jit(padding.normal, static_argnums=(1, 2))
integers = jax.jit(padding.integers, static_argnums=2)


def test_padding_changes_no_number():
    small, large = uniform(KEY, 5, 7), uniform(KEY, 9, 20)
    np.testing.assert_array_equal(small, large[:5, :7])


def test_numbers_are_uniform_and_independent():
    u = np.asarray(uniform(KEY, 300, 400), dtype=np.float64)
    assert u.min() >= 0
    assert u.max() < 1
    counts = np.histogram(u, bins=50, range=(0, 1))[0]
    expected = u.size / 50
    # chi-square of 49 degrees of freedom: 49 ± 10, five sigma
    assert np.sum((counts - expected) ** 2 / expected) < 100
    for a, b in (
        (u[:, 1:], u[:, :-1]),
        (u[1:], u[:-1]),
        (u, np.asarray(uniform(KEY + 1, 300, 400))),
    ):
        correlation = np.corrcoef(a.ravel(), np.asarray(b, dtype=np.float64).ravel())[0, 1]
        assert abs(correlation) < 0.015


def test_normal_has_mean_zero_and_variance_one():
    z = np.asarray(normal(KEY, 200, 500), dtype=np.float64)
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1) < 0.01
    assert abs((z**4).mean() - 3) < 0.1


def test_integers_cover_the_range_and_stay_within_it():
    drawn = np.asarray(integers(KEY, jnp.int32(7), 5000))
    np.testing.assert_array_equal(np.unique(drawn), np.arange(7))
    huge = np.asarray(integers(KEY, jnp.int32(2**24 + 1), 5000))
    assert huge.max() <= 2**24


@pytest.mark.slow
def test_derived_keys_are_distinct():
    keys = {int(padding.fold_in(KEY, number)) for number in range(2000)}
    assert len(keys) == 2000
