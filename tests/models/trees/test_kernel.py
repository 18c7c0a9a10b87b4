"""Sums over anchors without pairs, beside the estimator's own prediction of built pairs."""

import copy
import os
import pickle
import subprocess
import sys

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
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor

import twinned.estimators.twin as twin_module
from twinned import NearestAnchors, RandomAnchors, TwinRegressor, load, save
from twinned._table import TableSchema
from twinned.models.trees import packed, predictor
from twinned.models.trees.predictor import AnchoredTrees
from twinned.models.trees.reader import FLOAT32, FLOAT64, Tree, Trees
from twinned.pairing.features import PairFeatures


@pytest.fixture
def force(monkeypatch):
    """Choose the way of predicting: by the kernel, or by building pairs."""

    def choose(kernel):
        monkeypatch.setattr(predictor, "LEAST_WORK", 0 if kernel else 2**62)
        monkeypatch.setattr(predictor, "_NODE_WORK", 0)

    return choose


def answers(twin, queries):
    indices, estimates = twin.predict_anchors(queries)
    explained = twin.explain(queries, 3)
    return (
        twin.predict(queries),
        *twin.predict(queries, return_std=True),
        indices,
        estimates,
        explained["estimate"].to_numpy(),
    )


def check_same(twin, queries, force):
    """The kernel gives what building pairs gives, and was not left aside."""
    force(False)
    expected = answers(twin, queries)
    assert twin._read is None
    force(True)
    found = answers(twin, queries)
    assert twin._read[1] is not None
    spread = np.ptp(twin.anchors_y_) or 1.0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * spread)


def tenths(rng, shape, missing=False):
    """Numbers whose differences tie, and which float32 and float64 round differently."""
    X = rng.randint(-8, 9, shape) / 10
    if missing:
        X[rng.uniform(size=shape) < 0.2] = np.nan
    return X


def problem(rng, n=50, missing=False, n_outputs=1):
    X = tenths(rng, (n, 3), missing)
    known = np.nan_to_num(X)
    y = known[:, 0] * known[:, 1] + known[:, 2] + 0.05 * rng.normal(size=n)
    if n_outputs > 1:
        y = np.column_stack([y, known[:, 2] - 2 * y])
    # queries among the anchors and beside them, some missing even where anchors are not
    return X, y, np.vstack([X[:8], tenths(rng, (10, 3), missing)])


BASES = {
    "tree": DecisionTreeRegressor(min_samples_leaf=2, random_state=0),
    "grown forest": RandomForestRegressor(6, random_state=0),
    "extra trees": ExtraTreesRegressor(6, min_samples_leaf=2, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=12, max_depth=4, random_state=0),
    "histograms": HistGradientBoostingRegressor(max_iter=25, min_samples_leaf=3),
}


def lightgbm_base(**options):
    lightgbm = pytest.importorskip("lightgbm", reason="the extra 'boost' is not installed")
    return lightgbm.LGBMRegressor(
        n_estimators=15, min_child_samples=3, n_jobs=1, verbose=-1, **options
    )


def xgboost_base(**options):
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    return xgboost.XGBRegressor(n_estimators=15, max_depth=5, n_jobs=1, **options)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", ["concat", "difference", "concat+difference"])
@pytest.mark.parametrize("name", BASES)
def test_every_learner_and_kind_of_pair(name, kind, symmetric, rng, force):
    X, y, queries = problem(rng)
    twin = TwinRegressor(BASES[name], pair_features=kind, symmetric=symmetric).fit(X, y)
    check_same(twin, queries, force)


@pytest.mark.parametrize("name", ["tree", "grown forest", "extra trees", "histograms"])
def test_missing_values(name, rng, force):
    X, y, queries = problem(rng, missing=True)
    check_same(TwinRegressor(BASES[name]).fit(X, y), queries, force)
    # missing in queries alone
    X, y, _ = problem(rng)
    check_same(TwinRegressor(BASES[name]).fit(X, y), queries, force)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("base", [lightgbm_base, xgboost_base])
def test_other_libraries(base, symmetric, missing, rng, force):
    X, y, queries = problem(rng, missing=missing)
    check_same(TwinRegressor(base(), symmetric=symmetric).fit(X, y), queries, force)


@pytest.mark.parametrize("base", [lightgbm_base, xgboost_base])
def test_other_libraries_for_several_outputs(base, rng, force):
    X, y, queries = problem(rng, n_outputs=2)
    check_same(TwinRegressor(MultiOutputRegressor(base())).fit(X, y), queries, force)
    if base is xgboost_base:
        check_same(TwinRegressor(base(base_score=2.0)).fit(X, y), queries, force)


@pytest.mark.parametrize(
    "base",
    [
        RandomForestRegressor(5, random_state=0),
        MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=8)),
    ],
    ids=str,
)
def test_several_outputs(base, rng, force):
    X, y, queries = problem(rng, n_outputs=2)
    for anchors in ("all", NearestAnchors(7)):
        check_same(TwinRegressor(base, anchors=anchors).fit(X, y), queries, force)


@pytest.mark.parametrize("weights", ["uniform", "distance", lambda d, e, i: 1 / (1 + d + e**2)])
@pytest.mark.parametrize("anchors", ["all", NearestAnchors(1), NearestAnchors(9)])
def test_anchors_and_weights(anchors, weights, rng, force):
    X, y, queries = problem(rng)
    base = BASES["histograms"]
    check_same(TwinRegressor(base, anchors=anchors, weights=weights).fit(X, y), queries, force)
    weight = rng.randint(0, 3, len(X))
    twin = TwinRegressor(base, anchors=anchors, weights=weights)
    check_same(twin.fit(X, y, sample_weight=weight), queries, force)


@pytest.mark.parametrize("name", ["grown forest", "histograms"])
def test_names(name, rng, force):
    """Names enter as indicators and as "same or different"; some are missing, some are new."""
    colours = np.array(["red", "green", "blue", "grey"])
    table = pd.DataFrame(
        {
            "size": tenths(rng, 60),
            "colour": pd.Categorical(colours[rng.randint(0, 3, 60)]),
            "place": pd.Categorical(rng.randint(0, 9, 60).astype(str)),
        }
    )
    y = table["size"].to_numpy() + (table["colour"] == "red") + 0.1 * rng.normal(size=60)
    table.loc[::7, "colour"] = None
    queries = table.iloc[:20].assign(
        colour=pd.Categorical(np.append(colours[rng.randint(0, 4, 19)], None)), size=0.3
    )
    for kind in ("concat+difference", "difference"):
        twin = TwinRegressor(BASES[name], pair_features=kind).fit(table, y)
        with pytest.warns(UserWarning, match="grey"):
            check_same(twin, queries, force)


@pytest.mark.parametrize("name", ["grown forest", "histograms"])
def test_one_anchor_duplicates_and_constants(name, rng, force):
    X, y, queries = problem(rng)
    X[:, 1] = 0.7
    queries[:, 1] = 0.7
    X[10:20] = X[9]
    check_same(TwinRegressor(BASES[name]).fit(X, y), queries, force)
    check_same(TwinRegressor(BASES[name], anchors=RandomAnchors(1)).fit(X, y), queries, force)
    constant = np.full((30, 2), 0.1)
    check_same(TwinRegressor(BASES[name]).fit(constant, y[:30]), constant[:2], force)


@pytest.mark.parametrize("name", BASES)
def test_float32_input(name, rng, force):
    X, y, queries = problem(rng)
    twin = TwinRegressor(BASES[name]).fit(X.astype(np.float32), y)
    assert twin._pair_dtype == np.float32
    check_same(twin, queries.astype(np.float32), force)
    check_same(clone(twin).fit(X.astype(np.float32), y), queries, force)


def test_xgboost_of_float64_pairs_rounds_twice(rng, force):
    base = MultiOutputRegressor(xgboost_base())
    X, y, queries = problem(rng, n_outputs=2)
    twin = TwinRegressor(base).fit(X, y)
    assert twin._pair_dtype == np.float64
    check_same(twin, queries, force)
    # beyond float32 the library has its own words
    far = queries.copy()
    far[0, 0] = 1e39
    assert twin._shortcut(twin._open(far)) is None


@pytest.mark.parametrize("scale", [1e-12, 1e15])
def test_extreme_targets(scale, rng, force):
    X, y, queries = problem(rng)
    twin = TwinRegressor(BASES["histograms"]).fit(X, scale * y)
    assert twin._y_unit != 1
    check_same(twin, queries, force)


def test_more_anchors_than_a_mask_holds_and_several_groups(rng, force, monkeypatch):
    X, y, queries = problem(rng, n=2300)
    twin = TwinRegressor(BASES["extra trees"], pairs=3, random_state=0).fit(X, y)
    check_same(twin, queries, force)
    kept = twin._read[1]._kept
    assert len(kept) == 1
    monkeypatch.setattr(packed, "GROUP_NODES", 3000)
    check_same(clone(twin).set_params(anchors=NearestAnchors(150)).fit(X, y), queries, force)
    monkeypatch.setattr(twin_module, "_KEPT_BYTES", 1000)
    check_same(twin.fit(X, y), queries, force)
    assert twin._read[1]._kept is None  # too large to keep


def test_uneven_columns_are_searched_through(rng, force):
    """Where most values crowd in one corner, the first look misses them."""
    X = np.exp(6 * rng.normal(size=(400, 2)))
    y = np.log(X[:, 0]) + rng.normal(size=400)
    queries = np.vstack([X[:10], np.exp(6 * rng.normal(size=(10, 2)))])
    for base in (BASES["extra trees"], BASES["histograms"]):
        check_same(TwinRegressor(base, pairs=8, random_state=0).fit(X, y), queries, force)


@pytest.mark.parametrize("name", ["histograms", "grown forest"])
def test_questions_asked_once_or_node_by_node_are_the_same(name, rng, force, monkeypatch):
    X, y, queries = problem(rng)
    force(True)
    monkeypatch.setattr(packed, "_RULES_PER_NODE", 2)
    found = []
    for reached in (0, 10**6):
        monkeypatch.setattr(packed, "_REACHED", reached)
        twin = TwinRegressor(BASES[name], random_state=0).fit(X, y)
        found.append(twin.predict(queries, return_std=True))
        assert (len(twin._read[1]._kept[0].rule) > 0) == (reached > 0)
    np.testing.assert_array_equal(*found)


def test_threads_change_nothing(rng, force):
    X, y, _ = problem(rng)
    queries = tenths(rng, (100, 3))
    force(True)
    twin = TwinRegressor(BASES["histograms"]).fit(X, y)
    one = twin.predict(queries, return_std=True)
    three = twin.set_params(n_jobs=3).predict(queries, return_std=True)
    np.testing.assert_array_equal(one, three)


def test_saved_pickled_cloned_and_extended_twins(rng, force, tmp_path):
    X, y, queries = problem(rng)
    force(True)
    twin = TwinRegressor(BASES["histograms"]).fit(X, y)
    expected = twin.predict(queries)
    assert twin._read is not None
    save(twin, tmp_path / "twin.skops")
    again = pickle.loads(pickle.dumps(twin))
    assert again._read is None
    for other in (again, load(tmp_path / "twin.skops"), copy.deepcopy(twin)):
        np.testing.assert_array_equal(other.predict(queries), expected)
    richer = twin.add_anchors(X[:5] + 0.3, y[:5])
    check_same(richer, queries, force)
    force(True)
    np.testing.assert_array_equal(twin.predict(queries), expected)
    nearest = twin.set_params(anchors=NearestAnchors(4))
    twin._read = None
    check_same(nearest, queries, force)


def test_another_estimator_is_read_anew(rng, force):
    X, y, queries = problem(rng)
    force(True)
    twin = TwinRegressor(BASES["histograms"]).fit(X, y)
    twin.predict(queries)
    twin.estimator_ = TwinRegressor(BASES["histograms"]).fit(X, 2 * y).estimator_
    found = twin.predict(queries)
    force(False)
    np.testing.assert_allclose(found, twin.predict(queries), atol=1e-12)


def test_small_work_builds_pairs_and_a_callable_always_does(rng, force):
    X, y, queries = problem(rng)
    twin = TwinRegressor(BASES["histograms"]).fit(X, y)
    twin.predict(queries)
    assert twin._read is None
    force(True)
    twin = TwinRegressor(BASES["tree"], pair_features=lambda a, b: a - b).fit(X, y)
    twin.predict(queries)
    assert twin._read is None


# --- any tree, any data ---------------------------------------------------------------------------


@st.composite
def random_trees(draw):
    """Trees of any shape whose thresholds are the very values that pairs have, and the data."""
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
    forward = features.build(queries.as_queries(), anchors.as_anchors())
    backward = features.build(anchors.as_anchors(), queries.as_queries())
    seen = np.concatenate([forward, backward]).reshape(-1, features.width).astype(np.float64)
    trees = [
        random_tree(rng, seen, draw(st.integers(1, 60)), draw(st.integers(1, 2)) == 2)
        for _ in range(draw(st.integers(1, 3)))
    ]
    strict = draw(st.booleans())
    ensemble = Trees(trees, rng.normal(size=1), value_type, strict, FLOAT64)
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
    """(n_pairs,) the sum of the trees, all pairs a level at a time."""
    pairs = pairs.astype(trees.value_type).astype(np.float64)
    total = np.full(len(pairs), trees.offset[0])
    for tree in trees.trees:
        node = np.zeros(len(pairs), dtype=int)
        while (tree.left[node] >= 0).any():
            value, threshold = (
                pairs[np.arange(len(pairs)), tree.feature[node]],
                tree.threshold[node],
            )
            goes_left = value < threshold if trees.strict else value <= threshold
            goes_left = np.where(np.isnan(value), tree.missing_left[node], goes_left)
            following = np.where(goes_left, tree.left[node], tree.right[node])
            node = np.where(tree.left[node] >= 0, following, node)
        total += tree.scale * tree.value[node, 0]
    return total


@settings(max_examples=150)
@given(drawn=random_trees(), symmetric=st.booleans(), seed=st.integers(0, 99))
def test_any_tree_and_data(drawn, symmetric, seed):
    trees, features, anchors, queries, forward, backward = drawn
    shape, width = forward.shape[:2], features.width
    expected = predict_pairs(trees, forward.reshape(-1, width)).reshape(shape)
    if symmetric:
        back = predict_pairs(trees, backward.reshape(-1, width)).reshape(shape)
        expected = 0.5 * (expected - back)
    at_anchors = AnchoredTrees(trees, features, anchors, 4.0, 10**9)
    options = {"symmetric": symmetric, "n_jobs": None}
    found = at_anchors.differences(queries, None, **options)[..., 0]
    np.testing.assert_allclose(found, 4 * expected, atol=1e-12)
    mean = at_anchors.mean(queries, **options)[:, 0]
    np.testing.assert_allclose(mean, 4 * expected.mean(axis=1), atol=1e-12)
    rng = np.random.RandomState(seed)
    k = rng.randint(1, len(anchors) + 1)
    some = np.array([rng.permutation(len(anchors))[:k] for _ in range(len(queries))])
    found = at_anchors.differences(queries, some, **options)[..., 0]
    np.testing.assert_allclose(found, 4 * np.take_along_axis(expected, some, axis=1), atol=1e-12)


# --- where the compiled code is kept --------------------------------------------------------------


def test_without_a_place_for_compiled_code_it_is_compiled_all_the_same(tmp_path):
    code = (
        "import numba.core.caching as caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from twinned.models.trees.llvm_intrinsics import compiled\n"
        "print(compiled(lambda x: x + 1)(41))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert run.stdout.split() == ["42"], run.stderr
