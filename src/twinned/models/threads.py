"""Threads of OpenMP and BLAS, limited to `n_jobs`.

Both use all cores by default, which makes small problems slower, and many times slower where other
processes use the cores: threads wait actively for each other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Context in which OpenMP and BLAS use the threads of `n_jobs`; None means 1.

    The limit of OpenMP is that of the calling thread. OpenBLAS has one limit for the process, which
    threadpoolctl lets only one thread set.
    """
    with _find_libraries(None, len(sys.modules)).limit(limits=effective_n_jobs(n_jobs)):
        yield


@contextmanager
def limit_openmp(n_threads: int) -> Iterator[None]:
    """Context in which OpenMP uses `n_threads` threads, in the calling thread."""
    with _find_libraries("openmp", len(sys.modules)).limit(limits=n_threads):
        yield


@lru_cache(maxsize=2)
def _find_libraries(user_api: str | None, n_modules: int) -> ThreadpoolController:
    """The loaded libraries, searched again where modules have been imported since."""
    found = ThreadpoolController()
    return found if user_api is None else found.select(user_api=user_api)
