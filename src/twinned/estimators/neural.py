"""NeuralRegressor: an ensemble of plain networks, the baseline of the neural twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.neural_base import BaseNeural
from twinned.estimators.predictor import check_predictions
from twinned.models.neural.difference_model import PlainNetworks
from twinned.models.resources import map_row_blocks
from twinned.rows.dask import is_dask, predict_lazily
from twinned.rows.schema import Floats
from twinned.rows.validation import check_bool, validate_table

Result = TypeVar("Result")


class NeuralRegressor(RegressorMixin, BaseNeural):
    """An ensemble of plain networks, trained as `TwinNeuralRegressor` trains its twins.

    Members differ in their settings (learning rate, dropout, weight decay, periodic embedding and
    scale of the features), which are selected by out-of-fold predictions; then the members are
    trained on all rows.

    Parameters
    ----------
    {shared parameters}

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    {shared attributes}

    Examples
    --------
    >>> from twinned import NeuralRegressor
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(80, random_state=0)
    >>> model = NeuralRegressor((16,), n_members=2, max_steps=50, random_state=0).fit(X, y)
    >>> model.predict(X).shape
    (80,)
    """

    _twin = False

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict by the weighted mean over the members.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            The points to predict. Of a Dask DataFrame or Array, the result is lazy.
        return_std : bool, default=False
            Also return the standard deviation over the members.

        Returns
        -------
        y : ndarray of shape (n_queries,) or (n_queries, n_outputs)
        std : ndarray of the same shape, only if `return_std`
        """
        check_is_fitted(self)
        check_bool("return_std", return_std)
        if is_dask(X):
            n_outputs = None if self._one_dimensional else self._shape["n_outputs"]
            return predict_lazily(self, X, return_std, n_outputs)
        weights = self.member_weights_[:, None, None]

        def mean_and_std(members: Floats) -> tuple[Floats, Floats]:
            mean = (weights * members).sum(axis=0)
            return mean, np.sqrt((weights * (members - mean) ** 2).sum(axis=0))

        means, stds = zip(*self._map_members(mean_and_std, X), strict=True)
        mean, std = (
            self._shaped(check_predictions(np.concatenate(part))) for part in (means, stds)
        )
        return (mean, std) if return_std else mean

    def predict_members(self, X: Any) -> Floats:
        """Predict by each member that has a weight.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            The points to predict.

        Returns
        -------
        y : ndarray of shape (n_members, n_queries) or (n_members, n_queries, n_outputs)
            In the order of `member_weights_`.
        """
        check_is_fitted(self)
        return self._shaped(np.concatenate(self._map_members(lambda block: block, X), axis=1))

    def _map_members(self, function: Callable[[Floats], Result], X: Any) -> list[Result]:
        """Apply a function to blocks (member, query, output) of the members' predictions."""
        matrix, schema = validate_table(
            self, X, self._schema, allow_nan=True, pair_dtype=np.dtype(np.float64)
        )
        networks = self._networks(PlainNetworks)

        def one_block(rows: slice) -> Result:
            queries = networks.scale.transform(schema.to_rows(matrix[rows]))
            return function(networks.predict(queries))

        n_rows = networks.queries_per_block(self.n_jobs)
        return map_row_blocks(one_block, len(matrix), n_rows, self.n_jobs)

    def _shaped(self, values: Floats) -> Floats:
        """Drop the output axis where y had none."""
        return values[..., 0] if self._one_dimensional else values
