"""Files made by somebody who knows the format. None may run code or reach foreign memory."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned.exceptions import IntegrityError
from twinned.persistence.archive import SCHEMA


def refused(file, match=None):
    with pytest.raises(IntegrityError, match=match) as caught:
        twinned.load(file.path)
    assert "\n" not in str(caught.value)
    assert str(file.path) in str(caught.value)


def nodes(schema):
    """All nodes of a schema."""
    if isinstance(schema, dict):
        if "__loader__" in schema:
            yield schema
        for value in schema.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from nodes(value)


# --- trees ------------------------------------------------------------------------------------


@pytest.fixture
def tree_file(data, saved):
    return saved(DecisionTreeRegressor(max_depth=3, random_state=0).fit(*data))


def at(field, node, value):
    def change(array):
        array[field][node] = value

    return change


def last_leaf(array):
    return int(np.flatnonzero(array["left_child"] == -1)[-1])


def leaf_with(field, value):
    def change(array):
        array[field][last_leaf(array)] = value

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (at("left_child", 0, 10**9), "outside its"),
        (at("right_child", 0, 10**9), "outside its"),
        (at("left_child", 0, -7), "outside its"),
        (at("right_child", 0, -1), "outside its"),
        (at("left_child", 1, 0), "outside its"),
        (at("left_child", 2, 1), "does not come after"),
        (at("left_child", 1, 1), "does not come after"),
        (at("left_child", 0, 2), "no parent"),
        (at("left_child", 0, -1), "leaf has a right child"),
        (at("feature", 0, 3), "outside its 3"),
        (at("feature", 0, -1), "outside its 3"),
        (at("feature", 0, 2**40), "outside its 3"),
        (leaf_with("feature", 0), "leaf splits"),
        (leaf_with("right_child", 0), "leaf has a right child"),
        (at("threshold", 0, np.nan), "NaN"),
        (at("n_node_samples", 0, -1), "negative"),
        (at("weighted_n_node_samples", 0, np.inf), "weight"),
        (at("missing_go_to_left", 0, 2), "neither 0 nor 1"),
        (lambda array: array[:-1], "shape"),
        (lambda array: array[:0], "shape"),
        (lambda array: np.concatenate([array, array]), "shape"),
        (lambda array: array["left_child"].copy(), "shape"),
        (lambda array: array.reshape(1, -1), "shape"),
    ],
)
def test_node_arrays(tree_file, change, match):
    tree_file.change_array(change, "tree_", "nodes")
    refused(tree_file, match)


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
def test_value_arrays(tree_file, change):
    tree_file.change_array(change, "tree_", "values")
    refused(tree_file, "a tree is damaged")


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
def test_sizes_of_a_tree(tree_file, part, value):
    def change(schema):
        tree_file.attribute(schema, "tree_", part)["content"] = json.dumps(value)

    tree_file.change_schema(change)
    refused(tree_file)


@pytest.mark.parametrize(("position", "value"), [(0, 1), (0, 300), (2, 5), (2, 0), (2, -1)])
def test_arguments_of_a_tree(tree_file, position, value):
    def change(schema):
        tree = tree_file.attribute(schema, "tree_")
        tree["__reduce__"]["args"]["content"][position]["content"] = json.dumps(value)

    tree_file.change_schema(change)
    refused(tree_file)


@pytest.mark.parametrize("n_kept", [0, 2, 3])
def test_a_tree_whose_state_is_dropped_on_the_way(tree_file, n_kept):
    """Skops forgets the keys that have no type; a tree without a state has nodes nowhere."""

    def change(schema):
        del tree_file.attribute(schema, "tree_")["content"]["key_types"]["content"][n_kept:]

    tree_file.change_schema(change)
    refused(tree_file, "a type for each of its keys")


def test_a_tree_whose_keys_are_turned_into_others(tree_file):
    def change(schema):
        for key in tree_file.attribute(schema, "tree_")["content"]["key_types"]["content"]:
            key["__class__"] = "bool"

    tree_file.change_schema(change)
    refused(tree_file, "its state is not")


def test_a_tree_whose_state_is_borrowed_from_another_place(data, saved):
    """Skops takes a repeated number for the first object that bore it, whatever stands there."""
    file = saved(RandomForestRegressor(2, max_depth=2, random_state=0).fit(*data))

    def change(schema):
        first, second = (n for n in nodes(schema) if n["__loader__"] == "TreeNode")
        second["content"]["__id__"] = first["content"]["__id__"]

    file.change_schema(change)
    refused(file, "two objects have the number")


def test_a_reference_to_nothing(tree_file):
    def change(schema):
        tree_file.attribute(schema, "tree_").update(__loader__="CachedNode", __id__=10**6)

    tree_file.change_schema(change)
    refused(tree_file, "there is no object")


def test_an_object_inside_itself(tree_file):
    def change(schema):
        tree_file.attribute(schema, "tree_").update(
            __loader__="CachedNode", __id__=schema["__id__"]
        )

    tree_file.change_schema(change)
    refused(tree_file)


@pytest.mark.parametrize("value", ["2", "30", "null", '"3"', "true"])
def test_a_tree_that_its_owner_feeds_other_features(tree_file, value):
    def change(schema):
        tree_file.attribute(schema, "n_features_in_")["content"] = value

    tree_file.change_schema(change)
    refused(tree_file, "n_features_in_ is")


def test_a_tree_whose_owner_forgets_its_features(tree_file):
    # Without the attribute, scikit-learn does not check the width of X at all.
    def change(schema):
        attributes = schema["content"]
        index = list(attributes["content"]).index("n_features_in_")
        del attributes["content"]["n_features_in_"], attributes["key_types"]["content"][index]

    tree_file.change_schema(change)
    refused(tree_file, "n_features_in_ is None")


@pytest.mark.parametrize("name", ["n_features_in_", "n_outputs_"])
def test_a_forest_whose_trees_are_of_another_size(data, saved, name):
    file = saved(RandomForestRegressor(2, max_depth=2, random_state=0).fit(*data))

    def change(schema):
        file.attribute(schema, name)["content"] = "4"

    file.change_schema(change)
    refused(file, "RandomForestRegressor cannot be trusted")


def test_a_forest_of_something_else(data, saved):
    file = saved(RandomForestRegressor(2, max_depth=2, random_state=0).fit(*data))

    def change(schema):
        file.attribute(schema, "estimators_")["content"].append(json_node("a tree"))

    file.change_schema(change)
    refused(file, "not a fitted tree")


def test_boosting_with_two_trees_in_an_iteration(data, saved):
    file = saved(GradientBoostingRegressor(n_estimators=2, max_depth=2).fit(*data))

    def change(schema):
        rows = file.attribute(schema, "estimators_")["content"]
        rows[0]["content"] += rows[1]["content"]
        del rows[1]

    file.change_schema(change)
    refused(file, "one tree in each iteration")


def test_boosting_without_columns_to_add_to(data, saved):
    file = saved(GradientBoostingRegressor(n_estimators=2, max_depth=2).fit(*data))

    def change(schema):
        file.attribute(schema, "n_trees_per_iteration_")["content"] = "0"

    file.change_schema(change)
    refused(file, "one tree in each iteration")


# --- histogram boosting -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def histogram_bytes(data, tmp_path_factory):
    X, _ = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical(np.random.default_rng(0).choice(list("uvw"), len(X)))
    y = X[:, 0] + 5 * (frame["kind"].cat.codes.to_numpy() == 1)
    model = HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=3).fit(frame, y)
    assert model._predictors[0][0].nodes["is_categorical"][0]
    path = tmp_path_factory.mktemp("histogram") / "model.twin"
    twinned.save(model, path)
    return path.read_bytes()


@pytest.fixture
def histogram_file(histogram_bytes, saved, data):
    file = saved(Ridge().fit(*data))
    file.path.write_bytes(histogram_bytes)
    return file


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (at("left", 0, 2**31), "outside its"),
        (at("right", 0, 0), "outside its"),
        (at("left", 0, 2), "no parent"),
        (at("feature_idx", 0, 4), "outside its 4"),
        (at("feature_idx", 0, -1), "outside its 4"),
        (at("bitset_idx", 0, 77), "beyond the"),
        (at("feature_idx", 0, 2), "numerical column"),
        (at("is_categorical", 0, 3), "neither 0 nor 1"),
        (at("missing_go_to_left", 0, 3), "neither 0 nor 1"),
        (at("is_leaf", 0, 9), "neither 0 nor 1"),
        (at("is_leaf", 0, 1), "no parent"),
        (at("value", 0, np.nan), "not finite"),
        (lambda array: array[:-1], "outside its"),
        (lambda array: array[:0], "no nodes"),
        (lambda array: array["value"].copy(), "damaged"),
    ],
)
def test_nodes_of_histogram_boosting(histogram_file, change, match):
    histogram_file.change_array(change, "_predictors", "0", "0", "nodes")
    refused(histogram_file, match)


def test_a_threshold_that_is_no_number(data, saved):
    model = HistGradientBoostingRegressor(max_iter=1, min_samples_leaf=3).fit(*data)
    file = saved(model)
    file.change_array(at("num_threshold", 0, np.nan), "_predictors", "0", "0", "nodes")
    refused(file, "threshold is NaN")


@pytest.mark.parametrize("name", ["raw_left_cat_bitsets", "binned_left_cat_bitsets"])
@pytest.mark.parametrize("change", [lambda b: b[:0], lambda b: b[:, :3], lambda b: b.astype("u8")])
def test_bitsets(histogram_file, name, change):
    histogram_file.change_array(change, "_predictors", "0", "0", name)
    refused(histogram_file)


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
def test_what_surrounds_histogram_boosting(histogram_file, path, change):
    histogram_file.change_array(change, *path)
    refused(histogram_file, "HistGradientBoostingRegressor cannot be trusted|numerical column")


def test_an_encoder_that_loses_columns_by_name(histogram_file):
    def change(schema):
        where = ("_preprocessor", "_transformer_to_input_indices", "numerical")
        del histogram_file.attribute(schema, *where)["content"][0]

    histogram_file.change_schema(change)
    refused(histogram_file, "one to one")


def test_a_function_of_the_encoder_cannot_be_chosen(histogram_file):
    def change(schema):
        where = ("_preprocessor", "transformers_", "1", "1", "func")
        histogram_file.attribute(schema, *where).update(node("FunctionNode", "numpy", "log"))

    histogram_file.change_schema(change)
    refused(histogram_file, "transformed by something of their own")


# --- other compiled readers -------------------------------------------------------------------


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
    refused(file, "SVR cannot be trusted")


def test_a_support_vector_machine_of_another_kind(data, saved):
    file = saved(SVR().fit(*data))

    def change(schema):
        file.attribute(schema, "kernel")["content"] = '"precomputed"'

    file.change_schema(change)
    refused(file, "kernel='precomputed'")


def test_the_search_tree_is_not_in_the_file(data, saved):
    file = saved(KNeighborsRegressor(algorithm="kd_tree").fit(*data))
    assert b"KDTree" not in file.members()[SCHEMA]
    assert type(twinned.load(file.path)._tree).__name__ == "KDTree"


@pytest.mark.parametrize("loader", ["ObjectNode", "TreeNode", "ConstructorFromReduceNode"])
def test_a_search_tree_in_the_file_is_refused(data, saved, loader):
    file = saved(KNeighborsRegressor(algorithm="kd_tree").fit(*data))

    def change(schema):
        tree = file.attribute(schema, "_tree")
        tree.update(node(loader, "sklearn.neighbors._kd_tree", "KDTree"), content=json_node(None))

    file.change_schema(change)
    refused(file, "KDTree")


@pytest.mark.parametrize(
    "change", [lambda a: a[:, :2].copy(), lambda a: a[:-1], lambda a: a.astype(int), np.ravel]
)
@pytest.mark.parametrize("algorithm", ["kd_tree", "brute"])
def test_points_of_a_neighbors_model(data, saved, change, algorithm):
    file = saved(KNeighborsRegressor(algorithm=algorithm).fit(*data))
    file.change_array(change, "_fit_X")
    refused(file, "KNeighborsRegressor cannot be trusted")


def test_an_encoder_with_fewer_indicators_than_categories(data, saved):
    kinds = np.array(list("uvwx") * 10)[:, None]
    file = saved(make_pipeline(OneHotEncoder(), Ridge()).fit(kinds, data[1]))

    def change(schema):
        widths = file.attribute(schema, "steps", "0", "1", "_n_features_outs")
        widths["content"][0]["content"] = "1"

    file.change_schema(change)
    refused(file, "number of indicators")


@pytest.mark.parametrize("position", [-5, 625, 10**6])
def test_a_random_state_beyond_its_words(data, saved, position):
    state = np.random.RandomState(0)
    file = saved(RandomForestRegressor(1, max_depth=1, random_state=state).fit(*data))

    def change(schema):
        (found,) = (n for n in nodes(schema) if n["__loader__"] == "RandomStateNode")
        found["content"]["content"]["state"]["content"]["pos"]["content"] = str(position)

    file.change_schema(change)
    refused(file)


# --- code -------------------------------------------------------------------------------------


def node(loader, module, name, **more):
    return {"__loader__": loader, "__module__": module, "__class__": name, **more}


def json_node(value):
    return node("JsonNode", "builtins", "str", content=json.dumps(value), is_json=True)


def listing(loader, kind, *items):
    return node(loader, "builtins", kind, content=list(items))


def mapping(**items):
    key_types = listing("ListNode", "list", *(node("TypeNode", "builtins", "str") for _ in items))
    return node("DictNode", "builtins", "dict", content=items, key_types=key_types)


def touching(path):
    """Nodes, each of which would write the file `path` or hand out something that can."""
    command = json_node(f"open({str(path)!r}, 'w')")
    arguments = listing("TupleNode", "tuple", command)
    shell = listing("TupleNode", "tuple", json_node(f"touch {path}"))
    nothing = mapping()
    evaluate = node("FunctionNode", "builtins", "eval")
    yield evaluate
    yield node("TypeNode", "builtins", "eval")
    yield node("TypeNode", "os", "system")
    yield node("TypeNode", "subprocess", "Popen")
    yield node("FunctionNode", "os", "system")
    yield node("FunctionNode", "numpy", "load")
    yield node("FunctionNode", "numpy", "memmap")
    yield node("FunctionNode", "numpy.log", "log")
    yield node("FunctionNode", "sklearn.utils.validation", "check_array")
    yield node("FunctionNode", "sklearn.utils", "gen_batches")
    yield node("FunctionNode", "twinned.persistence", "save")
    yield node("FunctionNode", "joblib", "load")
    for module, name in [("builtins", "eval"), ("os", "system"), ("subprocess", "Popen")]:
        content = arguments if name == "eval" else shell
        for loader in ("ConstructorFromReduceNode", "ObjectNode"):
            yield node(loader, module, name, content=content)
        for loader in ("ListNode", "SetNode", "TupleNode"):
            yield node(loader, module, name, content=content["content"])
    yield node("LossNode", "builtins", "eval", content=nothing, __reduce__={"args": arguments})
    yield node("LossNode", "os", "system", content=nothing, __reduce__={"args": shell})
    yield node("TreeNode", "builtins", "eval", content=nothing, __reduce__={"args": arguments})
    yield node("ReduceNode", "builtins", "eval", content=nothing, __reduce__={"args": arguments})
    yield node(
        "QuantileForestNode", "builtins", "eval", content=nothing, __reduce__={"args": arguments}
    )
    partial = {"func": evaluate, "args": arguments, "kwds": nothing, "namespace": json_node(None)}
    yield node("PartialNode", "functools", "partial", content=partial)
    yield node(
        "MethodNode",
        "sklearn.linear_model._ridge",
        "Ridge",
        content={
            "func": "fit",
            "obj": node("ObjectNode", "sklearn.linear_model._ridge", "Ridge", content=nothing),
        },
    )
    yield node("OperatorFuncNode", "operator", "methodcaller", attrs=arguments)
    yield node("OperatorFuncNode", "operator", "call", attrs=arguments)
    yield node(
        "DefaultDictNode",
        "collections",
        "defaultdict",
        content={"main": nothing, "default_factory": evaluate},
    )
    yield node(
        "DictNode",
        "builtins",
        "dict",
        content={f"open({str(path)!r}, 'w')": json_node(1)},
        key_types=listing("ListNode", "list", node("TypeNode", "builtins", "eval")),
    )
    yield node(
        "DictNode",
        "builtins",
        "dict",
        content={f"open({str(path)!r}, 'w')": json_node(1)},
        key_types=listing("ListNode", "list", evaluate),
    )
    yield node("DictNode", "os", "_Environ", content={}, key_types=listing("ListNode", "list"))
    yield node("NdArrayNode", "builtins", "eval", type="json", content=[command], shape=arguments)
    yield node("NdArrayNode", "numpy", "memmap", type="json", content=[command], shape=arguments)
    yield node("BytesNode", "builtins", "bytes", file=SCHEMA)
    yield node("SparseMatrixNode", "scipy.sparse", "spmatrix", type="scipy", file=SCHEMA)
    yield node("NoSuchNode", "builtins", "str", content="1")
    # Ours, or scikit-learn's, and still not what a model is made of.
    yield node("ObjectNode", "twinned.persistence.archive", "Archive", content=nothing)
    yield node("ObjectNode", "twinned.persistence", "Path", content=nothing)
    yield node("ObjectNode", "twinned.pairing.pairs", "PairStrategy", content=nothing)
    yield node("ObjectNode", "twinned.estimators.twin", "BaseEstimator", content=nothing)
    yield node("ObjectNode", "twinned.nowhere", "Nothing", content=nothing)
    yield node(
        "ConstructorFromReduceNode", "twinned.estimators.twin", "TwinRegressor", content=arguments
    )
    yield node("ObjectNode", "sklearn.utils._testing", "MinimalRegressor", content=nothing)
    yield node("ObjectNode", "sklearn.model_selection._search", "GridSearchCV", content=nothing)
    yield node("ObjectNode", "sklearn.cluster._kmeans", "KMeans", content=nothing)
    yield node("TypeNode", "sklearn.linear_model._ridge", "Ridge")
    yield node("ObjectNode", "", "", content=nothing)
    yield node("ObjectNode", None, None, content=nothing)


N_ATTACKS = len(list(touching("marker")))


@pytest.mark.parametrize("attack", range(N_ATTACKS))
def test_nothing_in_a_file_is_run(data, saved, tmp_path, attack):
    file = saved(
        make_pipeline(FunctionTransformer(np.log1p), Ridge()).fit(np.abs(data[0]), data[1])
    )
    marker = tmp_path / "marker"
    evil = list(touching(marker))[attack]

    def change(schema):
        function = file.attribute(schema, "steps", "0", "1", "func")
        function.clear()
        function.update(evil)

    file.change_schema(change)
    with pytest.raises(IntegrityError) as caught:
        twinned.load(file.path)
    assert not marker.exists()
    if evil["__class__"] in ("eval", "Popen", "system"):
        assert evil["__class__"] in str(caught.value)


def test_a_ufunc_is_not_an_attack(data, saved):
    file = saved(
        make_pipeline(FunctionTransformer(np.log1p), Ridge()).fit(np.abs(data[0]), data[1])
    )

    def change(schema):
        function = file.attribute(schema, "steps", "0", "1", "func")
        function.update(node("FunctionNode", "numpy", "sqrt"))

    file.change_schema(change)
    assert twinned.load(file.path).steps[0][1].func is np.sqrt


def test_the_whole_file_may_not_be_a_function(data, saved):
    file = saved(Ridge().fit(*data))

    def change(schema):
        schema.update(node("FunctionNode", "numpy", "log"))

    file.change_schema(change)
    refused(file)


@pytest.mark.parametrize("protocol", [0, 1, True, None, "2", 99])
def test_older_protocols_of_skops_cannot_be_asked_for(data, saved, protocol):
    file = saved(Ridge().fit(*data))
    file.change_schema(lambda schema: schema.update(protocol=protocol))
    refused(file, "protocol")


def test_a_method_cannot_be_replaced(data, saved):
    file = saved(Ridge().fit(*data))

    def change(schema):
        attributes = schema["content"]
        attributes["content"]["predict"] = node("FunctionNode", "numpy", "log")
        attributes["key_types"]["content"].append(node("TypeNode", "builtins", "str"))

    file.change_schema(change)
    refused(file, "its method 'predict' is replaced")


def test_a_foreign_member_is_refused(data, saved):
    file = saved(Ridge().fit(*data))
    file.rewrite(**{"payload.py": b"print()"})
    refused(file, "'payload.py', which no part")


def test_a_pickled_array_is_not_unpickled(data, saved, tmp_path):
    file = saved(Ridge().fit(*data))
    marker = tmp_path / "marker"

    class Evil:
        def __reduce__(self):
            return open, (str(marker), "w")

    buffer = io.BytesIO()
    np.save(buffer, np.array([Evil()], dtype=object), allow_pickle=True)
    name = file.attribute(json.loads(file.members()[SCHEMA]), "coef_")["file"]
    file.rewrite(**{name: buffer.getvalue()})
    refused(file)
    assert not marker.exists()
