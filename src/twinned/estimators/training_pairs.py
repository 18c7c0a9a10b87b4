"""Training pairs of a base estimator: their strategy, weights, validation pairs and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from twinned.exceptions import MemoryLimitError
from twinned.models.base_estimator import TreeSizes, early_stopping_fraction, supports_weights
from twinned.models.resources import parse_memory_limit
from twinned.models.sklearn import PairTrainingSet, build_pairs
from twinned.pairing.differences import difference
from twinned.pairing.pairs import (
    AUTO_PAIRS,
    HalfPairs,
    MetricIndex,
    PairFeatures,
    PairStrategy,
    as_pair_strategy,
    check_drawn_pairs,
    draw_by_weight,
)
from twinned.rows.folds import held_out_rows
from twinned.rows.scaling import round_for_sums
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TrainingRows


class Pairs(NamedTuple):
    """(n_pairs,) first rows, second rows and weights."""

    first: Indices
    second: Indices
    weight: Floats | None

    def take(self, chosen: Indices | NDArray[np.bool_]) -> Pairs:
        weight = None if self.weight is None else self.weight[chosen]
        return Pairs(self.first[chosen], self.second[chosen], weight)


@dataclass(frozen=True)
class TrainingPairBuilder:
    """Builder of the training set of a base estimator."""

    base: BaseEstimator  # the base estimator, not fitted
    features: PairFeatures
    rows: TrainingRows
    unit: float  # divisor of the targets (see `target_unit`)
    is_default: bool  # whether the base estimator is
    max_pairs: int  # that fit into memory
    rng: np.random.RandomState

    def draw(self, strategy: PairStrategy, mirrored: bool, make_index: MetricIndex) -> Pairs:
        """Draw training pairs, in both orders if `mirrored`."""
        n_rows, weight = len(self.rows), self.rows.weight
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

    def validation_pairs(self, validation: TrainingRows, others: TrainingRows) -> dict[str, object]:
        """Pairs of validation rows, each with all others or as many as fit, as fit parameters."""
        n_rows, used = len(validation), np.arange(len(others))
        n_used = max(1, self.max_pairs // 3 // n_rows)
        if n_used < len(used):
            used = self.rng.choice(used, size=n_used, replace=False)
        first, second = np.repeat(np.arange(n_rows), len(used)), np.tile(used, n_rows)
        return {
            "X_val": build_pairs(self.features, validation.rows, others.rows, first, second),
            "y_val": difference(validation.targets[first], others.targets[second]) / self.unit,
        }

    def build(self, pairs: Pairs) -> PairTrainingSet:
        """The training set; where the base estimator stops early, some rows are held out."""
        rows, y = self.rows.rows, self.rows.targets / self.unit
        y = round_for_sums(y) if self.is_default else y
        fit_params: dict[str, object] = {}
        fraction = early_stopping_fraction(self.base, len(pairs.first))
        if fraction is not None:
            held_out = held_out_rows(len(self.rows), fraction, self.rng)
            pairs = pairs.take(~(held_out[pairs.first] | held_out[pairs.second]))
            check_drawn_pairs(pairs.first, pairs.second, len(self.rows), len(pairs.first))
            fit_params = self.validation_pairs(self.rows.take(held_out), self.rows.take(~held_out))
        if pairs.weight is not None:
            fit_params["sample_weight"] = pairs.weight
        return PairTrainingSet(
            pairs=build_pairs(self.features, rows, rows, pairs.first, pairs.second),
            target=difference(y[pairs.first], y[pairs.second]),
            fit_params=fit_params,
            first=pairs.first,
            second=pairs.second,
            y=self.rows.targets,
            groups=self.rows.groups,
        )


def max_pairs_in_memory(
    memory_limit: int | str | None, features: PairFeatures, n_outputs: int
) -> int:
    """The number of pairs that fit into memory, with their targets, indices and weights."""
    limit = parse_memory_limit(memory_limit)
    if limit is None:
        return 2**62
    return limit // (features.bytes_per_pair + 8 * n_outputs + 3 * 8)


def choose_pairs(
    twin: BaseEstimator, sizes: TreeSizes, n_rows: int, n_features: int, max_pairs: int
) -> tuple[PairStrategy, bool]:
    """The pair strategy of a twin, and whether its pairs are fitted in both orders."""
    if twin.estimator is None and twin.symmetric and twin.pairs == "auto":
        n_pairs = sizes.n_pairs(n_rows, n_features)
        strategy: PairStrategy = HalfPairs(min(n_pairs, max_pairs))
    else:
        strategy = as_pair_strategy(twin.pairs, n_rows, max_pairs, mirrored=twin.symmetric)
    as_drawn = getattr(strategy, "both_orders", False) or getattr(strategy, "one_order", False)
    mirrored = twin.symmetric and not as_drawn
    count = strategy.count(n_rows) * (2 if mirrored else 1)
    if count > max_pairs:
        partners = max_pairs // (n_rows * (2 if twin.symmetric else 1))
        fewer = f"pairs={partners} (random partners per row), pairs='auto' or "
        raise MemoryLimitError(
            f"{count:,} pairs of {n_rows:,} rows do not fit into memory_limit="
            f"{twin.memory_limit!r} (at most {max_pairs:,} do); use "
            f"{fewer if partners else ''}a larger limit."
        )
    return strategy, mirrored
