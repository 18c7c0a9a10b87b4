"""A typed program that uses twinned; `make lint` checks it with mypy and pyright.

It is not run: `assert_type` states what a type checker must reveal, and a comment that ignores an
error states that there must be one, as unnecessary comments are errors, too.
"""

from typing import Any, assert_type

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NeuralRegressor,
    TwinRegressor,
    conformal,
    cross_conformal,
    diagnose,
    explain,
    load,
    query,
    save,
    solve,
)

Floats = NDArray[np.floating[Any]]


def fit_a_table(X: pd.DataFrame, y: pd.Series, new: pd.DataFrame) -> None:
    model = AutoTwinRegressor(effort="fast", random_state=0).fit(X, y, groups=X["group"])
    assert_type(model, AutoTwinRegressor)
    assert_type(model.predict(new), Floats)
    assert_type(model.predict(new, return_std=True), tuple[Floats, Floats])
    assert_type(model.predict_interval(new, confidence=0.9), Floats)
    assert_type(model.predict_quantiles(new, [0.1, 0.9]), Floats)
    assert_type(model.explain(new, n=3), pd.DataFrame)
    assert_type(model.rank(new), pd.DataFrame)
    assert_type(model.leaderboard_, pd.DataFrame)
    assert_type(model.add_anchors(X, y), AutoTwinRegressor)
    assert_type(explain(model, new), pd.DataFrame)
    assert_type(solve(model, ">= 40", n=3), pd.DataFrame)
    diagnose(X, y, random_state=0)
    query(model, new, 4)
    save(model, "model.twin")
    load("model.twin").predict(new)


def fit_arrays(X: Floats, y: list[float]) -> None:
    twin = TwinRegressor(anchors=NearestAnchors(8), n_jobs=2).fit(X, y)
    assert_type(twin.predict_difference(X, X[::-1]), Floats)
    calibrated = cross_conformal(twin, X, y, cv=5)
    assert_type(calibrated, TwinRegressor)
    assert_type(conformal(twin, X, y).predict_interval(X), Floats)
    assert_type(NeuralRegressor((32,), effort="fast").fit(X, y).predict(X), Floats)


def misspelled(X: Floats, y: Floats) -> None:
    AutoTwinRegressor(membres=["ridge"])  # type: ignore[call-arg]
    AutoTwinRegressor("fast")  # type: ignore[call-arg]
    TwinRegressor().fit(X, y, sample_weights=y)  # type: ignore[call-arg]
    TwinRegressor().predict_interval(X, confidance=0.8)  # type: ignore[call-arg]
    AutoTwinRegressor().fit(X, y, group=y)  # type: ignore[call-arg]
