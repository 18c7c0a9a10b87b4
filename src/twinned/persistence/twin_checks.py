"""Checks of the fitted attributes of twins, blends and Gaussian processes.

A schema maps names of attributes to conditions: `Numbers` is an array, a dict is a schema of the
keys of a dict, and a function is a predicate. Axes of arrays have names, and axes of the same name
have the same length.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils.validation import check_is_fitted

from twinned._table import TableSchema
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.features import FeaturePreparation
from twinned.estimators.gaussian_process import GPRegressor
from twinned.intervals.stored import StoredIntervals
from twinned.models.gaussian_process import KERNELS, GaussianProcess
from twinned.persistence.tree_checks import is_integer

# A condition, and the fault where it is false. A later one is evaluated only if it is true.
Check = tuple[bool | np.bool_, str]
Checks = Iterator[Check]
Test = Callable[[Any], Any]


class Numbers(NamedTuple):
    """An array of numbers, with the names of its axes and a test of its elements."""

    axes: str
    test: Test = np.isfinite
    kind: str = "f"  # of the dtype
    optional: bool = False  # None is allowed


Schema = Mapping[str, "Numbers | Test | Schema"]


def match_schema(
    values: Mapping[str, Any], schema: Schema, sizes: dict[str, int], path: str = ""
) -> Checks:
    """Check that values match a schema; `sizes` has the lengths of axes by name, and gets others.

    >>> schema = {"X": Numbers("row feature"), "y": Numbers("row")}
    >>> values = {"X": np.ones((3, 2)), "y": np.ones(4)}
    >>> [fault for condition, fault in match_schema(values, schema, {}) if not condition]
    ['y has 4 entries along the axis row, not 3']
    """
    for name, expected in schema.items():
        value, label = values.get(name), f"{path}{name}"
        if isinstance(expected, Numbers):
            yield from _match_array(value, expected, sizes, label)
        elif isinstance(expected, Mapping):
            known = isinstance(value, dict) and set(value) == set(expected)
            yield known, f"{label} has missing or unknown parts"
            yield from match_schema(values[name], expected, sizes, f"{label}.")
        else:
            yield bool(expected(value)), f"{label} is invalid"


def _match_array(value: Any, expected: Numbers, sizes: dict[str, int], label: str) -> Checks:
    if value is None and expected.optional:
        return
    axes = expected.axes.split()
    yield (
        isinstance(value, np.ndarray)
        and value.dtype.kind == expected.kind
        and value.ndim == len(axes),
        f"{label} is not an array of numbers with {len(axes)} axes",
    )
    for axis, length in zip(axes, value.shape, strict=True):
        known = sizes.setdefault(axis, length)
        yield length == known, f"{label} has {length} entries along the axis {axis}, not {known}"
    yield np.all(expected.test(value)), f"{label} has an invalid value"


def check_twin(twin: BaseTwin) -> Checks:
    """Check the anchors of a twin and, of a blend, all its fitted attributes."""
    values, n_features = vars(twin), getattr(twin, "n_features_in_", None)
    yield is_integer(n_features), f"n_features_in_ is {n_features!r}"
    several = isinstance(twin.anchors_y_, np.ndarray) and twin.anchors_y_.ndim == 2
    sizes = {"feature": int(n_features or 0)}
    anchors = {**_ANCHORS, "anchors_y_": Numbers("anchor output" if several else "anchor")}
    yield from match_schema(values, anchors, sizes)
    yield twin._schema.n_features == n_features, "its table has another number of features"
    if isinstance(twin, AutoTwinRegressor):
        twin._check_parameters()
        yield from _check_blend(twin, sizes)


def _check_blend(blend: AutoTwinRegressor, sizes: dict[str, int]) -> Checks:
    members, preparations = blend.members_, blend._preparations
    yield _is_dict_of(members, _is_regressor) and bool(members), "members_ are not regressors"
    known = isinstance(preparations, list) and len(preparations) == len(members)
    yield known, "it does not have one preparation of features for each member"
    sizes |= {"member": len(members), "row": int((blend.anchor_rows_ >= 0).sum())}
    schema = _BLEND if blend.contribution_ is None else {**_BLEND, "contribution_": _CONTRIBUTION}
    yield from match_schema(vars(blend), schema, sizes)
    names = blend._leaderboard["member"]
    yield (
        isinstance(names, list) and sorted(names) == sorted(members),
        "its leaderboard has other members",
    )
    planned = [entry if isinstance(entry, str) else entry[0] for entry in blend.plan_]
    yield planned == list(members), "its plan has other members"
    for preparation, (name, estimator) in zip(preparations, members.items(), strict=True):
        is_known = isinstance(preparation, FeaturePreparation)
        yield is_known, f"the features of {name!r} are a {type(preparation).__name__}"
        yield from _check_preparation(preparation)
        check_is_fitted(estimator)
        columns = preparation.n_columns
        yield (
            preparation.n_features == sizes["feature"]
            and getattr(estimator, "n_features_in_", columns) == columns,
            f"the member {name!r} has another number of features",
        )
    yield "intervals_" in vars(blend), "it has no stored intervals"
    yield len(blend.intervals_["scores"]) == sizes["row"], "its scores are not one for each row"
    # raises where the parts of the error scale do not fit together
    StoredIntervals(blend).error_scale(blend.anchors_X_[:1], blend.anchors_y_[:1], np.ones(1))


def _check_preparation(preparation: FeaturePreparation) -> Checks:
    sizes = {"feature": preparation.n_features}
    yield from match_schema(vars(preparation), _PREPARATION, sizes)
    categorical, marked = preparation.categorical, preparation.marked
    for columns in (categorical, marked, preparation.empty):
        in_range = all(0 <= j < preparation.n_features for j in columns)
        yield in_range and sorted(set(columns)) == columns, "its columns are invalid"
    yield len(preparation.n_categories) == len(categorical), "its numbers of categories are invalid"
    n_dense = preparation.n_features + len(marked) + sum(preparation.n_categories)
    n_scaled = n_dense if preparation.kind == "dense" else 0
    yield len(preparation.center) == n_scaled, f"it scales other columns than its {n_scaled}"


def check_process(process: GaussianProcess) -> Checks:
    """Check the arrays of a Gaussian process."""
    sizes: dict[str, int] = {}
    yield from match_schema(vars(process), _PROCESS, sizes)
    yield sizes["row"] > 0, "it has no rows"
    yield sizes["output"] == 1 or not process.single_output, "it has several outputs"


def check_gp_regressor(model: GPRegressor) -> Checks:
    """Check that a regressor has the features of its Gaussian process."""
    process = model.process_
    yield type(process) is GaussianProcess, f"its process is a {type(process).__name__}"
    n_features = getattr(model, "n_features_in_", None)
    yield np.shape(process.X)[-1] == n_features, f"n_features_in_ is {n_features!r}"


# --- predicates of schemas ------------------------------------------------------------------------


def _is_share(value: Any) -> bool:
    return bool((value >= 0).all() and abs(value.sum() - 1.0) < 1e-9)


def _is_nonnegative(value: Any) -> Any:
    return np.isfinite(value) & (value >= 0)


def _is_positive(value: Any) -> Any:
    return np.isfinite(value) & (value > 0)


def _is_float(value: Any) -> bool:
    return isinstance(value, float) and 0 <= value < np.inf


def _is_positive_float(value: Any) -> bool:
    return _is_float(value) and value > 0


def _is_count_list(value: Any) -> bool:
    return isinstance(value, list) and all(is_integer(item) and item >= 0 for item in value)


def _is_dict_of(value: Any, test: Test) -> bool:
    texts = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return texts and all(test(item) for item in value.values())


def _is_regressor(value: Any) -> bool:
    return isinstance(value, BaseEstimator) and is_regressor(value)


def _is_plan(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, str) or (isinstance(entry, tuple) and len(entry) == 2) for entry in value
    )


_ANCHORS: Schema = {
    "anchors_X_": Numbers("anchor feature", lambda values: ~np.isinf(values)),
    "anchor_weights_": Numbers("anchor", _is_nonnegative, optional=True),
    "anchor_rows_": Numbers("anchor", lambda rows: rows >= -1, "i"),
    "_schema": lambda value: type(value) is TableSchema,
    "_pair_dtype": lambda value: value in (np.dtype(np.float32), np.dtype(np.float64)),
}
_BLEND: Schema = {
    "member_weights_": Numbers("member", _is_share),
    "_spread_weights": Numbers("member", _is_share),
    "out_of_fold_prediction_": Numbers("row"),
    "_leaderboard": {
        "member": lambda names: isinstance(names, list),
        **dict.fromkeys(["rmse", "rmse_se", "weight"], Numbers("member", _is_nonnegative)),
        **dict.fromkeys(["fit_seconds", "predict_seconds"], Numbers("member", _is_nonnegative)),
        "bytes": Numbers("member", _is_nonnegative, "i"),
    },
    "blend_": {
        "method": lambda value: value in ("single", "greedy", "simplex"),
        "rmse": _is_float,
        "nested_rmse": lambda value: _is_dict_of(value, _is_float),
    },
    "plan_": _is_plan,
    "skipped_": lambda value: _is_dict_of(value, lambda reason: isinstance(reason, str)),
}
_CONTRIBUTION: Schema = {
    # the ratio is infinite where the blend without twins has no error
    **dict.fromkeys(["ratio", "lower", "upper"], lambda value: isinstance(value, float)),
    **dict.fromkeys(["rmse", "baseline_rmse"], _is_float),
    "baseline_weights": Numbers("member", _is_share),
}
_PREPARATION: Schema = {
    "kind": lambda value: value in ("encoded", "complete", "dense"),
    "n_features": lambda value: is_integer(value) and value > 0,
    **dict.fromkeys(["categorical", "n_categories", "empty", "marked"], _is_count_list),
    "medians": Numbers("feature"),
    "center": Numbers("column"),
    "spread": Numbers("column", _is_positive),
}
_PROCESS: Schema = {
    "kernel": lambda value: value in KERNELS,
    "X": Numbers("row feature"),
    "length_scales": Numbers("feature", lambda values: values > 0),
    "weight": Numbers("row", _is_positive),
    **dict.fromkeys(["target", "dual"], Numbers("row output")),
    "mean": Numbers("output"),
    "scale": Numbers("output", _is_positive),
    **dict.fromkeys(["amplitude", "noise"], _is_positive_float),
    "log_marginal_likelihood_": lambda value: isinstance(value, float),
    "single_output": lambda value: isinstance(value, bool),
}
