"""Fields of a model description: how a value is stored, and the conditions it must meet.

A description is JSON with arrays beside it. Each field encodes a value when a model is saved, and
decodes it when a model is loaded: only then, and always then, its conditions are verified. As
`twinned.save` decodes what it has encoded, a model that cannot be loaded is never written.

An array has no name of its own: it is found by the path of its field, so no two fields can share
one, and an array that no field asks for is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Protocol

import numpy as np

from twinned.exceptions import IntegrityError
from twinned.persistence.archive import ARRAY_TYPES

Json = Any  # what `json.loads` returns
LARGEST = 1e150  # of all numbers, as in the validation of X and y
_MAX_ITEMS = 2_000_000
_MAX_TEXT = 10_000


@dataclass(frozen=True)
class At:
    """A position in a description: its path, the arrays by path, and lengths of axes by name."""

    path: str
    arrays: dict[str, np.ndarray]
    sizes: dict[str, int] = field(default_factory=dict)
    depth: int = 0

    def __truediv__(self, name: str | int) -> "At":
        return replace(self, path=f"{self.path}/{name}")

    def enter(self) -> "At":
        """The same position as the root of a part, which has axes of its own."""
        return replace(self, sizes={}, depth=self.depth + 1)

    def ensure(self, condition: Any, fault: str) -> None:
        """Raise `IntegrityError` with the path and the fault unless the condition is true."""
        if not condition:
            raise IntegrityError(f"{self.path} {fault}")

    def bind(self, axis: str, length: int) -> None:
        """Raise unless an axis has this length; `*` is any axis, a digit a fixed length."""
        if axis != "*":
            known = int(axis) if axis.isdigit() else self.sizes.setdefault(axis, length)
            self.ensure(length == known, f"has {length} entries along the axis {axis}, not {known}")

    @property
    def label(self) -> str:
        """The path as a user would write it: `estimator_.alpha` for model/estimator_/params/alpha."""
        parts = [part for part in self.path.split("/")[1:] if part != "params"]
        return ".".join(parts) or "model"


class Field(Protocol):
    """Contract of fields."""

    def encode(self, value: Any, at: At) -> Json: ...

    def decode(self, value: Json, at: At) -> Any: ...


class _Plain:
    """A field that is stored as it is."""

    def encode(self, value: Any, at: At) -> Json:
        return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class Integer(_Plain):
    """An integer between two bounds."""

    low: int = 0
    high: int = 2**62

    def decode(self, value: Json, at: At) -> int:
        at.ensure(type(value) is int and self.low <= value <= self.high, f"is {_show(value)}")
        return value


@dataclass(frozen=True)
class Real(_Plain):
    """A number between two bounds; not NaN."""

    low: float = -LARGEST
    high: float = LARGEST

    def decode(self, value: Json, at: At) -> float:
        is_number = type(value) in (int, float) and self.low <= value <= self.high
        at.ensure(is_number, f"is {_show(value)}")
        return float(value)


@dataclass(frozen=True)
class Text(_Plain):
    """A text, one of several choices where there are any."""

    choices: tuple[str, ...] = ()

    def decode(self, value: Json, at: At) -> str:
        is_known = isinstance(value, str) and (not self.choices or value in self.choices)
        at.ensure(is_known and len(value) <= _MAX_TEXT, f"is {_show(value)}")
        return value


class Flag(_Plain):
    """True or false."""

    def decode(self, value: Json, at: At) -> bool:
        at.ensure(isinstance(value, bool), f"is {_show(value)}")
        return value


class Category(_Plain):
    """A category: a text, a number, or a truth value."""

    def decode(self, value: Json, at: At) -> Any:
        at.ensure(isinstance(value, str | int | float), f"is {_show(value)}")
        return value


@dataclass(frozen=True)
class Array:
    """An array: names of its axes, its type, the range of its elements, and their order.

    Axes of the same name have the same length within a part. Several layouts are separated by `|`,
    and so are several types. `missing` allows NaN.
    """

    axes: str
    types: str = "f8"
    low: float = -LARGEST
    high: float = LARGEST
    missing: bool = False
    increasing: bool = False  # each element larger than the one before

    def encode(self, value: Any, at: At) -> Json:
        if not isinstance(value, np.ndarray | np.generic):
            raise TypeError(f"{at.label} is a {type(value).__name__}, not an array.")
        at.arrays[at.path] = np.asarray(value)
        return True

    def decode(self, value: Json, at: At) -> np.ndarray:
        array = at.arrays.pop(at.path, None)
        if value is not True or array is None:
            raise IntegrityError(f"{at.path} has no array")
        types = [ARRAY_TYPES[name] for name in self.types.split("|")]
        at.ensure(array.dtype.str in types, f"is an array of {array.dtype}, not {self.types}")
        layouts = {len(layout.split()): layout.split() for layout in self.axes.split("|")}
        at.ensure(array.ndim in layouts, f"has shape {array.shape}, not ({self.axes})")
        for axis, length in zip(layouts[array.ndim], array.shape, strict=True):
            at.bind(axis, length)
        in_range = (array >= self.low) & (array <= self.high)
        if self.missing and array.dtype.kind == "f":
            in_range |= np.isnan(array)
        at.ensure(in_range.all(), f"has a value that is not within {self.low:g} … {self.high:g}")
        at.ensure(not self.increasing or (np.diff(array) > 0).all(), "is not increasing")
        return array


@dataclass(frozen=True)
class Maybe:
    """A field or None; where `absent`, None stands for an attribute that does not exist."""

    field: Field
    absent: bool = False

    def encode(self, value: Any, at: At) -> Json:
        return None if value is None else self.field.encode(value, at)

    def decode(self, value: Json, at: At) -> Any:
        return None if value is None else self.field.decode(value, at)


@dataclass(frozen=True)
class Each:
    """A list of values of the same field; `axis` is the name of its length."""

    field: Field
    axis: str = "*"

    def encode(self, value: Any, at: At) -> Json:
        return [self.field.encode(item, at / i) for i, item in enumerate(value)]

    def decode(self, value: Json, at: At) -> list[Any]:
        is_list = isinstance(value, list) and len(value) <= _MAX_ITEMS
        at.ensure(is_list, "is not a list")
        at.bind(self.axis, len(value))
        return [self.field.decode(item, at / i) for i, item in enumerate(value)]


@dataclass(frozen=True)
class Record:
    """A dict with these keys and no others."""

    fields: Mapping[str, Field]

    def encode(self, value: Mapping[str, Any], at: At) -> Json:
        return {name: own.encode(value[name], at / name) for name, own in self.fields.items()}

    def decode(self, value: Json, at: At) -> dict[str, Any]:
        known = isinstance(value, dict) and set(value) == set(self.fields)
        at.ensure(known, f"does not have the parts {', '.join(self.fields)}")
        return {name: own.decode(value[name], at / name) for name, own in self.fields.items()}


@dataclass(frozen=True)
class Named:
    """A dict of any texts to values of the same field, in order."""

    field: Field

    def encode(self, value: Mapping[str, Any], at: At) -> Json:
        return [list(value), Each(self.field).encode(value.values(), at)]

    def decode(self, value: Json, at: At) -> dict[str, Any]:
        at.ensure(isinstance(value, list) and len(value) == 2, "is not a list of names and values")
        names, values = Each(Text()).decode(value[0], at), Each(self.field).decode(value[1], at)
        at.ensure(len(set(names)) == len(names) == len(values), "has a name twice, or none")
        return dict(zip(names, values, strict=True))


def _show(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


ANY = (-inf, inf)  # bounds of a number that may be infinite
