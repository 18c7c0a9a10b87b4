import numpy as np
from onnx import numpy_helper

from twinned.export.onnx.graph import Graph, Tensor


def test_values_that_float32_holds_are_stored_in_it():
    graph = Graph()
    for values, dtype in ((np.array([0.25, np.nan]), np.float32), (np.array([0.1]), np.float64)):
        graph.constants.clear()
        graph.matrix(values)
        (stored,) = graph.constants.values()
        assert numpy_helper.to_array(stored).dtype == dtype


def test_a_matrix_has_the_same_values(evaluate, rng):
    values = np.column_stack([rng.normal(size=5), np.arange(5), np.arange(5) / 100, np.ones(5)])
    found = evaluate(lambda X: X.graph.matrix(values) + X, 0.0)
    np.testing.assert_array_equal(found, values)


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
