"""The network of one member, computed by numpy or JAX, and the padded arrays that it is made of.

The first layer is linear in both sides of a pair, so it is a sum of two halves: one for the first
point, one for the second. Each is computed once per point and added for every pair that the point
is part of; only the following layers are computed pair by pair.

Arrays are padded so that few programs are compiled. A network of numpy's arrays is computed
without JAX, which takes a second to start.

Axes: `point` (or `pair`), `feature`, `hidden`, `output`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils import gen_batches

from twinned.rows.schema import Floats, Indices

Array = Any  # of numpy or JAX
Parameters = dict[str, Array]
Halves = tuple[Array, ...]  # of the first layer: one array (..., hidden) for each side of a pair
Masks = Sequence[Array] | None  # of dropout: one for each hidden layer
Matrix = NDArray[np.float32]  # scaled and padded features, (row, feature)
CPU_PAIRS = 1024  # computed at once, so that their layers stay in the cache
MemberParameters = dict[str, NDArray[np.float32]]  # leading axis member


def round_up(n: int, least: int) -> int:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, …, but at least `least`.

    So there are few shapes to compile, and at most a third is padding.

    >>> [round_up(n, 4) for n in (1, 5, 9, 13, 100, 700)]
    [4, 6, 12, 16, 128, 768]
    >>> [round_up(n, 1) for n in (1, 2, 3, 5)]
    [1, 2, 3, 6]
    """
    size = least
    while size < n:
        # 2ᵏ → 3·2ᵏ⁻¹ → 2ᵏ⁺¹
        size = max(size + 1, size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3)
    return size


def pad_to(values: ArrayLike, *shape: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array of this shape, with zeros after the values along every axis.

    >>> pad_to([[1, 2], [3, 4]], 2, 3)
    array([[1., 2., 0.],
           [3., 4., 0.]], dtype=float32)
    """
    out = np.zeros(shape, dtype=dtype)
    out[tuple(slice(size) for size in np.shape(values))] = values
    return out


def pad_rows(values: NDArray[Any], n_rows: int) -> NDArray[np.float32]:
    """(n_rows, …) float32: zeros after the rows of `values`."""
    return pad_to(values, n_rows, *values.shape[1:])


# --- networks -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """The sizes and the activation of a network, which determine its compiled program."""

    n_features: int  # padded
    n_outputs: int
    hidden_sizes: tuple[int, ...]
    n_frequencies: int
    activation: str
    twin: bool

    @property
    def first_layer_bytes(self) -> int:
        """The memory that the first layer of one point needs while it is computed.

        Angles, sines and cosines and their concatenation, and both halves of the layer.
        """
        return 4 * (self.n_features * (2 + 5 * self.n_frequencies) + 2 * self.hidden_sizes[0])

    @property
    def pair_bytes(self) -> int:
        """Of both orders before and after an activation, and of the difference of the two."""
        return 4 * (5 * max(self.hidden_sizes) + self.n_outputs)


def silu(x: Array) -> Array:
    """Compute x · sigmoid(x) by tanh: cheaper on a CPU than exp and a division."""
    half = 0.5 * x
    # a sum at the end: see `Network.differences`
    return half + half * half.__array_namespace__().tanh(half)


def matmul(x: Array, weight: Array) -> Array:
    """(..., before) times (before, after), as one product of two matrices."""
    rows = x.reshape(-1, x.shape[-1]) @ weight
    return rows.reshape(*x.shape[:-1], weight.shape[-1])


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: x.__array_namespace__().maximum(x, 0.0),
    "silu": silu,
    "tanh": lambda x: x.__array_namespace__().tanh(x),
}


@dataclass(frozen=True, eq=False)
class Network:
    """One network: F(a, b) of a twin, or a plain network."""

    shape: Shape
    parameters: Parameters
    gate: Array | float = 1.0  # while training, 0 for members without periodic embedding

    # those of a network that is trained have derivatives of their own
    activations: ClassVar[dict[str, Callable[[Array], Array]]] = ACTIVATIONS
    matmul = staticmethod(matmul)

    def first_layer(self, x: Array) -> Halves:
        """(..., feature) → the halves of the first layer, (..., hidden) for each side of a pair.

        The bias is part of the first half: each order of a pair has one first point.
        """
        shape, parameters = self.shape, self.parameters
        sides = range(2 if shape.twin else 1)
        out = [x @ parameters[f"linear_{side}"] for side in sides]
        out[0] = out[0] + parameters["bias_0"]
        if shape.n_frequencies:
            xp = x.__array_namespace__()
            angle = 2.0 * np.pi * x[..., None] * parameters["frequency"]
            # sin and cos − 1: a padded feature, which is 0 everywhere, adds nothing
            embedding = xp.concat([xp.sin(angle), xp.cos(angle) - 1.0], axis=-1)
            embedding = (self.gate * embedding).reshape(*x.shape[:-1], -1)
            for side in sides:
                out[side] = out[side] + embedding @ parameters[f"periodic_{side}"]
        return tuple(out)

    def last_hidden(self, value: Array, masks: Masks = None) -> Array:
        """(..., hidden) before the first activation → (..., hidden) after the last one."""
        activation = self.activations[self.shape.activation]
        for layer in range(len(self.shape.hidden_sizes)):
            if layer:
                weight, bias = self.parameters[f"weight_{layer}"], self.parameters[f"bias_{layer}"]
                value = self.matmul(value, weight) + bias
            value = activation(value)
            if masks is not None:
                value = value * masks[layer]
        return value

    def output(self, first: Array, masks: Masks = None) -> Array:
        """(..., hidden) before the first activation → (..., output)."""
        last = len(self.shape.hidden_sizes)
        value = self.last_hidden(first, masks)
        return value @ self.parameters[f"weight_{last}"] + self.parameters[f"bias_{last}"]

    def half_output_weight(self) -> Array:
        """(hidden, output): half the weight of the last layer, for the mean of both orders."""
        return 0.5 * self.parameters[f"weight_{len(self.shape.hidden_sizes)}"]

    def differences(self, a: Halves, b: Halves, masks: Masks = None) -> Array:
        """½F(a, b) − ½F(b, a) from the first-layer halves of both points, which broadcast.

        `masks` are those of both orders, one after the other.
        """
        orders = a[0] + b[1], b[0] + a[1]
        hidden = self.last_hidden(orders[0].__array_namespace__().concat(orders), masks)
        output = self.half_output_weight()
        # The output layer is linear, and its bias cancels: it is applied to the difference, at half
        # the cost. No activation ends in a product: a compiler would round that and the subtraction
        # at once, on one side alone, so that F(a, b) were not −F(b, a) to the last bit.
        n = len(hidden) // 2
        return (hidden[:n] - hidden[n:]) @ output


class TrainedNetworks(NamedTuple):
    """The networks of an ensemble."""

    shape: Shape
    parameters: MemberParameters

    @property
    def n_members(self) -> int:
        return len(self.parameters["bias_0"])

    def take(self, members: int | slice | Indices) -> Self:
        """Return some of the members."""
        parameters = {name: value[members] for name, value in self.parameters.items()}
        return type(self)(self.shape, parameters)

    def outputs(self, X: Matrix) -> NDArray[np.float32]:
        """(member, row, output): predictions of plain networks by numpy, in units of scaled y."""
        return np.stack([network.output(network.first_layer(X)[0]) for network in self._members()])

    def moments(
        self,
        member_weights: Floats,
        queries: Matrix,
        anchors: Matrix,
        anchor_y: Floats,
        anchor_weights: Floats,
        most_pairs: int,
    ) -> tuple[Floats, Floats]:
        """`inference.mean_and_variance` by numpy, of at most so many pairs at once."""
        share = (anchor_weights / anchor_weights.sum())[:, None]
        mean = np.empty((self.n_members, len(queries), anchor_y.shape[1]))
        variance = np.empty_like(mean)
        for member, network in enumerate(self._members()):
            of_queries, of_anchors = network.first_layer(queries), network.first_layer(anchors)
            for rows in gen_batches(len(queries), max(1, most_pairs // len(anchors))):
                block = tuple(half[rows, None] for half in of_queries)
                estimates = network.differences(block, of_anchors) + anchor_y
                mean[member, rows] = (share * estimates).sum(axis=1)
                deviations = estimates - mean[member, rows, None]
                variance[member, rows] = (share * deviations**2).sum(axis=1)
        return mixture(member_weights, mean, variance)

    def _members(self) -> list[Network]:
        return [Network(*self.take(member)) for member in range(self.n_members)]


def mixture(weight: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of a mixture of parts, which are the leading axis."""
    share = weight / weight.sum()
    total = np.tensordot(share, mean, axes=1)
    return total, np.tensordot(share, variance + (mean - total) ** 2, axes=1)
