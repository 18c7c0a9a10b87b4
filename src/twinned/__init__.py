"""Twinned regression: learn differences between points, predict from anchors.

`F(a, b) = y(a) − y(b)` is learned over pairs of points; a new point is predicted by adding
predicted differences to the known values of anchor points and averaging.

Names are loaded when they are first used, so that `import twinned` stays light.
"""

from importlib import import_module
from typing import Any

from twinned._version import __version__

_HOME = {
    "TwinRegressor": "twin",
    "SemiSupervisedTwinRegressor": "semi_supervised",
    "TwinNeuralRegressor": "neural",
    "NeuralRegressor": "neural",
    "AllPairs": "pairs",
    "HalfPairs": "pairs",
    "RandomPairs": "pairs",
    "NearestPairs": "pairs",
    "AllAnchors": "anchors",
    "NearestAnchors": "anchors",
    "RandomAnchors": "anchors",
    "DistanceWeights": "anchors",
    "UniformWeights": "anchors",
    "FixedWeights": "anchors",
    "learn_weights": "weighting",
    "conformal": "uncertainty",
    "cross_conformal": "uncertainty",
    "diagnose": "diagnostics",
    "query": "active",
    "TwinQuery": "active",
    "save": "persistence",
    "load": "persistence",
}
_ROOMS = ("datasets", "diagnostics", "exceptions", "neural")

__all__ = ["__version__", *_HOME, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"twinned.{_HOME[name]}"), name)
    elif name in _ROOMS:
        value = import_module(f"twinned.{name}")
    else:
        raise AttributeError(f"module 'twinned' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
