import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from twinned import NearestAnchors, TwinRegressor

COLUMNS = ["query", "anchor", "anchor_y", "difference", "estimate", "weight", "distance", "count"]


@pytest.fixture
def data(rng):
    X = rng.rand(30, 3)
    return X, X @ [1.0, 2.0, -1.0]


def test_anchors_of_equal_weight_are_sorted_by_distance(data):
    X, y = data
    twin = TwinRegressor(Ridge()).fit(X, y)
    table = twin.explain(X[:4], n=3, metric="euclidean")
    assert list(table.columns) == COLUMNS
    assert len(table) == 16
    others = table[table["anchor"] == -1]
    np.testing.assert_allclose(others["weight"], 27 / 30)
    assert (others["count"] == 27).all()
    table = table[table["anchor"] >= 0]
    distances = np.linalg.norm(X[:4, None] - X[None], axis=2)
    for query, rows in table[table["anchor"] >= 0].groupby("query"):
        np.testing.assert_array_equal(rows["anchor"], np.argsort(distances[query])[:3])
        np.testing.assert_allclose(rows["distance"], np.sort(distances[query])[:3])
        np.testing.assert_allclose(rows["weight"], 1 / 30)
        np.testing.assert_allclose(rows["anchor_y"], y[rows["anchor"]])
        np.testing.assert_allclose(rows["estimate"], rows["anchor_y"] + rows["difference"])


def test_a_last_row_is_all_other_cases_and_copies_are_one(data):
    X, y = (np.concatenate([part, part[[3, 3]]]) for part in data)
    twin = TwinRegressor(Ridge()).fit(X, y)
    queries = X[3:6] + 0.01
    table = twin.explain(queries, n=4, metric="euclidean")
    last = table.groupby("query").tail(1)
    assert (last["anchor"] == -1).all()
    assert last["distance"].isna().all()
    np.testing.assert_allclose(last["difference"], last["estimate"] - last["anchor_y"])
    by_query = table.groupby("query")
    np.testing.assert_allclose(by_query["weight"].sum(), 1.0)
    assert by_query["count"].sum().tolist() == [32] * 3
    np.testing.assert_allclose(
        (table["weight"] * table["estimate"]).groupby(table["query"]).sum(), twin.predict(queries)
    )
    assert table["anchor"][0] == 3
    assert table["count"][0] == 3
    expected = TwinRegressor(Ridge()).fit(*data).explain(queries, n=4, metric="euclidean")["anchor"]
    assert table["anchor"].tolist() == expected.tolist()  # copies are not shown before nearer rows


def test_the_largest_weights_come_first_and_give_the_prediction(data):
    X, y = data
    twin = TwinRegressor(KNeighborsRegressor(3), anchors=NearestAnchors(6), weights="distance")
    twin.fit(X, y)
    queries = X[:3] + 0.01
    table = twin.explain(queries, n=6)
    for query, rows in table.groupby("query"):
        assert (np.diff(rows["weight"]) <= 0).all()
        assert rows["weight"].sum() == pytest.approx(1)
        prediction = (rows["weight"] * rows["estimate"]).sum()
        assert prediction == pytest.approx(twin.predict(queries)[query])


def test_several_outputs_have_rows_of_their_own(data):
    X, y = data
    twin = TwinRegressor(Ridge()).fit(X, np.column_stack([y, -2 * y]))
    table = twin.explain(X[:2], n=4)
    assert len(table) == 2 * 2 * 5
    np.testing.assert_allclose(
        table.query("output == 1")["anchor_y"], -2 * table.query("output == 0")["anchor_y"]
    )


def test_more_comparables_than_anchors_returns_all(data):
    X, y = data
    assert len(TwinRegressor(Ridge()).fit(X[:5], y[:5]).explain(X[:1], n=50)) == 5


def test_copies_are_one_case_with_a_count(data):
    X, y = data
    X, y = np.concatenate([X, X[:1], X[:1]]), np.concatenate([y, y[:1], y[:1]])
    twin = TwinRegressor(Ridge()).fit(X, y)
    table = twin.explain(X[:1] + 0.01, n=2, metric="euclidean")
    assert table["anchor"].tolist()[0] == 0
    assert table["count"].tolist() == [3, 1, 28]
    np.testing.assert_allclose(table["weight"], [3 / 32, 1 / 32, 28 / 32])
    prediction = (table["weight"] * table["estimate"]).sum()
    assert prediction == pytest.approx(twin.predict(X[:1] + 0.01)[0])
