"""Adjustments: they add up, equal a slow version, and keep labels."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
)
from twinned.fitted.explanation import MAX_EXACT, attribute, switching_plan

FIXED = ["query", "anchor", "anchor_y", "difference", "estimate", "weight", "distance", "count"]


def product_difference(first, second):
    """A difference model with interactions of all features."""
    return (np.prod(1 + first, axis=1) - np.prod(1 + second, axis=1))[:, None]


def mean_over_all_orders(query, anchor):
    total = np.zeros(len(query))
    orders = list(permutations(range(len(query))))
    for order in orders:
        mixed, before = anchor.copy(), 0.0
        for j in order:
            mixed[j] = query[j]
            after = product_difference(mixed[None], anchor[None])[0, 0]
            total[j] += after - before
            before = after
    return total / len(orders)


@given(st.integers(0, 1000), st.integers(1, 5))
def test_up_to_seven_features_equal_the_mean_over_all_orders(seed, n_features):
    rng = np.random.RandomState(seed)
    query, anchor = rng.randint(0, 3, size=(2, n_features)).astype(float)
    difference = product_difference(query[None], anchor[None])
    found = attribute(product_difference, query[None], anchor[None], difference)[0, :, 0]
    np.testing.assert_allclose(found, mean_over_all_orders(query, anchor), atol=1e-9)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_adjustments_add_up(seed, n_features):
    rng = np.random.RandomState(seed)
    queries, anchors = rng.normal(size=(2, 6, n_features)) * 0.5
    queries[rng.rand(*queries.shape) < 0.3] = np.nan
    anchors[np.isnan(queries) & (rng.rand(*queries.shape) < 0.5)] = np.nan

    def predict(first, second):
        return product_difference(np.nan_to_num(first), np.nan_to_num(second))

    differences = predict(queries, anchors)
    found = attribute(predict, queries, anchors, differences)
    np.testing.assert_allclose(found.sum(axis=1), differences, rtol=1e-9, atol=1e-9)
    both_missing = np.isnan(queries) & np.isnan(anchors)
    assert (found[both_missing & ~both_missing.all(axis=1, keepdims=True)] == 0).all()


def test_a_feature_without_effect_has_no_adjustment():
    def predict(first, second):
        return ((first - second) @ [0.1, 0.7, 0.0])[:, None]

    queries, anchors = np.random.RandomState(0).normal(size=(2, 20, 3))
    found = attribute(predict, queries, anchors, predict(queries, anchors))
    assert (found[:, 2] == 0).all()
    assert (found[:, :2] != 0).all()


@pytest.mark.parametrize("d", [8, 9, 30, 200])
def test_orders_of_many_features_are_exact_for_sums(d):
    plan = switching_plan(d)
    assert d > MAX_EXACT
    effects = np.arange(1.0, d + 1)
    values = np.append(plan.sets @ effects, effects.sum())
    np.testing.assert_allclose(plan.coefficients @ values, effects)


@pytest.fixture(scope="module")
def table():
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(40, 3)), columns=["area", "weight", "age"])
    X["kind"] = pd.Categorical(rng.choice(["u", "v", "w"], size=40))
    X.index = [f"lot {i}" for i in range(40)]
    y = X["area"] * (1 + 2 * X["age"]) + (X["kind"] == "u")
    return X, y.to_numpy()


def check_add_up(twin, X, names):
    explained = twin.explain(X, n=4, adjustments=True)
    explained = explained[explained["anchor"] >= 0]  # without all others
    parts = explained[names].to_numpy()
    gap = np.abs(parts.sum(axis=1) - explained["difference"])
    assert gap.max() < 1e-9 * max(1.0, np.abs(explained["difference"]).max())
    return explained, parts


@pytest.mark.parametrize(
    "twin",
    [
        TwinRegressor(ExtraTreesRegressor(5, random_state=0), random_state=0),
        TwinRegressor(Ridge(), symmetric=False),
        TwinRegressor(DecisionTreeRegressor(max_depth=4), anchors=NearestAnchors(6)),
        AutoTwinRegressor(members=["ridge", "extra_trees:fast"], cv=2, random_state=0),
    ],
    ids=["trees", "not symmetric", "nearest anchors", "blend"],
)
def test_adjustments_of_twins_add_up_and_labels_are_retained(twin, table):
    X, y = table
    names = ["area", "weight (feature)", "age", "kind"]
    explained, _ = check_add_up(twin.fit(X[:30], y[:30]), X[28:], names)
    assert list(explained.columns) == [*FIXED, "label", *names]
    assert explained["query"].unique().tolist() == X.index[28:].tolist()
    assert (explained["label"] == "lot " + explained["anchor"].astype(str)).all()


@pytest.mark.slow
def test_adjustments_of_networks_add_up(table):
    X, y = table[0][["area", "age"]].to_numpy(), table[1]
    twin = TwinNeuralRegressor(
        (8,), n_members=2, training=NeuralTraining(n_folds=1, max_steps=20), random_state=0
    )
    explained, parts = check_add_up(twin.fit(X, y), X[:5] + 0.01, ["x0", "x1"])
    assert (np.abs(parts) > 0).any(axis=0).all()
    assert list(explained.columns) == [*FIXED, "x0", "x1"]


def test_adjustments_of_a_linear_model_are_its_terms(table):
    X, y = table[0][["area", "age"]], 3 * table[0]["area"] - table[0]["age"]
    twin = TwinRegressor(LinearRegression(), pair_features="difference").fit(X[:30], y[:30])
    explained = twin.explain(X[30:], n=2, adjustments=True).query("anchor >= 0")
    change = X.loc[explained["query"]].to_numpy() - X.iloc[explained["anchor"]].to_numpy()
    np.testing.assert_allclose(explained[["area", "age"]], change * [3, -1], atol=1e-9)


def test_several_outputs(table):
    X, y = table[0][["area", "age"]], table[1]
    twin = TwinRegressor(Ridge()).fit(X, np.column_stack([y, -2 * y]))
    explained, parts = check_add_up(twin, X[:3] + 0.1, ["area", "age"])
    second = explained["output"] == 1
    np.testing.assert_allclose(parts[second], -2 * parts[~second], atol=1e-12)


def test_rows_equal_to_an_anchor_share_the_difference(table):
    X, y = table[0][["area", "age"]], table[1]
    twin = TwinRegressor(Ridge(), symmetric=False, pair_features="concat").fit(X, y)
    explained, parts = check_add_up(twin, X[:1], ["area", "age"])
    assert explained["distance"][0] == 0
    assert parts[0, 0] == parts[0, 1]


def test_comparables_do_not_depend_on_units(table):
    X, y = table
    tables = []
    for unit in (1.0, 1e6):
        scaled = X.assign(area=X["area"] * unit)
        twin = TwinRegressor(DecisionTreeRegressor(max_depth=4, random_state=0)).fit(scaled, y)
        tables.append(twin.explain(scaled[:10], n=5))
    assert tables[0]["anchor"].tolist() == tables[1]["anchor"].tolist()
    np.testing.assert_allclose(tables[0]["distance"], tables[1]["distance"], rtol=1e-6)


def test_labels_are_saved_and_extended(table, tmp_path):
    X, y = table
    twin = TwinRegressor(Ridge()).fit(X[:30], y[:30], sample_weight=np.arange(30) % 2)
    assert twin.fitted_.anchors.labels == X.index[1:30:2].tolist()
    twinned.save(twin, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    assert loaded.fitted_.anchors.labels == twin.fitted_.anchors.labels
    extended = loaded.add_anchors(X[30:], y[30:])
    assert extended.fitted_.anchors.labels[-10:] == X.index[30:].tolist()
    assert (
        extended.add_anchors(X[:1].reset_index(drop=True), y[:1]).fitted_.anchors.labels[-1] == ""
    )
    assert twin.fit(X.reset_index(drop=True), y).fitted_.anchors.labels is None


@given(st.integers(0, 1000))
def test_adjustments_are_scaled_to_other_totals(seed):
    rng = np.random.RandomState(seed)
    queries, anchors = rng.normal(size=(2, 5, 3))
    queries[0] = anchors[0]
    queries[1, :2] = anchors[1, :2]
    totals = rng.normal(size=(5, 1))

    def predict(first, second):
        return ((first - second) @ [2.0, -1.0, 0.0])[:, None]

    found = attribute(predict, queries, anchors, totals)[..., 0]
    np.testing.assert_allclose(found.sum(axis=1), totals[:, 0], atol=1e-12)
    np.testing.assert_allclose(found[0], totals[0, 0] / 3)  # no feature differs
    np.testing.assert_allclose(found[1], [0, 0, totals[1, 0]])  # the only one that differs
    assert (found[2:, 2] == 0).all()  # without effect
