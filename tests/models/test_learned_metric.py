import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned import (
    GPWeights,
    NearestAnchors,
    NearestPairs,
    NeuralTraining,
    SemiSupervisedTwinRegressor,
    TwinNeuralRegressor,
    TwinRegressor,
)
from twinned.models import learned_metric
from twinned.models.gaussian_process import fit_gaussian_process
from twinned.models.learned_metric import learn_metric
from twinned.pairing.anchors import uses_learned_metric

UNITS = np.array([1.0, 1000.0, 0.01])


@pytest.fixture
def data(rng):
    """The first feature matters most, the third not at all; units differ."""
    X = rng.uniform(-1, 1, (70, 3))
    return X * UNITS, np.sin(3 * X[:, 0]) + 0.3 * X[:, 1]


@pytest.fixture
def no_learning(monkeypatch):
    """Fail where a metric is learned."""

    def fail(*arguments, **options):
        raise AssertionError("a metric was learned")

    monkeypatch.setattr("twinned.fitted.anchors.learn_metric", fail)


def by_hand(X, length_scales):
    """(query, anchor) distances after each feature is scaled by its root inverse length scale."""
    factor = np.sqrt(X.std(axis=0) / length_scales)
    factor = np.maximum(factor / np.sqrt(np.mean(factor**2)), 0.02)
    scaled = X * factor / X.std(axis=0)
    return np.linalg.norm(scaled[:, None] - scaled[None], axis=2)


def test_features_are_scaled_by_the_root_of_the_inverse_length_scale(data):
    X, y = data
    metric = learn_metric(X, y)
    process = fit_gaussian_process(X, y, random_state=0)
    transformed = metric.transform(X)
    distances = np.linalg.norm(transformed[:, None] - transformed[None], axis=2)
    np.testing.assert_allclose(distances, by_hand(X, process.length_scales), atol=1e-8)
    factor = metric.scale * X.std(axis=0)
    assert factor[0] > factor[1] > 2 * factor[2] >= 0.04
    np.testing.assert_array_equal(metric.length_scales, process.length_scales)


def test_units_and_shifts_do_not_matter(data):
    X, y = data
    units = np.array([1e3, 1e-3, -7.0])
    first, second = learn_metric(X, y), learn_metric(X * units + 5.0, 4.0 - 2 * y)
    np.testing.assert_allclose(first.scale, second.scale * np.abs(units), rtol=1e-2)
    np.testing.assert_allclose(first.slopes, second.slopes, rtol=1e-2, atol=1e-4)


def test_missing_and_constant_features(data):
    X, y = data
    X = np.column_stack([X, np.full(len(X), 3.0), np.full(len(X), np.nan)])
    X[::7, 0] = np.nan
    metric = learn_metric(X, y)
    np.testing.assert_array_equal(metric.scale[3:], 0.0)
    np.testing.assert_array_equal(metric.slopes[3:], 0.0)
    transformed = metric.transform(X)
    assert np.isfinite(transformed).all()
    np.testing.assert_array_equal(transformed[::7, 0], 0.0)


def test_a_constant_target_and_a_single_feature():
    X = np.arange(10.0)[:, None]
    for metric in (learn_metric(X, np.ones(10)), learn_metric(np.ones((10, 2)), X[:, 0])):
        assert np.isfinite(metric.transform(X)).all()


def test_the_subset_is_bounded(monkeypatch, rng):
    seen = []

    def record(X, y, **options):
        seen.append(options["max_rows"])
        return fit_gaussian_process(X[:50], y[:50])

    monkeypatch.setattr(learned_metric, "fit_gaussian_process", record)
    learn_metric(rng.normal(size=(2000, 2)), rng.normal(size=2000))
    assert seen == [500]


def test_nearest_anchors_and_explain_use_the_learned_metric(data):
    X, y = data
    twin = TwinRegressor(Ridge(), anchors=NearestAnchors(6, metric="learned")).fit(X, y)
    distances = by_hand(X, fit_gaussian_process(X, y, random_state=0).length_scales)
    indices, _ = twin.predict_anchors(X)
    np.testing.assert_array_equal(indices, np.argsort(distances, axis=1)[:, :6])
    table = twin.explain(X[:5], n=3).query("anchor >= 0")
    np.testing.assert_allclose(
        table["distance"], np.sort(distances[:5], axis=1)[:, :3].ravel(), rtol=1e-6
    )


def test_explain_orders_by_the_learned_metric_with_any_anchors(data):
    X, y = data
    distances = by_hand(X, fit_gaussian_process(X, y, random_state=0).length_scales)
    everything = TwinRegressor(Ridge()).fit(X, y).explain(X[:5], n=3).query("anchor >= 0")
    np.testing.assert_array_equal(
        everything["anchor"], np.argsort(distances[:5], axis=1)[:, :3].ravel()
    )
    near = TwinRegressor(Ridge(), anchors=NearestAnchors(5, metric="manhattan")).fit(X, y)
    table = near.explain(X[:5], n=5)
    for query, rows in table.groupby("query"):
        np.testing.assert_allclose(rows["distance"], distances[query, rows["anchor"]], rtol=1e-6)
        assert (np.diff(rows["distance"]) >= 0).all()
    chosen = near.explain(X[:5], n=5, metric="chebyshev")
    gaps = np.abs(X[chosen["query"]] - X[chosen["anchor"]]).max(axis=1)
    np.testing.assert_allclose(chosen["distance"], gaps)


def test_nearest_pairs_use_the_learned_metric(data):
    X, y = data
    # the same pairs as on features divided by their length scales
    metric = learn_metric(X, y)
    pairs = NearestPairs(4, metric="learned").draw(
        len(X), lambda name: twinned.rows.neighbors.NeighborIndex(X, name, learned=metric), None
    )
    expected = NearestPairs(4).draw(
        len(X), lambda name: twinned.rows.neighbors.NeighborIndex(metric.transform(X), name), None
    )
    np.testing.assert_array_equal(pairs, expected)
    twin = TwinRegressor(Ridge(), pairs=NearestPairs(4, metric="learned")).fit(X, y)
    np.testing.assert_array_equal(twin.fitted_.anchors.metric.scale, metric.scale)


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        (("auto", "all", "uniform"), False),
        ((NearestPairs(3), NearestAnchors(3), "distance"), False),
        ((NearestPairs(3, metric="learned"), "all", "uniform"), True),
        (("auto", NearestAnchors(3, metric="learned"), "uniform"), True),
        ((16, "all", GPWeights()), True),
    ],
)
def test_where_the_metric_is_needed(strategies, expected):
    assert uses_learned_metric(*strategies) is expected


def test_a_fit_that_does_not_need_the_metric_does_not_learn_it(data, no_learning):
    X, y = data
    twin = TwinRegressor(Ridge(), anchors=NearestAnchors(4), weights="distance").fit(X, y)
    twin.predict(X, return_std=True)
    twin.explain(X[:2], metric="euclidean")
    with pytest.raises(AssertionError, match="a metric was learned"):
        twin.explain(X[:2])


def test_feature_relevance_is_the_slope_of_the_process(data):
    X, y = data
    process = fit_gaussian_process(X, y, random_state=0)
    slopes = np.empty(3)
    for feature in range(3):
        step = 1e-3 * UNITS[feature] * np.eye(3)[feature]
        above, below = process.predict(process.X + step), process.predict(process.X - step)
        slopes[feature] = np.sqrt(np.mean(((above - below) / 2e-3 / UNITS[feature]) ** 2))
    expected = slopes * X.std(axis=0)
    found = TwinRegressor(Ridge()).fit(X, y).feature_relevance_
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-3, atol=1e-5)


def test_feature_relevance_sums_to_one_and_ranks(data):
    X, y = data
    twin = TwinRegressor(Ridge()).fit(X, y)
    found = twin.feature_relevance_
    assert found.shape == (3,)
    assert found.sum() == pytest.approx(1)
    assert found[0] > found[1] > found[2]
    semi = SemiSupervisedTwinRegressor(TwinRegressor(Ridge())).fit(X, y)
    np.testing.assert_array_equal(semi.feature_relevance_, found)


def test_relevance_of_a_categorical_feature(rng):
    kind = rng.randint(0, 3, 80)
    table = pd.DataFrame(
        {"noise": rng.rand(80), "kind": pd.Categorical(np.array(["a", "b", "c"])[kind])}
    )
    y = np.array([0.0, 5.0, 1.0])[kind]
    twin = TwinRegressor(DecisionTreeRegressor(), anchors=NearestAnchors(5, metric="learned"))
    relevance = twin.fit(table, y).feature_relevance_
    assert relevance[1] > 0.9
    indices, _ = twin.predict_anchors(table)
    assert (kind[indices] == kind[:, None]).all()


def test_several_outputs_share_the_relevance(data):
    X, y = data
    both = np.column_stack([y, np.sin(X[:, 2] / 0.003)])
    twin = TwinRegressor(Ridge(), anchors=NearestAnchors(4, metric="learned")).fit(X, both)
    assert twin.feature_relevance_[2] > 0.1
    assert twin.predict(X).shape == both.shape


def test_added_anchors_keep_the_metric_of_the_fit(data):
    X, y = data
    twin = TwinRegressor(Ridge(), anchors=NearestAnchors(4, metric="learned")).fit(X[:40], y[:40])
    extended = twin.add_anchors(X[40:], y[40:])
    np.testing.assert_array_equal(extended.feature_relevance_, twin.feature_relevance_)
    indices, _ = extended.predict_anchors(X[40:])
    np.testing.assert_array_equal(indices[:, 0], np.arange(40, 70))


@pytest.mark.parametrize("options", [{"anchors": NearestAnchors(5, "learned")}, {}])
def test_save_and_load(options, data, tmp_path):
    X, y = data
    twin = TwinRegressor(DecisionTreeRegressor(), weights=GPWeights(), **options).fit(X, y)
    twinned.save(twin, tmp_path / "twin.twin")
    loaded = twinned.load(tmp_path / "twin.twin")
    np.testing.assert_array_equal(loaded.predict(X), twin.predict(X))
    np.testing.assert_array_equal(loaded.feature_relevance_, twin.feature_relevance_)
    pd.testing.assert_frame_equal(loaded.explain(X[:3]), twin.explain(X[:3]))


def test_gp_weights_are_inverse_variances_given_one_anchor(data):
    X, y = data
    twin = TwinRegressor(DecisionTreeRegressor(), weights=GPWeights()).fit(X[:50], y[:50])
    metric = twin.fitted_.anchors.metric
    scaled = X / metric.length_scales
    root = np.sqrt(5) * np.linalg.norm(scaled[50:, None] - scaled[None, :50], axis=2)
    k = (1 + root + root**2 / 3) * np.exp(-root)
    # the posterior variance of two jointly normal observations, written with matrices
    noisy = 1 + metric.noise
    variance = np.array(
        [[noisy - c * np.linalg.inv([[noisy]])[0, 0] * c for c in row] for row in k]
    )
    _, estimates = twin.predict_anchors(X[50:])
    expected = np.average(estimates, axis=1, weights=1 / variance)
    np.testing.assert_allclose(twin.predict(X[50:]), expected)
    table = twin.explain(X[50:52], n=50)
    assert table.groupby("query")["weight"].sum().tolist() == pytest.approx([1, 1])


def test_gp_weights_with_nearest_anchors_of_another_metric(data):
    X, y = data
    twin = TwinRegressor(Ridge(), anchors=NearestAnchors(5), weights=GPWeights()).fit(X, y)
    metric = twin.fitted_.anchors.metric
    queries = X[:6] + 0.01 * UNITS
    table = twin.explain(queries, n=5)
    gaps = (queries[table["query"]] - X[table["anchor"]]) / metric.length_scales
    table["process_distance"] = np.linalg.norm(gaps, axis=1)
    for _, rows in table.groupby("query"):
        assert (np.diff(rows["process_distance"]) >= 0).all()
        assert rows["weight"].iloc[0] > rows["weight"].iloc[-1]


def test_the_neural_twin(data):
    X, y = data
    near = NearestAnchors(5, metric="learned")
    options = {
        "n_members": 1,
        "training": NeuralTraining(n_folds=1, max_steps=20),
        "random_state": 0,
    }
    pairs = NearestPairs(4, "learned")
    twin = TwinNeuralRegressor((8,), anchors=near, pairs=pairs, **options).fit(X, y)
    assert np.isfinite(twin.predict(X)).all()
    expected = TwinRegressor(Ridge(), anchors=near).fit(X, y)
    np.testing.assert_allclose(twin.feature_relevance_, expected.feature_relevance_, rtol=0.05)
    first, second = (model.predict_anchors(X[:9])[0] for model in (twin, expected))
    assert np.mean(first == second) > 0.8


def test_missing_values_need_no_special_metric(data):
    X, y = data
    X = X.copy()
    X[::5, 1] = np.nan
    twin = TwinRegressor(DecisionTreeRegressor(), anchors=NearestAnchors(5, metric="learned"))
    assert np.isfinite(twin.fit(X, y).predict(X)).all()
