"""Files with node arrays that compiled code could not read safely."""

import json

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor


def set_field(field, node, value):
    def change(array):
        array[field][node] = value

    return change


def last_leaf(array):
    return int(np.flatnonzero(array["left_child"] == -1)[-1])


def set_field_of_last_leaf(field, value):
    def change(array):
        array[field][last_leaf(array)] = value

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (set_field("left_child", 0, 10**9), "outside its"),
        (set_field("right_child", 0, 10**9), "outside its"),
        (set_field("left_child", 0, -7), "outside its"),
        (set_field("right_child", 0, -1), "outside its"),
        (set_field("left_child", 1, 0), "outside its"),
        (set_field("left_child", 2, 1), "does not come after"),
        (set_field("left_child", 1, 1), "does not come after"),
        (set_field("left_child", 0, 2), "no parent"),
        (set_field("left_child", 0, -1), "leaf has a right child"),
        (set_field("feature", 0, 3), "outside its 3"),
        (set_field("feature", 0, -1), "outside its 3"),
        (set_field("feature", 0, 2**40), "outside its 3"),
        (set_field_of_last_leaf("feature", 0), "leaf splits"),
        (set_field_of_last_leaf("right_child", 0), "leaf has a right child"),
        (set_field("threshold", 0, np.nan), "NaN"),
        (set_field("n_node_samples", 0, -1), "negative"),
        (set_field("weighted_n_node_samples", 0, np.inf), "weight"),
        (set_field("missing_go_to_left", 0, 2), "neither 0 nor 1"),
        (lambda array: array[:-1], "shape"),
        (lambda array: array[:0], "shape"),
        (lambda array: np.concatenate([array, array]), "shape"),
        (lambda array: array["left_child"].copy(), "shape"),
        (lambda array: array.reshape(1, -1), "shape"),
    ],
)
def test_node_array(tree_file, change, match):
    tree_file.change_array(change, "tree_", "nodes")
    tree_file.assert_refused(match)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values[:-1],
        lambda values: np.concatenate([values, values], axis=1),
        lambda values: values[..., 0],
        lambda values: values.astype(np.float32),
        lambda values: np.full_like(values, np.nan),
        lambda values: values.astype(">f8"),
    ],
)
def test_value_array(tree_file, change):
    tree_file.change_array(change, "tree_", "values")
    tree_file.assert_refused("a tree is damaged")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("node_count", 10**6),
        ("node_count", 1),
        ("node_count", -1),
        ("node_count", True),
        ("max_depth", 0),
        ("max_depth", 99),
        ("max_depth", "3"),
    ],
)
def test_sizes_in_the_state(tree_file, part, value):
    def change(schema):
        tree_file.attribute(schema, "tree_", part)["content"] = json.dumps(value)

    tree_file.change_schema(change)
    tree_file.assert_refused()


@pytest.mark.parametrize(("position", "value"), [(0, 1), (0, 300), (2, 5), (2, 0), (2, -1)])
def test_arguments(tree_file, position, value):
    def change(schema):
        tree = tree_file.attribute(schema, "tree_")
        tree["__reduce__"]["args"]["content"][position]["content"] = json.dumps(value)

    tree_file.change_schema(change)
    tree_file.assert_refused()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (set_field("left", 0, 2**31), "outside its"),
        (set_field("right", 0, 0), "outside its"),
        (set_field("left", 0, 2), "no parent"),
        (set_field("feature_idx", 0, 4), "outside its 4"),
        (set_field("feature_idx", 0, -1), "outside its 4"),
        (set_field("bitset_idx", 0, 77), "beyond its"),
        (set_field("feature_idx", 0, 2), "numeric feature"),
        (set_field("is_categorical", 0, 3), "neither 0 nor 1"),
        (set_field("missing_go_to_left", 0, 3), "neither 0 nor 1"),
        (set_field("is_leaf", 0, 9), "neither 0 nor 1"),
        (set_field("is_leaf", 0, 1), "no parent"),
        (set_field("value", 0, np.nan), "not finite"),
        (lambda array: array[:-1], "outside its"),
        (lambda array: array[:0], "no nodes"),
        (lambda array: array["value"].copy(), "damaged"),
    ],
)
def test_node_array_of_histogram_boosting(histogram_file, change, match):
    histogram_file.change_array(change, "_predictors", "0", "0", "nodes")
    histogram_file.assert_refused(match)


def test_nan_threshold_of_histogram_boosting(data, saved):
    model = HistGradientBoostingRegressor(max_iter=1, min_samples_leaf=3).fit(*data)
    file = saved(model)
    file.change_array(set_field("num_threshold", 0, np.nan), "_predictors", "0", "0", "nodes")
    file.assert_refused("threshold is NaN")


@pytest.mark.parametrize("name", ["raw_left_cat_bitsets", "binned_left_cat_bitsets"])
@pytest.mark.parametrize("change", [lambda b: b[:0], lambda b: b[:, :3], lambda b: b.astype("u8")])
def test_bitsets_of_histogram_boosting(histogram_file, name, change):
    histogram_file.change_array(change, "_predictors", "0", "0", name)
    histogram_file.assert_refused()
