import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twinned.export.onnx.graph import Graph, Tensor, compact_column

decimals = st.integers(-(10**7), 10**7).flatmap(
    lambda n: st.integers(0, 7).map(lambda digits: n / 10**digits)
)
columns = st.one_of(
    st.lists(decimals, min_size=1),
    st.lists(st.floats(allow_nan=True, allow_infinity=False), min_size=1),
    st.lists(st.floats(width=32), min_size=1),
)


@given(columns)
def test_acompact_column_column_has_the_same_bits(values):
    column = np.array(values)
    stored, divisor = compact_column(column)
    restored = stored.astype(np.float64) / divisor
    known = ~np.isnan(column)
    assert np.array_equal(np.isnan(restored), ~known)
    assert restored[known].tobytes() == column[known].tobytes()


def test_decimals_are_stored_as_integers():
    assert compact_column(np.array([0.25, 1.5]))[0].dtype == np.int16
    assert compact_column(np.array([0.1, 0.7]))[0].dtype == np.int8
    assert compact_column(np.array([np.pi]))[0].dtype == np.float64


def test_a_matrix_has_its_columns_in_order(evaluate, rng):
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
