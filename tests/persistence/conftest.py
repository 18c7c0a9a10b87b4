import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import twinned
from twinned.persistence.archive import SCHEMA, pack, unpack

Node = dict[str, Any]


class ModelFile:
    """A saved model whose members can be taken apart and put together again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def members(self) -> dict[str, bytes]:
        return unpack(self.path.read_bytes())

    def rewrite(self, **changed: bytes) -> None:
        self.path.write_bytes(pack({**self.members(), **changed}))

    def change_json(self, name: str, change: Callable[[Node], None]) -> None:
        content = json.loads(self.members()[name])
        change(content)
        self.rewrite(**{name: json.dumps(content).encode()})

    def change_schema(self, change: Callable[[Node], None]) -> None:
        self.change_json(SCHEMA, change)

    def attribute(self, schema: Node, *path: str) -> Node:
        """The node of an attribute of the model, of an attribute of that, …"""
        node = schema
        for name in path:
            node = self._defined(schema, node)
            if node["__loader__"] in ("ListNode", "TupleNode", "NdArrayNode"):
                node = node["content"][int(name)]
            else:
                inner = node["content"]
                node = (inner["content"] if "__loader__" in inner else inner)[name]
        return self._defined(schema, node)

    def _defined(self, schema: Any, node: Node) -> Node:
        """The node itself, or the one it refers to."""
        if node["__loader__"] != "CachedNode":
            return node
        waiting = [schema]
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict):
                if part.get("__id__") == node["__id__"] and part["__loader__"] != "CachedNode":
                    return part
                waiting.extend(part.values())
            elif isinstance(part, list):
                waiting.extend(part)
        raise KeyError(node["__id__"])

    def change_array(self, change: Callable[[np.ndarray], np.ndarray | None], *path: str) -> None:
        file = self.attribute(json.loads(self.members()[SCHEMA]), *path)["file"]
        array = np.load(io.BytesIO(self.members()[file]), allow_pickle=False)
        changed = change(array)
        buffer = io.BytesIO()
        np.save(buffer, array if changed is None else changed, allow_pickle=False)
        self.rewrite(**{file: buffer.getvalue()})


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are only slowed down by threads that wait for one another."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Any], ModelFile]:
    def save(model: Any) -> ModelFile:
        path = tmp_path / "model.twin"
        twinned.save(model, path)
        return ModelFile(path)

    return save


@pytest.fixture(scope="session")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, np.exp(0.5 * X[:, 0]) + 0.1 * rng.random(40)
