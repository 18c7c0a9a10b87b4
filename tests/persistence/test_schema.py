"""Files with code, with types that are not allowed, or with inconsistent nodes."""

import importlib
import json

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import kernels
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import twinned
from twinned.exceptions import IntegrityError
from twinned.persistence.allowed_types import allowed_type_names
from twinned.persistence.archive import SCHEMA


@pytest.mark.parametrize("n_types", [0, 2, 3])
def test_dict_without_a_type_for_each_key(tree_file, n_types):
    """Skops drops the keys that have no type, which would leave a tree without nodes."""

    def change(schema):
        del tree_file.attribute(schema, "tree_")["content"]["key_types"]["content"][n_types:]

    tree_file.change_schema(change)
    tree_file.assert_refused("a type for each of its keys")


def test_tree_state_with_keys_of_another_type(tree_file):
    def change(schema):
        for key in tree_file.attribute(schema, "tree_")["content"]["key_types"]["content"]:
            key["__class__"] = "bool"

    tree_file.change_schema(change)
    tree_file.assert_refused("its state is not")


def test_two_objects_with_the_same_number(data, saved):
    """Skops resolves a repeated number to the first object that has it, of whatever type."""
    file = saved(RandomForestRegressor(2, max_depth=2, random_state=0).fit(*data))

    def change(schema):
        first, second = file.nodes(schema, "TreeNode")
        second["content"]["__id__"] = first["content"]["__id__"]

    file.change_schema(change)
    file.assert_refused("two objects have the number")


def test_reference_to_a_missing_object(tree_file):
    def change(schema):
        tree_file.attribute(schema, "tree_").update(__loader__="CachedNode", __id__=10**6)

    tree_file.change_schema(change)
    tree_file.assert_refused("there is no object")


@pytest.mark.parametrize("part", ["__class__", "__module__"])
def test_reference_without_a_type(data, saved, part):
    file = saved(RandomForestRegressor(2, max_depth=2, random_state=0).fit(*data))

    def change(schema):
        del next(file.nodes(schema, "CachedNode"))[part]

    file.change_schema(change)
    file.assert_refused(part)


def test_object_that_contains_itself(tree_file):
    def change(schema):
        tree_file.attribute(schema, "tree_").update(
            __loader__="CachedNode", __id__=schema["__id__"]
        )

    tree_file.change_schema(change)
    tree_file.assert_refused()


def node(loader, module, name, **more):
    return {"__loader__": loader, "__module__": module, "__class__": name, **more}


def json_node(value):
    return node("JsonNode", "builtins", "str", content=json.dumps(value), is_json=True)


def sequence(loader, kind, *items):
    return node(loader, "builtins", kind, content=list(items))


def mapping(**items):
    key_types = sequence("ListNode", "list", *(node("TypeNode", "builtins", "str") for _ in items))
    return node("DictNode", "builtins", "dict", content=items, key_types=key_types)


def attacks(path):
    """Yield nodes that would create the file `path` or return a function that can."""
    command = json_node(f"open({str(path)!r}, 'w')")
    arguments = sequence("TupleNode", "tuple", command)
    shell = sequence("TupleNode", "tuple", json_node(f"touch {path}"))
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
        key_types=sequence("ListNode", "list", node("TypeNode", "builtins", "eval")),
    )
    yield node(
        "DictNode",
        "builtins",
        "dict",
        content={f"open({str(path)!r}, 'w')": json_node(1)},
        key_types=sequence("ListNode", "list", evaluate),
    )
    yield node("DictNode", "os", "_Environ", content={}, key_types=sequence("ListNode", "list"))
    yield node("NdArrayNode", "builtins", "eval", type="json", content=[command], shape=arguments)
    yield node("NdArrayNode", "numpy", "memmap", type="json", content=[command], shape=arguments)
    yield node("BytesNode", "builtins", "bytes", file=SCHEMA)
    yield node("SparseMatrixNode", "scipy.sparse", "spmatrix", type="scipy", file=SCHEMA)
    yield node("NoSuchNode", "builtins", "str", content="1")
    # types of twinned and scikit-learn that are not allowed in a model
    yield node("ObjectNode", "twinned.persistence.archive", "Archive", content=nothing)
    yield node("ObjectNode", "twinned.persistence", "Path", content=nothing)
    yield node("ObjectNode", "twinned.pairing.pairs", "PairStrategy", content=nothing)
    yield node("ObjectNode", "twinned.estimators.base", "BaseEstimator", content=nothing)
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


N_ATTACKS = len(list(attacks("marker")))


def test_attacked_names_of_twinned_exist():
    """An attack on a name that does not exist would be refused for that reason alone."""
    names = {(attack["__module__"], attack["__class__"]) for attack in attacks("marker")}
    names = {(module, name) for module, name in names if str(module).startswith("twinned.")}
    missing = {name for name in names if not hasattr(optional_module(name[0]), name[1])}
    assert len(names) > 5
    assert missing == {("twinned.nowhere", "Nothing")}


def optional_module(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


@pytest.mark.parametrize(
    "module",
    [
        "estimators.base",
        "estimators.semi_supervised",
        "estimators.twin",
        "pairing.anchors",
        "pairing.pairs",
        "pairing.weights",
    ],
)
def test_all_estimators_and_strategies_are_allowed(module):
    module = importlib.import_module(f"twinned.{module}")
    classes = [
        f"{module.__name__}.{name}"
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, BaseEstimator)
        and value.__module__ == module.__name__
    ]
    assert classes
    assert set(classes) <= allowed_type_names("ObjectNode")


def test_allowed_types_of_twinned_exist():
    names = [name for name in allowed_type_names("ObjectNode") if name.startswith("twinned.")]
    for module, _, name in (full_name.rpartition(".") for full_name in names):
        assert getattr(importlib.import_module(module), name).__module__ == module


def test_all_kernels_are_allowed():
    classes = [
        f"{kernels.__name__}.{name}"
        for name, value in vars(kernels).items()
        if isinstance(value, type) and issubclass(value, kernels.Kernel)
    ]
    assert set(classes) <= allowed_type_names("ObjectNode")


@pytest.mark.parametrize("index", range(N_ATTACKS))
def test_no_code_in_a_file_is_run(data, saved, tmp_path, index):
    file = saved(
        make_pipeline(FunctionTransformer(np.log1p), Ridge()).fit(np.abs(data[0]), data[1])
    )
    marker = tmp_path / "marker"
    attack = list(attacks(marker))[index]

    def change(schema):
        function = file.attribute(schema, "steps", "0", "1", "func")
        function.clear()
        function.update(attack)

    file.change_schema(change)
    with pytest.raises(IntegrityError) as caught:
        twinned.load(file.path)
    assert not marker.exists()
    if attack["__class__"] in ("eval", "Popen", "system"):
        assert attack["__class__"] in str(caught.value)


def test_ufunc_is_allowed(data, saved):
    file = saved(
        make_pipeline(FunctionTransformer(np.log1p), Ridge()).fit(np.abs(data[0]), data[1])
    )

    def change(schema):
        function = file.attribute(schema, "steps", "0", "1", "func")
        function.update(node("FunctionNode", "numpy", "sqrt"))

    file.change_schema(change)
    assert twinned.load(file.path).steps[0][1].func is np.sqrt


def test_file_that_holds_only_a_function(data, saved):
    file = saved(Ridge().fit(*data))

    def change(schema):
        schema.update(node("FunctionNode", "numpy", "log"))

    file.change_schema(change)
    file.assert_refused()


@pytest.mark.parametrize("protocol", [0, 1, True, None, "2", 99])
def test_other_protocols_of_skops(data, saved, protocol):
    file = saved(Ridge().fit(*data))
    file.change_schema(lambda schema: schema.update(protocol=protocol))
    file.assert_refused("protocol")


def test_member_that_the_model_does_not_use(data, saved):
    file = saved(Ridge().fit(*data))
    file.rewrite(**{"payload.py": b"print()"})
    file.assert_refused("'payload.py', which the model does not use")


def test_schema_nested_too_deeply(saved, data):
    file = saved(Ridge().fit(*data))
    depth = 20_000
    node = '{"__loader__":"ListNode","__module__":"builtins","__class__":"list","content":['
    file.rewrite(**{SCHEMA: (node * depth + "]}" * depth).encode()})
    file.assert_refused("damaged")
    deep = "[" * 10**5 + "]" * 10**5
    twinned.save(Ridge().fit(*data), file.path)
    file.change_schema(lambda schema: file.attribute(schema, "alpha").update(content=deep))
    file.assert_refused("RecursionError")


@pytest.mark.parametrize("part", ["__class__", "__module__", "__loader__", "content"])
def test_a_node_without_a_part(saved, data, part):
    file = saved(Ridge().fit(*data))
    file.change_schema(lambda schema: file.attribute(schema, "alpha").pop(part))
    file.assert_refused()
