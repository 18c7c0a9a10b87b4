"""Small fitted models, one for each kind that a model file may hold, and rows to predict."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import linear_model
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned import (
    AutoTwinRegressor,
    InverseTwinRegressor,
    MoleculeFeatures,
    NeuralRegressor,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
)
from twinned.estimators.regressors import GPRegressor, PowerRegressor
from twinned.estimators.target import TransformedTargetTwin

N_ROWS = 24


def numbers() -> tuple[Any, Any]:
    X = np.random.RandomState(0).normal(size=(N_ROWS, 3))
    return X, X[:, 0] + 0.5 * X[:, 1] ** 2


def table() -> tuple[Any, Any]:
    X, y = numbers()
    kinds = np.resize(["blue", "green", "red"], N_ROWS)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(kind=pd.Categorical(kinds))
    return frame, y + (kinds == "red")


def coded_table() -> tuple[Any, Any]:
    X, y = numbers()
    codes = np.resize([0.0, 1.0, 2.0], N_ROWS)
    return np.column_stack([X, codes]), y + (codes == 2)


def molecules() -> tuple[Any, Any]:
    return ["C" * (1 + i % 6) + "O" * (i % 2) for i in range(N_ROWS)], numbers()[1]


def fit_numbers(model: Any) -> Any:
    return model.fit(*numbers())


def fit_table(model: Any) -> Any:
    return model.fit(*table())


def histogram(**options: Any) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=3, **options)


def with_intervals(twin: Any, X: Any, y: Any) -> Any:
    return twinned.cross_conformal(twin, X, y, cv=2, random_state=0)


def semi_supervised() -> Any:
    X, y = numbers()
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    model = twinned.SemiSupervisedTwinRegressor(twin, random_state=0)
    return model.fit(X, np.where(np.arange(N_ROWS) < 16, y, np.nan))


def two_outputs(model: Any) -> Any:
    X, y = numbers()
    return model.fit(X, np.column_stack([y, -y]))


def blend() -> Any:
    # the boosting of the table has categorical splits
    members = ["ridge", "gp_rbf", ("trees", ExtraTreesRegressor(2, random_state=0))]
    members += [("twin", TwinRegressor(histogram()))]
    return fit_table(AutoTwinRegressor(members=members, effort="fast", cv=2, random_state=0))


def network(cls: Any) -> Any:
    return fit_numbers(
        cls(
            (4,),
            n_members=2,
            training=NeuralTraining(max_steps=4, fold_steps=4, n_folds=2),
            random_state=0,
        )
    )


MODELS: dict[str, Callable[[], Any]] = {
    "ridge": lambda: fit_numbers(linear_model.RidgeCV()),
    "tree": lambda: fit_numbers(DecisionTreeRegressor(max_depth=3, random_state=0)),
    "forest": lambda: two_outputs(RandomForestRegressor(2, max_depth=3, random_state=0)),
    "gradient_boosting": lambda: fit_numbers(GradientBoostingRegressor(n_estimators=3)),
    "histogram": lambda: fit_numbers(histogram()),
    "histogram_table": lambda: histogram(categorical_features=[3]).fit(*coded_table()),
    "neighbors": lambda: fit_numbers(KNeighborsRegressor(3)),
    "perceptron": lambda: fit_numbers(MLPRegressor(hidden_layer_sizes=(3,), max_iter=3)),
    "pipeline": lambda: fit_numbers(
        make_pipeline(SimpleImputer(), StandardScaler(), linear_model.Lasso(0.01))
    ),
    "perceptron_poisson": lambda: MLPRegressor("poisson", hidden_layer_sizes=(3,), max_iter=3).fit(
        numbers()[0], np.exp(numbers()[1])
    ),
    "multi_output": lambda: two_outputs(MultiOutputRegressor(histogram())),
    "process": lambda: fit_numbers(GPRegressor(random_state=0)),
    "power": lambda: fit_numbers(PowerRegressor(GPRegressor())),
    "twin_histogram": lambda: fit_numbers(TwinRegressor(histogram(), random_state=0)),
    "twin_forest": lambda: two_outputs(
        TwinRegressor(RandomForestRegressor(2, max_depth=3, random_state=0))
    ),
    "twin_nearest": lambda: fit_numbers(
        TwinRegressor(
            linear_model.Ridge(),
            anchors=twinned.NearestAnchors(4, metric="learned"),
            weights="distance",
        )
    ),
    "twin_table": lambda: with_intervals(
        TwinRegressor(ExtraTreesRegressor(2, max_depth=4, random_state=0)), *table()
    ),
    "log_target": lambda: TransformedTargetTwin(
        TwinRegressor(DecisionTreeRegressor(max_depth=3), random_state=0)
    ).fit(numbers()[0], np.exp(numbers()[1])),
    "power_target": lambda: fit_numbers(
        TransformedTargetTwin(
            TwinRegressor(linear_model.Ridge(), random_state=0), target_transform="power"
        )
    ),
    "semi_supervised": semi_supervised,
    "inverse": lambda: fit_numbers(InverseTwinRegressor(linear_model.Ridge(), random_state=0)),
    "blend": blend,
    "neural": lambda: network(NeuralRegressor),
    "neural_twin": lambda: network(TwinNeuralRegressor),
}
if find_spec("rdkit"):
    MODELS["molecules"] = lambda: make_pipeline(
        MoleculeFeatures(descriptors=False, n_fragments=8), linear_model.Ridge()
    ).fit(*molecules())
TWINS = [name for name in MODELS if name.startswith("twin")] + ["semi_supervised", "blend"]


def queries(name: str) -> tuple[Any, Any]:
    """Return rows for the model of this name, and their target values."""
    if name == "inverse":
        return numbers()[1][:4], None
    if name == "histogram_table":
        return coded_table()[0][:4], None
    if name == "molecules":
        return molecules()[0][:4], None
    X, y = table() if name in ("twin_table", "blend") else numbers()
    several = name in ("forest", "multi_output", "twin_forest")
    return X[:4], np.column_stack([y, y])[:4] if several else y[:4]


def save_models(folder: Path, names: list[str]) -> None:
    """Fit the models of these names and save them in a folder."""
    with small_error_scale():
        for name in names:
            twinned.save(MODELS[name](), folder / f"{name}.twin")


def small_error_scale() -> Any:
    """Fit the error scale of intervals with two trees."""
    from unittest import mock

    return mock.patch(
        "twinned.fitted.calibration.ExtraTreesRegressor",
        lambda n_estimators, **options: ExtraTreesRegressor(2, **options),
    )
