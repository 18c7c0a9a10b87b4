"""NeuralRegressor: an ensemble of plain networks, and what it shares with the neural twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from twinned._compat import BaseEstimator, RegressorMixin
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.neural.network import Shape
from twinned.models.neural.parameters import NeuralTraining
from twinned.models.neural.problem import TrainingProblem, build_problem
from twinned.models.resources import limit_threads, map_row_blocks, parse_memory_limit
from twinned.pairing.differences import combine
from twinned.rows.dask import predict_lazily
from twinned.rows.folds import Folds
from twinned.rows.schema import Floats, Indices, TableSchema, is_dask
from twinned.rows.validation import (
    check_bool,
    check_predictions,
    restore_on_failure,
    validate_table,
)

if TYPE_CHECKING:
    from twinned.models.neural.selection import TrainedEnsemble


@dataclass(eq=False, repr=False)
class BaseNeural(BaseEstimator):
    """An ensemble of networks, of differences or of y itself: what both estimators share."""

    is_twin = False

    hidden_sizes: Sequence[int] = (128, 128)
    _: KW_ONLY
    effort: str = "balanced"
    n_members: int | None = None
    training: NeuralTraining | None = None
    categorical_features: str | Sequence[int | str] | None = "from_dtype"
    device: str = "auto"
    n_jobs: int | None = None
    memory_limit: int | str | None = "512MB"
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        y_lower: ArrayLike | None = None,
        y_upper: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Train the members and select among them.

        Parameters
        ----------
        X : table or array of shape (n_samples, n_features)
            The training points.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Their values.
        sample_weight : array of shape (n_samples,), default=None
            Weights of the rows. The weight of a pair is the product of two, that of an anchor is
            its own.
        X_val, y_val : like X and y, default=None
            Validation set for early stopping and selection, instead of held-out rows.
        y_lower, y_upper : arrays of shape (n_samples,), default=None
            Bounds of censored rows, whose y is NaN, as in `TwinRegressor`. The loss of a pair with
            a censored row, or of a censored row itself, is the squared distance of its prediction
            to the interval that the bounds leave. Censored rows are no anchors.

        Returns
        -------
        self
        """
        bounds = {"y_lower": y_lower, "y_upper": y_upper}
        validation = {"X_val": X_val, "y_val": y_val}
        self._fit_problem(X, y, sample_weight=sample_weight, **bounds, **validation)
        return self

    def fit_with_folds(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        folds: Folds,
        **bounds: ArrayLike | None,
    ) -> Self:
        """Fit with given folds, for comparable out-of-fold predictions."""
        self._fit_problem(X, y, sample_weight=sample_weight, folds=folds, **bounds)
        return self

    def _fit_problem(self, X, y, **options):
        """Fit, and return the problem and its trained ensemble."""
        from twinned.models.neural.fitting import fit_problems

        with restore_on_failure(self), limit_threads(self.n_jobs):
            problem = build_problem(self, X, y, **options)
            ensemble = fit_problems([problem])[0]
            self.set_networks(problem, ensemble)
        return problem, ensemble

    def set_networks(self, problem: TrainingProblem, ensemble: TrainedEnsemble) -> None:
        """Set the fitted attributes from networks that were trained on a problem of this estimator.

        `twinned.neural.fit_many` trains many problems at once; other trainings of the same networks
        may use it, too.
        """
        self._parameters = ensemble.networks.parameters
        self._shape = asdict(ensemble.networks.shape)
        self._scale = problem.scale
        self._schema = problem.table.schema
        self.selected_features_: Indices = problem.selected
        self._one_dimensional = problem.table.y.ndim == 1
        self.member_weights_: Floats = ensemble.weights
        self.n_members_: int = ensemble.n_members
        self.learning_curve_: Floats = ensemble.learning_curve
        predicted = ensemble.out_of_fold
        self.out_of_fold_prediction_: Floats | None = (
            None if predicted is None else self._shaped(predicted)
        )

    @property
    def schema_(self) -> TableSchema:
        """Kinds and categories of the features."""
        return self._schema

    def _shaped(self, values: Floats) -> Floats:
        """Drop the output axis where y had none."""
        return values[..., 0] if self._one_dimensional else values

    def networks(self) -> Any:
        """The trained networks: a `NeuralDifferenceModel` of a twin, else `PlainNetworks`."""
        kind = NeuralDifferenceModel if self.is_twin else PlainNetworks
        selected = self.selected_features_
        is_complete = len(selected) == self._schema.n_features
        return kind(
            shape=Shape(**self._shape),
            parameters=self._parameters,
            scale=self._scale,
            member_weights=self.member_weights_,
            device=self.device,
            n_jobs=self.n_jobs,
            memory_limit=parse_memory_limit(self.memory_limit),
            columns=None if is_complete else self._schema.encoded_columns(selected),
        )


class NeuralRegressor(RegressorMixin, BaseNeural):
    """An ensemble of plain networks, trained as `TwinNeuralRegressor` trains its twins.

    Members differ in their settings (learning rate, dropout, weight decay, periodic embedding and
    scale of the features), which are selected by out-of-fold predictions; then the members are
    trained on all rows.

    Parameters
    ----------
    hidden_sizes : sequence of int, default=(128, 128)
        The widths of the hidden layers.
    effort : {"small", "fast", "balanced", "thorough"}, default="balanced"
        Sets the values for None of `n_members` (2, 3, 7, 14) and of the steps, folds and pairs of
        `training`, and the number of settings (2, 3, 6, 8; at most `n_members`).
    n_members : int or None, default=None
        Number of networks of the ensemble, which are trained on all rows.
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
    n_features_in_, feature_names_in_
        As in scikit-learn.
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
    >>> from twinned import NeuralRegressor
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(80, random_state=0)
    >>> model = NeuralRegressor((16,), effort="fast", n_members=2, random_state=0).fit(X, y)
    >>> model.predict(X).shape
    (80,)
    """

    @property
    def n_outputs_(self) -> int | None:
        """The number of outputs, or None where y is one-dimensional."""
        return None if self._one_dimensional else int(self._shape["n_outputs"])

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Floats: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Floats, Floats]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
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
            return predict_lazily(self, X, return_std, self.n_outputs_)

        def mean_and_std(members):  # as of a single anchor
            return combine(members[:, :, None], self.member_weights_, None)

        parts = zip(*self._map_members(mean_and_std, X), strict=True)
        mean, std = (self._shaped(check_predictions(np.concatenate(part))) for part in parts)
        return (mean, std) if return_std else mean

    def predict_members(self, X: ArrayLike) -> Floats:
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

    def _map_members(self, function, X):
        """Apply a function to blocks (member, query, output) of the members' predictions."""
        matrix, schema = validate_table(self, X, self._schema, np.dtype(np.float64))
        networks = self.networks()

        def one_block(rows):
            queries = networks.scale.transform(schema.to_rows(matrix[rows]))
            return function(networks.predict(queries))

        n_rows = networks.queries_per_block(self.n_jobs)
        return map_row_blocks(one_block, len(matrix), n_rows, self.n_jobs)
