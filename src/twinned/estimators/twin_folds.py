"""Out-of-fold predictions of a twin, and sizes of its default estimator by their errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from twinned.exceptions import TableWarning
from twinned.fitted.twin import FittedTwin
from twinned.models.base_estimator import FAST, SIZES, SMALL, THOROUGH, THOROUGH_FOLDS, TreeSizes
from twinned.rows.folds import draw_folds, encode_groups, equal_features
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TrainingRows
from twinned.rows.validation import check_integer

if TYPE_CHECKING:
    from twinned.estimators.twin import TwinRegressor

N_FOLDS = 5
LEAST_ROWS = 20  # to hold out folds by default
# Root mean square of out-of-fold errors in standard deviations of y: from here on, they are mostly
# noise, and more pairs and trees change next to nothing.
_MUCH_NOISE = 0.2

# The fitted state of a twin of these rows, whose default estimator has these sizes, and more.
FitModel = Callable[[TrainingRows, TreeSizes], tuple[FittedTwin, Any]]


def draw_folds_of_known_rows(twin: TwinRegressor, rows: TrainingRows) -> TrainingRows | None:
    """The known rows with their folds by the parameter `cv`, or None."""
    has_defaults = twin.anchors == "all" and twin.weights == "uniform"
    known_rows, n_folds = rows.take(rows.known), twin.cv
    if n_folds is None:
        n_folds = N_FOLDS if has_defaults and len(known_rows) >= LEAST_ROWS else 0
    if not n_folds:
        return None
    if not has_defaults:
        raise ValueError("cv needs anchors='all' and weights='uniform'; else cv=0.")
    if known_rows.fold is not None:  # those of a splitter
        return known_rows
    n_folds = min(check_integer("cv", n_folds, 2), len(known_rows))
    return replace(known_rows, fold=_draw(twin, known_rows, n_folds))


def choose_sizes(
    twin: TwinRegressor, rows: TrainingRows, known_rows: TrainingRows, fit_model: FitModel
) -> tuple[TreeSizes, Floats]:
    """The sizes of the default estimator, and out-of-fold predictions (see `predict_folds`).

    The larger sizes are used where the out-of-fold errors of small models show little noise.
    """
    if twin.estimator is not None or twin.effort == "thorough":
        return THOROUGH, predict_folds(rows, known_rows, THOROUGH_FOLDS, fit_model)
    predicted = predict_folds(rows, known_rows, SMALL, fit_model)
    if twin.effort != "balanced":
        return SIZES[twin.effort], predicted
    held_out = known_rows.take(known_rows.held_out)
    spread = StandardScaling.fit(held_out.outputs, held_out.weight).scale
    errors = (known_rows.y - predicted)[known_rows.held_out].reshape(held_out.outputs.shape)
    errors = errors / np.where(spread > 0, spread, 1.0)
    noise = np.sqrt(np.average((errors**2).mean(axis=1), weights=held_out.weight))
    if noise >= _MUCH_NOISE:
        return FAST, predicted
    return THOROUGH, predict_folds(rows, known_rows, THOROUGH_FOLDS, fit_model)


def sizes_of_one_fold(twin: TwinRegressor, rows: TrainingRows, fit_model: FitModel) -> TreeSizes:
    """The sizes of the default estimator by the out-of-fold errors of one fold."""
    known_rows = rows.take(rows.known)
    if len(known_rows) < LEAST_ROWS:
        return THOROUGH
    is_first = _draw(twin, known_rows, N_FOLDS) == 0
    known_rows = replace(known_rows, fold=np.where(is_first, 0, -1))
    return choose_sizes(twin, rows, known_rows, fit_model)[0]


def predict_folds(
    rows: TrainingRows, known_rows: TrainingRows, sizes: TreeSizes, fit_model: FitModel
) -> Floats:
    """(row, …): out-of-fold predictions of the known rows, which have folds.

    They are NaN in rows that no fold holds out.
    """
    fold_of_rows = np.full(len(rows), -1)
    fold_of_rows[rows.known] = known_rows.fold  # no fold holds out censored rows
    rows = replace(rows, fold=fold_of_rows)
    predicted = np.full(known_rows.y.shape, np.nan)
    for number in np.unique(fold_of_rows[fold_of_rows >= 0]):
        held_out = known_rows.fold == number
        with warnings.catch_warnings(action="ignore", category=TableWarning):
            model, _ = fit_model(rows.without(number), sizes)
            n_pairs = len(known_rows) * len(model.anchors)  # of all folds, for the fast path
            model.model.at_anchors(model.anchors.rows, model.anchors.outputs, n_pairs)
            queries = model.queries(known_rows.matrix[held_out])
            predicted[held_out] = model.squeeze(model.moments(queries)[0])
    return predicted


def _draw(twin: TwinRegressor, rows: TrainingRows, n_folds: int) -> Indices:
    """A random fold of each row, where equal rows and groups are held out together."""
    if rows.groups is None:
        codes = equal_features(rows.matrix, n_folds)
    else:
        codes = encode_groups(rows.groups, len(rows))
    return draw_folds(len(rows), n_folds, twin.random_state or 0, codes)
