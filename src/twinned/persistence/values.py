"""Values in a model description: JSON with arrays beside it, verified by a schema.

Scalars and lists are JSON themselves, other values are objects with one key, their kind. An array
has no name of its own: it is found by its path, so no two values can share one.
Estimators are *parts* with their fitted state, or parameters without one.

The schema is written in `schema.txt`, which describes its language.
"""

import dataclasses
import inspect
import os
from collections.abc import Callable
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

import twinned
from twinned._compat import portable_parameters, validate_parameters
from twinned.exceptions import IntegrityError
from twinned.persistence.archive import ARRAY_TYPES, FIT_AGAIN

Json = Any  # what `json.loads` returns
State = dict[str, Any]

# --- schema ---------------------------------------------------------------------------------------

_LARGEST = "1e150"  # of all numbers; those of X and y are within its root
_MAX_ITEMS, _MAX_TEXT = 500_000, 10_000
_SCALARS: dict[str, Any] = {
    "int": int, "real": int | float, "text": str, "flag": bool, "category": str | int | float,
}  # fmt: skip


class Kind(NamedTuple):
    """The module of an estimator, its role and other options, and what its attributes hold."""

    module: str
    options: set[str]
    fields: dict[str, str]


def _read_schema() -> tuple[dict[str, Kind], dict[str, dict[str, str]], dict[str, str]]:
    """Return the kinds and the records of `schema.txt`, and the classes of some records."""
    kinds: dict[str, Kind] = {}
    records: dict[str, dict[str, str]] = {}
    classes: dict[str, str] = {}
    fields: dict[str, str] = {}
    for line in files("twinned.persistence").joinpath("schema.txt").read_text("utf-8").splitlines():
        names, _, rest = line.strip().partition("  ")
        if names.startswith("+ "):
            fields.update(records[names.split()[1]])
        elif line.startswith(" "):
            fields.update(dict.fromkeys(names.split(), rest.strip()))
        elif line.startswith("record "):
            record = names.split()[1]
            fields = records[record] = {}
            classes |= {record: rest.strip()} if rest else {}
        elif line and not line.startswith("#"):
            module, *options = rest.split()
            kind = Kind(module, set(options), fields := {})
            kinds.update(dict.fromkeys(names.split(), kind))
    return kinds, records, classes


KINDS, RECORDS, _CLASSES = _read_schema()
LINEAR = [name for name, kind in KINDS.items() if "intercept_" in kind.fields]


@dataclasses.dataclass(frozen=True)
class At:
    """A position in a description: its path, the arrays by path, and lengths of axes by name.

    `free` is the number of bytes that all parts together may still derive from their arrays.
    """

    path: str
    arrays: dict[str, np.ndarray]
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    depth: int = 0
    free: list[int] = dataclasses.field(default_factory=lambda: [0])

    def __truediv__(self, name: str | int) -> "At":
        return At(f"{self.path}/{name}", self.arrays, self.sizes, self.depth, self.free)

    def reserve(self, n_bytes: int, content: str) -> None:
        """Raise where parts need more memory for what they derive than their file allows."""
        self.free[0] -= n_bytes
        fault = f"needs {n_bytes:,} bytes for its {content}, too much for a file of this size"
        self.ensure(self.free[0] >= 0, fault)

    def ensure(self, condition: object, fault: str) -> None:
        """Raise `IntegrityError` with the path and the fault unless the condition is true."""
        if not condition:
            raise IntegrityError(f"{self.path} {fault}")

    def bind(self, axis: str, length: int) -> None:
        """Raise unless an axis has this length, which may be the first that it gets."""
        if axis != "*":
            known = int(axis) if axis.isdigit() else self.sizes.setdefault(axis, length)
            self.ensure(length == known, f"has {length} entries along the axis {axis}, not {known}")

    @property
    def label(self) -> str:
        """The path as a user would write it: `estimator_.alpha`."""
        parts = [part for part in self.path.split("/")[1:] if part != "params"]
        return ".".join(parts) or "model"


def verify_fields(
    values: Any, fields: dict[str, str], at: At, argument: str = ""
) -> dict[str, Any]:
    """Return the values of these fields; raise unless all exist, except those that may not."""
    at.ensure(isinstance(values, dict), "has no parts")
    required = {name for name, expected in fields.items() if not expected.startswith("??")}
    missing, unknown = sorted(required - values.keys()), sorted(values.keys() - fields)
    at.ensure(not missing, f"has no {', '.join(missing)}; {FIT_AGAIN}")
    at.ensure(not unknown, f"has unknown parts, {', '.join(unknown)}; {FIT_AGAIN}")
    return {
        name: verify(value, fields[name].replace("$", argument), at / name)
        for name, value in values.items()
    }


def verify(value: Any, expected: str, at: At) -> Any:
    """Return a value, with instances of their classes for records; raise unless it is as expected.

    >>> verify(np.array([0.5, 2.0]), "f8 row, 0..1", At("model", {}))
    Traceback (most recent call last):
    ...
    twinned.exceptions.IntegrityError: model has a value that is not within 0 … 1
    """
    kind, _, rest = expected.partition(" ")
    container, _, axis = kind.partition(":")
    if container in ("list", "tuple", "dict"):
        is_container = type(value).__name__ == container and len(value) <= _MAX_ITEMS
        at.ensure(is_container, f"is not a {container}")
        at.bind(axis or "*", len(value))
        if container == "dict":
            return {name: verify(item, rest, at / name) for name, item in value.items()}
        return type(value)([verify(item, rest, at / i) for i, item in enumerate(value)])
    if kind in ("?", "??"):
        return None if value is None else verify(value, rest, at)
    if kind in RECORDS:
        content = verify_fields(value, RECORDS[kind], at, rest)
        module, _, name = _CLASSES.get(kind, "builtins.dict").rpartition(".")
        return vars(import_module(module))[name](**content)
    if kind == "part":
        name = type(value).__name__
        roles = {name, *KINDS[name].options} if name in KINDS else set()
        at.ensure(roles & {*rest.split()}, f"is no {rest}")
    elif kind in _SCALARS:
        _verify_scalar(value, kind, rest, at)
    else:
        _verify_array(value, kind, *(part.strip() for part in rest.split(",")), at=at)
    return value


def _verify_scalar(value, kind, rest, at):
    valid = isinstance(value, _SCALARS[kind]) and len(str(value)) <= _MAX_TEXT
    if kind in ("int", "real"):
        low, high = _bounds(rest, at)
        valid = valid and not isinstance(value, bool) and low <= value <= high
    else:
        valid = valid and (not rest or value in rest.split())
    at.ensure(valid, f"is {repr(value)[:60]}, not {kind} {rest}".rstrip())


def _verify_array(value, types, layouts, *conditions, at):
    at.ensure(isinstance(value, np.ndarray), "is not an array")
    at.ensure(value.dtype.str[1:] in types.split("/"), f"is an array of {value.dtype}")
    by_length = {len(layout.split()): layout.split() for layout in layouts.split("|")}
    at.ensure(value.ndim in by_length, f"is an array of shape {value.shape}, not ({layouts})")
    for axis, length in zip(by_length[value.ndim], value.shape, strict=True):
        at.bind(axis, length)
    at.ensure(value.size or "empty" in conditions, "is empty")
    low, high = _bounds(next((part for part in conditions if ".." in part), ""), at)
    if value.size:
        # the minimum of values with NaN is NaN, which is in no range, but fmin ignores NaN
        least, most = (np.fmin, np.fmax) if "nan" in conditions else (np.minimum, np.maximum)
        ends = least.reduce(value, axis=None), most.reduce(value, axis=None)
        all_nan = "nan" in conditions and np.isnan(ends[0])
        in_range = all_nan or (low <= ends[0] and ends[1] <= high)
        at.ensure(in_range, f"has a value that is not within {low:g} … {high:g}")
    at.ensure("sorted" not in conditions or (np.diff(value) >= 0).all(), "is not sorted")
    at.ensure("increasing" not in conditions or (np.diff(value) > 0).all(), "is not increasing")
    at.ensure("share" not in conditions or abs(value.sum() - 1) < 1e-6, "does not sum to one")


def _bounds(text: str, at: At) -> tuple[float, float]:
    """Return the ends of a range such as `0..`; the upper one may be the name of an axis."""
    low, _, high = text.partition("..")
    if high in at.sizes:
        return float(low), at.sizes[high] - 1
    return float(low or f"-{_LARGEST}"), float(high or _LARGEST)


# --- encoding and decoding ------------------------------------------------------------------------

_MAX_DEPTH = 8  # of parts: a blend of pipelines with twins of several outputs has five
_DTYPES = ("float64", "float32", "int64", "int32", "bool")


# How the state of a class is read from a model, and how a model is built from it: it has its
# parameters and features already, and the state is verified. By default, values are attributes.
READ: dict[str, Callable[[BaseEstimator], State]] = {}
BUILD: dict[str, Callable[[BaseEstimator, State, At], None]] = {}


def builder(*names: str) -> Callable[[Any], Any]:
    """Decorator of a function that builds models of these classes."""
    return lambda function: BUILD.update(dict.fromkeys(names, function)) or function


def state_fields(name: str, state: object) -> dict[str, str]:
    """Return the attributes of a class, or those of a model of several targets."""
    fields = KINDS[name].fields
    several = "targets_" in fields and isinstance(state, dict) and state.get("targets_")
    return RECORDS["several_targets"] if several else fields


def get_state(model: BaseEstimator) -> State:
    """Return the state of a fitted estimator: the attributes that the schema names for its class.

    Those that it does not have are None.
    """
    name = type(model).__name__
    attributes = READ.get(name, vars)(model)
    return {key: attributes.get(key) for key in state_fields(name, attributes)}


def set_state(model: BaseEstimator, state: State) -> None:
    """Set the attributes of an estimator, except those that may not exist and do not.

    An array without an axis is set as a scalar.
    """
    fields = KINDS[type(model).__name__].fields
    for name, value in state.items():
        if value is not None or not fields.get(name, "").startswith("??"):
            vars(model)[name] = value[()] if isinstance(value, np.ndarray) else value


def find_class(name: str) -> Any:
    """Return the class of this name, if a description may name it, or None.

    It is in the schema, or is a strategy: a public class of twinned that is not fitted.
    """
    if name in KINDS:
        return vars(import_module(KINDS[name].module))[name]
    cls = getattr(twinned, name) if name in twinned.__all__ else None
    is_estimator = isinstance(cls, type) and issubclass(cls, BaseEstimator)
    return cls if is_estimator and not hasattr(cls, "fit") else None


def encode_value(value: object, at: At, *, fitted: bool) -> Json:
    """Return the JSON of a value; `fitted` where estimators in it have a state."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, BaseEstimator):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        value = {name: vars(value)[name] for name in names}
    elif isinstance(value, tuple) and type(value) is not tuple:
        value = value._asdict()  # type: ignore[attr-defined]
    if isinstance(value, tuple | list):
        items = [encode_value(item, at / i, fitted=fitted) for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict) and all(isinstance(key, str) and "/" not in key for key in value):
        return {"dict": {k: encode_value(item, at / k, fitted=fitted) for k, item in value.items()}}
    if isinstance(value, np.ndarray) and value.dtype.str in ARRAY_TYPES:
        at.arrays[at.path] = value
        return {"array": True}
    if isinstance(value, type | np.dtype) and np.dtype(value).name in _DTYPES:
        return {"dtype": np.dtype(value).name}
    name = type(value).__name__
    if find_class(name) is type(value) and (name in KINDS or not fitted):
        return {"part" if fitted else "estimator": _encode_estimator(value, at, fitted)}
    if isinstance(value, np.random.RandomState | np.random.Generator):
        raise TypeError(f"{at.label} is a random generator; set it to an integer before saving")
    is_code = callable(value) and not isinstance(value, BaseEstimator)
    name = " ".join(repr(value if is_code else type(value)).split())[:200]
    kind, library = ("code", "joblib") if is_code else ("of a type", "skops.io")
    advice = f"store the model with {library}.dump instead"
    raise TypeError(f"{at.label}={name} is {kind} that a model file may not hold; {advice}")


def _encode_estimator(model: BaseEstimator, at: At, fitted: bool) -> Json:
    encoded = {}
    if fitted:
        attributes = vars(model)
        config = attributes.get("_sklearn_output_config", {})
        if config.get("transform") not in (None, "default"):
            raise TypeError(f"{at.label} has set_output, which is not stored; remove it")
        names = attributes.get("feature_names_in_")
        encoded = {
            "state": encode_value(get_state(model), at, fitted=True),
            "n_features": encode_value(attributes.get("n_features_in_"), at, fitted=False),
            "names": None if names is None else [str(name) for name in names],
        }
    parameters = encode_value(portable_parameters(model), at / "params", fitted=False)
    return {"class": type(model).__name__, "params": parameters, **encoded}


def decode_value(value: Json, at: At, *, fitted: bool) -> Any:
    """Return the value of JSON that `encode_value` returned; parts are verified and built."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [decode_value(item, at / i, fitted=fitted) for i, item in enumerate(value)]
    match [*value.items()]:
        case [("tuple", list(items))]:
            return tuple(decode_value(items, at, fitted=fitted))
        case [("dict", dict(items))]:
            return {key: decode_value(item, at / key, fitted=fitted) for key, item in items.items()}
        case [("array", True)] if at.path in at.arrays:
            return at.arrays.pop(at.path)
        case [("dtype", str(name))] if name in _DTYPES:
            return np.dtype(name).type
        case [("part", {"class": str(name), **rest})] if fitted and len(rest) == 4:
            return _decode_part(name, rest, at)
        case [("estimator", {"class": str(name), **rest})] if not fitted and len(rest) == 1:
            return _decode_estimator(name, rest["params"], at)
    raise IntegrityError(f"{at.path} has no array, or is of an unknown kind")


def _decode_part(name: str, value: Json, at: At) -> BaseEstimator:
    """Return a fitted estimator, with the axes of its arrays apart from those of its owner."""
    at = dataclasses.replace(at, sizes={}, depth=at.depth + 1)
    at.ensure(at.depth <= _MAX_DEPTH, f"is more than {_MAX_DEPTH} parts deep")
    at.ensure(name in KINDS, f"is of the unknown class {name:.60}")
    model, kind = _decode_estimator(name, value["params"], at), KINDS[name]
    n_features, names = value["n_features"], value["names"]
    if n_features is not None or "any_features" not in kind.options:
        verify(n_features, "int 1..1048576", at / "n_features")  # by which scikit-learn checks X
        at.sizes["feature"] = model.n_features_in_ = n_features
    if names is not None:
        verify(names, "list:feature text", at / "names")
        at.ensure(len(set(names)) == len(names), "has a feature name twice")
        model.feature_names_in_ = np.array(names, dtype=object)
    state = decode_value(value["state"], at, fitted=True)
    state = dict.fromkeys(kind.fields) | verify_fields(state, state_fields(name, state), at)
    BUILD.get(name, lambda model, state, at: set_state(model, state))(model, state, at)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)  # again, as `fit` removes them
    return model


def _decode_estimator(name: str, params: Json, at: At) -> BaseEstimator:
    """Return an unfitted estimator with these parameters, validated by itself."""
    cls = find_class(name)
    at.ensure(cls is not None, f"is of the unknown class {name:.60}")
    values = decode_value(params, at / "params", fitted=False)
    at.ensure(isinstance(values, dict), "has no parameters")
    unknown = ", ".join(sorted(set(values) - set(inspect.signature(cls).parameters)))
    at.ensure(not unknown, f"has {unknown:.60}, which {name} does not have here; {FIT_AGAIN}")
    at.ensure(not values.get("warm_start"), "has warm_start=True, which is not stored; unset it")
    if (n_jobs := values.get("n_jobs")) is not None:
        verify(n_jobs, "int", at / "n_jobs")
        values["n_jobs"] = max(-1, min(n_jobs, os.cpu_count() or 1)) or None
    model = cls(**values)
    validate_parameters(model)
    if hasattr(cls, "check_parameters"):
        model.check_parameters()
    return model
