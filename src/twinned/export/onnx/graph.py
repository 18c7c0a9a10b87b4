"""Graph: nodes and constants of an ONNX graph under construction, and its tensors.

A tensor is the output of a node; operators of Python add further nodes. Operands may also be
arrays, which become constants. All tensors are float64 unless a function states otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from twinned.rows.schema import Indices

FLOAT: int = TensorProto.FLOAT
DOUBLE: int = TensorProto.DOUBLE
INT64: int = TensorProto.INT64
ML_DOMAIN = "ai.onnx.ml"


class Tensor:
    """The output of a node, with operators that add nodes to the present body of its graph."""

    __array_ufunc__ = None  # an array on the left leaves an operator to the tensor

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name

    def apply(self, operator: str, *operands: Operand, **attributes: Any) -> Tensor:
        """Add a node whose first operand is this tensor."""
        return self.graph.add(operator, self, *operands, **attributes)

    def __add__(self, other: Operand) -> Tensor:
        return self.apply("Add", other)

    def __sub__(self, other: Operand) -> Tensor:
        return self.apply("Sub", other)

    def __rsub__(self, other: ArrayLike) -> Tensor:
        return self.graph.add("Sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return self.apply("Mul", other)

    def __truediv__(self, other: Operand) -> Tensor:
        return self.apply("Div", other)

    def __rtruediv__(self, other: ArrayLike) -> Tensor:
        return self.graph.add("Div", other, self)

    def __matmul__(self, other: Operand) -> Tensor:
        return self.apply("MatMul", other)

    def cast(self, to: int) -> Tensor:
        """Convert to another type of elements."""
        return self.apply("Cast", to=to)

    def columns(self, indices: Sequence[int] | range | Indices) -> Tensor:
        """Entries of the last axis."""
        return self.take(np.asarray(indices, dtype=np.int64), axis=-1)

    def take(self, indices: Operand, axis: int = 0) -> Tensor:
        """Entries of an axis."""
        return self.apply("Gather", indices, axis=axis)

    def sum(self, axis: int, *, keepdims: bool = False) -> Tensor:
        return self.reduce("ReduceSum", axis, keepdims=keepdims)

    def mean(self, axis: int, *, keepdims: bool = False) -> Tensor:
        return self.reduce("ReduceMean", axis, keepdims=keepdims)

    def reduce(self, operator: str, axis: int, *, keepdims: bool = False) -> Tensor:
        """Reduce one axis by an operator such as ReduceMax."""
        return self.apply(operator, np.array([axis]), keepdims=int(keepdims))

    def reshape(self, *shape: int) -> Tensor:
        """Reshape; −1 stands for one length that follows from the others, 0 for an equal one."""
        return self.apply("Reshape", np.array(shape))

    def add_axis(self, axis: int) -> Tensor:
        """Add an axis of length 1."""
        return self.apply("Unsqueeze", np.array([axis]))

    def is_nan(self) -> Tensor:
        """Whether each element is NaN."""
        return self.apply("IsNaN")

    def fill_nan(self, values: Operand) -> Tensor:
        """The elements, with other values in place of NaN."""
        return self.is_nan().apply("Where", values, self)

    def equals(self, values: Operand) -> Tensor:
        """1 where elements are equal to values, and 0 elsewhere."""
        return self.apply("Equal", values).cast(DOUBLE)


Operand = Tensor | ArrayLike


class Graph:
    """A graph; while rows are mapped, nodes are added to the body of a loop.

    Constants are stored in the outermost graph. `dtype` is the type of numbers in the inputs.
    """

    def __init__(self, dtype: str = "float64") -> None:
        self.dtype = dtype
        self.nodes: list[NodeProto] = []  # of the present body
        self.constants: dict[tuple[object, ...], TensorProto] = {}
        self._outermost_nodes = self.nodes
        self._n_names = 0

    # --- operators ----------------------------------------------------------------------------

    def add(self, operator: str, *operands: Operand, domain: str = "", **attributes: Any) -> Tensor:
        """Add a node with one output, and return that."""
        return self.add_several(operator, 1, *operands, domain=domain, **attributes)[0]

    def add_several(
        self,
        operator: str,
        n_outputs: int,
        *operands: Operand,
        domain: str = "",
        **attributes: Any,
    ) -> list[Tensor]:
        """Add a node with several outputs."""
        inputs = [
            operand.name if isinstance(operand, Tensor) else self.constant(operand).name
            for operand in operands
        ]
        outputs = [self.new_tensor() for _ in range(n_outputs)]
        names = [output.name for output in outputs]
        if operator == "Gather":
            # onnxruntime 1.21 joins such nodes, and names the joint node after one of them
            attributes["name"] = names[0]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return outputs

    def map_rows(self, function: Callable[..., Sequence[Tensor]], *rows: Tensor) -> list[Tensor]:
        """Apply `function(row, …)` to each row of tensors, one after the other.

        So memory does not grow with the number of rows. Its results get a leading axis of rows.
        """
        inputs = [self.new_tensor() for _ in rows]
        with self._adding_to([]) as nodes:
            # an operator may not return an input of the body as it is
            outputs = [out.apply("Identity") for out in function(*inputs)]
        input_infos = [ValueInfoProto(name=tensor.name) for tensor in inputs]
        output_infos = [ValueInfoProto(name=tensor.name) for tensor in outputs]
        body = helper.make_graph(nodes, self.new_tensor().name, input_infos, output_infos)
        return self.add_several("Scan", len(outputs), *rows, body=body, num_scan_inputs=len(rows))

    def outside_loops(self) -> AbstractContextManager[list[NodeProto]]:
        """Context in which nodes are added to the outermost graph, so that they run once."""
        return self._adding_to(self._outermost_nodes)

    @contextmanager
    def _adding_to(self, nodes: list[NodeProto]) -> Iterator[list[NodeProto]]:
        before, self.nodes = self.nodes, nodes
        try:
            yield nodes
        finally:
            self.nodes = before

    # --- constants ----------------------------------------------------------------------------

    def constant(self, values: ArrayLike) -> Tensor:
        """Store an array; equal arrays are stored once."""
        array = np.asarray(values, order="C")
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, self.new_tensor().name)
        return Tensor(self, self.constants[key].name)

    def new_tensor(self) -> Tensor:
        """A tensor with a name that no other has."""
        self._n_names += 1
        return Tensor(self, f"#{self._n_names}")


def concatenate(tensors: Sequence[Tensor], axis: int = -1) -> Tensor:
    """Join tensors; a single one is returned as it is."""
    first, *others = tensors
    return first.apply("Concat", *others, axis=axis) if others else first
