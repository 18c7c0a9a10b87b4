"""Limits of resources: threads of OpenMP and BLAS by `n_jobs`, and memory by `memory_limit`.

OpenMP and BLAS use all cores by default, which makes small problems slower, and many times slower
where other processes use the cores: threads wait actively for each other.
"""

import numbers
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend
from sklearn.utils import gen_batches
from threadpoolctl import ThreadpoolController

from twinned.exceptions import MemoryLimitError

Result = TypeVar("Result")
_LOCK = threading.Lock()


def is_remote_backend() -> bool:
    """Whether tasks of joblib run on a cluster, as in `parallel_config(backend="dask")`."""
    backend, _ = get_active_backend()
    return not type(backend).__module__.startswith("joblib._parallel_backends")


def count_threads(n_jobs: int | None) -> int:
    """The number of threads of this process for `n_jobs`; None means 1.

    A cluster, as of `parallel_config(backend="dask")`, has no threads here.
    """
    if not is_remote_backend():
        return int(effective_n_jobs(n_jobs))
    with parallel_config(backend="threading", n_jobs=1):
        return int(effective_n_jobs(n_jobs))


@contextmanager
def one_thread_if_remote() -> Iterator[None]:
    """Context of a task: on a worker of a cluster, one thread and no further tasks of the cluster.

    Elsewhere it changes nothing.
    """
    if not is_remote_backend():
        yield
        return
    with parallel_config(backend="sequential"), limit_threads(1):
        yield


def limit_threads(n_jobs: int | None) -> AbstractContextManager[object]:
    """Context in which OpenMP uses the threads of `n_jobs`, and BLAS at most these; None means 1.

    The limit of OpenMP is that of the calling thread. BLAS may have one for the process, which is
    only set where it is higher: another thread that has lowered it for a while restores it.
    """
    n_modules, n_threads = len(sys.modules), count_threads(n_jobs)
    with _LOCK:  # of two threads that begin at the same time, one finds the limit of the other
        blas = _find_libraries("blas", n_modules).lib_controllers
        is_higher = any(library.num_threads > n_threads for library in blas)
        return _find_libraries(None if is_higher else "openmp", n_modules).limit(limits=n_threads)


def limit_openmp(n_threads: int) -> AbstractContextManager[object]:
    """Context in which OpenMP uses `n_threads` threads, in the calling thread."""
    return _find_libraries("openmp", len(sys.modules)).limit(limits=n_threads)


@lru_cache(maxsize=3)
def _find_libraries(user_api: str | None, n_modules: int) -> ThreadpoolController:
    """The loaded libraries, searched again where modules have been imported since."""
    libraries = ThreadpoolController()
    return libraries if user_api is None else libraries.select(user_api=user_api)


def parse_memory_limit(limit: object) -> int | None:
    """The number of bytes of a limit such as 10**6, `"512MB"` (decimal) or `"1GiB"`.

    >>> parse_memory_limit("512MB"), parse_memory_limit("1GiB"), parse_memory_limit(None)
    (512000000, 1073741824, None)
    """
    if limit is None:
        return None
    expected = f"memory_limit must be bytes or a string such as '512MB', not {limit!r}."
    if isinstance(limit, str):
        pattern = r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT]?)B|([KMGT])iB)?\s*"
        match = re.fullmatch(pattern, limit, re.IGNORECASE)
        if match is None:
            raise ValueError(expected)
        _, decimal, binary = match.groups()
        power = " KMGT".index((decimal or binary or " ").upper())
        size = float(match[1]) * (1024 if binary else 1000) ** power
    elif isinstance(limit, numbers.Real) and not isinstance(limit, bool | np.bool_):
        size = float(limit)
    else:
        raise TypeError(expected)
    if not 1 <= size < 2**63:
        raise ValueError(f"memory_limit must be at least one byte, and finite, not {limit!r}.")
    return int(size)


class MemoryBudget(NamedTuple):
    """A memory limit, shared by the threads of `n_jobs`: parameters of an estimator."""

    memory_limit: int | str | None = None
    n_jobs: int | None = None

    def fits(self, n_bytes: int) -> bool:
        """Whether so many bytes fit for each thread."""
        limit = parse_memory_limit(self.memory_limit)
        return limit is None or n_bytes * count_threads(self.n_jobs) <= limit

    def at_most(self, maximum: int, bytes_each: int) -> int:
        """The number of items of that size, up to `maximum`, that fit for each thread."""
        limit = parse_memory_limit(self.memory_limit)
        if limit is None:
            return maximum
        n_threads = count_threads(self.n_jobs)
        count = limit // n_threads // bytes_each
        if count < 1:
            needed = f"a single pair or query ({bytes_each} bytes in each of {n_threads} threads)"
            raise MemoryLimitError(f"memory_limit={limit} bytes is too small for {needed}.")
        return min(count, maximum)


def map_row_blocks(
    function: Callable[[slice], Result], n_rows: int, rows_per_block: int, n_jobs: int | None
) -> list[Result]:
    """`function(rows)` of all blocks of rows, in order, on `n_jobs` threads."""
    blocks = list(gen_batches(n_rows, rows_per_block))
    if len(blocks) == 1 or count_threads(n_jobs) == 1:
        return [function(rows) for rows in blocks]

    def one(rows: slice) -> Result:
        with limit_openmp(1):  # which has a limit for each thread
            return function(rows)

    return list(Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(one)(rows) for rows in blocks))
