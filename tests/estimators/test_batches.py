"""Batches of rows with unknown offsets: estimates, predictions, intervals and new batches."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

import twinned
from twinned import (
    AutoTwinRegressor,
    LogTargetRegressor,
    TransformedTargetTwin,
    TwinNeuralRegressor,
    TwinRegressor,
    cross_conformal,
)
from twinned.exceptions import UnknownBatchWarning
from twinned.models.batches import estimate_offsets
from twinned.rows.batches import BatchOffsets, batch_labels

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


def test_offsets_of_least_squares_are_those_of_a_slow_version():
    X, y, batch, _ = make_table(40, 3)
    names, codes = np.unique(batch, return_inverse=True)
    fast = estimate_offsets(X, y, list(names), codes, None, False)
    # the same by a Gaussian process with the learned scales and a batch effect of large variance
    from twinned.models.gaussian_process import fit_gaussian_process

    first = BatchOffsets.estimate(list(names), y, codes, None, False)
    process = fit_gaussian_process(X, first.remove(y, codes), max_rows=2000, random_state=0)
    second = None
    for _ in range(2):
        same = codes[:, None] == codes
        covariance = process.correlation(X, X) + process.noise * np.eye(len(y))
        design = np.eye(3)[codes]
        inverse = np.linalg.inv(covariance)
        second = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ y)
        rest = y - second[codes]
        process = fit_gaussian_process(X, rest, max_rows=2000, similar=process, random_state=0)
        assert same.any()
    np.testing.assert_allclose(
        fast.means - fast.means.mean(), second - second.mean(), atol=0.02 * first.within
    )


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
    assert np.abs(offsets).max() < 0.1
    twin = TwinRegressor(TREES, random_state=0).fit(X, y, batch=batch)
    assert np.abs(twin.batch_offsets_["offset"]).max() > np.abs(offsets).max()


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
    assert after < 1.3 * again_error


@pytest.mark.parametrize("steps", [1, 2])
def test_added_anchors_correct_the_predictions_near_them(steps, blend, tmp_path):
    X, _, _, _ = make_table()
    rng = np.random.RandomState(3)
    new = rng.uniform(1.5, 2.5, (40, X.shape[1]))  # beyond the training rows
    truth = blend.predict(new) + np.sin(2 * new[:, 0]) + 5.0
    model = blend
    for part in np.array_split(np.arange(20), steps):
        model = model.add_anchors(new[part], truth[part], batch="new")
    residual = truth[20:] - blend.predict(new[20:])
    after = rmse(model.predict(new[20:], batch="new"), truth[20:])
    assert after < 0.6 * np.std(residual)  # an offset alone leaves the standard deviation
    far = model.predict(X, batch="lab 1") - blend.predict(X, batch="lab 1")
    assert np.abs(far).max() < 0.5 * np.std(residual)
    twinned.save(model, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    np.testing.assert_array_equal(loaded.predict(new, batch="new"), model.predict(new, batch="new"))


def test_adding_rows_to_a_known_batch_updates_its_offset(blend):
    X, y, batch, _ = make_table()
    rows = np.flatnonzero(batch == "lab 2")[:5]
    extended = blend.add_anchors(X[rows], y[rows] + 2.0, batch="lab 2")
    moved = extended.batch_offsets_["offset"] - blend.batch_offsets_["offset"]
    assert moved["lab 2"] > 0.2
    raw = extended.anchors_y_ + extended.fitted_.anchor_offsets
    np.testing.assert_allclose(raw, np.append(y, y[rows] + 2.0), atol=1e-7)


def test_added_anchors_leave_the_learned_metric(blend):
    # corrections by one metric are wrong in another
    X, y, batch, _ = make_table()
    extended = blend.add_anchors(X[:5], y[:5] + 2.0, batch=batch[:5])
    unpickled = pickle.loads(pickle.dumps(blend))  # has stored its metric
    unpickled = unpickled.add_anchors(X[:5], y[:5] + 2.0, batch=batch[:5])
    expected = unpickled.predict(X, batch=batch)
    np.testing.assert_allclose(extended.predict(X, batch=batch), expected, rtol=1e-12)


def test_intervals_are_wider_the_fewer_rows_of_a_batch_are_known(blend):
    X, y, _, _ = make_table()
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
    model = AutoTwinRegressor(members=MEMBERS, random_state=0).fit(X, y, batch=batch)
    model = model.add_anchors(X[:1], y[:1], batch="new")
    std = {name: model.predict(X, return_std=True, batch=name)[1] for name in ("new", "lab 0")}
    assert std["lab 0"].max() > 2 * std["lab 0"].min()
    errors = model.batch_offsets_["std_error"] ** 2
    np.testing.assert_allclose(
        std["new"] ** 2 - std["lab 0"] ** 2, errors["new"] - errors["lab 0"], rtol=1e-6
    )


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
    model = LogTargetRegressor(AutoTwinRegressor(members=MEMBERS, random_state=0))
    model.fit(X, np.exp(y), batch=batch)
    assert rmse(np.log(model.predict(X, batch=batch)), y) < 0.25
    assert (model.predict_interval(X, batch=batch) > 0).all()


@pytest.mark.slow
def test_the_logarithm_is_chosen_for_factors_of_batches():
    X, y, batch, _ = make_table(spread=0.5)
    auto = TransformedTargetTwin(TwinRegressor(Ridge()), target_transform="auto")
    assert auto.fit(X, np.exp(2 * y), batch=batch).target_transform_ == "log"


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


def test_a_batch_of_one_row_is_allowed():
    X, y, batch, _ = make_table(60)
    batch[0] = "alone"
    model = TwinRegressor(TREES, random_state=0).fit(X, y, batch=batch)
    assert model.batch_offsets_.loc["alone", "std_error"] > 0
    assert np.isfinite(model.predict(X, batch=batch)).all()


def test_labels_of_batches():
    assert batch_labels(pd.Series([1, 2, 3]), 3) == ["1", "2", "3"]
    assert batch_labels(pd.Categorical(["a", None]), 2) == ["a", None]


def test_shrunk_offsets_are_those_of_a_slow_version():
    rng = np.random.RandomState(0)
    codes = np.repeat(np.arange(8), [1, 2, 3, 5, 8, 10, 10, 20])
    residual = rng.normal(size=8)[codes] * 2 + rng.normal(size=len(codes))
    names = [str(code) for code in range(8)]
    result = BatchOffsets.estimate(names, residual, codes, None, True)
    between, within = result.between**2, result.within**2
    # the expected effects of a linear mixed model with these variances
    design = np.eye(8)[codes]
    covariance = between * design @ design.T + within * np.eye(len(codes))
    inverse = np.linalg.inv(covariance)
    mean = inverse.sum(axis=0) @ residual / inverse.sum()
    expected = mean + between * design.T @ inverse @ (residual - mean)
    np.testing.assert_allclose(result.offsets, expected, rtol=1e-9)
    # and without each row, from the others
    own, _ = result.without_own(residual, codes, None)
    for row in range(len(codes)):
        others = (codes == codes[row]) & (np.arange(len(codes)) != row)
        n = others.sum()
        share = between * n / (between * n + within)
        mean_of_others = residual[others].mean() if n else result.center
        center = result.center
        np.testing.assert_allclose(own[row], center + share * (mean_of_others - center))
