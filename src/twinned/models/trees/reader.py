"""Reader of fitted tree ensembles: their trees, and how they compare and add up."""

from __future__ import annotations

import logging
from numbers import Integral
from typing import Any

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

from twinned._compat import boosting_trees, unwrap_search
from twinned.models.trees.ensemble import (
    FLOAT32,
    FLOAT64,
    Tree,
    TreeEnsemble,
    UnreadableTreesError,
    stack_outputs,
)

_LOGGER = logging.getLogger("twinned")
_SINGLE_TREES = (DecisionTreeRegressor, ExtraTreeRegressor)


def count_trees(estimator: Any) -> int:
    """Return about how many trees a fitted regressor has, without reading it; 0 for none."""
    estimator = unwrap_search(estimator)
    if type(estimator) is MultiOutputRegressor:
        return sum(count_trees(one) for one in estimator.estimators_)
    if type(estimator) in _SINGLE_TREES:
        return 1
    if hasattr(estimator, "get_booster"):  # XGBoost
        return int(estimator.get_booster().num_boosted_rounds())
    if hasattr(estimator, "estimators_"):
        return len(estimator.estimators_)
    n_iterations = getattr(estimator, "n_iter_", 0)
    return int(n_iterations) if isinstance(n_iterations, Integral) else 0


def read_trees(estimator: Any) -> TreeEnsemble | None:
    """Read a fitted regressor; None where its prediction is not exactly a sum of plain trees.

    >>> from sklearn.tree import DecisionTreeRegressor
    >>> ensemble = read_trees(DecisionTreeRegressor().fit([[0.0], [1.0]], [2.0, 5.0]))
    >>> tree = ensemble.trees[0]
    >>> tree.threshold[0], tree.value[1:, 0], ensemble.strict
    (np.float64(0.5), array([2., 5.]), False)
    """
    try:
        ensemble = _read(estimator)
    except (AttributeError, ImportError, KeyError, UnreadableTreesError):
        # another version of a library stores its trees in another way
        _LOGGER.warning(
            "The trees of %s could not be read; predictions build pairs, which is slower.",
            type(estimator).__name__,
            exc_info=True,
        )
        return None
    return ensemble if ensemble is not None and ensemble.is_valid else None


def _read(estimator: Any) -> TreeEnsemble | None:
    estimator = unwrap_search(estimator)
    # subclasses may predict in another way, so the types have to be equal
    kind = type(estimator)
    if kind is MultiOutputRegressor:
        return stack_outputs([_read(one) for one in estimator.estimators_])
    if kind in _SINGLE_TREES:
        return _read_members([estimator], np.zeros(estimator.n_outputs_), 1.0)
    if kind in (RandomForestRegressor, ExtraTreesRegressor):
        members = estimator.estimators_
        return _read_members(members, np.zeros(estimator.n_outputs_), 1.0 / len(members))
    if kind is GradientBoostingRegressor:
        return _read_gradient_boosting(estimator)
    if kind is HistGradientBoostingRegressor:
        return _read_hist_gradient_boosting(estimator)
    # by name, as these libraries are optional
    name = (kind.__module__.partition(".")[0], kind.__name__)
    if name in (("lightgbm", "LGBMRegressor"), ("xgboost", "XGBRegressor")):
        from twinned.models.trees.treelite_reader import read_lightgbm, read_xgboost

        return read_lightgbm(estimator) if name[0] == "lightgbm" else read_xgboost(estimator)
    return None


def _read_members(
    members: list[Any], offset: NDArray[np.float64], scale: float
) -> TreeEnsemble | None:
    """Read the single trees of a scikit-learn ensemble."""
    trees = []
    for member in members:
        if type(member) not in _SINGLE_TREES:
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
    return TreeEnsemble(trees, offset, FLOAT32, False, FLOAT64)


def _read_gradient_boosting(estimator: GradientBoostingRegressor) -> TreeEnsemble | None:
    # with each of its losses, the prediction is the sum of the trees
    if estimator.init == "zero" or estimator.init_ == "zero":
        offset = 0.0
    elif type(estimator.init_) is DummyRegressor:
        offset = float(np.ravel(estimator.init_.constant_)[0])
    else:
        return None
    members = list(estimator.estimators_[:, 0])
    return _read_members(members, np.array([offset]), estimator.learning_rate)


def _read_hist_gradient_boosting(estimator: HistGradientBoostingRegressor) -> TreeEnsemble | None:
    if estimator.loss not in ("squared_error", "absolute_error", "quantile"):
        return None  # the others predict the exponential of the sum
    if estimator.is_categorical_ is not None:
        return None
    all_nodes, offset = _hist_gradient_boosting_nodes(estimator)
    trees = []
    for nodes in all_nodes:
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
    return TreeEnsemble(trees, offset, FLOAT64, False, FLOAT64)


def _hist_gradient_boosting_nodes(
    estimator: HistGradientBoostingRegressor,
) -> tuple[list[NDArray[Any]], NDArray[np.float64]]:
    """Return the nodes of each tree as structured arrays, and the offset (1,)."""
    fields = {
        "is_leaf", "is_categorical", "feature_idx", "num_threshold", "left", "right",
        "missing_go_to_left", "value",
    }  # fmt: skip
    all_nodes, baseline = boosting_trees(estimator)
    for nodes in all_nodes:
        if missing := fields - set(nodes.dtype.names):
            raise UnreadableTreesError(f"nodes of HistGradientBoosting have no {sorted(missing)}")
    return all_nodes, np.asarray(baseline, dtype=np.float64).reshape(1)
