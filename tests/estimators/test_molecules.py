"""MoleculeFeatures, and blends that compare the fragments of molecules."""

import pickle
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import twinned
from twinned import AutoTwinRegressor, MoleculeFeatures
from twinned.estimators.blending.members import AUTO, AUTO_OF_MOLECULES
from twinned.estimators.molecules import DESCRIPTORS, draw_molecules, fragment_columns, matched_pair
from twinned.export import to_onnx
from twinned.export.model_parts import NotExportableError

Chem = pytest.importorskip("rdkit.Chem", reason="RDKit is not installed: make test-chem")
from rdkit.Chem import Descriptors  # noqa: E402
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator  # noqa: E402

SMILES = ["CCO", "c1ccccc1O", "OCC", "CC(=O)O", "[Na+].CC(=O)[O-]"]
MEMBERS = ["ridge", "gp_tanimoto"]


@pytest.fixture(scope="module")
def alcohols():
    """SMILES of alcohols, ethers and amines, and a property that adds up over their groups."""
    chains = ["C" * n for n in range(1, 9)] + ["CC(C)", "CCC(C)", "CC(C)C", "C1CCCC1"]
    smiles = [chain + group for chain in chains for group in ("O", "OC", "N", "F")]
    y = [len(text) + 3.0 * ("O" in text) - 2.0 * ("F" in text) for text in smiles]
    return pd.Series(smiles, name="smiles"), np.array(y)


@parametrize_with_checks([MoleculeFeatures()])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        pd.Series,
        lambda values: np.array(values)[:, None],
        lambda values: pd.DataFrame({"smiles": values}),
        lambda values: pytest.importorskip("polars").DataFrame({"smiles": values}),
        lambda values: [Chem.MolFromSmiles(value) for value in values],
    ],
    ids=["list", "tuple", "array", "Series", "column", "DataFrame", "polars", "molecules"],
)
def test_features_are_those_of_rdkit(make):
    features = MoleculeFeatures(n_fragments=64).fit_transform(make(SMILES))
    generator = GetMorganGenerator(radius=3)  # hashes of 64 bits
    for row, smiles in enumerate(SMILES):
        molecule = Chem.MolFromSmiles(smiles)
        expected = [getattr(Descriptors, name)(molecule) for name in DESCRIPTORS]
        np.testing.assert_array_equal(features.iloc[row, : len(DESCRIPTORS)], expected)
        counts = generator.GetSparseCountFingerprint(molecule).GetNonzeroElements()
        total = features.iloc[row, len(DESCRIPTORS) :].sum()
        assert total == sum(counts.values())
        folded = generator.GetCountFingerprint(molecule).GetNonzeroElements()
        assert total == sum(folded.values())
    assert list(features) == [*DESCRIPTORS, *(f"fragment {i}" for i in range(64))]


def test_table_has_the_index_and_the_names(alcohols):
    smiles = alcohols[0][:4].set_axis(list("abcd"))
    transformer = MoleculeFeatures(descriptors=False, n_fragments=8).fit(smiles)
    table = transformer.transform(smiles)
    assert list(table.index) == list("abcd")
    np.testing.assert_array_equal(transformer.get_feature_names_out(), table.columns)


def test_salts_duplicates_and_invalid_rows_are_named():
    transformer = MoleculeFeatures(on_error="missing").fit([*SMILES, "C1CC", None, "OCC"])
    assert transformer.salts_.tolist() == [4]
    assert transformer.duplicates_.tolist() == [[2, 0], [7, 0]]
    assert transformer.invalid_.tolist() == [5, 6]
    assert transformer.transform(["C1CC", "CCO"]).isna().all(axis=1).tolist() == [True, False]


@pytest.mark.parametrize(
    ("parameters", "X", "error", "message"),
    [
        ({}, ["CCO", "C1CC", None], ValueError, r"row 1 'C1CC', row 2 None.*on_error='missing'"),
        ({}, "CCO", ValueError, r"\['CCO'\]"),
        ({}, pd.DataFrame({"a": ["C"], "b": ["C"]}), ValueError, r"shape \(1, 2\)"),
        ({}, [["C", "C"]], ValueError, r"shape \(1, 2\)"),
        ({"on_error": "ignore"}, ["C"], ValueError, "on_error must be one of"),
        ({"n_fragments": -1}, ["C"], ValueError, "n_fragments must be at least 0, not -1"),
        ({"radius": 1.5}, ["C"], TypeError, "radius must be an integer, not 1.5"),
        ({"descriptors": False, "n_fragments": 0}, ["C"], ValueError, "leave no features"),
    ],
)
def test_invalid_input(parameters, X, error, message):
    with pytest.raises(error, match=message):
        MoleculeFeatures(**parameters).fit(X)


def test_a_molecule_takes_milliseconds():
    """The target is 5 ms of a free core; the limit allows for a busy machine."""
    smiles = ["CC(C)Cc1ccc(cc1)C(C)C(=O)NC2CCN(CC2)c3ncnc4ccccc34"] * 200
    start = time.process_time()
    MoleculeFeatures().fit_transform(smiles)
    assert time.process_time() - start < 10e-3 * len(smiles)


def test_pipeline_is_searched_and_saved(alcohols, tmp_path):
    smiles, y = alcohols
    blend = AutoTwinRegressor(members=MEMBERS, random_state=0)
    pipeline = make_pipeline(MoleculeFeatures(n_fragments=32), blend)
    grid = {"moleculefeatures__radius": [0, 2]}
    search = GridSearchCV(clone(pipeline), grid, cv=2).fit(smiles, y)
    assert search.best_score_ > 0.5
    pipeline.fit(smiles, y)
    assert pipeline[-1].member_names_ == MEMBERS
    twinned.save(pipeline, tmp_path / "model.twin")
    expected = pipeline.predict(smiles)
    for copy in (twinned.load(tmp_path / "model.twin"), pickle.loads(pickle.dumps(pipeline))):
        np.testing.assert_array_equal(copy.predict(smiles), expected)
        assert copy[0].duplicates_.tolist() == pipeline[0].duplicates_.tolist()


def test_one_member_has_fragments_and_all_have_the_other_columns(alcohols):
    smiles, y = alcohols
    X = MoleculeFeatures(n_fragments=32).fit_transform(smiles)
    descriptors = X[list(DESCRIPTORS)]
    for columns in (X, X.iloc[:, ::-1], descriptors, X.drop(columns=list(DESCRIPTORS))):
        model = AutoTwinRegressor(members=[MEMBERS[columns is not descriptors]], random_state=0)
        model.fit(columns, y)
        used = model.blend_model_.members[0].preparation.transform(columns.to_numpy())
        n_counts = model.blend_model_.members[0].preparation.n_counts
        assert n_counts == (0 if columns is descriptors else 32)
        counts = columns.filter(like="fragment").to_numpy()
        others = columns.drop(columns=columns.filter(like="fragment").columns)
        if columns is not descriptors:
            np.testing.assert_array_equal(used[:, :32], counts)
        scaled = StandardScaler().fit_transform(others) if len(others.columns) else others
        expected = scaled if columns is descriptors else np.arcsinh(scaled)
        np.testing.assert_allclose(used[:, n_counts:], expected, atol=1e-9)


def test_trees_have_the_fragments_that_most_evenly_divide_the_rows(alcohols):
    smiles, y = alcohols
    X = MoleculeFeatures(n_fragments=256).fit_transform(smiles)
    model = AutoTwinRegressor(members=["extra_trees:fast"], random_state=0).fit(X, y)
    [member] = model.blend_model_.members
    used = X.columns[member.preparation.columns]
    fragments = used[~used.isin(DESCRIPTORS)]
    distance = (X.filter(like="fragment") > 0).mean().sub(0.5).abs()
    assert set(DESCRIPTORS) <= set(used)
    assert len(fragments) == 100
    assert distance[fragments].max() <= distance.drop(fragments).min()
    assert member.estimator.max_features == 0.5
    assert member.estimator.min_samples_leaf == 3


def test_columns_of_fragments_are_found_by_name_and_values():
    names = ["mol__fragment 1", "smiles (fragment 2)", "fragment 3", "fragments 4", "a fragment 5"]
    matrix = np.array([[0.0, 1.0, 0.5, 1.0, 1.0], [2.0, np.nan, 1.0, 1.0, 1.0]])
    assert fragment_columns(names, matrix).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("CCCCC", "CCCCO", "*C → *O"),
        ("c1ccccc1", "Clc1ccccc1", "*[H] → *Cl"),
        ("OCC (line 3)", "CCN", "*O → *N"),  # the name of a row may follow
        ("CCO", "OCC", ""),
        ("CCCC", "OCCCO", ""),  # two groups
        ("CCCCCO", "CF", ""),  # the groups are larger than what is shared
        ("CCO.Cl", "CCN.Cl", ""),
        ("house 7", "CCO", ""),
    ],
)
def test_matched_pair_differs_in_one_group(first, second, expected):
    assert matched_pair(first, second) == expected
    groups = expected.split(" → ")
    assert matched_pair(second, first).split(" → ") == groups[::-1]


def test_pictures_have_the_color_of_the_text_and_no_text_of_a_label():
    texts = ["CCO", "OCC (line 3)", "house 7", "C* |$a;<b>$|"]
    pictures = draw_molecules([*texts, "CCO"])
    assert list(pictures) == ["CCO", "OCC (line 3)", "C* |$a;<b>$|"]
    assert "currentColor" in pictures["CCO"]
    assert pictures["CCO"] == pictures["OCC (line 3)"]
    assert "<b>" not in pictures["C* |$a;<b>$|"]


def test_auto_has_other_members_where_there_are_fragments(alcohols):
    smiles, y = alcohols
    X = MoleculeFeatures(n_fragments=16).fit_transform(smiles)
    for table, names in ((X, AUTO_OF_MOLECULES), (X[list(DESCRIPTORS)], AUTO)):
        with pytest.warns(twinned.exceptions.SkippedMemberWarning):
            model = AutoTwinRegressor(time_budget=1e-3).fit(table, y)
        tried = {name.partition(":")[0] for name in (*model.skipped_, *model.member_names_)}
        assert tried == set(names)


def test_without_fragments_the_member_is_skipped_with_the_reason(alcohols):
    smiles, y = alcohols
    X = MoleculeFeatures(n_fragments=0).fit_transform(smiles)
    with pytest.warns(twinned.exceptions.SkippedMemberWarning, match="MoleculeFeatures makes"):
        model = AutoTwinRegressor(members=MEMBERS, random_state=0).fit(X, y)
    assert model.member_names_ == ["ridge"]


def test_onnx_names_the_member(alcohols, tmp_path):
    pytest.importorskip("onnx")
    smiles, y = alcohols
    X = MoleculeFeatures(n_fragments=16).fit_transform(smiles)
    model = AutoTwinRegressor(members=MEMBERS, random_state=0).fit(X, y)
    with pytest.raises(NotExportableError, match=r"'gp_tanimoto'.*no similarity of counts"):
        to_onnx(model, tmp_path / "model.onnx")
