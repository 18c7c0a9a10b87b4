"""Threads of OpenMP and BLAS, limited to `n_jobs`.

Both use all cores by default, which makes small problems slower, and many times slower where other
processes use the cores: threads wait actively for each other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from joblib import effective_n_jobs, parallel_config
from threadpoolctl import ThreadpoolController

from twinned._compat import is_remote_backend

_LOCK = threading.Lock()


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


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Context in which OpenMP uses the threads of `n_jobs`, and BLAS at most these; None means 1.

    The limit of OpenMP is that of the calling thread. BLAS may have one for the process, which is
    only set where it is higher: another thread that has lowered it for a while restores it.
    """
    n_modules, n_threads = len(sys.modules), count_threads(n_jobs)
    with _LOCK:  # of two threads that begin at the same time, one finds the limit of the other
        blas = _find_libraries("blas", n_modules).lib_controllers
        is_higher = any(library.num_threads > n_threads for library in blas)
        limit = _find_libraries(None if is_higher else "openmp", n_modules).limit(limits=n_threads)
    with limit:
        yield


@contextmanager
def limit_openmp(n_threads: int) -> Iterator[None]:
    """Context in which OpenMP uses `n_threads` threads, in the calling thread."""
    with _find_libraries("openmp", len(sys.modules)).limit(limits=n_threads):
        yield


@lru_cache(maxsize=3)
def _find_libraries(user_api: str | None, n_modules: int) -> ThreadpoolController:
    """The loaded libraries, searched again where modules have been imported since."""
    found = ThreadpoolController()
    return found if user_api is None else found.select(user_api=user_api)
