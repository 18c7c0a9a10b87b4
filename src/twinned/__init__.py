"""Twinned regression: learn differences between points, predict from anchors.

`F(a, b) = y(a) − y(b)` is learned over pairs of points; a new point is predicted by adding
predicted differences to the known values of anchor points and averaging.

Names are loaded when they are first used, so that `import twinned` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from twinned._version import __version__

if TYPE_CHECKING:
    from twinned import datasets as datasets
    from twinned import diagnostics as diagnostics
    from twinned import exceptions as exceptions
    from twinned import export as export
    from twinned import metrics as metrics
    from twinned import neural as neural
    from twinned.app.report.render import write_report as write_report
    from twinned.diagnostics import diagnose as diagnose
    from twinned.displays import AnchorCurveDisplay as AnchorCurveDisplay
    from twinned.displays import ComparablesDisplay as ComparablesDisplay
    from twinned.displays import PredictionIntervalDisplay as PredictionIntervalDisplay
    from twinned.estimators.applicability_measurement import (
        measure_applicability as measure_applicability,
    )
    from twinned.estimators.auto import AutoTwinRegressor as AutoTwinRegressor
    from twinned.estimators.conformal import conformal as conformal
    from twinned.estimators.conformal import cross_conformal as cross_conformal
    from twinned.estimators.inverse import InverseTwinRegressor as InverseTwinRegressor
    from twinned.estimators.molecules import MoleculeFeatures as MoleculeFeatures
    from twinned.estimators.neural import NeuralRegressor as NeuralRegressor
    from twinned.estimators.pipelines import explain as explain
    from twinned.estimators.pipelines import predict_interval as predict_interval
    from twinned.estimators.semi_supervised import (
        SemiSupervisedTwinRegressor as SemiSupervisedTwinRegressor,
    )
    from twinned.estimators.target import TransformedTargetTwin as TransformedTargetTwin
    from twinned.estimators.twin import TwinRegressor as TwinRegressor
    from twinned.estimators.twin_neural import TwinNeuralRegressor as TwinNeuralRegressor
    from twinned.export.thinning import thin as thin
    from twinned.models.neural.parameters import NeuralTraining as NeuralTraining
    from twinned.pairing.anchors import AllAnchors as AllAnchors
    from twinned.pairing.anchors import DistanceWeights as DistanceWeights
    from twinned.pairing.anchors import GPWeights as GPWeights
    from twinned.pairing.anchors import NearestAnchors as NearestAnchors
    from twinned.pairing.anchors import RandomAnchors as RandomAnchors
    from twinned.pairing.anchors import UniformWeights as UniformWeights
    from twinned.pairing.pairs import AllPairs as AllPairs
    from twinned.pairing.pairs import HalfPairs as HalfPairs
    from twinned.pairing.pairs import NearestPairs as NearestPairs
    from twinned.pairing.pairs import RandomPairs as RandomPairs
    from twinned.persistence import load as load
    from twinned.persistence import save as save
    from twinned.rows.folds import ForwardFolds as ForwardFolds
    from twinned.search.query import query as query
    from twinned.search.solve import solve as solve

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
    "AnchorCurveDisplay": "displays",
    "ComparablesDisplay": "displays",
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
