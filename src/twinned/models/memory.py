"""Memory limits: parsing, the budget of a prediction, and blocks of rows within it."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed

from twinned.exceptions import MemoryLimitError
from twinned.models.threads import count_threads, limit_openmp

Result = TypeVar("Result")


def parse_memory_limit(limit: Any) -> int | None:
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
    """A memory limit in bytes, shared by the threads of `n_jobs`; None is unlimited."""

    limit: int | None
    n_jobs: int | None

    def fits(self, n_bytes: int) -> bool:
        """Whether so many bytes fit for each thread."""
        return self.limit is None or n_bytes * count_threads(self.n_jobs) <= self.limit

    def at_most(self, maximum: int, bytes_each: int) -> int:
        """The number of items of that size, up to `maximum`, that fit for each thread."""
        if self.limit is None:
            return maximum
        n_threads = count_threads(self.n_jobs)
        count = self.limit // n_threads // bytes_each
        if count < 1:
            raise MemoryLimitError(
                f"memory_limit={self.limit} bytes is too small for a single pair or query "
                f"({bytes_each} bytes in each of {n_threads} threads)."
            )
        return min(count, maximum)


def row_blocks(n_rows: int, rows_per_block: int) -> Iterator[slice]:
    """Consecutive slices of at most `rows_per_block` rows."""
    for start in range(0, n_rows, rows_per_block):
        yield slice(start, min(start + rows_per_block, n_rows))


def map_row_blocks(
    function: Callable[[slice], Result], n_rows: int, rows_per_block: int, n_jobs: int | None
) -> list[Result]:
    """`function(rows)` of all blocks of rows, in order, on `n_jobs` threads."""
    blocks = list(row_blocks(n_rows, rows_per_block))
    if len(blocks) == 1 or count_threads(n_jobs) == 1:
        return [function(rows) for rows in blocks]

    def one(rows: slice) -> Result:
        with limit_openmp(1):  # which has a limit for each thread
            return function(rows)

    results: list[Result] = Parallel(n_jobs=n_jobs, require="sharedmem")(
        delayed(one)(rows) for rows in blocks
    )
    return results
