"""NeuralRegressor: an ensemble of plain networks, the baseline of the neural twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from twinned._compat import DocumentationLink
from twinned._table import Floats
from twinned._validation import check_bool, validate_table
from twinned.estimators.neural_base import BaseNeural
from twinned.models.memory import map_row_blocks
from twinned.models.neural.difference_model import PlainNetworks

Result = TypeVar("Result")


class NeuralRegressor(DocumentationLink, RegressorMixin, BaseNeural):
    """An ensemble of plain networks, trained as `TwinNeuralRegressor` trains its twins.

    Members differ in their settings (learning rate, dropout, weight decay, periodic embedding of
    the features) and in the fold of the training rows that they hold out, on which they stop early
    and are selected.

    Parameters
    ----------
    hidden_sizes : sequence of int, default=(128, 128)
        The widths of the hidden layers.
    effort : {"fast", "balanced", "thorough"}, default="balanced"
        Sets the values for None of `n_members` (6, 15, 40), `max_steps` (1000, 3200, 6000),
        `batch_size` (128, 128, 256) and `n_folds` (at most 2, 5, 5).
    n_members : int or None, default=None
        Number of networks that are trained.
    max_steps : int or None, default=None
        Number of training steps of each network.
    batch_size : int or None, default=None
        Number of rows per step.
    n_folds : int or None, default=None
        Number of folds that the members hold out in turn; with 1, all hold out the same
        `validation_fraction`. Must divide `n_members`.
    activation : {"silu", "relu", "mish", "tanh"}, default="silu"
        The activation function of the hidden layers.
    embedding : "auto", float or None, default="auto"
        Scale of the random frequencies of the periodic embedding sin(2πfx), cos(2πfx) of the
        features; `"auto"` differs between members, None is no embedding.
    n_frequencies : int, default=16
        Number of frequencies per feature.
    learning_rate : float or None, default=None
        Initial learning rate of all members; None differs between members.
    dropout : float or None, default=None
        Dropout rate of all members; None differs between members.
    weight_decay : float or None, default=None
        Weight decay of all members; None differs between members.
    optimizer : {"adamw", "adadelta"}, default="adamw"
        The optimizer.
    validation_fraction : float, default=0.1
        Share of the rows to hold out where `n_folds` is 1 and `fit` gets no validation set.
    selection : {"greedy", "mean"}, default="greedy"
        Weights of the settings: by greedy selection on their out-of-fold predictions, or equal.
    recipe : {"modern", "published", "written"}, default="modern"
        `"published"` trains as the paper's code does and `"written"` as its text describes it; see
        `as_published`. Both count epochs, and ignore `max_steps`.
    scaling : {"standard", "signed_max"}, default="standard"
        `"standard"` scales X and y to mean 0 and standard deviation 1; `"signed_max"` subtracts
        the mean of X, divides by the largest excess over it, and leaves y as it is.
    max_epochs : int or None, default=None
        Largest number of epochs of the paper's recipes; None is the recipe's own.
    patience : int or None, default=None
        Epochs without a lower validation loss that end training in the paper's recipes; None is
        the recipe's own.
    categorical_features : {"from_dtype"}, list or None, default="from_dtype"
        As in `TwinRegressor`; categories are one-hot encoded.
    device : {"auto", "cpu", "gpu"}, default="auto"
        Where to train and predict.
    n_jobs : int or None, default=None
        Number of threads for the blocks of `predict`. None means 1.
    memory_limit : int, str or None, default="512MB"
        Bounds the memory of the blocks of `predict`: bytes, a string such as `"512MB"`, or None.
    random_state : int, RandomState or None, default=None
        Seed; the same seed on the same machine gives the same bits.
    verbose : int, default=0
        1 shows a progress bar while training.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    n_members_ : int
        Number of networks that were trained.
    member_weights_ : ndarray
        The weights of the members that are used; they sum to one.
    learning_curve_ : ndarray of shape (n_members_, n_checks)
        Error of the held-out rows of each member.
    out_of_fold_prediction_ : ndarray like y, or None
        Out-of-fold prediction of each training row; NaN for rows without a label or a weight, or
        whose networks all diverged. None with a single validation set.

    Examples
    --------
    >>> from twinned import NeuralRegressor
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(80, random_state=0)
    >>> model = NeuralRegressor(n_members=2, max_steps=400, random_state=0).fit(X[:60], y[:60])
    >>> model.predict_members(X[60:]).shape
    (2, 20)
    """

    _twin = False

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict by the weighted mean over the members.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            The points to predict.
        return_std : bool, default=False
            Also return the standard deviation over the members.

        Returns
        -------
        y : ndarray of shape (n_queries,) or (n_queries, n_outputs)
        std : ndarray of the same shape, only if `return_std`
        """
        check_is_fitted(self)
        check_bool("return_std", return_std)
        weights = self.member_weights_[:, None, None]

        def mean_and_std(members: Floats) -> tuple[Floats, Floats]:
            mean = (weights * members).sum(axis=0)
            return mean, np.sqrt((weights * (members - mean) ** 2).sum(axis=0))

        means, stds = zip(*self._map_members(mean_and_std, X), strict=True)
        mean, std = self._shaped(np.concatenate(means)), self._shaped(np.concatenate(stds))
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
            self, X, self._schema, allow_nan=False, pair_dtype=np.dtype(np.float64)
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
