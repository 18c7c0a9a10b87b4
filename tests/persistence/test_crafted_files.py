"""Crafted files that corrupted memory, took minutes or gigabytes, or predicted wrongly before."""

import itertools
import json
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned import NeuralTraining, TwinNeuralRegressor, TwinRegressor
from twinned.estimators.regressors import GPRegressor
from twinned.persistence.archive import MODEL


def set_first(value):
    def change(array):
        array.reshape(-1)[0] = value

    return change


def part_of(file):
    """Return the description of the whole model."""
    return json.loads(file.members()[MODEL])["part"]


# --- memory: compiled code reads what these checks let pass ---------------------------------------


@pytest.fixture
def boosting_file(data, saved):
    return saved(GradientBoostingRegressor(n_estimators=2, max_depth=2, random_state=0).fit(*data))


def test_boosting_starts_from_a_constant_of_one_output(boosting_file):
    boosting_file.change_array(lambda a: np.ones((1, 2)), "init_/constant_")
    boosting_file.assert_refused("starts from several outputs")


def test_boosting_does_not_start_from_another_regressor(boosting_file, data, tmp_path, model_file):
    other = model_file(tmp_path / "other.twin")
    twinned.save(Ridge().fit(*data), other.path)
    boosting_file.set({"part": part_of(other)}, "init_")
    arrays = {
        f"model/init_/{name}.npy": other.members()[f"model/{name}.npy"]
        for name in ("coef_", "intercept_")
    }
    members = {k: v for k, v in boosting_file.members().items() if "constant_" not in k}
    boosting_file.write({**members, **arrays})
    boosting_file.assert_refused("init_ is no DummyRegressor")


@pytest.mark.parametrize("kind", ["nominal", "concat", "difference", ["difference"]])
def test_pair_features_are_made_from_the_columns(data, saved, kind):
    file = saved(TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0)).fit(*data))
    state = part_of(file)["state"]["dict"]
    assert "_features" not in state
    file.set(kind, "params", "pair_features")
    file.assert_refused("pair_features must be|pair features, not|pair_features")


@pytest.mark.parametrize("width", [4, 8, 10, 10**6])
def test_base_estimator_has_the_width_of_the_pairs(data, saved, width):
    file = saved(TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0)).fit(*data))
    file.set(width, "estimator_", "n_features")
    file.assert_refused(f"pair features of width {width}, not 9|feature outside its")


TREE_FAULTS = [
    ("left_child", set_first(0), "does not come after its parent"),
    ("left_child", set_first(10**6), "outside its tree"),
    ("left_child", set_first(-1), "leaf with a right child"),
    ("right_child", set_first(1), "without a parent"),
    ("feature", set_first(99), "splits a feature outside"),
    ("feature", set_first(-2), "splits a feature outside"),
    ("threshold", set_first(np.nan), "NaN"),
    ("value", set_first(np.inf), "not within"),
    ("value", lambda a: a[:-1], "axis node"),
    ("n_nodes", lambda a: a + 1, "nodes of no tree"),
    ("n_nodes", lambda a: a - 1, "nodes of no tree"),
    ("missing_go_to_left", set_first(2), "not within 0 … 1"),
]
HISTOGRAM_NAMES = {
    "left_child": "left",
    "right_child": "right",
    "feature": "feature_idx",
    "threshold": "num_threshold",
}


@pytest.mark.parametrize(("name", "change", "match"), TREE_FAULTS)
@pytest.mark.parametrize(
    ("model", "path"),
    [
        (DecisionTreeRegressor(max_depth=3, random_state=0), "trees"),
        (RandomForestRegressor(2, max_depth=3, random_state=0), "trees"),
        (TwinRegressor(ExtraTreesRegressor(2, max_depth=3, random_state=0)), "estimator_/trees"),
    ],
    ids=["tree", "forest", "twin"],
)
def test_altered_trees(data, saved, model, path, name, change, match):
    file = saved(model.fit(*data))
    file.change_array(change, f"{path}/{name}")
    file.assert_refused(match)


@pytest.mark.parametrize(("name", "change", "match"), TREE_FAULTS)
def test_altered_trees_of_histogram_boosting(data, saved, name, change, match):
    file = saved(HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=5).fit(*data))
    file.change_array(change, f"trees/{HISTOGRAM_NAMES.get(name, name)}")
    # negative numbers are refused before the structure is checked
    file.assert_refused(f"{match}|not within 0")


def test_a_split_of_histogram_boosting_is_no_leaf_with_children(histogram_file):
    histogram_file.change_array(set_first(1), "trees/is_leaf")
    histogram_file.assert_refused("without a parent")


def test_deep_tree_is_refused_quickly(data, saved):
    file = saved(DecisionTreeRegressor(max_depth=1, random_state=0).fit(*data))
    n_inner = 50_000
    left, right = np.full(2 * n_inner + 1, -1, np.int32), np.full(2 * n_inner + 1, -1, np.int32)
    left[0 : 2 * n_inner : 2] = np.arange(1, 2 * n_inner, 2)
    right[0 : 2 * n_inner : 2] = np.arange(2, 2 * n_inner + 1, 2)
    feature = np.where(left < 0, -2, 0).astype(np.int32)
    columns = {"left_child": left, "right_child": right, "feature": feature}
    counts = ("n_node_samples", "weighted_n_node_samples")
    for name in ("threshold", "missing_go_to_left", "value", "impurity", *counts):
        file.change_array(lambda a: np.repeat(a[:1], len(left), axis=0), f"trees/{name}")
    for name, column in columns.items():
        file.change_array(lambda a, column=column: column, f"trees/{name}")
    file.change_array(lambda a: np.array([len(left)]), "trees/n_nodes")
    start = time.process_time()
    file.assert_refused("more than 10,000 levels deep")
    assert time.process_time() - start < 10


@pytest.fixture
def histogram_file(data, saved):
    X, _ = data
    codes = np.resize([0.0, 1.0, 2.0], len(X))
    model = HistGradientBoostingRegressor(
        max_iter=2, min_samples_leaf=3, categorical_features=[3], random_state=0
    )
    return saved(model.fit(np.column_stack([X, codes]), X[:, 0] + 5 * (codes == 1)))


def test_histogram_boosting_stores_no_flag_of_an_unfinished_fit(histogram_file):
    def add(model):
        model["part"]["state"]["dict"]["_in_fit"] = True

    histogram_file.change_json(add)
    histogram_file.assert_refused("has unknown parts, _in_fit")


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("is_categorical_", np.zeros_like, "other categorical features"),
        ("is_categorical_", lambda a: a[:-1], "axis feature"),
        ("categories/0", lambda a: a[::-1].copy(), "categories that are not sorted"),
        ("trees/feature_idx", lambda a: np.where(a < 0, a, 3).astype(np.int32), "numeric feature"),
        ("trees/bitset_idx", lambda a: a + 9, "without its bitset"),
        ("trees/bitsets", lambda a: a[:-1], "lacks bitsets"),
        ("trees/n_bitsets", lambda a: a + 1, "lacks bitsets"),
        ("baseline", lambda a: np.ones((1, 2)), "axis 1"),
    ],
)
def test_altered_categorical_splits(histogram_file, name, change, match):
    histogram_file.change_array(change, name)
    histogram_file.assert_refused(match)


# --- time and memory of loading -------------------------------------------------------------------


def test_nested_parts(data, saved):
    file = saved(MultiOutputRegressor(Ridge()).fit(data[0], data[1][:, None]))
    node = part_of(file)
    for _ in range(9):
        inner = {**node, "state": {"dict": {"estimators_": [{"part": node}]}}}
        node = inner
    file.change_json(lambda model: model.update(part=node))
    file.assert_refused("more than 8 parts deep")


def test_deeply_nested_json(data, saved):
    file = saved(Ridge().fit(*data))
    file.rewrite(**{MODEL: b'{"tuple":[' * 50_000})
    file.assert_refused()


def test_long_list(data, saved):
    file = saved(Ridge().fit(*data))
    file.set([0] * 150_000, "params", "fit_intercept")
    assert file.path.stat().st_size < 20_000
    start = time.process_time()
    file.assert_refused("parameter of Ridge|items|bytes")
    assert time.process_time() - start < 10


def test_many_categories(data, saved):
    frame = pd.DataFrame({"a": data[0][:, 0], "kind": pd.Categorical(np.resize(["u", "v"], 40))})
    file = saved(TwinRegressor(Ridge()).fit(frame, data[1]))
    file.set(list(range(80_000)), "anchors", "schema", "categories", 1)
    file.set(80_000, "anchors", "schema", "n_indicators", 1)
    start = time.process_time()
    file.assert_refused("pair features|too many indicators")
    assert time.process_time() - start < 10


def test_more_indicators_than_categories(data, saved):
    frame = pd.DataFrame({"a": data[0][:, 0], "kind": pd.Categorical(np.resize(["u", "v"], 40))})
    file = saved(TwinRegressor(Ridge()).fit(frame, data[1]))
    file.set(30_000_000, "anchors", "schema", "n_indicators", 1)
    file.assert_refused("has 30000000 indicators")


@pytest.mark.parametrize("n_features", [2**20 + 1, 10**9, 10**12])
def test_number_of_features_is_bounded(data, saved, n_features):
    """An array of one flag per feature would take as many bytes."""
    file = saved(HistGradientBoostingRegressor(max_iter=2).fit(*data))
    file.set(n_features, "n_features")
    file.assert_refused("n_features")


def test_number_of_threads_is_bounded(data, saved):
    model = RandomForestRegressor(2, max_depth=2, random_state=0).fit(*data)
    file = saved(model)
    file.set(3_000, "params", "n_jobs")
    assert twinned.load(file.path).n_jobs <= 1024
    file.set(-3_000, "params", "n_jobs")
    assert twinned.load(file.path).n_jobs == -1


def test_gaussian_process_with_a_large_covariance(data, saved):
    file = saved(GPRegressor(random_state=0).fit(*data))
    for name in ("X", "weight", "target", "dual"):
        file.change_array(lambda a: np.resize(a, (20_000, *a.shape[1:])), f"process_/{name}")
    file.assert_refused("bytes for its covariance, too much for a file of this size")


@pytest.mark.parametrize("ratio", [7_000, 70_000])
def test_thousands_of_categories_and_of_anchors(data, saved, ratio):
    """The indicators of all anchors would take so many times the size of the file."""
    frame = pd.DataFrame({"a": data[0][:, 0], "kind": pd.Categorical(np.resize(["u", "v"], 40))})
    forest = RandomForestRegressor(40, max_depth=5, random_state=0)
    file = saved(TwinRegressor(forest).fit(frame, data[1]))
    file.set(list(range(2_000)), "anchors", "schema", "categories", 1)
    file.set(2_000, "anchors", "schema", "n_indicators", 1)
    file.set(4_004, "estimator_", "n_features")
    n_rows = ratio * file.path.stat().st_size // (32 * 2_000)
    for name in ("anchors/matrix", "anchors/y", "anchors/table_rows"):
        file.change_array(lambda a: np.resize(a, (n_rows, *a.shape[1:])), name)
    file.assert_refused("bytes for its indicators of categories, too much for a file of this size")


def test_many_categories_of_histogram_boosting(data, saved):
    X = np.column_stack([np.resize([0.0, 1.0], 40), np.zeros((40, 4_000))])
    model = HistGradientBoostingRegressor(max_iter=1, min_samples_leaf=2, categorical_features=[0])
    file = saved(model.fit(X, X[:, 0]))
    file.change_array(lambda a: np.arange(20_000.0), "categories/0")
    file.assert_refused("bytes for its categories, too much for a file of this size")


def test_memory_of_all_parts_counts(data, saved):
    X, y = data
    file = saved(MultiOutputRegressor(GPRegressor()).fit(X[:5], np.column_stack([y, y])[:5]))
    for i, name in itertools.product(range(2), ("X", "weight", "target", "dual")):
        path = f"estimators_/{i}/process_/{name}"
        file.change_array(lambda a: np.resize(a, (2_000, *a.shape[1:])), path)
    file.assert_refused("model/estimators_/1 needs 64,000,000 bytes for its covariance")


# --- predictions: parts that do not fit together --------------------------------------------------


@pytest.fixture(scope="module")
def twin_bytes(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("twin") / "model.twin"
    twinned.save(twinned.cross_conformal(TwinRegressor(Ridge()), *data, cv=2), path)
    return path.read_bytes()


@pytest.fixture
def twin_file(twin_bytes, tmp_path, model_file):
    """The file of a twin with intervals, to be altered."""
    file = model_file(tmp_path / "model.twin")
    file.path.write_bytes(twin_bytes)
    return file


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("calibration/scores", lambda a: a[::-1].copy(), "scores is not sorted"),
        ("calibration/scores", lambda a: a * 1e200, "not within"),
        ("calibration/columns", lambda a: a + 1, "not within 0 … 2"),
        ("calibration/columns", lambda a: a[::-1].copy(), "not increasing"),
        (
            "calibration/scale/regressor/trees/value",
            lambda a: -a - 1,
            "error scale that is negative",
        ),
        ("anchors/matrix", set_first(np.nan), "contains NaN"),
        ("anchors/matrix", set_first(np.inf), "not within"),
        ("anchors/y", lambda a: a[:30], "has 30 entries along the axis anchor, not 40"),
        ("anchors/y", set_first(np.nan), "not within"),
        ("anchors/table_rows", set_first(-2), "not within"),
        ("selected_features_", lambda a: a + 1, "not within 0 … 2"),
        ("selected_features_", lambda a: a[:-1], "pair features of width 9, not 6"),
        ("estimator_/coef_", lambda a: np.stack([a, a]), "predicts 2 outputs"),
    ],
)
def test_altered_twin(twin_file, name, change, match):
    twin_file.change_array(change, name)
    twin_file.assert_refused(match)


@pytest.mark.parametrize(
    ("value", "path", "match"),
    [
        (0.0, ("_y_unit",), "_y_unit is 0.0"),
        ("float16", ("_pair_dtype",), "_pair_dtype is 'float16'"),
        ("other", ("params", "weights"), "weights"),
        (None, ("n_features",), "n_features is None"),
        (["a", "a", "b"], ("names",), "a feature name twice"),
        ({"function": "add"}, ("params", "pair_features"), "unknown kind"),
        ("os", ("estimator_", "class"), "unknown class os"),
        ("save", ("estimator_", "class"), "unknown class save"),
        ("RandomPairs", ("estimator_", "class"), "unknown class RandomPairs"),
        ({"estimator": {"class": "save", "params": {}}}, ("params", "pairs"), "class save"),
        ({"dict": {"alpah": 1.0}}, ("estimator_", "params"), "has alpah, which Ridge does not"),
        ({"dict": {"alpha": -1.0}}, ("estimator_", "params"), "'alpha' parameter of Ridge"),
    ],
)
def test_altered_value_of_a_twin(twin_file, value, path, match):
    twin_file.set(value, *path)
    twin_file.assert_refused(match)


@pytest.fixture(scope="module")
def network_bytes(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "model.twin"
    options = {
        "n_members": 2,
        "training": NeuralTraining(max_steps=3, fold_steps=3, n_folds=2),
        "random_state": 0,
    }
    twinned.save(TwinNeuralRegressor((4,), **options).fit(*data), path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("_parameters/linear_0", lambda a: a[:, :-1].copy(), "other shapes"),
        ("_parameters/bias_1", set_first(np.inf), "not within"),
        ("_parameters/bias_1", lambda a: a.astype(float), "array of float64"),
        ("member_weights_", lambda a: a[:-1] / a[:-1].sum(), "other shapes"),
        ("_scale/X_spread", np.zeros_like, "not within"),
        ("member_weights_", lambda a: a * 2, "does not sum to one"),
        ("anchors/y", lambda a: a[:, None].copy(), "has other outputs"),
    ],
)
def test_altered_network(network_bytes, tmp_path, model_file, name, change, match):
    file = model_file(tmp_path / "model.twin")
    file.path.write_bytes(network_bytes)
    file.change_array(change, name)
    file.assert_refused(match)


def test_anchors_are_of_known_batches(data, saved):
    X, y = data
    twin = TwinRegressor(Ridge()).fit(X, y, batch=np.arange(len(y)) % 3)
    for value, match in ((3, "unknown batches"), (-1, "batch has a value that is not within")):
        file = saved(twin)
        file.change_array(set_first(value), "anchors/batch")
        file.assert_refused(match)
    counts = saved(twin)
    counts.change_array(lambda array: 0 * array, "batches/weight")
    counts.assert_refused("unknown batches")
    without = saved(twin)
    without.set(None, "batches")
    without.assert_refused()
