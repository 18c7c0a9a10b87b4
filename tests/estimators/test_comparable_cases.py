"""Comparable known cases in units of the target, with decoded feature values."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from twinned import TransformedTargetTwin, TwinRegressor
from twinned.fitted.explanation import find_comparables


@pytest.fixture(scope="module")
def table():
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"size": rng.uniform(size=30), "kind": pd.Categorical(["u", "v", None] * 10)})
    X.loc[3, "size"] = np.nan
    return X, np.exp(X["size"].fillna(0.5) + (X["kind"] == "u")).to_numpy()


def check_sums(comparables, prediction):
    """Weights sum to one, and weighted estimates to the prediction."""
    every = [*comparables.cases, comparables.others]
    weights = np.array([case.weight for case in every])
    estimates = np.array([case.estimate for case in every])
    assert weights.sum() == pytest.approx(1)
    assert weights @ estimates == pytest.approx(prediction, rel=1e-9)
    alone = weights[:-1] @ estimates[:-1] / weights[:-1].sum()
    assert comparables.estimate == pytest.approx(alone)
    assert comparables.as_dict()["others"]["weight"] == weights[-1]


@pytest.mark.parametrize("log_target", [False, True])
def test_cases_are_the_rows_of_explain(table, log_target):
    X, y = table
    base = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5)
    name = "log" if log_target else None
    model = TransformedTargetTwin(TwinRegressor(base, random_state=0), name).fit(X, y)
    cases_by_row = find_comparables(model, X[:4], 30)
    explained = model.explain(X[:4], n=30)
    cases = [case for comparables in cases_by_row for case in comparables.cases]
    assert [len(comparables.cases) for comparables in cases_by_row] == [30] * 4
    assert all(comparables.others is None for comparables in cases_by_row)
    assert [case.anchor for case in cases] == explained["anchor"].tolist()
    np.testing.assert_allclose([case.estimate for case in cases], explained["estimate"])
    for case in cases:
        assert case.label == f"row {case.anchor + 1}"
        assert case.known == pytest.approx(y[case.anchor])
        assert case.difference == pytest.approx(sum(case.adjustments.values()), abs=1e-9)
        known = X.iloc[case.anchor]
        assert case.values["kind"] == (None if pd.isna(known["kind"]) else known["kind"])
        assert case.values["size"] == (None if pd.isna(known["size"]) else known["size"])
    (few,) = find_comparables(model, X[:1], 2, adjustments=False)
    estimates = [case.estimate for case in few.cases]
    assert estimates == [case.estimate for case in cases[:2]]
    assert "adjustments" not in few.cases[0].as_dict()
    check_sums(few, model.predict(X[:1])[0])
    assert "adjustments" in cases[0].as_dict()


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_cases_and_all_others_sum_to_the_prediction(table, log_target, weights):
    rows = [*range(30), 7, 7]  # copies of a row are one case
    X, y = table[0].iloc[rows], table[1][rows]
    X = X.assign(size=X["size"].fillna(0.0))
    base = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5)
    twin = TwinRegressor(base, weights=weights, random_state=0)
    model = TransformedTargetTwin(twin, "log" if log_target else None).fit(X, y)
    new = pd.concat([X[7:9], X[:3].assign(size=0.123)])
    for predicted, each in zip(model.predict(new), find_comparables(model, new, 4), strict=True):
        cases = each.with_others
        assert len(cases) == 5
        assert sum(case.count for case in cases) == 32
        shares = np.array([case.weight for case in cases])
        estimates = np.array([case.estimate for case in cases])
        assert shares.sum() == pytest.approx(1.0, rel=1e-12)
        assert shares @ estimates == pytest.approx(predicted, rel=1e-9)
        assert each.share == pytest.approx(shares[:4].sum())
        alone = np.average(estimates[:4], weights=shares[:4])
        assert each.estimate == pytest.approx(alone, rel=1e-9)
        for case in each.cases:
            total = case.known + sum(case.adjustments.values())
            assert total == pytest.approx(case.estimate, rel=1e-9)
    assert 3 in [case.count for case in find_comparables(model, new[:1], 1)[0].cases]


@pytest.mark.parametrize("cv", [None, 3])
def test_the_mean_after_a_logarithm_is_that_of_y(cv):
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(60, 1))
    y = np.exp(X[:, 0] + rng.normal(size=60))
    base = HistGradientBoostingRegressor(max_iter=10)
    model = TransformedTargetTwin(TwinRegressor(base, cv=cv, random_state=0)).fit(X, y)
    new = X[:5] + 1e-6  # no row equals a known one
    _, logarithms = model.regressor_.predict_anchors(new)
    np.testing.assert_allclose(model.predict(new), np.exp(logarithms).mean(axis=1))
    if cv is not None:  # Duan's smearing estimate
        errors = model.regressor_.anchor_residuals_
        smeared = np.exp(model.regressor_.predict(new)) * np.exp(errors).mean()
        np.testing.assert_allclose(model.predict(new), smeared)
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(std, mean * model.regressor_.predict(new, return_std=True)[1])
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_known_case_that_equals_the_row_has_its_value(weighted):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(40, 2)), columns=["a", "b"])
    y = rng.normal(size=40)
    X.loc[1], weight = X.loc[0], rng.uniform(0.5, 2, size=40) if weighted else None
    twin = TwinRegressor(HistGradientBoostingRegressor(max_iter=5), cv=3, random_state=0)
    twin.fit(X, y, sample_weight=weight)
    assert twin.local_power_ == 0
    table = twin.explain(X[:3], n=40, adjustments=True)
    equal = table[table["distance"] == 0]
    assert len(equal) == 5  # two rows equal each other
    np.testing.assert_allclose(equal["estimate"], equal["anchor_y"])
    np.testing.assert_allclose(equal[["a", "b"]], 0.0)
    means = [part["weight"] @ part["estimate"] for _, part in table.groupby("query")]
    np.testing.assert_allclose(means, twin.predict(X[:3]), rtol=1e-9)
    # of one distinct row, all cases equal it, and none is an exception
    same = TwinRegressor(HistGradientBoostingRegressor(max_iter=5), cv=3, random_state=0)
    same.fit(X.assign(a=0.0, b=0.0), y)
    estimates = same.predict_anchors(X[:1] * 0)[1]
    np.testing.assert_allclose(estimates.mean(axis=1), same.predict(X[:1] * 0), rtol=1e-9)


def test_added_rows_without_a_name_are_called_so():
    X = pd.DataFrame({"a": np.arange(12.0)}, index=[f"S{i}" for i in range(12)])
    twin = TwinRegressor(Ridge()).fit(X, np.arange(12.0))
    added = twin.add_anchors(pd.DataFrame({"a": [12.0]}), [12.0])
    (found,) = find_comparables(added, pd.DataFrame({"a": [12.0]}), 1)
    assert found.cases[0].label == "added row"
