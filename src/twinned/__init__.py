"""Twinned regression: learn differences between points, predict from anchors.

`F(a, b) = y(a) − y(b)` is learned over pairs of points; a new point is predicted by adding
predicted differences to the known values of anchor points and averaging.

Names are loaded when they are first used, so that `import twinned` stays light.
"""

from importlib import import_module
from typing import Any

from twinned._version import __version__

_MODULES = {
    "TwinRegressor": "estimators.twin",
    "SemiSupervisedTwinRegressor": "estimators.semi_supervised",
    "TwinNeuralRegressor": "estimators.twin_neural",
    "NeuralRegressor": "estimators.neural",
    "NeuralTraining": "models.neural.parameters",
    "AutoTwinRegressor": "estimators.auto",
    "InverseTwinRegressor": "estimators.inverse",
    "MoleculeFeatures": "estimators.molecules",
    "TransformedTargetTwin": "estimators.target",
    "LogTargetRegressor": "estimators.target",
    "AllPairs": "pairing.pairs",
    "HalfPairs": "pairing.pairs",
    "RandomPairs": "pairing.pairs",
    "NearestPairs": "pairing.pairs",
    "AllAnchors": "pairing.anchors",
    "NearestAnchors": "pairing.anchors",
    "RandomAnchors": "pairing.anchors",
    "DistanceWeights": "pairing.anchors",
    "UniformWeights": "pairing.anchors",
    "GPWeights": "pairing.anchors",
    "ForwardFolds": "rows.folds",
    "conformal": "estimators.conformal",
    "cross_conformal": "estimators.conformal",
    "measure_applicability": "estimators.applicability_measurement",
    "explain": "estimators.pipelines",
    "predict_interval": "estimators.pipelines",
    "diagnose": "diagnostics",
    "write_report": "app.report.render",
    "PredictionIntervalDisplay": "displays",
    "ComparablesDisplay": "displays",
    "AnchorCurveDisplay": "displays",
    "query": "search.query",
    "solve": "search.solve",
    "save": "persistence",
    "load": "persistence",
    "thin": "export.thinning",
}
_SUBMODULES = ("datasets", "diagnostics", "exceptions", "export", "metrics", "neural")

__all__ = ["__version__", *_MODULES, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(import_module(f"twinned.{_MODULES[name]}"), name)
    elif name in _SUBMODULES:
        value = import_module(f"twinned.{name}")
    else:
        raise AttributeError(f"module 'twinned' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
