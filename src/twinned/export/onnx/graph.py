"""Graph: nodes and constants of an ONNX graph under construction.

A tensor is the name of a node's output. Operands may also be arrays, which become constants. All
tensors are float64 unless a function states otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Tensor = str
Operand = Tensor | ArrayLike

FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
ML_DOMAIN = "ai.onnx.ml"
_INTEGERS = (np.int8, np.int16, np.int32)  # types of compact columns, the smallest first
_MAX_DECIMALS = 6  # of values that are stored as integers


class Graph:
    """A graph, or the body of a loop in one; constants are stored in the outermost graph."""

    def __init__(self, root: Graph | None = None) -> None:
        self.root: Graph = self if root is None else root
        self.nodes: list[NodeProto] = []
        if root is None:
            self.constants: dict[tuple[Any, ...], TensorProto] = {}
            self._n_names = 0

    # --- operators ----------------------------------------------------------------------------

    def add(self, operator: str, *operands: Operand, domain: str = "", **attributes: Any) -> Tensor:
        """Add a node with one output, and return that."""
        return self.add_several(operator, 1, *operands, domain=domain, **attributes)[0]

    def add_several(
        self, operator: str, n_outputs: int, *operands: Operand, domain: str = "", **attributes: Any
    ) -> list[Tensor]:
        """Add a node with several outputs."""
        inputs = [self._tensor(operand) for operand in operands]
        outputs = [self.new_name() for _ in range(n_outputs)]
        if operator == "Gather":
            # onnxruntime 1.21 joins such nodes, and names the joint node after one of them
            attributes["name"] = outputs[0]
        self.nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
        return outputs

    def cast(self, x: Tensor, to: int) -> Tensor:
        """Convert to another type of elements."""
        return self.add("Cast", x, to=to)

    def columns(self, x: Tensor, indices: Sequence[int] | NDArray[Any]) -> Tensor:
        """Columns of a tensor: entries of its last axis."""
        return self.add("Gather", x, np.asarray(indices, dtype=np.int64), axis=-1)

    def concatenate(self, parts: Sequence[Tensor], axis: int = -1) -> Tensor:
        """Join tensors; a single one is returned as it is."""
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=axis)

    def reduce(self, operator: str, x: Tensor, axis: int, *, keepdims: bool = False) -> Tensor:
        """Reduce one axis by an operator such as ReduceSum."""
        return self.add(operator, x, np.array([axis]), keepdims=int(keepdims))

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        """Reshape; −1 stands for one length that follows from the others, 0 for an equal one."""
        return self.add("Reshape", x, np.array(shape))

    def broadcast_rows(self, row: Tensor, like: Tensor) -> Tensor:
        """Repeat a row (column,) for each row of a matrix: (row, column)."""
        n_rows = self.add("Shape", like, start=0, end=1)
        n_columns = self.add("Shape", row, start=-1)
        return self.add("Expand", row, self.add("Concat", n_rows, n_columns, axis=0))

    def map_rows(self, function: Callable[..., Sequence[Tensor]], *rows: Tensor) -> list[Tensor]:
        """Apply `function(graph, row, …)` to each row of tensors, one after the other.

        So memory does not grow with the number of rows. Its results get a leading axis of rows.
        """
        body = Graph(self.root)
        inputs = [self.new_name() for _ in rows]
        # an operator may not return an input of the body as it is
        outputs = [body.add("Identity", out) for out in function(body, *inputs)]
        graph = GraphProto(
            name=self.new_name(),
            node=body.nodes,
            input=[ValueInfoProto(name=name) for name in inputs],
            output=[ValueInfoProto(name=name) for name in outputs],
        )
        return self.add_several("Scan", len(outputs), *rows, body=graph, num_scan_inputs=len(rows))

    # --- constants ----------------------------------------------------------------------------

    def constant(self, values: ArrayLike) -> Tensor:
        """Store an array; equal arrays are stored once."""
        array = np.ascontiguousarray(values)
        array = array.reshape(np.shape(values))  # which a scalar loses
        key = (array.dtype.str, array.shape, array.tobytes())
        stored = self.root.constants.get(key)
        if stored is None:
            stored = numpy_helper.from_array(array, self.new_name())
            self.root.constants[key] = stored
        return str(stored.name)

    def matrix(self, values: NDArray[Any]) -> Tensor:
        """Store a matrix (row, column) of float64 in the smallest types that hold its columns.

        A column of decimal fractions is stored as integers with a divisor, a column of float32
        values in that type. The tensor has the same values to the last bit. It is computed in the
        outermost graph: in the body of a loop, that would be done for every row.
        """
        root = self.root
        groups: dict[np.dtype[Any], list[tuple[int, float, NDArray[Any]]]] = {}
        for j, column in enumerate(np.asarray(values, dtype=np.float64).T):
            stored, divisor = _compact(column)
            groups.setdefault(stored.dtype, []).append((j, divisor, stored))
        parts, order = [], []
        for group in groups.values():
            indices, divisors, columns = zip(*group, strict=True)
            part = root.cast(root.constant(np.column_stack(columns)), DOUBLE)
            if set(divisors) != {1.0}:
                part = root.add("Div", part, np.array(divisors))
            parts.append(part)
            order += indices
        joined = root.concatenate(parts)
        return joined if order == sorted(order) else root.columns(joined, np.argsort(order))

    def new_name(self) -> str:
        """Return a name that no other tensor has."""
        self.root._n_names += 1
        return f"#{self.root._n_names}"

    def _tensor(self, operand: Operand) -> Tensor:
        return operand if isinstance(operand, str) else self.constant(operand)


def _compact(column: NDArray[np.float64]) -> tuple[NDArray[Any], float]:
    """Return a column in a small type, and a divisor that gives back its values exactly.

    >>> _compact(np.array([0.25, 1.5]))
    (array([ 25, 150], dtype=int16), 100.0)
    """
    if np.isfinite(column).all() and not np.signbit(column[column == 0]).any():
        for divisor in 10.0 ** np.arange(_MAX_DECIMALS + 1):
            with np.errstate(over="ignore"):
                whole = np.round(column * divisor)
            if np.abs(whole).max(initial=0.0) > np.iinfo(_INTEGERS[-1]).max:
                break
            if np.array_equal(whole / divisor, column):
                fits = [t for t in _INTEGERS if np.array_equal(whole.astype(t), whole)]
                return whole.astype(fits[0]), float(divisor)
    with np.errstate(over="ignore"):
        rounded = column.astype(np.float32)
    exact = np.array_equal(rounded.astype(np.float64), column, equal_nan=True)
    return (rounded, 1.0) if exact else (column, 1.0)
