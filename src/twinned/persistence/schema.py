"""The schema of a model: canonicalized when it is saved, validated when it is loaded.

The schema is skops' tree of nodes. The `__loader__` of a node determines how an object is built,
`__module__` and `__class__` name its type. In the canonical form, which `SchemaValidator` requires,
an object is defined once and referred to afterwards, each array belongs to one node, and what is
rebuilt at loading is absent. Validation depends on this form, because skops resolves a repeated
`__id__` to the first node with that id, wherever the repetition is.
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
    UFUNC_MODULES,
    allowed_type_names,
    is_allowed_ufunc,
)
from twinned.persistence.archive import HEADER, SCHEMA, Archive, ensure
from twinned.persistence.tree_checks import TREE_STATE, check_tree

Node = dict[str, Any]

# The protocol of skops 0.16, the first that twinned writes. Loaders of older protocols remain
# registered in skops, but a file may not use them.
_MIN_PROTOCOL = 2
# skops writes a builtin function as if it were a type, hence TypeNode.
_CALLABLE_LOADERS = ("FunctionNode", "MethodNode", "PartialNode", "OperatorFuncNode", "TypeNode")
_MAX_POOL_SIZE = 64


def canonicalize_schema(schema: Node, arrays: dict[str, bytes]) -> tuple[Node, dict[str, bytes]]:
    """Return a schema that skops wrote, and its array members, in canonical form."""
    numbers: dict[int, int] = {}  # skops' id → number in the file
    members: dict[str, bytes] = {}

    def visit(node: Node, inside: str) -> Node:
        loader, name = node["__loader__"], node_type(node)
        identity = node.pop("__id__", None)
        if name in NEIGHBOR_TREES or (inside == "preprocessor" and _is_number_check(node)):
            # rebuilt by fitted_checks
            return _make_node("JsonNode", "builtins", "str", content="null", is_json=True)
        if loader == "FunctionNode":
            node["__module__"] = _public_module_of_ufunc(node)
        if loader in ("JsonNode", "TypeNode", "FunctionNode"):
            return node
        if identity in numbers:
            type_part = node["__module__"], node["__class__"]
            return _make_node("CachedNode", *type_part, __id__=numbers[identity])
        number = node["__id__"] = numbers[identity] = len(numbers) + 1
        if loader == "NdArrayNode" and node["type"] == "numpy":
            content = arrays[node["file"]]
            node["file"] = f"{number}.npy"
            members[node["file"]] = _zero_padding(content)
        if name == HISTOGRAM_BOOSTING:
            inside = "boosting"
        for container, key, label in _children(node):
            entered = inside == "boosting" and label == "._preprocessor"
            container[key] = visit(container[key], "preprocessor" if entered else inside)
        return node

    return visit(schema, ""), members


class SchemaValidator:
    """Checks a schema before anything of it is built.

    The first fault raises `type_error` where a type is not allowed, else `IntegrityError`. After
    `validate`, `types` holds the full names of all types in the file, all of them allowed.
    """

    def __init__(self, archive: Archive, type_error: type[Exception] = IntegrityError) -> None:
        self._archive = archive
        self._type_error = type_error
        self._objects: dict[int, Node] = {}
        self._members = {HEADER, SCHEMA}
        self._arrays: dict[str, np.ndarray] = {}  # of the members so far, for checks of trees
        self.types: set[str] = set()

    def validate(self, schema: Node) -> None:
        protocol: Any = schema.get("protocol")
        fault = f"its skops protocol is {protocol!r}, not {_MIN_PROTOCOL} or later"
        ensure(type(protocol) is int and protocol >= _MIN_PROTOCOL, fault)
        self._visit(schema, "")
        unused = self._archive.names - self._members
        ensure(not unused, f"it holds {min(unused, default='')!r}, which the model does not use")

    def _visit(self, node: Node, path: str) -> None:
        loader, name, label = node["__loader__"], node_type(node), path.lstrip(".") or "model"
        if loader == "CachedNode":
            self._resolve(node)
            return
        self._check_type(node, label)
        self.types.add(name)
        if (number := node.get("__id__")) is not None:
            ensure(type(number) is int and number > 0, f"an object's number is {number!r}")
            ensure(number not in self._objects, f"two objects have the number {number}")
            self._objects[number] = node
        self._check_content(node, label)
        for container, key, child_label in _children(node):
            self._visit(container[key], path + child_label)
        if loader == "TreeNode":
            self._check_tree(node)

    def _check_type(self, node: Node, label: str) -> None:
        loader, name = node["__loader__"], node_type(node)
        if loader == "FunctionNode":
            allowed = is_allowed_ufunc(node["__module__"], node["__class__"])
        else:
            allowed = name in allowed_type_names(loader)
        if not allowed and loader in _CALLABLE_LOADERS:
            raise self._type_error(
                f"{label}=<{loader.removesuffix('Node').lower()} {name}> is code, which a model "
                "file may not hold; use a named option or a numpy ufunc such as np.log instead"
            )
        if not allowed:
            raise self._type_error(
                f"{label}=<{name}> is of a type that a model file may not hold; only the "
                "estimators of twinned and the regressors and transformers of scikit-learn can be "
                "saved and loaded"
            )

    def _check_content(self, node: Node, label: str) -> None:
        match node["__loader__"]:
            case "JsonNode":
                ensure(isinstance(node["content"], str), f"{label} is not JSON text")
            case "SliceNode":
                ends = (node["content"][end] for end in ("start", "stop", "step"))
                is_slice = all(end is None or type(end) is int for end in ends)
                ensure(is_slice, f"{label} is not a slice")
            case "DictNode":
                _check_key_types(node, label)
            case "NdArrayNode" if node["type"] == "numpy":
                file = node["file"]
                is_array = isinstance(file, str) and file.endswith(".npy")
                ensure(is_array, f"{label} has no array member")
                ensure(file not in self._members, f"two objects share the member {file}")
                self._members.add(file)
                self._arrays[file] = self._archive.read_array(file)
            case "LossNode":
                ensure(not node["content"]["content"], f"{label} is a loss with a state")
            case "RandomGeneratorNode":
                _check_generator(node, label)

    def _resolve(self, node: Node) -> Node:
        if node["__loader__"] != "CachedNode":
            return node
        number = node["__id__"]
        ensure(type(number) is int and number in self._objects, f"there is no object {number!r}")
        return self._objects[number]

    def _check_tree(self, node: Node) -> None:
        # Before the tree is built: building it already reads what the arguments promise.
        arguments, state = node["__reduce__"]["args"], node["content"]
        has_three = arguments["__loader__"] == "TupleNode" and len(arguments["content"]) == 3
        ensure(has_three, "a tree is damaged: it does not have three arguments")
        ensure(
            state["__loader__"] == "DictNode"
            and set(state["content"]) == set(TREE_STATE)
            and {node_type(key) for key in state["key_types"]["content"]} == {"builtins.str"},
            f"a tree is damaged: its state is not {sorted(TREE_STATE)}",
        )
        check_tree(
            [self._value(argument) for argument in arguments["content"]],
            {name: self._value(part) for name, part in state["content"].items()},
        )

    def _value(self, node: Node) -> Any:
        """Return the array or the JSON value of a node."""
        node = self._resolve(node)
        if node["__loader__"] == "JsonNode":
            return json.loads(node["content"])
        if node_type(node) == "numpy.ndarray" and node["type"] == "numpy":
            return self._arrays[node["file"]]
        raise IntegrityError(f"a tree is damaged: it holds a {node_type(node)}")


def node_type(node: Node) -> str:
    """Return the module and the class of a node, joined by a dot."""
    return f"{node['__module__']}.{node['__class__']}"


def _make_node(loader: str, module: str, name: str, **content: Any) -> Node:
    return {"__class__": name, "__module__": module, "__loader__": loader, **content}


def _children(node: Node) -> Iterator[tuple[Any, Any, str]]:
    """Yield (container, key, label) of a node's children, in the order skops visits them."""
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


def _check_key_types(node: Node, label: str) -> None:
    # skops calls each key's type on the key, and drops the keys that have none.
    key_types = node["key_types"]
    ensure(
        key_types["__loader__"] == "ListNode"
        and len(key_types["content"]) == len(node["content"])
        and all(key["__loader__"] == "TypeNode" for key in key_types["content"]),
        f"{label} does not have a type for each of its keys",
    )


def _check_generator(node: Node, label: str) -> None:
    # Other bit generators store a position in a buffer that numpy never checks.
    state = node["content"]["bit_generator"]["content"]
    kind = json.loads(state["bit_generator"]["content"])
    ensure(kind == "PCG64", f"{label} is a random generator of kind {kind!r}, not 'PCG64'")
    pool_size = json.loads(node["content"]["seed_seq"]["content"]["pool_size"]["content"])
    is_small = type(pool_size) is int and pool_size <= _MAX_POOL_SIZE
    ensure(is_small, f"{label} is a random generator with a pool of {pool_size!r}")


def _public_module_of_ufunc(node: Node) -> str:
    """Return the public module of a ufunc; skops names the module where it found it first."""
    module, name = node["__module__"], node["__class__"]
    if module.partition(".")[0] in ("numpy", "scipy"):
        function = getattr(import_module(module), name, None)
        for public in UFUNC_MODULES:
            if is_allowed_ufunc(public, name) and getattr(import_module(public), name) is function:
                return public
    return module


def _zero_padding(content: bytes) -> bytes:
    """Return a `.npy` file with zeros between the fields of its records.

    numpy writes whatever is in that memory, which makes files differ and may reveal other data.
    """
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if array.dtype.names is None:
        return content
    clean = np.zeros(array.shape, array.dtype)  # zeros_like would not clear the padding
    for field in array.dtype.names:
        clean[field] = array[field]
    buffer = io.BytesIO()
    np.save(buffer, clean, allow_pickle=False)
    return buffer.getvalue()


def _is_number_check(node: Node) -> bool:
    """Return whether this is the partial function by which histogram boosting checks numbers."""
    return (
        node["__loader__"] == "PartialNode"
        and node_type(node["content"]["func"]) == "sklearn.utils.validation.check_array"
    )
