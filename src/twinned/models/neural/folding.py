"""One anchor folded into a plain network: the paper's map from a twin to an ordinary network.

With the anchor fixed, a twin is a function of the query alone. The anchor's half of the first layer
goes into that layer's bias, and its known value into the bias of the output. As a twin's prediction
is ½F(x, anchor) − ½F(anchor, x), both orders stand side by side in one network of twice the width.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from twinned.models.neural.network import Parameters, Shape, halves


def fold_anchor(
    shape: Shape,
    parameters: dict[str, NDArray[Any]],
    embedded: NDArray[Any],
    anchor: NDArray[Any],
    anchor_y: NDArray[Any],
) -> dict[str, NDArray[Any]]:
    """The parameters of plain networks, member by member.

    `anchor` (feature,) is scaled and padded, `anchor_y` (output,) is scaled.
    """

    def one(own: Parameters, gate: Any) -> Parameters:
        first, second = halves(shape, own, jnp.asarray(anchor), gate)
        plain = {"linear_0": _beside(own["linear_0"], own["linear_1"])}
        if shape.n_frequencies:
            plain["periodic_0"] = _beside(own["periodic_0"], own["periodic_1"])
            plain["frequency"] = own["frequency"]
        # the query comes first in one order and second in the other, and the anchor the other way
        plain["bias_0"] = jnp.concatenate([own["bias_0"] + second, first])
        last = len(shape.hidden_sizes)
        for layer in range(1, last):
            weight, bias = own[f"weight_{layer}"], own[f"bias_{layer}"]
            nothing = jnp.zeros_like(weight)
            plain[f"weight_{layer}"] = jnp.block([[weight, nothing], [nothing, weight]])
            plain[f"bias_{layer}"] = jnp.concatenate([bias, bias])
        weight = own[f"weight_{last}"]
        plain[f"weight_{last}"] = 0.5 * jnp.concatenate([weight, -weight])
        # the output's own bias is the same in both orders, and cancels
        plain[f"bias_{last}"] = jnp.asarray(anchor_y, jnp.float32)
        return plain

    folded = jax.vmap(one)(jax.tree.map(jnp.asarray, parameters), jnp.asarray(embedded))
    return jax.tree.map(np.asarray, folded)


def _beside(left: Any, right: Any) -> Any:
    return jnp.concatenate([left, right], axis=-1)
