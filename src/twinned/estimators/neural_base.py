"""The parameters and the training that both neural estimators share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from twinned._validation import parse_memory_limit, restore_on_failure
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.neural.fitting import TrainedEnsemble, fit_problems
from twinned.models.neural.network import Shape
from twinned.models.neural.problem import Scale, TrainingProblem, build_problem
from twinned.models.neural.published import published_parameters

Networks = TypeVar("Networks", NeuralDifferenceModel, PlainNetworks)


class BaseNeural(BaseEstimator):
    """An ensemble of networks, of differences or of y itself; see the subclasses."""

    _twin: bool

    def __init__(
        self,
        hidden_sizes: Sequence[int] = (128, 128),
        *,
        effort: str = "balanced",
        n_members: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        n_folds: int | None = None,
        activation: str = "silu",
        embedding: str | float | None = "auto",
        n_frequencies: int = 16,
        learning_rate: float | None = None,
        dropout: float | None = None,
        weight_decay: float | None = None,
        optimizer: str = "adamw",
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
        self.hidden_sizes = hidden_sizes
        self.effort = effort
        self.n_members = n_members
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.n_folds = n_folds
        self.activation = activation
        self.embedding = embedding
        self.n_frequencies = n_frequencies
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
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None
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
            Validation set for early stopping and selection, in place of held-out rows.

        Returns
        -------
        self
        """
        with restore_on_failure(self):
            problem = build_problem(self, X, y, sample_weight, X_val, y_val, twin=self._twin)
            self._set_fitted(problem, fit_problems(self, [problem], self._twin)[0])
        return self

    def _set_fitted(self, problem: TrainingProblem, ensemble: TrainedEnsemble) -> None:
        """Set the fitted attributes."""
        self._parameters = ensemble.parameters
        self._gates = ensemble.gates
        self._shape = ensemble.shape._asdict()
        self._scale = tuple(problem.scale)
        self._schema = problem.table.schema
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
        return kind(
            shape=Shape(**self._shape),
            parameters=self._parameters,
            gates=self._gates,
            scale=Scale(*self._scale),
            member_weights=self.member_weights_,
            device=self.device,
            memory_limit=parse_memory_limit(self.memory_limit),
        )
