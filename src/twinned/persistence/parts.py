"""Estimators as parts of a model description, and their parameters.

A part is the class of an estimator, its parameters, its features, and the fields that the `Kind` of
the class lists. Only classes in `KINDS` can be fitted parts; `STRATEGIES` can be parameters, too.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import scipy.special
from sklearn.base import BaseEstimator

from twinned.exceptions import IntegrityError
from twinned.persistence.archive import ARRAY_TYPES
from twinned.persistence.fields import ANY, Array, At, Each, Field, Json, Maybe, Record, Text

_MAX_DEPTH = 8  # of parts: a blend of pipelines with twins of several outputs has five
_UFUNCS = {
    **{name: getattr(np, name) for name in (
        "abs", "arcsinh", "arctanh", "cbrt", "exp", "exp2", "expm1", "log", "log10", "log1p",
        "log2", "negative", "positive", "reciprocal", "sinh", "sqrt", "square", "tanh",
    )},
    **{name: getattr(scipy.special, name) for name in ("expit", "logit")},
}  # fmt: skip
_ANY_ARRAY = Array("|*|* *", "|".join(ARRAY_TYPES), *ANY, missing=True)


@dataclass(frozen=True)
class Kind:
    """How fitted estimators of one class are described.

    `take` returns the values of the fields, and `build` sets the attributes of an estimator that
    has its parameters and its features already.
    """

    module: str
    fields: Mapping[str, Field]
    take: Callable[[Any], Mapping[str, Any]] | None = None
    build: Callable[[Any, dict[str, Any], At], None] | None = None
    role: str = "regressor"  # or "transformer"
    has_features: bool = True  # whether it checks the number of features by itself
    parts: tuple[str, ...] = ()  # parameters that are stored among the fields


KINDS: dict[str, Kind] = {}
STRATEGIES: dict[str, str] = {
    **dict.fromkeys(["KFold", "GroupKFold", "ShuffleSplit"], "sklearn.model_selection"),
    **dict.fromkeys(["AllAnchors", "NearestAnchors", "RandomAnchors"], "twinned.pairing.anchors"),
    **dict.fromkeys(
        ["AllPairs", "HalfPairs", "NearestPairs", "RandomPairs"], "twinned.pairing.pairs"
    ),
    **dict.fromkeys(
        ["DistanceWeights", "FixedWeights", "GPWeights", "UniformWeights"],
        "twinned.pairing.weights",
    ),
}


def find_class(name: Any) -> type | None:
    """Return the class of this name, if a description may name it."""
    if not isinstance(name, str) or not (name in KINDS or name in STRATEGIES):
        return None
    found: type = getattr(
        import_module(KINDS[name].module if name in KINDS else STRATEGIES[name]), name
    )
    return found


@dataclass(frozen=True)
class Part:
    """A fitted estimator of one of these roles or kinds."""

    allowed: tuple[str, ...] = ("regressor",)

    def encode(self, value: Any, at: At) -> Json:
        kind, name = KINDS.get(type(value).__name__), type(value).__name__
        if kind is None or find_class(name) is not type(value) or not self._allows(name):
            raise TypeError(f"{at.label}=<{_full_name(type(value))}> {_refused_type(self.allowed)}")
        attributes = vars(value)
        if attributes.get("_sklearn_output_config", {}).get("transform") not in (None, "default"):
            raise TypeError(f"{at.label} has set_output, which is not stored; remove it.")
        names = attributes.get("feature_names_in_")
        state = {own: getattr(value, own, None) for own in kind.fields}
        return {
            "kind": name,
            "params": encode_parameters(value, at / "params", kind.parts),
            "n_features": _as_int(attributes.get("n_features_in_")),
            "names": None if names is None else [str(own) for own in names],
            "state": Record(kind.fields).encode(
                state if kind.take is None else kind.take(value), at
            ),
        }

    def decode(self, value: Json, at: At) -> Any:
        at = at.enter()
        at.ensure(at.depth <= _MAX_DEPTH, f"is more than {_MAX_DEPTH} parts deep")
        keys = {"kind", "params", "n_features", "names", "state"}
        at.ensure(isinstance(value, dict) and set(value) == keys, "is not an estimator")
        name = value["kind"]
        at.ensure(find_class(name) and self._allows(name), f"is of the unknown kind {name!r:.60}")
        kind = KINDS[name]
        model = decode_estimator(name, value["params"], at / "params", kind.parts)
        _set_features(model, kind, value, at)
        state = Record(kind.fields).decode(value["state"], at)
        (kind.build or set_attributes)(model, state, at)
        return model

    def _allows(self, name: str) -> bool:
        return name in KINDS and bool({name, KINDS[name].role} & set(self.allowed))


def set_attributes(model: Any, state: dict[str, Any], at: At) -> None:
    """Set each field as the attribute of its name, except those that are absent."""
    for name, value in state.items():
        own = KINDS[type(model).__name__].fields[name]
        if not (value is None and isinstance(own, Maybe) and own.absent):
            setattr(model, name, value)


def _set_features(model: Any, kind: Kind, value: Json, at: At) -> None:
    """Set the number and the names of the features, by which scikit-learn checks X."""
    n_features, names = value["n_features"], value["names"]
    if n_features is not None:
        at.ensure(type(n_features) is int and n_features > 0, f"has {n_features!r:.60} features")
        at.sizes["feature"] = model.n_features_in_ = n_features
    at.ensure(n_features is not None or not kind.has_features, "has no number of features")
    if names is not None:
        names = Each(Text(), "feature").decode(names, at / "names")
        at.ensure(len(set(names)) == len(names), "has a feature name twice")
        model.feature_names_in_ = np.array(names, dtype=object)


# --- parameters -----------------------------------------------------------------------------------


def encode_parameters(model: BaseEstimator, at: At, parts: tuple[str, ...] = ()) -> Json:
    """Return the parameters of an estimator, except those that are stored as parts."""
    parameters = model.get_params(deep=False)
    return {n: _encode(value, at / n) for n, value in parameters.items() if n not in parts}


def decode_estimator(name: str, parameters: Json, at: At, parts: tuple[str, ...] = ()) -> Any:
    """Return an unfitted estimator with these parameters, validated by itself."""
    cls: Any = find_class(name)
    at.ensure(cls is not None and isinstance(parameters, dict), f"are not those of a {name}")
    known = set(cls._get_param_names()) - set(parts)
    unknown = min(set(parameters) - known, default="")
    at.ensure(set(parameters) <= known, f"have {unknown!r:.60}, which {name} does not have")
    values = {own: _decode(value, at / own) for own, value in parameters.items()}
    at.ensure(not values.get("warm_start"), "have warm_start=True, which is not stored; unset it")
    if "n_jobs" in values:
        values["n_jobs"] = _bounded_n_jobs(values["n_jobs"], at / "n_jobs")
    model = cls(**values, **dict.fromkeys(parts, ()))
    if hasattr(cls, "_parameter_constraints") and not parts:
        model._validate_params()
    elif hasattr(cls, "_check_parameters"):
        model._check_parameters()
    return model


def _encode(value: Any, at: At) -> Json:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        items = [_encode(item, at / i) for i, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(item, at / key) for key, item in value.items()}}
    if isinstance(value, np.ndarray) and value.dtype.str in ARRAY_TYPES.values():
        return {"array": _ANY_ARRAY.encode(value, at)}
    if isinstance(value, np.ufunc) and _UFUNCS.get(value.__name__) is value:
        return {"ufunc": value.__name__}
    if isinstance(value, type | np.dtype) and np.dtype(value).kind in "fiub":
        return {"dtype": np.dtype(value).name}
    if isinstance(value, BaseEstimator) and find_class(type(value).__name__) is type(value):
        name = type(value).__name__
        return {"estimator": [name, encode_parameters(value, at)]}
    if callable(value) and not isinstance(value, BaseEstimator):
        raise TypeError(
            f"{at.label}=<{_full_name(value)}> is code, which a model file may not hold; use a "
            "named option or a ufunc such as np.log, or store the model with joblib.dump"
        )
    if isinstance(value, np.random.RandomState | np.random.Generator):
        raise TypeError(f"{at.label} is a random generator; set it to an integer before saving.")
    raise TypeError(f"{at.label}=<{_full_name(type(value))}> {_refused_type(())}")


def _decode(value: Json, at: At) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    at.ensure(isinstance(value, dict) and len(value) == 1, "is not a parameter")
    ((tag, content),) = value.items()
    match tag, content:
        case (("tuple" | "list"), list()):
            items = [_decode(item, at / i) for i, item in enumerate(content)]
            return tuple(items) if tag == "tuple" else items
        case "dict", dict():
            return {key: _decode(item, at / key) for key, item in content.items()}
        case "array", True:
            return _ANY_ARRAY.decode(content, at)
        case "ufunc", str() if content in _UFUNCS:
            return _UFUNCS[content]
        case "dtype", str() if content in ("float64", "float32", "int64", "int32", "bool"):
            return np.dtype(content).type
        case "estimator", [str(name), dict(parameters)]:
            return decode_estimator(name, parameters, at)
    raise IntegrityError(f"{at.path} is not a parameter")


def _bounded_n_jobs(n_jobs: Any, at: At) -> int | None:
    """Return a number of threads that is at most that of the cores of this machine."""
    at.ensure(n_jobs is None or (type(n_jobs) is int and n_jobs != 0), f"is {n_jobs!r:.60}")
    return None if n_jobs is None else max(-1, min(n_jobs, os.cpu_count() or 1))


def _as_int(value: Any) -> int | None:
    return None if value is None else int(value)


def _full_name(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__)
    return f"{getattr(value, '__module__', '')}.{name}".lstrip(".")


def _refused_type(allowed: tuple[str, ...]) -> str:
    what = " or ".join(allowed) if allowed else "parameter"
    return f"is no {what} that a model file may hold; store the model with skops.io.dump instead"
