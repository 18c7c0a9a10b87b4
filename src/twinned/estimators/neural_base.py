"""The parameters and the training that both neural estimators share."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import cleandoc
from typing import Any, Self, TypeVar

from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.neural.fitting import TrainedEnsemble, fit_problems
from twinned.models.neural.network import Shape
from twinned.models.neural.problem import Scale, TrainingProblem, build_problem
from twinned.models.neural.published import published_parameters
from twinned.models.resources import limit_threads, parse_memory_limit
from twinned.rows.neighbors import Indices
from twinned.rows.validation import restore_on_failure

Networks = TypeVar("Networks", NeuralDifferenceModel, PlainNetworks)


class BaseNeural(BaseEstimator):
    """An ensemble of networks, of differences or of y itself.

    The parameters and attributes below become part of the documentation of each subclass.

    Parameters
    ----------
    hidden_sizes : sequence of int, default=(128, 128)
        The widths of the hidden layers.
    effort : {"fast", "balanced", "thorough"}, default="balanced"
        Sets the values for None of `n_members` (3, 7, 14), `max_steps` (1000, 3200, 6000),
        `batch_size` (96, 96, 192), `n_folds` (2, 5, 5; at most `n_members`) and `fold_steps`
        (400, 800, 4500; at most `max_steps`), and the number of settings (3, 6, 8; at most
        `n_members`).
    n_members : int or None, default=None
        Number of networks of the ensemble, which are trained on all rows.
    max_steps : int or None, default=None
        Number of training steps of each of them. With `effort="fast"`, None is 1,000, and 600 for
        more than 24 encoded features.
    batch_size : int or None, default=None
        Number of pairs per step, each in both orders; for plain networks, of rows.
    n_folds : int or None, default=None
        Number of folds of the rows. For each setting and fold, a network that holds out the fold
        is trained; by the out-of-fold predictions the settings of the members are selected. With
        1, the members themselves hold out the same `validation_fraction`.
    fold_steps : int or None, default=None
        Number of training steps of the networks that hold out a fold. As many as `max_steps` make
        `out_of_fold_prediction_` as accurate as the members; fewer are enough to select settings.
    activation : {"silu", "relu", "mish", "tanh"}, default="silu"
        The activation function of the hidden layers.
    embedding : "auto", float or None, default="auto"
        Scale of the random frequencies of the periodic embedding sin(2πfx), cos(2πfx) of the
        features; `"auto"` differs between members, None is no embedding.
    n_frequencies : int or None, default=None
        Number of frequencies per feature. None is 16 for up to 24 encoded features; for more, 96
        divided by their number, and so none for more than 96.
    max_features : int or None, default=240
        Maximum number of features that the networks use. Of a table of more than 60, constant
        features and copies of others are dropped, and the least relevant ones beyond this number,
        by the importances of a small forest of extremely randomized trees on the training rows.
        Settings are then tried with the 60 most relevant features, and with all that remain. None
        uses all features, without any selection (`benchmarks/results/wide.md`).
    learning_rate : float or None, default=None
        Initial learning rate of all members; None differs between members.
    dropout : float or None, default=None
        Dropout rate of all members; None differs between members.
    weight_decay : float or None, default=None
        Weight decay of all members; None differs between members.
    optimizer : {"adamw", "adadelta"}, default="adamw"
        The optimizer.
    validation_fraction : float, default=0.1
        Share of the rows to hold out where `n_folds` is 1 and `fit` gets no validation set; by
        their error training stops early.
    selection : {"greedy", "mean"}, default="greedy"
        Weights of the settings: by greedy selection on their out-of-fold predictions, or equal.
    recipe : {"modern", "published", "written"}, default="modern"
        `"published"` trains as the paper's code does and `"written"` as its text describes it; see
        `as_published`. Both count epochs, and ignore `max_steps`.
    scaling : {"auto", "standard", "relevance", "signed_max"}, default="auto"
        `"standard"` scales X and y to mean 0 and standard deviation 1; `"relevance"` then divides
        each feature by its length scale in a Gaussian process; `"auto"` differs between members.
        `"signed_max"` subtracts the mean of X, divides by the largest excess over it, and leaves y
        as it is.
    max_epochs : int or None, default=None
        Largest number of epochs of the paper's recipes; None is the recipe's own.
    patience : int or None, default=None
        Epochs without a lower validation loss that end training in the paper's recipes; None is
        the recipe's own.
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
    n_members_ : int
        Number of networks of the ensemble.
    member_weights_ : ndarray
        The weights of the members that are used; they sum to one.
    selected_features_ : ndarray
        Indices of the features that the members use (see `max_features`).
    learning_curve_ : ndarray of shape (n_networks, n_checks)
        Error of the held-out rows of each network that holds out rows.
    out_of_fold_prediction_ : ndarray like y, or None
        Out-of-fold prediction of each training row; NaN for rows without a label or a weight, and
        where all networks diverged. None with a single validation set. The networks that predict
        a row select their features (see `max_features`) and learn their relevance without it.
    """

    _twin: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__doc__ and BaseNeural.__doc__:
            # `cleandoc`: from Python 3.13 on, docstrings come without their indentation
            _, parameters, attributes = cleandoc(BaseNeural.__doc__).split("----------\n")
            parameters = parameters.partition("\n\n")[0]
            documentation = cleandoc(cls.__doc__).replace("{shared parameters}", parameters)
            cls.__doc__ = documentation.replace("{shared attributes}", attributes)

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
        activation: str = "silu",
        embedding: str | float | None = "auto",
        n_frequencies: int | None = None,
        max_features: int | None = 240,
        learning_rate: float | None = None,
        dropout: float | None = None,
        weight_decay: float | None = None,
        optimizer: str = "adamw",
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
        self.hidden_sizes = hidden_sizes
        self.effort = effort
        self.n_members = n_members
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.n_folds = n_folds
        self.fold_steps = fold_steps
        self.activation = activation
        self.embedding = embedding
        self.n_frequencies = n_frequencies
        self.max_features = max_features
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.validation_fraction = validation_fraction
        self.selection = selection
        self.recipe = recipe
        self.scaling = scaling
        self.max_epochs = max_epochs
        self.patience = patience
        self.categorical_features = categorical_features
        self.device = device
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def as_published(cls, **overrides: Any) -> Self:
        """Return the paper's network, trained as the author's code trains it.

        Adadelta at rate 1, which halves when the training loss stops falling, X divided by its
        signed maximum, y as it is, one network that stops by its validation loss and keeps its
        last parameters. Twins are trained on triples of points; at most 2,000 epochs for twins,
        10,000 for plain networks. Give `fit` the paper's validation rows as X_val and y_val.

        Parameters
        ----------
        **overrides
            Any parameters of the constructor: `as_published(anchors=NearestAnchors(16),
            pairs=NearestPairs(16, include_self=True))` is the paper's nearest-neighbor twin.
        """
        return cls(**{**published_parameters(cls._twin, "published"), **overrides})

    @classmethod
    def as_written(cls, **overrides: Any) -> Self:
        """Return the paper's network, trained as the paper's text describes it.

        As `as_published`, but twins are trained on pairs instead of triples, and there are at most
        10,000 epochs for twins and 2,000 for plain networks.
        """
        return cls(**{**published_parameters(cls._twin, "written"), **overrides})

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        y_lower: Any = None,
        y_upper: Any = None,
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
        with restore_on_failure(self), limit_threads(self.n_jobs):
            self._fit_problem(
                build_problem(
                    self, X, y, sample_weight, X_val, y_val, y_lower, y_upper, twin=self._twin
                )
            )
        return self

    def _fit_with_folds(
        self, X: Any, y: Any, sample_weight: Any, fold_of_row: Indices, **bounds: Any
    ) -> Self:
        """Fit with the fold of each row given, for comparable out-of-fold predictions."""
        with restore_on_failure(self), limit_threads(self.n_jobs):
            fold = {"fold_of_row": fold_of_row, **bounds}
            self._fit_problem(build_problem(self, X, y, sample_weight, twin=self._twin, **fold))
        return self

    def _fit_problem(self, problem: TrainingProblem) -> None:
        self._set_fitted(problem, fit_problems(self, [problem], self._twin)[0])

    def _set_fitted(self, problem: TrainingProblem, ensemble: TrainedEnsemble) -> None:
        """Set the fitted attributes."""
        self._parameters = ensemble.parameters
        self._gates = ensemble.gates
        self._shape = ensemble.shape._asdict()
        self._scale = tuple(problem.scale)
        self._schema = problem.table.schema
        self.selected_features_ = problem.selected
        self._one_dimensional = problem.table.target.ndim == 1
        self.member_weights_ = ensemble.weights
        self.n_members_ = ensemble.n_members
        self.learning_curve_ = ensemble.learning_curve
        out_of_fold = ensemble.out_of_fold
        if out_of_fold is not None and self._one_dimensional:
            out_of_fold = out_of_fold[:, 0]
        self.out_of_fold_prediction_ = out_of_fold

    def _networks(self, kind: type[Networks]) -> Networks:
        """Return the trained networks as a model."""
        selected = self.selected_features_
        is_complete = len(selected) == self._schema.n_features
        return kind(
            shape=Shape(**self._shape),
            parameters=self._parameters,
            gates=self._gates,
            scale=Scale(*self._scale),
            member_weights=self.member_weights_,
            device=self.device,
            n_jobs=self.n_jobs,
            memory_limit=parse_memory_limit(self.memory_limit),
            columns=None if is_complete else self._schema.encoded_columns(selected),
        )
