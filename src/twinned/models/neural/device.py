"""The device and the cache of compiled programs that computations in JAX use."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import jax
from jax.experimental.compilation_cache import compilation_cache

_CACHE_OPTIONS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
_MIN_COMPILE_SECONDS = 0.3  # programs that compile faster are not stored


def platform() -> str:
    """Return the platform that JAX computes on by default here: "cpu", "gpu", …."""
    device = getattr(jax.config, "jax_default_device", None)
    return str(jax.default_backend() if device is None else getattr(device, "platform", device))


@contextlib.contextmanager
def on_device(device: str) -> Iterator[None]:
    """Compute on a device, with a cache of compiled programs.

    Parameters
    ----------
    device : {"auto", "cpu", "gpu"}
        `"auto"` is the device that JAX prefers; the others are the first one of that kind.
    """
    with _compilation_cache:
        if device == "auto":
            yield
            return
        try:
            chosen = jax.devices(device)[0]
        except RuntimeError:
            raise ValueError(
                f"device={device!r} is not available; JAX has {jax.devices()}."
            ) from None
        with jax.default_device(chosen):
            yield


class _CompilationCache:
    """A context in which JAX stores compiled programs in the user's cache folder.

    The configuration of JAX is global, so it is changed only while a computation of this package
    runs, in any thread, and restored afterwards. A folder configured by the user is left alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_open = 0
        self._previous: dict[str, object] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._n_open += 1
            if self._n_open > 1 or getattr(jax.config, _CACHE_OPTIONS[0], None):
                return
            root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
            folder = os.path.join(root, "twinned", "compiled")
            self._previous = {name: getattr(jax.config, name) for name in _CACHE_OPTIONS}
            self._configure(dict(zip(_CACHE_OPTIONS, (folder, _MIN_COMPILE_SECONDS), strict=True)))

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._n_open -= 1
            if self._n_open == 0 and self._previous is not None:
                self._configure(self._previous)
                self._previous = None
                # JAX opens the folder at the first program that it compiles, and would go on using
                # it for programs of others
                compilation_cache.reset_cache()

    @staticmethod
    def _configure(options: dict[str, object]) -> None:
        for name, value in options.items():
            jax.config.update(name, value)


_compilation_cache = _CompilationCache()
