"""Censored labels in TwinRegressor and AutoTwinRegressor."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import PredefinedSplit

from twinned import AutoTwinRegressor, NeuralRegressor, NeuralTraining, TwinRegressor, load, save
from twinned.estimators.blending.rows import blend_rows
from twinned.rows.training import validate_training_rows

LINEAR = TwinRegressor(Ridge(1e-6), pairs=5, random_state=0)


@pytest.fixture
def data(rng):
    """X, y, y with NaN for the lowest 40 %, and their upper bounds."""
    X = rng.uniform(-1, 1, (60, 2))
    y = 2 * X[:, 0] + X[:, 1] ** 2 + 0.05 * rng.normal(size=60)
    limit = np.quantile(y, 0.4)
    low = y < limit
    return X, y, np.where(low, np.nan, y), np.where(low, limit, np.nan)


def rmse(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


def test_twin_uses_censored_rows_but_not_as_anchors(data):
    X, y, partial, upper = data
    known = ~np.isnan(partial)
    forest = TwinRegressor(ExtraTreesRegressor(30, random_state=0), pairs=20, random_state=0)
    twin = forest.fit(X, partial, y_upper=upper)
    np.testing.assert_array_equal(twin.anchor_rows_, np.flatnonzero(known))
    np.testing.assert_array_equal(twin.anchors_y_, y[known])
    error = rmse(twin, X, y)
    assert error < 0.7 * rmse(forest.fit(X[known], y[known]), X, y)
    assert error < 0.7 * rmse(forest.fit(X, np.where(known, y, upper)), X, y)


def test_bounds_that_equal_y_change_nothing(data):
    X, y, *_ = data
    plain = LINEAR.fit(X, y).predict(X)
    np.testing.assert_array_equal(LINEAR.fit(X, y, y_lower=y, y_upper=y).predict(X), plain)


def test_rows_of_weight_zero_are_as_absent(data):
    X, _, partial, upper = data
    weight = np.where(np.arange(60) < 50, 1.0, 0.0)
    fitted = LINEAR.fit(X, partial, sample_weight=weight, y_upper=upper).predict(X)
    ones = np.ones(50)
    without = LINEAR.fit(X[:50], partial[:50], sample_weight=ones, y_upper=upper[:50]).predict(X)
    np.testing.assert_allclose(fitted, without, atol=1e-8)


def test_missing_value_without_a_bound_is_refused(data):
    X, _, partial, upper = data
    upper[np.flatnonzero(np.isnan(partial))[0]] = np.nan
    with pytest.raises(ValueError, match="has no bound"):
        TwinRegressor().fit(X, partial, y_upper=upper)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        TwinRegressor().fit(X, partial)


def test_blend_uses_censored_rows(data, tmp_path):
    X, y, partial, upper = data
    known = ~np.isnan(partial)
    members = ["ridge", ("trees", ExtraTreesRegressor(20)), ("twin", LINEAR)]
    blend = AutoTwinRegressor(members=members, cv=3, random_state=0)
    fitted = blend.fit(X, partial, y_upper=upper)
    error = rmse(fitted, X, y)
    np.testing.assert_array_equal(fitted.anchor_rows_, np.flatnonzero(known))
    assert len(fitted.members_["twin"].anchors_y_) == known.sum()
    assert len(fitted.members_["trees"].estimators_[0].tree_.value) > known.sum() / 2
    assert fitted.out_of_fold_prediction_.shape == (known.sum(),)
    table = fitted.out_of_fold()
    assert fitted.blend_["rmse"] == pytest.approx(
        np.sqrt(np.mean((table["prediction"] - y[known]) ** 2))
    )
    assert fitted.predict_interval(X[:5]).shape == (5, 2)
    assert fitted.select_members(["ridge"]).predict(X).shape == (60,)
    path = tmp_path / "blend.twin"
    save(fitted.select_members(["ridge", "twin"]), path)
    assert np.isfinite(load(path).predict(X)).all()
    for others in ((X[known], y[known]), (X, np.where(known, y, upper))):
        assert error < 0.8 * rmse(blend.fit(*others), X, y)


def test_out_of_fold_predictions_do_not_depend_on_the_values_that_they_predict(data):
    X, _, partial, upper = data
    known = np.flatnonzero(~np.isnan(partial))
    fold = np.arange(60) % 3
    blend = AutoTwinRegressor(
        members=[("trees", ExtraTreesRegressor(10)), "gp_rbf"], cv=PredefinedSplit(fold)
    ).set_params(random_state=0)
    before = blend.fit(X, partial, y_upper=upper).out_of_fold()
    changed = partial.copy()
    held_out = known[fold[known] == 1]
    changed[held_out] += 0.2 * np.sin(np.arange(len(held_out)))
    after = blend.fit(X, changed, y_upper=upper).out_of_fold()
    own = fold[known] == 1
    # the start of the search for the imputing process depends on all rows
    np.testing.assert_allclose(before["trees"][own], after["trees"][own], atol=0.05)
    assert (before["trees"][~own] != after["trees"][~own]).any()


def test_censored_rows_of_a_group_are_held_out_with_it(data):
    X, _, partial, upper = data
    groups = np.repeat(np.arange(12), 5)
    options = {"pair_dtype": np.dtype(np.float64), "multi_output": False}
    given = validate_training_rows(
        AutoTwinRegressor(), X, partial, groups=groups, y_upper=upper, **options
    )
    blend = blend_rows(given, 4, "balanced", 0)
    censored = blend.rows.take(blend.rows.censored)
    folds = {}
    known_groups = groups[blend.anchors.table_rows]
    for group, fold in zip(known_groups, blend.known.fold[blend.merged_into], strict=True):
        folds.setdefault(group, set()).add(fold)
    for group, fold in zip(groups[np.isnan(partial)], censored.fold, strict=True):
        folds.setdefault(group, set()).add(fold)
    assert len(folds) == 12
    assert all(len(own) == 1 for own in folds.values())
    assert censored.weight is None


@pytest.mark.slow
def test_networks_of_a_blend_are_trained_with_bounds(data):
    X, y, partial, upper = data
    network = NeuralRegressor((16,), n_members=2, training=NeuralTraining(max_steps=100))
    members = [("network", network), "ridge", "neural_twin:fast"]
    blend = AutoTwinRegressor(members=members, cv=2, random_state=0)
    blend.fit(pd.DataFrame(X, columns=["a", "b"]), partial, y_upper=upper)
    assert set(blend.member_names_) == {"network", "ridge", "neural_twin:fast"}
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert rmse(blend, frame, y) < y.std()


def test_limits_as_text_are_named():
    y = np.array(["3.42", "<0.8", "1.1"], dtype=object)
    with pytest.raises(ValueError, match=r"'<0\.8' \(value 1\)\. Limits .* y_lower and y_upper"):
        LINEAR.fit(np.arange(3.0)[:, None], y)
