"""InverseTwinRegressor: which inputs give a wanted target, by changes from known rows.

The difference model predicts x(a) − x(b) from y(a) − y(b), y(b) and x(b), where b is an anchor and
y(a) the wanted target (S. J. Wetzel, Inverting Non-Injective Functions with Twin Neural Network
Regression, arXiv:2601.05378). It is fitted to pairs of neighbors, so that it stays on the branch of
its anchor: a function with several inverses has one answer per anchor, not the mean of all.

A change that leads to another target than the wanted one is followed by further ones, from where
it led to, with the prediction of a forward model as the target there.
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils import Tags, check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from twinned._compat import BaseEstimator, MetaEstimatorMixin, MultiOutputMixin
from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.regressors import GPRegressor
from twinned.models.base_estimator import check_base_estimator, set_unset_seeds
from twinned.models.gaussian_process import fit_gaussian_process
from twinned.models.learned_metric import MAX_ROWS, learn_metric
from twinned.models.neural.parameters import NeuralTraining
from twinned.models.resources import limit_threads
from twinned.pairing.differences import difference
from twinned.pairing.pairs import NearestPairs, as_pair_strategy
from twinned.rows.neighbors import LearnedMetric, NeighborIndex
from twinned.rows.scaling import PowerScaling
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import (
    check_integer,
    check_numbers,
    draw_seed,
    restore_on_failure,
    target_names,
    validate_target,
)

_N_NEIGHBORS = 8  # of a row, with which it is paired
_POWERS = (1e-3, 0.5, 1.0, 1.999)  # of a positive target; nearly 0 is the logarithm
_ANCHORS_PER_INPUT = 10  # that is returned by `predict_branches`, or that are tried for `near`
_LEAST_TOLERANCE = 1e-4  # squared, in variances of the targets
_SAME = 0.1  # inputs that are nearer by the learned metric are the same


@dataclass(eq=False, repr=False)
class InverseTwinRegressor(MultiOutputMixin, MetaEstimatorMixin, BaseEstimator):
    """Inputs that give wanted targets, by predicted changes from the inputs of known rows.

    `predict` gets targets and returns inputs. A function with several inverses has an answer on
    the branch of each anchor; `predict_branches` returns several of them.

    Parameters
    ----------
    estimator : regressor, default=None
        The difference model, of any scikit-learn regressor. Its features are the change of the
        targets, the targets of the anchor and the inputs of the anchor, in that order, and it
        predicts the change of the inputs. None is a `NeuralRegressor`.
    forward : regressor, default=None
        The model of scaled targets by which the inputs are chosen. None is a Gaussian process whose
        kernel, Matérn 5/2 or squared exponential, has the larger likelihood.
    pairs : {"auto", "all"}, int or strategy, default="auto"
        Training pairs, as in `TwinRegressor`, which are fitted in both orders. `"auto"` is
        `NearestPairs(8, metric="learned")`. Pairs of distant rows may be on different branches.
    n_anchors : int, default=10
        Number of known rows with the nearest targets, from which inputs are predicted; ten times
        as many where inputs are to be near to others.
    n_steps : int, default=4
        Number of changes from an anchor; one change is the method of the paper. Further ones count
        where the forward prediction is then nearer to the wanted target.
    n_jobs : int or None, default=None
        Number of threads; None means 1, and −1 all cores.
    random_state : int, RandomState or None, default=None
        Seed of random pairs and of models without a seed.

    Attributes
    ----------
    estimator_ : regressor
        The fitted difference model.
    forward_ : regressor
        The fitted forward model, of scaled targets.
    scaling_ : PowerScaling
        Scaling of the targets. The power of a positive target is the one with the largest
        likelihood of a Gaussian process among a logarithm, 0.5, 1 and 2.
    anchors_X_ : ndarray of shape (n, n_features)
        Inputs of the training rows.
    anchors_y_ : ndarray of shape (n, n_targets)
        Their targets.
    tolerance_ : float
        Mean squared error of the scaled targets of the training rows, at least 1e-4: predictions
        with a smaller error reach a wanted target.
    metric_ : LearnedMetric
        Distances of inputs.
    target_names_ : list of str
        Names of several targets; empty for a single one.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> from twinned import InverseTwinRegressor
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> trees = ExtraTreesRegressor(50, random_state=0)
    >>> model = InverseTwinRegressor(trees, random_state=0).fit(X, X[:, 0] ** 2)
    >>> x = model.predict([1.0, 2.0], near=[-1.0])
    >>> bool(np.allclose(x[:, 0], [-1.0, -np.sqrt(2)], atol=0.01))
    True
    >>> model.predict_branches([1.0])["x0"].round(1).tolist()
    [1.0, -1.0]
    """

    estimator: Any = None
    _: KW_ONLY
    forward: object = None
    pairs: object = "auto"
    n_anchors: int = 10
    n_steps: int = 4
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the forward model to the rows, and the difference model to pairs of them.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            Inputs: numbers, without missing values. For categories, use `twinned.solve`.
        y : array of shape (n,) or (n, n_targets)
            Targets.
        """
        with restore_on_failure(self), limit_threads(self.n_jobs):
            check_integer("n_anchors", self.n_anchors)
            check_integer("n_steps", self.n_steps)
            rng = check_random_state(self.random_state)
            inputs = validate_data(self, X, dtype=np.float64, ensure_min_samples=3)
            targets = validate_target(self, y, len(inputs), multi_output=True)
            self.target_names_: list[str] = target_names(y)
            self.anchors_X_: Floats = inputs
            self.anchors_y_: Floats = targets.reshape(len(inputs), -1)
            pairs = NearestPairs(_N_NEIGHBORS, "learned") if self.pairs == "auto" else self.pairs
            strategy = as_pair_strategy(pairs, len(inputs), mirrored=True)
            model = self._difference_model()
            self.scaling_: PowerScaling = scale_targets(inputs, self.anchors_y_)
            scaled = self.scaling_.transform(self.anchors_y_)
            self.metric_: LearnedMetric = learn_metric(inputs, scaled)
            self.forward_: Any = self._fit_forward(inputs, scaled, draw_seed(rng))
            error = np.mean((self._predict_scaled(inputs) - scaled) ** 2)
            self.tolerance_: float = max(float(error), _LEAST_TOLERANCE)
            index = partial(NeighborIndex, inputs, n_jobs=self.n_jobs, learned=self.metric_)
            first, second = strategy.draw(len(inputs), index, rng)
            new, anchor = np.concatenate([first, second]), np.concatenate([second, first])
            features = _pair_features(scaled[new], scaled[anchor], inputs[anchor])
            change = difference(inputs[new], inputs[anchor])
            self.estimator_: Any = _fit(model, features, change, draw_seed(rng))
        return self

    def _difference_model(self):
        if self.estimator is not None:
            return check_base_estimator(self.estimator)
        training = NeuralTraining(n_folds=1)
        return NeuralRegressor(effort="fast", training=training, n_jobs=self.n_jobs)

    def _fit_forward(self, X, scaled, seed):
        if self.forward is not None:
            return _fit(check_base_estimator(self.forward), X, scaled, seed)
        fits = [_fit(GPRegressor(kernel), X, scaled, seed) for kernel in ("rbf", "matern")]
        return max(fits, key=lambda model: model.process_.log_marginal_likelihood_)

    def predict(self, y: ArrayLike, *, near: ArrayLike | None = None) -> Floats:
        """Inputs whose forward prediction is nearest to the wanted targets.

        Parameters
        ----------
        y : array of shape (n_queries,) or (n_queries, n_targets)
            Wanted targets. Of one that is out of reach, the nearest that is predicted is returned.
        near : array of shape (n_features,) or (n_queries, n_features), default=None
            Inputs to be near to: of the inputs that reach the target, those with the least
            distance to `near` by the learned metric are returned.

        Returns
        -------
        X : ndarray of shape (n_queries, n_features)
        """
        wanted = self._check_wanted(y)
        n_anchors = self.n_anchors if near is None else _ANCHORS_PER_INPUT * self.n_anchors
        _, X, _, errors = self._candidates(wanted, n_anchors)
        best = errors.argmin(axis=1)
        if near is not None:
            near = np.asarray(near)[None] if np.ndim(near) == 1 else near
            points = validate_data(self, near, reset=False, dtype=np.float64)
            if len(points) not in (1, len(wanted)):
                raise ValueError(
                    f"near has {len(points)} rows, but there are {len(wanted)} targets."
                )
            change = self.metric_.transform(X) - self.metric_.transform(points)[:, None]
            distance = np.linalg.norm(change, axis=-1)
            best = np.lexsort((distance, np.maximum(errors, self.tolerance_)))[:, 0]
        return X[np.arange(len(wanted)), best]

    def predict_branches(self, y: object, n: int = 5) -> pd.DataFrame:
        """Several different inputs for each wanted target, the most accurate one first.

        Parameters
        ----------
        y : array of shape (n_queries,) or (n_queries, n_targets)
            Wanted targets.
        n : int, default=5
            Maximum number of inputs per target. Those after the first are as different from each
            other as possible, and all reach the target, so that there may be fewer.

        Returns
        -------
        branches : DataFrame
            With the columns `query`, `anchor` (the training row), the features, and the forward
            prediction: `predicted` or, of several targets, `predicted y0` and so on.
        """
        wanted, n = self._check_wanted(y), check_integer("n", n)
        n_anchors = max(self.n_anchors, _ANCHORS_PER_INPUT * n)
        anchors, X, scaled, errors = self._candidates(wanted, n_anchors)
        chosen = [self._different(*both, n) for both in zip(X, errors, strict=True)]
        query = np.repeat(np.arange(len(wanted)), [len(own) for own in chosen])
        rows = query, np.concatenate(chosen)
        names = vars(self).get("feature_names_in_", [f"x{j}" for j in range(X.shape[2])])
        predicted = [f"predicted {name}" for name in self.target_names_] or ["predicted"]
        table = pd.DataFrame({"query": query, "anchor": anchors[rows]})
        table[[str(name) for name in names]] = X[rows]
        table[predicted] = self.scaling_.invert(scaled[rows])
        return table

    def _different(self, X: Floats, errors: Floats, n: int) -> list[int]:
        """At most n inputs for a query: the best, then the most distant ones that reach it."""
        points, chosen = self.metric_.transform(X), [int(errors.argmin())]
        distance = np.where(errors <= self.tolerance_, np.inf, 0.0)
        while len(chosen) < n:
            distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
            if distance.max() < _SAME:
                break
            chosen.append(int(distance.argmax()))
        return chosen

    def _candidates(self, wanted: Floats, n_anchors: int) -> tuple[Indices, Floats, Floats, Floats]:
        """The anchors (query, anchor) with the nearest targets, and the inputs from each of them.

        Also the forward predictions of scaled targets there, and their mean squared errors.
        The change that the model predicts for no change of the targets is subtracted, so that
        repeated changes end where the forward prediction is the wanted target.
        """
        known = NeighborIndex(self.scaling_.transform(self.anchors_y_), n_jobs=self.n_jobs)
        anchors = known.kneighbors(wanted, min(n_anchors, len(self.anchors_y_)))[0]
        X, goal = self.anchors_X_[anchors], wanted[:, None]
        scaled = self._predict_scaled(X)
        errors = np.mean((scaled - goal) ** 2, axis=2)
        for _ in range(self.n_steps):
            change = self._predict_change(goal, scaled, X) - self._predict_change(scaled, scaled, X)
            moved = np.clip(X + change, self.anchors_X_.min(axis=0), self.anchors_X_.max(axis=0))
            reached = self._predict_scaled(moved)
            squares = np.mean((reached - goal) ** 2, axis=2)
            better = squares < errors
            for old, new in zip((X, scaled, errors), (moved, reached, squares), strict=True):
                old[better] = new[better]
        return anchors, X, scaled, errors

    def _predict_scaled(self, X: Floats) -> Floats:
        """(…, output): forward predictions of scaled targets for inputs (…, feature)."""
        predicted = self.forward_.predict(X.reshape(-1, X.shape[-1]))
        return predicted.reshape(*X.shape[:-1], -1).astype(np.float64)

    def _predict_change(self, new: Floats, anchor: Floats, X: Floats) -> Floats:
        """(…, feature): change of the inputs X from scaled targets of the anchor to new ones."""
        features = _pair_features(new, anchor, X)
        return self.estimator_.predict(features.reshape(-1, features.shape[-1])).reshape(X.shape)

    def _check_wanted(self, y: object) -> Floats:
        """(query, output): scaled wanted targets."""
        check_is_fitted(self)
        wanted = check_numbers("y", y, finite=True)
        n_targets = self.anchors_y_.shape[1]
        wanted = wanted[:, None] if wanted.ndim == n_targets == 1 else wanted
        if wanted.shape[1:] != (n_targets,):
            shape = f"(n_queries, {n_targets})"
            raise ValueError(f"y must have the shape {shape}, as in fit, not {wanted.shape}.")
        return self.scaling_.transform(wanted)


def scale_targets(X: Floats, Y: Floats) -> PowerScaling:
    """Scaling of targets (row, output), each with its power; that of others than positive is 1.

    >>> X = np.random.RandomState(0).uniform(0, 2, (60, 1))
    >>> scale_targets(X, np.column_stack([X - 1, np.sqrt(1 + X), np.exp(3 * X)])).power.round(2)
    array([1., 2., 0.])
    """
    rows = np.random.RandomState(0).permutation(len(X))[:MAX_ROWS]

    def scale(y: Floats, power: float) -> PowerScaling:
        unit = 1.0 if power == 1.0 else 0.1 * y.min()
        return PowerScaling.with_powers(y, np.array([power]), np.array([unit]))

    def likelihood(y: Floats, scaling: PowerScaling) -> float:
        process = fit_gaussian_process(X[rows], scaling.transform(y)[rows], random_state=0)
        spread = process.scale * scaling.slope(y[rows])
        return process.log_marginal_likelihood_ - float(np.log(spread).sum())

    chosen = []
    for y in np.split(Y, Y.shape[1], axis=1):
        powers = _POWERS if y.min() > 0 and y.max() > y.min() else (1.0,)
        fits = [scale(y, power) for power in powers]
        chosen.append(max(fits, key=lambda s: likelihood(y, s)) if len(fits) > 1 else fits[0])
    return PowerScaling(*(np.concatenate(part) for part in zip(*chosen, strict=True)))


def _pair_features(new: Floats, anchor: Floats, X: Floats) -> Floats:
    """Features of the difference model: change of targets, targets and inputs of the anchor."""
    return np.concatenate([difference(new, anchor), anchor, X], axis=-1)


def _fit(model, X, Y, seed):
    """A fitted clone of a regressor for one or several outputs."""
    if Y.shape[1] > 1 and not get_tags(model).target_tags.multi_output:
        model = MultiOutputRegressor(model)
    return set_unset_seeds(clone(model), lambda: seed).fit(X, Y if Y.shape[1] > 1 else Y[:, 0])
