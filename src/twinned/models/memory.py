"""Memory budget of predictions, and blocks of rows within it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from joblib import Parallel, delayed, effective_n_jobs

from twinned.exceptions import MemoryLimitError

Result = TypeVar("Result")


class MemoryBudget(NamedTuple):
    """A memory limit in bytes, shared by the threads of `n_jobs`; None is unlimited."""

    limit: int | None
    n_jobs: int | None

    def fits(self, n_bytes: int) -> bool:
        """Whether so many bytes fit for each thread."""
        return self.limit is None or n_bytes * effective_n_jobs(self.n_jobs) <= self.limit

    def at_most(self, maximum: int, bytes_each: int) -> int:
        """The number of items of that size, up to `maximum`, that fit for each thread."""
        if self.limit is None:
            return maximum
        n_threads = effective_n_jobs(self.n_jobs)
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
    if len(blocks) == 1 or effective_n_jobs(n_jobs) == 1:
        return [function(rows) for rows in blocks]
    results: list[Result] = Parallel(n_jobs=n_jobs, require="sharedmem")(
        delayed(function)(rows) for rows in blocks
    )
    return results
