"""Predictions of the members of a fitted ensemble, and errors of subsets of members and anchors.

Where an error is of fewer members or anchors than there are, it is a mean: over all members for
one member, over disjoint groups of them for several. So it estimates the same error as one draw
would, with less noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.fixed_anchor import substitute_anchor
from twinned.models.neural.device import on_device
from twinned.models.neural.difference_model import PlainNetworks
from twinned.models.neural.inference import anchor_differences
from twinned.rows.neighbors import distance_matrix
from twinned.rows.schema import Floats


class FittedTwin:
    """The networks of a fitted neural twin, for predictions of each member from each anchor.

    The public methods return means over members or over anchors. The studies need every (member,
    query, anchor) estimate of 32 members, one member at a time to bound memory, or those of the
    nearest anchors by one compiled program for all k. Private attributes of the estimator are used
    in this class only.
    """

    def __init__(self, model: Any) -> None:
        self.anchors_y = model.anchors_y_
        self.n_members = len(model.member_weights_)
        self._twin = model
        self._networks = model.fitted_.model
        self._y_scale = float(self._networks.scale.y_spread[0])

    def scaled(self, X: Floats) -> Floats:
        """(query, feature) as the networks see them."""
        return self._twin.encode(X).encode().features

    def anchor_distances(self, X: Floats) -> Floats:
        """(query, anchor) distances in the space that the networks see."""
        return distance_matrix(self.scaled(X), self._twin.fitted_.anchors.features)

    def nearest_anchors(self, X: Floats, k: int) -> Any:
        """(query, k) indices of the nearest anchors, nearest first."""
        return np.argsort(self.anchor_distances(X), axis=1, kind="stable")[:, :k]

    def estimates(self, X: Floats) -> Iterator[Floats]:
        """Yield (query, anchor) estimates, member by member."""
        for differences in self._differences(X):
            yield differences.astype(np.float64) * self._y_scale + self.anchors_y

    def predictions(self, X: Floats) -> Floats:
        """(member, query) predictions from all anchors."""
        means = [part.mean(axis=1, dtype=np.float64) for part in self._differences(X)]
        return np.stack(means) * self._y_scale + self.anchors_y.mean()

    def nearest_predictions(self, X: Floats, k: int, max_k: int) -> Floats:
        """(member, query) predictions from the k nearest anchors.

        Differences to `max_k` anchors are computed, so that all k share one compiled program.
        """
        networks = self._networks
        indices = self.nearest_anchors(X, min(max_k, len(self.anchors_y)))
        queries, anchors = self._matrices(X)
        with on_device(networks.device, networks.n_jobs):
            differences = anchor_differences(networks.networks, queries, anchors, indices)
        estimates = differences[..., 0].astype(np.float64) * self._y_scale + self.anchors_y[indices]
        return estimates[:, :, :k].mean(axis=2)

    def substitute_anchor(self, anchor: int) -> PlainNetworks:
        """Return the plain networks that the twin is for one of its anchors.

        They are of twice the width, and their prediction is the estimate of this anchor.
        """
        networks = self._networks
        row = networks.matrix(self._twin.fitted_.anchors.rows.take([anchor]))[0]
        plain = substitute_anchor(
            networks.networks, row, networks.scale.transform_y(self.anchors_y[[anchor]])
        )
        return PlainNetworks(
            *plain, networks.scale, networks.member_weights, columns=networks.columns
        )

    def _matrices(self, X: Floats) -> tuple[Floats, Floats]:
        """Queries and anchors, padded to the width of the networks."""
        queries = self._twin.encode(X).encode()
        anchors = self._twin.fitted_.anchors.rows
        return self._networks.matrix(queries), self._networks.matrix(anchors)

    def _differences(self, X: Floats) -> Iterator[Floats]:
        """Yield (query, anchor) differences F(x, a) in scaled units, member by member."""
        networks = self._networks
        queries, anchors = self._matrices(X)
        step = max(1, networks.pairs_per_block // len(anchors))
        for member in range(self.n_members):
            of_member = networks.networks.take(slice(member, member + 1))
            with on_device(networks.device, networks.n_jobs):
                blocks = [
                    anchor_differences(of_member, queries[low : low + step], anchors)
                    for low in range(0, len(queries), step)
                ]
            yield np.concatenate(blocks, axis=1)[0, :, :, 0]


def errors(predicted: Floats, y: Floats, axis: int) -> Floats:
    """RMSE over the queries, which lie along `axis`."""
    known = np.expand_dims(y, tuple(i for i in range(predicted.ndim) if i != axis))
    return np.sqrt(np.mean((predicted - known) ** 2, axis=axis))


def errors_by_ensemble_size(predicted: Floats, y: Floats) -> dict[str, float]:
    """Errors of ensembles of 1, 2, 4, … of the members (member, query), mean over groups.

    >>> predicted = np.array([[0.0], [2.0], [0.0], [2.0]])
    >>> errors_by_ensemble_size(predicted, np.ones(1))
    {'1': 1.0, '2': 0.0, '4': 0.0}
    """
    found, size = {}, 1
    while size <= len(predicted):
        groups = predicted[: len(predicted) // size * size].reshape(-1, size, predicted.shape[1])
        found[str(size)] = float(np.mean(errors(groups.mean(axis=1), y, axis=1)))
        size *= 2
    return found


def errors_by_n_anchors(estimates: Floats, y: Floats, order: Any) -> dict[str, float]:
    """Errors of one twin (query, anchor) with the first 1, 2, 4, … anchors, and with all."""
    totals = np.cumsum(estimates[:, order], axis=1)
    sizes = [2**i for i in range(int(np.log2(len(order))) + 1)]
    return {
        str(size): float(errors(totals[:, size - 1] / size, y, axis=0))
        for size in dict.fromkeys([*sizes, len(order)])
    }


def errors_by_n_neighbors(
    estimates: Floats, y: Floats, nearest: Any, sizes: list[int]
) -> dict[str, float]:
    """Errors of one twin with its k nearest anchors, for each k; `nearest` has them in order."""
    totals = np.cumsum(np.take_along_axis(estimates, nearest, axis=1), axis=1)
    return {str(k): float(errors(totals[:, k - 1] / k, y, axis=0)) for k in sizes}
