"""TwinNeuralRegressor: twin neural network regression."""

from __future__ import annotations

import numpy as np

from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import BaseNeural
from twinned.models.neural.difference_model import NeuralDifferenceModel
from twinned.models.neural.fitting import TrainedEnsemble
from twinned.models.neural.problem import Scale, TrainingProblem
from twinned.pairing.anchors import as_anchor_strategy, check_stored
from twinned.rows.schema import Floats, Rows, TableSchema


class TwinNeuralRegressor(BaseNeural, BaseTwin):
    """An ensemble of networks that predict differences between points.

    Each member is a network F(a, b), trained so that ½F(a, b) − ½F(b, a) is y(a) − y(b); a point
    is predicted from all its anchors by all members. Members differ in their settings (learning
    rate, dropout, weight decay, periodic embedding and scale of the features), which are selected
    by out-of-fold predictions; then the members are trained on all rows.

    Parameters
    ----------
    {shared parameters}
    pairs : {"auto", "all"}, int or strategy, default="auto"
        The pairs to train on. `"auto"` is `"all"`: pairs are drawn while training and never
        stored, so n² of them cost no more than a few.
    anchors : "all" or strategy, default="all"
        The anchors of each query, as in `TwinRegressor`; distances are measured on scaled features.
    weights : {"uniform", "distance"}, strategy or callable, default="uniform"
        The weights of the anchors, as in `TwinRegressor`.
    loop_weight : float, default=0.0
        Weight of the loop loss: differences around loops of three points must sum to zero. If it
        is positive, rows with y = NaN are unlabelled, and loops include them.

    Attributes
    ----------
    anchors_X_, anchors_y_, feature_relevance_, n_features_in_, feature_names_in_
        As in `TwinRegressor`.
    n_pairs_ : int
        Number of pairs of distinct rows that training draws from, mirror images counted.
    {shared attributes}

    Examples
    --------
    >>> from twinned import NeuralTraining, TwinNeuralRegressor
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(80, random_state=0)
    >>> short = NeuralTraining(max_steps=400)
    >>> twin = TwinNeuralRegressor((32, 32), n_members=2, training=short, random_state=0)
    >>> mean, std = twin.fit(X[:60], y[:60]).predict(X[60:], return_std=True)
    >>> float(np.abs(mean - y[60:]).mean() / y[60:].std()) < 0.2
    True
    """

    symmetric = True
    is_twin = True

    def __init__(
        self,
        hidden_sizes=(128, 128),
        *,
        effort="balanced",
        n_members=None,
        pairs="auto",
        anchors="all",
        weights="uniform",
        loop_weight=0.0,
        training=None,
        categorical_features="from_dtype",
        device="auto",
        n_jobs=None,
        memory_limit="512MB",
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            hidden_sizes,
            effort=effort,
            n_members=n_members,
            training=training,
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

    def set_networks(self, problem: TrainingProblem, ensemble: TrainedEnsemble) -> None:
        """Set the fitted attributes from trained networks, and store the anchors."""
        super().set_networks(problem, ensemble)
        table, learned = problem.table, problem.learned_metric
        self.n_pairs_ = problem.n_pairs
        self._learned_metric = None if learned is None else tuple(learned)
        self._pair_dtype = np.dtype(np.float64)
        n_known, rng = len(table.known_rows), np.random.RandomState(problem.seed)
        stored = as_anchor_strategy(self.anchors).store(n_known, rng)
        rows = table.known_rows[check_stored(stored, n_known)]
        weight = None if table.weight is None else table.weight[rows]
        self._set_anchors(
            table.matrix[rows], table.target[rows], weight, table.schema, table.indices[rows]
        )
        bounds = table.bounds
        self._censored_X = None if bounds is None else table.matrix[bounds.censored]

    def _make_model(self) -> NeuralDifferenceModel:
        return self._networks(NeuralDifferenceModel)

    def _to_rows(self, schema: TableSchema, matrix: Floats) -> Rows:
        return Scale(*self._scale).transform(schema.to_rows(matrix))
