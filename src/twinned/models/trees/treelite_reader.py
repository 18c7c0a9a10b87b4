"""LightGBM and XGBoost, read through treelite, which knows how each of them keeps its trees."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from twinned.models.trees.reader import FLOAT32, FLOAT64, Tree, Trees

# treelite's numbers for comparisons
_LESS, _AT_MOST = 2, 3
# LightGBM takes what is so near to zero for zero; a float32 number, kept in float64.
_ZERO = float(np.float32(1e-35))
_LIGHTGBM_SUMS = (
    "regression", "regression_l1", "huber", "fair", "quantile", "mape",
)  # fmt: skip
_XGBOOST_SUMS = (
    "reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror",
    "reg:quantileerror",
)  # fmt: skip


def of_lightgbm(estimator: Any) -> Trees | None:
    """Read an `LGBMRegressor`.

    None where its objective is not the plain sum of the trees, or where zero counts as missing.
    """
    from treelite.frontend import from_lightgbm

    booster = estimator.booster_
    about = booster.dump_model(num_iteration=1)
    objective, *options = about["objective"].split()
    if objective not in _LIGHTGBM_SUMS or "sqrt" in options:
        return None
    settings = booster.params
    if any(settings.get(name) for name in ("linear_tree", "linear_trees", "zero_as_missing")):
        return None
    if settings.get("boosting_type", "gbdt") not in ("gbdt", "goss", "rf"):
        return None
    if getattr(estimator, "linear_tree", False) or getattr(estimator, "zero_as_missing", False):
        return None
    trees = _of_treelite(from_lightgbm(booster), _AT_MOST)
    if trees is None:
        return None
    return Trees(
        [tree._replace(threshold=_past_zero(tree.threshold)) for tree in trees],
        np.zeros(1),
        FLOAT64,
        False,
        FLOAT64,
    )


def _past_zero(threshold: Any) -> Any:
    """Thresholds that ask of a value what the old ones ask of it once it is zero if it is near.

    >>> _past_zero(np.array([-1.0, 0.0, 1e-40, 1.0])) >= np.array([-1.0, _ZERO, _ZERO, 1.0])
    array([ True,  True,  True,  True])
    """
    threshold = np.where((threshold >= 0) & (threshold < _ZERO), _ZERO, threshold)
    under = np.nextafter(-_ZERO, -np.inf)
    return np.where((threshold >= -_ZERO) & (threshold < 0), under, threshold)


def of_xgboost(estimator: Any) -> Trees | None:
    """Read an `XGBRegressor`.

    None where its objective is not the plain sum of the trees, or where a number of the user's
    counts as missing.
    """
    from treelite.frontend import from_xgboost

    booster = estimator.get_booster()
    settings = json.loads(booster.save_config())["learner"]
    if settings["objective"]["name"] not in _XGBOOST_SUMS:
        return None
    if settings["learner_train_param"]["booster"] != "gbtree" or not np.isnan(estimator.missing):
        return None
    try:
        best = estimator.best_iteration  # predicts with the trees up to it
    except AttributeError:
        best = None
    if best is not None:
        booster = booster[: best + 1]
    model = from_xgboost(booster)
    trees = _of_treelite(model, _LESS)
    if trees is None:
        return None
    # fields are the model's own memory, which goes with it: copy
    offset = np.array(model.get_header_accessor().get_field("base_scores"), dtype=np.float64)
    return Trees(trees, offset, FLOAT32, True, FLOAT32)


def _of_treelite(model: Any, comparison: int) -> list[Tree] | None:
    """The trees of a model whose prediction is their sum, or None."""
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
