"""A fixed anchor substituted into a twin, which gives a plain network (the paper's equation 3).

With the anchor fixed, a twin is a function of the query alone. The anchor's half of the first layer
becomes part of that layer's bias, and its known value the bias of the output. As a twin predicts
½F(x, anchor) − ½F(anchor, x), both orders are side by side in one network of twice the width.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twinned.models.neural.network import Matrix, Network, Parameters, TrainedNetworks
from twinned.rows.schema import Floats


def substitute_anchor(
    networks: TrainedNetworks, anchor: Matrix, anchor_y: Floats
) -> TrainedNetworks:
    """Return the plain network of each member.

    `anchor` (feature,) is scaled and padded, `anchor_y` (output,) is scaled.
    """

    shape = networks.shape

    def one(own: Parameters) -> Parameters:
        first, second = Network(shape, own).first_layer(jnp.asarray(anchor))
        plain = {"linear_0": _side_by_side(own["linear_0"], own["linear_1"])}
        if shape.n_frequencies:
            plain["periodic_0"] = _side_by_side(own["periodic_0"], own["periodic_1"])
            plain["frequency"] = own["frequency"]
        # the query comes first in one order and second in the other, and the anchor the other way
        plain["bias_0"] = jnp.concatenate([own["bias_0"] + second, first])
        last = len(shape.hidden_sizes)
        for layer in range(1, last):
            weight, bias = own[f"weight_{layer}"], own[f"bias_{layer}"]
            zeros = jnp.zeros_like(weight)
            plain[f"weight_{layer}"] = jnp.block([[weight, zeros], [zeros, weight]])
            plain[f"bias_{layer}"] = jnp.concatenate([bias, bias])
        weight = own[f"weight_{last}"]
        plain[f"weight_{last}"] = 0.5 * jnp.concatenate([weight, -weight])
        # the output's own bias is the same in both orders, and cancels
        plain[f"bias_{last}"] = jnp.asarray(anchor_y, jnp.float32)
        return plain

    of_members = jax.vmap(one)(jax.tree.map(jnp.asarray, networks.parameters))
    wide = tuple(2 * width for width in shape.hidden_sizes)
    plain = replace(shape, hidden_sizes=wide, twin=False)
    return TrainedNetworks(plain, jax.tree.map(np.asarray, of_members))


def _side_by_side(left: Array, right: Array) -> Array:
    return jnp.concatenate([left, right], axis=-1)
