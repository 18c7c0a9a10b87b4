"""Saved models that tests can alter."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import twinned
from twinned.exceptions import IntegrityError
from twinned.persistence import read_header
from twinned.persistence.archive import MODEL, from_npy, read_zip, to_json, to_npy, write_zip


class ModelFile:
    """A saved model with members that can be altered."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def members(self) -> dict[str, bytes]:
        return read_zip(self.path.read_bytes())

    def write(self, members: dict[str, bytes]) -> None:
        self.path.write_bytes(write_zip(members))

    def rewrite(self, **changed: bytes) -> None:
        self.write({**self.members(), **changed})

    def change_json(self, change: Callable[[Any], None], name: str = MODEL) -> None:
        content = json.loads(self.members()[name])
        change(content)
        self.rewrite(**{name: to_json(content)})

    def set(self, value: Any, *path: str | int) -> None:
        """Set a value of the description, by its path without tags and `state`."""

        def change(node: Any) -> None:
            for key in path[:-1]:
                node = _enter(node, key)[key]
            _enter(node, path[-1])[path[-1]] = value

        self.change_json(change)

    def change_array(self, change: Callable[[np.ndarray], np.ndarray | None], name: str) -> None:
        """Change an array, such as `estimator_/coef_`, in place or by returning another one."""
        member = f"model/{name}.npy"
        array = from_npy(self.members()[member], member)
        changed = change(array)
        self.rewrite(**{member: to_npy(array if changed is None else changed)})

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


def _enter(node: Any, key: str | int) -> Any:
    """Return the container of a key: the content of a tagged value, or the state of a part."""
    while isinstance(node, dict) and key not in node:
        node = node["state"] if "state" in node else next(iter(node.values()))
    return node


@pytest.fixture(scope="module", autouse=True)
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
