"""Batches of rows with unknown offsets: estimates, predictions, intervals and new batches."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

import twinned
from twinned import (
    AutoTwinRegressor,
    TransformedTargetTwin,
    TwinNeuralRegressor,
    TwinRegressor,
    cross_conformal,
)
from twinned.app.report.collect import batch_content
from twinned.app.report.render import draw_deviations
from twinned.batches.effects import BatchEffects, Deviation
from twinned.batches.estimation import estimate_effects, remove_deviations
from twinned.batches.joint import JointProcess, fit_joint
from twinned.batches.joint import _Likelihood as joint_likelihood
from twinned.exceptions import UnknownBatchWarning
from twinned.rows.neighbors import KERNELS, kernel_of_rows
from twinned.rows.training import validate_training_rows
from twinned.rows.validation import batch_labels

MEMBERS = ["ridge", "gp_matern"]
TREES = ExtraTreesRegressor(5, random_state=0)


def make_table(n_rows=120, n_batches=6, spread=3.0, noise=0.1, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.uniform(-1, 1, (n_rows, 3))
    codes = rng.permutation(np.arange(n_rows) % n_batches)
    offsets = rng.normal(size=n_batches) * spread
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + noise * rng.normal(size=n_rows) + offsets[codes]
    return X, y, np.array([f"lab {code}" for code in codes]), offsets


def rmse(predicted, y):
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


@pytest.fixture(scope="module")
def blend():
    X, y, batch, _ = make_table()
    return AutoTwinRegressor(members=MEMBERS, random_state=0).fit(X, y, batch=batch)


def dense_posterior(effects, features, codes):
    """Mean and covariance of deviations by one Gaussian process of all known rows."""
    deviation = effects.deviation
    known, queries = deviation.scaled(effects.features), deviation.scaled(features)

    def covariance(first, first_codes, second, second_codes):
        same = first_codes[:, None] == second_codes
        return same * (deviation.covariance(first, second) + deviation.between)

    noise = deviation.noise * effects.noise_ratio[effects.codes] / effects.weight
    own = covariance(known, effects.codes, known, effects.codes) + np.diag(noise)
    cross = covariance(queries, codes, known, effects.codes)
    mean = effects.center + cross @ np.linalg.solve(own, effects.residual - effects.center)
    explained = cross @ np.linalg.solve(own, cross.T)
    return mean, covariance(queries, codes, queries, codes) - explained


def make_effects(kind):
    rng = np.random.RandomState(0)
    codes = np.repeat(np.arange(6), [1, 4, 8, 10, 12, 20])
    features = rng.normal(size=(len(codes), 2))
    slopes = 0.0 if kind == "offset" else rng.normal(size=6)[codes] * features[:, 0]
    residual = rng.normal(size=6)[codes] * 2 + slopes + 0.3 * rng.normal(size=len(codes))
    known = BatchEffects(
        names=[str(code) for code in range(6)],
        deviation=Deviation(np.zeros(2), np.ones(2), slope=0.5, smooth=0.1),
        features=features,
        codes=codes,
        residual=residual,
        weight=rng.uniform(0.5, 2.0, len(codes)),
        noise_ratio=np.ones(6),
        common_rows=np.full(6, np.inf),
        shrinks=True,
        kind=kind,
    )
    return estimate_effects(known)


@pytest.mark.parametrize("kind", ["offset", "function", "auto"])
def test_deviations_are_those_of_a_process_of_all_rows(kind, monkeypatch):
    monkeypatch.setattr("twinned.batches.effects._TAIL_OF_CONSTANTS", 1e12)  # a normal one
    effects = make_effects(kind)
    assert effects.deviation.is_constant == (kind == "offset")
    rng = np.random.RandomState(1)
    features, codes = rng.normal(size=(12, 2)), np.arange(12) % 7 - 1
    mean, expected = dense_posterior(effects, features, codes)
    found = effects.of_rows(features, codes)
    np.testing.assert_allclose(found[0], mean, atol=1e-6)
    np.testing.assert_allclose(found[1] ** 2, np.diag(expected), atol=1e-6)
    np.testing.assert_allclose(effects.covariance(features, codes), expected, atol=1e-6)
    own_mean, own_std, _ = effects.without_own()
    for row in (0, 3, 20, 50):
        others = np.arange(len(effects.codes)) != row
        names = ("features", "codes", "residual", "weight")
        kept = replace(effects, **{name: getattr(effects, name)[others] for name in names})
        mean, variance = dense_posterior(kept, effects.features[[row]], effects.codes[[row]])
        np.testing.assert_allclose(own_mean[row], mean[0], atol=1e-6)
        np.testing.assert_allclose(own_std[row] ** 2, variance[0, 0], atol=1e-6)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("is_free", [False, True])
def test_first_estimates_are_those_without_the_rows_of_a_fold(is_free, size):
    rng = np.random.RandomState(0)
    X, y, codes = rng.normal(size=(40, 2)), rng.normal(size=40), np.arange(40) % 5
    weight, fold = rng.uniform(0.5, 2.0, 40), np.arange(40) // size
    deviation = Deviation(np.zeros(2), np.ones(2), 0.3, 0.5, 1.5, 0.2, 0.7)
    found = JointProcess(deviation, 1.3, is_free).held_out(X, y, codes, weight, fold)
    large = 1e6  # the variance of what has any size
    common = 1.3 * kernel_of_rows("matern", X, X)[0] + (0.0 if is_free else large)
    own = deviation.covariance(X, X) + (large if is_free else deviation.between)
    own = own * (codes[:, None] == codes)
    total, others = common + own + np.diag(deviation.noise / weight), np.flatnonzero(fold > 0)
    solved = np.linalg.solve(total[np.ix_(others, others)], y[others])
    expected = [part[:size, others] @ solved for part in (own, common)]
    np.testing.assert_allclose([part[:size] for part in found], expected, atol=1e-4)


def test_the_process_of_a_blend_is_the_common_function_of_all_batches():
    X, y, batch, _ = make_table(60)
    kind = pd.Categorical(np.where(X[:, 2] > 0, "a", "b"))
    table = pd.DataFrame({"kind": kind, "a": X[:, 0], "b": X[:, 1]})
    model = AutoTwinRegressor(members=["gp_matern"], batch_effect="function", random_state=0)
    model.fit(table, y, batch=batch)
    rows = validate_training_rows(clone(model), table, y, batch=batch, multi_output=False)
    common = remove_deviations(rows, "function", shrinks=True).common
    joint, known = common.joint, common.features
    squares = cdist(known, known, "sqeuclidean")
    covariance = joint.amplitude * KERNELS["matern"](squares)[0]
    same = common.codes[:, None] == common.codes
    own = same * (joint.deviation.covariance(known, known) + joint.deviation.between)
    total = covariance + own + joint.deviation.noise * np.eye(60) + 1e6  # of the mean
    expected = (covariance + 1e6) @ np.linalg.solve(total, common.y) - common.shift
    member = model.fitted_.model.members[0]
    np.testing.assert_allclose(member.predict(rows.matrix), expected, atol=1e-4)


def test_a_new_batch_may_be_far_from_the_known_ones_or_have_other_noise():
    X, y, batch, _ = make_table(spread=0.5)
    model = AutoTwinRegressor(members=["ridge", "gp_matern"], random_state=0)
    model.fit(X, y, batch=batch)
    offsets, rng = model.batch_offsets_["offset"], np.random.RandomState(1)
    new_X = rng.uniform(-1, 1, (60, 3))
    new_y = np.sin(3 * new_X[:, 0]) + new_X[:, 1] ** 2 + offsets.mean()
    near, far = (
        model.add_anchors(new_X[:1], new_y[:1] + offset, batch="new").predict(new_X, batch="new")
        for offset in (0.0, 20.0)
    )
    np.testing.assert_allclose(far - near, 20.0, atol=0.05)
    noise = 2.0 * rng.normal(size=60)
    calm, noisy = (
        model.add_anchors(new_X[:10], new_y[:10] + factor * noise[:10], batch="new")
        for factor in (0.05, 1.0)
    )
    low, high = noisy.predict_interval(new_X[10:], batch="new").T
    assert np.mean(high - low) > 5 * np.mean(np.diff(calm.predict_interval(new_X, batch="new")))
    assert np.mean((low < (new_y + noise)[10:]) & ((new_y + noise)[10:] < high)) > 0.7


@pytest.mark.parametrize(("offset", "slope"), [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)])
def test_likelihood_shows_what_batches_differ_by(offset, slope):
    rng = np.random.RandomState(0)
    X, codes = rng.uniform(size=(120, 2)), np.arange(120) % 8
    y = np.sin(5 * X[:, 0]) + 0.05 * rng.normal(size=120)
    y += (offset * rng.normal(size=8))[codes] + (slope * rng.normal(size=8))[codes] * X[:, 1]
    weight = np.ones(120)
    free = fit_joint(X, y, codes, weight, has_free_constants=True, kind="auto").deviation
    shrunk = fit_joint(X, y, codes, weight, has_free_constants=False, kind="auto").deviation
    assert free.is_constant == shrunk.is_constant == (slope == 0)
    assert (free.between, shrunk.differs) == (0.0, offset > 0)
    asked = fit_joint(X, y, codes, weight, has_free_constants=False, kind="function").deviation
    assert not asked.is_constant


def test_a_blend_ignores_batches_that_do_not_differ():
    X, y, batch, offsets = make_table(400)
    y = y - offsets[pd.factorize(batch, sort=True)[0]]
    model = AutoTwinRegressor(members=["gp_matern"], random_state=0)
    ignored = clone(model).fit(X[:100], y[:100])
    model.fit(X[:100], y[:100], batch=batch[:100])
    expected, found = ignored.predict(X[100:]), model.predict(X[100:], batch=batch[100:])
    assert rmse(found, y[100:]) < 1.03 * rmse(expected, y[100:])


def test_gradients_of_the_likelihood():
    rng = np.random.RandomState(0)
    X, y, codes = rng.normal(size=(40, 2)), rng.normal(size=40), np.arange(40) % 6
    weight, start = rng.uniform(0.5, 2.0, 40), rng.normal(size=8) * 0.3
    for is_free in (False, True):
        joint = joint_likelihood(X, y, codes, weight, is_free)
        parts = np.append(np.ones(7, bool), not is_free), *joint.parts(np.arange(40))
        numeric = approx_fprime(start, lambda at, j=joint, p=parts: j.negative(at, *p)[0], 1e-6)
        gradient = joint.negative(start, *parts)[1]
        used = gradient != 0
        assert used.sum() >= len(start) - 1
        np.testing.assert_allclose(gradient[used], numeric[used], atol=1e-4)


def test_true_offsets_are_found(blend):
    offsets = make_table()[3]
    table = blend.batch_offsets_
    assert list(table.index) == [f"lab {code}" for code in range(6)]
    error = table["offset"] - table["offset"].mean() - (offsets - offsets.mean())
    assert np.abs(error).max() < 4 * table["std_error"].max() < 0.3


@pytest.mark.parametrize(
    "twin",
    [
        TwinRegressor(random_state=0),
        TwinRegressor(TREES, random_state=0),
        TwinNeuralRegressor((16,), effort="small", random_state=0),
    ],
    ids=["default", "trees", "neural"],
)
def test_a_constant_of_one_batch_moves_its_predictions_alone(twin):
    X, y, batch, _ = make_table(60, 4)
    moved_y = y + 50.0 * (batch == "lab 1")
    before = clone(twin).fit(X, y, batch=batch).predict(X, batch=batch)
    after = clone(twin).fit(X, moved_y, batch=batch).predict(X, batch=batch)
    np.testing.assert_allclose(after - before, 50.0 * (batch == "lab 1"), atol=1e-9)


def test_a_constant_of_all_rows_moves_all_predictions(blend):
    X, y, batch, _ = make_table()
    model = clone(blend).fit(X, y + 1000.0, batch=batch)
    moved = model.predict(X, batch=batch) - blend.predict(X, batch=batch)
    np.testing.assert_allclose(moved, 1000.0, atol=1e-6)


def test_predictions_know_the_batch(blend):
    X, y, batch, _ = make_table(200, 6, seed=0)
    model = clone(blend).fit(X[:120], y[:120], batch=batch[:120])
    known = rmse(model.predict(X[120:], batch=batch[120:]), y[120:])
    without = rmse(model.predict(X[120:]), y[120:])
    assert known < 0.2
    assert without > 1.0
    errors = model.batch_errors_
    assert 0.5 < errors["known"] / known < 2.0
    assert 0.5 < errors["new"] / without < 2.0
    assert model.blend_["rmse"] == errors["known"]


def test_offsets_of_no_batches_are_shrunk_to_zero():
    X, y, batch, _ = make_table(120, 6, spread=0.0, noise=0.3)
    model = AutoTwinRegressor(members=MEMBERS, random_state=0)
    offsets = model.fit(X, y, batch=batch).batch_offsets_["offset"]
    assert np.abs(offsets).max() < 0.13
    twin = TwinRegressor(TREES, random_state=0).fit(X, y, batch=batch)
    assert np.abs(twin.batch_offsets_["offset"]).max() > np.abs(offsets).max()


@pytest.mark.parametrize("kind", ["auto", "offset", "function"])
@pytest.mark.parametrize("is_blend", [False, True])
def test_a_batch_whose_rows_have_no_weight_is_unknown(is_blend, kind):
    X, y, batch, _ = make_table(80)
    weight = (batch != "lab 2").astype(float)
    model = TwinRegressor(Ridge(), random_state=0)
    if is_blend:
        model = AutoTwinRegressor(members=["ridge"], random_state=0)
    model.set_params(batch_effect=kind).fit(X, y, batch=batch, sample_weight=weight)
    assert model.batch_effects_.loc["lab 2", "n_rows"] == 0
    with pytest.warns(UnknownBatchWarning, match="lab 2"):
        of_batch = model.predict(X[:5], batch="lab 2")
    with pytest.warns(UnknownBatchWarning, match="another"):
        of_another = model.predict(X[:5], batch="another")
    assert np.array_equal(of_batch, of_another)


@pytest.mark.parametrize("kind", ["blend", "twin"])
def test_a_new_batch_needs_a_few_anchors(kind, blend):
    X, y, batch, _ = make_table(200, 8, seed=1)
    new = batch == "lab 7"
    model = clone(blend) if kind == "blend" else TwinRegressor(random_state=0)
    model.fit(X[~new], y[~new], batch=batch[~new])
    X_new, y_new = X[new], y[new]
    with pytest.warns(UnknownBatchWarning, match="lab 7"):
        before = model.predict(X_new[3:], batch="lab 7")
    extended = model.add_anchors(X_new[:3], y_new[:3], batch="lab 7")
    after = rmse(extended.predict(X_new[3:], batch="lab 7"), y_new[3:])
    assert after < 0.3 < rmse(before, y_new[3:])
    assert extended.batch_offsets_.loc["lab 7", "n_rows"] == 3
    assert "lab 7" not in model.batch_offsets_.index
    known = np.append(np.flatnonzero(~new), np.flatnonzero(new)[:3])
    again = clone(model).fit(X[known], y[known], batch=batch[known])
    again_error = rmse(again.predict(X_new[3:], batch="lab 7"), y_new[3:])
    assert after < 1.5 * again_error  # the default twin has few trees in tests


def make_functions(n_rows=200, n_batches=8, seed=0):
    """Rows of batches whose slopes and curvatures differ."""
    X, y, batch, _ = make_table(n_rows, n_batches, spread=1.0, seed=seed)
    own = np.random.RandomState(seed).normal(size=(2, n_batches))
    codes = np.unique(batch, return_inverse=True)[1]
    return X, y + own[0, codes] * X[:, 0] + own[1, codes] * np.sin(3 * X[:, 1]), batch


@pytest.fixture(scope="module")
def functions():
    X, y, batch = make_functions()
    rows = np.flatnonzero(batch != "lab 7")
    return AutoTwinRegressor(members=MEMBERS, random_state=0).fit(
        X[rows], y[rows], batch=batch[rows]
    )


@pytest.mark.parametrize("steps", [1, 2])
def test_a_few_rows_of_a_new_batch_show_its_deviation(steps, functions, tmp_path):
    assert not functions.fitted_.batches.deviation.is_constant
    X, y, batch = make_functions()
    X_new, y_new = X[batch == "lab 7"], y[batch == "lab 7"]
    model = functions
    for part in np.array_split(np.arange(12), steps):
        model = model.add_anchors(X_new[part], y_new[part], batch="lab 7")
    errors = y_new[12:] - functions.predict(X_new[12:])
    after = rmse(model.predict(X_new[12:], batch="lab 7"), y_new[12:])
    assert after < 0.6 * np.std(errors)  # a constant leaves the standard deviation
    other = model.predict(X, batch="lab 1") - functions.predict(X, batch="lab 1")
    assert np.abs(other).max() < 0.1 * np.std(errors)
    twinned.save(model, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    for label in ("lab 7", "lab 1", None):
        expected = model.predict_interval(X, batch=label)
        np.testing.assert_array_equal(loaded.predict_interval(X, batch=label), expected)


def test_functions_are_better_than_constants_where_batches_differ_in_shape(functions):
    X, y, batch = make_functions()
    rows, test = np.arange(150), np.arange(150, 200)
    errors = {}
    for kind in ("offset", "function", "auto"):
        model = clone(functions).set_params(batch_effect=kind)
        model.fit(X[rows], y[rows], batch=batch[rows])
        errors[kind] = rmse(model.predict(X[test], batch=batch[test]), y[test])
        assert 0.6 < model.batch_errors_["known"] / errors[kind] < 1.6
    assert errors["auto"] == errors["function"] < 0.7 * errors["offset"]


def test_explanations_of_functions_add_up(functions):
    X, _, _ = make_functions()
    table = functions.explain(X[:4], 3, adjustments=True, batch="lab 0")
    total = table.groupby("query")[["weight", "estimate"]].apply(
        lambda own: float(own["weight"] @ own["estimate"])
    )
    np.testing.assert_allclose(total, functions.predict(X[:4], batch="lab 0"), atol=1e-9)
    shown = table[table["anchor"] >= 0]
    by_feature = shown[["x0", "x1", "x2"]].sum(axis=1)
    np.testing.assert_allclose(by_feature, shown["difference"] - shown["offset"], atol=1e-8)
    added = shown["query_deviation"] - shown["anchor_deviation"]
    np.testing.assert_allclose(shown["offset"], added, atol=1e-9)


def test_report_draws_functions_alone(functions, blend):
    curves = batch_content(functions)["deviations"]
    assert curves["feature"] in ("x0", "x1", "x2")
    assert len(curves["curves"]) == 6
    rows = np.median(make_functions()[0][make_functions()[2] != "lab 7"], axis=0)[None]
    j = int(curves["feature"][1])
    rows[0, j] = curves["x"][0]
    for curve in curves["curves"]:
        own, mean = functions.predict(rows, batch=curve["batch"]), functions.predict(rows)
        np.testing.assert_allclose(curve["deviation"][0], own - mean, atol=1e-9)
    assert draw_deviations(curves).count("<svg") == 1
    assert batch_content(blend)["deviations"] is None


def test_draws_of_a_batch_have_its_errors_in_common(functions):
    X = np.array([0.8, 0.8, 0.0]) + np.random.RandomState(5).uniform(-0.05, 0.05, (3, 3))
    rows = np.concatenate([X, X])
    batch = ["new"] * 3 + ["other"] * 3
    with pytest.warns(UnknownBatchWarning):
        joint = functions.predict_distribution(rows, batch=batch).joint
    assert joint.correlation[0, 1] > 0.2 + joint.correlation[0, 4]
    np.linalg.cholesky(joint.correlation + 1e-8 * np.eye(6))
    samples = functions.sample(rows, 4000, random_state=0, batch=batch)
    np.testing.assert_allclose(np.corrcoef(samples.T), joint.correlation, atol=0.08)


@pytest.mark.parametrize("kind", ["offset", "function"])
def test_a_constant_moves_the_deviation_of_its_batch_alone(kind):
    X, y, batch = make_functions(100, 5)
    twin = TwinRegressor(TREES, batch_effect=kind, random_state=0)
    moved_y = y + 50.0 * (batch == "lab 1")
    before = clone(twin).fit(X, y, batch=batch).predict(X, batch=batch)
    after = clone(twin).fit(X, moved_y, batch=batch).predict(X, batch=batch)
    tolerance = 1e-9 if kind == "offset" else 1e-5
    np.testing.assert_allclose(after - before, 50.0 * (batch == "lab 1"), atol=tolerance)


def test_the_noise_of_a_batch_is_its_own(shipped_defaults):
    X, y, batch, _ = make_table(300, 6)
    noisy = batch == "lab 3"
    y = y + 0.5 * np.random.RandomState(1).normal(size=300) * noisy
    fit = np.arange(300) < 200
    model = AutoTwinRegressor(members=MEMBERS, random_state=0)
    model.fit(X[fit], y[fit], batch=batch[fit])
    low, high = model.predict_interval(X[~fit], batch=batch[~fit]).T
    covered = (low <= y[~fit]) & (y[~fit] <= high)
    assert np.mean((high - low)[noisy[~fit]]) > 2.5 * np.mean((high - low)[~noisy[~fit]])
    assert covered[noisy[~fit]].mean() > 0.7
    assert 0.8 < covered[~noisy[~fit]].mean() < 0.98


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noise", "gain"])
def test_intervals_of_an_unusual_laboratory_cover(kind):
    covered = {"unusual": [], "others": []}
    for seed in range(20):
        X, y, batch, _ = make_table(360, 6, spread=0.5, noise=0.0, seed=seed)
        unusual = batch == "lab 3"
        errors = np.random.RandomState(100 + seed).normal(size=360)
        if kind == "noise":
            y = y + 0.1 * errors * np.where(unusual, 5.0, 1.0)
        else:
            y = (y + 4.0) * np.where(unusual, 1.35, 1.0) + 0.1 * errors
        fit = np.arange(360) < 240
        model = AutoTwinRegressor(members=MEMBERS, random_state=0)
        model.fit(X[fit], y[fit], batch=batch[fit])
        low, high = model.predict_interval(X[~fit], batch=batch[~fit]).T
        is_covered = (low <= y[~fit]) & (y[~fit] <= high)
        covered["unusual"] += list(is_covered[unusual[~fit]])
        covered["others"] += list(is_covered[~unusual[~fit]])
    shares = {name: float(np.mean(values)) for name, values in covered.items()}
    print(kind, shares)
    assert all(0.85 <= share <= 0.95 for share in shares.values()), shares


def test_a_new_batch_far_from_all_others_is_shrunk_little():
    X, y, batch, _ = make_table(200, 8, spread=0.3, noise=0.2)
    model = AutoTwinRegressor(members=MEMBERS, random_state=0).fit(X, y, batch=batch)
    truth = model.predict(X[:4], batch="lab 0")

    def offsets(shift):
        return model.add_anchors(X[:4], truth + shift, batch="new").batch_offsets_["offset"]

    without, far = offsets(0.0), offsets(15.0)
    np.testing.assert_allclose(far.drop("new"), without.drop("new"), atol=1e-9)
    assert abs(far["new"] - without["new"] - 15.0) < 0.2


def test_adding_rows_to_a_known_batch_updates_its_offset(blend):
    X, y, batch, _ = make_table()
    rows = np.flatnonzero(batch == "lab 2")[:5]
    extended = blend.add_anchors(X[rows], y[rows] + 2.0, batch="lab 2")
    moved = extended.batch_offsets_["offset"] - blend.batch_offsets_["offset"]
    assert moved["lab 2"] > 0.2
    raw = extended.anchors_y_ + extended.fitted_.anchor_offsets
    np.testing.assert_allclose(raw, np.append(y, y[rows] + 2.0), atol=1e-7)


@pytest.mark.parametrize(
    ("model", "is_unequal"),
    [
        (TwinRegressor(Ridge()), False),
        (TwinRegressor(TREES, cv=3, random_state=0), False),
        (AutoTwinRegressor(members=MEMBERS, batch_effect="offset", random_state=0), True),
        (AutoTwinRegressor(members=MEMBERS, batch_effect="function", random_state=0), False),
    ],
    ids=["plain", "folds", "offset", "function"],
)
def test_rows_added_in_steps_are_as_those_added_at_once(model, is_unequal):
    X, y, batch, _ = make_table(100)
    y = y + is_unequal * (batch == "lab 0") * np.random.RandomState(0).normal(0, 2, size=100)
    fitted = clone(model).fit(X[:80], y[:80], batch=batch[:80])
    assert not is_unequal or np.isfinite(fitted.fitted_.batches.common_rows[0])
    new_y, new_batch = y[80:] + 5.0, np.where(np.arange(20) % 2, "new", batch[80:])
    at_once = fitted.add_anchors(X[80:], new_y, batch=new_batch)
    in_steps = fitted
    for rows in (slice(80, 83), slice(83, 84), slice(84, 100)):
        part = slice(rows.start - 80, rows.stop - 80)
        in_steps = in_steps.add_anchors(X[rows], new_y[part], batch=new_batch[part])
    for label in ("new", batch[0]):
        expected = at_once.predict(X[:20], return_std=True, batch=label)
        np.testing.assert_allclose(
            in_steps.predict(X[:20], return_std=True, batch=label), expected, rtol=1e-7, atol=1e-9
        )
    columns = ["offset", "std_error"]
    pd.testing.assert_frame_equal(
        in_steps.batch_offsets_[columns].sort_index(), at_once.batch_offsets_[columns].sort_index()
    )


def test_added_anchors_leave_the_learned_metric(blend):
    # corrections by one metric are wrong in another
    X, y, batch, _ = make_table()
    extended = blend.add_anchors(X[:5], y[:5] + 2.0, batch=batch[:5])
    unpickled = pickle.loads(pickle.dumps(blend))  # has stored its metric
    unpickled = unpickled.add_anchors(X[:5], y[:5] + 2.0, batch=batch[:5])
    expected = unpickled.predict(X, batch=batch)
    np.testing.assert_allclose(extended.predict(X, batch=batch), expected, rtol=1e-12)


def test_intervals_are_wider_the_fewer_rows_of_a_batch_are_known(blend):
    X, y, batch, _ = make_table()
    X, y = X[batch == "lab 0"], y[batch == "lab 0"] + 1.0
    widths = {}
    for n_known in (1, 3, 10):
        model = blend.add_anchors(X[:n_known], y[:n_known], batch="new")
        low, high = model.predict_interval(X, batch="new").T
        widths[n_known] = np.mean(high - low)
    unknown = np.mean(np.diff(blend.predict_interval(X), axis=1))
    assert unknown > widths[1] > widths[3] > widths[10]


def test_the_error_of_an_offset_is_the_same_for_rows_with_little_noise():
    X, y, batch, _ = make_table(200, noise=0.0)
    y = y + np.random.RandomState(0).normal(size=200) * np.where(X[:, 0] > 0, 1.0, 0.02)
    model = AutoTwinRegressor(members=MEMBERS, batch_effect="offset", random_state=0)
    model = model.fit(X, y, batch=batch)
    model = model.add_anchors(X[:1], y[:1], batch="new")
    std = {name: model.predict(X, return_std=True, batch=name)[1] for name in ("new", "lab 0")}
    assert std["lab 0"].max() > 2 * std["lab 0"].min()
    batches, errors = model.fitted_.batches, model.batch_offsets_["std_error"]
    of_rows = [
        (std[name] ** 2 - errors[name] ** 2) / batches.error_ratio([batches.names.index(name)]) ** 2
        for name in std
    ]
    np.testing.assert_allclose(*of_rows, rtol=1e-6)


@pytest.mark.slow
def test_known_rows_with_little_noise_count_more_for_a_new_batch(shipped_defaults):
    X, y, batch, _ = make_table(400, noise=0.0)
    y = y + np.random.RandomState(0).normal(size=400) * np.where(X[:, 0] > 0, 1.0, 0.1)
    model = AutoTwinRegressor(members=MEMBERS, random_state=0).fit(X, y, batch=batch)
    query = np.array([[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0]])  # with little and with much noise
    truth, std = model.predict(query, return_std=True, batch="lab 0")
    moved = model.add_anchors(query, truth + np.array([1.0, 3.0]), batch="new")
    weight = np.minimum((model.fitted_.batches.within / std) ** 2, 10.0)
    offset = moved.batch_offsets_["offset"]
    expected = weight @ [1.0, 3.0] / weight.sum()
    np.testing.assert_allclose(offset["new"] - offset["lab 0"], expected, atol=0.1)
    added = moved.predict(query, batch="new") - truth
    assert added[0] < 1.2
    assert added[1] < 2.2  # the error of a row with much noise is not believed
    assert moved.batch_offsets_.loc["new", "n_rows"] == 2


def test_intervals_of_new_batches_cover():
    covered = []
    for seed in range(3):
        X, y, batch, _ = make_table(200, 10, seed=seed)
        new = np.isin(batch, ["lab 7", "lab 8", "lab 9"])
        model = AutoTwinRegressor(members=MEMBERS, random_state=0)
        model.fit(X[~new], y[~new], batch=batch[~new])
        for name in ("lab 7", "lab 8", "lab 9"):
            rows = np.flatnonzero(batch == name)
            for n_known in (1, 3):
                own = model.add_anchors(X[rows[:n_known]], y[rows[:n_known]], batch=name)
                low, high = own.predict_interval(X[rows[5:]], batch=name).T
                covered.append(np.mean((low <= y[rows[5:]]) & (y[rows[5:]] <= high)))
    assert 0.82 < np.mean(covered) < 0.98


def test_distribution_of_a_batch_is_consistent(blend):
    X, y, batch, _ = make_table()
    own = {"batch": batch}
    low, high = blend.predict_interval(X, 0.9, **own).T
    np.testing.assert_allclose(
        blend.predict_quantiles(X, [0.05, 0.95], **own), np.column_stack([low, high])
    )
    median = blend.predict_quantiles(X, [0.5], **own)[:, 0]
    np.testing.assert_allclose(blend.predict_cdf(X, median, **own), 0.5, atol=1e-6)
    assert np.isfinite(blend.log_density(X, y, **own)).all()
    mean, std = blend.predict(X, return_std=True, **own)
    samples = blend.sample(X[:5], 4000, random_state=0, batch=batch[:5])
    np.testing.assert_allclose(samples.mean(axis=0), mean[:5], atol=0.1 * std[:5].max() + 0.02)
    assert blend.score(X, y, batch=batch) > 0.99 > blend.score(X, y)
    np.testing.assert_allclose(blend.predict_members(X, batch=batch).shape, (2, len(X)))


def test_explanations_add_up_and_show_the_offset(blend):
    X, y, batch, _ = make_table()
    for model in (blend, TwinRegressor(TREES, random_state=0).fit(X, y, batch=batch)):
        table = model.explain(X[:4], 3, adjustments=True, batch="lab 0")
        np.testing.assert_allclose(table["difference"], table["estimate"] - table["anchor_y"])
        total = table.groupby("query")[["weight", "estimate"]].apply(
            lambda own: float(own["weight"] @ own["estimate"])
        )
        np.testing.assert_allclose(total, model.predict(X[:4], batch="lab 0"), atol=1e-9)
        shown = table[table["anchor"] >= 0]
        by_feature = shown[["x0", "x1", "x2"]].sum(axis=1)
        np.testing.assert_allclose(by_feature, shown["difference"] - shown["offset"], atol=1e-8)
        offsets = model.batch_offsets_["offset"]
        np.testing.assert_allclose(shown["query_deviation"], offsets["lab 0"], atol=1e-9)
        added = offsets["lab 0"] - offsets[batch[shown["anchor"]]].to_numpy()
        np.testing.assert_allclose(shown["offset"], added, atol=1e-9)
        np.testing.assert_allclose(shown["anchor_y"], y[shown["anchor"]], atol=1e-7)


def test_a_model_with_batches_is_saved_and_loaded(blend, tmp_path):
    X, y, batch, _ = make_table()
    extended = blend.add_anchors(X[:2], y[:2], batch="new")
    twinned.save(extended, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    pd.testing.assert_frame_equal(loaded.batch_offsets_, extended.batch_offsets_)
    for label in (batch, "new"):
        np.testing.assert_array_equal(
            loaded.predict_interval(X, batch=label), extended.predict_interval(X, batch=label)
        )


def test_members_are_selected_with_their_own_offsets(blend):
    X, y, batch, _ = make_table()
    chosen = blend.select_members(["gp_matern"])
    fitted = AutoTwinRegressor(members=["gp_matern"], random_state=0)
    fitted.fit(X, y, batch=batch)
    np.testing.assert_allclose(chosen.predict(X, batch=batch), fitted.predict(X, batch=batch))
    pd.testing.assert_frame_equal(chosen.batch_offsets_, fitted.batch_offsets_)


def test_cross_conformal_of_a_twin_with_batches():
    X, y, batch, _ = make_table(160)
    twin = TwinRegressor(TREES, random_state=0)
    twin = cross_conformal(twin, X[:120], y[:120], batch=batch[:120], cv=4)
    low, high = twin.predict_interval(X[120:], batch=batch[120:]).T
    assert 0.7 < np.mean((low <= y[120:]) & (y[120:] <= high)) <= 1.0
    assert np.mean(high - low) < 2.5
    assert np.mean(np.diff(twin.predict_interval(X[120:]), axis=1)) > np.mean(high - low)


def test_a_factor_of_a_batch_is_an_offset_of_the_logarithm():
    X, y, batch, _ = make_table(spread=0.5)
    model = TransformedTargetTwin(AutoTwinRegressor(members=MEMBERS, random_state=0))
    model.fit(X, np.exp(y), batch=batch)
    assert rmse(np.log(model.predict(X, batch=batch)), y) < 0.25
    assert (model.predict_interval(X, batch=batch) > 0).all()


def test_censored_rows_have_batches():
    X, y, batch, _ = make_table()
    limit = np.quantile(y, 0.8)
    censored = y > limit
    known, lower = np.where(censored, np.nan, y), np.where(censored, limit, np.nan)
    model = AutoTwinRegressor(members=MEMBERS, random_state=0)
    model.fit(X, known, y_lower=lower, batch=batch)
    assert rmse(model.predict(X, batch=batch)[~censored], y[~censored]) < 0.3


def test_groups_and_weights_may_be_given_beside_batches():
    X, y, batch, _ = make_table()
    model = AutoTwinRegressor(members=MEMBERS, random_state=0)
    model.fit(X, y, np.arange(len(y)) % 3, groups=batch, batch=batch)
    assert rmse(model.predict(X, batch=batch), y) < 0.3


def test_wrong_batches_have_one_clear_line(blend):
    X, y, batch, _ = make_table()
    model = TwinRegressor(Ridge())
    cases = [
        (batch[:5], "one for each of the 120 rows"),
        (np.arange(120), "batch of its own"),
        (["a"] * 120, "All rows are of one batch, a"),
        (np.where(np.arange(120) == 3, None, batch), "Row 3 has no batch"),
    ]
    rounded = np.round(y)
    with pytest.raises(ValueError, match="batch has the values of y"):
        model.fit(X, rounded, batch=rounded)
    for given, message in cases:
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, batch=given)
    with pytest.raises(ValueError, match="fitted without batch"):
        model.fit(X, y).predict(X, batch=batch)
    with pytest.raises(ValueError, match="give the batch of each new anchor"):
        blend.add_anchors(X[:2], y[:2])
    with pytest.raises(AttributeError, match="no batches"):
        model.batch_offsets_  # noqa: B018


def test_exact_values_of_large_batches():
    """The covariance of many rows with next to no noise is positive definite despite rounding."""
    X = np.random.RandomState(0).normal(size=(400, 5))
    batch = np.resize(["a", "b", "c"], 400)
    y = X[:, 0] + (batch == "a")
    model = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0).fit(X, y, batch=batch)
    np.testing.assert_allclose(model.predict(X[:9], batch=batch[:9]), y[:9], atol=1e-3)
    assert model.fitted_.anchors.common is None  # which only the fit needs


def test_a_batch_of_one_row_is_allowed():
    X, y, batch, _ = make_table(60)
    batch[0] = "alone"
    model = TwinRegressor(TREES, random_state=0).fit(X, y, batch=batch)
    assert model.batch_offsets_.loc["alone", "std_error"] > 0
    assert np.isfinite(model.predict(X, batch=batch)).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("size", [0.0, 1.0])
def test_values_without_errors_have_batches(size):
    X, _, batch, offsets = make_table(60)
    y = size * offsets[[int(name[4:]) for name in batch]]
    model = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X, y, batch=batch)
    np.testing.assert_allclose(model.predict(X, batch=batch), y, atol=1e-6)
    added = model.add_anchors(X[:2], [1.0, 2.0], batch="new")
    low, high = added.predict_interval(X[:2], batch="new").T
    assert low.max() < 1.0
    assert high.min() > 2.0


def test_labels_of_batches():
    assert batch_labels(pd.Series([1, 2, 3]), 3) == ["1", "2", "3"]
    assert batch_labels(pd.Categorical(["a", None]), 2) == ["a", None]
