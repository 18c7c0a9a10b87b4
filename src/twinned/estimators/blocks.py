"""What a block of queries is made of while it is predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from twinned._neighbors import Indices
from twinned._table import Floats, Rows, TableSchema


class Selection(NamedTuple):
    """The anchors of a block of queries. `indices` is None where all anchors serve all queries."""

    indices: Indices | None
    distances: Floats | None


class Queries:
    """Rows to predict, which become points only as they are taken: indicators are wide."""

    def __init__(
        self, as_points: Callable[[TableSchema, Floats], Rows], columns: TableSchema, matrix: Floats
    ) -> None:
        self._as_points, self._schema, self.matrix = as_points, columns, matrix

    def take(self, rows: Any) -> Rows:
        return self._as_points(self._schema, self.matrix[rows])

    def __len__(self) -> int:
        return len(self.matrix)


def cut(found: Selection, start: int, stop: int, per_block: int) -> Iterator[tuple[int, Selection]]:
    for low in range(start, stop, per_block):
        rows = slice(low - start, low - start + per_block)
        if found.indices is None or found.distances is None:
            yield low, found
        else:
            yield low, Selection(found.indices[rows], found.distances[rows])
