"""Several targets of rows in batches: offsets of each target, as of a blend of its own."""

import numpy as np
import pandas as pd
import pytest

from twinned import AutoTwinRegressor


def make(**options):
    return AutoTwinRegressor(members=["ridge"], random_state=0, **options)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.normal(size=(130, 2)), columns=["a", "b"])
    batch = np.array(["A", "B", "C", "D"])[np.arange(130) % 4]
    offsets = {"A": (0, 3), "B": (2, 0), "C": (-2, 1), "D": (0, -4)}
    Y = np.column_stack([X["a"], X["b"]]) + [offsets[each] for each in batch]
    Y = pd.DataFrame(Y + 0.1 * rng.normal(size=Y.shape), columns=["heat", "cold"])
    Y.loc[:29, "cold"] = np.nan
    return X, Y, batch


@pytest.fixture(scope="module")
def model(rows):
    X, Y, batch = rows
    return make(cv=4).fit(X[:100], Y[:100], batch=batch[:100])


def test_predictions_are_those_of_separate_blends(model, rows):
    X, Y, batch = rows
    for j, name in enumerate(Y):
        known = np.flatnonzero(Y[name][:100].notna())
        fold = model.targets_[j].out_of_fold()["fold"]
        folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(4)]
        own = make(cv=folds).fit(X.iloc[known], Y[name].iloc[known], batch=batch[known])
        for new in (batch[100:], "B", None):
            options = {"batch": new}
            expected = own.predict(X[100:], **options)
            np.testing.assert_allclose(model.predict(X[100:], **options)[:, j], expected)
            ends = model.predict_interval(X[100:], **options)[:, j]
            np.testing.assert_allclose(ends, own.predict_interval(X[100:], **options))
        np.testing.assert_allclose(
            model.targets_[j].batch_offsets_.to_numpy(), own.batch_offsets_.to_numpy()
        )


def test_offsets_and_joint_intervals(model, rows):
    X, Y, batch = rows
    assert model.batch_offsets_["target"].tolist() == ["heat"] * 4 + ["cold"] * 4
    joint = model.predict_interval(X[100:], 0.9, batch=batch[100:], joint=True)
    inside = (joint[..., 0] <= Y[100:]) & (Y[100:] <= joint[..., 1])
    assert inside.all(axis=1).mean() > 0.7
    assert model.score(X[100:], Y[100:], batch=batch[100:]) > 0.95


def test_anchors_of_a_new_batch(model, rows):
    X, Y, batch = rows
    new_Y = Y[100:110].to_numpy() + np.array([7.0, -7.0])
    new_Y[0, 0] = np.nan
    extended = model.add_anchors(X[100:110], new_Y, batch="E")
    predicted = extended.predict(X[110:], batch="E") - model.predict(X[110:], batch="B")
    assert extended.predict(X[110:], batch=batch[110:]).shape == (20, 2)
    assert (np.abs(predicted.mean(axis=0)) > 2).all()
    assert [len(each.batch_offsets_) for each in extended.targets_] == [5, 5]
