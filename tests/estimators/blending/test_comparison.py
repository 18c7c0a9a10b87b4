"""Members that are far behind in their first folds."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from twinned import AutoTwinRegressor
from twinned.estimators import auto
from twinned.estimators.blending import cross_fit
from twinned.estimators.blending.cross_fit import CrossFit
from twinned.estimators.blending.members import CrossFittedMember, FitSettings, resolve_members
from twinned.estimators.blending.rows import blend_rows
from twinned.estimators.blending.weights import FAR_BEHIND, describe_if_behind, first_folds
from twinned.rows.schema import TableSchema
from twinned.rows.training import TrainingRows

N_ROWS = 120


def make_rows(n_rows=N_ROWS, n_folds=10, noise=0.0):
    X, y = make_friedman1(n_rows, n_features=5, noise=noise, random_state=0)
    return blend_rows(TrainingRows(TableSchema.all_numeric(5), X, y), n_folds, "balanced", 0).rows


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.mark.parametrize(
    ("n_rows", "n_folds", "n_first"), [(120, 10, 4), (300, 10, 2), (1000, 5, 1), (30, 10, 10)]
)
def test_first_folds_hold_out_forty_rows(n_rows, n_folds, n_first):
    assert first_folds(make_rows(n_rows, n_folds)) == list(range(n_first))


def predictions(rows, *scales):
    """Predictions with independent errors of these scales."""
    rng = np.random.RandomState(0)
    return [rows.y + scale * rng.normal(size=len(rows)) for scale in scales]


def in_first_folds(rows, values):
    return np.where(np.isin(rows.fold, first_folds(rows)), values, np.nan)


def test_a_member_with_twice_the_error_is_far_behind(rows):
    best, other, poor = predictions(rows, 0.5, 1.2, 3.0)
    of_all = {"a": other, "b": best, "c": in_first_folds(rows, poor)}
    reason = describe_if_behind("c", of_all, rows)
    assert reason.startswith(f"{FAR_BEHIND}: RMSE of c ")
    assert ", of b " in reason


def test_a_member_with_less_than_one_and_a_half_times_the_error_is_not(rows):
    best, other = predictions(rows, 1.0, 1.2)
    assert describe_if_behind("a", {"a": in_first_folds(rows, other), "b": best}, rows) is None


def test_between_them_the_weight_decides(rows):
    # independent errors: a share of the worse member lowers those of the blend
    best, other = predictions(rows, 1.0, 1.7)
    assert describe_if_behind("a", {"a": in_first_folds(rows, other), "b": best}, rows) is None
    # the same errors, larger: no share of it does
    larger = in_first_folds(rows, rows.y + 1.7 * (best - rows.y))
    assert describe_if_behind("a", {"a": larger, "b": best}, rows) is not None


def test_others_are_compared_only_where_they_predict_all_rows(rows):
    best, other, poor = predictions(rows, 1.0, 1.2, 9.0)
    held_out = in_first_folds(rows, poor)
    incomplete = best.copy()
    incomplete[np.flatnonzero(~np.isnan(held_out))[0]] = np.nan
    some = {"b": incomplete, "c": held_out}
    assert describe_if_behind("c", some, rows) is None
    assert ", of a " in describe_if_behind("c", {**some, "a": other}, rows)


def test_rows_count_by_their_weight(rows):
    best, poor = predictions(rows, 1.0, 1.0)
    poor[::2] += 10.0
    weight = np.where(np.arange(len(rows)) % 2, 1.0, 1e-9)
    held_out = in_first_folds(rows, poor)
    of_all = {"a": held_out, "b": best}
    assert describe_if_behind("a", of_all, rows) is not None
    weighted = replace(rows, weight=weight)
    assert describe_if_behind("a", of_all, weighted) is None


def fitted_folds(rows, monkeypatch, specs, **settings):
    """The members and folds that are fitted, and the object that fitted them."""
    fitted, fit_fold = [], cross_fit._fit_fold

    def record(spec, settings, rows, fold, imputed):
        fitted.append((spec.label, fold))
        return fit_fold(spec, settings, rows, fold, imputed)

    monkeypatch.setattr(cross_fit, "_fit_fold", record)
    fits = CrossFit(rows, FitSettings(**settings))
    members = fits.fit_all(specs)
    return fitted, fits, [member.label for member in members]


def automatic(*names):
    return [spec for spec in resolve_members("auto", "fast") if spec.name in names]


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_trees_on_a_smooth_function_are_left_out(rows, monkeypatch, n_jobs):
    specs = automatic("ridge", "gp_rbf", "extra_trees")
    fitted, fits, labels = fitted_folds(rows, monkeypatch, specs, n_jobs=n_jobs)
    assert labels == ["ridge", "gp_rbf"]
    assert fits.skipped["extra_trees"].startswith(FAR_BEHIND)
    assert {fold for label, fold in fitted if label == "extra_trees"} == {0, 1, 2, 3}


@pytest.mark.parametrize("twin_error", [0.01, 3.0])
def test_plain_networks_wait_for_the_neural_twin(rows, monkeypatch, twin_error):
    specs = automatic("gp_rbf", "neural", "neural_twin")
    fit_fold, order = cross_fit._fit_fold, []

    def fit(spec, settings, rows, fold, imputed):
        order.append(spec.label)
        if spec.label == "gp_rbf":
            return fit_fold(spec, settings, rows, fold, imputed)
        error = twin_error * np.random.RandomState(0).normal(size=len(rows))
        return CrossFittedMember(spec.label, None, None, spec, rows.y + error, 1.0, 1.0)

    monkeypatch.setattr(cross_fit, "_fit_fold", fit)
    fits = CrossFit(rows, FitSettings())
    labels = [member.label for member in fits.fit_all(specs)]
    if twin_error > 1:
        assert labels == ["gp_rbf", "neural_twin"]
        assert fits.skipped["neural"].startswith(f"{FAR_BEHIND}: RMSE of neural_twin ")
    else:
        assert order == ["gp_rbf", "neural_twin", "neural"]
        assert not fits.skipped


def test_members_that_were_named_are_all_fitted(rows, monkeypatch):
    specs = resolve_members(["gp_rbf", "extra_trees"], "fast")
    fitted, fits, labels = fitted_folds(rows, monkeypatch, specs)
    assert labels == ["gp_rbf", "extra_trees"]
    assert not fits.skipped
    assert sorted(fold for label, fold in fitted if label == "extra_trees") == [-1, *range(10)]


def test_members_that_are_near_get_all_their_folds_once(monkeypatch):
    noisy = make_rows(noise=12.0)
    specs = automatic("gp_rbf", "extra_trees")
    fitted, fits, labels = fitted_folds(noisy, monkeypatch, specs)
    assert labels == ["gp_rbf", "extra_trees"]
    assert not fits.skipped
    assert sorted(fold for label, fold in fitted if label == "extra_trees") == [-1, *range(10)]


def test_a_blend_has_the_reasons_and_no_warning(monkeypatch):
    X, y = make_friedman1(N_ROWS, n_features=5, random_state=0)
    monkeypatch.setattr(
        auto,
        "resolve_members",
        lambda *_, **__: automatic("ridge", "gp_rbf", "extra_trees"),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = AutoTwinRegressor(random_state=0).fit(X, y)
    assert model.skipped_["extra_trees"].startswith(FAR_BEHIND)
    assert model.plan_ == ["ridge", "gp_rbf"]
    again = AutoTwinRegressor(members=model.plan_, random_state=0)
    monkeypatch.undo()
    assert np.array_equal(again.fit(X, y).predict(X), model.predict(X))
