import numpy as np

from twinned.export.onnx.graph import Graph, Tensor


def test_equal_constants_are_stored_once():
    graph = Graph()
    first, second = (graph.constant(np.ones(3)) for _ in range(2))
    assert first.name == second.name
    assert first.name != graph.constant(np.ones(3, dtype=np.float32)).name
    assert len(graph.constants) == 2


def test_rows_are_mapped_one_by_one(evaluate):
    def add(X):
        return X.graph.map_rows(lambda row: [row.sum(0)], X)[0]

    np.testing.assert_array_equal(evaluate(add, [[1.0, 2.0], [3.0, 4.0]]), [3.0, 7.0])


def test_selections_of_columns_have_distinct_names():
    graph = Graph()
    for j in range(3):
        Tensor(graph, "X").columns([j])
    assert len({node.name for node in graph.nodes}) == 3
    assert all(node.name for node in graph.nodes)
