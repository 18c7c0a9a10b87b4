"""Regressors of scikit-learn, LightGBM and twinned, on a matrix of numbers; nearest rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from twinned._compat import boosting_categories, boosting_trees, unwrap_search
from twinned.estimators.regressors import QUADRATURE, GPRegressor, PowerRegressor, TransformedModel
from twinned.export.model_parts import refuse
from twinned.export.onnx.graph import DOUBLE, FLOAT, INT64, ML_DOMAIN, Tensor, concatenate
from twinned.export.onnx.inputs import add_category_index
from twinned.models.gaussian_process import GaussianProcess
from twinned.models.trees import reader
from twinned.rows.scaling import MAX_EXPONENT
from twinned.rows.schema import Floats

_SUM, _IDENTITY = 1, 0  # codes of ONNX: how trees are added, and what is done with the sum
_LESS_OR_EQUAL = 0


def add_regressor(estimator: BaseEstimator, X: Tensor) -> Tensor:
    """Add the prediction of a fitted regressor: (row, feature) → (row, output)."""
    estimator = unwrap_search(estimator)
    if (trees := reader.read_trees(estimator)) is not None:
        return add_trees(trees, X)
    if (linear := _read_linear(estimator)) is not None:
        return X @ linear[0].T + linear[1]
    if type(estimator) is Pipeline:
        *steps, (_, last) = estimator.steps
        for _, step in steps:
            X = add_scaler(step, X)
        return add_regressor(last, X)
    if type(estimator) is MultiOutputRegressor:
        return concatenate([add_regressor(one_output, X) for one_output in estimator.estimators_])
    if type(estimator) is HistGradientBoostingRegressor:
        return add_categorical_trees(estimator, X)
    if type(estimator) is GPRegressor:
        return add_process(estimator.process_, X)
    if type(estimator) is PowerRegressor:
        return add_transformed(estimator.model_, X)
    reason = f"{type(estimator).__name__} is not a kind of regressor that the exporter knows"
    return refuse(reason, "use trees, boosting, a linear model or networks")


def _read_linear(estimator: BaseEstimator) -> tuple[Floats, Floats] | None:
    """Coefficients (output, feature) and intercepts (output,) of a linear model, or None."""
    module, state = type(estimator).__module__, vars(estimator)
    is_linear = module.startswith(("sklearn.linear_model.", "sklearn.svm.")) and "glm" not in module
    if not is_linear or not {"coef_", "intercept_"} <= state.keys():
        return None
    coefficients = np.atleast_2d(np.asarray(state["coef_"], dtype=np.float64))
    return coefficients, np.atleast_1d(np.asarray(state["intercept_"], dtype=np.float64))


def add_scaler(scaler: BaseEstimator, X: Tensor) -> Tensor:
    """Add a fitted scaler or imputer of scikit-learn, which keeps the number of features."""
    kind = type(scaler)
    if scaler is None or (kind is str and scaler == "passthrough"):
        return X
    if kind is StandardScaler:
        X = X - scaler.mean_ if scaler.with_mean else X
        return X / scaler.scale_ if scaler.with_std else X
    if kind is MinMaxScaler and not scaler.clip:
        return X * scaler.scale_ + scaler.min_
    if kind is SimpleImputer and not scaler.add_indicator:
        replaces_nan = scaler.missing_values != scaler.missing_values
        if replaces_nan and np.isfinite(scaler.statistics_).all():
            return X.fill_nan(scaler.statistics_)
    reason = f"the pipeline step {kind.__name__} is not a supported scaler"
    return refuse(reason, "apply it before the model, and export the last step of the pipeline")


def add_transformed(model: TransformedModel, X: Tensor) -> Tensor:
    """Add the prediction of a model with power transformations: (row, feature) → (row, 1)."""
    (nodes, weights), features, target = QUADRATURE, model.features, model.target
    X = X / features.unit
    power = _signed_power(X, features.power)
    X = (_add_power(X, power) / power - features.center) / features.scale
    values = (
        add_regressor(model.regressor, X) + model.error * nodes
    ) * target.scale + target.center
    power = _signed_power(values, target.power)
    values = _add_power(values * power, 1.0 / power) * target.unit
    return values.apply("Clip", model.lower, model.upper) @ weights[:, None]


def _signed_power(values: Tensor, power: Floats) -> Tensor:
    """Add the exponents of Yeo and Johnson, which depend on the signs of the values."""
    return values.apply("Less", 0.0).apply("Where", 2.0 - power, power)


def _add_power(values: Tensor, power: Tensor) -> Tensor:
    """Add powers of 1 + |value|, less 1, with the signs of the values."""
    exponents = (values.apply("Abs") + 1.0).apply("Log") * power
    return values.apply("Sign") * (exponents.apply("Min", MAX_EXPONENT).apply("Exp") - 1.0)


# --- distances --------------------------------------------------------------------------------


def add_squares(row: Tensor, rows: Tensor) -> Tensor:
    """(row,) squared Euclidean distances of a row (feature,) to rows (row, feature)."""
    gaps = rows - row
    return (gaps * gaps).sum(-1)


def add_nearest(distances: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(k,) smallest distances and their indices, nearest first; of equal ones, the first.

    Distances are equal if they are so in float32, as in `NeighborIndex`.
    """
    add, keys = distances.graph.add_several, distances.cast(FLOAT)
    _, indices = add("TopK", 2, keys, np.array([k]), axis=-1, largest=0, sorted=1)
    return distances.take(indices), indices


def add_matern(squares: Tensor) -> Tensor:
    """Add the Matérn 5/2 correlation of squared distances in length scales."""
    root = (squares * 5.0).apply("Sqrt")
    return root.apply("Neg").apply("Exp") * (root + 1.0 + squares * (5.0 / 3.0))


# --- Gaussian processes -----------------------------------------------------------------------


def add_process(process: GaussianProcess, X: Tensor) -> Tensor:
    """Add the mean of a Gaussian process."""
    if process.n_counts:
        refuse("ONNX has no similarity of counts of fragments", "fit it without gp_tanimoto")

    def scaled(values: Tensor) -> Tensor:
        return (values - process.X[0]) / process.length_scales

    def mean_of_row(row: Tensor) -> list[Tensor]:
        squares = add_squares(scaled(row), rows)
        is_matern = process.kernel == "matern"
        kernel = add_matern(squares) if is_matern else (squares * -0.5).apply("Exp")
        return [kernel @ process.dual]

    with X.graph.outside_loops():
        rows = scaled(X.graph.constant(process.X))
    return X.graph.map_rows(mean_of_row, X)[0] * process.scale + process.mean


# --- trees, as the operator TreeEnsemble (ai.onnx.ml 5) ------------------------------------------


def add_trees(ensemble: reader.TreeEnsemble, X: Tensor) -> Tensor:
    """Add the prediction of an ensemble: (row, feature) → (row, output)."""
    if ensemble.value_type == reader.FLOAT32:
        X = X.cast(FLOAT).cast(DOUBLE)
    return concatenate([_add_output(ensemble, k, X) for k in range(len(ensemble.offset))])


def _add_output(ensemble: reader.TreeEnsemble, output: int, X: Tensor) -> Tensor:
    """Add one output of an ensemble: (row, 1)."""
    offset, arrays_of_trees = float(ensemble.offset[output]), []
    n_splits = n_leaves = 0
    for tree in ensemble.trees:
        column, is_leaf = output - tree.output, np.asarray(tree.left) < 0
        if not 0 <= column < tree.value.shape[1]:
            continue
        values = (tree.value[:, column] * tree.scale)[is_leaf]
        if is_leaf.all():
            offset += float(values[0])
            continue
        arrays = _number_nodes(tree, is_leaf, values, n_splits, n_leaves)
        thresholds = reader.inclusive_threshold(tree.threshold, reader.FLOAT64)
        arrays_of_trees.append({**arrays, "nodes_splits": thresholds[~is_leaf]})
        n_splits, n_leaves = n_splits + int(np.sum(~is_leaf)), n_leaves + len(values)
    if not arrays_of_trees:
        return (X * 0.0).sum(-1, keepdims=True) + offset
    nodes = {
        name: np.concatenate([arrays[name] for arrays in arrays_of_trees])
        for name in arrays_of_trees[0]
    }
    tensors = {name: nodes.pop(name) for name in ("nodes_splits", "leaf_weights")}
    tensors["nodes_modes"] = np.full(n_splits, _LESS_OR_EQUAL, dtype=np.uint8)
    if not nodes["nodes_missing_value_tracks_true"].any():
        nodes.pop("nodes_missing_value_tracks_true")
    sums = X.apply(
        "TreeEnsemble",
        domain=ML_DOMAIN,
        n_targets=1,
        aggregate_function=_SUM,
        post_transform=_IDENTITY,
        leaf_targetids=[0] * n_leaves,
        **{name: array.astype(int).tolist() for name, array in nodes.items()},
        **{name: numpy_helper.from_array(array) for name, array in tensors.items()},
    )
    return sums + offset


def _number_nodes(
    tree: reader.Tree, is_leaf: NDArray[np.bool_], values: Floats, n_splits: int, n_leaves: int
) -> dict[str, NDArray[Any]]:
    """Attributes of the operator for the splits and leaves of a tree, after those of other trees.

    onnxruntime takes a root for a leaf where its children, a leaf and a split, have the same number
    (issue 24679); the leaves of such a tree are numbered from the second one on.
    """
    left, right = np.asarray(tree.left)[~is_leaf], np.asarray(tree.right)[~is_leaf]
    number = np.where(
        is_leaf, np.cumsum(is_leaf) - 1 + n_leaves, np.cumsum(~is_leaf) - 1 + n_splits
    )
    ends = [left[0], right[0]]
    shift = int(is_leaf[ends].sum() == 1 and number[left[0]] == number[right[0]])
    number[is_leaf] = (np.arange(len(values)) + shift) % len(values) + n_leaves
    return {
        "tree_roots": np.array([n_splits]),
        "nodes_featureids": np.asarray(tree.feature)[~is_leaf],
        "nodes_missing_value_tracks_true": np.asarray(tree.missing_left)[~is_leaf],
        "nodes_truenodeids": number[left],
        "nodes_trueleafs": is_leaf[left],
        "nodes_falsenodeids": number[right],
        "nodes_falseleafs": is_leaf[right],
        "leaf_weights": np.roll(values, shift).astype(np.float64),
    }


def add_categorical_trees(estimator: HistGradientBoostingRegressor, X: Tensor) -> Tensor:
    """Add the prediction of histogram gradient boosting with categorical features: (row, 1).

    A split by categories is replaced by a split of an additional feature, which is 0 for the
    categories that go left and 1 for the others; a row has those of its categories.
    """
    if estimator.loss not in reader.BOOSTING_LOSSES:
        reason = f"boosting with loss={estimator.loss!r} has a link function"
        refuse(reason, f"use one of {reader.BOOSTING_LOSSES}")
    columns, categories, all_bitsets = boosting_categories(estimator)
    all_nodes, baseline = boosting_trees(estimator)
    positions = {j: position for position, j in enumerate(categories)}
    # of each split by categories: which of them go right, and the position of its feature
    goes_right: list[NDArray[np.integer]] = []
    split_positions, trees = [], []
    for nodes, bitsets in zip(all_nodes, all_bitsets, strict=True):
        tree = reader.boosting_tree(nodes)
        feature, threshold = columns[tree.feature], tree.threshold.copy()
        for i in np.flatnonzero((nodes["is_categorical"] != 0) & (tree.left >= 0)):
            j, bitset = int(feature[i]), bitsets[nodes["bitset_idx"][i]]
            bits = np.unpackbits(np.asarray(bitset, "<u4").view(np.uint8), bitorder="little")
            feature[i], threshold[i] = estimator.n_features_in_ + len(goes_right), 0.5
            # the last entry is for missing values and new categories
            goes_right.append(1 - np.append(bits[: len(categories[j])], tree.missing_left[i]))
            split_positions.append(positions[j])
        trees.append(reader.Tree(feature, threshold, *tree[2:]))
    if goes_right:
        codes = [
            add_category_index(of_feature, X.columns([j])) for j, of_feature in categories.items()
        ]
        starts = np.cumsum([0, *map(len, goes_right[:-1])], dtype=float)
        entries = (concatenate(codes).columns(split_positions) + starts).cast(INT64)
        table = X.graph.constant(np.concatenate(goes_right).astype(np.uint8))
        X = concatenate([X, table.take(entries).cast(DOUBLE)])
    return add_trees(reader.TreeEnsemble(trees, np.ravel(baseline).astype(np.float64)), X)
