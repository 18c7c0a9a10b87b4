"""Files with fitted attributes that do not fit together."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVR

import twinned
from twinned.persistence.archive import SCHEMA


@pytest.mark.parametrize("value", ["2", "30", "null", '"3"', "true"])
def test_tree_with_another_number_of_features(tree_file, value):
    def change(schema):
        tree_file.attribute(schema, "n_features_in_")["content"] = value

    tree_file.change_schema(change)
    tree_file.assert_refused("n_features_in_ is")


def test_tree_without_a_number_of_features(tree_file):
    # Without the attribute, scikit-learn does not check the width of X at all.
    def change(schema):
        attributes = schema["content"]
        index = list(attributes["content"]).index("n_features_in_")
        del attributes["content"]["n_features_in_"], attributes["key_types"]["content"][index]

    tree_file.change_schema(change)
    tree_file.assert_refused("n_features_in_ is None")


@pytest.mark.parametrize("name", ["n_features_in_", "n_outputs_"])
def test_forest_with_members_of_another_shape(data, saved, name):
    file = saved(RandomForestRegressor(2, max_depth=2, random_state=0).fit(*data))

    def change(schema):
        file.attribute(schema, name)["content"] = "4"

    file.change_schema(change)
    file.assert_refused("RandomForestRegressor cannot be trusted")


def test_forest_with_a_member_that_is_not_a_tree(data, saved):
    file = saved(RandomForestRegressor(2, max_depth=2, random_state=0).fit(*data))

    def change(schema):
        file.attribute(schema, "estimators_")["content"].append(
            dict(file.attribute(schema, "criterion"))
        )

    file.change_schema(change)
    file.assert_refused("not a fitted tree")


def test_boosting_with_two_trees_in_an_iteration(data, saved):
    file = saved(GradientBoostingRegressor(n_estimators=2, max_depth=2).fit(*data))

    def change(schema):
        rows = file.attribute(schema, "estimators_")["content"]
        rows[0]["content"] += rows[1]["content"]
        del rows[1]

    file.change_schema(change)
    file.assert_refused("one tree in each iteration")


def test_boosting_without_trees_per_iteration(data, saved):
    file = saved(GradientBoostingRegressor(n_estimators=2, max_depth=2).fit(*data))

    def change(schema):
        file.attribute(schema, "n_trees_per_iteration_")["content"] = "0"

    file.change_schema(change)
    file.assert_refused("one tree in each iteration")


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (("_bin_mapper", "is_categorical_"), lambda a: a[:-1]),
        (("_bin_mapper", "is_categorical_"), np.zeros_like),
        (("_bin_mapper", "bin_thresholds_", "1"), lambda a: a[::-1].copy()),
        (("_bin_mapper", "bin_thresholds_", "1"), lambda a: a * np.nan),
        (("_bin_mapper", "bin_thresholds_", "0"), lambda a: a + 1000),
        (("_preprocessor", "transformers_", "1", "2"), np.zeros_like),
        (("_preprocessor", "transformers_", "0", "2"), np.zeros_like),
    ],
)
def test_bins_and_preprocessor_of_histogram_boosting(histogram_file, path, change):
    histogram_file.change_array(change, *path)
    histogram_file.assert_refused("HistGradientBoostingRegressor cannot be trusted|numeric feature")


def test_preprocessor_that_drops_a_column(histogram_file):
    def change(schema):
        path = ("_preprocessor", "_transformer_to_input_indices", "numerical")
        del histogram_file.attribute(schema, *path)["content"][0]

    histogram_file.change_schema(change)
    histogram_file.assert_refused("one to one")


def test_preprocessor_with_another_function(histogram_file):
    def change(schema):
        path = ("_preprocessor", "transformers_", "1", "1", "func")
        histogram_file.attribute(schema, *path).update(
            __loader__="FunctionNode", __module__="numpy", __class__="log"
        )

    histogram_file.change_schema(change)
    histogram_file.assert_refused("transformer of another kind")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("support_", lambda a: a + 10**6),
        ("support_", lambda a: -a - 1),
        ("support_", lambda a: a[:-1]),
        ("support_vectors_", lambda a: a[:-1]),
        ("support_vectors_", lambda a: a[:, :1].copy()),
        ("_n_support", lambda a: a * 2),
        ("_n_support", lambda a: np.repeat(a, 2)),
        ("_dual_coef_", lambda a: a[:, :-1].copy()),
        ("_intercept_", lambda a: a[:0]),
        ("_probA", lambda _: np.ones(3)),
    ],
)
def test_support_vectors(data, saved, name, change):
    file = saved(SVR().fit(*data))
    file.change_array(change, name)
    file.assert_refused("SVR cannot be trusted")


def test_support_vectors_with_a_precomputed_kernel(data, saved):
    file = saved(SVR().fit(*data))

    def change(schema):
        file.attribute(schema, "kernel")["content"] = '"precomputed"'

    file.change_schema(change)
    file.assert_refused("kernel='precomputed'")


def test_search_tree_is_rebuilt_and_not_in_the_file(data, saved):
    file = saved(KNeighborsRegressor(algorithm="kd_tree").fit(*data))
    assert b"KDTree" not in file.members()[SCHEMA]
    assert type(twinned.load(file.path)._tree).__name__ == "KDTree"


@pytest.mark.parametrize("loader", ["ObjectNode", "TreeNode", "ConstructorFromReduceNode"])
def test_search_tree_in_the_file(data, saved, loader):
    file = saved(KNeighborsRegressor(algorithm="kd_tree").fit(*data))

    def change(schema):
        tree = file.attribute(schema, "_tree")
        null = dict(tree)
        module = "sklearn.neighbors._kd_tree"
        tree.update(__loader__=loader, __module__=module, __class__="KDTree", content=null)

    file.change_schema(change)
    file.assert_refused("KDTree")


@pytest.mark.parametrize(
    "change", [lambda a: a[:, :2].copy(), lambda a: a[:-1], lambda a: a.astype(int), np.ravel]
)
@pytest.mark.parametrize("algorithm", ["kd_tree", "brute"])
def test_points_of_a_neighbors_model(data, saved, change, algorithm):
    file = saved(KNeighborsRegressor(algorithm=algorithm).fit(*data))
    file.change_array(change, "_fit_X")
    file.assert_refused("KNeighborsRegressor cannot be trusted")


def test_one_hot_encoder_with_fewer_indicators_than_categories(data, saved):
    kinds = np.array(list("uvwx") * 10)[:, None]
    file = saved(make_pipeline(OneHotEncoder(), Ridge()).fit(kinds, data[1]))

    def change(schema):
        widths = file.attribute(schema, "steps", "0", "1", "_n_features_outs")
        widths["content"][0]["content"] = "1"

    file.change_schema(change)
    file.assert_refused("number of indicators")


@pytest.mark.parametrize("position", [-5, 625, 10**6])
def test_random_state_with_a_position_out_of_range(data, saved, position):
    state = np.random.RandomState(0)
    file = saved(RandomForestRegressor(1, max_depth=1, random_state=state).fit(*data))

    def change(schema):
        (node,) = file.nodes(schema, "RandomStateNode")
        node["content"]["content"]["state"]["content"]["pos"]["content"] = str(position)

    file.change_schema(change)
    file.assert_refused()


def test_overwritten_method(data, saved):
    file = saved(Ridge().fit(*data))

    def change(schema):
        attributes = schema["content"]
        function = {"__loader__": "FunctionNode", "__module__": "numpy", "__class__": "log"}
        attributes["content"]["predict"] = function
        key_types = attributes["key_types"]["content"]
        key_types.append(dict(key_types[0]))

    file.change_schema(change)
    file.assert_refused("its method 'predict' is overwritten")
