"""The header of a model file."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned.exceptions import VersionMismatchWarning
from twinned.persistence import read_header
from twinned.persistence.archive import HEADER


def test_content_of_the_header(saved, data):
    file = saved(DecisionTreeRegressor(max_depth=1).fit(*data))
    header = read_header(file.path)
    assert header["format_version"] == 5
    assert header["model"] == "sklearn.tree._classes.DecisionTreeRegressor"
    assert header["schema"] == {"n_features_in_": 3, "feature_names_in_": None}
    assert header["versions"]["twinned"] == twinned.__version__
    assert set(header["versions"]) >= {"python", "numpy", "scipy", "scikit-learn", "pandas"}


def test_no_warning_for_equal_versions(saved, data):
    file = saved(Ridge().fit(*data))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twinned.load(file.path)


@pytest.mark.parametrize(
    ("library", "found", "warns"),
    [
        ("scikit-learn", "0.24.2", True),
        ("scikit-learn", None, True),
        ("twinned", "99.0.0", True),
        ("python", "2.7.18", False),
    ],
)
def test_warning_for_other_versions(saved, data, library, found, warns):
    file = saved(Ridge().fit(*data))
    file.change_json(lambda header: header["versions"].update({library: found}), HEADER)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = twinned.load(file.path)
    assert np.array_equal(model.coef_, Ridge().fit(*data).coef_)
    messages = [str(w.message) for w in caught if w.category is VersionMismatchWarning]
    if not warns:
        assert messages == []
        return
    (message,) = messages
    here = read_header_of(data, file)[library]
    assert f"{library} {found} (here {here})" in message
    assert "fit and save the model again" in message
    assert caught[0].filename == __file__


def read_header_of(data, file):
    twinned.save(Ridge().fit(*data), file.path)
    return read_header(file.path)["versions"]


def test_no_warning_for_another_patch_version_of_scikit_learn(saved, data):
    file = saved(Ridge().fit(*data))

    def change(header):
        major, minor, *_ = header["versions"]["scikit-learn"].split(".")
        header["versions"]["scikit-learn"] = f"{major}.{minor}.999"

    file.change_json(change, HEADER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twinned.load(file.path)


@pytest.mark.parametrize("found", [6, 4, 10**9, 1, 0, -1, None, "1", True, 1.0])
def test_unknown_format_version(saved, data, found):
    file = saved(Ridge().fit(*data))
    file.change_json(lambda header: header.update(format_version=found), HEADER)
    is_newer = type(found) is int and found > 5
    advice = "update twinned" if is_newer else "fit and save the model again"
    file.assert_unreadable(f"format version is .*{advice}")


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(model="sklearn.linear_model._ridge.RidgeCV"),
        lambda header: header["schema"].update(n_features_in_=4),
        lambda header: header["schema"].update(feature_names_in_=["a", "b", "c"]),
        lambda header: header["schema"].clear(),
    ],
)
def test_header_of_another_model(saved, data, change):
    file = saved(Ridge().fit(*data))
    file.change_json(change, HEADER)
    file.assert_refused("its header describes another model")


@pytest.mark.parametrize("field", ["versions", "model", "schema"])
def test_header_without_a_field(saved, data, field):
    file = saved(Ridge().fit(*data))
    file.change_json(lambda header: header.pop(field), HEADER)
    file.assert_unreadable(f"its header has no {field}")
