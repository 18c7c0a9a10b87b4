"""Reader of fitted tree ensembles: their trees, and how they compare and add up.

The trees of scikit-learn are read directly, those of LightGBM by means of treelite.
"""

import logging
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
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
from twinned.rows.schema import Floats

FLOAT32: np.dtype[np.floating] = np.dtype(np.float32)
FLOAT64: np.dtype[np.floating] = np.dtype(np.float64)
_LOGGER = logging.getLogger("twinned")
_SINGLE_TREES = (DecisionTreeRegressor, ExtraTreeRegressor)
# fields of the nodes of HistGradientBoosting
_BOOSTING_FIELDS = {
    "is_leaf", "is_categorical", "feature_idx", "num_threshold", "left", "right",
    "missing_go_to_left", "value",
}  # fmt: skip
# Losses of histogram gradient boosting without a link function.
BOOSTING_LOSSES = ("squared_error", "absolute_error", "quantile")
_LESS_OR_EQUAL = 3  # treelite's code of the comparison
# LightGBM treats values up to this as zero: a float32 number, stored in float64.
_ZERO = float(np.float32(1e-35))
# Objectives of LightGBM with which the prediction is the sum of the trees.
_LIGHTGBM_SUMS = ("regression", "regression_l1", "huber", "fair", "quantile", "mape")


class UnreadableTreesError(Exception):
    """A library stores its trees in a way that this version of the readers does not know."""


class Tree(NamedTuple):
    """One decision tree, in the arrays of its library (views where possible).

    All arrays are (node,), except `value` (node, n_values). `left` is negative at leaves. A missing
    value goes left where `missing_left`. The values of a leaf are multiplied by `scale` and added
    to the outputs from `output` on.
    """

    feature: NDArray[np.integer]
    threshold: NDArray[np.floating]
    left: NDArray[np.integer]
    right: NDArray[np.integer]
    missing_left: NDArray[np.bool_]
    value: NDArray[np.floating]
    scale: float = 1.0
    output: int = 0

    @property
    def n_nodes(self) -> int:
        return len(self.left)

    @property
    def is_valid(self) -> bool:
        """Whether all splits and leaves are finite and each node but the root has one parent."""
        inner = self.left >= 0
        if np.isnan(self.threshold[inner]).any() or (self.feature[inner] < 0).any():
            return False
        children = np.concatenate([self.left[inner], self.right[inner]])
        have_one_parent = np.array_equal(np.sort(children), np.arange(1, self.n_nodes))
        return have_one_parent and bool(np.isfinite(self.value[~inner]).all())


class TreeEnsemble(NamedTuple):
    """A sum of trees.

    A sample goes left where its value, rounded to `value_type`, is at most the threshold. The
    prediction is `offset` (output,) plus the leaf values.
    """

    trees: list[Tree]
    offset: Floats
    value_type: np.dtype[np.floating] = FLOAT64

    @property
    def n_nodes(self) -> int:
        return sum(tree.n_nodes for tree in self.trees)

    @property
    def n_features(self) -> int:
        """One more than the largest feature index of a split."""
        return 1 + max(int(tree.feature.max()) for tree in self.trees)

    @property
    def is_valid(self) -> bool:
        """Whether all numbers are finite, all leaves have as many values, and the trees are trees.

        The compiled kernel relies on this: it follows child indices without checking them.
        """
        widths = {tree.value.shape[1] for tree in self.trees}
        if len(widths) != 1 or not np.isfinite(self.offset).all():
            return False
        n_outputs = max(tree.output for tree in self.trees) + widths.pop()
        return n_outputs <= len(self.offset) and all(tree.is_valid for tree in self.trees)


def inclusive_threshold(
    threshold: NDArray[np.floating], value_type: np.dtype[np.floating]
) -> NDArray[np.floating]:
    """Return t of a type such that `value ≤ t` is the same as `value ≤ threshold`.

    A float32 value is at most a float64 threshold where it is at most the largest float32 that does
    not exceed it, so ties go the same way.

    >>> inclusive_threshold(np.array([0.1]), np.dtype(np.float32)) <= 0.1
    array([ True])
    """
    with np.errstate(over="ignore"):  # infinite values are corrected below
        near = threshold.astype(value_type)
    return np.where(near > threshold, np.nextafter(near, value_type.type(-np.inf)), near)


def count_trees(estimator: BaseEstimator) -> int:
    """Return about how many trees a fitted regressor has, without reading it; 0 for none."""
    estimator = unwrap_search(estimator)
    if type(estimator) is MultiOutputRegressor:
        return sum(count_trees(one) for one in estimator.estimators_)
    if type(estimator) in _SINGLE_TREES:
        return 1
    if hasattr(estimator, "estimators_"):
        return len(estimator.estimators_)
    n_iterations = getattr(estimator, "n_iter_", 0)
    return int(n_iterations) if isinstance(n_iterations, Integral) else 0


def read_trees(estimator: BaseEstimator) -> TreeEnsemble | None:
    """Read a fitted regressor; None where its prediction is not exactly a sum of plain trees.

    >>> from sklearn.tree import DecisionTreeRegressor
    >>> ensemble = read_trees(DecisionTreeRegressor().fit([[0.0], [1.0]], [2.0, 5.0]))
    >>> tree = ensemble.trees[0]
    >>> tree.threshold[0], tree.value[1:, 0]
    (np.float64(0.5), array([2., 5.]))
    """
    try:
        ensemble = _read(estimator)
    except (AttributeError, ImportError, KeyError, UnreadableTreesError):
        # another version of a library stores its trees in another way
        message = "The trees of %s could not be read; predictions build pairs, which is slower."
        _LOGGER.warning(message, type(estimator).__name__, exc_info=True)
        return None
    return ensemble if ensemble is not None and ensemble.is_valid else None


def _read(estimator: BaseEstimator) -> TreeEnsemble | None:
    estimator = unwrap_search(estimator)
    # subclasses may predict in another way, so the types have to be equal
    kind = type(estimator)
    if kind is MultiOutputRegressor:
        return _stack_outputs([_read(one) for one in estimator.estimators_])
    if kind in (*_SINGLE_TREES, RandomForestRegressor, ExtraTreesRegressor):
        members = [estimator] if kind in _SINGLE_TREES else estimator.estimators_
        return _read_members(members, np.zeros(estimator.n_outputs_), 1.0 / len(members))
    if kind is GradientBoostingRegressor:
        return _read_gradient_boosting(estimator)
    if kind is HistGradientBoostingRegressor:
        return _read_hist_gradient_boosting(estimator)
    # by name, as the library is optional
    name = (kind.__module__.partition(".")[0], kind.__name__)
    return _read_lightgbm(estimator) if name == ("lightgbm", "LGBMRegressor") else None


def _stack_outputs(read_ensembles: list[TreeEnsemble | None]) -> TreeEnsemble | None:
    """Join ensembles of one output each into one of several; None where that is not possible."""
    ensembles = [ensemble for ensemble in read_ensembles if ensemble is not None]
    if not ensembles or len(ensembles) < len(read_ensembles):
        return None
    value_type = ensembles[0].value_type
    if any(len(one.offset) != 1 or one.value_type != value_type for one in ensembles):
        return None
    trees = [
        Tree(*tree[:-1], output=k)
        for k, ensemble in enumerate(ensembles)
        for tree in ensemble.trees
    ]
    return TreeEnsemble(trees, np.concatenate([one.offset for one in ensembles]), value_type)


# --- scikit-learn ---------------------------------------------------------------------------------


def _read_members(
    members: list[BaseEstimator], offset: Floats, scale: float
) -> TreeEnsemble | None:
    """Read the single trees of a scikit-learn ensemble."""
    if any(type(member) not in _SINGLE_TREES for member in members):
        return None
    trees = [
        Tree(
            feature=tree.feature,
            threshold=tree.threshold,
            left=tree.children_left,
            right=tree.children_right,
            missing_left=np.asarray(tree.missing_go_to_left).astype(bool),
            value=tree.value[:, :, 0],
            scale=scale,
        )
        for tree in (member.tree_ for member in members)
    ]
    return TreeEnsemble(trees, offset, FLOAT32)


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
    # the other losses predict the exponential of the sum
    if estimator.loss not in BOOSTING_LOSSES or estimator.is_categorical_ is not None:
        return None
    all_nodes, baseline = boosting_trees(estimator)
    trees = [boosting_tree(nodes) for nodes in all_nodes]
    if any(nodes["is_categorical"].any() for nodes in all_nodes):
        return None
    return TreeEnsemble(trees, np.asarray(baseline, dtype=np.float64).reshape(1))


def boosting_tree(nodes: NDArray[np.void]) -> Tree:
    """Return the tree of the nodes of histogram gradient boosting."""
    if missing := _BOOSTING_FIELDS - set(nodes.dtype.names or ()):
        raise UnreadableTreesError(f"nodes of HistGradientBoosting have no {sorted(missing)}")
    feature, right = (nodes[name].astype(np.int64) for name in ("feature_idx", "right"))
    left = np.where(nodes["is_leaf"].astype(bool), -1, nodes["left"].astype(np.int64))
    missing_left, value = nodes["missing_go_to_left"].astype(bool), nodes["value"][:, None]
    return Tree(feature, nodes["num_threshold"], left, right, missing_left, value)


# --- LightGBM -------------------------------------------------------------------------------------


def _read_lightgbm(estimator: BaseEstimator) -> TreeEnsemble | None:
    """Read an `LGBMRegressor`.

    None where its prediction is not the plain sum of the trees, or where zero counts as missing.
    """
    booster = estimator.booster_
    objective, *options = booster.dump_model(num_iteration=1)["objective"].split()
    if objective not in _LIGHTGBM_SUMS or "sqrt" in options:
        return None
    settings = {**estimator.get_params(), **booster.params}
    if any(settings.get(name) for name in ("linear_tree", "linear_trees", "zero_as_missing")):
        return None
    if settings.get("boosting_type", "gbdt") not in ("gbdt", "goss", "rf"):
        return None
    return _read_booster(booster)


def _beyond_zero(threshold: Floats) -> Floats:
    """Return thresholds with which values near zero go the same way as zero.

    >>> _beyond_zero(np.array([-1.0, 0.0, 1e-40, 1.0])) >= np.array([-1.0, _ZERO, _ZERO, 1.0])
    array([ True,  True,  True,  True])
    """
    threshold = np.where((threshold >= 0) & (threshold < _ZERO), _ZERO, threshold)
    below = np.nextafter(-_ZERO, -np.inf)
    return np.where((threshold >= -_ZERO) & (threshold < 0), below, threshold)


def _read_booster(booster):
    """Return the trees of a booster, or None where its prediction is not their sum.

    Fields of treelite are views of the model's memory, which is freed with it, so all are copied.
    """
    from treelite import TreeliteError
    from treelite.frontend import from_lightgbm

    try:
        model = from_lightgbm(booster)
    except TreeliteError as error:
        raise UnreadableTreesError(str(error)) from error
    header = model.get_header_accessor()
    outputs = np.array(header.get_field("target_id"))
    offset = np.array(header.get_field("base_scores"), dtype=np.float64)
    if header.get_field("postprocessor") != "identity" or np.any(outputs < 0):
        return None
    if any(np.any(header.get_field(name) != 1) for name in ("leaf_vector_shape", "num_class")):
        return None
    scale = 1.0 / len(outputs) if header.get_field("average_tree_output")[0] else 1.0
    trees = []
    for number, output in enumerate(outputs):
        tree = model.get_tree_accessor(number)
        left = tree.get_field("cleft").copy()
        is_other = tree.get_field("cmp")[left >= 0] != _LESS_OR_EQUAL
        if tree.get_field("has_categorical_split")[0] or np.any(is_other):
            return None
        right, feature = tree.get_field("cright").copy(), tree.get_field("split_index").copy()
        threshold = _beyond_zero(tree.get_field("threshold").astype(np.float64))
        missing_left = tree.get_field("default_left").astype(bool)
        value = tree.get_field("leaf_value").astype(np.float64)[:, None]
        trees.append(Tree(feature, threshold, left, right, missing_left, value, scale, int(output)))
    return TreeEnsemble(trees, offset)
