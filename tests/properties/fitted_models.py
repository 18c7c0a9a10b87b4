"""One fitted model for each estimator or wrapper and each kind of rows."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import twinned
from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NeuralRegressor,
    NeuralTraining,
    SemiSupervisedTwinRegressor,
    TransformedTargetTwin,
    TwinNeuralRegressor,
    TwinRegressor,
    conformal,
    cross_conformal,
)

N, N_QUERIES = 60, 9
TREES = ExtraTreesRegressor(4, max_depth=5, random_state=0)
SMALL = {"n_members": 2, "training": NeuralTraining(max_steps=20), "random_state": 0}
NEAREST = {"anchors": NearestAnchors(6), "weights": "distance"}
BLEND = AutoTwinRegressor(members=["ridge"], cv=4, random_state=0)

ESTIMATORS = {
    "twin": TwinRegressor(Ridge()),
    "folds": TwinRegressor(TREES, cv=3, random_state=0),
    "nearest": TwinRegressor(TREES, **NEAREST),
    "default": TwinRegressor(random_state=0),
    "semi": SemiSupervisedTwinRegressor(TwinRegressor(TREES), random_state=0),
    "semi neural": SemiSupervisedTwinRegressor(
        TwinNeuralRegressor((4,), **SMALL), n_loops=20, random_state=0
    ),
    "blend": BLEND,
    "neural twin": TwinNeuralRegressor((4,), **SMALL),
    "networks": NeuralRegressor((4,), **SMALL),
    "power": TransformedTargetTwin(BLEND, target_transform="power"),
    "log": TransformedTargetTwin(TwinRegressor(TREES)),
    "conformal": TwinRegressor(TREES),
    "crossed": TwinRegressor(Ridge()),
}
CONDITIONS = ["plain", "batch", "targets", "transformed", "censored", "y_std", "weights", "groups"]
CONDITIONS += ["pipeline", "dask", "loaded", "added"]


class Case(NamedTuple):
    """A fitted model, and rows to predict with their values."""

    model: object
    X: pd.DataFrame
    y: np.ndarray
    options: dict  # of predictions
    fitted_rows: tuple  # X and y of the fit
    reference: "Case | None" = None  # whose results are equal

    def call(self, method, **arguments):
        """The result of a method for the rows, in memory."""
        import dask

        arguments = {"X": self.X, **arguments, **self.options}
        if isinstance(self.model, Pipeline) and method in ("explain", "predict_interval"):
            result = getattr(twinned, method)(self.model, **arguments)
        else:
            result = getattr(self.model, method)(arguments.pop("X"), **arguments)
        result = dask.compute(result)[0]
        is_table = method in ("explain", "rank") or not isinstance(result, pd.Series | pd.DataFrame)
        return result if is_table else result.to_numpy()


def fit(name, condition):
    """The fitted model of an estimator and a kind of rows."""
    rng = np.random.RandomState(0)
    table = pd.DataFrame(rng.normal(size=(N + N_QUERIES, 3)), columns=list("uvw"))
    table = table.astype(np.float32).astype(np.float64)  # C code has single precision
    y = 9.0 + 1.5 * table["u"] + table["v"] ** 2 + 0.3 * rng.normal(size=len(table))
    X, y, new_y = table[:N], y[:N].to_numpy(), y[N:].to_numpy()
    estimator, arguments, options = ESTIMATORS[name], {}, {}
    if condition == "batch":
        batch = np.array(["a", "b", "c"])[np.arange(N) % 3]
        y, arguments, options = y + np.arange(N) % 3, {"batch": batch}, {"batch": "b"}
    elif condition == "targets":
        y, new_y = np.column_stack([y, 30.0 - y]), np.column_stack([new_y, 30.0 - new_y])
    elif condition == "transformed":
        estimator = TransformedTargetTwin(estimator, target_transform="power")
    elif condition == "censored":
        limit = np.where(np.arange(N) % 8 == 1, y + 0.2, np.nan)
        y, arguments = np.where(np.isnan(limit), y, np.nan), {"y_upper": limit}
    elif condition == "y_std":
        arguments = {"y_std": np.linspace(0.1, 0.5, N)}
    elif condition == "weights":
        arguments = {"sample_weight": 0.5 + np.arange(N) % 3}
    elif condition == "groups":
        arguments = {"groups": np.arange(N) // 4}
    elif condition == "pipeline":
        estimator = make_pipeline(StandardScaler(), estimator)
    if name.startswith("semi"):
        y = y.copy()
        y[::6] = np.nan  # unlabelled rows
    if name == "crossed":
        model = cross_conformal(estimator, X, y, cv=3, random_state=0, **arguments)
    elif name == "conformal":
        training = {key: values[:36] for key, values in arguments.items()}
        held_out = {key: values[36:] for key, values in arguments.items()}
        model = conformal(estimator.fit(X[:36], y[:36], **training), X[36:], y[36:], **held_out)
    else:
        model = estimator.fit(X, y, **arguments)
    case = Case(model, table[N:].reset_index(drop=True), new_y, options, (X, y))
    if condition == "dask":
        import dask.dataframe as dd

        return case._replace(X=dd.from_pandas(case.X, npartitions=2), reference=case)
    if condition == "loaded":
        return case._replace(model=save_and_load(model), reference=case)
    if condition == "added":
        return case._replace(model=model.add_anchors(case.X[:4], new_y[:4] + 1.0))
    return case


def save_and_load(model):
    """The model from a file."""
    with TemporaryDirectory() as folder:
        twinned.save(model, Path(folder) / "model.twin")
        return twinned.load(Path(folder) / "model.twin")
