"""The schema of model files, by which every value is verified before a model is built from it.

It is written in `schema.txt`, which describes its language.
"""

from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from twinned.exceptions import IntegrityError

_LARGEST = "1e150"  # of all numbers; those of X and y are within its root
_MAX_ITEMS, _MAX_TEXT = 500_000, 10_000
FIT_AGAIN = "fit and save the model again with these versions of twinned and scikit-learn"
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


@dataclass(frozen=True)
class At:
    """A position in a description: its path, the arrays by path, and lengths of axes by name.

    `free` is the number of bytes that all parts together may still derive from their arrays.
    """

    path: str
    arrays: dict[str, np.ndarray]
    sizes: dict[str, int] = field(default_factory=dict)
    depth: int = 0
    free: list[int] = field(default_factory=lambda: [0])

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
