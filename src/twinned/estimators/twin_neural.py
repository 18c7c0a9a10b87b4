"""TwinNeuralRegressor: twin neural network regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from twinned._table import Floats, Rows, TableSchema
from twinned._validation import check_integer
from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.neural_base import BaseNeural
from twinned.models.neural.difference_model import NeuralDifferenceModel
from twinned.models.neural.fitting import TrainedEnsemble
from twinned.models.neural.fixed_anchor import plain_parameters
from twinned.models.neural.problem import Scale, TrainingProblem
from twinned.pairing.anchors import as_anchor_strategy, check_stored


class TwinNeuralRegressor(BaseNeural, BaseTwin):
    """An ensemble of networks that predict differences between points.

    Each member is a network F(a, b) whose prediction ½F(a, b) − ½F(b, a) is trained to be
    y(a) − y(b); a point is predicted from all its anchors by all members. Members differ in their
    settings (learning rate, dropout, weight decay, periodic embedding of the features) and in the
    fold of the training rows that they hold out, on which they stop early and are selected.

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
        Number of pairs per step, each in both orders.
    n_folds : int or None, default=None
        Number of folds that the members hold out in turn; with 1, all hold out the same
        `validation_fraction`. Must divide `n_members`.
    pairs : {"auto", "all"}, int or strategy, default="auto"
        The pairs to train on. `"auto"` is `"all"`: pairs are drawn while training and never
        stored, so n² of them cost no more than a few.
    anchors : "all" or strategy, default="all"
        The anchors of each query, as in `TwinRegressor`; distances are measured on scaled features.
    weights : {"uniform", "distance"}, strategy or callable, default="uniform"
        The weights of the anchors, as in `TwinRegressor`.
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
    loop_weight : float, default=0.0
        Weight of the loop loss: differences around loops of three points must sum to zero. If it
        is positive, rows whose y is NaN are unlabelled, and loops include them.
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
        Number of threads for the neighbor search and the blocks of `predict`. None means 1.
    memory_limit : int, str or None, default="512MB"
        Bounds the memory of the blocks of `predict`: bytes, a string such as `"512MB"`, or None.
    random_state : int, RandomState or None, default=None
        Seed; the same seed on the same machine gives the same bits.
    verbose : int, default=0
        1 shows a progress bar while training.

    Attributes
    ----------
    anchors_X_, anchors_y_, n_features_in_, feature_names_in_
        As in `TwinRegressor`.
    n_pairs_ : int
        Number of pairs of distinct rows that training draws from, mirror images counted.
    n_members_ : int
        Number of networks that were trained.
    member_weights_ : ndarray
        The weights of the members that are used; they sum to one.
    learning_curve_ : ndarray of shape (n_members_, n_checks)
        Error of anchored predictions of the held-out rows of each member.
    out_of_fold_prediction_ : ndarray like y, or None
        Out-of-fold prediction of each training row; NaN for rows without a label or a weight, or
        whose networks all diverged. None with a single validation set.

    Examples
    --------
    >>> from twinned import TwinNeuralRegressor
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(80, random_state=0)
    >>> twin = TwinNeuralRegressor(n_members=2, max_steps=400, random_state=0)
    >>> mean, std = twin.fit(X[:60], y[:60]).predict(X[60:], return_std=True)
    >>> float(np.abs(mean - y[60:]).mean() / y[60:].std()) < 0.2
    True
    """

    symmetric = True
    _twin = True

    def __init__(
        self,
        hidden_sizes: Sequence[int] = (128, 128),
        *,
        effort: str = "balanced",
        n_members: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        n_folds: int | None = None,
        pairs: Any = "auto",
        anchors: Any = "all",
        weights: Any = "uniform",
        activation: str = "silu",
        embedding: str | float | None = "auto",
        n_frequencies: int = 16,
        learning_rate: float | None = None,
        dropout: float | None = None,
        weight_decay: float | None = None,
        optimizer: str = "adamw",
        loop_weight: float = 0.0,
        validation_fraction: float = 0.1,
        selection: str = "greedy",
        recipe: str = "modern",
        scaling: str = "standard",
        max_epochs: int | None = None,
        patience: int | None = None,
        categorical_features: Any = "from_dtype",
        device: str = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = "512MB",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            hidden_sizes,
            effort=effort,
            n_members=n_members,
            max_steps=max_steps,
            batch_size=batch_size,
            n_folds=n_folds,
            activation=activation,
            embedding=embedding,
            n_frequencies=n_frequencies,
            learning_rate=learning_rate,
            dropout=dropout,
            weight_decay=weight_decay,
            optimizer=optimizer,
            validation_fraction=validation_fraction,
            selection=selection,
            recipe=recipe,
            scaling=scaling,
            max_epochs=max_epochs,
            patience=patience,
            categorical_features=categorical_features,
            device=device,
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            random_state=random_state,
            verbose=verbose,
        )
        self.pairs = pairs
        self.anchors = anchors
        self.weights = weights
        self.loop_weight = loop_weight

    def _set_fitted(self, problem: TrainingProblem, ensemble: TrainedEnsemble) -> None:
        super()._set_fitted(problem, ensemble)
        table = problem.table
        self.n_pairs_ = problem.n_pairs
        self._pair_dtype = np.dtype(np.float64)
        rows = as_anchor_strategy(self.anchors).store(
            len(table.matrix), np.random.RandomState(problem.seed)
        )
        rows = check_stored(rows, len(table.matrix))
        weight = None if table.weight is None else table.weight[rows]
        self._set_anchors(
            table.matrix[rows], table.target[rows], weight, table.schema, table.indices[rows]
        )

    def substitute_anchor(self, anchor: int) -> NeuralRegressor:
        """Return the plain networks that this twin is for one fixed anchor.

        Parameters
        ----------
        anchor : int
            A row of `anchors_X_`.

        Returns
        -------
        NeuralRegressor
            Fitted, of twice the width: its prediction is this anchor's estimate.
        """
        check_is_fitted(self)
        check_integer("anchor", anchor, 0)
        if anchor >= len(self.anchors_X_):
            raise ValueError(f"anchor must be below {len(self.anchors_X_)}, not {anchor!r}.")
        model = self._make_model()
        shape, row = model.shape, model.matrix(self._anchors.take([anchor]))[0]
        plain = NeuralRegressor(
            **{name: getattr(self, name) for name in NeuralRegressor().get_params()}
        )
        plain.hidden_sizes = tuple(2 * width for width in shape.hidden_sizes)
        plain._parameters = plain_parameters(
            shape,
            model.parameters,
            model.gates,
            row,
            model.scale.transform_y(self.anchors_y_.reshape(len(self.anchors_y_), -1)[anchor]),
        )
        plain._shape = shape._replace(hidden_sizes=plain.hidden_sizes, twin=False)._asdict()
        same = ("_gates", "_scale", "_schema", "_one_dimensional", "member_weights_", "n_members_")
        for name in (*same, "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(plain, name, getattr(self, name))
        return plain

    def _make_model(self) -> NeuralDifferenceModel:
        return self._networks(NeuralDifferenceModel)

    def _to_rows(self, schema: TableSchema, matrix: Floats) -> Rows:
        return Scale(*self._scale).transform(schema.to_rows(matrix))
