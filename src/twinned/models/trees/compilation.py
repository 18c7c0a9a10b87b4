"""Decorators that compile functions of the kernel, with a file cache that processes share."""

# mypy: ignore-errors
# numba has no type annotations.

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from numba import config, njit

from twinned._compat import extend_cache_stamp

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_OPTIONS = {"nogil": True, "error_model": "numpy"}
# Turns off reference counts of arrays, which cost time. It is not a documented option.
with suppress(KeyError, TypeError):
    njit(lambda: None, _nrt=False)
    _OPTIONS["_nrt"] = False


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that compiled functions call."""
    return njit(function, **_OPTIONS)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function as a part of each compiled function that calls it."""
    return njit(function, inline="always", **_OPTIONS)


def entry_point(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls: on first use, or load it from numba's file cache.

    One process compiles while others wait for the result. Without a writable folder there is no
    cache, nor under numba's bounds checking (`NUMBA_BOUNDSCHECK=1`), as the cache does not
    distinguish checked code.
    """
    dispatcher = compiled(function)
    if config.BOUNDSCHECK:
        return dispatcher
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # no writable folder
        return dispatcher
    extend_cache_stamp(dispatcher, _hash_sources(Path(inspect.getfile(function)).parent))
    lock_file = Path(dispatcher.stats.cache_path) / f"{function.__name__}.lock"
    compile_or_load = dispatcher.compile

    def compile_locked(signature: Any) -> Any:
        with _lock(lock_file):
            return compile_or_load(signature)

    dispatcher.compile = compile_locked
    return dispatcher


def _hash_sources(folder: Path) -> str:
    """Hash the modules of a package: compiled code contains constants and functions of them."""
    sources = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(sources)).hexdigest()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock between processes, where the system supports it."""
    with ExitStack() as stack:
        with suppress(OSError, AttributeError):
            file = stack.enter_context(open(path, "w"))
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield
