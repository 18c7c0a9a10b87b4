"""All checks within a time budget, and the recommended model."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

from twinned import NearestAnchors, RandomAnchors, TwinRegressor, diagnose
from twinned.datasets import make_wsb
from twinned.diagnostics import anchor_curve
from twinned.diagnostics.comparison import rmse_ratio
from twinned.report import collect, render


def test_random_subset_of_too_many_rows(bridge, tree_twin, monkeypatch):
    X, y = bridge
    monkeypatch.setattr("twinned.diagnostics.cross_validation.MIN_SUBSET", 50)
    diagnosis = diagnose(X, y, estimator=tree_twin, budget=0.001)
    cv = diagnosis.cross_validation
    assert len(cv.subset) == len(cv.y) == 50
    np.testing.assert_array_equal(cv.y, y.iloc[cv.subset])
    assert diagnosis.n_rows == len(diagnosis.model.anchors_y_) == 120
    assert "50 random rows of 120" in diagnosis.notes[0]
    assert diagnosis.calibrated.store_in() is diagnosis.model  # with the scores of the subset
    report = collect(diagnosis, title="subset")
    assert (report["rows"], report["cross_validated_rows"]) == (120, 50)
    for query in report["comparables"]:
        assert query["truth"] == pytest.approx(y.iloc[query["row"] - 1], rel=1e-5)
        for anchor in query["anchors"]:
            assert anchor["known"] == pytest.approx(y.iloc[anchor["row"] - 1], rel=1e-5)


def test_without_time_only_the_cross_validation_is_done(bridge, tree_twin):
    X, y = bridge
    diagnosis = diagnose(X, y, estimator=tree_twin, budget=0.001)
    assert list(diagnosis.checks) == ["comparison"]
    assert "multiplier check" in diagnosis.skipped
    assert "Skipped for lack of time" in str(diagnosis)
    assert diagnosis.calibrated.predict_interval(X, 0.9).shape == (120, 2)
    np.testing.assert_array_equal(diagnosis.model.predict(X), tree_twin.fit(X, y).predict(X))


def test_with_time_all_checks_are_done(bridge, tree_twin):
    messages = []
    diagnosis = diagnose(*bridge, estimator=tree_twin, progress=messages.append)
    assert set(diagnosis.checks) == {
        "comparison", "anchors", "neighbors", "loops", "noise", "multiplier", "learning",
        "variance",
    }  # fmt: skip
    assert not diagnosis.skipped
    assert "twin, fold 1 of 5" in messages
    namespace = {}
    lines = diagnosis.code.splitlines()
    assert len(lines) == 3
    exec("\n".join(lines[:2]), namespace)
    assert repr(namespace["twin"]) == repr(diagnosis.recommended)


def test_fold_twins_use_the_k_chosen_without_their_fold(bridge, tree_twin):
    """Held-out predictions and intervals are then of twins like the recommended one."""
    diagnosis = diagnose(*bridge, estimator=tree_twin)
    numbers, cv = diagnosis.checks["neighbors"].numbers, diagnosis.cross_validation
    assert numbers["best"] is not None
    assert diagnosis.recommended.anchors.k == numbers["best"]
    assert [twin.anchors.k for twin in diagnosis.calibrated.models] == numbers["fold_k"]
    held_out = np.concatenate([mean for mean, _ in diagnosis.held_out])
    rows = np.concatenate([rows for _, rows in cv.folds])
    ratio = rmse_ratio(held_out, cv.predictions["twin"][rows], cv.y[rows])
    assert ratio.value == pytest.approx(numbers["ratio"])


def test_missing_values():
    X, y = make_wsb(60, random_state=0)
    X = X.copy()
    X.iloc[::9, 0] = np.nan
    twin = TwinRegressor(HistGradientBoostingRegressor(max_iter=20), random_state=0)
    diagnosis = diagnose(X, y, estimator=twin)
    assert {"comparison", "neighbors"} <= set(diagnosis.checks)
    assert diagnosis.calibrated.predict_interval(X, 0.8).shape == (60, 2)


def test_too_few_rows_are_refused():
    with pytest.raises(ValueError, match="at least 20 rows; there are 5"):
        diagnose(np.zeros((5, 1)), np.arange(5.0))


def test_constant_target_is_refused(tree_twin):
    with pytest.raises(ValueError, match="All values of y are 1"):
        diagnose(np.random.RandomState(0).rand(25, 2), np.ones(25), estimator=tree_twin)


def test_target_without_noise(tree_twin):
    X = np.repeat(np.arange(5.0), 6)[:, None]
    diagnosis = diagnose(X, X[:, 0], estimator=tree_twin)
    assert diagnosis.checks["noise"].numbers["noise"] < 1e-6


@pytest.mark.parametrize("anchors", [NearestAnchors(4), RandomAnchors(6)])
def test_twin_with_an_anchor_strategy(anchors, bridge, tree_twin):
    X, y = bridge
    diagnosis = diagnose(X, y, estimator=tree_twin.set_params(anchors=anchors))
    again = anchor_curve(X, y, cross_validation=diagnosis.cross_validation).numbers
    assert again == diagnosis.checks["anchors"].numbers  # no check changes the fold twins
    report = collect(diagnosis, title="t")
    render(report)
    for query in report["comparables"][:4]:
        for anchor in query["anchors"]:
            assert anchor["known"] == pytest.approx(y.iloc[anchor["row"] - 1], rel=1e-5)


def test_categorical_features_of_the_twin(tree_twin):
    rng = np.random.RandomState(0)
    frame = pd.DataFrame({"a": rng.rand(60), "s": rng.choice(["x", "y"], 60)})
    y = frame["a"] + (frame["s"] == "x")
    twin = tree_twin.set_params(categorical_features=["s"])
    assert "comparison" in diagnose(frame, y, estimator=twin, budget=0.001).checks


def test_code_makes_the_recommended_twin(bridge):
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=4), pairs=9, symmetric=False)
    diagnosis = diagnose(*bridge, estimator=twin, budget=0.001)
    namespace = {}
    exec("\n".join(diagnosis.code.splitlines()[:2]), namespace)
    assert repr(namespace["twin"]) == repr(diagnosis.recommended)


def test_rows_of_a_group_are_held_out_together(tree_twin):
    """Repeated measurements of one sample among the anchors would make errors too small."""
    rng = np.random.RandomState(0)
    sample = np.repeat(np.arange(20), 4)
    X = rng.normal(size=(20, 3))[sample] + 0.01 * rng.normal(size=(80, 3))
    y = rng.normal(size=20)[sample] + 0.01 * rng.normal(size=80)
    names = np.array([f"s{i}" for i in sample])
    alone = diagnose(X, y, estimator=tree_twin, budget=0)
    together = diagnose(X, y, estimator=tree_twin, budget=0, groups=names)
    for train, held_out in together.cross_validation.folds:
        assert not set(sample[train]) & set(sample[held_out])
    errors = [one.checks["comparison"].numbers["rmse"]["twin"] for one in (alone, together)]
    assert 4 * errors[0] < errors[1]
    predictions = together.cross_validation.predictions
    twin, base = predictions["twin"], predictions["base estimator"]
    of_rows = rmse_ratio(twin, base, y)
    of_groups = rmse_ratio(twin, base, y, sample)
    # twenty groups are less certain than eighty rows
    assert of_groups.high - of_groups.low > 1.3 * (of_rows.high - of_rows.low)
    # group codes that do not start at 0, as in a fold
    half = slice(40, 80)
    assert np.isfinite(rmse_ratio(twin[half], base[half], y[half], sample[half])).all()
    assert rmse_ratio(twin, base, y, sample // 5)[1:] == (0.0, np.inf)  # four groups are too few
    with pytest.raises(ValueError, match="Row 1 has no group"):
        diagnose(X, y, groups=["s", None, *names[2:]])
    with pytest.raises(ValueError, match=r"largest group has 77 of the 80 rows.* 3 training rows"):
        diagnose(X, y, groups=np.repeat(["a", "b"], [77, 3]))
    with pytest.raises(ValueError, match="one label for each of the 80 rows"):
        diagnose(X, y, groups=names[:5])
    with pytest.raises(ValueError, match="All rows are in one group, s"):
        diagnose(X, y, groups=np.full(80, "s"))
