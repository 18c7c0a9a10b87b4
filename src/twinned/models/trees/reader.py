"""A fitted tree ensemble, read: its trees, how they compare, and how they add up.

What cannot be read exactly is None, and then the caller asks the estimator itself.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


class Tree(NamedTuple):
    """One tree, in the arrays of its library: views where it has such.

    All are (n_nodes,), but `value` (n_nodes, n_values). `left` is negative at leaves. A missing
    value goes left where `missing_left`. Leaves count `scale` times and add to the outputs from
    `output` on.
    """

    feature: NDArray[Any]
    threshold: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]
    missing_left: NDArray[np.bool_]
    value: NDArray[Any]
    scale: float
    output: int

    @property
    def n_nodes(self) -> int:
        return len(self.left)


class Trees(NamedTuple):
    """A whole ensemble.

    A sample goes left where its value, rounded to `value_type`, is at most the threshold, or less
    than it where `strict`. The prediction is `offset` (n_outputs,) plus the leaves, added in the
    order of the trees and rounded to `sum_type` after each.
    """

    trees: list[Tree]
    offset: NDArray[np.float64]
    value_type: np.dtype[Any]
    strict: bool
    sum_type: np.dtype[Any]

    @property
    def n_nodes(self) -> int:
        return sum(tree.n_nodes for tree in self.trees)

    @property
    def n_features(self) -> int:
        """How many columns the splits ask for."""
        return 1 + max(int(tree.feature.max()) for tree in self.trees)


def count_trees(estimator: Any) -> int:
    """About how many trees a fitted regressor has, told without reading it; 0 where it has none."""
    if type(estimator) is MultiOutputRegressor:
        return sum(count_trees(one) for one in estimator.estimators_)
    if type(estimator) in (DecisionTreeRegressor, ExtraTreeRegressor):
        return 1
    if hasattr(estimator, "get_booster"):  # XGBoost
        return int(estimator.get_booster().num_boosted_rounds())
    if hasattr(estimator, "estimators_"):
        return len(estimator.estimators_)
    boosted = getattr(estimator, "n_iter_", 0)
    return int(boosted) if isinstance(boosted, Integral) else 0


def read_trees(estimator: Any) -> Trees | None:
    """Read a fitted regressor, or None where its prediction is not exactly that of plain trees.

    >>> from sklearn.tree import DecisionTreeRegressor
    >>> trees = read_trees(DecisionTreeRegressor().fit([[0.0], [1.0]], [2.0, 5.0]))
    >>> trees.trees[0].threshold[0], trees.trees[0].value[1:, 0], trees.strict
    (np.float64(0.5), array([2., 5.]), False)
    """
    try:
        trees = _read(estimator)
    except (AttributeError, ImportError, KeyError, TypeError, ValueError, RuntimeError):
        # another version of a library keeps its trees in another way
        return None
    return trees if trees is not None and _is_plain(trees) else None


def _read(estimator: Any) -> Trees | None:
    # subclasses may predict in another way, so the type has to be the very one
    kind = type(estimator)
    if kind is MultiOutputRegressor:
        return _side_by_side([_read(one) for one in estimator.estimators_])
    if kind in (DecisionTreeRegressor, ExtraTreeRegressor):
        return _of_scikit_learn([estimator], np.zeros(estimator.n_outputs_), 1.0)
    if kind in (RandomForestRegressor, ExtraTreesRegressor):
        members = estimator.estimators_
        return _of_scikit_learn(members, np.zeros(estimator.n_outputs_), 1.0 / len(members))
    if kind is GradientBoostingRegressor:
        return _of_gradient_boosting(estimator)
    if kind is HistGradientBoostingRegressor:
        return _of_histogram_boosting(estimator)
    # by name, as neither library need be there
    name = (kind.__module__.partition(".")[0], kind.__name__)
    if name in (("lightgbm", "LGBMRegressor"), ("xgboost", "XGBRegressor")):
        from twinned.models.trees.treelite_reader import of_lightgbm, of_xgboost

        return of_lightgbm(estimator) if name[0] == "lightgbm" else of_xgboost(estimator)
    return None


def _of_scikit_learn(members: list[Any], offset: NDArray[np.float64], scale: float) -> Trees | None:
    trees = []
    for member in members:
        if type(member) not in (DecisionTreeRegressor, ExtraTreeRegressor):
            return None
        tree = member.tree_
        trees.append(
            Tree(
                tree.feature,
                tree.threshold,
                tree.children_left,
                tree.children_right,
                np.asarray(tree.missing_go_to_left).astype(bool),
                tree.value[:, :, 0],
                scale,
                0,
            )
        )
    return Trees(trees, offset, FLOAT32, False, FLOAT64)


def _of_gradient_boosting(estimator: GradientBoostingRegressor) -> Trees | None:
    # every loss that it has leaves the sum of the trees as it is
    if estimator.init == "zero" or estimator.init_ == "zero":
        offset = 0.0
    elif type(estimator.init_) is DummyRegressor:
        offset = float(np.ravel(estimator.init_.constant_)[0])
    else:
        return None
    members = list(estimator.estimators_[:, 0])
    return _of_scikit_learn(members, np.array([offset]), estimator.learning_rate)


def _of_histogram_boosting(estimator: HistGradientBoostingRegressor) -> Trees | None:
    if estimator.loss not in ("squared_error", "absolute_error", "quantile"):
        return None  # the others predict the exponential of the sum
    if estimator.is_categorical_ is not None:
        return None
    trees = []
    for (predictor,) in estimator._predictors:
        nodes = predictor.nodes
        leaf = nodes["is_leaf"].astype(bool)
        if nodes["is_categorical"].any():
            return None
        trees.append(
            Tree(
                nodes["feature_idx"].astype(np.int64),
                nodes["num_threshold"],
                np.where(leaf, -1, nodes["left"].astype(np.int64)),
                nodes["right"].astype(np.int64),
                nodes["missing_go_to_left"].astype(bool),
                nodes["value"][:, None],
                1.0,
                0,
            )
        )
    offset = np.asarray(estimator._baseline_prediction, dtype=np.float64).reshape(1)
    return Trees(trees, offset, FLOAT64, False, FLOAT64)


def _side_by_side(parts: list[Trees | None]) -> Trees | None:
    """Several one-output ensembles as one of several outputs."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    first = known[0]
    for part in known:
        if len(part.offset) != 1 or part[2:] != first[2:]:
            return None
    trees = [tree._replace(output=k) for k, part in enumerate(known) for tree in part.trees]
    return Trees(trees, np.concatenate([part.offset for part in known]), *first[2:])


def _is_plain(trees: Trees) -> bool:
    """Whether all is finite, all leaves hold as many values, and every tree is one.

    The kernel trusts this: it follows children without looking where they lead.
    """
    if not trees.trees or not np.isfinite(trees.offset).all():
        return False
    width = trees.trees[0].value.shape[1]
    for tree in trees.trees:
        leaf = tree.left < 0
        children = np.concatenate([tree.left[~leaf], tree.right[~leaf]])
        fits = tree.value.shape[1] == width and tree.output + width <= len(trees.offset)
        if not fits or np.isnan(tree.threshold[~leaf]).any() or (tree.feature[~leaf] < 0).any():
            return False
        if not np.isfinite(tree.value[leaf]).all() or (children >= tree.n_nodes).any():
            return False
        # each node but the first is the child of one other
        if (children < 1).any() or (np.bincount(children, minlength=tree.n_nodes)[1:] != 1).any():
            return False
    return True
