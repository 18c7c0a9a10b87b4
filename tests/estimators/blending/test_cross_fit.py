"""Order of the members within a time budget, and the expected times."""

from dataclasses import dataclass
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin, clone

from twinned import AutoTwinRegressor, load, save
from twinned.datasets import make_wsb
from twinned.estimators.blending import budget as budget_module
from twinned.estimators.blending import cross_fit
from twinned.estimators.blending.budget import Clock, CostModel, fit_within
from twinned.estimators.blending.cross_fit import CrossFit
from twinned.estimators.blending.members import (
    AUTO,
    SCREENED_FEATURES,
    FitSettings,
    resolve_members,
)
from twinned.estimators.blending.rows import blend_rows
from twinned.models.wide_tables import important_features
from twinned.rows.scaling import round_for_sums
from twinned.rows.schema import TableSchema
from twinned.rows.training import TrainingRows

EXPECTED = {"ridge": 2.0, "gp_rbf": 4.0, "gp_matern": 6.0}


def simulated_member(spec, out_of_fold):
    return SimpleNamespace(label=spec.label, spec=spec, out_of_fold=out_of_fold)


class SimulatedFits(CrossFit):
    """Fits that take a share of their expected time, on a clock of their own."""

    share, now = 0.0, 0.0

    def fit_one(self, spec, clock, *, required):
        self.now += self.share * clock.expected(spec)
        return simulated_member(spec, self.rows.y)

    def labels_within(self, specs, budget, share=0.0):
        self.share, self.now = share, 0.0
        return [member.label for member in fit_within(self, specs, budget)]


@pytest.fixture
def fits(monkeypatch):
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: EXPECTED[spec.name])
    monkeypatch.setattr(budget_module, "finishing_seconds", lambda *shape: 0.0)
    X, y = make_wsb(30, random_state=0)
    schema = TableSchema.all_numeric(X.shape[1])
    given = TrainingRows(schema, X.to_numpy(), y.to_numpy())
    rows = blend_rows(given, None, "balanced", 0).rows
    fits = SimulatedFits(rows, FitSettings(n_jobs=1))
    monkeypatch.setattr(budget_module, "time", SimpleNamespace(perf_counter=lambda: fits.now))
    return fits


@pytest.mark.parametrize(
    ("budget", "fitted"),
    [
        # ridge always; seconds divided by expected gain: gp_matern 2, gp_rbf 2.7
        (100.0, ["ridge", "gp_matern", "gp_rbf"]),
        (9.5, ["ridge", "gp_rbf", "gp_matern"]),  # gp_matern needs more than 70 % of it
        (5.0, ["ridge", "gp_rbf"]),
        (1.0, ["ridge"]),  # the quickest, where nothing fits
    ],
)
def test_members_that_leave_time_for_others_come_first(fits, budget, fitted):
    specs = resolve_members(list(EXPECTED), "balanced")
    assert fits.labels_within(specs, budget) == fitted
    names = {label.partition(":")[0] for label in fitted}
    assert set(fits.skipped) == set(EXPECTED) - names


SECONDS = {
    "boosting": 5, "boosting:fast": 2, "boosting:small": 1, "tree_twin": 50, "tree_twin:fast": 7,
    "tree_twin:small": 5, "ridge": 0.1, "ridge:fast": 0.1, "gp_matern": 4, "gp_matern:fast": 4,
    "gp_matern:small": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "share", "fitted"),
    [
        (30.0, 1.0, ["ridge", "gp_matern", "boosting", "tree_twin:fast"]),
        (10.0, 1.0, ["ridge", "gp_matern", "boosting:fast"]),
        (10.0, 0.1, ["ridge", "gp_matern", "boosting", "tree_twin:fast"]),  # faster than expected
        (3.0, 1.0, ["ridge", "boosting:small"]),
    ],
)
def test_remaining_time_raises_the_effort_of_members(fits, monkeypatch, budget, share, fitted):
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: SECONDS[spec.label])
    specs = resolve_members(["ridge", "gp_matern", "tree_twin", "boosting"], "balanced")
    assert fits.labels_within(specs, budget, share) == fitted
    assert fits.now < budget


def test_ridge_is_fitted_where_no_time_remains_and_the_reserve_is_named(fits, monkeypatch):
    monkeypatch.setattr(budget_module, "finishing_seconds", lambda *shape: 2.5)
    specs = resolve_members(list(EXPECTED), "balanced")
    assert fits.labels_within(specs, 2.1) == ["ridge"]
    reasons = fits.skipped.values()
    expected = "expected to take 4.0 s, and 0.0 s remain besides 2.5 s for the blend"
    assert any(reason.startswith(expected) for reason in reasons)


def test_time_that_members_did_not_need_is_used(fits, monkeypatch):
    """A member that is expected to take too long is fitted once others were quicker."""
    fit = SimulatedFits.fit_one

    def quick(self, spec, clock, *, required):
        clock.calibrate(spec, 0.1 * EXPECTED[spec.name])
        return fit(self, spec, clock, required=required)

    monkeypatch.setattr(SimulatedFits, "fit_one", quick)
    specs = resolve_members(["gp_rbf", "gp_matern"], "balanced")
    assert fits.labels_within(specs, 6.0, 0.1) == ["gp_rbf", "gp_matern"]
    assert not fits.skipped


def test_a_member_remains_where_its_larger_fit_fails(fits, monkeypatch):
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: SECONDS[spec.label])
    fit = SimulatedFits.fit_one

    def fail(self, spec, clock, *, required):
        if spec.label == "boosting":
            self.skipped[spec.label] = "its first fold took too long"
            return None
        return fit(self, spec, clock, required=required)

    monkeypatch.setattr(SimulatedFits, "fit_one", fail)
    specs = resolve_members(["tree_twin", "boosting"], "balanced")
    assert fits.labels_within(specs, 30.0, 1.0)[0] == "boosting:fast"
    assert not fits.skipped


def test_less_effort_follows_where_the_first_fold_takes_too_long(fits, monkeypatch):
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: SECONDS[spec.label])
    fit, tried = SimulatedFits.fit_one, []

    def overrun(self, spec, clock, *, required):
        tried.append(spec.label)
        if spec.label == "tree_twin":
            self.skipped[spec.label] = "its first fold took too long"
            return None
        return fit(self, spec, clock, required=required)

    monkeypatch.setattr(SimulatedFits, "fit_one", overrun)
    specs = resolve_members(["ridge", "tree_twin"], "balanced")
    assert fits.labels_within(specs, 1000.0, 1.0) == ["ridge", "tree_twin:fast"]
    assert tried == ["ridge", "tree_twin", "tree_twin:fast"]  # not once more at the end
    assert not fits.skipped


def test_a_member_that_fails_is_not_tried_with_less_effort(fits, monkeypatch):
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: SECONDS[spec.label])
    fit = SimulatedFits.fit_one

    def fail(self, spec, clock, *, required):
        if spec.name == "tree_twin":
            self.skipped[spec.label] = "failed: no reason"
            return None
        return fit(self, spec, clock, required=required)

    monkeypatch.setattr(SimulatedFits, "fit_one", fail)
    specs = resolve_members(["ridge", "tree_twin"], "balanced")
    assert fits.labels_within(specs, 1000.0, 1.0) == ["ridge"]
    assert fits.skipped == {"tree_twin": "failed: no reason"}


def test_the_time_of_imputation_is_not_that_of_the_first_member(monkeypatch):
    now, impute = [0.0], cross_fit.impute_folds

    def slow(rows):
        now[0] += 50.0
        return impute(rows)

    monkeypatch.setattr(cross_fit, "impute_folds", slow)
    for name in ("auto", "blending.budget", "blending.cross_fit"):
        clock = SimpleNamespace(perf_counter=lambda: now[0])
        monkeypatch.setattr(f"twinned.estimators.{name}.time", clock)
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: EXPECTED[spec.name])
    X, y = make_wsb(60, random_state=0)
    upper = np.where(y < -0.2, -0.2, np.nan)
    blend = AutoTwinRegressor(members=list(EXPECTED), cv=2, time_budget=100.0, random_state=0)
    blend.fit(X, y.where(y >= -0.2), y_upper=upper)
    assert set(blend.member_names_) == set(EXPECTED)
    assert not blend.skipped_


def test_networks_have_a_small_effort_for_the_time_that_remains(fits, monkeypatch):
    seconds = {"neural": 90.0, "neural:fast": 50.0, "neural:small": 20.0, "ridge": 0.1}
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: seconds[spec.label])
    specs = resolve_members(["ridge", "neural"], "balanced")
    assert fits.labels_within(specs, 40.0) == ["ridge", "neural:small"]


@dataclass
class MeanRegressor(RegressorMixin, BaseEstimator):
    """An estimator that compares by its parameters, so that it has no hash."""

    shift: float = 0.0

    def fit(self, X, y):
        self.mean_ = np.mean(y) + self.shift
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


def test_an_estimator_without_a_hash_is_fitted_within_a_budget(rng):
    X = rng.uniform(size=(40, 2))
    members = ["ridge", ("mean", MeanRegressor())]
    model = AutoTwinRegressor(members=members, time_budget=60, cv=3, random_state=0)
    assert model.fit(X, X[:, 0]).member_names_ == ["ridge", "mean"]


def test_efforts_that_are_requested_are_not_raised(fits, monkeypatch):
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: SECONDS[spec.label])
    specs = resolve_members(["boosting:small", "ridge"], "balanced")
    assert fits.labels_within(specs, 100.0) == ["ridge", "boosting:small"]


def test_the_small_tree_twin_is_a_member():
    X, y = make_wsb(60, random_state=0)
    members = ["ridge", "tree_twin:small"]
    blend = AutoTwinRegressor(members=members, cv=2, random_state=0).fit(X, y)
    assert blend.member_names_ == members
    twin = blend.members_["tree_twin:small"]
    assert (twin.effort, twin.estimator_.max_bins) == ("small", 63)
    with pytest.raises(ValueError, match="the effort of ridge must be one of 'fast'"):
        resolve_members(["ridge:small"], "fast")


def test_remaining_time_is_less_on_a_slow_machine(monkeypatch):
    monkeypatch.setattr(budget_module, "finishing_seconds", lambda *shape: 10.0)
    (spec,) = resolve_members(["ridge"], "fast")
    model = CostModel(100, 5, 5, 1)
    clock = Clock(perf_counter() + 100.0, model)
    assert clock.remaining == pytest.approx(90.0, abs=1.0)
    expected = clock.expected(spec)
    clock.calibrate(spec, 3 * (1 + model.seconds(spec)) - 1)  # three times as long as expected
    assert clock.expected(spec) == pytest.approx(3 * expected)
    assert clock.remaining == pytest.approx(70.0, abs=1.0)


@given(
    st.sampled_from(AUTO),
    st.sampled_from(["fast", "balanced", "thorough"]),
    st.integers(50, 20_000),
    st.integers(1, 300),
)
def test_expected_time_grows_with_rows_and_features(name, effort, n_rows, n_columns):
    (spec,) = resolve_members([f"{name}:{effort}"], effort)

    def seconds(rows, columns):
        return CostModel(rows, columns, 5, 2).seconds(spec)

    own = seconds(n_rows, n_columns)
    assert np.isfinite(own)
    assert own > 0
    if name.startswith("gp_"):
        return  # with few rows for each feature, the folds do not start from the search of all rows
    assert seconds(2 * n_rows, n_columns) >= own
    if name != "tree_twin":  # which has fewer pairs on a wide table
        assert seconds(n_rows, n_columns + 1) >= own


def power_fits(X, y, **options):
    given = TrainingRows(TableSchema.all_numeric(X.shape[1]), X, y, **options)
    rows = blend_rows(given, 3, "balanced", 0).rows
    return CrossFit(rows, FitSettings(n_jobs=1))


def test_power_transformations_are_tried_for_skewed_rows_only(rng):
    X, specs = rng.uniform(size=(40, 2)), resolve_members("auto", "balanced")
    names = {spec.name for spec in power_fits(X, X[:, 0]).without_needless(specs)}
    powers = {"ridge_power", "gp_matern_power", "gp_rbf_power"}
    assert names == set(AUTO) - powers
    for rows in ((X, np.exp(4 * X[:, 0])), (np.exp(4 * X), X[:, 0])):
        assert power_fits(*rows).without_needless(specs) == specs
    # given alone, such a member is fitted
    specs = resolve_members(["ridge_power", "gp_matern"], "balanced")
    results = power_fits(X, X[:, 0]).fit_all(specs)
    assert [result.spec.name for result in results] == ["ridge_power", "gp_matern"]


def test_expected_seconds_of_power_transformations():
    cost = CostModel(300, 8, 10, 1)
    for name in ("ridge", "gp_rbf"):
        plain, power = resolve_members([name, f"{name}_power"], "balanced")
        assert cost.seconds(plain) < cost.seconds(power) < 6 * cost.seconds(plain)


# --- wide tables ----------------------------------------------------------------------------------


@pytest.fixture
def wide_rows(rng):
    """60 features, of which two matter."""
    X = rng.normal(size=(80, 60))
    y = X[:, 3] + np.sin(2 * X[:, 7]) + 0.1 * rng.normal(size=80)
    given = TrainingRows(TableSchema.all_numeric(60), X, y)
    return blend_rows(given, 3, "balanced", 0).rows


@pytest.mark.parametrize(
    "name",
    [
        "gp_matern",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("boosting", "extra_trees")),
    ],
)
def test_small_members_of_a_wide_table_select_features_without_the_held_out_rows(wide_rows, name):
    rows, settings = wide_rows, FitSettings(n_jobs=1)
    fits = CrossFit(rows, settings)
    (result,) = fits.fit_all(resolve_members([f"{name}:small"], "balanced"))
    every = np.arange(60)
    for fold in range(3):
        known, held_out = rows.without(fold), rows.fold == fold
        used = important_features(known.matrix, known.y, SCREENED_FEATURES)
        assert len(used) == SCREENED_FEATURES
        zeros = np.isin(every, used, invert=True)
        training, test = known.matrix.copy(), rows.matrix[held_out]
        training[:, zeros] = test[:, zeros] = 0.0
        estimator = clone(result.estimator)
        if name == "boosting":
            estimator.set_params(min_samples_leaf=len(known) // 8)
        else:
            center, spread = training.mean(axis=0), training.std(axis=0)
            spread[zeros] = 1.0
            training, test = (training - center) / spread, (test - center) / spread
        y = known.y if name == "gp_matern" else round_for_sums(known.y)
        predicted = estimator.fit(training, y).predict(test)
        np.testing.assert_allclose(result.out_of_fold[held_out], predicted, rtol=1e-6)
    unused = result.preparation.empty
    assert len(unused) == 60 - SCREENED_FEATURES
    assert not {3, 7} & set(unused)
    # the selections of all rows and of three folds are shared by members
    assert len(settings.important) == 4
    changed = rows.matrix.copy()
    changed[:, unused] = 1e3
    np.testing.assert_array_equal(result.predict(changed), result.predict(rows.matrix))


def test_members_have_all_features_of_a_narrow_table(rng):
    X = rng.normal(size=(40, SCREENED_FEATURES))
    (result,) = power_fits(X, X[:, 0]).fit_all(resolve_members(["gp_rbf:small"], "balanced"))
    assert result.spec.one_fit
    assert not result.preparation.empty


@pytest.mark.parametrize(("budget", "error", "label"), [
    (30.0, 0.5, "gp_matern"), (30.0, 2.0, "gp_matern:small"), (1000.0, 2.0, "gp_matern:small"),
])  # fmt: skip
def test_processes_of_a_wide_table_have_few_features_first(
    wide_rows, monkeypatch, budget, error, label
):
    """Those of all features take their place where the error is lower, and are fitted once."""
    monkeypatch.setattr(CostModel, "seconds", lambda self, spec: 1.0)
    monkeypatch.setattr(budget_module, "finishing_seconds", lambda *shape: 0.0)
    monkeypatch.setattr(budget_module, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    tried = []

    def fit(self, spec, clock, *, required):
        tried.append(spec.label)
        shift = error if spec.label == "gp_matern" else 1.0
        return simulated_member(spec, self.rows.y + shift)

    monkeypatch.setattr(CrossFit, "fit_one", fit)
    fits = CrossFit(wide_rows, FitSettings(n_jobs=1))
    results = fit_within(fits, resolve_members(["ridge", "gp_matern"], "balanced"), budget)
    assert [result.spec.label for result in results] == ["ridge", label]
    assert tried[:3] == ["ridge", "gp_matern:small", "gp_matern"]
    assert len(tried) == len(set(tried))


def test_folds_of_one_fit_have_threads_and_the_same_result(rng):
    X = rng.normal(size=(50, 3))
    specs = resolve_members(["gp_matern", "ridge_power"], "balanced")
    predictions = []
    for n_jobs in (1, 2):
        fits = power_fits(X, np.exp(X[:, 0]) + X[:, 1])
        fits.settings = FitSettings(n_jobs=n_jobs)
        results = fit_within(fits, specs, perf_counter() + 1e6)
        predictions.append([result.out_of_fold for result in results])
    np.testing.assert_array_equal(*predictions)


def test_a_blend_of_screened_members_is_saved(wide_rows, tmp_path):
    members = ["gp_matern:small", "boosting:small", "extra_trees:small"]
    blend = AutoTwinRegressor(members=members, cv=2, random_state=0)
    blend.fit(wide_rows.matrix, wide_rows.y)
    save(blend, tmp_path / "wide.twin")
    loaded = load(tmp_path / "wide.twin")
    predicted = blend.predict(wide_rows.matrix)
    np.testing.assert_allclose(loaded.predict(wide_rows.matrix), predicted, rtol=1e-9)
    again = AutoTwinRegressor(members=blend.plan_, cv=2, random_state=0)
    np.testing.assert_array_equal(
        again.fit(wide_rows.matrix, wide_rows.y).predict(wide_rows.matrix), predicted
    )


@pytest.mark.parametrize(("n_rows", "leaves"), [(1400, 8), (1600, 31)])
def test_trees_of_fast_boosting_have_few_leaves_on_few_rows(rng, n_rows, leaves):
    X = rng.normal(size=(n_rows, 2))
    (result,) = power_fits(X, X[:, 0]).fit_all(resolve_members(["boosting:small"], "balanced"))
    assert result.estimator.max_leaf_nodes == leaves
