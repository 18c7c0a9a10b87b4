"""A prediction is the weighted mean of the estimates of the anchors, for every estimator.

So it is the weighted mean of `predict_anchors`, and of `explain` with all anchors.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from twinned import (
    AutoTwinRegressor,
    DistanceWeights,
    GPWeights,
    NearestAnchors,
    RandomAnchors,
    SemiSupervisedTwinRegressor,
    TwinNeuralRegressor,
    TwinRegressor,
    explain,
)

N_TRAIN, N_QUERIES, ALL = 36, 6, 200
# fits take long, so that failing examples are not made smaller
FEW = settings(max_examples=2, phases=[Phase.explicit, Phase.generate])
TREES = ExtraTreesRegressor(5, random_state=0)
NEAREST = TwinRegressor(Ridge(), anchors=NearestAnchors(4), weights="distance")
BLEND = ["ridge", ("trees", TREES), ("twin", TwinRegressor(TREES)), ("nearest", NEAREST)]


def blend(**parameters):
    return AutoTwinRegressor(members=BLEND, cv=3, random_state=0, **parameters)


NUMERIC = {  # which take neither missing values nor categories with every strategy
    "ridge": TwinRegressor(Ridge()),
    "one order": TwinRegressor(DecisionTreeRegressor(random_state=0), symmetric=False),
    "nearest anchors": NEAREST,
    "random anchors": TwinRegressor(TREES, anchors=RandomAnchors(9), random_state=0),
    "distances": TwinRegressor(TREES, weights=DistanceWeights()),
    "process weights": TwinRegressor(TREES, weights=GPWeights()),
}
ANY = {
    "default": TwinRegressor(random_state=0),
    "trees": TwinRegressor(DecisionTreeRegressor(random_state=0)),
    "blend": blend(),
}


def draw_table(seed, *, categories=False, missing=False, replicates=False):
    """Training rows, targets and queries, some of which equal training rows."""
    rng = np.random.RandomState(seed)
    X = pd.DataFrame(rng.normal(size=(N_TRAIN + N_QUERIES, 3)), columns=list("abc"))
    if categories:
        X["kind"] = pd.Categorical(rng.choice(["u", "v", "w"], size=len(X)))
    if missing:
        X.loc[rng.choice(N_TRAIN, 5, replace=False), "b"] = np.nan
        X.loc[N_TRAIN, "b"] = np.nan
    y = X["a"] ** 2 + np.nan_to_num(X["b"]) + 0.3 * rng.normal(size=len(X))
    training, y = X[:N_TRAIN], y[:N_TRAIN].to_numpy()
    if replicates:  # each twice, with values that no feature explains
        y = y + rng.normal(size=N_TRAIN)
        training, y = pd.concat([training] * 2, ignore_index=True), np.concatenate([y, y])
        y[:N_TRAIN] += 0.1 * rng.normal(size=N_TRAIN)
    queries = pd.concat([X[N_TRAIN:], training[:2]], ignore_index=True)
    return training.reset_index(drop=True), y, queries


def check_sums(model, queries, table=None, rtol=1e-9):
    """`predict` against weights and estimates of all anchors."""
    predicted = model.predict(queries)
    table = model.explain(queries, n=ALL) if table is None else table
    table = table.assign(share=table["weight"] * table["estimate"])
    sums = table.groupby("query", sort=False)[["weight", "share"]].sum()
    np.testing.assert_allclose(sums["weight"], 1.0)
    scale = np.abs(table["estimate"]).max()
    np.testing.assert_allclose(sums["share"], predicted, rtol=rtol, atol=rtol * scale)
    if hasattr(model, "predict_anchors"):
        indices, estimates = model.predict_anchors(queries)
        assert indices.shape == estimates.shape
        weights = np.zeros_like(estimates)
        position = [{anchor: i for i, anchor in enumerate(row)} for row in indices.tolist()]
        for query, anchor, weight in zip(
            table["query"], table["anchor"], table["weight"], strict=True
        ):
            weights[query, position[query][anchor]] = weight
        mean = (weights * estimates).sum(axis=1)
        np.testing.assert_allclose(mean, predicted, rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize("name", NUMERIC)
@given(seed=st.integers(0, 10**6), weighted=st.booleans())
@FEW
def test_numeric_tables(name, seed, weighted):
    X, y, queries = draw_table(seed)
    weight = np.random.RandomState(seed).randint(1, 4, size=len(y)) if weighted else None
    check_sums(NUMERIC[name].fit(X, y, sample_weight=weight), queries)


@pytest.mark.parametrize("name", ANY)
@given(
    seed=st.integers(0, 10**6),
    weighted=st.booleans(),
    categories=st.booleans(),
    missing=st.booleans(),
)
@FEW
def test_categories_missing_values_and_weights(name, seed, weighted, categories, missing):
    X, y, queries = draw_table(seed, categories=categories, missing=missing)
    weight = np.random.RandomState(seed).uniform(0.5, 2.0, size=len(y)) if weighted else None
    check_sums(ANY[name].fit(X, y, sample_weight=weight), queries)


@given(seed=st.integers(0, 10**6), missing=st.booleans())
@FEW
def test_replicates(seed, missing):
    X, y, queries = draw_table(seed, replicates=True, categories=True, missing=missing)
    model = blend().fit(X, y)
    assert model.replicate_correlation_ > 0
    check_sums(model, queries)
    added = model.add_anchors(queries[:3], np.arange(3.0))
    check_sums(added, queries)


def test_added_anchors():
    X, y, queries = draw_table(0, categories=True)
    for model in (ANY["trees"], blend()):
        check_sums(model.fit(X, y).add_anchors(queries[:4], np.arange(4.0)), queries)


def test_semi_supervised_and_networks():
    X, y, queries = draw_table(1)
    unlabelled = np.where(np.arange(len(y)) < 30, y, np.nan)
    semi = SemiSupervisedTwinRegressor(TwinRegressor(Ridge()), random_state=0)
    check_sums(semi.fit(X, unlabelled), queries)
    networks = TwinNeuralRegressor((8,), effort="fast", n_members=2, random_state=0)
    X, y, queries = draw_table(1, categories=True, missing=True)
    check_sums(networks.fit(X, y), queries, rtol=1e-6)  # which compute in float32


@pytest.mark.parametrize("last", [TwinRegressor(TREES), blend()])
def test_pipeline(last):
    X, y, queries = draw_table(2)
    model = make_pipeline(StandardScaler(), last).fit(X, y)
    check_sums(model, queries, explain(model, queries, n=ALL))


def test_transformed_target_on_the_transformed_scale():
    X, y, queries = draw_table(3)
    transform = FunctionTransformer(np.log, np.exp)
    logarithm = transform.transform(y - y.min() + 1.0)
    for twin in (TwinRegressor(TREES), blend()):
        check_sums(twin.fit(X, logarithm), queries)
