"""Compilation of the kernel, with a file cache that processes share."""

# mypy: ignore-errors
# numba has no type annotations.

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba import config, njit

from twinned._compat import set_cache_stamp

try:
    import fcntl
except ImportError:  # Windows: processes may compile the same function at the same time
    fcntl = None


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function on first use, without the global interpreter lock.

    The machine code is stored in numba's file cache, where there is a folder that can be written
    to. Under numba's bounds checking (`NUMBA_BOUNDSCHECK=1`) it is not stored, as the cache does
    not distinguish checked code.
    """
    # `_nrt` turns off reference counts of arrays; it is not a documented option, so it may go
    for options in ({"_nrt": False}, {}):
        try:
            dispatcher = njit(function, nogil=True, error_model="numpy", **options)
            break
        except (KeyError, TypeError):
            continue
    if not config.BOUNDSCHECK:
        try:
            dispatcher.enable_caching()
        except RuntimeError:  # no such folder
            return dispatcher
        # numba recognizes stale code by one file alone, and constants come from others
        set_cache_stamp(dispatcher, _hash_sources(Path(inspect.getfile(function)).parent))
    return dispatcher


def compiled_once(function: Callable[..., Any]) -> Any:
    """`compiled`, for a function that is called from Python: one process compiles, others wait.

    Without this, processes that start at the same time would all compile the same code.
    """
    dispatcher = compiled(function)
    compile_at_once = dispatcher.compile

    def compile_locked(signature: Any) -> Any:
        with _lock(dispatcher.stats.cache_path, f"{function.__name__}.lock"):
            return compile_at_once(signature)

    dispatcher.compile = compile_locked
    return dispatcher


def _hash_sources(folder: Path) -> str:
    """Hash the source files of a package, all of which compiled code may contain constants of."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _lock(folder: str | None, name: str) -> Iterator[None]:
    """Hold an exclusive lock between processes, where there is a folder for the lock file."""
    if folder is None or fcntl is None:
        yield
        return
    with open(Path(folder) / name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield
