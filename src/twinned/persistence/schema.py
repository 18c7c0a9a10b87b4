"""The model as skops describes it in `schema.json`: put into one form, and audited.

skops writes a tree of nodes; a node's `__loader__` says how it is turned into an object, its
`__module__` and `__class__` into what. `canonical` brings the tree that skops wrote into the
form that `Audit` demands of every file: an object is written once and referred to thereafter,
each array belongs to one node, and what is rebuilt at loading is not in the file. The audit
needs that form, for skops resolves a repeated `__id__` to the first node that bore it, wherever
the repetition stands.
"""

import io
import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from twinned.exceptions import IntegrityError
from twinned.persistence.allowed_types import (
    HISTOGRAM_BOOSTING,
    NEIGHBOR_TREES,
    is_ufunc,
    permitted,
)
from twinned.persistence.archive import HEADER, SCHEMA, Archive
from twinned.persistence.tree_checks import check_tree

Node = dict[str, Any]

# The protocol of skops 0.16, the first that twinned writes. Loaders of older protocols stay
# registered in skops and a file may ask for them: ours never does.
_OLDEST_PROTOCOL = 2
_NOTHING = {
    "__class__": "str",
    "__module__": "builtins",
    "__loader__": "JsonNode",
    "content": "null",
    "is_json": True,
}
# skops writes a builtin function as if it were a type, hence TypeNode.
_CALLABLE_LOADERS = ("FunctionNode", "MethodNode", "PartialNode", "OperatorFuncNode", "TypeNode")
_MAX_POOL_SIZE = 64


def canonical(schema: Node, arrays: dict[str, bytes]) -> tuple[Node, dict[str, bytes]]:
    """Bring a schema that skops wrote, and its array members, into the form of a `.twin` file."""
    numbers: dict[int, int] = {}
    kept: dict[str, bytes] = {}

    def visit(holder: Any, key: Any, inside: str) -> None:
        node = holder[key]
        loader, name = node["__loader__"], full_name(node)
        identity = node.pop("__id__", None)
        if name in NEIGHBOR_TREES or (inside == "preprocessor" and _checks_numbers(node)):
            holder[key] = dict(_NOTHING)  # rebuilt by fitted_checks, never trusted
            return
        if loader == "FunctionNode":
            node["__module__"] = _home_of_ufunc(node)
        if loader in ("JsonNode", "TypeNode", "FunctionNode"):
            return
        if identity in numbers:
            named = {part: node[part] for part in ("__class__", "__module__")}
            holder[key] = {**named, "__loader__": "CachedNode", "__id__": numbers[identity]}
            return
        number = node["__id__"] = numbers[identity] = len(numbers) + 1
        if loader == "NdArrayNode" and node["type"] == "numpy":
            content = arrays[node["file"]]
            node["file"] = f"{number}.npy"
            kept[node["file"]] = _without_gaps(content)
        if name == HISTOGRAM_BOOSTING:
            inside = "boosting"
        for child_holder, child_key, label in _slots(node):
            entered = inside == "boosting" and label == "._preprocessor"
            visit(child_holder, child_key, "preprocessor" if entered else inside)

    root = {"model": schema}
    visit(root, "model", "")
    return root["model"], kept


class Audit:
    """Walks a schema before anything of it is built, and raises `refusal` at the first fault.

    After `run`, `types` holds the full names of all types in the file, each of them permitted.
    """

    def __init__(self, archive: Archive, refusal: type[Exception] = IntegrityError) -> None:
        self._archive = archive
        self._refusal = refusal
        self._defined: dict[int, Node] = {}
        self._members = {HEADER, SCHEMA}
        self.types: set[str] = set()

    def run(self, schema: Node) -> None:
        protocol = schema.get("protocol")
        if type(protocol) is not int or protocol < _OLDEST_PROTOCOL:
            self._refuse(f"its skops protocol is {protocol!r}, not {_OLDEST_PROTOCOL} or later")
        self._visit(schema, "")
        if foreign := self._archive.names - self._members:
            self._refuse(f"it holds {min(foreign)!r}, which no part of the model refers to")

    def _visit(self, node: Node, path: str) -> None:
        loader, name, where = node["__loader__"], full_name(node), path.lstrip(".") or "model"
        if loader == "CachedNode":
            self._resolve(node)
            return
        if loader in _CALLABLE_LOADERS:
            self._check_callable(node, where)
        elif name not in permitted(loader):
            self._refuse(
                f"{where}=<{name}> is of a type that a model file may not hold; only twinned's and "
                f"scikit-learn's own regressors and transformers can be saved and loaded"
            )
        self.types.add(name)
        self._define(node)
        match loader:
            case "JsonNode":
                _demand(isinstance(node["content"], str), f"{where} is not JSON text")
            case "SliceNode":
                ends = (node["content"][end] for end in ("start", "stop", "step"))
                _demand(
                    all(end is None or type(end) is int for end in ends), f"{where} is no slice"
                )
            case "DictNode":
                _check_key_types(node, where)
            case "NdArrayNode" if node["type"] == "numpy":
                self._check_array(node, where)
            case "LossNode":
                _demand(not node["content"]["content"], f"{where} is a loss with a state")
            case "RandomGeneratorNode":
                self._check_generator(node, where)
        for holder, key, label in _slots(node):
            self._visit(holder[key], path + label)
        if loader == "TreeNode":
            self._check_tree(node)

    def _check_callable(self, node: Node, where: str) -> None:
        loader, name = node["__loader__"], full_name(node)
        if loader == "FunctionNode" and is_ufunc(node["__module__"], node["__class__"]):
            return
        if loader == "TypeNode" and name in permitted(loader):
            return
        kind = loader.removesuffix("Node").lower()
        self._refuse(
            f"{where}=<{kind} {name}> is code, which a model file does not hold; use a named "
            "option or a numpy ufunc such as np.log in its place"
        )

    def _define(self, node: Node) -> None:
        number = node.get("__id__")
        if number is None:
            return
        _demand(type(number) is int and number > 0, f"an object's number is {number!r}")
        _demand(number not in self._defined, f"two objects have the number {number}")
        self._defined[number] = node

    def _resolve(self, node: Node) -> Node:
        if node["__loader__"] != "CachedNode":
            return node
        number = node["__id__"]
        _demand(type(number) is int and number in self._defined, f"there is no object {number!r}")
        return self._defined[number]

    def _check_array(self, node: Node, where: str) -> None:
        file = node["file"]
        _demand(isinstance(file, str) and file.endswith(".npy"), f"{where} has no array member")
        _demand(file not in self._members, f"two objects share the member {file}")
        self._members.add(file)
        self._archive.read_array(file)

    def _check_generator(self, node: Node, where: str) -> None:
        # Other bit generators keep a position in a buffer that numpy never checks.
        state = node["content"]["bit_generator"]["content"]
        kind = json.loads(state["bit_generator"]["content"])
        _demand(kind == "PCG64", f"{where} is a random generator of kind {kind!r}, not 'PCG64'")
        pool_size = json.loads(node["content"]["seed_seq"]["content"]["pool_size"]["content"])
        _demand(
            type(pool_size) is int and pool_size <= _MAX_POOL_SIZE,
            f"{where} is a random generator with a pool of {pool_size!r}",
        )

    def _check_tree(self, node: Node) -> None:
        # Now rather than once it is built: building already reads what the arguments promise.
        arguments, state = node["__reduce__"]["args"], node["content"]
        parts = {"max_depth", "node_count", "nodes", "values"}
        _demand(
            arguments["__loader__"] == "TupleNode" and len(arguments["content"]) == 3,
            "a tree is damaged: it does not have three arguments",
        )
        _demand(
            state["__loader__"] == "DictNode"
            and set(state["content"]) == parts
            and {full_name(key) for key in state["key_types"]["content"]} == {"builtins.str"},
            f"a tree is damaged: its state is not {sorted(parts)}",
        )
        n_features, n_classes, n_outputs = arguments["content"]
        check_tree(
            n_features=self._plain(n_features),
            n_classes=self._plain(n_classes),
            n_outputs=self._plain(n_outputs),
            **{part: self._plain(state["content"][part]) for part in parts},
        )

    def _plain(self, node: Node) -> Any:
        node = self._resolve(node)
        if node["__loader__"] == "JsonNode":
            return json.loads(node["content"])
        if full_name(node) == "numpy.ndarray" and node["type"] == "numpy":
            return self._archive.read_array(node["file"])
        raise IntegrityError(f"a tree is damaged: it holds a {full_name(node)}")

    def _refuse(self, reason: str) -> None:
        raise self._refusal(reason)


def full_name(node: Node) -> str:
    """Module and class of a node, joined by a dot."""
    return f"{node['__module__']}.{node['__class__']}"


def _slots(node: Node) -> Iterator[tuple[Any, Any, str]]:
    """Where a node's children hang: (container, key, label), in the order skops visits them."""
    match node["__loader__"]:
        case "DictNode":
            yield node, "key_types", ".keys()"
            for key in node["content"]:
                yield node["content"], key, f".{key}"
        case "ListNode" | "TupleNode" | "SetNode":
            for index in range(len(node["content"])):
                yield node["content"], index, f"[{index}]"
        case "NdArrayNode" if node["type"] == "json":
            for index in range(len(node["content"])):
                yield node["content"], index, f"[{index}]"
            yield node, "shape", ".shape"
        case "ObjectNode" if node.get("content") is not None:
            yield node, "content", ""
        case "TreeNode" | "LossNode":
            yield node, "content", ""
            yield node["__reduce__"], "args", ".arguments"
        case "DTypeNode" | "RandomStateNode":
            yield node, "content", ""
        case "RandomGeneratorNode":
            yield node["content"], "bit_generator", ".bit_generator"
            yield node["content"], "seed_seq", ".seed_seq"


def _check_key_types(node: Node, where: str) -> None:
    """Check that a dict is read back with the keys that are written here.

    skops calls each key's type on the key, and drops the keys that have none.
    """
    key_types = node["key_types"]
    _demand(
        key_types["__loader__"] == "ListNode"
        and len(key_types["content"]) == len(node["content"])
        and all(key["__loader__"] == "TypeNode" for key in key_types["content"]),
        f"{where} does not have a type for each of its keys",
    )


def _home_of_ufunc(node: Node) -> str:
    """The public module of a ufunc; skops names whichever module it found it in first."""
    module, name = node["__module__"], node["__class__"]
    if module.partition(".")[0] in ("numpy", "scipy"):
        function = getattr(import_module(module), name, None)
        for home in ("numpy", "scipy.special"):
            if is_ufunc(home, name) and getattr(import_module(home), name) is function:
                return home
    return module


def _without_gaps(content: bytes) -> bytes:
    """A `.npy` file with zeros between the fields of its records.

    numpy writes what happens to lie there in memory, which is nobody's business.
    """
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if array.dtype.names is None:
        return content
    clean = np.zeros(array.shape, array.dtype)  # zeros_like would leave the gaps as they come
    for field in array.dtype.names:
        clean[field] = array[field]
    buffer = io.BytesIO()
    np.save(buffer, clean, allow_pickle=False)
    return buffer.getvalue()


def _checks_numbers(node: Node) -> bool:
    """Whether this is the partial function by which histogram boosting checks its numbers."""
    return (
        node["__loader__"] == "PartialNode"
        and full_name(node["content"]["func"]) == "sklearn.utils.validation.check_array"
    )


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise IntegrityError(otherwise)
