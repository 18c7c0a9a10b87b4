"""Predictions of the kernel, compared with the estimator's own predictions of built pairs."""

import copy
import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor

from twinned import NearestAnchors, RandomAnchors, TwinRegressor, load, save
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.models.trees import packing, predictor
from twinned.models.trees.predictor import AnchoredTrees
from twinned.models.trees.reader import FLOAT32, FLOAT64, Tree, TreeEnsemble
from twinned.pairing.differences import PairFeatures
from twinned.rows.schema import TableSchema


@pytest.fixture
def choose_kernel(monkeypatch):
    """Switch the kernel on or off; `used` lists the trees that were predicted with it."""
    used = []
    sum_leaves = AnchoredTrees._sum_leaves

    def recorded(self, *args, **kwargs):
        used.append(self)
        return sum_leaves(self, *args, **kwargs)

    def choose(kernel):
        used.clear()
        monkeypatch.setattr(predictor, "MIN_WORK", 0 if kernel else 2**62)
        monkeypatch.setattr(predictor, "_PAIRS_PER_NODE", 0)

    monkeypatch.setattr(AnchoredTrees, "_sum_leaves", recorded)
    choose.used = used
    return choose


def all_predictions(twin, queries):
    indices, estimates = twin.predict_anchors(queries)
    explained = twin.explain(queries, 3, metric="euclidean")
    return (
        twin.predict(queries),
        *twin.predict(queries, return_std=True),
        indices,
        estimates,
        explained["estimate"].to_numpy(),
    )


def check_same(twin, queries, choose_kernel):
    """The kernel is used, and predicts the same as building pairs."""
    choose_kernel(False)
    expected = all_predictions(twin, queries)
    assert not choose_kernel.used
    choose_kernel(True)
    found = all_predictions(twin, queries)
    assert len(choose_kernel.used) >= 4
    spread = np.ptp(twin.anchors_y_) or 1.0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * spread)


def tenths(rng, shape, missing=False):
    """Numbers with tied differences, which float32 and float64 round differently."""
    X = rng.randint(-8, 9, shape) / 10
    if missing:
        X[rng.uniform(size=shape) < 0.2] = np.nan
    return X


def problem(rng, n=40, missing=False, n_outputs=1):
    X = tenths(rng, (n, 3), missing)
    known = np.nan_to_num(X)
    y = known[:, 0] * known[:, 1] + known[:, 2] + 0.05 * rng.normal(size=n)
    if n_outputs > 1:
        y = np.column_stack([y, known[:, 2] - 2 * y])
    # queries equal to anchors and others, some missing even where anchors are not
    return X, y, np.vstack([X[:8], tenths(rng, (10, 3), missing)])


BASES = {
    "tree": DecisionTreeRegressor(min_samples_leaf=2, random_state=0),
    "grown forest": RandomForestRegressor(6, random_state=0),
    "extra trees": ExtraTreesRegressor(6, min_samples_leaf=2, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=6, max_depth=4, random_state=0),
    "histograms": HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=3),
}


def lightgbm_base(**options):
    lightgbm = pytest.importorskip("lightgbm", reason="the extra 'boost' is not installed")
    return lightgbm.LGBMRegressor(
        n_estimators=15, min_child_samples=3, n_jobs=1, verbose=-1, **options
    )


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", ["concat", "difference", "concat+difference"])
@pytest.mark.parametrize("name", BASES)
def test_estimators_and_pair_features(name, kind, symmetric, rng, choose_kernel):
    X, y, queries = problem(rng)
    twin = TwinRegressor(BASES[name], pair_features=kind, symmetric=symmetric).fit(X, y)
    check_same(twin, queries, choose_kernel)


@pytest.mark.parametrize("name", ["tree", "grown forest", "extra trees", "histograms"])
def test_missing_values(name, rng, choose_kernel):
    X, y, queries = problem(rng, missing=True)
    check_same(TwinRegressor(BASES[name]).fit(X, y), queries, choose_kernel)
    # missing in queries alone
    X, y, _ = problem(rng)
    check_same(TwinRegressor(BASES[name]).fit(X, y), queries, choose_kernel)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("symmetric", [True, False])
def test_lightgbm(symmetric, missing, rng, choose_kernel):
    X, y, queries = problem(rng, missing=missing)
    twin = TwinRegressor(lightgbm_base(), symmetric=symmetric).fit(X, y)
    check_same(twin, queries, choose_kernel)


def test_lightgbm_for_several_outputs(rng, choose_kernel):
    X, y, queries = problem(rng, n_outputs=2)
    twin = TwinRegressor(MultiOutputRegressor(lightgbm_base())).fit(X, y)
    check_same(twin, queries, choose_kernel)


@pytest.mark.parametrize(
    "base",
    [
        RandomForestRegressor(5, random_state=0),
        MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=8)),
    ],
    ids=str,
)
def test_several_outputs(base, rng, choose_kernel):
    X, y, queries = problem(rng, n_outputs=2)
    for anchors in ("all", NearestAnchors(7)):
        check_same(TwinRegressor(base, anchors=anchors).fit(X, y), queries, choose_kernel)


@pytest.mark.parametrize("weights", ["uniform", "distance", lambda d, e, i: 1 / (1 + d + e**2)])
@pytest.mark.parametrize("anchors", ["all", NearestAnchors(1), NearestAnchors(9)])
def test_anchors_and_weights(anchors, weights, rng, choose_kernel):
    X, y, queries = problem(rng)
    base = BASES["histograms"]
    check_same(
        TwinRegressor(base, anchors=anchors, weights=weights).fit(X, y), queries, choose_kernel
    )
    weight = rng.randint(0, 3, len(X))
    twin = TwinRegressor(base, anchors=anchors, weights=weights)
    check_same(twin.fit(X, y, sample_weight=weight), queries, choose_kernel)


@pytest.mark.parametrize("name", ["grown forest", "histograms"])
def test_categorical_features(name, rng, choose_kernel):
    """Categories enter as indicators and as equality; some are missing, some unknown."""
    colors = np.array(["red", "green", "blue", "grey"])
    table = pd.DataFrame(
        {
            "size": tenths(rng, 60),
            "color": pd.Categorical(colors[rng.randint(0, 3, 60)]),
            "city": pd.Categorical(rng.randint(0, 9, 60).astype(str)),
        }
    )
    y = table["size"].to_numpy() + (table["color"] == "red") + 0.1 * rng.normal(size=60)
    table.loc[::7, "color"] = None
    queries = table.iloc[:20].assign(
        color=pd.Categorical(np.append(colors[rng.randint(0, 4, 19)], None)), size=0.3
    )
    for kind in ("concat+difference", "difference"):
        twin = TwinRegressor(BASES[name], pair_features=kind).fit(table, y)
        with pytest.warns(UserWarning, match="grey"):
            check_same(twin, queries, choose_kernel)


@pytest.mark.parametrize("name", ["grown forest", "histograms"])
def test_one_anchor_duplicates_and_constants(name, rng, choose_kernel):
    X, y, queries = problem(rng)
    X[:, 1] = 0.7
    queries[:, 1] = 0.7
    X[10:20] = X[9]
    check_same(TwinRegressor(BASES[name]).fit(X, y), queries, choose_kernel)
    check_same(
        TwinRegressor(BASES[name], anchors=RandomAnchors(1)).fit(X, y), queries, choose_kernel
    )
    constant = np.full((30, 2), 0.1)
    check_same(TwinRegressor(BASES[name]).fit(constant, y[:30]), constant[:2], choose_kernel)


@pytest.mark.parametrize("name", BASES)
def test_float32_input(name, rng, choose_kernel):
    X, y, queries = problem(rng)
    twin = TwinRegressor(BASES[name]).fit(X.astype(np.float32), y)
    assert twin._pair_dtype == np.float32
    check_same(twin, queries.astype(np.float32), choose_kernel)
    check_same(clone(twin).fit(X.astype(np.float32), y), queries, choose_kernel)


@pytest.mark.parametrize("scale", [1e-12, 1e15])
def test_extreme_targets(scale, rng, choose_kernel):
    X, y, queries = problem(rng)
    twin = TwinRegressor(BASES["histograms"]).fit(X, scale * y)
    assert twin.difference_model_.unit != 1
    check_same(twin, queries, choose_kernel)


def test_more_anchors_than_a_mask_has_bits_and_several_groups(rng, choose_kernel, monkeypatch):
    X, y, queries = problem(rng, n=2300)
    queries = queries[4:12]
    twin = TwinRegressor(BASES["extra trees"], pairs=2, random_state=0).fit(X, y)
    check_same(twin, queries, choose_kernel)
    assert len(choose_kernel.used[-1].packed) == 1
    monkeypatch.setattr(packing, "GROUP_NODES", 3000)
    nearest = clone(twin).set_params(anchors=NearestAnchors(150)).fit(X, y)
    check_same(nearest, queries, choose_kernel)
    assert len(choose_kernel.used[-1].packed) > 1


def test_unevenly_distributed_values(rng, choose_kernel):
    """The grid gives a wrong first guess where most values are close together."""
    X = np.exp(6 * rng.normal(size=(400, 2)))
    y = np.log(X[:, 0]) + rng.normal(size=400)
    queries = np.vstack([X[:10], np.exp(6 * rng.normal(size=(10, 2)))])
    for base in (BASES["extra trees"], BASES["histograms"]):
        check_same(TwinRegressor(base, pairs=4, random_state=0).fit(X, y), queries, choose_kernel)


@pytest.mark.parametrize("name", ["histograms", "grown forest"])
def test_distinct_splits_evaluated_beforehand_or_node_by_node(
    name, rng, choose_kernel, monkeypatch
):
    X, y, queries = problem(rng)
    choose_kernel(True)
    monkeypatch.setattr(packing, "_SPLITS_PER_NODE", 2)
    found = []
    for reached in (0, 10**6):
        monkeypatch.setattr(packing, "_REACHED_NODES", reached)
        twin = TwinRegressor(BASES[name], random_state=0).fit(X, y)
        found.append(twin.predict(queries, return_std=True))
        assert (len(choose_kernel.used[-1].packed[0].split_id) > 0) == (reached > 0)
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-14)


def test_threads_do_not_change_predictions(rng, choose_kernel):
    X, y, _ = problem(rng)
    queries = tenths(rng, (100, 3))
    choose_kernel(True)
    twin = TwinRegressor(BASES["histograms"]).fit(X, y)
    one = twin.predict(queries, return_std=True)
    three = twin.set_params(n_jobs=3).predict(queries, return_std=True)
    np.testing.assert_array_equal(one, three)


def test_saved_pickled_cloned_and_extended_twins(rng, choose_kernel, tmp_path):
    X, y, queries = problem(rng)
    choose_kernel(True)
    twin = TwinRegressor(BASES["histograms"]).fit(X, y)
    expected = twin.predict(queries)
    assert choose_kernel.used
    save(twin, tmp_path / "model.twin")
    pickled = pickle.dumps(twin)
    assert b"AnchoredTrees" not in pickled  # what follows from the model is not stored
    again = pickle.loads(pickled)
    for other in (again, load(tmp_path / "model.twin"), copy.deepcopy(twin)):
        np.testing.assert_array_equal(other.predict(queries), expected)
    richer = twin.add_anchors(X[:5] + 0.3, y[:5])
    check_same(richer, queries, choose_kernel)
    choose_kernel(True)
    np.testing.assert_array_equal(twin.predict(queries), expected)
    nearest = twin.with_strategies(anchors=NearestAnchors(4))
    check_same(pickle.loads(pickle.dumps(nearest)), queries, choose_kernel)


def test_trees_of_a_replaced_estimator_are_read_again(rng, choose_kernel):
    X, y, queries = problem(rng)
    choose_kernel(True)
    twin = TwinRegressor(BASES["histograms"]).fit(X, y)
    twin.predict(queries)
    other = TwinRegressor(BASES["histograms"]).fit(X, 2 * y).estimator_
    model = dataclasses.replace(twin.difference_model_, estimator=other)
    twin = twin.with_fitted(dataclasses.replace(twin.fitted_, model=model))
    found = twin.predict(queries)
    choose_kernel(False)
    np.testing.assert_allclose(found, twin.predict(queries), atol=1e-12)


def test_pairs_are_built_for_little_work_and_for_callable_features(rng, choose_kernel):
    X, y, queries = problem(rng)
    TwinRegressor(BASES["histograms"]).fit(X, y).predict(queries)
    assert not choose_kernel.used
    choose_kernel(True)
    TwinRegressor(BASES["tree"], pair_features=lambda a, b: a - b).fit(X, y).predict(queries)
    assert not choose_kernel.used


def test_a_grid_search_uses_the_kernel(rng, choose_kernel):
    X, y, queries = problem(rng)
    search = GridSearchCV(BASES["tree"], {"max_depth": [2, 4]}, cv=2)
    check_same(TwinRegressor(search).fit(X, y), queries, choose_kernel)


def test_stored_trees_and_masks_stay_within_cache_bytes(rng):
    X, y, queries = problem(rng, n=2300)
    schema = TableSchema.all_numeric(3)
    anchors, rows = schema.to_rows(X), schema.to_rows(queries)
    features = PairFeatures("difference", schema, FLOAT64)
    estimator = BASES["tree"].fit(features.build(anchors, anchors), y)

    def after_two_calls(cache_bytes):
        model = SklearnDifferenceModel(
            estimator, features, 1.0, True, memory_limit=max(1, 3 * cache_bytes)
        )
        trees = model.trees_at(anchors, y)
        calls = [trees.differences(rows, None, n_jobs=None) for _ in range(2)]
        np.testing.assert_array_equal(*calls)
        assert trees.cached_bytes <= cache_bytes
        return trees, calls[0]

    both, expected = after_two_calls(10**9)
    assert both.packed is not None
    assert both.masks is not None
    packed_bytes = sum(part.nbytes for part in both.packed)
    for cache_bytes in (0, packed_bytes - 1, packed_bytes, both.cached_bytes - 1):
        trees, found = after_two_calls(cache_bytes)
        np.testing.assert_array_equal(found, expected)
        assert (trees.packed is not None) == (cache_bytes >= packed_bytes)
        assert trees.masks is None
    assert after_two_calls(both.cached_bytes)[0].masks is not None


# --- random trees and data ------------------------------------------------------------------------


@st.composite
def random_trees(draw):
    """Trees of any shape, the thresholds of which are values of pair features, and the data."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.RandomState(seed)
    n_anchors, n_features = draw(st.integers(1, 70)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["concat", "difference", "concat+difference"]))
    missing = draw(st.booleans())
    points = [tenths(rng, (n, n_features), missing) for n in (n_anchors, 5)]
    value_type, pair_type = (draw(st.sampled_from([FLOAT32, FLOAT64])) for _ in range(2))
    features = PairFeatures(kind, TableSchema.all_numeric(n_features), pair_type)
    columns = TableSchema.all_numeric(n_features)
    anchors, queries = (columns.to_rows(part) for part in points)
    forward = features.build(queries.take(np.s_[:, None]), anchors.take(None))
    backward = features.build(anchors.take(None), queries.take(np.s_[:, None]))
    seen = np.concatenate([forward, backward]).reshape(-1, features.width).astype(np.float64)
    trees = [
        random_tree(rng, seen, draw(st.integers(1, 60)), draw(st.integers(1, 2)) == 2)
        for _ in range(draw(st.integers(1, 3)))
    ]
    ensemble = TreeEnsemble(trees, rng.normal(size=1), value_type)
    return ensemble, features, anchors, queries, forward, backward


def random_tree(rng, seen, n_leaves, lopsided):
    feature, threshold, left, right = [0], [0.0], [-1], [-1]
    leaves = [0]
    for _ in range(n_leaves - 1):
        node = leaves.pop(-1 if lopsided else rng.randint(len(leaves)))
        feature[node] = rng.randint(seen.shape[1])
        values = seen[:, feature[node]]
        values = values[~np.isnan(values)]
        threshold[node] = rng.choice(values) if len(values) else 0.0
        left[node], right[node] = len(left), len(left) + 1
        leaves += [left[node], right[node]]
        feature, threshold = [*feature, 0, 0], [*threshold, 0.0, 0.0]
        left, right = [*left, -1, -1], [*right, -1, -1]
    return Tree(
        np.array(feature),
        np.array(threshold),
        np.array(left),
        np.array(right),
        rng.uniform(size=len(left)) < 0.5,
        rng.normal(size=(len(left), 1)),
        0.5,
        0,
    )


def predict_pairs(trees, pairs):
    """(n_pairs,): the sum of the trees, all pairs one level at a time."""
    pairs = pairs.astype(trees.value_type).astype(np.float64)
    total = np.full(len(pairs), trees.offset[0])
    for tree in trees.trees:
        node = np.zeros(len(pairs), dtype=int)
        while (tree.left[node] >= 0).any():
            value, threshold = (
                pairs[np.arange(len(pairs)), tree.feature[node]],
                tree.threshold[node],
            )
            goes_left = value <= threshold
            goes_left = np.where(np.isnan(value), tree.missing_left[node], goes_left)
            following = np.where(goes_left, tree.left[node], tree.right[node])
            node = np.where(tree.left[node] >= 0, following, node)
        total = total + tree.scale * tree.value[node, 0]
    return total


@settings(max_examples=100)
@given(drawn=random_trees(), symmetric=st.booleans(), seed=st.integers(0, 99))
def test_any_tree_and_data(drawn, symmetric, seed):
    check_random_trees(*drawn, symmetric, seed)


def check_random_trees(trees, features, anchors, queries, forward, backward, symmetric, seed):
    shape, width = forward.shape[:2], features.width
    expected = predict_pairs(trees, forward.reshape(-1, width)).reshape(shape)
    if symmetric:
        expected = [expected, -predict_pairs(trees, backward.reshape(-1, width)).reshape(shape)]
    expected = np.array(expected).reshape(-1, *shape)
    anchors_y = np.random.RandomState(seed).normal(size=(len(anchors), 1))
    anchored = AnchoredTrees(
        trees, features, anchors, anchors_y, 4.0, symmetric=symmetric, cache_bytes=10**9
    )
    found = anchored.differences(queries, None, n_jobs=None)
    assert found.shape == (1 + symmetric, *shape, 1)
    np.testing.assert_allclose(found[..., 0], 4 * expected, atol=1e-12)
    mean, variance = anchored.moments(queries, None, variance=False, n_jobs=None)
    estimates = 4 * expected.mean(axis=0) + anchors_y[:, 0]
    np.testing.assert_allclose(mean[:, 0], estimates.mean(axis=1), atol=1e-12)
    assert variance is None
    np.testing.assert_allclose(counted_mean(anchored, queries), mean, atol=1e-12)
    rng = np.random.RandomState(seed)
    k = rng.randint(1, len(anchors) + 1)
    subset = np.array([rng.permutation(len(anchors))[:k] for _ in range(len(queries))])
    found = anchored.differences(queries, subset, n_jobs=None)[..., 0]
    expected = np.take_along_axis(expected, subset[None], axis=2)
    np.testing.assert_allclose(found, 4 * expected, atol=1e-12)


def counted_mean(anchored, queries):
    """The mean of the kernel that counts anchors, if it takes these trees; queries are repeated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_SPLITS_PER_NODE", 2)
        patch.setattr(packing, "_REACHED_NODES", 10**6)
        anchored.packed = None
        anchored.pack_now()
    repeated = queries.take(np.repeat(np.arange(len(queries)), 2))
    mean, _ = anchored.moments(repeated, None, variance=False, n_jobs=None)
    packed = anchored.packed[0]
    n_inner = np.maximum(np.diff(packed.roots, append=len(packed.nodes)) // 2, 1)
    assert len(packed.inner_nodes) == (packed.nodes[:, 0] >= 0).any() * n_inner.sum()
    np.testing.assert_array_equal(mean[::2], mean[1::2])
    return mean[::2]


@pytest.mark.parametrize("n_anchors", [511, 512, 513])
def test_masks_of_half_their_words(n_anchors, rng, choose_kernel):
    X = tenths(rng, (n_anchors, 3))
    twin = TwinRegressor(BASES["histograms"], pairs=4, random_state=0).fit(X, X.sum(axis=1))
    choose_kernel(False)
    expected = twin.predict(X[:9])
    choose_kernel(True)
    np.testing.assert_allclose(twin.predict(X[:9]), expected, atol=1e-9)
    assert len(choose_kernel.used[-1].packed[0].inner_nodes)


@pytest.mark.parametrize("n_leaves", [1, 256, 257])
def test_trees_of_any_size_are_counted_or_descended(n_leaves, rng, monkeypatch):
    """256 leaves are the most that the kernel that counts anchors takes."""
    monkeypatch.setattr(packing, "_SPLITS_PER_NODE", 2)
    monkeypatch.setattr(packing, "_REACHED_NODES", 10**6)
    schema = TableSchema.all_numeric(2)
    features = PairFeatures("difference", schema, FLOAT64)
    rows = schema.to_rows(rng.normal(size=(300, 2)))
    pairs = features.build(rows.take(np.s_[:, None]), rows.take(None)).reshape(-1, 2)
    trees = [random_tree(rng, pairs, size, False) for size in (5, n_leaves)]
    trees[0].threshold[:2] = np.inf, -np.inf
    ensemble = TreeEnsemble(trees, np.zeros(1))
    anchored = AnchoredTrees(
        ensemble, features, rows, np.zeros(300), 1.0, symmetric=False, cache_bytes=10**9
    )
    mean, _ = anchored.moments(rows, None, variance=False, n_jobs=None)
    expected = predict_pairs(ensemble, pairs).reshape(300, 300).mean(axis=1)
    np.testing.assert_allclose(mean[:, 0], expected, atol=1e-12)
    assert (len(anchored.packed[0].inner_nodes) > 0) == (n_leaves <= 256)


def test_nodes_that_no_path_reaches_are_not_counted():
    left, right = np.array([1, -1, -1, 3, -1]), np.array([2, -1, -1, 4, -1])
    tree = Tree(
        np.zeros(5, int), np.zeros(5), left, right, np.ones(5, bool), np.ones((5, 1)), 1.0, 0
    )
    assert not len(packing.pack_trees([tree] * 9, FLOAT64).inner_nodes)


@pytest.mark.parametrize(
    ("name", "value"), [("kind", "nominal"), ("kind", "difference"), ("width", 99)]
)
def test_pair_features_that_do_not_fit_the_trees(name, value):
    # a file of an earlier version could hold such pair features, and the kernel read out of bounds
    X = np.random.RandomState(0).normal(size=(30, 3))
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(X, X.sum(axis=1))
    setattr(twin.difference_model_.features, name, value)
    with pytest.raises(ValueError, match="pair features, but pairs have"):
        twin.prepare_fast_path()
