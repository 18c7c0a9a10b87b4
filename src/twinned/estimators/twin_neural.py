"""TwinNeuralRegressor: twin neural network regression."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.neural_base import BaseNeural
from twinned.fitted.anchors import Anchors
from twinned.models.neural.difference_model import NeuralDifferenceModel
from twinned.models.neural.fitting import TrainedEnsemble
from twinned.models.neural.fixed_anchor import plain_parameters
from twinned.models.neural.problem import Scale, TrainingProblem
from twinned.pairing.anchors import as_anchor_strategy, check_stored
from twinned.rows.validation import check_integer


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
    >>> from twinned import TwinNeuralRegressor
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(80, random_state=0)
    >>> twin = TwinNeuralRegressor((32, 32), n_members=2, max_steps=400, random_state=0)
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
        fold_steps: int | None = None,
        pairs: Any = "auto",
        anchors: Any = "all",
        weights: Any = "uniform",
        activation: str = "silu",
        embedding: str | float | None = "auto",
        n_frequencies: int | None = None,
        max_features: int | None = 240,
        learning_rate: float | None = None,
        dropout: float | None = None,
        weight_decay: float | None = None,
        optimizer: str = "adamw",
        loop_weight: float = 0.0,
        validation_fraction: float = 0.1,
        selection: str = "greedy",
        recipe: str = "modern",
        scaling: str = "auto",
        max_epochs: int | None = None,
        patience: int | None = None,
        categorical_features: Any = "from_dtype",
        device: str = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = "512MB",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        given = locals()
        super().__init__(**{name: given[name] for name in signature(BaseNeural).parameters})
        self.pairs = pairs
        self.anchors = anchors
        self.weights = weights
        self.loop_weight = loop_weight

    def _set_fitted(self, problem: TrainingProblem, ensemble: TrainedEnsemble) -> None:
        super()._set_fitted(problem, ensemble)
        table = problem.table
        self.n_pairs_ = problem.n_pairs
        self._pair_dtype = np.dtype(np.float64)
        known, bounds = table.known, table.bounds
        rows = as_anchor_strategy(self.anchors).store(
            len(known), np.random.RandomState(problem.seed)
        )
        rows = known[check_stored(rows, len(known))]
        labels = table.labels
        anchors = Anchors(
            table.schema,
            table.matrix[rows],
            table.target[rows],
            None if table.weight is None else table.weight[rows],
            None if labels is None else [labels[i] for i in rows],
            self._row_scale(),
            None if bounds is None else table.matrix[bounds.censored],
            problem.learned_metric,
            self.n_jobs,
        )
        self._set_anchors(anchors, table.indices[rows])

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
        shape, row = model.shape, model.matrix(self._anchors.rows.take([anchor]))[0]
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
        for name in (*same, "selected_features_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(plain, name, getattr(self, name))
        return plain

    def _make_model(self) -> NeuralDifferenceModel:
        return self._networks(NeuralDifferenceModel)

    def _row_scale(self) -> Scale:
        return Scale(*self._scale)
