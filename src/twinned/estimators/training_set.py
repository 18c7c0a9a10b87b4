"""Training set of a base estimator: validated rows, and pairs drawn and built from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.exceptions import MemoryLimitError
from twinned.models.base_estimator import early_stopping_fraction, supports_weights
from twinned.models.censoring import validate_bounds
from twinned.models.imputation import impute_target
from twinned.models.sklearn import (
    LazyPairMatrix,
    PairTrainingSet,
    bytes_per_binned_pair,
    normalize_weights,
    supports_blocks,
)
from twinned.pairing.differences import difference
from twinned.pairing.features import PairFeatures
from twinned.pairing.pairs import AUTO_PAIRS, PairStrategy, check_pairs, draw_by_weight
from twinned.pairing.splits import held_out_rows
from twinned.rows.neighbors import Indices, NeighborIndex
from twinned.rows.schema import Floats, Rows, TableSchema
from twinned.rows.validation import check_sample_weight, validate_target, validate_training_table

_MAX_MATRIX_BYTES = 64_000_000  # of pairs; beyond, LightGBM gets them in blocks
# A difference that fewer pairs know is not used: boosting cannot bin a column without any known
# value, and finds its bins by a sample of the pairs. It is that of a feature known in 1 % of rows.
_MIN_KNOWN_SHARE = 1e-4


class TrainingRows(NamedTuple):
    """Validated training rows of positive weight."""

    matrix: Floats  # (row, feature), encoded
    y: Floats  # (row,) or (row, output), as given
    values: Floats  # (row,) or (row, output), for the base estimator
    weight: Floats | None
    groups: NDArray[Any] | None
    table_rows: Indices  # indices of the rows in the table given
    schema: TableSchema
    rows: Rows
    censored: NDArray[np.bool_] | None = None  # (row,): whose values are imputed

    @property
    def known_rows(self) -> Indices:
        """Indices of the rows that may be anchors."""
        return np.arange(len(self.y)) if self.censored is None else np.flatnonzero(~self.censored)

    @property
    def n_outputs(self) -> int:
        return 1 if self.values.ndim == 1 else self.values.shape[1]


class TargetArguments(NamedTuple):
    """A target as given to `fit`, with the bounds of censored rows; or one that is imputed."""

    y: Any
    lower: Any = None
    upper: Any = None
    imputed: NDArray[np.bool_] | None = None  # (row,): whose values in y are imputed already


def validate_training_rows(
    twin: Any, X: Any, y: Any, sample_weight: Any, groups: Any
) -> TrainingRows:
    """Validate the arguments of the fit of a `TwinRegressor`, and impute censored values."""
    tags = twin.__sklearn_tags__()
    target = y if isinstance(y, TargetArguments) else TargetArguments(y)
    matrix, schema = validate_training_table(
        twin,
        X,
        twin.categorical_features,
        allow_nan=tags.input_tags.allow_nan,
        pair_dtype=twin._pair_dtype,
    )
    weight = check_sample_weight(sample_weight, len(matrix))
    index = np.arange(len(matrix)) if weight is None else np.flatnonzero(weight)
    own_weight = None if weight is None else normalize_weights(weight[index])
    rows = schema.to_rows(matrix[index])
    if target.lower is None and target.upper is None:
        multi_output = tags.target_tags.multi_output
        y = validate_target(twin, target.y, len(matrix), multi_output=multi_output)[index]
        censored = None if target.imputed is None else target.imputed[index]
    else:
        bounds = validate_bounds(twin, *target[:3], len(matrix), weight).take(index)
        y, censored = impute_target(rows.features, bounds, own_weight).y, bounds.censored
    return TrainingRows(
        matrix=matrix[index],
        y=y,
        # the base estimator gets a single output flat, and the anchors keep its shape
        values=y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y,
        weight=own_weight,
        groups=None if groups is None else np.asarray(groups)[index],
        table_rows=index,
        schema=schema,
        rows=rows,
        censored=censored,
    )


class LabelledRows(NamedTuple):
    """Encoded rows and their target values."""

    rows: Rows
    y: Floats


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
        n_rows, weight = len(self.data.rows), self.data.weight
        first, second = strategy.draw(n_rows, make_index, self.rng)
        check_pairs(first, second, n_rows, strategy.count(n_rows))
        if mirrored:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        if weight is None:
            return Pairs(first, second, None)
        pair_weight = weight[first] * weight[second]
        if supports_weights(self.base):
            return Pairs(first, second, pair_weight)
        most = min(self.max_pairs, max(AUTO_PAIRS, len(first)))
        return Pairs(first, second, None).take(draw_by_weight(pair_weight, most, self.rng))

    def hold_out_rows(self, pairs: Pairs) -> tuple[Pairs, tuple[LabelledRows, LabelledRows] | None]:
        """Pairs without the rows held out for early stopping, and these rows and the others."""
        fraction = early_stopping_fraction(self.base, len(pairs.first))
        if fraction is None:
            return pairs, None
        rows, y = self.data.rows, self.data.values
        held_out = held_out_rows(len(rows), fraction, self.rng)
        out, training = np.flatnonzero(held_out), np.flatnonzero(~held_out)
        pairs = pairs.take(~(held_out[pairs.first] | held_out[pairs.second]))
        check_pairs(pairs.first, pairs.second, len(rows), len(pairs.first))
        return pairs, (
            LabelledRows(rows.take(out), y[out]),
            LabelledRows(rows.take(training), y[training]),
        )

    def known_features(self, pairs: Pairs) -> NDArray[np.bool_]:
        """(feature,): whether enough pairs have known values of two different rows."""
        pairs = pairs.take(pairs.first != pairs.second)
        known = ~np.isnan(self.data.matrix)
        enough = np.ones(known.shape[1], dtype=bool)
        for j in np.flatnonzero(~known.all(axis=0)):
            n_known = np.count_nonzero(known[pairs.first, j] & known[pairs.second, j])
            enough[j] = n_known >= max(1.0, _MIN_KNOWN_SHARE * len(pairs.first))
        return enough

    def validation_pairs(self, validation: LabelledRows, anchors: LabelledRows) -> dict[str, Any]:
        """Pairs of validation rows, each with all anchors or as many as fit, as fit parameters."""
        n_rows, used = len(validation.rows), np.arange(len(anchors.rows))
        n_used = max(1, self.max_pairs // 3 // n_rows)
        if n_used < len(used):
            used = self.rng.choice(used, size=n_used, replace=False)
        first, second = np.repeat(np.arange(n_rows), len(used)), np.tile(used, n_rows)
        pairs = LazyPairMatrix(self.features, validation.rows, anchors.rows, first, second)
        return {
            "X_val": np.asarray(pairs),
            "y_val": difference(validation.y[first], anchors.y[second]) / self.unit,
        }

    def training_set(self, pairs: Pairs, fit_params: dict[str, Any]) -> PairTrainingSet:
        """The training set; for LightGBM with a lazy pair matrix, where it is large."""
        rows, y = self.data.rows, self.data.values
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
