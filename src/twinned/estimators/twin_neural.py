"""TwinNeuralRegressor: twin neural network regression."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import BaseNeural
from twinned.fitted.anchors import Anchors
from twinned.fitted.held_out import with_residuals
from twinned.fitted.twin import FittedTwin
from twinned.fitted.updating import update_effects
from twinned.models.neural.inputs import Scale
from twinned.models.neural.problem import TrainingProblem, build_problem_of_rows
from twinned.models.resources import MemoryBudget, limit_threads, parse_memory_limit
from twinned.pairing.anchors import AnchorStrategy, WeightStrategy, as_weight_strategy, draw_anchors
from twinned.pairing.pairs import PairStrategy
from twinned.rows.training import TrainingRows

if TYPE_CHECKING:
    from twinned.models.neural.selection import TrainedEnsemble


@dataclass(eq=False, repr=False)
class TwinNeuralRegressor(BaseNeural, BaseTwin):
    """An ensemble of networks that predict differences between points.

    Each member is a network F(a, b), trained so that ½F(a, b) − ½F(b, a) is y(a) − y(b); a point
    is predicted from all its anchors by all members. Members differ in their settings (learning
    rate, dropout, weight decay, periodic embedding and scale of the features), which are selected
    by out-of-fold predictions; then the members are trained on all rows.

    Parameters
    ----------
    hidden_sizes : sequence of int, default=(128, 128)
        The widths of the hidden layers.
    effort : {"small", "fast", "balanced", "thorough"}, default="balanced"
        Sets the values for None of `n_members` (2, 3, 7, 14) and of the steps, folds and pairs of
        `training`, and the number of settings (2, 3, 6, 8; at most `n_members`).
    n_members : int or None, default=None
        Number of networks of the ensemble, which are trained on all rows.
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
    batch_effect : {"offset", "function", "auto"}, default="offset"
        As in `TwinRegressor`.
    training : NeuralTraining or None, default=None
        Details of the training, such as `NeuralTraining(max_steps=500, learning_rate=1e-3)`; None
        is what `effort` sets. They are searched as `training__learning_rate`.
    categorical_features : {"from_dtype"}, list or None, default="from_dtype"
        As in `TwinRegressor`; categories are one-hot encoded. A missing number is replaced by the
        median of the training rows, and a further input marks it where training rows have missing
        values of the feature; missing and new categories are one further category.
    device : {"auto", "cpu", "gpu"}, default="auto"
        Where to train and predict.
    n_jobs : int or None, default=None
        Number of threads for training, the neighbor search and the blocks of `predict`. None means
        1, and −1 all cores. Compilation, which comes first, may use more, and so may networks on
        systems other than Linux.
    memory_limit : int, str or None, default="512MB"
        Bounds the memory of the blocks of `predict`: bytes, a string such as `"512MB"`, or None.
    random_state : int, RandomState or None, default=None
        Seed; the same seed on the same machine gives the same bits.
    verbose : int, default=0
        1 shows a progress bar while training.

    Attributes
    ----------
    anchors_X_, anchors_y_, feature_relevance_, n_features_in_, feature_names_in_
        As in `TwinRegressor`.
    n_pairs_ : int
        Number of pairs of distinct rows that training draws from, mirror images counted.
    n_members_ : int
        Number of networks of the ensemble.
    member_weights_ : ndarray
        The weights of the members that are used; they sum to one.
    selected_features_ : ndarray
        Indices of the features that the members use (`max_features` of `NeuralTraining`).
    learning_curve_ : ndarray of shape (n_networks, n_checks)
        Error of the held-out rows of each network that holds out rows.
    out_of_fold_prediction_ : ndarray like y, or None
        Out-of-fold prediction of each training row; NaN for rows without a label or a weight, and
        where all networks diverged. None with a single validation set. The networks that predict
        a row select their features and learn their relevance without it.

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

    _: KW_ONLY
    pairs: str | int | PairStrategy = "auto"
    anchors: str | AnchorStrategy = "all"
    weights: str | WeightStrategy = "uniform"
    loop_weight: float = 0.0
    batch_effect: str = "offset"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        batch: ArrayLike | None = None,
        y_lower: ArrayLike | None = None,
        y_upper: ArrayLike | None = None,
        y_std: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Train the members, as those of `NeuralRegressor`.

        `batch` and `y_std` are as in `TwinRegressor`.
        """
        bounds = {"y_lower": y_lower, "y_upper": y_upper, "y_std": y_std}
        validation = {"X_val": X_val, "y_val": y_val}
        self._fit_problem(X, y, sample_weight=sample_weight, batch=batch, **bounds, **validation)
        return self

    def fit_pairs(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """`fit`, which returns the problem and its trained ensemble for `refit_with`."""
        return self._fit_problem(X, y, sample_weight=sample_weight)

    def refit_with(self, training: Any, sides: Any, labels: Any) -> Any:
        """Train again with pairs with pseudo-labels, the members with the settings that they had.

        Residuals and out-of-fold predictions remain those of the first fit.
        """
        from twinned.models.neural.fitting import train_again

        problem, ensemble = training
        with limit_threads(self.n_jobs):
            problem = problem.with_pseudo_labels(sides, labels)
            self.set_networks(problem, train_again(problem, ensemble))

    def max_pseudo_pairs(self) -> int:
        """The number of pairs with pseudo-labels that fit into memory."""
        limit, targets = parse_memory_limit(self.memory_limit), self.fitted_.anchors.outputs
        values_per_pair = 2 * self.schema_.n_encoded + targets.shape[1]
        return 2**62 if limit is None else limit // ((8 + 4) * values_per_pair)

    def set_networks(self, problem: TrainingProblem, ensemble: TrainedEnsemble) -> None:
        """Set the fitted attributes from trained networks, and the fitted state."""
        super().set_networks(problem, ensemble)
        rows = problem.table
        self.n_pairs_: int = problem.n_pairs
        self._pair_dtype = np.dtype(np.float64)
        rng = np.random.RandomState(problem.seed)
        stored, nearest = draw_anchors(self.anchors, rows.known, rng)
        fitted = FittedTwin(
            model=self.networks(),
            anchors=Anchors.of_rows(
                rows.take(stored),
                censored_X=rows.censored_matrix,
                scale=self.row_scale(),
                learned_metric=problem.learned_metric,
                n_jobs=self.n_jobs,
            ).prepare(nearest),
            nearest=nearest,
            weight_strategy=as_weight_strategy(self.weights),
            budget=MemoryBudget(self.memory_limit, self.n_jobs),
        )
        predicted = self.out_of_fold_prediction_
        if predicted is not None:
            predicted = predicted[fitted.anchors.table_rows]
            if np.isfinite(predicted).all():
                fitted = with_residuals(fitted, predicted)
        self._fitted = update_effects(fitted, rows.effects)

    def condense_anchors(self, n_anchors: int) -> None:
        """Keep some anchors, with predicted instead of known values; predictions hardly change.

        Known values of so few anchors would add their errors to all predictions.
        """
        fitted = self.fitted_
        kept = np.unique(np.linspace(0, len(fitted.anchors) - 1, n_anchors).astype(np.intp))
        anchors = fitted.anchors.take(kept)
        predicted = fitted.squeeze(fitted.moments(fitted.queries(anchors.matrix))[0])
        self._fitted = replace(fitted, anchors=replace(anchors, y=predicted), residuals=None)

    def row_scale(self) -> Scale:
        """The scale of the features that the networks are trained on."""
        return self._scale

    def refit(self, rows: TrainingRows, *, for_fold: bool = False) -> Self:
        """A twin of the same parameters, fitted to some of the rows of this one."""
        from twinned.models.neural.fitting import fit_problems

        twin = self.unfitted_copy()
        with limit_threads(twin.n_jobs):
            problem = build_problem_of_rows(twin, rows)
            twin.set_networks(problem, fit_problems([problem])[0])
        return twin
