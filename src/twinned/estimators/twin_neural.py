"""TwinNeuralRegressor: twin neural network regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from twinned._table import Floats, Rows, TableSchema
from twinned._validation import check_bool, check_integer, restore_on_failure
from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import NeuralRegressor
from twinned.models.neural.fitting import Fitted, fit_prepared, on_device
from twinned.models.neural.folding import fold_anchor
from twinned.models.neural.inference import (
    grid_differences,
    row_bytes,
    row_differences,
    some_differences,
)
from twinned.models.neural.members import padded, settle_members
from twinned.models.neural.network import Shape, platform
from twinned.models.neural.problem import Prepared, Scale, prepare
from twinned.models.neural.published import published_settings
from twinned.models.neural.reduce_anchors import mean_and_variance, room_for
from twinned.pairing.anchors import as_anchor_strategy, check_kept
from twinned.pairing.pairs import estimate
from twinned.pairing.weights import UniformWeights, as_weight_strategy

_GPU_PAIRS = 262_144  # at once, within `memory_limit`; a processor's cache holds far fewer


class TwinNeuralRegressor(BaseTwin):
    """An ensemble of networks that predict differences between points.

    Each member is a network F(a, b) whose prediction ½F(a, b) − ½F(b, a) is trained to be
    y(a) − y(b); a point is predicted from all its anchors by all members. Members differ in their
    settings (learning rate, dropout, weight decay, embedding of the features in waves) and in the
    fold of the training rows that they leave out, on which they stop early and are chosen.

    Parameters
    ----------
    hidden_sizes : tuple of int, default=(128, 128)
        The widths of the hidden layers.
    effort : {"fast", "balanced", "thorough"}, default="balanced"
        Sets what is left at None of `n_members` (6, 15, 40), `max_steps` (1000, 3200, 6000),
        `batch_size` (128, 128, 256) and `n_folds` (at most 2, 5, 5).
    n_members, max_steps, batch_size, n_folds : int or None, default=None
        How many networks; how many steps each trains; how many pairs a step, each in both orders;
        how many folds the members leave out in turn (1: all leave out the same
        `validation_fraction`).
    pairs : {"auto", "all"}, int or strategy, default="auto"
        Which pairs are learned. `"auto"` is `"all"`: pairs are drawn while training and never
        stored, so n² of them cost no more than a few.
    anchors, weights
        As in `TwinRegressor`. Distances are measured on scaled features.
    activation : {"silu", "relu", "mish", "tanh"}, default="silu"
        The activation function.
    embedding : "auto", float or None, default="auto"
        The scale of the frequencies of the waves in which features are embedded; None for none.
    n_frequencies : int, default=16
        How many waves a feature.
    learning_rate, dropout, weight_decay : float or None, default=None
        One value for all members, in place of the ensemble's own settings.
    optimizer : {"adamw", "adadelta"}, default="adamw"
        The direction of a step.
    loop_weight : float, default=0.0
        Weight of the loop loss: differences around loops of three points must sum to zero. Where
        it is positive, rows whose y is NaN are unlabelled: loops go through them too.
    validation_fraction : float, default=0.1
        What is left out where `n_folds` is 1 and `fit` got no validation set.
    selection : {"greedy", "mean"}, default="greedy"
        How settings are weighed by their predictions of left-out rows.
    recipe : {"modern", "published", "written"}, default="modern"
        `"published"` trains as the paper's code does and `"written"` as its text says; see
        `as_published`. Both count epochs instead of steps: `max_steps` means nothing to them.
    scaling : {"standard", "signed_max"}, default="standard"
        X and y to mean 0 and spread 1; or X minus its mean, by the largest excess over it, and y as
        it is.
    max_epochs, patience : int or None, default=None
        For the paper's recipes: at most so many epochs, and how many without a lower validation
        loss end training. None is the recipe's own.
    categorical_features : {"from_dtype"}, list or None, default="from_dtype"
        As in `TwinRegressor`; names enter as indicators.
    device : {"auto", "cpu", "gpu"}, default="auto"
        Where to train and predict.
    memory_limit : int, str or None, default="512MB"
        Bounds the blocks of `predict`.
    random_state : int, RandomState or None, default=None
        The same seed on the same machine gives the same bits.
    progress : bool, default=False
        Show a progress bar while training.

    Attributes
    ----------
    anchors_X_, anchors_y_, n_features_in_, feature_names_in_
        As in `TwinRegressor`.
    n_pairs_ : int
        The pairs of distinct rows that training draws from, mirror images counted.
    n_members_ : int
        How many networks were trained.
    member_weights_ : ndarray
        The weights of the members that were kept; they sum to one.
    learning_curve_ : ndarray of shape (n_members_, n_checks)
        The error of anchored predictions of the rows that each member left out.
    out_of_fold_prediction_ : ndarray like y, or None
        A prediction of each training row by the members that left it out; NaN for rows that had no
        label or no weight.

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
    n_jobs = None

    def __init__(
        self,
        hidden_sizes: Any = (128, 128),
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
        embedding: Any = "auto",
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
        memory_limit: Any = "512MB",
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.hidden_sizes = hidden_sizes
        self.effort = effort
        self.n_members = n_members
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.n_folds = n_folds
        self.pairs = pairs
        self.anchors = anchors
        self.weights = weights
        self.activation = activation
        self.embedding = embedding
        self.n_frequencies = n_frequencies
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.loop_weight = loop_weight
        self.validation_fraction = validation_fraction
        self.selection = selection
        self.recipe = recipe
        self.scaling = scaling
        self.max_epochs = max_epochs
        self.patience = patience
        self.categorical_features = categorical_features
        self.device = device
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.progress = progress

    @classmethod
    def as_published(cls, **overrides: Any) -> TwinNeuralRegressor:
        """The paper's network, trained as the author's code trains it.

        Triples of points, Adadelta at rate 1 that halves when the training loss stops falling,
        X divided by its signed maximum, y as it is, one network that stops by its validation pairs
        and keeps its last weights. Give `fit` the paper's validation rows as X_val and y_val.
        `overrides` are any parameters: `as_published(anchors=NearestAnchors(16),
        pairs=NearestPairs(16, include_self=True))` is the paper's nearest-neighbor twin.
        """
        return cls(**{**published_settings(True, "published"), **overrides})

    @classmethod
    def as_written(cls, **overrides: Any) -> TwinNeuralRegressor:
        """The same as the paper's text has it; where that is silent, as the code has it.

        So pairs instead of triples, and at most 10,000 epochs instead of 2,000.
        """
        return cls(**{**published_settings(True, "written"), **overrides})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None
    ) -> TwinNeuralRegressor:
        """Train the members, choose among them, and keep the anchors.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            The known points.
        y : array of shape (n,) or (n, n_outputs)
            Their values.
        sample_weight : array of shape (n,), default=None
            A pair weighs the product of its two, an anchor its own.
        X_val, y_val : like X and y, default=None
            Stop and choose by these instead of by rows that are left out.
        """
        with restore_on_failure(self):
            problem = prepare(self, X, y, sample_weight, X_val, y_val, twin=True)
            self._settle(problem, fit_prepared(self, [problem], twin=True)[0])
        return self

    def _settle(self, problem: Prepared, fitted: Fitted) -> None:
        """Become the fitted estimator of a trained problem."""
        settle_members(self, problem, fitted, twin=True)
        self.n_pairs_ = fitted.n_pairs
        self._pair_dtype = np.dtype(np.float64)
        rows = as_anchor_strategy(self.anchors).keep(
            len(problem.matrix), np.random.RandomState(problem.seed)
        )
        rows = check_kept(rows, len(problem.matrix))
        weight = None if problem.weight is None else problem.weight[rows]
        self._remember(
            problem.matrix[rows], problem.target[rows], weight, problem.columns, problem.rows[rows]
        )

    def fold_anchor(self, anchor: int) -> NeuralRegressor:
        """The plain networks that this twin is for one fixed anchor.

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
        return _folded(self, anchor)

    # --- what BaseTwin asks -------------------------------------------------------------------

    def _as_points(self, columns: TableSchema, matrix: Floats) -> Rows:
        return Scale(*self._scale).to_rows(columns.to_rows(matrix))

    def _pair_bytes(self) -> int:
        # both orders of a pair, and a layer before and after its activation, in float32
        return 2 * 2 * 4 * max(self._shape["hidden_sizes"])

    def _pairs_per_block(self) -> int:
        most = super()._pairs_per_block()
        with on_device(self.device):
            if platform() != "cpu":
                most = _GPU_PAIRS
        # where no point is in two pairs, each has its own first layer; and each member its estimate
        each = self._pair_bytes() + 2 * row_bytes(Shape(**self._shape))
        each += 3 * 8 * len(self.member_weights_) * self._shape["n_outputs"]
        return self._within_limit(each, most)

    def _raw_differences(self, first: Rows, second: Rows) -> Floats:
        return self._differences(first, second)

    def _differences(self, first: Rows, second: Rows) -> Floats:
        members = self._member_differences(first, second)
        return np.tensordot(self.member_weights_, members, axes=1)

    def _member_differences(self, first: Rows, second: Rows) -> Floats:
        """(member, ..., output) antisymmetric differences in units of y."""
        a, b = (padded(side.features, self._shape["n_features"]) for side in (first, second))
        shape = Shape(**self._shape)
        is_grid = a.ndim == 3 and a.shape[1] == 1 and b.shape[0] == 1
        with on_device(self.device):
            if is_grid:
                out = grid_differences(shape, self._parameters, self._embedded, a[:, 0], b[0])
            else:
                leading = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
                rows = [
                    np.broadcast_to(side, (*leading, side.shape[-1])).reshape(-1, side.shape[-1])
                    for side in (a, b)
                ]
                out = row_differences(shape, self._parameters, self._embedded, *rows)
                out = out.reshape(len(out), *leading, -1)
        return out.astype(np.float64) * Scale(*self._scale).y_spread

    def _block_differences(self, block: Rows, selection: Any, some: slice) -> Floats:
        """(member, query, anchor, output) for `some` of the anchors of a block of queries."""
        if selection.indices is None:
            return self._member_differences(
                block.as_queries(), self._points.as_anchors().across(some)
            )
        rows, places = np.unique(selection.indices[:, some], return_inverse=True)
        a, b = (
            padded(x.features, self._shape["n_features"]) for x in (block, self._points.take(rows))
        )
        places = places.reshape(len(block), -1)
        with on_device(self.device):
            out = some_differences(
                Shape(**self._shape), self._parameters, self._embedded, a, b, places
            )
        return out.astype(np.float64) * Scale(*self._scale).y_spread

    # --- spread over anchors and members together ---------------------------------------------

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The weighted mean over anchors and members of difference + known value.

        With `return_std`, also the spread of all those estimates, a raw standard deviation.
        """
        check_is_fitted(self)
        nearest = as_anchor_strategy(self.anchors).nearest(len(self.anchors_X_))
        uniform = isinstance(as_weight_strategy(self.weights), UniformWeights)
        if nearest is not None or not uniform:
            return super().predict(X, return_std)
        # every query has the same anchors with the same weights: no estimate need be kept
        queries = self._open(X)
        check_bool("return_std", return_std)
        mean, spread = (self._shaped(part) for part in self._over_all_anchors(queries))
        return (mean, spread) if return_std else mean

    def _over_all_anchors(self, queries: Any) -> tuple[Floats, Floats]:
        """(query, output) mean and spread of the estimates of all anchors and members."""
        shape, scale = Shape(**self._shape), Scale(*self._scale)
        known = (self._anchors_y() - scale.y_mean) / scale.y_spread
        weight = np.ones(len(known)) if self._anchor_weight is None else self._anchor_weight
        anchors, known, weight = _merged(
            padded(self._points.features, shape.n_features), known, weight
        )
        members = (self._parameters, self._embedded, self.member_weights_)
        means, spreads = [], []
        with on_device(self.device):
            room = room_for(shape, self._within_limit)
            for low in range(0, len(queries), room.rows):
                block = padded(queries.take(slice(low, low + room.rows)).features, shape.n_features)
                mean, variance = mean_and_variance(
                    shape, members, block, anchors, known, weight, room
                )
                means.append(mean * scale.y_spread + scale.y_mean)
                spreads.append(np.sqrt(variance) * scale.y_spread)
        return np.concatenate(means), np.concatenate(spreads)

    def _combine(self, block: Rows, selection: Any, shortcut: Any = None) -> tuple[Floats, Floats]:
        known = self._across(selection)[1]
        step = max(1, self._pairs_per_block() // len(block))
        parts = [
            self._block_differences(block, selection, slice(i, i + step))
            for i in range(0, known.shape[-2], step)
        ]
        members = estimate(np.concatenate(parts, axis=2), known)
        of_members = self.member_weights_[:, None, None, None]
        estimates = (of_members * members).sum(axis=0)
        weights = self._weights(block, selection, estimates)
        if weights is None:
            weights = np.ones(estimates.shape[:2])
        share = (weights / weights.sum(axis=1, keepdims=True))[..., None]
        mean = (share * estimates).sum(axis=1)
        spread = (of_members * share * (members - mean[:, None]) ** 2).sum(axis=(0, 2))
        return mean, np.sqrt(spread)

    def predict_difference(self, A: Any, B: Any, return_std: bool = False) -> Any:
        """F(a, b), the predicted y(a) − y(b), row by row; exactly antisymmetric.

        With `return_std`, also its spread over the members.
        """
        check_bool("return_std", return_std)
        first, second = self._open_both(A, B)
        values, spreads = [], []
        weights = self.member_weights_[:, None, None]
        for rows in self._row_blocks(len(first)):
            members = self._member_differences(first.take(rows), second.take(rows))
            mean = (weights * members).sum(axis=0)
            values.append(mean)
            spreads.append(np.sqrt((weights * (members - mean) ** 2).sum(axis=0)))
        value = self._shaped(np.concatenate(values))
        return (value, self._shaped(np.concatenate(spreads))) if return_std else value


def _merged(anchors: Any, known: Floats, weight: Floats) -> tuple[Any, Any, Any]:
    """Each anchor once, in a fixed order: a row that is repeated is a row of that weight.

    In single precision the order of a sum shows in its last digits.
    """
    rows, where = np.unique(np.column_stack([known, anchors]), axis=0, return_inverse=True)
    n_outputs = known.shape[1]
    shares = np.bincount(where.ravel(), weights=weight)
    return rows[:, n_outputs:].astype(anchors.dtype), rows[:, :n_outputs], shares


def _folded(twin: TwinNeuralRegressor, anchor: int) -> NeuralRegressor:
    """The fitted plain estimator of a twin with one anchor."""
    scale, shape = Scale(*twin._scale), Shape(**twin._shape)
    point = padded(twin._points.take([anchor]).features, shape.n_features)[0]
    known = (twin._anchors_y()[anchor] - scale.y_mean) / scale.y_spread
    shared = set(NeuralRegressor().get_params()) & set(twin.get_params())
    plain = NeuralRegressor(**{name: getattr(twin, name) for name in shared})
    plain._parameters = fold_anchor(shape, twin._parameters, twin._embedded, point, known)
    widths = tuple(2 * width for width in shape.hidden_sizes)
    plain.hidden_sizes = widths
    plain._shape = {**twin._shape, "hidden_sizes": widths, "twin": False}
    for name in ("_embedded", "_scale", "_schema", "member_weights_", "n_members_"):
        setattr(plain, name, getattr(twin, name))
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(twin, name):
            setattr(plain, name, getattr(twin, name))
    plain._one_dimensional = twin.anchors_y_.ndim == 1
    return plain
