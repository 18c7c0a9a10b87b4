"""Folds that do not hold out every row, or are not trained on all other rows."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, PredefinedSplit, TimeSeriesSplit
from sklearn.neighbors import KNeighborsRegressor

import twinned
from twinned import AutoTwinRegressor, NeuralRegressor, NeuralTraining, TwinRegressor
from twinned.estimators.regressors import GPRegressor, PowerRegressor
from twinned.fitted.held_out import LocalResiduals
from twinned.models.neural.problem import build_problem
from twinned.rows.folds import given_folds

N = 90
FORWARD = TimeSeriesSplit(4)
HELD_OUT = np.arange(N) >= 18
MEMBERS = [("near", KNeighborsRegressor(3)), ("line", LinearRegression())]


@pytest.fixture(scope="module")
def series():
    """Rows in the order of time, with a trend that the features do not have."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(N, 3))
    return X, X[:, 0] + np.sin(X[:, 1]) + 0.05 * np.arange(N) + 0.1 * rng.normal(size=N)


@pytest.fixture(scope="module")
def blend(series):
    return AutoTwinRegressor(members=MEMBERS, cv=FORWARD, random_state=0).fit(*series)


def test_each_fold_is_fitted_to_the_earlier_rows(series, blend):
    X, y = series
    table = blend.out_of_fold()
    np.testing.assert_array_equal(table.index, np.flatnonzero(HELD_OUT))
    for number, (training, held_out) in enumerate(FORWARD.split(X)):
        assert (table["fold"][held_out] == number).all()
        for name, model in MEMBERS:
            scaled = [
                (X[rows] - X[training].mean(axis=0)) / X[training].std(axis=0)
                for rows in (training, held_out)
            ]
            alone = model.fit(scaled[0], y[training]).predict(scaled[1])
            np.testing.assert_allclose(table[name][held_out], alone, atol=1e-8)


def test_errors_are_those_of_held_out_rows(series, blend):
    _, y = series
    table, board = blend.out_of_fold(), blend.leaderboard_.set_index("member")
    for name, _ in MEMBERS:
        rmse = np.sqrt(np.mean((table[name] - y[HELD_OUT]) ** 2))
        assert board.loc[name, "rmse"] == pytest.approx(rmse)
    predicted = blend.out_of_fold_prediction_
    np.testing.assert_array_equal(np.isnan(predicted), ~HELD_OUT)
    np.testing.assert_array_equal(table["prediction"], predicted[HELD_OUT])
    # all rows are anchors; those that are not held out have the mean error
    assert len(blend.anchor_residuals_) == N
    assert np.abs(blend.anchor_residuals_[~HELD_OUT]).max() < 1e-12
    weighted = table[blend.member_names_].to_numpy() @ blend.member_weights_
    errors = y[HELD_OUT] - weighted
    np.testing.assert_allclose(blend.anchor_residuals_[HELD_OUT], errors - errors.mean())
    np.testing.assert_allclose(
        blend.predict_anchors(series[0][:3])[1].mean(axis=1), blend.predict(series[0][:3])
    )


def test_intervals_are_calibrated_by_held_out_rows(series, blend):
    X, _ = series
    calibration = blend.calibration_
    assert calibration.n_rows == HELD_OUT.sum()
    np.testing.assert_array_equal(np.sort(calibration.rows), np.flatnonzero(HELD_OUT))
    low, high = blend.predict_interval(X, 0.9).T
    predicted = blend.predict(X)
    assert (low < high).all()
    assert (low > predicted).any()  # with this trend, errors of later rows have a sign
    table = blend.out_of_fold()
    np.testing.assert_allclose(np.sort(table["score"]), calibration.scores)


def test_a_saved_blend_predicts_the_same(series, tmp_path):
    X, y = series
    blend = AutoTwinRegressor(members=["ridge", "gp_matern"], cv=FORWARD, random_state=0).fit(X, y)
    twinned.save(blend, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    assert loaded.cv.get_n_splits() == 4
    np.testing.assert_array_equal(loaded.out_of_fold_prediction_, blend.out_of_fold_prediction_)
    np.testing.assert_array_equal(loaded.predict_interval(X), blend.predict_interval(X))
    measured = twinned.measure_applicability(blend, X, y)
    assert measured.applicability_["rows"].sum() < HELD_OUT.sum() + N


def test_rows_that_are_never_held_out_are_training_rows_of_all_folds(series):
    X, y = series
    fold = np.where(np.arange(N) < 30, -1, np.arange(N) % 3)
    model = AutoTwinRegressor(members=[MEMBERS[1]], cv=PredefinedSplit(fold)).fit(X, y)
    table = model.out_of_fold()
    np.testing.assert_array_equal(table["fold"], fold[fold >= 0])
    for number in range(3):
        alone = LinearRegression().fit(X[fold != number], y[fold != number])
        held_out = np.flatnonzero(fold == number)
        np.testing.assert_allclose(table["line"][held_out], alone.predict(X[held_out]))


def test_equal_rows_of_different_folds_are_not_merged(series):
    X, y = (np.concatenate([part, part]) for part in series)
    folds = [(np.arange(N), np.arange(N, N + 40)), (np.arange(20, N), np.arange(N + 40, 2 * N))]
    model = AutoTwinRegressor(members=[MEMBERS[1]], cv=folds).fit(X, y)
    found = model.out_of_fold()["line"]
    for training, held_out in folds:
        alone = LinearRegression().fit(X[training], y[training]).predict(X[held_out])
        np.testing.assert_allclose(found[held_out], alone)


def test_weights_of_zero_and_censored_rows(series):
    X, y = series
    weight = np.where(np.arange(N) % 9 == 4, 0.0, 1.0)
    upper = np.where(np.arange(N) % 10 == 3, y + 0.5, np.nan)
    partial = np.where(np.isnan(upper), y, np.nan)
    model = AutoTwinRegressor(members=MEMBERS, cv=FORWARD, random_state=0)
    model.fit(X, partial, sample_weight=weight, y_upper=upper)
    expected = HELD_OUT & (weight > 0) & np.isnan(upper)
    held_out = model.anchor_rows_[model.out_of_fold().index]
    np.testing.assert_array_equal(held_out, np.flatnonzero(expected))
    assert np.isfinite(model.predict_interval(X)).all()


def test_gaussian_processes_and_power_transformations(series):
    X, y = np.exp(series[0]), np.exp(series[1] / 2)
    folds = list(FORWARD.split(X))
    process = GPRegressor(random_state=0).fit_with_folds(X, y, None, folds)
    for training, held_out in folds:
        alone = GPRegressor(random_state=0).fit(X[training], y[training], None, process.process_)
        found = process.out_of_fold_prediction_[held_out]
        np.testing.assert_allclose(found, alone.predict(X[held_out]))
    power = PowerRegressor(LinearRegression()).fit_with_folds(X, y, None, folds)
    for model in (process, power):
        np.testing.assert_array_equal(np.isnan(model.out_of_fold_prediction_), ~HELD_OUT)
    moved = np.where(np.arange(N) < 72, y, 0.1 + y[::-1])  # of the last fold
    other = PowerRegressor(LinearRegression()).fit_with_folds(X, moved, None, folds)
    if (
        other.model_.target.power == power.model_.target.power
    ):  # only the error of the transformed target differs
        ratio = other.out_of_fold_prediction_[18:72] / power.out_of_fold_prediction_[18:72]
        assert np.ptp(np.log(ratio)) < 1.5


@pytest.mark.parametrize("estimator", [NeuralRegressor, twinned.TwinNeuralRegressor])
def test_networks_of_a_fold_do_not_see_later_rows(series, estimator):
    X, y = series
    short = NeuralTraining(max_steps=20, learning_rate=2e-3, scaling="standard", selection="mean")
    network = estimator((8,), n_members=1, training=short, random_state=0)
    folds = list(FORWARD.split(X))
    problem = build_problem(network, X, y, folds=folds)
    for (training, held_out), own, fold in zip(
        folds, problem.training, problem.folds, strict=False
    ):
        for rows, expected in ((own, training), (fold, held_out)):
            np.testing.assert_allclose(
                np.sort(problem.y[rows, 0] * y.std() + y.mean()), np.sort(y[expected])
            )
    moved = y.copy()
    moved[72:] = np.roll(y[72:], 1)  # the same mean and spread
    one, other = (
        network.fit_with_folds(X, values, None, folds).out_of_fold_prediction_
        for values in (y, moved)
    )
    np.testing.assert_array_equal(np.isnan(one), ~HELD_OUT)
    np.testing.assert_allclose(one[18:], other[18:], atol=1e-5)


def test_twin_with_forward_chained_folds(series):
    X, y = series
    twin = TwinRegressor(LinearRegression(), cv=FORWARD, random_state=0).fit(X, y)
    errors = np.zeros(N)
    for training, held_out in FORWARD.split(X):
        alone = TwinRegressor(LinearRegression(), cv=0, random_state=0).fit(
            X[training], y[training]
        )
        errors[held_out] = y[held_out] - alone.predict(X[held_out])
    errors[HELD_OUT] -= errors[HELD_OUT].mean()
    np.testing.assert_allclose(twin.anchor_residuals_, errors, atol=1e-8)


def test_local_errors_are_those_of_training_rows(series):
    X, y = series
    blend = AutoTwinRegressor(members=[MEMBERS[0]], cv=FORWARD, random_state=0).fit(X, y)
    local = LocalResiduals(blend.fitted_.anchors, np.asarray(blend.anchor_residuals_), blend.folds_)
    shares = local.shares(1.0, np.arange(N))
    for training, held_out in FORWARD.split(X):
        assert shares[held_out][:, training].sum(axis=1) == pytest.approx(1)
        assert (np.delete(shares[held_out], training, axis=1) == 0).all()
    assert (shares[:18] == 0).all()


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        ([(np.arange(20), np.arange(20, 30)), (np.arange(25), np.arange(25, 40))], "at most once"),
        ([(np.arange(20), np.arange(20, 30))], "at least two folds"),
        (PredefinedSplit(np.full(N, -1)), "at least two folds"),
        (
            [(np.arange(40), np.arange(30, 50)), (np.arange(9), np.arange(9, 20))],
            "Each fold of cv",
        ),
        (
            [(np.arange(1), np.arange(30, 50)), (np.arange(9), np.arange(9, 20))],
            "Each fold of cv",
        ),
    ],
)
@pytest.mark.parametrize("model", [AutoTwinRegressor(members=["ridge"]), TwinRegressor()])
def test_wrong_folds(series, model, cv, message):
    with pytest.raises(ValueError, match=message):
        model.set_params(cv=cv).fit(*series)


def test_masks_are_folds():
    X = np.zeros((6, 1))
    masks = [(np.arange(6) < 3, np.arange(6) == k) for k in (3, 4)]
    found = given_folds(masks, X, X[:, 0])
    assert [rows.tolist() for rows in found[1]] == [[0, 1, 2], [4]]
    assert given_folds(3, X, X[:, 0]) is None
    assert len(given_folds(KFold(3), X, X[:, 0])) == 3


def test_offsets_of_batches_are_those_of_held_out_rows(series):
    X, times = series[0], np.arange(N)
    batch = np.where(times < 10, "old", np.where(times % 2, "a", "b"))  # old has no held-out row
    offset = np.select([batch == "a", batch == "b"], [3.0, -2.0], 6.0)
    y = X[:, 0] + offset + 0.05 * np.random.RandomState(1).normal(size=N)
    blend = AutoTwinRegressor(members=[MEMBERS[1]], cv=twinned.ForwardFolds(), random_state=0)
    blend.fit(X, y, groups=times, batch=batch)
    found = blend.batch_offsets_["offset"]
    assert found["a"] - found["b"] == pytest.approx(5.0, abs=0.1)
    assert found["old"] - found["a"] == pytest.approx(3.0, abs=0.2)
    predicted = blend.out_of_fold_prediction_
    np.testing.assert_array_equal(np.isnan(predicted), times < N // 2)
    assert blend.batch_errors_["known"] < 0.1
    assert blend.batch_errors_["new"] > 2
    assert blend.leaderboard_["rmse"][0] < 0.1
    ends = blend.predict_interval(X, 0.9, batch=batch)
    assert np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) > 0.8
