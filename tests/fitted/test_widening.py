"""Widening of intervals away from the known rows, against slow versions and by property."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from twinned import AutoTwinRegressor, TwinRegressor, conformal, cross_conformal
from twinned.rows.neighbors import LearnedMetric, MetricProcess
from twinned.rows.schema import TableSchema

METRIC = LearnedMetric(np.full(2, 0.5), np.ones(2), np.array([0.3, 2.0]), 0.05, np.ones(2))
SCHEMA = TableSchema.all_numeric(2)
rng = np.random.RandomState(0)
X = rng.uniform(size=(90, 2))
Y = np.sin(6 * X[:, 0]) + X[:, 1] + rng.normal(scale=0.1, size=90)


def posterior_std(known, row):
    """Standard deviation of y at one row, by the whole covariance matrix."""

    def correlation(a, b):
        r = np.sqrt(5.0 * np.sum(((a - b) / METRIC.length_scales) ** 2))
        return (1 + r + r**2 / 3) * np.exp(-r)

    covariance = np.array([[correlation(a, b) for b in known] for a in known])
    to_row = np.array([correlation(a, row) for a in known])
    explained = to_row @ np.linalg.solve(covariance + METRIC.noise * np.eye(len(known)), to_row)
    excess = np.maximum(row - known.max(axis=0), 0) + np.maximum(known.min(axis=0) - row, 0)
    trend = 0.1 * np.sum((excess / METRIC.length_scales) ** 2)
    return np.sqrt(1 - explained + METRIC.noise + trend)


def test_standard_deviations_are_those_of_processes_without_the_fold():
    folds = [(np.setdiff1d(np.arange(12), rows), rows) for rows in np.split(np.arange(12), 4)]
    process = MetricProcess(X[:12], METRIC, SCHEMA)
    expected = [posterior_std(X[:12][training], X[row]) for training, rows in folds for row in rows]
    np.testing.assert_allclose(process.held_out_std(X[:12], folds), expected, rtol=1e-6)
    beyond = np.array([[0.5, 9.0]])
    np.testing.assert_allclose(process.std(beyond), posterior_std(X[:12], beyond[0]))


def test_a_trend_adds_at_most_the_amplitude_per_standard_deviation_of_the_feature():
    """Also where length scales are so short that all rows are independent of each other."""
    short = METRIC._replace(length_scales=np.array([1e-6, 2.0]))
    beyond = np.array([[X[:, 0].max() + 2 * X[:, 0].std(), 0.5]])
    std = MetricProcess(X, short, SCHEMA).std(beyond)
    np.testing.assert_allclose(std, np.sqrt(1 + METRIC.noise + 2**2))


@pytest.fixture(scope="module", params=["twin", "blend"])
def model(request):
    if request.param == "blend":
        return AutoTwinRegressor(members=["ridge", "extra_trees:fast"], random_state=0).fit(X, Y)
    return cross_conformal(TwinRegressor(Ridge(), random_state=0), X, Y, cv=5, random_state=0)


def test_intervals_grow_along_a_ray_away_from_the_known_rows(model):
    ray = np.linspace([1.0, 0.5], [4.0, 0.5], 30)
    process_std = model.fitted_.process_std(model.encode(ray))
    assert (np.diff(process_std) > -1e-9).all()
    widths = np.ptp(model.predict_interval(ray), axis=1)
    assert widths[-1] > 2 * np.ptp(model.predict_interval(X), axis=1).max()
    std = model.predict(ray, return_std=True)[1]
    sampled = model.sample(ray[[0, -1]], 2000, random_state=0).std(axis=0)
    np.testing.assert_allclose(sampled, std[[0, -1]], rtol=0.1)
    narrow, wide = (model.predict_interval(ray, level) for level in (0.5, 0.9))
    assert (wide[:, 0] < narrow[:, 0]).all()
    assert (narrow[:, 1] < wide[:, 1]).all()


def test_scores_have_the_factor_of_the_other_folds(model):
    """So rows like the training rows are covered as often as stated."""
    prediction = model.predict_distribution(X)
    plain = prediction.calibration.scale.widening(None)
    assert plain == 1.0
    widening = prediction.calibration.scale.widening(model.fitted_.process_std(model.encode(X)))
    assert (widening >= 1).all()
    assert widening.max() < 1.5  # all rows are known


def test_intervals_contain_the_disagreement_of_members():
    """Far along an irrelevant feature, the slope of which one member cannot know."""
    rows = np.random.RandomState(1)
    days, x = rows.uniform(size=80), rows.uniform(size=80)
    known = np.column_stack([x, days, np.floor(10 * days) / 10])
    y = 3 * np.sin(3 * x) + 0.1 * rows.normal(size=80)
    blend = AutoTwinRegressor(members=["ridge", "gp_matern"], random_state=0).fit(known, y)
    prediction = blend.predict_distribution([[0.5, 0.5, 0.5], [0.5, 16.0, 0.5]])
    scale = prediction.calibration.scale
    ratio = (prediction.spread + scale.floor) / scale.largest_std
    excess = scale.largest_std * (ratio - 1) * ratio**0.75
    assert excess[0] < 0 < prediction.std[0] < excess[1] < prediction.std[1] < 2 * excess[1]


def test_a_new_category_counts_as_far():
    rows = pd.DataFrame({"x": X[:, 0], "kind": rng.choice(list("abc"), size=90)})
    y = X[:, 0] + 3 * (rows["kind"] == "a")
    twin = TwinRegressor(Ridge(), random_state=0)
    crossed = cross_conformal(twin, rows, y.to_numpy(), cv=5, random_state=0)
    queries = pd.DataFrame({"x": 0.5, "kind": ["a", "b", "c", "new"]})
    widths = np.ptp(crossed.predict_interval(queries), axis=1)
    assert widths[3] > 3 * widths[:3].max()


def test_widths_of_split_conformal_prediction_are_those_of_the_model():
    twin = TwinRegressor(Ridge(), random_state=0).fit(X[:40], Y[:40])
    calibrated = conformal(twin, X[40:], Y[40:], width="constant")
    widths = np.ptp(calibrated.predict_interval([[0.5, 0.5], [9.0, 0.5]]), axis=1)
    assert widths[0] == pytest.approx(widths[1])


def test_intervals_of_a_poor_model_are_as_wide_as_the_process():
    """Where the model errs more than the process, the process alone bounds the width."""
    x = np.random.RandomState(0).uniform(size=(60, 1))
    y = np.sin(5 * x[:, 0])
    crossed = cross_conformal(TwinRegressor(Ridge()), x, y, cv=3, random_state=0)
    inside, beyond = crossed.predict(np.array([[0.5], [2.0]]), return_std=True)[1]
    assert 2 * inside < beyond < 10 * np.std(y)
