"""Fits of a twin over a base estimator: of all rows and of the rows of folds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from twinned.batches.estimation import remove_deviations
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.anchors import Anchors
from twinned.fitted.residuals import with_residuals
from twinned.fitted.twin import FittedTwin
from twinned.fitted.updating import update_effects
from twinned.models.base_estimator import (
    FAST,
    MAX_FEATURES,
    SIZES,
    SMALL,
    THOROUGH,
    THOROUGH_FOLDS,
    TreeSizes,
    make_base_estimator,
)
from twinned.models.censored_values import impute_target
from twinned.models.learned_metric import learn_metric
from twinned.models.measurement_errors import weigh_by_error
from twinned.models.resources import MemoryBudget, parse_memory_limit
from twinned.models.sklearn import (
    PairTrainingSet,
    SklearnDifferenceModel,
    TrainingPairBuilder,
    fit_on_pairs,
    normalize_weights,
)
from twinned.models.wide_tables import important_features
from twinned.pairing.anchors import (
    as_anchor_strategy,
    as_weight_strategy,
    store_rows,
    uses_learned_metric,
)
from twinned.pairing.pairs import PairFeatures
from twinned.rows.folds import draw_folds, encode_groups, equal_features
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TargetBounds, TrainingRows
from twinned.rows.validation import check_integer

if TYPE_CHECKING:
    from twinned.estimators.twin import TwinRegressor

N_FOLDS = 5
LEAST_ROWS = 20  # to hold out folds by default
# Root mean square of out-of-fold errors in standard deviations of y: from here on, they are mostly
# noise, and more pairs and trees change next to nothing.
_MUCH_NOISE = 0.2
_CACHE_BYTES = 160_000_000  # of packed trees, stored for the next prediction


@dataclass(frozen=True)
class TwinFitting:
    """Fits to prepared rows, with the parameters of a twin."""

    twin: TwinRegressor
    pair_dtype: np.dtype[np.floating]

    def fit(
        self,
        rows: TrainingRows,
        *,
        with_folds: bool = True,
        imputed: NDArray[np.bool_] | None = None,
    ) -> tuple[FittedTwin, PairTrainingSet]:
        """The fitted state of a fit to validated rows, and the training set.

        `imputed` (table row,) are rows whose y is imputed already; they are no anchors.
        """
        rows, sizes = self.prepare(rows), SIZES[self.twin.effort]
        if imputed is not None:  # bounds that differ mark a row as censored
            lower = np.where(imputed[rows.table_rows], -np.inf, rows.y)
            rows = replace(rows, bounds=TargetBounds(lower, rows.y))
        fold = self.folds_of_known_rows(rows) if with_folds else None
        if fold is not None:
            known_rows = replace(rows.take(rows.known), fold=fold)
            sizes, predicted = self.choose_sizes(rows, known_rows)
        elif self.twin.estimator is None and self.twin.effort == "balanced":
            rows = replace(rows, fold=None, fold_training=None)
            sizes = self.sizes_of(rows)
        fitted, training = self.fit_model(rows, sizes)
        if fold is not None:
            fitted = with_residuals(fitted, predicted, known_rows.folds)
        return update_effects(fitted, rows.effects), training

    def prepare(self, rows: TrainingRows) -> TrainingRows:
        """The rows without offsets of batches, with their weights, and with imputed values."""
        rows = weigh_by_error(remove_deviations(rows, self.twin.batch_effect, shrinks=False))
        if rows.weight is not None:
            rows = rows.of_positive_weight()
            rows = replace(rows, weight=normalize_weights(np.asarray(rows.weight)))
        if rows.bounds is not None:
            imputed = impute_target(rows.rows.features, rows.bounds, rows.weight)
            rows = replace(rows, y=imputed.y)
        return rows

    def fit_model(self, rows: TrainingRows, sizes: TreeSizes) -> tuple[FittedTwin, PairTrainingSet]:
        """The fitted state without residuals, and the training set of the base estimator.

        The default estimator has these sizes.
        """
        twin = self.twin
        anchor_strategy = as_anchor_strategy(twin.anchors)
        weight_strategy = as_weight_strategy(twin.weights)
        rng = check_random_state(twin.random_state)
        selected = np.arange(rows.matrix.shape[1])
        if twin.estimator is None and not callable(twin.pair_features):
            selected = important_features(rows.matrix, rows.y, MAX_FEATURES, rows.weight)
        features = PairFeatures(twin.pair_features, rows.schema, self.pair_dtype, selected)
        n_rows, n_outputs = rows.outputs.shape
        base = make_base_estimator(twin.estimator, sizes, n_rows, n_outputs, len(selected))
        learned = None
        if uses_learned_metric(twin.pairs, twin.anchors, twin.weights):
            learned = learn_metric(rows.rows.features, rows.targets, rows.weight)
        builder = TrainingPairBuilder(twin, base, features, rows, rng)
        pairs = builder.draw(sizes, learned)
        stored = store_rows(anchor_strategy, rows.known, rng)
        training = builder.build(pairs)
        seeds = None if twin.random_state is None else rng
        estimator = fit_on_pairs(base, training, rng=seeds, n_jobs=twin.n_jobs)
        model = SklearnDifferenceModel(
            estimator=estimator,
            features=features,
            unit=builder.unit,
            symmetric=twin.symmetric,
            cache_bytes=cache_bytes(twin.memory_limit),
        )
        fitted = FittedTwin(
            model=model,
            anchors=Anchors.of_rows(
                replace(rows.take(stored), groups=None),
                censored_X=rows.censored_matrix,
                learned_metric=learned,
                n_jobs=twin.n_jobs,
            ),
            anchor_strategy=anchor_strategy,
            weight_strategy=weight_strategy,
            budget=MemoryBudget(twin.memory_limit, twin.n_jobs),
        )
        if nearest := fitted.nearest:  # made now, so that predictions need not
            fitted.anchors.index(nearest[1])
        return fitted, training

    def choose_sizes(
        self, rows: TrainingRows, known_rows: TrainingRows
    ) -> tuple[TreeSizes, Floats]:
        """The sizes of the default estimator, and out-of-fold predictions (see `predict_folds`).

        The larger sizes are used where the out-of-fold errors of small models show little noise.
        """
        if self.twin.estimator is not None or self.twin.effort == "thorough":
            return THOROUGH, self.predict_folds(rows, known_rows, THOROUGH_FOLDS)
        predicted = self.predict_folds(rows, known_rows, SMALL)
        if self.twin.effort != "balanced":
            return SIZES[self.twin.effort], predicted
        held_out = known_rows.take(known_rows.held_out)
        spread = StandardScaling.fit(held_out.outputs, held_out.weight).scale
        errors = (known_rows.y - predicted)[known_rows.held_out].reshape(held_out.outputs.shape)
        errors = errors / np.where(spread > 0, spread, 1.0)
        noise = np.sqrt(np.average((errors**2).mean(axis=1), weights=held_out.weight))
        if noise >= _MUCH_NOISE:
            return FAST, predicted
        return THOROUGH, self.predict_folds(rows, known_rows, THOROUGH_FOLDS)

    def sizes_of(self, rows: TrainingRows) -> TreeSizes:
        """The sizes of the default estimator by the out-of-fold errors of one fold."""
        known_rows = rows.take(rows.known)
        if len(known_rows) < LEAST_ROWS:
            return THOROUGH
        is_first = self.draw_folds(known_rows, N_FOLDS) == 0
        return self.choose_sizes(rows, replace(known_rows, fold=np.where(is_first, 0, -1)))[0]

    def predict_folds(
        self, rows: TrainingRows, known_rows: TrainingRows, sizes: TreeSizes
    ) -> Floats:
        """(row, …): out-of-fold predictions of the known rows, which have folds.

        They are NaN in rows that no fold holds out.
        """
        fold_of_rows = np.full(len(rows), -1)
        fold_of_rows[rows.known] = known_rows.fold  # no fold holds out censored rows
        rows = replace(rows, fold=fold_of_rows)
        predicted = np.full(known_rows.y.shape, np.nan)
        assert known_rows.fold is not None, "the rows have folds"
        for number in np.unique(known_rows.fold[known_rows.held_out]):
            held_out = known_rows.fold == number
            with ignore_table_warnings():
                model, _ = self.fit_model(rows.without(number), sizes)
                n_pairs = len(known_rows) * len(model.anchors)  # of all folds, for the fast path
                model.model.at_anchors(model.anchors.rows, model.anchors.outputs, n_pairs)
                queries = model.queries(known_rows.matrix[held_out])
                predicted[held_out] = model.squeeze(model.moments(queries)[0])
        return predicted

    def folds_of_known_rows(self, rows: TrainingRows) -> Indices | None:
        """The fold of each of the known rows by the parameter `cv`, or None."""
        if self.twin.cv is None and self.twin.estimator is not None:
            return None
        has_defaults = self.twin.anchors == "all" and self.twin.weights == "uniform"
        known_rows, n_folds = rows.take(rows.known), self.twin.cv
        if n_folds is None:
            n_folds = N_FOLDS if has_defaults and len(known_rows) >= LEAST_ROWS else 0
        if not n_folds:
            return None
        if not has_defaults:
            raise ValueError("cv needs anchors='all' and weights='uniform'; else cv=0.")
        if known_rows.fold is not None:  # those of a splitter
            return known_rows.fold
        return self.draw_folds(known_rows, min(check_integer("cv", n_folds, 2), len(known_rows)))

    def draw_folds(self, rows: TrainingRows, n_folds: int) -> Indices:
        """A random fold of each row, where equal rows and groups are held out together."""
        if rows.groups is None:
            codes = equal_features(rows.matrix, n_folds)
        else:
            codes = encode_groups(rows.groups, len(rows))
        return draw_folds(len(rows), n_folds, self.twin.random_state or 0, codes)


def cache_bytes(memory_limit: object) -> int:
    """The memory for packed trees that are stored for the next prediction."""
    limit = parse_memory_limit(memory_limit)
    return _CACHE_BYTES if limit is None else min(_CACHE_BYTES, limit // 3)
