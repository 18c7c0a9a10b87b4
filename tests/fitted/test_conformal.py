"""Intervals: against slow versions, by coverage, and through MAPIE unmodified."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from twinned import (
    AutoTwinRegressor,
    GPWeights,
    NearestAnchors,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
    conformal,
    cross_conformal,
    load,
    save,
)
from twinned.datasets import make_wsb
from twinned.estimators.conformal import cross_errors
from twinned.exceptions import IntegrityError
from twinned.fitted.calibration import EXPONENTS, ErrorScale, NeighborFeatures, numeric_columns
from twinned.fitted.held_out import HeldOutErrors
from twinned.fitted.quantiles import ScoreDistribution

X, y = (part.to_numpy() for part in make_wsb(200, random_state=0))
FIT, CAL, TEST = slice(0, 60), slice(60, 160), slice(160, 200)


def twin(**changes):
    return TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0), **changes)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95])
def test_split_interval_equals_its_definition(confidence):
    model = twin().fit(X[FIT], y[FIT])
    calibrated = conformal(model, X[CAL], y[CAL])
    mean, raw = model.predict(X[CAL], return_std=True)
    floor = 0.002 * y[FIT].std()
    scores = sorted((y[CAL] - mean) / (raw + floor))
    ranks = 101 * (1 + confidence * np.array([-1, 1])) / 2  # of the ends, counted from 1
    low, high = np.interp(ranks, np.arange(1, 101), scores)
    mean, raw = model.predict(X[TEST], return_std=True)
    expected = np.column_stack([mean + low * (raw + floor), mean + high * (raw + floor)])
    np.testing.assert_allclose(calibrated.predict_interval(X[TEST], confidence), expected)
    np.testing.assert_array_equal(calibrated.predict(X[TEST]), mean)


def test_cross_conformal_predicts_by_the_model_of_all_rows():
    crossed = cross_conformal(twin(), X[FIT], y[FIT], cv=3, width="constant")
    whole = twin().fit(X[FIT], y[FIT]).predict(X[TEST])
    np.testing.assert_array_equal(crossed.predict(X[TEST]), whole)
    folds = KFold(3, shuffle=True, random_state=0).split(X[FIT])
    errors = [
        y[held_out] - twin().fit(X[rows], y[rows]).predict(X[held_out]) for rows, held_out in folds
    ]
    scores = np.sort(np.concatenate(errors))
    np.testing.assert_allclose(crossed.calibration_.scores, scores)
    ends = np.interp([6.1, 54.9], np.arange(1, 61), scores)
    expected = whole[:, None] + ends
    np.testing.assert_allclose(crossed.predict_interval(X[TEST], 0.8), expected)


def test_stored_intervals_are_saved_with_the_twin(tmp_path):
    X, y = make_wsb(60, random_state=0)
    X = X.assign(material=pd.Categorical(["wood", "brick"] * 30))
    training, new = X[:45], X[45:]
    tree = DecisionTreeRegressor(max_depth=5, random_state=0)
    twin = cross_conformal(TwinRegressor(tree), training, y[:45], cv=5)
    save(twin, tmp_path / "m.twin")
    np.testing.assert_array_equal(
        load(tmp_path / "m.twin").predict_interval(new, 0.8), twin.predict_interval(new, 0.8)
    )
    assert np.isfinite(twin.predict_interval(new.assign(U=1e38))).all()  # trees use float32
    other = twin.with_strategies(anchors=NearestAnchors(3))
    with pytest.raises(AttributeError, match="stores no calibration"):
        other.predict_interval(new)
    with pytest.raises(AttributeError, match="stores no calibration"):
        twin.fit(X[:20], y[:20]).predict_interval(new)


def test_declared_categories_are_no_neighbor_features_of_stored_intervals():
    codes = np.repeat([10115.0, 10117.0, 20095.0], 20)
    table = np.column_stack([X[:60, 0], codes])
    crossed = cross_conformal(twin(categorical_features=[1]), table, y[:60], cv=4)
    assert crossed.calibration_.neighbors.columns == [0]
    assert crossed.calibration_.neighbors.codes == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"scores": np.array([np.nan])},
        {"scores": np.array([1.0, -1.0])},
        {"scores": "many"},
        {"scale": ErrorScale("wide", 0.1)},
        {"scale": ErrorScale("std", np.inf)},
        {"scale": ErrorScale("std", 0.1, "x")},
    ],
)
def test_invalid_stored_intervals_raise(change, tmp_path):
    stored = cross_conformal(twin(), X[FIT], y[FIT], cv=2, width="std")
    fitted = stored.fitted_
    stored = stored.with_fitted(replace(fitted, calibration=replace(fitted.calibration, **change)))
    with pytest.raises(IntegrityError, match="cannot be saved: model/calibration"):
        save(stored, tmp_path / "m.twin")


def uneven(rng, n):
    """Noise that grows with x, for which intervals of constant width are wrong."""
    x = rng.uniform(0, 1, size=(n, 1))
    return x, 3 * x[:, 0] + rng.normal(size=n) * (0.02 + x[:, 0] ** 2)


@pytest.mark.slow
def test_coverage_of_split_intervals_over_many_draws():
    """Finite-sample coverage: its mean over draws is at least the stated confidence."""
    covered = []
    for seed in range(60):
        rng = np.random.RandomState(seed)
        x, z = uneven(rng, 90)
        model = TwinRegressor(LinearRegression()).fit(x[:20], z[:20])
        intervals = conformal(model, x[20:50], z[20:50]).predict_interval(x[50:], 0.8)
        covered.append(np.mean((intervals[:, 0] <= z[50:]) & (z[50:] <= intervals[:, 1])))
    spread = np.std(covered) / np.sqrt(len(covered))
    assert np.mean(covered) > 0.8 - 3 * spread
    assert np.mean(covered) < 0.8 + 1 / 31 + 3 * spread


@pytest.mark.slow
def test_cross_intervals_cover_and_are_wider_where_noise_is_larger():
    inside, narrow, wide = [], [], []
    for seed in range(6):
        x, z = uneven(np.random.RandomState(seed), 140)
        forest = RandomForestRegressor(5, min_samples_leaf=20, random_state=0)
        crossed = cross_conformal(TwinRegressor(forest), x[:70], z[:70], width="std")
        intervals = crossed.predict_interval(x[70:], 0.8)
        inside.append(np.mean((intervals[:, 0] <= z[70:]) & (z[70:] <= intervals[:, 1])))
        width, quiet = np.diff(intervals)[:, 0], x[70:, 0] < 0.5
        narrow.append(width[quiet].mean())
        wide.append(width[~quiet].mean())
    assert 0.7 < np.mean(inside) < 0.9
    assert np.mean(narrow) < np.mean(wide)


def test_width_std_varies_and_width_constant_does_not():
    model = twin().fit(X[FIT], y[FIT])
    width = np.diff(conformal(model, X[CAL], y[CAL]).predict_interval(X[TEST], 0.9))
    same = np.diff(
        conformal(model, X[CAL], y[CAL], width="constant").predict_interval(X[TEST], 0.9)
    )
    assert np.ptp(width) > 0.1 * width.mean()
    np.testing.assert_allclose(same, np.full((40, 1), same[0, 0]))


def test_the_calibrated_std_equals_the_root_mean_squared_error():
    model = twin().fit(X[FIT], y[FIT])
    mean, std = conformal(model, X[CAL], y[CAL]).predict(X[CAL], return_std=True)
    assert np.mean(((y[CAL] - mean) / std) ** 2) == pytest.approx(1)


@pytest.mark.parametrize(
    "model",
    [
        Ridge(),  # has no standard deviation: constant width
        GaussianProcessRegressor(normalize_y=True),
        TwinNeuralRegressor(
            (8,), n_members=2, training=NeuralTraining(n_folds=1, max_steps=30), random_state=0
        ),
        TwinRegressor(LinearRegression()),
    ],
)
def test_any_regressor_can_be_calibrated(model):
    model = clone(model).fit(X[FIT], y[FIT])
    intervals = conformal(model, X[CAL], y[CAL]).predict_interval(X[TEST], 0.9)
    assert intervals.shape == (40, 2)
    assert (intervals[:, 0] < intervals[:, 1]).all()


def test_learned_width_adapts_to_errors_that_the_std_does_not_show(monkeypatch):
    """The std of a linear model is constant, but the size of its errors is not."""

    def trees(n_estimators, **options):  # other tests have fewer
        return ExtraTreesRegressor(50, **options)

    monkeypatch.setattr("twinned.fitted.calibration.ExtraTreesRegressor", trees)
    x, z = uneven(np.random.RandomState(0), 400)
    widths = {}
    for width in ("learned", "std"):
        crossed = cross_conformal(TwinRegressor(LinearRegression()), x[:200], z[:200], width=width)
        intervals = crossed.predict_interval(x[200:], 0.9)
        assert np.mean((intervals[:, 0] <= z[200:]) & (z[200:] <= intervals[:, 1])) > 0.85
        widths[width] = np.diff(intervals)[:, 0]
    quiet = x[200:, 0] < 0.3
    assert widths["learned"][quiet].mean() < 0.8 * widths["std"][quiet].mean()
    assert widths["learned"].mean() < widths["std"].mean()


def test_the_error_scale_of_a_fold_is_fitted_without_its_errors():
    """One row has a wrong y: the error scale of its fold is fitted to the other folds."""
    shifted = y[FIT].copy()
    shifted[7] += 1000
    crossed = cross_conformal(twin(), X[FIT], shifted, cv=3, random_state=0)
    calibration = crossed.calibration_
    score = calibration.scores[calibration.rows == 7][0]
    error = shifted[7] - twin().fit(X[FIT], y[FIT]).predict(X[[7]])[0]
    assert error / score < 50  # which the metric of all rows makes a little larger
    assert crossed.predict_distribution(X[[7]]).scale[0] > 10


def test_intervals_do_not_depend_on_other_queries():
    for one in (
        conformal(twin().fit(X[FIT], y[FIT]), X[CAL], y[CAL]),
        cross_conformal(twin(), X[FIT], y[FIT], cv=3),
    ):
        together = one.predict_interval(X[TEST], 0.8)
        alone = [one.predict_interval(X[TEST][[row]], 0.8)[0] for row in range(5)]
        np.testing.assert_allclose(together[:5], alone, rtol=1e-7)  # as sums of products differ


def test_neighbor_features_equal_a_slow_version():
    means = np.linspace(-1, 1, len(X[TEST]))
    features = NeighborFeatures.of(X[FIT], y[FIT]).transform(X[TEST], means)
    scale = X[FIT].std(axis=0)
    for row, mean, found in zip(X[TEST][:5], means, features, strict=False):
        distances = np.sqrt((((X[FIT] - row) / scale) ** 2).sum(axis=1))
        near = np.argsort(distances)
        known = y[FIT][near]
        expected = [*row, distances[near[0]], distances[near[9]]]
        expected += [np.std(known[:3]), np.std(known[:10]), np.std(known[:20])]
        expected += [abs(known[0] - mean), abs(np.mean(known[:5]) - mean)]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_neighbor_features_of_few_rows_and_missing_values():
    few = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, np.nan]])
    features = NeighborFeatures.of(few, np.arange(3.0)).transform(few, np.zeros(3))
    assert features.shape == (3, 9)
    assert np.isfinite(features[:, 2:]).all()
    categorical = NeighborFeatures.of(np.array([["a"], ["b"]]), np.zeros(2))
    assert categorical.transform(np.array([["a"]]), np.zeros(1)).shape == (1, 0)


def test_the_learned_width_follows_the_noise_of_categories():
    """The model and the numeric features do not show the noise."""
    draws, kind = np.random.RandomState(0), np.tile(["calm", "wild", "mild"], 100)
    noise = np.select([kind == "wild", kind == "mild"], [2.0, 0.5], 0.2)
    frame = pd.DataFrame({"a": draws.uniform(size=300), "kind": pd.Categorical(kind)})
    values = frame["a"].to_numpy() + noise * draws.normal(size=300)
    crossed = cross_conformal(TwinRegressor(Ridge()), frame, values, cv=5, random_state=0)
    blend = AutoTwinRegressor(members=["ridge"], random_state=0).fit(frame, values)
    for model in (crossed, blend):
        widths = np.diff(model.predict_interval(frame, 0.8))[:, 0]
        assert widths[kind == "wild"].mean() > 4 * widths[kind == "calm"].mean()


def test_exponents_of_the_error_scale_are_the_likeliest():
    draws = np.random.RandomState(0)
    x = draws.uniform(size=(120, 1))
    z = x[:, 0] + (0.1 + x[:, 0]) * draws.normal(size=120)
    folds = list(KFold(4, shuffle=True, random_state=0).split(x))
    mean, std = np.empty(120), draws.uniform(0.5, 1.0, size=120)
    for training, held_out in folds:
        mean[held_out] = Ridge().fit(x[training], z[training]).predict(x[held_out])
    errors = HeldOutErrors.of_folds(x, z, mean, std, folds)
    _, chosen = errors.error_scales("learned", 0)
    totals = {}
    for exponents in EXPONENTS["learned"]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(EXPONENTS, "learned", [exponents])
            scales, _ = errors.error_scales("learned", 0)
        scores = errors.errors / scales
        distribution, step = ScoreDistribution.of(np.sort(scores)), 1e-6
        density = (distribution.cdf(scores + step) - distribution.cdf(scores - step)) / (2 * step)
        totals[exponents] = np.sum(np.log(density / scales))
    assert len(totals) == 3
    assert max(totals, key=lambda exponents: totals[exponents]) == tuple(chosen.exponents)


def test_categorical_columns_do_not_count_in_distances():
    frame = pd.DataFrame({"a": X[:60, 0], "b": X[:60, 1], "c": pd.Categorical([3, 5, 7] * 20)})
    assert numeric_columns(frame) == [0, 1]
    intervals = cross_conformal(twin(), frame, y[:60], cv=3).predict_interval(frame, 0.9)
    assert np.isfinite(intervals).all()


def test_a_boolean_column_with_missing_values_is_numeric_in_all_folds():
    polars = pytest.importorskip("polars", reason="polars is in the extra `test`")
    yes = [None, *([True, False] * 30)][:60]
    frame = polars.DataFrame({"a": X[:60, 0], "b": X[:60, 1], "c": yes})
    base = HistGradientBoostingRegressor(max_iter=5)
    crossed = cross_conformal(TwinRegressor(base), frame, y[:60], cv=3)
    assert np.isfinite(crossed.predict_interval(frame, 0.9)).all()


def test_a_pipeline_has_the_std_of_its_last_step():
    pipe = make_pipeline(StandardScaler(), twin()).fit(X[FIT], y[FIT])
    width = np.diff(conformal(pipe, X[CAL], y[CAL]).predict_interval(X[TEST], 0.9))
    assert np.ptp(width) > 0.1 * width.mean()


@pytest.mark.parametrize("confidence", [1e-12, 1e-9, 0.01])
def test_intervals_of_small_confidence_are_ordered(confidence):
    for one in (
        conformal(Ridge().fit(X[FIT], y[FIT]), X[CAL], y[CAL]),
        cross_conformal(Ridge(), X[FIT], y[FIT], cv=2),
    ):
        low, high = one.predict_interval(X[TEST], confidence).T
        assert (low <= high).all()


@pytest.mark.parametrize("cv", [np.int64(5), 5])
def test_an_integer_cv_means_random_folds(cv):
    folds = KFold(5, shuffle=True, random_state=0)
    scores, expected = (
        cross_conformal(Ridge(), X[FIT], y[FIT], cv=own, random_state=0).calibration_.scores
        for own in (cv, folds)
    )
    np.testing.assert_array_equal(scores, expected)


def test_cv_can_be_a_list_of_folds():
    groups = np.arange(60) // 6
    folds = GroupKFold(5).split(X[FIT], y[FIT], groups)
    crossed = cross_conformal(Ridge(), X[FIT], y[FIT], cv=folds)
    assert crossed.calibration_.n_rows == 60


def test_groups_are_held_out_together():
    groups = np.array([f"batch {i}" for i in np.arange(60) % 12])
    blend = AutoTwinRegressor(members=["ridge"], cv=2, random_state=0)
    training_rows = []

    class Recorded(Ridge):
        def fit(self, X, y, sample_weight=None):
            training_rows.append({tuple(row) for row in X})
            return super().fit(X, y, sample_weight)

    cross_conformal(Recorded(), X[FIT], y[FIT], groups=groups, cv=3, width="std")
    for known in training_rows[:-1]:
        used = np.array([tuple(row) in known for row in X[FIT]])
        assert not set(groups[used]) & set(groups[~used])
    crossed = cross_conformal(blend, X[FIT], y[FIT], groups=groups, cv=3, width="std")
    assert len(np.unique(crossed.fitted_.anchors.groups)) == 12
    with pytest.raises(ValueError, match="one label for each of the 60 rows"):
        cross_conformal(blend, X[FIT], y[FIT], groups=groups[:9])


def test_the_given_model_is_not_fitted():
    model = twin()
    cross_conformal(model, X[FIT], y[FIT], cv=3)
    assert not model.__sklearn_is_fitted__()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: conformal(m, X[:8], y[:8]).predict_interval(X, 0.9),
            "at least 9 calibration",
        ),
        (lambda m: conformal(m, X[CAL], y[CAL]).predict_interval(X, 1.0), "between 0 and 1"),
        (lambda m: conformal(m, X[CAL], y[CAL]).predict_interval(X, "90%"), "confidence"),
        (lambda m: conformal(m, X[CAL], y[FIT]), "X has 100 and y has 60"),
        (lambda m: conformal(m, X[CAL], np.where(y[CAL] > 0, np.nan, 1.0)), "NaN"),
        (lambda m: conformal(twin(), X[CAL], y[CAL]), "not fitted"),
        (lambda m: cross_conformal(m, X[FIT], y[FIT], width="narrow"), "'narrow'"),
        (lambda m: conformal(m, X[CAL], y[CAL], width="learned"), "'learned'"),
        (lambda m: cross_conformal(m, X[FIT], y[FIT], cv=ShuffleSplit(1)), "each row once"),
        (lambda m: cross_conformal(m, X[FIT], y[FIT], cv=RepeatedKFold()), "each row once"),
        (lambda m: cross_conformal(m, X[FIT], y[FIT], cv=1), "cv must be"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(Exception, match=message):
        call(twin().fit(X[FIT], y[FIT]))


def test_nine_calibration_rows_suffice_for_90_percent():
    intervals = conformal(Ridge().fit(X[FIT], y[FIT]), X[60:69], y[60:69]).predict_interval(X, 0.9)
    assert np.isfinite(intervals).all()


def test_several_outputs_raise():
    model = TwinRegressor(LinearRegression()).fit(X[FIT], np.column_stack([y, y])[FIT])
    with pytest.raises(ValueError, match="single output, but the model has 2"):
        conformal(model, X[CAL], y[CAL])


class TestPeers:
    @pytest.mark.parametrize("which", ["split", "cross"])
    def test_mapie_runs_on_a_twin(self, which):
        mapie = pytest.importorskip(
            "mapie.regression", reason="MAPIE is not installed: it is in the extra `test`"
        )
        if which == "split":
            model = mapie.SplitConformalRegressor(twin(), confidence_level=0.9, prefit=False)
            model.fit(X[FIT], y[FIT]).conformalize(X[CAL], y[CAL])
        else:
            model = mapie.CrossConformalRegressor(twin(), confidence_level=0.9, cv=3)
            model.fit_conformalize(X[FIT], y[FIT])
        _, intervals = model.predict_interval(X[TEST])
        inside = (intervals[:, 0, 0] <= y[TEST]) & (y[TEST] <= intervals[:, 1, 0])
        assert inside.mean() > 0.7


def test_folds_have_the_local_weights_of_the_final_twin():
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(90, 1))
    y = np.sin(9 * X[:, 0])
    final = TwinRegressor(Ridge(), cv=5, random_state=0).fit(X, y)
    power, metric = final.local_power_, final.fitted_.anchors.metric
    assert power > 0
    folds = list(KFold(6).split(X))
    models = [clone(final).set_params(cv=0).fit(X[training], y[training]) for training, _ in folds]
    fold, errors = np.empty(90), np.empty(90)
    for number, (model, (_, held_out)) in enumerate(zip(models, folds, strict=True)):
        assert model.local_power_ == 0
        fold[held_out], errors[held_out] = number, y[held_out] - model.predict(X[held_out])
    scaled = metric.in_length_scales(X)
    crossed = cross_errors(models, final, X, y, folds)
    for row, found in zip(crossed.rows, crossed.errors, strict=True):
        others = fold != fold[row]
        weights = GPWeights(power).weigh(np.abs(scaled[others] - scaled[row]).T, metric.noise)[0]
        expected = errors[row] - np.average(errors[others], weights=weights)
        assert found == pytest.approx(expected)
