"""Readers of LightGBM and XGBoost models, by means of treelite."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from twinned.models.trees.ensemble import (
    FLOAT32,
    FLOAT64,
    Tree,
    TreeEnsemble,
    UnreadableTreesError,
)

# treelite's codes of comparisons
_LESS, _LESS_OR_EQUAL = 2, 3
# LightGBM treats values up to this as zero: a float32 number, stored in float64.
_ZERO = float(np.float32(1e-35))
# Objectives with which the prediction is the sum of the trees.
_LIGHTGBM_SUMS = (
    "regression", "regression_l1", "huber", "fair", "quantile", "mape",
)  # fmt: skip
_XGBOOST_SUMS = (
    "reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror",
    "reg:quantileerror",
)  # fmt: skip


def read_lightgbm(estimator: Any) -> TreeEnsemble | None:
    """Read an `LGBMRegressor`.

    None where its prediction is not the plain sum of the trees, or where zero counts as missing.
    """
    from treelite.frontend import from_lightgbm

    booster = estimator.booster_
    model = booster.dump_model(num_iteration=1)
    objective, *options = model["objective"].split()
    if objective not in _LIGHTGBM_SUMS or "sqrt" in options:
        return None
    settings = booster.params
    if any(settings.get(name) for name in ("linear_tree", "linear_trees", "zero_as_missing")):
        return None
    if settings.get("boosting_type", "gbdt") not in ("gbdt", "goss", "rf"):
        return None
    if getattr(estimator, "linear_tree", False) or getattr(estimator, "zero_as_missing", False):
        return None
    trees = _read_treelite(_convert(from_lightgbm, booster), _LESS_OR_EQUAL)
    if trees is None:
        return None
    return TreeEnsemble(
        [tree._replace(threshold=_beyond_zero(tree.threshold)) for tree in trees],
        np.zeros(1),
        FLOAT64,
        False,
        FLOAT64,
    )


def _beyond_zero(threshold: Any) -> Any:
    """Return thresholds with which values near zero go the same way as zero.

    >>> _beyond_zero(np.array([-1.0, 0.0, 1e-40, 1.0])) >= np.array([-1.0, _ZERO, _ZERO, 1.0])
    array([ True,  True,  True,  True])
    """
    threshold = np.where((threshold >= 0) & (threshold < _ZERO), _ZERO, threshold)
    below = np.nextafter(-_ZERO, -np.inf)
    return np.where((threshold >= -_ZERO) & (threshold < 0), below, threshold)


def read_xgboost(estimator: Any) -> TreeEnsemble | None:
    """Read an `XGBRegressor`.

    None where its prediction is not the plain sum of the trees, or where a number counts as
    missing.
    """
    from treelite.frontend import from_xgboost

    booster = estimator.get_booster()
    settings = json.loads(booster.save_config())["learner"]
    if settings["objective"]["name"] not in _XGBOOST_SUMS:
        return None
    if settings["learner_train_param"]["booster"] != "gbtree" or not np.isnan(estimator.missing):
        return None
    try:
        best = estimator.best_iteration  # it predicts with the trees up to this one
    except AttributeError:
        best = None
    if best is not None:
        booster = booster[: best + 1]
    model = _convert(from_xgboost, booster)
    trees = _read_treelite(model, _LESS)
    if trees is None:
        return None
    # fields are views of the model's memory, which is freed with it: copy
    offset = np.array(model.get_header_accessor().get_field("base_scores"), dtype=np.float64)
    return TreeEnsemble(trees, offset, FLOAT32, True, FLOAT32)


def _convert(load: Callable[[Any], Any], booster: Any) -> Any:
    """Convert a booster into a treelite model."""
    from treelite import TreeliteError

    try:
        return load(booster)
    except TreeliteError as error:
        raise UnreadableTreesError(str(error)) from error


def _read_treelite(model: Any, comparison: int) -> list[Tree] | None:
    """Return the trees of a model; None where its prediction is not their sum."""
    header = model.get_header_accessor()
    if header.get_field("postprocessor") != "identity":
        return None
    if np.any(header.get_field("leaf_vector_shape") != 1) or np.any(
        header.get_field("num_class") != 1
    ):
        return None
    outputs = header.get_field("target_id")
    if np.any(outputs < 0):
        return None
    scale = 1.0 / len(outputs) if header.get_field("average_tree_output")[0] else 1.0
    trees = []
    for number, output in enumerate(outputs):
        tree = model.get_tree_accessor(number)
        if tree.get_field("has_categorical_split")[0]:
            return None
        left = tree.get_field("cleft").copy()
        inner = left >= 0
        if np.any(tree.get_field("cmp")[inner] != comparison):
            return None
        trees.append(
            Tree(
                tree.get_field("split_index").copy(),
                tree.get_field("threshold").astype(np.float64),
                left,
                tree.get_field("cright").copy(),
                tree.get_field("default_left").astype(bool),
                tree.get_field("leaf_value").astype(np.float64)[:, None],
                scale,
                int(output),
            )
        )
    return trees
