"""Regressors of scikit-learn, LightGBM and twinned, on a matrix of numbers; nearest rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from twinned._compat import boosting_categories, boosting_trees, unwrap_search
from twinned.estimators.gaussian_process import GPRegressor
from twinned.estimators.power import QUADRATURE, PowerRegressor, TransformedModel
from twinned.export.model_parts import refuse
from twinned.export.onnx.graph import DOUBLE, FLOAT, INT64, ML_DOMAIN, Tensor, concatenate
from twinned.export.onnx.inputs import add_category_index
from twinned.models.gaussian_process import GaussianProcess
from twinned.models.trees import reader
from twinned.persistence.schema import LINEAR
from twinned.rows.neighbors import TRANSLATION_INVARIANT
from twinned.rows.scaling import MAX_EXPONENT
from twinned.rows.schema import Floats

_SUM, _IDENTITY = 1, 0  # codes of ONNX: how trees are added, and what is done with the sum
_LESS_OR_EQUAL = 0
_MAX_EXACT = 2**24  # integers below are exact in float32


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


def add_scaler(scaler: BaseEstimator, X: Tensor) -> Tensor:
    """Add a fitted scaler or imputer of scikit-learn, which keeps the number of features."""
    is_imputer = type(scaler) is SimpleImputer and isinstance(scaler.missing_values, float)
    replaces_nan = is_imputer and np.isnan(scaler.missing_values) and not scaler.add_indicator
    if replaces_nan and np.isfinite(scaler.statistics_).all():
        return X.fill_nan(scaler.statistics_)
    if (operations := _read_scaler(scaler)) is None:
        reason = f"the pipeline step {type(scaler).__name__} is not a supported scaler"
        refuse(reason, "apply it before the model, and export the last step of the pipeline")
    for operator, values in operations:
        X = X.apply(operator, values)
    return X


def _read_linear(estimator: BaseEstimator) -> tuple[Floats, Floats] | None:
    """Coefficients (output, feature) and intercepts (output,) of a linear model, or None."""
    kind = type(estimator)
    if kind.__name__ not in LINEAR or not kind.__module__.startswith("sklearn."):
        return None
    coefficients = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    return coefficients, np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64))


def _read_scaler(scaler: BaseEstimator) -> list[tuple[str, Floats]] | None:
    """Operations, named as in ONNX, by which a fitted scaler changes features; None for others."""
    kind = type(scaler)
    if scaler is None or (kind is str and scaler == "passthrough"):
        return []
    if kind is MinMaxScaler and not scaler.clip:
        return [("Mul", scaler.scale_), ("Add", scaler.min_)]
    center = None
    if kind is StandardScaler:
        center = scaler.mean_ if scaler.with_mean else None
    elif kind is RobustScaler:
        center = scaler.center_
    elif kind is not MaxAbsScaler or scaler.get_params().get("clip"):
        return None
    steps = [("Sub", center), ("Div", scaler.scale_)]
    return [(operator, values) for operator, values in steps if values is not None]


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


def add_distances(row: Tensor, rows: Tensor, metric: str = "euclidean") -> Tensor:
    """(row,) distances of a row (feature,) to rows (row, feature)."""
    if metric not in TRANSLATION_INVARIANT:
        way_out = f"use one of {', '.join(sorted(TRANSLATION_INVARIANT))} or 'learned'"
        refuse(f"the metric {metric!r} is not supported", way_out)
    gaps = (rows - row).apply("Abs")
    if metric == "chebyshev":
        return gaps.reduce("ReduceMax", -1)
    if metric in ("manhattan", "l1", "cityblock"):
        return gaps.sum(-1)
    if metric == "nan_euclidean":
        # over the features that both have, scaled to all; NaN where they share none
        share = gaps.is_nan().apply("Where", 0.0, 1.0).mean(-1)
        gaps = gaps.fill_nan(0.0)
        return ((gaps * gaps).sum(-1) / share).apply("Sqrt")
    squares = (gaps * gaps).sum(-1)
    return squares if metric == "sqeuclidean" else squares.apply("Sqrt")


def add_nearest(distances: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(k,) smallest distances and their indices, nearest first; of equal ones, the first.

    Distances are equal if they are so in float32, as in `NeighborIndex`.
    """
    add, keys = distances.graph.add_several, distances.cast(FLOAT)
    _, indices = add("TopK", 2, keys, np.array([k]), axis=-1, largest=0, sorted=1)
    return distances.take(indices), indices


def add_inverse(distances: Tensor) -> Tensor:
    """Inverse distances; where some are zero, 1 for these and 0 for others."""
    is_zero = distances.equals(0.0)
    any_zero = is_zero.reduce("ReduceMax", -1, keepdims=True).apply("Greater", 0.0)
    return any_zero.apply("Where", is_zero, 1.0 / distances.apply("Max", 1e-300))


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
        squares = add_distances(scaled(row), rows, "sqeuclidean")
        is_matern = process.kernel == "matern"
        kernel = add_matern(squares) if is_matern else (squares * -0.5).apply("Exp")
        return [kernel @ process.dual]

    with X.graph.outside_loops():
        rows = scaled(X.graph.matrix(process.X))
    return X.graph.map_rows(mean_of_row, X)[0] * process.scale + process.mean


# --- trees, as the operator TreeEnsemble (ai.onnx.ml 5) -------------------------------------------
#
# Trees that compare float32 values are stored in float32, with thresholds rounded down, so that
# each comparison is the same; other trees are stored in float64. The values of each tree are
# centered, and their centers are added in float64: in float32 a large mean of y would cost digits.


def add_trees(ensemble: reader.TreeEnsemble, X: Tensor) -> Tensor:
    """Add the prediction of an ensemble: (row, feature) → (row, output)."""
    dtype, n_outputs = ensemble.value_type, len(ensemble.offset)
    nodes, offset = _join_trees(ensemble)
    if not nodes:
        return (X * 0.0).sum(-1, keepdims=True) + offset
    values, outputs, trees = (nodes.pop(name) for name in ("value", "output", "tree"))
    weights, has_one_value = values[:, 0], values.shape[1] == 1
    if not has_one_value:
        # A leaf of the operator has one value: its index. Each tree has an output of the operator,
        # and the values are looked up by the indices.
        weights, outputs, n_outputs = np.arange(len(values)), trees, trees[-1] + 1
        dtype = dtype if len(values) <= _MAX_EXACT else np.dtype(np.float64)
    thresholds = nodes["nodes_splits"].astype(dtype)
    modes = np.full(len(thresholds), _LESS_OR_EQUAL, dtype=np.uint8)
    attributes = {name: array.tolist() for name, array in nodes.items()}
    attributes["nodes_splits"] = numpy_helper.from_array(thresholds)
    if not nodes["nodes_missing_value_tracks_true"].any():
        attributes.pop("nodes_missing_value_tracks_true")
    sums = (X.cast(FLOAT) if dtype == reader.FLOAT32 else X).apply(
        "TreeEnsemble",
        domain=ML_DOMAIN,
        n_targets=n_outputs,
        aggregate_function=_SUM,
        post_transform=_IDENTITY,
        nodes_modes=numpy_helper.from_array(modes),
        leaf_targetids=outputs.tolist(),
        leaf_weights=numpy_helper.from_array(weights.astype(dtype)),
        **attributes,
    )
    sums = sums.cast(DOUBLE) if dtype == reader.FLOAT32 else sums
    if has_one_value:
        return sums + offset
    with X.graph.outside_loops():
        table = X.graph.constant(values.astype(ensemble.value_type)).cast(DOUBLE)
    return table.take(sums.cast(INT64)).sum(1) + offset


def _join_trees(ensemble: reader.TreeEnsemble) -> tuple[dict[str, np.ndarray], Floats]:
    """Number the splits and leaves of trees, and return (output,) offsets.

    The arrays of splits are attributes of the operator; there are none where no tree has a split.
    Of each leaf, there are its values, the first output of these, and the number of its tree.
    onnxruntime takes a root for a leaf where its children, a leaf and a split, have the same number
    (issue 24679); the leaves of such a tree are numbered from the second one on.
    """
    offset = ensemble.offset.astype(np.float64)
    arrays_of_trees: list[dict[str, object]] = []
    n_splits = n_all_leaves = 0
    for tree in ensemble.trees:
        is_leaf = np.asarray(tree.left) < 0
        leaves = (tree.value * tree.scale)[is_leaf]
        center = 0.5 * (leaves.min(axis=0) + leaves.max(axis=0))
        offset[tree.output : tree.output + len(center)] += center
        inner, n_leaves = np.flatnonzero(~is_leaf), len(leaves)
        if not len(inner):  # it is a constant
            continue
        left, right = np.asarray(tree.left)[inner], np.asarray(tree.right)[inner]
        number = np.cumsum(is_leaf) - 1 + n_all_leaves
        number[inner] = np.arange(len(inner)) + n_splits
        ends = [left[0], right[0]]
        shift = int(is_leaf[ends].sum() == 1 and number[left[0]] == number[right[0]])
        number[is_leaf] = (np.arange(n_leaves) + shift) % n_leaves + n_all_leaves
        threshold = reader.inclusive_threshold(tree.threshold, ensemble.value_type, ensemble.strict)
        arrays = {
            "nodes_featureids": np.asarray(tree.feature)[inner],
            "nodes_splits": threshold[inner],
            "nodes_missing_value_tracks_true": np.asarray(tree.missing_left, dtype=int)[inner],
            "nodes_truenodeids": number[left],
            "nodes_trueleafs": is_leaf[left].astype(int),
            "nodes_falsenodeids": number[right],
            "nodes_falseleafs": is_leaf[right].astype(int),
            "tree_roots": [n_splits],
            "value": np.roll(leaves - center, shift, axis=0),
            "output": np.full(n_leaves, tree.output),
            "tree": np.full(n_leaves, len(arrays_of_trees)),
        }
        arrays_of_trees.append(arrays)
        n_splits, n_all_leaves = n_splits + len(inner), n_all_leaves + n_leaves
    names = arrays_of_trees[0] if arrays_of_trees else {}
    joined = {name: np.concatenate([tree[name] for tree in arrays_of_trees]) for name in names}
    return joined, offset


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
