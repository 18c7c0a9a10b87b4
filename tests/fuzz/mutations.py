"""Structural mutations of model files."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from twinned.persistence.archive import HEADER, MODEL, from_npy, to_npy, write_zip

Members = dict[str, bytes]
Random = random.Random

SCALARS = [
    None, True, False, 0, 1, 2, 3, 7, -1, -2, 255, 256, 2**31 - 1, 2**31, 2**32, 2**63, -(2**63),
    10**12, 10**400, 0.0, -0.0, 0.5, 1.5, 1e-320, 1e-16, 1e16, 1e149, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"), "", "x", "zero", "learned", "std", "constant", "euclidean",
    "nan_euclidean", "precomputed", "haversine", "cosine", "uniform", "distance", "all", "auto",
    "concat", "difference", "concat+difference", "nominal", "numeric", "categorical", "ordinal",
    "float32", "float64", "object", "str", "gpu", "cpu", "512MB", "1B", "poisson", "quantile",
    "identity", "exp", "relu", "silu", "dense", "encoded", "complete", "rbf", "matern",
    "a/b", "../x", "\u0000", "é" * 50, "Ridge", "TwinRegressor", "Pipeline", "NearestAnchors",
]  # fmt: skip
CONTAINERS = [
    [], {}, [0], [None], ["a"], [[]], {"dict": {}}, {"tuple": []}, {"tuple": [1]}, {"array": True},
    {"array": False}, {"dtype": "float32"}, {"part": {}},
    {"estimator": {"class": "Ridge", "params": {"dict": {}}}},
    {"estimator": {"class": "NearestAnchors", "params": {"dict": {"k": 3}}}},
    {"estimator": {"class": "NearestAnchors", "params": {"dict": {"k": 1, "metric": "cosine"}}}},
    {"estimator": {"class": "RandomAnchors", "params": {"dict": {"n": 10**9}}}},
    {"estimator": {"class": "GPWeights", "params": {"dict": {}}}},
    {"estimator": {"class": "NeuralTraining", "params": {"dict": {"max_steps": 3}}}},
    [0] * 1000, ["x"] * 300,
]  # fmt: skip
NUMBERS = [0, 1, 2, -1, -2, 3, 5, 100, 255, 256, 2**31 - 1, -(2**31), 2**62, -(2**62), 0.5, 1e-320]
NUMBERS += [1e-16, 1e16, 1e38, 1e100, 1e149, 1e151, 1e308, -1e308, np.nan, np.inf, -np.inf]
TYPES = ["<f8", "<f4", "<i8", "<i4", "<u4", "|u1", "|b1", ">f8", "<f2", "<c16", "<U3", "<i2"]
AMPLIFY = "amplify"  # instead of a focus: a small file of a model that is much larger


def mutate(members: Members, rng: Random, focus: str | None = None) -> bytes:
    """Return the file of a mutated model; with `focus`, only what has it in its path changes."""
    members = dict(members)
    if focus == AMPLIFY:
        _amplify(members, rng)
        return write_zip(members)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        arrays = [name for name in members if name.endswith(".npy") and (focus or "") in name]
        which = rng.random()
        if arrays and which < 0.5:
            _mutate_array(members, rng.choice(arrays), arrays, rng)
        elif which < 0.97 or focus is not None:
            _mutate_json(members, MODEL, rng, focus)
        else:
            _mutate_members(members, rng)
    return write_zip(members)


# --- JSON -----------------------------------------------------------------------------------------


def _mutate_json(members: Members, name: str, rng: Random, focus: str | None) -> None:
    try:
        tree = json.loads(members[name])
    except (KeyError, ValueError):  # by an earlier mutation
        return
    positions = [position for position in _positions(tree) if focus is None or focus in position[2]]
    if not positions:
        return
    container, key, _ = rng.choice(positions)
    value = container[key]
    choice = rng.random()
    if choice < 0.35:
        container[key] = rng.choice(SCALARS)
    elif choice < 0.5:
        container[key] = _near(value, rng)
    elif choice < 0.6:
        container[key] = json.loads(json.dumps(rng.choice(CONTAINERS)))
    elif choice < 0.8:
        other, other_key, _ = rng.choice(positions)  # another part of the same file
        container[key] = json.loads(json.dumps(other[other_key]))
    elif choice < 0.9:
        del container[key]
    elif isinstance(container, list):
        rng.choice([container.reverse, lambda: container.append(value), container.clear])()
    else:
        container[str(rng.choice(SCALARS))] = value
    members[name] = json.dumps(tree).encode()


def _positions(tree: Any, path: str = "") -> list[tuple[Any, Any, str]]:
    """Return (container, key, path) of all values of JSON."""
    if isinstance(tree, dict):
        items: list[tuple[Any, Any]] = list(tree.items())
    elif isinstance(tree, list):
        items = list(enumerate(tree))
    else:
        return []
    found = []
    for key, value in items:
        own = f"{path}/{key}"
        found += [(tree, key, own), *_positions(value, own)]
    return found


def _near(value: Any, rng: Random) -> Any:
    """Return a value of the same type, which checks may let pass."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 2, -2, 10])
    if isinstance(value, float):
        return value * rng.choice([-1.0, 0.0, 0.5, 2.0, 1e10, 1e-10, 1e140])
    if isinstance(value, str):
        return rng.choice([value + "x", value[:-1], value.upper(), *filter(_is_text, SCALARS)])
    if isinstance(value, list):
        return rng.choice([value[:-1], value[1:], value * 2, value[::-1]])
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# --- arrays ---------------------------------------------------------------------------------------


def _mutate_array(members: Members, name: str, others: list[str], rng: Random) -> None:
    try:
        array = from_npy(members[name], name)
        with np.errstate(all="ignore"):
            changed = rng.choice(ARRAY_MUTATIONS)(array, rng)
    except Exception:  # the array is damaged by an earlier mutation, or has no such change
        return
    if rng.random() < 0.1:  # the array of another field
        members[name] = members[rng.choice(others)]
    elif rng.random() < 0.05:  # an array that claims another shape, or is cut off
        content = bytearray(to_npy(changed))
        content[rng.randrange(len(content))] = rng.randrange(256)
        members[name] = bytes(content[: rng.choice([len(content), len(content) - 1])])
    else:
        members[name] = to_npy(changed)


def _set_elements(array: np.ndarray, rng: Random) -> np.ndarray:
    changed = array.copy()
    for _ in range(rng.choice([1, 1, 2, 5])):
        number = rng.choice(NUMBERS)
        if array.dtype.kind in "iub":
            number = int(number) if np.isfinite(number) else 0
            info = np.iinfo(array.dtype) if array.dtype.kind != "b" else np.iinfo(np.int8)
            number = max(info.min, min(info.max, number))
        changed.reshape(-1)[rng.randrange(array.size)] = number
    return changed


def _shift_element(array: np.ndarray, rng: Random) -> np.ndarray:
    changed = array.copy()
    index = rng.randrange(array.size)
    changed.reshape(-1)[index] += rng.choice([1, 2, -1 if array.dtype.kind != "u" else 1])
    return changed


def _swap_elements(array: np.ndarray, rng: Random) -> np.ndarray:
    flat = array.copy().reshape(-1)
    i, j = rng.randrange(flat.size), rng.randrange(flat.size)
    flat[[i, j]] = flat[[j, i]]
    return flat.reshape(array.shape)


def _along_axis(change: Callable[[np.ndarray, int, int], np.ndarray]) -> Any:
    def mutation(array: np.ndarray, rng: Random) -> np.ndarray:
        axis = rng.randrange(array.ndim)
        return change(array, axis, rng.randrange(array.shape[axis]))

    return mutation


ARRAY_MUTATIONS: list[Callable[[np.ndarray, Random], np.ndarray]] = [
    _set_elements,
    _set_elements,
    _set_elements,
    _shift_element,
    _shift_element,
    _swap_elements,
    _along_axis(lambda array, axis, index: np.delete(array, index, axis)),
    _along_axis(lambda array, axis, index: np.insert(array, index, 0, axis)),
    _along_axis(lambda array, axis, index: np.take(array, range(index), axis)),
    _along_axis(lambda array, axis, index: np.repeat(array, 2, axis)),
    _along_axis(lambda array, axis, index: np.flip(array, axis)),
    lambda array, rng: array.astype(rng.choice(TYPES)),
    lambda array, rng: array.reshape(-1),
    lambda array, rng: array.T,
    lambda array, rng: np.asfortranarray(array),
    lambda array, rng: array[None],
    lambda array, rng: array[..., None],
    lambda array, rng: array * array.dtype.type(rng.choice([0, 1, 2, 3])),
    lambda array, rng: np.full_like(array, array.reshape(-1)[0]),
    lambda array, rng: np.sort(array, axis=None).reshape(array.shape),
    lambda array, rng: np.zeros((3, 0), array.dtype),
    lambda array, rng: np.zeros(rng.choice([1, 1000, 100_000]), array.dtype),
]


# --- amplification --------------------------------------------------------------------------------


def _amplify(members: Members, rng: Random) -> None:
    """Repeat rows and categories thousands of times; what the schema compares still fits."""
    names = [name for name in members if name.endswith(".npy")]
    arrays = {name: from_npy(members[name], name) for name in names}
    lengths = Counter(len(array) for array in arrays.values() if array.ndim and len(array) > 1)
    length = rng.choice([*[lengths.most_common(1)[0][0]] * len(lengths), *lengths])
    n_rows, n_categories = rng.choice([length, 3_000, 9_000]), rng.choice([3, 2_000, 7_000])
    for name, array in arrays.items():
        if "/categories/" in name:  # of a feature of an encoder
            members[name] = to_npy(np.arange(n_categories, dtype=float))
        elif array.ndim and len(array) == length:
            members[name] = to_npy(np.repeat(array, -(-n_rows // length), axis=0)[:n_rows])
    tree = json.loads(members[MODEL])
    for container, key, _ in _positions(tree):
        if key == "labels" and isinstance(container[key], list):
            container[key] = list(range(n_rows))
        elif key in ("anchors", "_schema") and "dict" in container[key]:  # no parameter
            table = container[key]["dict"].get("schema", container[key])["dict"]
            n_encoded = _set_categories(table, container.get("estimator_"), n_categories)
            for name in names:
                if "_metric/" in name:
                    members[name] = to_npy(np.resize(arrays[name], n_encoded))
    members[MODEL] = json.dumps(tree).encode()


def _set_categories(table: Any, base: Any, n_categories: int) -> int:
    """Set the number of categories, and the width of default pairs of the base estimator.

    Returns the number of encoded features.
    """
    categorical = [j for j, known in enumerate(table["categories"]) if known]
    for j in categorical:
        table["categories"][j], table["n_indicators"][j] = list(range(n_categories)), n_categories
    n_features = len(table["kinds"])
    n_encoded = n_features + len(categorical) * (n_categories - 1)
    if base is not None and categorical:
        base["part"]["n_features"] = 2 * n_encoded + n_features
    return n_encoded


# --- members --------------------------------------------------------------------------------------


def _mutate_members(members: Members, rng: Random) -> None:
    name = rng.choice(list(members))
    choice = rng.randrange(5)
    if choice == 0:
        del members[name]
    elif choice == 1:
        members[f"model/{rng.choice(['x', 'coef_', 'trees/left_child'])}.npy"] = members[name]
    elif choice == 2:
        members[name] = members[rng.choice(list(members))]
    elif choice == 3 and members[name]:
        content = bytearray(members[name])
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        members[name] = bytes(content)
    elif HEADER in members:
        _mutate_json(members, HEADER, rng, None)
