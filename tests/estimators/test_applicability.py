"""`applicability` of twins and blends, and `measure_applicability`."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

import twinned
from twinned import (
    AutoTwinRegressor,
    NeuralTraining,
    RandomAnchors,
    SemiSupervisedTwinRegressor,
    TwinNeuralRegressor,
    TwinRegressor,
    cross_conformal,
    measure_applicability,
)
from twinned.exceptions import ShiftWarning
from twinned.fitted.applicability import ClassStatistics
from twinned.rows.schema import TableSchema


@pytest.fixture(scope="module")
def table():
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(90, 3)), columns=["a", "b", "c"])
    X["kind"] = pd.Categorical(rng.choice(["u", "v"], size=90))
    X.index = [f"lot {i}" for i in range(90)]
    return X, (np.sin(5 * X["a"]) + X["b"] + (X["kind"] == "u")).to_numpy()


MODELS = {
    "trees": TwinRegressor(ExtraTreesRegressor(10, random_state=0), pairs=10, random_state=0),
    "blend": AutoTwinRegressor(members=["ridge"], cv=2, random_state=0),
    "semi-supervised": SemiSupervisedTwinRegressor(TwinRegressor(Ridge()), n_loops=10),
    "networks": TwinNeuralRegressor(
        (8,), n_members=2, training=NeuralTraining(n_folds=1, max_steps=10), random_state=0
    ),
}
SLOW_NETWORKS = pytest.param("networks", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["trees", "blend", "semi-supervised", SLOW_NETWORKS])
def test_rows_are_classified(name, table):
    X, y = table
    model = MODELS[name].fit(X, y)
    rows = X[:4].assign(a=[0.5, 4.0, 0.5, 0.5], b=[0.5, 0.5, 0.5, 1.001])
    found = model.applicability(rows)
    assert list(found.columns) == ["score", "label"]
    assert found.index.tolist() == rows.index.tolist()
    assert found["label"].iloc[1] == "outside"
    assert found["label"].iloc[3] != "inside"
    assert found["score"].idxmax() == "lot 1"
    assert not (model.applicability(X)["label"] == "outside").any()


def test_classes_do_not_depend_on_units(table):
    X, y = table[0].drop(columns="kind").to_numpy(), table[1]
    rows = np.random.RandomState(1).uniform(-0.2, 1.2, size=(50, 3))
    unit = np.array([1e3, 1.0, 1e-6])
    plain = TwinRegressor(Ridge()).fit(X, y).applicability(rows)
    scaled = TwinRegressor(Ridge()).fit(X * unit, y).applicability(rows * unit)
    assert plain["label"].tolist() == scaled["label"].tolist()
    assert set(plain["label"]) == {"inside", "edge", "outside"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trees", "blend"])
def test_measured_classes_are_stated_and_saved(name, table, tmp_path):
    X, y = table
    model = MODELS[name].fit(X, y)
    model = measure_applicability(model, X, y, cv=3)
    measured = model.applicability_
    assert measured.index.tolist() == ["inside", "edge", "outside"]
    assert measured["rows"].sum() == 90 + 4 * 18
    assert measured["error"]["outside"] > 2 * measured["error"]["inside"]
    assert measured["coverage"]["inside"] > 0.75 > measured["coverage"]["outside"]
    twinned.save(model, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    rows = pd.concat([X[:3], X[:3].assign(a=5.0)])
    stated = loaded.applicability(rows)
    pd.testing.assert_frame_equal(stated, model.applicability(rows))
    for own in stated.itertuples():
        assert own.error == measured["error"][own.label]
        assert own.coverage == measured["coverage"][own.label]
    assert model.predict_interval(X).shape == (90, 2)
    assert "error" not in model.add_anchors(X[:2], y[:2]).applicability(X[:2])
    assert "error" not in model.fit(X, y).applicability(X[:2])


def test_anchors_must_be_the_rows(table):
    X, y = table
    twin = TwinRegressor(Ridge(), anchors=RandomAnchors(20), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="must be all rows"):
        measure_applicability(twin, X, y)
    with pytest.raises(TypeError, match="not Ridge"):
        measure_applicability(Ridge(), X, y)


def test_statements_are_void_for_a_new_category(table):
    X, y = table
    twin = TwinRegressor(Ridge()).fit(X, y)
    measured = ClassStatistics(np.ones(3), np.arange(3.0), np.ones(3), 0.9)
    twin = twin.with_fitted(replace(twin.fitted_, applicability=measured))
    found = twin.applicability(X[:2].assign(kind=["w", "u"]))
    assert found["label"].tolist()[0] == "outside"
    assert found[["error", "coverage"]].isna().all(axis=1).tolist() == [True, False]


@pytest.mark.parametrize("copy", ["save", "pickle"])
def test_a_metric_that_was_learned_is_saved(table, tmp_path, monkeypatch, copy):
    X, y = table
    twin = TwinRegressor(Ridge()).fit(X, y)
    expected = twin.applicability(X)
    if copy == "save":
        twinned.save(twin, tmp_path / "model.twin")
        loaded = twinned.load(tmp_path / "model.twin")
    else:
        loaded = pickle.loads(pickle.dumps(twin))
    extended = [own.add_anchors(X[:9], y[:9]).feature_relevance_ for own in (twin, loaded)]
    np.testing.assert_array_equal(*extended)
    np.testing.assert_array_equal(extended[0], twin.feature_relevance_)
    monkeypatch.setattr("twinned.fitted.anchors.learn_metric", None)
    pd.testing.assert_frame_equal(loaded.applicability(X), expected)


@pytest.mark.parametrize("name", ["trees", "blend", SLOW_NETWORKS])
def test_a_model_with_intervals_has_its_metric(name, table, tmp_path, monkeypatch):
    X, y = table
    if name == "blend":
        twin = clone(MODELS[name]).fit(X, y)
    else:
        twin = cross_conformal(clone(MODELS[name]), X, y, cv=2)
    monkeypatch.setattr("twinned.fitted.anchors.learn_metric", None)  # it was learned before
    twinned.save(twin, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    for name in ("predict_interval", "explain", "applicability"):
        results = (pd.DataFrame(getattr(own, name)(X[:5])) for own in (loaded, twin))
        pd.testing.assert_frame_equal(*results, check_exact=True)


@pytest.fixture(scope="module")
def animals():
    """Eight rows of each of 40 animals, with the weight at birth and the age of the mother."""
    rng = np.random.RandomState(0)
    of_animal = rng.normal(size=(40, 2)).repeat(8, axis=0)
    X = pd.DataFrame(of_animal, columns=["weight", "mother"]).assign(
        day=np.tile(np.arange(8.0), 40)
    )
    y = X["weight"] + 0.3 * X["mother"] + 0.1 * X["day"] + rng.normal(scale=0.3, size=40).repeat(8)
    return X, y.to_numpy(), np.arange(40).repeat(8)


def fit_groups(name, X, y, groups):
    if name == "blend":
        return clone(MODELS[name]).fit(X, y, groups=groups)
    return cross_conformal(TwinRegressor(Ridge()), X, y, groups=groups, cv=3)


@pytest.mark.parametrize("name", ["twin", "blend"])
def test_new_groups_are_compared_with_groups(name, animals, tmp_path):
    X, y, groups = animals
    model = fit_groups(name, X[:200], y[:200], groups[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShiftWarning)
        model.predict_interval(X[200:])
    found = model.applicability(X[200:])
    assert (found["label"] == "inside").mean() > 0.4
    assert (found["label"] == "outside").mean() < 0.25
    twinned.save(model, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    for own in (loaded, pickle.loads(pickle.dumps(model))):
        pd.testing.assert_frame_equal(own.applicability(X[200:]), found)
    extended = model.add_anchors(X[200:], y[200:])
    assert len(np.unique(extended.fitted_.anchors.groups)) == 25 + 120


@pytest.mark.parametrize("name", ["twin", "blend"])
def test_measured_rows_are_held_out_in_groups(name, animals, monkeypatch):
    X, y, groups = (part[:80] for part in animals)
    given, fitted = groups if name == "twin" else None, []
    model = TwinRegressor(Ridge()).fit(X, y) if name == "twin" else fit_groups(name, X, y, groups)
    refit = type(model).refit

    def record(self, rows, **options):
        fitted.append(rows.table_rows)
        return refit(self, rows, **options)

    monkeypatch.setattr(type(model), "refit", record)
    model = measure_applicability(model, X, y, groups=given, cv=2)
    assert len(fitted) == (4 if name == "blend" else 6)
    for rows in fitted:
        assert not set(groups[rows]) & set(np.delete(groups, rows))
    measured = model.applicability_
    assert measured["rows"].sum() == 80 + 4 * 16
    assert measured["rows"]["inside"] > 40
    np.testing.assert_array_equal(np.unique(model.fitted_.anchors.groups, return_counts=True)[1], 8)
    if name == "blend":
        with pytest.raises(ValueError, match="give them to fit"):
            measure_applicability(model, X, y, groups=groups)


def test_rows_are_encoded_in_blocks(table, monkeypatch):
    X, y = table
    twin = TwinRegressor(Ridge()).fit(X, y)
    expected, sizes = twin.applicability(X), []
    encode = TableSchema.to_rows

    def record(self, matrix):
        sizes.append(len(matrix))
        return encode(self, matrix)

    monkeypatch.setattr("twinned.fitted.applicability._ROWS_PER_BLOCK", 7)
    monkeypatch.setattr(TableSchema, "to_rows", record)
    pd.testing.assert_frame_equal(twin.applicability(X), expected)
    assert max(sizes) == 7
    assert sum(sizes) == len(X)
