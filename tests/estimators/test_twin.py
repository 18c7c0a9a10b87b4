import pickle
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from threadpoolctl import threadpool_limits

from twinned import (
    AllAnchors,
    AutoTwinRegressor,
    NearestAnchors,
    NearestPairs,
    RandomAnchors,
    RandomPairs,
    TwinRegressor,
    load,
    save,
)
from twinned.datasets import make_tf
from twinned.exceptions import MemoryLimitError


@pytest.fixture
def data():
    X, y = make_tf(80, random_state=1)
    return X.to_numpy(), y.to_numpy()


def slow_twin(base, X, y, queries, *, symmetric, pairs=None):
    """Twin regression, one pair, one anchor and one query at a time."""
    pairs = pairs or [(i, j) for i in range(len(X)) for j in range(len(X))]

    def features(a, b):
        return np.concatenate([a, b, a - b])

    base = clone(base).fit(
        np.array([features(X[i], X[j]) for i, j in pairs]), [y[i] - y[j] for i, j in pairs]
    )

    def F(a, b):
        return base.predict(features(a, b)[None])[0]

    predictions = []
    for x in queries:
        estimates = [known + F(x, a) for a, known in zip(X, y, strict=True)]
        if symmetric:
            estimates += [known - F(a, x) for a, known in zip(X, y, strict=True)]
        predictions.append((np.mean(estimates), np.std(estimates)))
    return np.array(predictions).T


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    "base",
    [DecisionTreeRegressor(min_samples_leaf=3, random_state=0), Ridge(), KNeighborsRegressor(2)],
)
def test_equals_a_slow_twin_regression(data, base, symmetric):
    X, y = data[0][:15], data[1][:15]
    queries = data[0][15:19]
    twin = TwinRegressor(base, pairs="all", symmetric=symmetric).fit(X, y)
    mean, std = twin.predict(queries, return_std=True)
    slow_mean, slow_std = slow_twin(base, X, y, queries, symmetric=symmetric)
    np.testing.assert_allclose(mean, slow_mean, atol=1e-10)
    np.testing.assert_allclose(std, slow_std, atol=1e-10)
    assert twin.n_pairs_ == 225


def test_random_pairs_are_fixed_for_the_fit_and_mirrored(data):
    X, y = data
    twin = TwinRegressor(Ridge(), pairs=5, random_state=0).fit(X, y)
    assert twin.n_pairs_ == 2 * 5 * 80
    again = TwinRegressor(Ridge(), pairs=RandomPairs(5), random_state=0).fit(X, y)
    np.testing.assert_array_equal(twin.predict(X), again.predict(X))
    assert TwinRegressor(Ridge(), pairs=5, symmetric=False).fit(X, y).n_pairs_ == 5 * 80


def test_base_sees_first_second_difference(data):
    X, y = data
    seen = {}

    class Spy(LinearRegression):
        def fit(self, pairs, target):
            seen.update(pairs=pairs, target=target)
            return super().fit(pairs, target)

    TwinRegressor(Spy(), pairs=NearestPairs(2), symmetric=False).fit(X, y)
    pairs = seen["pairs"]
    first, second = pairs[:, :2], pairs[:, 2:4]
    np.testing.assert_array_equal(pairs[:, 4:], first - second)
    np.testing.assert_array_equal(first, np.repeat(X, 2, axis=0))
    known = {tuple(x): value for x, value in zip(X, y, strict=True)}
    expected = [known[tuple(a)] - known[tuple(b)] for a, b in zip(first, second, strict=True)]
    np.testing.assert_array_equal(seen["target"], expected)


def test_fit_does_not_change_its_arguments(data):
    base = DecisionTreeRegressor()
    TwinRegressor(base).fit(*data)
    assert not hasattr(base, "tree_")


def test_forest_in_float32_gives_the_same_trees(data):
    """Trees are fitted to pairs in float32, their own type: only the memory changes."""
    X, y = data
    twin = TwinRegressor(RandomForestRegressor(5, random_state=0)).fit(X, y)
    assert twin._pair_dtype == np.float32
    first, second = np.repeat(np.arange(80), 80), np.tile(np.arange(80), 80)
    pairs = np.hstack([X[first], X[second], X[first] - X[second]])
    forest = RandomForestRegressor(5, random_state=0).fit(pairs, y[first] - y[second])
    for ours, theirs in zip(twin.estimator_.estimators_, forest.estimators_, strict=True):
        np.testing.assert_array_equal(ours.tree_.threshold, theirs.tree_.threshold)
        np.testing.assert_array_equal(ours.tree_.value, theirs.tree_.value)


@pytest.mark.parametrize("base", [Ridge(), RandomForestRegressor(5, random_state=0)])
def test_float32_and_float64_agree(data, base):
    X, y = data
    wide = TwinRegressor(base).fit(X.astype(np.float32).astype(np.float64), y)
    narrow = TwinRegressor(base).fit(X.astype(np.float32), y)
    assert narrow._pair_dtype == np.float32
    queries = X[:10].astype(np.float32)
    np.testing.assert_allclose(wide.predict(queries), narrow.predict(queries), atol=1e-4)
    assert narrow.predict(queries).dtype == np.float64


# --- anchors --------------------------------------------------------------------------------------


def test_only_the_drawn_anchors_are_stored(data):
    X, y = data
    twin = TwinRegressor(Ridge(), anchors=RandomAnchors(7), random_state=3).fit(X, y)
    assert twin.anchors_X_.shape == (7, 2)
    np.testing.assert_array_equal(twin.anchors_X_, X[twin.anchor_rows_])
    np.testing.assert_array_equal(twin.anchors_y_, y[twin.anchor_rows_])
    indices, estimates = twin.predict_anchors(X[:3])
    assert indices.shape == estimates.shape == (3, 7)


def test_the_mean_of_anchor_estimates_is_the_prediction(data):
    X, y = data
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0), anchors=NearestAnchors(9))
    twin.fit(X[:60], y[:60])
    indices, estimates = twin.predict_anchors(X[60:])
    mean, std = twin.predict(X[60:], return_std=True)
    np.testing.assert_allclose(estimates.mean(axis=1), mean)
    # the standard deviation includes the disagreement of the two orders of a pair
    rows = np.repeat(np.arange(60, len(X)), 9)
    _, between = twin.predict_difference(X[rows], X[indices.ravel()], return_std=True)
    between = between.reshape(-1, 9)
    np.testing.assert_allclose(estimates.var(axis=1) + np.mean(between**2, axis=1), std**2)
    distances = np.linalg.norm(X[60:, None] - X[None, :60], axis=2)
    np.testing.assert_array_equal(np.sort(indices), np.sort(np.argsort(distances)[:, :9]))


def test_weights_of_a_callable_are_used(data):
    X, y = data
    shapes = []

    def first_anchor_only(distances, estimates, anchor_indices):
        shapes.append((distances.shape, estimates.shape))
        return (anchor_indices == 0).astype(float)

    twin = TwinRegressor(Ridge(), weights=first_anchor_only).fit(X, y)
    _, estimates = twin.predict_anchors(X[:5])
    np.testing.assert_allclose(twin.predict(X[:5]), estimates[:, 0])
    assert shapes[0] == ((5, 80), (5, 80))


def test_strategies_can_change_after_the_fit(data):
    """The trained model is the same, and parameters that are set after the fit are not used."""
    X, y = data
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(X, y)
    nearest = TwinRegressor(DecisionTreeRegressor(random_state=0), anchors=NearestAnchors(4))
    nearest.fit(X, y)
    other = twin.with_strategies(anchors=NearestAnchors(4))
    np.testing.assert_array_equal(other.predict(X), nearest.predict(X))
    expected = twin.predict(X)
    np.testing.assert_array_equal(twin.set_params(anchors=NearestAnchors(4)).predict(X), expected)


class ReversedAnchors(NearestAnchors):
    """All rows in reverse order."""

    def store(self, n_rows, rng):
        return np.arange(n_rows)[::-1]


def test_nearest_anchors_of_a_strategy_that_changes_the_order_of_rows(data):
    X, y = data
    twin = TwinRegressor(Ridge(), pairs=NearestPairs(3), anchors=ReversedAnchors(4)).fit(X, y)
    indices, _ = twin.predict_anchors(X[:5])
    np.testing.assert_array_equal(twin.anchors_X_[indices[:, 0]], X[:5])


@pytest.mark.parametrize("anchors", ["all", NearestAnchors(5)])
def test_added_anchors_change_only_the_new_twin(data, anchors):
    X, y = data
    base = DecisionTreeRegressor(max_depth=4, random_state=0)
    twin = TwinRegressor(base, anchors=anchors).fit(X[:50], y[:50])
    before = twin.predict(X[60:])
    richer = twin.add_anchors(X[50:60], y[50:60])
    assert richer.estimator_ is twin.estimator_
    np.testing.assert_array_equal(twin.predict(X[60:]), before)
    np.testing.assert_array_equal(richer.anchors_X_, X[:60])
    np.testing.assert_array_equal(richer.anchors_y_, y[:60])
    indices, estimates = richer.predict_anchors(X[60:])
    if anchors == "all":
        assert estimates.shape == (20, 60)
    else:
        distances = np.linalg.norm(X[60:, None] - X[None, :60], axis=2)
        np.testing.assert_array_equal(np.sort(indices), np.sort(np.argsort(distances)[:, :5]))
    np.testing.assert_allclose(richer.predict(X[60:]), estimates.mean(axis=1))


# --- sample weights -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base", [Ridge(), DecisionTreeRegressor(max_depth=3, random_state=0), KNeighborsRegressor(3)]
)
def test_integer_weights_equal_repetitions(data, base, rng):
    X, y = data[0][:30], data[1][:30]
    weight = rng.randint(0, 3, 30)
    weighted = TwinRegressor(base).fit(X, y, sample_weight=weight)
    repeated = TwinRegressor(base).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    queries = data[0][30:]
    for ours, theirs in zip(
        weighted.predict(queries, return_std=True),
        repeated.predict(queries, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    assert len(weighted.anchors_X_) == (weight > 0).sum()


def test_fractional_weights_reach_a_base_without_weights(data):
    """Rows of large weight dominate a twin of nearest neighbors."""
    X, y = data
    weight = np.where(np.arange(80) < 40, 1.7, 1e-9)
    twin = TwinRegressor(KNeighborsRegressor(1), random_state=0).fit(X, y, sample_weight=weight)
    light = TwinRegressor(KNeighborsRegressor(1)).fit(X[:40], y[:40])
    # only pairs of rows of large weight were drawn, so k = 1 gives the same prediction wherever
    # the nearest pair is among them
    agree = np.isclose(twin.predict(X[:40]), light.predict(X[:40]), atol=0.2)
    assert agree.mean() > 0.9


# --- memory ---------------------------------------------------------------------------------------


def test_too_many_pairs_raise_before_they_are_drawn(data):
    X, y = np.tile(data[0], (50, 1)), np.tile(data[1], 50)
    with pytest.raises(MemoryLimitError, match=r"16,000,000 pairs of 4,000 rows.*pairs=\d+"):
        TwinRegressor(Ridge(), pairs="all", memory_limit="100MB").fit(X, y)


def test_the_advice_of_the_memory_error_fits(data):
    X, y = np.tile(data[0], (10, 1)), np.tile(data[1], 10)
    twin = TwinRegressor(Ridge(), pairs="all", memory_limit="1MB")
    with pytest.raises(MemoryLimitError) as refusal:
        twin.fit(X, y)
    offered = int(str(refusal.value).split("pairs=")[1].split(" ")[0])
    twin.set_params(pairs=offered).fit(X, y)
    assert twin.n_pairs_ == 2 * 800 * offered
    with pytest.raises(MemoryLimitError):
        twin.set_params(pairs=offered + 1).fit(X, y)


def test_auto_fits_into_the_limit(data):
    X, y = np.tile(data[0], (10, 1)), np.tile(data[1], 10)
    twin = TwinRegressor(Ridge(), memory_limit="1MB").fit(X, y)
    assert 0 < twin.n_pairs_ * 6 * 8 < 1e6
    with pytest.raises(MemoryLimitError, match="larger limit"):
        TwinRegressor(Ridge(), memory_limit="10KB").fit(X, y)


def test_a_limit_below_one_pair_raises(data):
    twin = TwinRegressor(Ridge()).fit(*data)
    with pytest.raises(MemoryLimitError, match="single pair"):
        twin.set_params(memory_limit=20).predict(data[0])


# --- scikit-learn ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_grid_search_over_strategies_in_two_processes(data):
    search = GridSearchCV(
        TwinRegressor(Ridge(), anchors=NearestAnchors(3), pairs=RandomPairs(4), random_state=0),
        {"anchors__k": [1, 30], "pairs__per_point": [2, 8], "estimator__alpha": [0.1, 1.0]},
        n_jobs=2,
        cv=3,
    ).fit(*data)
    assert search.best_params_["anchors__k"] in (1, 30)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(set(search.cv_results_["mean_test_score"])) > 1


def test_in_a_pipeline_and_around_one(data):
    """Least squares does not depend on scaling, so all pipelines agree."""
    plain = cross_val_score(LinearRegression(), *data)
    around = make_pipeline(StandardScaler(), TwinRegressor(LinearRegression()))
    inside = TwinRegressor(make_pipeline(StandardScaler(), LinearRegression()))
    np.testing.assert_allclose(cross_val_score(around, *data), plain)
    np.testing.assert_allclose(cross_val_score(inside, *data), plain)


def test_metadata_routing_of_sample_weight(data):
    X, y = data
    weight = np.linspace(0.1, 2, 80)
    direct = TwinRegressor(Ridge()).fit(X, y, sample_weight=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        twin = TwinRegressor(Ridge()).set_fit_request(sample_weight=True)
        routed = make_pipeline(twin).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(routed.predict(X), direct.predict(X))


def test_several_outputs(data, monkeypatch):
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 20)
    X, y = data
    Y = np.column_stack([y, y**2])
    for base in (None, Ridge(), MultiOutputRegressor(Ridge())):
        twin = TwinRegressor(base).fit(X, Y)
        assert twin.predict(X).shape == (80, 2)
    single = TwinRegressor(Ridge()).fit(X, y)
    both = TwinRegressor(Ridge()).fit(X, Y)
    np.testing.assert_allclose(single.predict(X), both.predict(X)[:, 0], atol=1e-10)
    with pytest.raises(ValueError, match="MultiOutputRegressor"):
        TwinRegressor(HistGradientBoostingRegressor()).fit(X, Y)


def test_seed_reaches_a_base_without_one(data):
    first, second = (
        TwinRegressor(RandomForestRegressor(3), random_state=7).fit(*data).predict(data[0])
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    own = TwinRegressor(RandomForestRegressor(3, random_state=1), random_state=7).fit(*data)
    assert own.estimator_.random_state == 1


def test_predictions_do_not_depend_on_n_jobs(data):
    X, y = data
    one = TwinRegressor(RandomForestRegressor(10, random_state=0)).fit(X, y)
    two = clone(one).set_params(n_jobs=2).fit(X, y)
    for twin in (one, two):
        twin.set_params(memory_limit="40KB")  # several blocks, so that both threads have work
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert two.estimator_.n_jobs is None


def test_pickle_restores_the_neighbor_index(data):
    X, y = data
    twin = TwinRegressor(Ridge(), anchors=NearestAnchors(3)).fit(X, y)
    again = pickle.loads(pickle.dumps(twin))
    np.testing.assert_array_equal(twin.predict(X), again.predict(X))


def test_score_ignores_unlabelled_rows(data):
    X, y = data
    twin = TwinRegressor(Ridge()).fit(X, y)
    gaps = y.copy()
    gaps[::3] = np.nan
    known = ~np.isnan(gaps)
    assert twin.score(X, gaps) == twin.score(X[known], y[known])
    with pytest.raises(ValueError, match="all 80 are NaN"):
        twin.score(X, np.full(80, np.nan))


def test_a_base_estimator_that_overflows_raises(data):
    class Broken(DummyRegressor):
        def predict(self, X):
            return np.full(len(X), np.nan)

    twin = TwinRegressor(Broken()).fit(*data)
    with pytest.raises(ValueError, match="Broken predicted a difference of nan"):
        twin.predict(data[0])


@pytest.mark.parametrize("bad", [RandomForestRegressor, "forest", 3, StandardScaler()])
def test_a_base_estimator_that_is_no_regressor_raises(data, bad):
    with pytest.raises(TypeError, match="estimator must be"):
        TwinRegressor(bad).fit(*data)


def test_strategy_objects_equal_their_names(data):
    named = TwinRegressor(Ridge(), anchors="all").fit(*data)
    object_ = TwinRegressor(Ridge(), anchors=AllAnchors()).fit(*data)
    np.testing.assert_array_equal(named.predict(data[0]), object_.predict(data[0]))


# --- extreme scales, invalid strategies, failed fits ----------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("base", [None, DecisionTreeRegressor(random_state=0)])
def test_extreme_targets_are_fitted_and_saved(data, base, monkeypatch, tmp_path):
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 10)
    X, y = data[0][:40], data[1][:40]
    plain = TwinRegressor(base, random_state=0).fit(X, y).score(X, y)
    for scale in (1e-37, 1e-20, 1e-7, 1e20, 1e37):
        scaled = TwinRegressor(base, random_state=0).fit(X, y * scale)
        assert scaled.score(X, y * scale) == pytest.approx(plain, abs=1e-3)
        save(scaled, tmp_path / "a.twin")
        np.testing.assert_array_equal(load(tmp_path / "a.twin").predict(X), scaled.predict(X))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-37, 1e37])
def test_blends_of_extreme_scales_are_saved(data, scale, tmp_path):
    X, y = data[0][:40], data[1][:40]
    blend = AutoTwinRegressor(members=["ridge", "gp_matern"], cv=2, random_state=0)
    plain = blend.fit(X, y).score(X, y)
    assert blend.fit(X * scale, y).score(X * scale, y) == pytest.approx(plain, abs=0.01)
    assert blend.fit(X, y * scale).score(X, y * scale) == pytest.approx(plain, abs=0.01)
    save(blend, tmp_path / "a.twin")
    np.testing.assert_allclose(load(tmp_path / "a.twin").predict(X), blend.predict(X))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "estimator",
    [TwinRegressor(), AutoTwinRegressor(members=["gp_matern"])],
    ids=["twin", "blend"],
)
def test_scales_that_cannot_be_saved_are_refused(data, estimator):
    X, y = data
    for rows, target in [(X, y * 1e-300), (X, y * 1e100), (X * 1e-150, y)]:
        with pytest.raises(ValueError, match=r"rescale it\.$"):
            estimator.fit(rows, target)


@pytest.mark.parametrize("base", [None, KNeighborsRegressor(3)])
def test_the_scale_of_weights_does_not_matter(data, base, monkeypatch):
    """The weight of a pair is a product; only ratios of weights count."""
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 10)
    X, y = data[0][:40], data[1][:40]
    plain = TwinRegressor(base, random_state=0).fit(X, y).score(X, y)
    for scale in (1e-170, 1e-20, 1e19):
        weighted = TwinRegressor(base, random_state=0).fit(X, y, sample_weight=np.full(40, scale))
        assert weighted.score(X, y) == pytest.approx(plain, abs=0.02)


def test_constant_integer_weights_repeat_no_pairs(data):
    X, y = data
    twin = TwinRegressor(KNeighborsRegressor(5)).fit(X, y, sample_weight=np.full(80, 7))
    assert twin.n_pairs_ == 80**2


def test_partner_pairs_of_sorted_rows_have_both_signs():
    """With rows sorted by y, one order per pair would give differences of one sign."""
    rng = np.random.RandomState(1)
    X = np.sort(rng.rand(200, 1), axis=0)
    queries = rng.rand(100, 1)
    twin = TwinRegressor(
        DecisionTreeRegressor(random_state=0),
        pairs=RandomPairs(8, partner_pairs=True),
        symmetric=False,
        random_state=0,
    ).fit(X, 10 * X[:, 0])
    assert np.abs(twin.predict(queries) - 10 * queries[:, 0]).max() < 0.5


def test_added_anchors_have_no_training_row(data):
    X, y = data
    twin = TwinRegressor(Ridge()).fit(X[:50], y[:50]).add_anchors(X[50:], y[50:])
    np.testing.assert_array_equal(twin.anchor_rows_, [*range(50), *[-1] * 30])


def test_a_failed_fit_restores_the_fitted_model(data):
    X, y = data
    twin = TwinRegressor(Ridge()).fit(X, y)
    before = twin.predict(X)
    for bad in ({"X": X[:, :1], "y": y[:-1]}, {"X": X[:, ::-1], "y": y * np.nan}):
        with pytest.raises(ValueError):
            twin.fit(**bad)
        np.testing.assert_array_equal(twin.predict(X), before)
        assert twin.n_features_in_ == 2


class OddPairs:
    both_orders = True

    def __init__(self, first, second):
        self.first, self.second = first, second

    def count(self, n_rows):
        return len(self.first)

    def draw(self, n_rows, index, rng):
        return np.array(self.first), np.array(self.second)


@pytest.mark.parametrize(
    ("first", "second"),
    [([0, 1, 2], [0, 1]), ([0, -1], [1, 2]), ([0, 80], [1, 2]), ([0.5], [1.0]), ([], [])],
)
def test_invalid_pairs_of_a_strategy_raise(data, first, second):
    with pytest.raises((ValueError, TypeError), match="pair strategy"):
        TwinRegressor(Ridge(), pairs=OddPairs(first, second)).fit(*data)


def test_more_pairs_than_the_count_of_a_strategy_raise(data):
    strategy = OddPairs([0, 1, 2], [1, 2, 3])
    strategy.count = lambda n_rows: 2
    with pytest.raises(
        ValueError, match=r"drew 3 first and 3 second rows; .* at most its count, 2"
    ):
        TwinRegressor(Ridge(), pairs=strategy).fit(*data)


def test_a_column_vector_keeps_its_shape_without_a_warning(data, recwarn):
    X, y = data
    twin = TwinRegressor(RandomForestRegressor(3, random_state=0)).fit(X, y[:, None])
    assert twin.predict(X).shape == (80, 1)
    flat = TwinRegressor(RandomForestRegressor(3, random_state=0)).fit(X, y)
    np.testing.assert_array_equal(twin.predict(X)[:, 0], flat.predict(X))
    assert not [w for w in recwarn if "column-vector" in str(w.message)]


def test_weights_with_a_wrapped_base_estimator_without_weights(data):
    X, y = data
    twin = TwinRegressor(MultiOutputRegressor(KNeighborsRegressor(2)), random_state=0)
    twin.fit(X, np.column_stack([y, y]), sample_weight=np.linspace(0.5, 1, 80))
    assert twin.predict(X).shape == (80, 2)


def test_huge_anchor_weights_do_not_overflow(data):
    X, y = data
    uniform = TwinRegressor(Ridge()).fit(X, y)
    for value in (1e308, 1e-300):
        twin = TwinRegressor(Ridge(), weights=lambda d, e, i, v=value: np.full(i.shape, v))
        np.testing.assert_allclose(twin.fit(X, y).predict(X), uniform.predict(X))


def test_a_missing_value_does_not_change_other_queries(data):
    X, y = data[0] + 1e6, data[1]
    twin = TwinRegressor(HistGradientBoostingRegressor(max_iter=5), weights="distance").fit(X, y)
    with_gap = np.vstack([X[:10], [[np.nan, 1e6]], [[np.nan, np.nan]]])
    np.testing.assert_array_equal(twin.predict(with_gap)[:10], twin.predict(X[:10]))
    assert np.isfinite(twin.predict(with_gap)).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_predict_is_the_mean_of_the_members(data, symmetric):
    X, y = data
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=6), symmetric=symmetric)
    twin.fit(X[:60], y[:60])
    members = twin.predict_members(X[60:])
    assert members.shape == (2 if symmetric else 1, 20)
    np.testing.assert_allclose(members.mean(axis=0), twin.predict(X[60:]), rtol=1e-12)


def test_the_standard_deviation_of_a_difference_needs_no_symmetric_twin(data):
    X, y = data
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=6), symmetric=False).fit(X[:60], y[:60])
    forward, std = twin.predict_difference(X[60:], X[:20], return_std=True)
    backward = twin.predict_difference(X[:20], X[60:])
    np.testing.assert_allclose(std, np.abs(forward + backward) / 2, atol=1e-12)
    np.testing.assert_array_equal(forward, twin.predict_difference(X[60:], X[:20]))


def test_a_search_over_a_forest_uses_float32_and_the_fast_path(data, monkeypatch):
    X, y = data
    forest = RandomForestRegressor(4, max_depth=6, random_state=0)
    plain = TwinRegressor(forest).fit(X, y)
    searched = TwinRegressor(GridSearchCV(forest, {"max_depth": [6]}, cv=2)).fit(X, y)
    assert searched._pair_dtype == plain._pair_dtype == np.float32
    monkeypatch.setattr("twinned.models.trees.predictor.MIN_WORK", 0)
    expected = plain.predict(X)
    monkeypatch.setattr(GridSearchCV, "predict", None)  # which the fast path does not call
    np.testing.assert_allclose(searched.predict(X), expected, rtol=1e-12)


class CountsOpenMPThreads(LinearRegression):
    """Stores the OpenMP threads that `predict` could use."""

    threads: ClassVar[set[int]] = set()

    def predict(self, X):
        self.threads.add(_openmp_effective_n_threads())
        return super().predict(X)


def test_parallel_blocks_use_one_openmp_thread_each(data):
    X, y = data
    twin = TwinRegressor(CountsOpenMPThreads(), memory_limit="300KB", n_jobs=2)
    with threadpool_limits(4, user_api="openmp"):
        twin.fit(X, y)
        CountsOpenMPThreads.threads.clear()
        twin.predict(np.tile(X, (20, 1)))
    assert CountsOpenMPThreads.threads == {1}


def test_groups_reach_the_folds_of_a_search(data, monkeypatch):
    X, y = data
    groups = np.repeat([0, 1, 2, 3], 20)
    folds = []
    original = GridSearchCV.fit

    def fit(self, X, y):
        folds.extend(self.cv)
        return original(self, X, y)

    monkeypatch.setattr(GridSearchCV, "fit", fit)
    search = GridSearchCV(Ridge(), {"alpha": [0.1, 10.0]}, cv=GroupKFold(4))
    TwinRegressor(search, pairs="all").fit(X, y, groups=groups)
    assert len(folds) == 4
    first = np.repeat(np.arange(80), 80)
    for (train, test), group in zip(folds, [3, 2, 1, 0], strict=True):
        held_out = set(first[test]) - set(first[train])
        assert len({groups[row] for row in held_out}) == 1, group


@pytest.mark.parametrize(
    "estimator", [TwinRegressor(Ridge()), AutoTwinRegressor(members=["ridge"])], ids=str
)
def test_wrong_groups_raise(estimator, data):
    X, y = data
    with pytest.raises(ValueError, match="All rows are in one group"):
        estimator.fit(X, y, groups=np.zeros(80))
    with pytest.raises(ValueError, match="one label for each of the 80 rows"):
        estimator.fit(X, y, groups=np.arange(79))


def test_a_fitted_search_has_the_folds_of_the_user(data):
    X, y = data
    twin = TwinRegressor(GridSearchCV(Ridge(), {"alpha": [0.1, 10.0]}, cv=3)).fit(X, y)
    assert twin.estimator_.cv == 3
    assert len(pickle.dumps(twin)) < 20_000  # not the indices of 6,400 pairs


def test_verbose_prints_the_pairs_and_the_time(data, capsys):
    X, y = data
    TwinRegressor(Ridge(), verbose=1).fit(X, y)
    assert "6,400 pairs fitted in" in capsys.readouterr().out


@pytest.mark.parametrize("fast", [False, True])
def test_predictions_that_are_not_finite_raise(fast, rng):
    X = rng.normal(size=(20, 2))
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(X, 1e3 * X[:, 0])
    fitted = twin.fitted_
    twin = twin.with_fitted(replace(fitted, model=replace(fitted.model, unit=1e307)))
    if fast:
        twin.prepare_fast_path()
    with pytest.raises(ValueError, match=r"prediction of row 0 is .*check the scale"):
        twin.predict(X[:3] + 5)


# --- effort ---


@pytest.fixture
def few_pairs(monkeypatch):
    """As many pairs per row, however few rows there are, and few trees."""
    monkeypatch.setattr("twinned.models.base_estimator._LEAST_ROWS", 0)
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 10)


@pytest.mark.parametrize("cv", [None, 0])
@pytest.mark.parametrize(("noise", "is_thorough"), [(0.0, True), (1.0, False)])
def test_pairs_and_trees_follow_the_noise(cv, noise, is_thorough, few_pairs, rng):
    X = rng.uniform(size=(100, 2))
    y = X[:, 0] + noise * rng.normal(size=100)
    twin = TwinRegressor(cv=cv, random_state=0).fit(X, y)
    assert twin.n_pairs_ == (100 * 99 // 2 if is_thorough else 100 * 40)
    # the choice does not depend on the unit of y, nor on a further output like the first one
    for other in (1e6 * y, np.column_stack([y, -y])):
        assert TwinRegressor(cv=cv, random_state=0).fit(X, other).n_pairs_ == twin.n_pairs_


@pytest.mark.parametrize(
    ("effort", "n_pairs", "bins"),
    [("small", 2000, 63), ("fast", 4000, 63), ("thorough", 4950, 255)],
)
def test_an_effort_is_not_chosen_by_the_noise(effort, n_pairs, bins, few_pairs, rng):
    X = rng.uniform(size=(100, 2))
    for y in (X[:, 0], rng.normal(size=100)):
        twin = TwinRegressor(effort=effort, random_state=0).fit(X, y)
        assert (twin.n_pairs_, twin.estimator_.max_bins) == (n_pairs, bins)


def test_an_unknown_effort_raises():
    with pytest.raises(ValueError, match="effort must be one of 'small', 'fast', 'balanced'"):
        TwinRegressor(effort="slow").fit(np.zeros((3, 1)), np.arange(3.0))
