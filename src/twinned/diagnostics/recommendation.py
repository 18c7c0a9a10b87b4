"""Recommended twin of a diagnosis, its twins of the folds, and Python code that makes it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

from sklearn.base import clone

from twinned._table import Floats
from twinned.diagnostics.baselines import describe
from twinned.diagnostics.comparison import rmse_ratio
from twinned.diagnostics.cross_validation import CrossValidation, use_all_cores
from twinned.diagnostics.result import CheckResult
from twinned.estimators.base import BaseTwin
from twinned.pairing.anchors import NearestAnchors

TWIN_NETWORK = "twin network"


class Recommendation(NamedTuple):
    """An unfitted twin and its counterparts in the folds of the cross-validation.

    `held_out` has for each fold the mean and the standard deviation that its twin predicts for the
    held-out rows.
    """

    twin: BaseTwin
    fold_twins: list[BaseTwin]
    held_out: list[tuple[Floats, Floats]]
    code: str


def recommend(
    cv: CrossValidation,
    checks: Mapping[str, CheckResult],
    networks: list[BaseTwin],
) -> Recommendation:
    """Return the better of the twin and the twin network, with nearest anchors where they help.

    `networks` are the twin networks of the folds, empty where they were not fitted.
    """
    if networks:
        predictions = cv.predictions
        ratio = rmse_ratio(predictions[TWIN_NETWORK], predictions["twin"], cv.y, cv.groups)
        if ratio.high < 1:
            twin = clone(networks[0])
            return Recommendation(twin, networks, _predict(cv, networks), python_code(twin))
    numbers = checks["neighbors"].numbers if "neighbors" in checks else {}
    if numbers.get("best") is None:
        held_out = [(cv.predictions["twin"][rows], cv.std[rows]) for _, rows in cv.folds]
        return Recommendation(cv.twin, cv.twins, held_out, python_code(cv.twin))
    nearest = NearestAnchors(numbers["best"], metric=cv.metric)
    twin = clone(cv.twin).set_params(anchors=nearest)
    # each fold has the k that was chosen without its held-out rows
    twins = [
        copy.copy(own).set_params(anchors=NearestAnchors(k, metric=cv.metric))
        for own, k in zip(cv.twins, numbers["fold_k"], strict=True)
    ]
    return Recommendation(twin, twins, _predict(cv, twins), python_code(twin))


def _predict(cv: CrossValidation, twins: list[BaseTwin]) -> list[tuple[Floats, Floats]]:
    found = []
    for twin, (_, rows) in zip(twins, cv.folds, strict=True):
        with use_all_cores(twin, len(rows)):
            found.append(twin.predict(cv.rows(rows), return_std=True))
    return found


def python_code(twin: BaseTwin) -> str:
    """Return three lines of Python: imports, the twin with its settings, and its fit."""
    parts = {type(twin)} | {
        type(value) for value in twin.get_params().values() if hasattr(value, "get_params")
    }
    modules: dict[str, list[str]] = {}
    for part in sorted(parts, key=lambda part: part.__name__):
        # scikit-learn's classes are imported from public packages; their own modules are private
        module = part.__module__.split("._")[0]
        module = "twinned" if module.startswith("twinned") else module
        modules.setdefault(module, []).append(part.__name__)
    imports = "; ".join(f"from {name} import {', '.join(own)}" for name, own in modules.items())
    return f"{imports}\ntwin = {describe(twin)}\ntwin.fit(X, y)"
