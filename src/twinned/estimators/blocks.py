"""Blocks of queries that are predicted within a memory limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import ThreadpoolController

from twinned._neighbors import Indices
from twinned._table import Floats, Rows, TableSchema
from twinned.exceptions import MemoryLimitError

Result = TypeVar("Result")


class Selection(NamedTuple):
    """The anchors of a block of queries, (query, anchor) each; None stands for all anchors."""

    indices: Indices | None
    distances: Floats | None

    def take(self, rows: slice) -> Selection:
        if self.indices is None or self.distances is None:
            return self
        return Selection(self.indices[rows], self.distances[rows])


class Queries:
    """Validated rows to predict, encoded block by block, as indicators take much memory."""

    def __init__(
        self, to_rows: Callable[[TableSchema, Floats], Rows], schema: TableSchema, matrix: Floats
    ) -> None:
        self._to_rows, self._schema, self.matrix = to_rows, schema, matrix

    def take(self, rows: slice | Indices) -> Rows:
        return self._to_rows(self._schema, self.matrix[rows])

    def __len__(self) -> int:
        return len(self.matrix)


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


def map_blocks(
    function: Callable[[slice, Selection], Result],
    n_queries: int,
    rows_per_block: int,
    select: Callable[[slice], Selection],
    rows_per_search: int,
    n_jobs: int | None,
) -> list[Result]:
    """`function(rows, selection)` of all blocks of queries, in order, on `n_jobs` threads.

    The anchors of `rows_per_search` queries are selected at once.
    """
    results: list[Result] = []
    call = _one_openmp_thread(function) if effective_n_jobs(n_jobs) > 1 else function
    with Parallel(n_jobs=n_jobs, require="sharedmem") as parallel:
        for searched in row_blocks(n_queries, rows_per_search):
            selection = select(searched)
            blocks = [
                slice(searched.start + rows.start, searched.start + rows.stop)
                for rows in row_blocks(searched.stop - searched.start, rows_per_block)
            ]
            results += parallel(
                delayed(call)(
                    rows,
                    selection.take(slice(rows.start - searched.start, rows.stop - searched.start)),
                )
                for rows in blocks
            )
    return results


def _one_openmp_thread(
    function: Callable[[slice, Selection], Result],
) -> Callable[[slice, Selection], Result]:
    """The function with OpenMP limited to one thread, as blocks already run in parallel."""
    controller = ThreadpoolController()

    def call(rows: slice, selection: Selection) -> Result:
        with controller.limit(limits=1, user_api="openmp"):
            return function(rows, selection)

    return call
