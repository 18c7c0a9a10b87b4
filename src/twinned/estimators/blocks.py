"""Blocks of queries and the anchors selected for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from twinned.models.resources import map_row_blocks, row_blocks
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, Rows, TableSchema

Result = TypeVar("Result")


class Selection(NamedTuple):
    """The anchors of a block of queries, (query, anchor) each; None stands for all anchors."""

    indices: Indices | None
    distances: Floats | None

    def take(self, rows: slice) -> Selection:
        if self.indices is None or self.distances is None:
            return self
        return Selection(self.indices[rows], self.distances[rows])


@dataclass(frozen=True, eq=False)
class Queries:
    """Validated rows to predict, encoded block by block, as indicators take much memory."""

    to_rows: Callable[[TableSchema, Floats], Rows]
    schema: TableSchema
    matrix: Floats

    def take(self, rows: slice | Indices) -> Rows:
        return self.to_rows(self.schema, self.matrix[rows])

    def __len__(self) -> int:
        return len(self.matrix)


def map_query_blocks(
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
    for searched in row_blocks(n_queries, rows_per_search):
        start, selection = searched.start, select(searched)

        def call(rows: slice, start: int = start, selection: Selection = selection) -> Result:
            block = slice(start + rows.start, start + rows.stop)
            return function(block, selection.take(rows))

        results += map_row_blocks(call, searched.stop - start, rows_per_block, n_jobs)
    return results
