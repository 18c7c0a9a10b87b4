"""What takes the place of missing values of features that all known rows have."""

from __future__ import annotations

import numpy as np

from twinned.fitted.known_values import Mask
from twinned.rows.neighbors import LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats, TableSchema

_N_VALUES = 30  # by which a row is completed; a prediction is their mean
_MAX_DONORS = 1000  # known rows whose values are used; of more, a fixed random subset


class NeighborImputer:
    """Values of rows that miss one which all known rows have, from known rows.

    Models have not seen such rows, and their ways to handle missing values are not measured by the
    calibration. Their prediction is the mean over values that the missing features take in the
    nearest known rows, by the distances of the other features in the learned metric. Where known
    rows miss values of a feature, too, it is left to the model.

    Parameters
    ----------
    matrix : ndarray of shape (n, n_features)
        Known rows, with categories as codes.
    features : ndarray of shape (n, n_encoded)
        The same rows encoded.
    metric : LearnedMetric
        Scales of the encoded features.
    schema : TableSchema
        Kinds of the features.
    """

    def __init__(
        self, matrix: Floats, features: Floats, metric: LearnedMetric, schema: TableSchema
    ) -> None:
        donors = np.random.RandomState(0).permutation(len(matrix))[:_MAX_DONORS]
        self._matrix, self._schema = matrix[donors], schema
        self._metric, self._scaled = metric, metric.transform(features[donors])
        self.n_values: int = min(_N_VALUES, len(donors))

    def complete(self, matrix: Floats, features: Floats, missing: Mask, n: int) -> Floats:
        """(row, n, feature): rows with the values of the n nearest known rows, the nearest first.

        `matrix` and `missing`, the values to complete, are (row, feature); `features` are encoded.
        """
        completed = np.repeat(matrix[:, None], n, axis=1)
        scaled = self._metric.transform(features)
        patterns, numbers = np.unique(missing, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            rows = np.flatnonzero(numbers.ravel() == number)
            columns = self._schema.encoded_columns(np.flatnonzero(~pattern))
            nearest = np.tile(np.arange(n), (len(rows), 1))
            if len(columns):
                index = NeighborIndex(self._scaled[:, columns])
                nearest = index.kneighbors(scaled[rows][:, columns], n)[0]
            completed[rows] = np.where(pattern, self._matrix[nearest], completed[rows])
        return completed
