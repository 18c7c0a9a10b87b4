"""Each check on data with a known result."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from twinned import NearestAnchors, TwinRegressor, diagnostics
from twinned.datasets import make_tf, make_wsb
from twinned.diagnostics import (
    anchor_curve,
    compare,
    learning_curve,
    loop_check,
    multiplier_check,
    neighbor_curve,
)
from twinned.diagnostics.comparison import rmse_ratio
from twinned.diagnostics.cross_validation import AnchorEstimates, cross_validate_models
from twinned.diagnostics.noise import gamma_test

OTHERS = {"CheckResult", "Diagnosis", "diagnose"}
CHECKS = [getattr(diagnostics, name) for name in diagnostics.__all__ if name not in OTHERS]


@pytest.mark.parametrize("check", CHECKS)
def test_check_has_numbers_summary_and_plot(check, bridge, bridge_cv):
    result = check(*bridge, cross_validation=bridge_cv)
    assert result.summary.endswith(".")
    assert result.title.endswith("?")
    assert result.numbers
    axes = result.plot()
    assert axes.get_title() == result.title
    assert axes.has_data()


def test_check_without_cross_validation_computes_its_own(bridge, bridge_cv, tree_twin):
    alone = compare(*bridge, tree_twin)
    assert alone.numbers == compare(*bridge, cross_validation=bridge_cv).numbers


# --- comparison -------------------------------------------------------------------------------


def test_twin_that_helps_and_twin_that_cannot_help(tree_twin):
    X, y = make_wsb(150, random_state=1)
    assert compare(X, y, tree_twin).numbers["conclusion"] == "helps"
    # differences of a linear function are the same linear function
    rng = np.random.RandomState(0)
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=80)
    numbers = compare(X, y, TwinRegressor(LinearRegression())).numbers
    assert numbers["conclusion"] == "no clear difference"
    assert numbers["ratio"] == pytest.approx(1, abs=0.02)


def test_comparison_names_the_estimators_and_their_settings(bridge, bridge_cv):
    estimators = compare(*bridge, cross_validation=bridge_cv).numbers["estimators"]
    tree = "DecisionTreeRegressor(max_depth=9, random_state=0)"
    assert estimators["twin"] == f"TwinRegressor(estimator={tree}, random_state=0)"
    assert estimators["base estimator"] == tree
    assert set(estimators) == set(bridge_cv.predictions)


def test_interval_of_rmse_ratio_covers_the_true_ratio():
    """95 % intervals of the ratio of two errors with a true ratio of 0.8."""
    rng = np.random.RandomState(0)
    covered = 0
    for _ in range(100):
        shared, y = rng.normal(size=60), np.zeros(60)
        same = rmse_ratio(0.8 * shared, shared, y)
        assert list(same) == pytest.approx([0.8] * 3)  # the same ratio in every row
        ratio = rmse_ratio(0.8 * rng.normal(size=60), rng.normal(size=60), y)
        covered += ratio.low <= 0.8 <= ratio.high
    assert 86 <= covered <= 99


# --- curves -----------------------------------------------------------------------------------


def test_curves_end_at_the_twin_with_all_anchors(bridge, bridge_cv, tree_twin):
    X, y = bridge
    numbers = anchor_curve(X, y, cross_validation=bridge_cv).numbers
    assert numbers["x"][-1] == 96
    each = [
        np.sqrt(np.mean((bridge_cv.predictions["twin"][rows] - bridge_cv.y[rows]) ** 2))
        for _, rows in bridge_cv.folds
    ]
    assert numbers["rmse"][-1] == pytest.approx(np.mean(each))
    assert numbers["standard_error"][-1] == pytest.approx(np.std(each, ddof=1) / np.sqrt(5))
    nearest = neighbor_curve(X, y, cross_validation=bridge_cv).numbers
    assert nearest["rmse"][-1] == pytest.approx(numbers["rmse"][-1])
    # as the estimator with NearestAnchors predicts
    k, errors = nearest["x"][3], []
    for train, held_out in bridge_cv.folds:
        twin = tree_twin.set_params(anchors=NearestAnchors(k)).fit(X.iloc[train], y.iloc[train])
        error = twin.predict(X.iloc[held_out]) - bridge_cv.y[held_out]
        errors.append(np.sqrt(np.mean(error**2)))
    assert nearest["rmse"][3] == pytest.approx(np.mean(errors))


def test_k_is_chosen_without_the_fold_it_is_evaluated_on(bridge_cv):
    """With estimates of pure noise no k is better, but one of them is the best by chance."""
    rng = np.random.RandomState(0)
    ratios = []
    for _ in range(30):
        noise = replace(bridge_cv)
        noise.anchor_estimates = [
            AnchorEstimates(
                rows,
                np.tile(np.arange(96), (len(rows), 1)),
                # each k has its own noise: the mean of the first k is a new draw
                np.diff(np.cumsum(np.ones(96)) * rng.normal(size=(len(rows), 96)), prepend=0.0),
            )
            for _, rows in bridge_cv.folds
        ]
        numbers = neighbor_curve(None, None, cross_validation=noise).numbers
        errors = dict(zip(numbers["x"], numbers["rmse"], strict=True))
        assert errors[numbers["lowest"]] == min(numbers["rmse"])
        assert len(numbers["fold_k"]) == 5
        ratios.append(numbers["ratio"])
    # chosen and evaluated on the same rows, the ratio would be about 0.93
    assert np.mean(ratios) == pytest.approx(1, abs=0.03)


def test_k_of_a_fold_depends_on_the_other_folds_only(bridge, bridge_cv):
    before = neighbor_curve(*bridge, cross_validation=bridge_cv).numbers
    changed = replace(bridge_cv)
    first, *others = bridge_cv.anchor_estimates
    favorable = first.estimates.copy()
    favorable[:, 0] = bridge_cv.y[first.rows]  # the nearest anchor is always right
    changed.anchor_estimates = [first._replace(estimates=favorable), *others]
    after = neighbor_curve(*bridge, cross_validation=changed).numbers
    assert after["fold_k"][0] == before["fold_k"][0]
    assert after["rmse"][0] < before["rmse"][0]


def test_curves_use_a_sample_of_many_rows(bridge, bridge_cv, monkeypatch):
    X, y = bridge
    whole = anchor_curve(X, y, cross_validation=bridge_cv).numbers["rmse"]
    monkeypatch.setattr("twinned.diagnostics.cross_validation.MAX_ESTIMATES", 20 * 96)
    fewer = replace(bridge_cv)
    assert [len(rows) for rows in fewer.query_rows()] == [20] * 5
    assert fewer.estimate_seconds > 0
    sampled = anchor_curve(X, y, cross_validation=fewer).numbers["rmse"]
    assert fewer.estimate_seconds == 0
    assert sampled != whole
    assert sampled == pytest.approx(whole, rel=0.5)
    assert len(loop_check(X, y, cross_validation=fewer).numbers["loops"]) == 100
    nearest = neighbor_curve(X, y, cross_validation=fewer).numbers["rmse"]
    assert nearest[-1] == pytest.approx(sampled[-1])


def test_more_pairs_and_more_labels_help(tree_twin):
    X, y = make_tf(200, random_state=0)
    cv = cross_validate_models(X, y, tree_twin)
    assert multiplier_check(X, y, cross_validation=cv).numbers["trend"] == "falls"
    result = learning_curve(X, y, cross_validation=cv)
    assert result.numbers["doubled"] < 0.9
    assert "Twice as many labels" in result.summary


# --- uncertainty ------------------------------------------------------------------------------


def test_gamma_test_estimates_the_noise():
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(400, 2))
    clean = np.sin(3 * X[:, 0]) + X[:, 1]
    assert gamma_test(X, clean) < 0.02
    assert gamma_test(X, clean + 0.2 * rng.normal(size=400)) == pytest.approx(0.2, rel=0.2)
    assert gamma_test(np.zeros((50, 1)), rng.normal(size=50)) == pytest.approx(1, rel=0.3)
