"""Training pairs of a base estimator, drawn and built from training rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.exceptions import MemoryLimitError
from twinned.models.base_estimator import early_stopping_fraction, supports_weights
from twinned.models.sklearn import (
    LazyPairMatrix,
    PairTrainingSet,
    bytes_per_binned_pair,
    supports_blocks,
)
from twinned.pairing.differences import difference
from twinned.pairing.pairs import (
    AUTO_PAIRS,
    PairFeatures,
    PairStrategy,
    check_drawn_pairs,
    draw_by_weight,
)
from twinned.rows.folds import held_out_rows
from twinned.rows.neighbors import Indices, NeighborIndex
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

_MAX_MATRIX_BYTES = 64_000_000  # of pairs; beyond, LightGBM gets them in blocks
# A difference that fewer pairs know is not used: boosting cannot bin a column without any known
# value, and finds its bins by a sample of the pairs. It is that of a feature known in 1 % of rows.
_MIN_KNOWN_SHARE = 1e-4


class Pairs(NamedTuple):
    """(n_pairs,) first rows, second rows and weights."""

    first: Indices
    second: Indices
    weight: Floats | None

    def take(self, chosen: Any) -> Pairs:
        weight = None if self.weight is None else self.weight[chosen]
        return Pairs(self.first[chosen], self.second[chosen], weight)


@dataclass(frozen=True)
class TrainingPairBuilder:
    """Builder of the training set of a base estimator."""

    base: Any  # the base estimator, not fitted
    features: PairFeatures
    data: TrainingRows
    unit: float  # divisor of the targets (see `target_unit`)
    max_pairs: int  # see `max_pairs_in_memory`
    rng: np.random.RandomState

    def draw(
        self, strategy: PairStrategy, make_index: Callable[[str], NeighborIndex], *, mirrored: bool
    ) -> Pairs:
        """Draw training pairs, in both orders if `mirrored`."""
        n_rows, weight = len(self.data), self.data.weight
        first, second = strategy.draw(n_rows, make_index, self.rng)
        check_drawn_pairs(first, second, n_rows, strategy.count(n_rows))
        if mirrored:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        if weight is None:
            return Pairs(first, second, None)
        pair_weight = weight[first] * weight[second]
        if supports_weights(self.base):
            return Pairs(first, second, pair_weight)
        most = min(self.max_pairs, max(AUTO_PAIRS, len(first)))
        return Pairs(first, second, None).take(draw_by_weight(pair_weight, most, self.rng))

    def hold_out_rows(self, pairs: Pairs) -> tuple[Pairs, tuple[TrainingRows, TrainingRows] | None]:
        """Pairs without the rows held out for early stopping, and these rows and the others."""
        fraction = early_stopping_fraction(self.base, len(pairs.first))
        if fraction is None:
            return pairs, None
        held_out = held_out_rows(len(self.data), fraction, self.rng)
        pairs = pairs.take(~(held_out[pairs.first] | held_out[pairs.second]))
        check_drawn_pairs(pairs.first, pairs.second, len(self.data), len(pairs.first))
        return pairs, (self.data.take(held_out), self.data.take(~held_out))

    def known_features(self, pairs: Pairs) -> NDArray[np.bool_]:
        """(feature,): whether enough pairs have known values of two different rows."""
        pairs = pairs.take(pairs.first != pairs.second)
        known = ~np.isnan(self.data.matrix)
        enough = np.ones(known.shape[1], dtype=bool)
        for j in np.flatnonzero(~known.all(axis=0)):
            n_known = np.count_nonzero(known[pairs.first, j] & known[pairs.second, j])
            enough[j] = n_known >= max(1.0, _MIN_KNOWN_SHARE * len(pairs.first))
        return enough

    def validation_pairs(self, validation: TrainingRows, anchors: TrainingRows) -> dict[str, Any]:
        """Pairs of validation rows, each with all anchors or as many as fit, as fit parameters."""
        n_rows, used = len(validation), np.arange(len(anchors))
        n_used = max(1, self.max_pairs // 3 // n_rows)
        if n_used < len(used):
            used = self.rng.choice(used, size=n_used, replace=False)
        first, second = np.repeat(np.arange(n_rows), len(used)), np.tile(used, n_rows)
        pairs = LazyPairMatrix(self.features, validation.rows, anchors.rows, first, second)
        return {
            "X_val": np.asarray(pairs),
            "y_val": difference(validation.targets[first], anchors.targets[second]) / self.unit,
        }

    def training_set(self, pairs: Pairs, fit_params: dict[str, Any]) -> PairTrainingSet:
        """The training set; for LightGBM with a lazy pair matrix, where it is large."""
        rows, y = self.data.rows, self.data.targets
        matrix = LazyPairMatrix(self.features, rows, rows, pairs.first, pairs.second)
        lazy = matrix.nbytes > _MAX_MATRIX_BYTES and supports_blocks(self.base)
        if pairs.weight is not None:
            fit_params = {**fit_params, "sample_weight": pairs.weight}
        return PairTrainingSet(
            pairs=matrix if lazy else np.asarray(matrix),
            target=difference(y[pairs.first], y[pairs.second]) / self.unit,
            fit_params=fit_params,
            first=pairs.first,
            second=pairs.second,
            y=y,
            groups=self.data.groups,
        )


def max_pairs_in_memory(
    limit: int | None, features: PairFeatures, n_outputs: int, *, binned: bool
) -> int:
    """The number of pairs that fit into a limit, with their targets, indices and weights."""
    if limit is None:
        return 2**62
    each = bytes_per_binned_pair(features.width) if binned else features.bytes_per_pair
    return limit // (each + 8 * n_outputs + 3 * 8)


def check_memory(count: int, max_pairs: int, twin: Any, n_rows: int) -> None:
    """Raise where this number of pairs does not fit into the memory limit of the twin."""
    if count > max_pairs:
        partners = max_pairs // (n_rows * (2 if twin.symmetric else 1))
        advice = "a larger limit"
        if partners:
            advice = f"pairs={partners} (random partners per row), pairs='auto' or " + advice
        raise MemoryLimitError(
            f"{count:,} pairs of {n_rows:,} rows do not fit into memory_limit="
            f"{twin.memory_limit!r} (at most {max_pairs:,} do); use {advice}."
        )
