"""NeuralRegressor: the same network and training on y itself, the fair baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from twinned._table import Floats
from twinned._validation import check_bool, restore_on_failure, validate_table
from twinned.models.neural.fitting import Fitted, fit_prepared, on_device
from twinned.models.neural.inference import plain_values
from twinned.models.neural.members import padded, settle_members
from twinned.models.neural.network import Shape
from twinned.models.neural.problem import Prepared, Scale, prepare
from twinned.models.neural.published import published_settings

_ROWS = 4096  # queries at once


class NeuralRegressor(RegressorMixin, BaseEstimator):
    """An ensemble of plain networks, trained as `TwinNeuralRegressor` trains its twins.

    The parameters mean what they mean there; `batch_size` counts points instead of pairs.
    """

    def __init__(
        self,
        hidden_sizes: Any = (128, 128),
        *,
        effort: str = "balanced",
        n_members: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        n_folds: int | None = None,
        activation: str = "silu",
        embedding: Any = "auto",
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
        random_state: Any = None,
        progress: bool = False,
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
        self.random_state = random_state
        self.progress = progress

    @classmethod
    def as_published(cls, **overrides: Any) -> NeuralRegressor:
        """The paper's network, trained as the author's code trains it.

        The ANN of the paper; as `TwinNeuralRegressor.as_published`, on y itself.
        """
        return cls(**{**published_settings(False, "published"), **overrides})

    @classmethod
    def as_written(cls, **overrides: Any) -> NeuralRegressor:
        """The same as the paper's text has it; where that is silent, as the code has it.

        So at most 2,000 epochs instead of 10,000.
        """
        return cls(**{**published_settings(False, "written"), **overrides})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None
    ) -> NeuralRegressor:
        """Train the members and choose among them; as `TwinNeuralRegressor.fit`."""
        with restore_on_failure(self):
            problem = prepare(self, X, y, sample_weight, X_val, y_val, twin=False)
            self._settle(problem, fit_prepared(self, [problem], twin=False)[0])
        return self

    def _settle(self, problem: Prepared, fitted: Fitted) -> None:
        settle_members(self, problem, fitted, twin=False)
        self._one_dimensional = problem.target.ndim == 1

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The weighted mean over members and, where `return_std`, their spread."""
        check_bool("return_std", return_std)
        means, spreads = [], []
        for members in self._member_values(X):
            weights = self.member_weights_[:, None, None]
            mean = (weights * members).sum(axis=0)
            means.append(mean)
            spreads.append(np.sqrt((weights * (members - mean) ** 2).sum(axis=0)))
        column = 0 if self._one_dimensional else slice(None)
        mean, spread = np.concatenate(means)[:, column], np.concatenate(spreads)[:, column]
        return (mean, spread) if return_std else mean

    def _member_values(self, X: Any) -> Iterator[Floats]:
        """Blocks (member, row, output) of what each member says, in units of y."""
        check_is_fitted(self)
        matrix, columns = validate_table(
            self, X, self._schema, allow_nan=False, pair_dtype=np.dtype(np.float64)
        )
        scale = Scale(*self._scale)
        wide = padded(scale.to_rows(columns.to_rows(matrix)).features, self._shape["n_features"])
        for low in range(0, len(wide), _ROWS):
            with on_device(self.device):
                members = plain_values(
                    Shape(**self._shape), self._parameters, self._embedded, wide[low : low + _ROWS]
                )
            yield members.astype(np.float64) * scale.y_spread + scale.y_mean
