"""MoleculeFeatures: descriptors and counted fragments of molecules, computed by RDKit.

Pictures of molecules and matched pairs are for reports, the served page and `twinned explain`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import chain
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from twinned._compat import BaseEstimator, TransformerMixin
from twinned.exceptions import require_extra
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_bool, check_choice, check_integer

FRAGMENT = "fragment"  # the names of counts are "fragment 0", "fragment 1", …
# also of a column of a file and of a ColumnTransformer: "smiles (fragment 0)", "mol__fragment 0"
_FRAGMENT_NAME = re.compile(rf"(?:.*__|.* \()?{FRAGMENT} \d+\)?", re.DOTALL)
# Those of RDKit that take no more than about 1 ms of a molecule of the size of a drug, by their
# names there; the list is fixed, so that a saved model does not depend on the version of RDKit.
_DESCRIPTORS = """
    MolWt ExactMolWt HeavyAtomMolWt HeavyAtomCount
    MaxPartialCharge MinPartialCharge MaxAbsPartialCharge MinAbsPartialCharge HallKierAlpha
    Chi0n Chi0v Chi1n Chi1v Chi2n Chi2v Kappa1 Kappa2
    LabuteASA TPSA MolLogP MolMR FractionCSP3 NHOHCount NOCount NumHAcceptors NumHDonors
    NumHeteroatoms NumRotatableBonds NumAmideBonds RingCount NumAliphaticCarbocycles
    NumAliphaticHeterocycles NumAliphaticRings NumAromaticCarbocycles NumAromaticHeterocycles
    NumAromaticRings NumSaturatedCarbocycles NumSaturatedHeterocycles NumSaturatedRings
    NumHeterocycles NumSpiroAtoms NumBridgeheadAtoms NumAtomStereoCenters
"""
_PICTURE_SIZE = 180, 130  # pixels
_SURFACES = {"PEOE_VSA": 14, "SMR_VSA": 10, "SlogP_VSA": 12}
_SCALARS = _DESCRIPTORS.split()
DESCRIPTORS = (
    *_SCALARS,
    *(f"{name}{i}" for name, n in _SURFACES.items() for i in range(1, n + 1)),
)


@dataclass(eq=False, repr=False, kw_only=True)
class MoleculeFeatures(TransformerMixin, BaseEstimator):
    """Descriptors and counted fragments of molecules, as a table.

    Molecules are SMILES or molecules of RDKit, which the extra `chem` installs. Fragments are the
    neighborhoods of atoms up to a radius (Morgan fragments), counted in `n_fragments` columns by
    their hashes. `AutoTwinRegressor` has a member, `"gp_tanimoto"`, that compares such counts.

    Parameters
    ----------
    descriptors : bool, default=True
        Whether the table has the descriptors.
    n_fragments : int, default=2048
        Number of columns of counts, 0 for none.
    radius : int, default=3
        Largest radius of a fragment, in bonds.
    on_error : {"raise", "missing"}, default="raise"
        Whether a text that is no molecule is an error, or all its features are missing (NaN).

    Attributes
    ----------
    salts_ : ndarray of int
        Numbers of the rows of `fit` whose molecules have several components, such as a salt.
    duplicates_ : ndarray of shape (n_duplicates, 2)
        Rows of `fit` and the first row with the same molecule, by canonical SMILES.
    invalid_ : ndarray of int
        Numbers of the rows of `fit` that are no molecules.
    n_features_in_ : int
        Always 1.

    Examples
    --------
    >>> from twinned import MoleculeFeatures
    >>> table = MoleculeFeatures().fit_transform(["CCO", "c1ccccc1O"])  # doctest: +SKIP
    >>> table[["MolWt", "TPSA"]].round(1).to_numpy().tolist()  # doctest: +SKIP
    [[46.1, 20.2], [94.1, 20.2]]
    """

    descriptors: bool = True
    n_fragments: int = 2048
    radius: int = 3
    on_error: str = "raise"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, X: object, y: object = None) -> Self:
        """Read the molecules, and note salts and duplicates; nothing else is learned.

        Parameters
        ----------
        X : list, array, Series or table with a single column
            SMILES or molecules of RDKit.
        y : None
            Ignored.
        """
        molecules = self._read(X)  # raises without RDKit
        from rdkit.Chem import MolToSmiles

        texts = ["" if each is None else MolToSmiles(each) for each in molecules]
        canonical = np.array(texts, str)
        _, first, number = np.unique(canonical, return_index=True, return_inverse=True)
        pairs = np.column_stack([np.arange(len(canonical)), first[number]])
        self.salts_: Indices = np.flatnonzero(np.char.find(canonical, ".") >= 0)
        self.duplicates_: Indices = pairs[(pairs[:, 0] != pairs[:, 1]) & (canonical != "")]
        self.invalid_: Indices = np.flatnonzero(canonical == "")
        self.n_features_in_ = 1
        return self

    def transform(self, X: object) -> pd.DataFrame:
        """(n, n_features): the table of features, with the index of X."""
        check_is_fitted(self)
        names, molecules = self.get_feature_names_out(), self._read(X)
        from rdkit.Chem import Descriptors, rdMolDescriptors
        from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

        functions = [vars(Descriptors)[name] for name in _SCALARS]
        surfaces = [vars(rdMolDescriptors)[f"{name}_"] for name in _SURFACES]
        n_descriptors = len(names) - self.n_fragments
        features = np.full((len(molecules), len(names)), np.nan)
        counter = GetMorganGenerator(radius=self.radius, fpSize=max(self.n_fragments, 1))
        for row, molecule in enumerate(molecules):
            if molecule is None:
                continue
            if self.descriptors:
                areas = chain.from_iterable(areas_of(molecule) for areas_of in surfaces)
                features[row, :n_descriptors] = [*(of(molecule) for of in functions), *areas]
            if self.n_fragments:
                features[row, n_descriptors:] = counter.GetCountFingerprintAsNumPy(molecule)
        features[~np.isfinite(features)] = np.nan  # such as partial charges of unusual elements
        index = X.index if isinstance(X, pd.Series | pd.DataFrame) else None
        return pd.DataFrame(features, index=index, columns=names)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Names of the columns of the table."""
        check_is_fitted(self)
        names = list(DESCRIPTORS) if self.descriptors else []
        return np.array([*names, *(f"{FRAGMENT} {i}" for i in range(self.n_fragments))], object)

    def _read(self, X):
        """The molecules of RDKit, None where a value is none."""
        check_choice("on_error", self.on_error, ["raise", "missing"])
        check_integer("radius", self.radius, 0)
        n_fragments = check_integer("n_fragments", self.n_fragments, 0)
        if not check_bool("descriptors", self.descriptors) and not n_fragments:
            raise ValueError("descriptors=False and n_fragments=0 leave no features; change one.")
        values = _single_column(X)
        molecules = read_molecules(values)
        invalid = [row for row, molecule in enumerate(molecules) if molecule is None]
        if invalid and self.on_error == "raise":
            listed = ", ".join(f"row {row} {values[row]!r}" for row in invalid[:5])
            more = f" and {len(invalid) - 5} more" if len(invalid) > 5 else ""
            remedy = "correct them, or use on_error='missing'"
            raise ValueError(f"X has values that are no SMILES: {listed}{more}; {remedy}.")
        return molecules


def read_molecules(values: Iterable[object]) -> list[Any]:
    """Molecules of RDKit from SMILES; None for a value that is none, or without atoms."""
    with require_extra("Molecules need RDKit; install it with pip install rdkit."):
        from rdkit import Chem, rdBase
    molecules = []
    with rdBase.BlockLogs():
        for value in values:
            molecule = Chem.MolFromSmiles(value) if isinstance(value, str) else value
            is_molecule = isinstance(molecule, Chem.Mol) and molecule.GetNumAtoms()
            molecules.append(molecule if is_molecule else None)
    return molecules


def draw_molecules(smiles: Iterable[str]) -> dict[str, str]:
    """SVG pictures of texts that are SMILES, in the color of the text around them."""
    from rdkit.Chem import MolToSmiles
    from rdkit.Chem.Draw.rdMolDraw2D import MolDraw2DSVG, PrepareAndDrawMolecule

    pictures, texts = {}, list(dict.fromkeys(smiles))
    for text, molecule in zip(texts, read_molecules(texts), strict=True):
        if molecule is None:
            continue
        canonical = MolToSmiles(molecule)  # without labels of atoms that the text may give
        canvas = MolDraw2DSVG(*_PICTURE_SIZE)
        options: Any = canvas.drawOptions()
        options.clearBackground = False
        options.fixedBondLength = 22  # smaller only where the molecule is too large
        options.useBWAtomPalette()
        PrepareAndDrawMolecule(canvas, *read_molecules([canonical]))
        canvas.FinishDrawing()
        drawing = canvas.GetDrawingText().partition("<!-- END OF HEADER -->\n")[2]
        drawing = re.sub(" class='[^']*'", "", drawing).replace("#000000", "currentColor")
        drawing = re.sub("style='fill:none;[^']*'", "class='bond'", drawing)
        start = "<svg class='molecule' viewBox='0 0 {} {}' role='img'".format(*_PICTURE_SIZE)
        pictures[text] = f"{start} aria-label='{escape(canonical)}'>\n{drawing}"
    return pictures


def matched_pair(first: str, second: str) -> str:
    """The groups of two molecules that differ in one group only, and "" of other pairs.

    The part that they share is at least as large as each group.

    >>> matched_pair("CCCCC", "CCCCO"), matched_pair("CCCC", "OCCCO")  # doctest: +SKIP
    ('*C → *O', '')
    """
    parts = _cut(first), _cut(second)
    shared = max(sorted(parts[0].keys() & parts[1].keys()), key=_n_heavy_atoms, default="")
    groups = [others.get(shared, "") for others in parts]
    if groups[0] == groups[1] or max(map(_n_heavy_atoms, groups)) > _n_heavy_atoms(shared):
        return ""
    return " → ".join(groups)


@lru_cache(maxsize=1024)
def _cut(smiles: str) -> dict[str, str]:
    """The parts of a molecule on both sides of each single bond: the other part, by a part."""
    from rdkit.Chem import AddHs, MolToSmiles
    from rdkit.Chem.rdMMPA import FragmentMol

    parts: dict[str, str] = {}
    for molecule in filter(None, read_molecules([smiles])):
        limits = {"maxCuts": 1, "maxCutBonds": 1000}
        for _, cut in FragmentMol(AddHs(molecule), **limits, resultsAsMols=False):
            sides = read_molecules(cut.replace("[*:1]", "*").split("."))
            if len(sides) == 2:  # more of a salt
                one, other = map(MolToSmiles, sides)
                parts |= {one: other, other: one}
    return parts


def _n_heavy_atoms(smiles: str) -> int:
    return read_molecules([smiles])[0].GetNumHeavyAtoms()


def is_fragment(name: object) -> bool:
    """Whether a column is named like one with counts of a fragment."""
    return _FRAGMENT_NAME.fullmatch(str(name)) is not None


def fragment_columns(names: Iterable[object], matrix: Floats) -> Indices:
    """Indices of the columns with counts of fragments, by their names and values.

    >>> fragment_columns(["MolWt", "fragment 0", "fragment 1"], np.array([[46.1, 2.0, 0.5]]))
    array([1])
    """
    named = [j for j, name in enumerate(names) if is_fragment(name)]
    counts = np.nan_to_num(matrix[:, named])
    return np.array(named, np.intp)[((counts >= 0) & (counts == np.round(counts))).all(axis=0)]


def _single_column(X):
    """The values of a list, an array, a Series or a table with one column."""
    if isinstance(X, str):
        raise ValueError(f"X must be a list of SMILES, not a single one: [{X!r}].")
    values = np.asarray(X, dtype=object)
    if values.ndim not in (1, 2) or values.size != len(values):
        raise ValueError(f"X must be a list or a column of SMILES, not of shape {values.shape}.")
    return list(values.ravel())
