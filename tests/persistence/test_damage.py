"""Files that are not what they should be, by accident; and what the header says."""

import json
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned.exceptions import IntegrityError, VersionMismatchWarning
from twinned.persistence import read_header
from twinned.persistence.archive import HEADER, SCHEMA, pack


@pytest.fixture(scope="module")
def small(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "model.twin"
    twinned.save(DecisionTreeRegressor(max_depth=2, random_state=0).fit(*data), path)
    return path.read_bytes()


@pytest.fixture
def at(tmp_path):
    def write(content):
        path = tmp_path / "damaged.twin"
        path.write_bytes(content)
        return path

    return write


def refused(path, match=None):
    for reader in (twinned.load, read_header):
        with pytest.raises(IntegrityError, match=match) as caught:
            reader(path)
        assert "\n" not in str(caught.value)


def test_a_truncated_file(small, at):
    for length in range(0, len(small), 7):
        refused(at(small[:length]))


@pytest.mark.parametrize(
    "content", [b"", b"no zip at all", b"PK\x05\x06" + bytes(18), b"\x00" * 99]
)
def test_what_is_no_model(at, content):
    refused(at(content), "it is empty|it is damaged|it has no|it is no model")


@pytest.mark.parametrize("member", [HEADER, SCHEMA])
def test_a_missing_member(saved, data, member):
    file = saved(Ridge().fit(*data))
    members = file.members()
    del members[member]
    file.path.write_bytes(pack(members))
    refused(file.path, f"it has no {member}")


def test_a_missing_array(saved, data):
    file = saved(Ridge().fit(*data))
    members = {k: v for k, v in file.members().items() if not k.endswith(".npy")}
    file.path.write_bytes(pack(members))
    with pytest.raises(IntegrityError, match="no item named"):
        twinned.load(file.path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 10**5, b'{"a":' * 10**5])
@pytest.mark.parametrize("member", [HEADER, SCHEMA])
def test_malformed_json(saved, data, member, content):
    file = saved(Ridge().fit(*data))
    file.rewrite(**{member: content})
    with pytest.raises(IntegrityError):
        twinned.load(file.path)


def test_a_schema_nested_too_deep(saved, data):
    file = saved(Ridge().fit(*data))
    depth = 20_000
    node = '{"__loader__":"ListNode","__module__":"builtins","__class__":"list","content":['
    file.rewrite(**{SCHEMA: (node * depth + "]}" * depth).encode()})
    with pytest.raises(IntegrityError, match="damaged"):
        twinned.load(file.path)
    deep = "[" * 10**5 + "]" * 10**5
    twinned.save(Ridge().fit(*data), file.path)
    file.change_schema(lambda schema: file.attribute(schema, "alpha").update(content=deep))
    with pytest.raises(IntegrityError, match="RecursionError"):
        twinned.load(file.path)


@pytest.mark.parametrize("part", ["__class__", "__module__", "__loader__", "content"])
def test_a_node_without_a_part(saved, data, part):
    file = saved(Ridge().fit(*data))
    file.change_schema(lambda schema: file.attribute(schema, "alpha").pop(part))
    with pytest.raises(IntegrityError):
        twinned.load(file.path)


def test_a_broken_checksum(small, at):
    with zipfile.ZipFile(at(small)) as archive:
        entry = archive.getinfo(SCHEMA)
    middle = entry.header_offset + 30 + len(SCHEMA) + entry.compress_size // 2
    damaged = bytearray(small)
    damaged[middle] ^= 0x10
    with pytest.raises(IntegrityError, match="damaged"):
        twinned.load(at(bytes(damaged)))


def test_two_members_of_one_name(saved, data):
    file = saved(Ridge().fit(*data))
    with warnings.catch_warnings(), zipfile.ZipFile(file.path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(SCHEMA, b"{}")
    refused(file.path, "same name")


def test_a_small_file_that_unpacks_to_a_large_one(saved, data):
    file = saved(Ridge().fit(*data))
    file.rewrite(**{"zeros.npy": bytes(257 * 1024**2)})
    assert file.path.stat().st_size < 10**6
    refused(file.path, "would unpack to")


def test_other_compression_is_refused(saved, data):
    file = saved(Ridge().fit(*data))
    members = file.members()
    with zipfile.ZipFile(file.path, "w", zipfile.ZIP_LZMA) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    refused(file.path, "compressed in a way")


def test_an_array_that_claims_more_than_it_has(saved, data):
    file = saved(Ridge().fit(*data))
    name = file.attribute(json.loads(file.members()[SCHEMA]), "coef_")["file"]
    content = file.members()[name]
    claim = content.replace(b"(3,), }       ", b"(3000000000,)}")
    assert claim != content
    file.rewrite(**{name: claim})
    with pytest.raises(IntegrityError, match="claims to be"):
        twinned.load(file.path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@pytest.mark.filterwarnings("ignore::twinned.exceptions.VersionMismatchWarning")
def test_a_flipped_bit_is_refused_or_harmless(small, at, place, bit):
    damaged = bytearray(small)
    damaged[int(place * len(small))] ^= 1 << bit
    try:
        model = twinned.load(at(bytes(damaged)))
    except IntegrityError:
        return
    # A flip in what a zip says beside its members; the tree itself has passed every check.
    assert isinstance(model, DecisionTreeRegressor)
    twinned.save(model, path := at(b""))
    assert path.read_bytes() == small


# --- the header -------------------------------------------------------------------------------


def test_what_the_header_says(saved, data):
    file = saved(DecisionTreeRegressor(max_depth=1).fit(*data))
    header = read_header(file.path)
    assert header["format_version"] == 1
    assert header["model"] == "sklearn.tree._classes.DecisionTreeRegressor"
    assert header["schema"] == {"n_features_in_": 3, "feature_names_in_": None, "n_outputs": 1}
    assert header["versions"]["twinned"] == twinned.__version__
    assert set(header["versions"]) >= {
        "python",
        "numpy",
        "scipy",
        "scikit-learn",
        "pandas",
        "skops",
    }


def test_no_warning_where_the_versions_agree(saved, data):
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
def test_other_versions_warn(saved, data, library, found, warns):
    file = saved(Ridge().fit(*data))
    file.change_json(HEADER, lambda header: header["versions"].update({library: found}))
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


def test_the_last_number_of_scikit_learn_does_not_matter(saved, data):
    file = saved(Ridge().fit(*data))

    def change(header):
        major, minor, *_ = header["versions"]["scikit-learn"].split(".")
        header["versions"]["scikit-learn"] = f"{major}.{minor}.999"

    file.change_json(HEADER, change)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twinned.load(file.path)


@pytest.mark.parametrize("found", [2, 10**9, 0, -1, None, "1", True, 1.0])
def test_an_unknown_format_is_refused(saved, data, found):
    file = saved(Ridge().fit(*data))
    file.change_json(HEADER, lambda header: header.update(format_version=found))
    refused(file.path, "format version is .*update twinned" if found in (2, 10**9) else "format")


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(model="sklearn.linear_model._ridge.RidgeCV"),
        lambda header: header["schema"].update(n_features_in_=4),
        lambda header: header["schema"].update(n_outputs=2),
        lambda header: header["schema"].update(feature_names_in_=["a", "b", "c"]),
        lambda header: header["schema"].clear(),
    ],
)
def test_a_header_of_another_model_is_refused(saved, data, change):
    file = saved(Ridge().fit(*data))
    file.change_json(HEADER, change)
    with pytest.raises(IntegrityError, match="its header announces"):
        twinned.load(file.path)


@pytest.mark.parametrize("field", ["versions", "model", "schema"])
def test_a_header_without_a_field_is_refused(saved, data, field):
    file = saved(Ridge().fit(*data))
    file.change_json(HEADER, lambda header: header.pop(field))
    refused(file.path, f"its header has no {field}")
