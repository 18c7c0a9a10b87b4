"""Saved models that tests can alter."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor
from threadpoolctl import threadpool_limits

import twinned
from twinned.exceptions import IntegrityError
from twinned.persistence import read_header
from twinned.persistence.archive import SCHEMA, from_zip, to_zip

Node = dict[str, Any]


class ModelFile:
    """A saved model with members that can be altered."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def members(self) -> dict[str, bytes]:
        return from_zip(self.path.read_bytes())

    def rewrite(self, **changed: bytes) -> None:
        self.path.write_bytes(to_zip({**self.members(), **changed}))

    def change_json(self, name: str, change: Callable[[Node], None]) -> None:
        content = json.loads(self.members()[name])
        change(content)
        self.rewrite(**{name: json.dumps(content).encode()})

    def change_schema(self, change: Callable[[Node], None]) -> None:
        self.change_json(SCHEMA, change)

    def assert_refused(
        self, match: str | None = None, read: Callable[[Path], Any] = twinned.load
    ) -> None:
        """Check that reading the file raises an `IntegrityError` of one line with its name."""
        with pytest.raises(IntegrityError, match=match) as caught:
            read(self.path)
        assert "\n" not in str(caught.value)
        assert str(self.path) in str(caught.value)

    def assert_unreadable(self, match: str | None = None) -> None:
        """Check that neither the model nor the header can be read."""
        self.assert_refused(match)
        self.assert_refused(match, read_header)

    def nodes(self, schema: Any, loader: str) -> Iterator[Node]:
        """Yield all nodes of the schema with this loader."""
        if isinstance(schema, dict):
            if schema.get("__loader__") == loader:
                yield schema
            schema = list(schema.values())
        if isinstance(schema, list):
            for value in schema:
                yield from self.nodes(value, loader)

    def attribute(self, schema: Node, *path: str) -> Node:
        """Return the node of an attribute of the model, of an attribute of that, and so on."""
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
        """Return the node itself, or the one it refers to."""
        if node["__loader__"] != "CachedNode":
            return node
        pending = [schema]
        while pending:
            part = pending.pop()
            if isinstance(part, dict):
                if part.get("__id__") == node["__id__"] and part["__loader__"] != "CachedNode":
                    return part
                pending.extend(part.values())
            elif isinstance(part, list):
                pending.extend(part)
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
    """Threads only slow down models as small as these."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def model_file() -> type[ModelFile]:
    return ModelFile


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


@pytest.fixture
def tree_file(data, saved) -> ModelFile:
    return saved(DecisionTreeRegressor(max_depth=3, random_state=0).fit(*data))


@pytest.fixture(scope="session")
def histogram_bytes(data, tmp_path_factory) -> bytes:
    X, _ = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical(np.random.default_rng(0).choice(list("uvw"), len(X)))
    y = X[:, 0] + 5 * (frame["kind"].cat.codes.to_numpy() == 1)
    model = HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=3).fit(frame, y)
    assert model._predictors[0][0].nodes["is_categorical"][0]
    path = tmp_path_factory.mktemp("histogram") / "model.twin"
    twinned.save(model, path)
    return path.read_bytes()


@pytest.fixture
def histogram_file(histogram_bytes, tmp_path) -> ModelFile:
    file = ModelFile(tmp_path / "model.twin")
    file.path.write_bytes(histogram_bytes)
    return file
