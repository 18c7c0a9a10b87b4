"""Out-of-fold predictions of quick models, with random folds and with groups held out together.

Ridge regression with the residuals of the nearest rows uses rows with similar features, as twins,
trees and Gaussian processes do, so that nearly equal rows lower its error where random folds
separate them. Few extra trees also use rows that agree in a part of the features.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

from twinned.diagnostics.data_checks.findings import CheckedTable
from twinned.diagnostics.ratio import Ratio, rmse_ratio
from twinned.rows.folds import Folds, row_folds
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

_N_FOLDS = 5
_N_NEIGHBORS = 5
_PENALTY = 1e-2  # per row
_N_TREES, _MAX_FEATURES = 40, 15

Predict = Callable[[CheckedTable, Indices | None], Floats]


def quick_predictions(table: CheckedTable, groups: Indices | None = None) -> Floats:
    """(row,) out-of-fold predictions; rows of one group are held out together."""
    predicted = np.empty(table.n_rows)
    for train, held_out in _folds(table.n_rows, groups):
        ridge = Ridge(_PENALTY * len(train)).fit(table.features[train], table.y[train])
        residual = table.y[train] - ridge.predict(table.features[train])
        distances = table.distances[np.ix_(held_out, train)]
        k = min(_N_NEIGHBORS, len(train))
        nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
        near = np.take_along_axis(distances, nearest, axis=1)
        weights = 1.0 / (near + 1e-9)
        local = np.sum(weights * residual[nearest], axis=1) / weights.sum(axis=1)
        predicted[held_out] = ridge.predict(table.features[held_out]) + local
    return predicted


def tree_predictions(table: CheckedTable, groups: Indices | None = None) -> Floats:
    """(row,) out-of-fold predictions by extra trees; rows of one group are held out together."""
    predicted = np.empty(table.n_rows)
    most = min(_MAX_FEATURES, table.features.shape[1])
    for train, held_out in _folds(table.n_rows, groups):
        trees = ExtraTreesRegressor(_N_TREES, max_features=most, random_state=0)
        trees.fit(table.features[train], table.y[train])
        predicted[held_out] = trees.predict(table.features[held_out])
    return predicted


def held_out_together(
    table: CheckedTable, groups: Indices, predict: Predict = quick_predictions
) -> tuple[float, float, Ratio]:
    """Errors with random folds and with groups held out together, and the ratio of the second.

    The ratio has a 95 % interval.
    """
    random, together = predict(table, None), predict(table, groups)
    errors = [float(np.sqrt(np.mean((own - table.y) ** 2))) for own in (random, together)]
    return errors[0], errors[1], rmse_ratio(together, random, table.y, groups)


def _folds(n_rows: int, groups: Indices | None) -> Folds:
    return row_folds(n_rows, _N_FOLDS, 0, groups, min_rows=2)
