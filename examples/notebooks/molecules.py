# %% [markdown]
# # Molecules
#
# Chemists compare molecules in pairs: what does one more carbon atom, a branch or a hydroxyl
# group change? A twin learns such changes from all pairs. This notebook predicts the boiling
# points of small molecules from a few descriptors that are counted from their structure.

# %%
import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import ComparablesDisplay, TwinRegressor

# SMILES of molecules without rings, and their boiling points in °C, rounded
BOILING = {
    "C": -161, "CC": -89, "CCC": -42, "CCCC": 0, "CC(C)C": -12, "CCCCC": 36, "CCC(C)C": 28,
    "CC(C)(C)C": 10, "CCCCCC": 69, "CCCC(C)C": 60, "CCC(C)CC": 63, "CCC(C)(C)C": 50,
    "CC(C)C(C)C": 58, "CCCCCCC": 98, "CCCCC(C)C": 90, "CCCC(C)CC": 92, "CCCC(C)(C)C": 79,
    "CCC(C)C(C)C": 90, "CC(C)CC(C)C": 80, "CCC(CC)CC": 93, "CCCCCCCC": 126, "CCCCCC(C)C": 118,
    "CCCCCCCCC": 151, "CCCCCCCCCC": 174, "CO": 65, "CCO": 78, "CCCO": 97, "CC(C)O": 83,
    "CCCCO": 118, "CCC(C)O": 99, "CC(C)CO": 108, "CC(C)(C)O": 82, "CCCCCO": 138, "CCCC(C)O": 119,
    "CCC(CC)O": 116, "CC(C)CCO": 131, "CCC(C)(C)O": 102, "CCCCCCO": 157, "CCCCCCCO": 176,
    "CCCCCCCCO": 195, "COC": -25, "CCOC": 7, "CCOCC": 35, "CCCOCCC": 90, "CC(C)OC(C)C": 68,
    "CCCCOCCCC": 141, "CC(C)=O": 56, "CCC(C)=O": 80, "CCCC(C)=O": 102, "CCC(CC)=O": 102,
    "CCCCC(C)=O": 128, "CC(C)C(C)=O": 94, "CC(C)CC(C)=O": 117,
}  # fmt: skip
y = pd.Series(BOILING, name="boiling point", dtype=float)
print(f"{len(y)} molecules, from {y.min():.0f} to {y.max():.0f} °C")

# %% [markdown]
# ## Descriptors
#
# A molecule is a graph of atoms. Without rings its SMILES is read in one pass: a bracket opens a
# branch. The descriptors are the number of carbon atoms, of atoms with three or four neighbors,
# the longest chain, and the groups with oxygen.


# %%
def bonds(smiles):
    """Elements of the atoms, and the pairs of bonded atoms."""
    atoms, found, last, branches = [], [], None, []
    for letter in smiles:
        if letter == "(":
            branches.append(last)
        elif letter == ")":
            last = branches.pop()
        elif letter.isalpha():
            if last is not None:
                found.append((last, len(atoms)))
            last = len(atoms)
            atoms.append(letter)
    return atoms, found


def describe(smiles):
    atoms, found = bonds(smiles)
    distance = np.full((len(atoms), len(atoms)), np.inf)
    np.fill_diagonal(distance, 0)
    for i, j in found:
        distance[i, j] = distance[j, i] = 1
    for k in range(len(atoms)):  # shortest paths
        distance = np.minimum(distance, distance[:, [k]] + distance[[k]])
    degree = (distance == 1).sum(axis=0)
    oxygen = [i for i, atom in enumerate(atoms) if atom == "O"]
    ketone = "=O" in smiles
    return {
        "carbons": atoms.count("C"),
        "branches": int((degree >= 3).sum()) - int(ketone),
        "chain": int(distance.max()) + 1,
        "hydroxyl": int(any(degree[i] == 1 for i in oxygen) and not ketone),
        "ether": int(any(degree[i] == 2 for i in oxygen)),
        "ketone": int(ketone),
    }


X = pd.DataFrame([describe(smiles) for smiles in y.index], index=y.index)
X.iloc[[4, 31, 44, 47]]

# %% [markdown]
# With RDKit there would be hundreds of descriptors more; the rest of the notebook is the same
# with them. Two of them are added where RDKit is installed.

# %%
try:
    from rdkit import Chem
    from rdkit.Chem import Descriptors
except ImportError:
    print("RDKit is not installed: only the counted descriptors are used.")
else:
    molecules = [Chem.MolFromSmiles(smiles) for smiles in y.index]
    X["logP"] = [Descriptors.MolLogP(own) for own in molecules]
    X["surface"] = [Descriptors.TPSA(own) for own in molecules]
    print("RDKit: logP and the polar surface were added.")

# %% [markdown]
# ## Plain models and twins
#
# The twin gets both molecules of a pair and their difference. All models have the same five
# folds.


# %%
def process():
    return GaussianProcessRegressor(RBF(np.ones(1)) + WhiteKernel(0.01), normalize_y=True)


models = {
    "ridge": make_pipeline(StandardScaler(), Ridge(0.1)),
    "Gaussian process": make_pipeline(StandardScaler(), process()),
    "twinned ridge": TwinRegressor(make_pipeline(StandardScaler(), Ridge(0.1))),
    "twinned boosting": TwinRegressor(random_state=0),
}
folds = KFold(5, shuffle=True, random_state=0)
for name, model in models.items():
    errors = cross_val_predict(model, X, y, cv=folds) - y
    rmse, worst = np.sqrt(np.mean(errors**2)), errors.abs().idxmax()
    print(f"{name}: RMSE {rmse:.1f} °C, median error {errors.abs().median():.1f} °C,")
    print(f"    largest {errors[worst]:+.0f} °C at {worst}")

# %% [markdown]
# The twin of a linear model is the linear model again. The twin of boosted trees has a small
# median error but the largest RMSE: methanol, `CO`, is predicted far too low, since the only other
# molecule with one carbon atom is methane, and trees do not extrapolate. The Gaussian process is
# the best model of this table; `twinned.diagnose(X, y)` compares many of them.
#
# ## What does a change of structure do?

# %%
twin = TwinRegressor(random_state=0).fit(X, y)
changes = {
    "butane → 2-methylpropane, a branch": ("CCCC", "CC(C)C"),
    "butane → 1-butanol, a hydroxyl group": ("CCCC", "CCCCO"),
    "1-butanol → diethyl ether": ("CCCCO", "CCOCC"),
}
for name, (before, after) in changes.items():
    predicted = twin.predict_difference(X.loc[[after]], X.loc[[before]])[0]
    print(f"{name}: predicted {predicted:+.0f} °C, known {y[after] - y[before]:+.0f} °C")

# %% [markdown]
# These molecules are training rows. A new one is 2-hexanol, which boils at about 140 °C:

# %%
new = pd.DataFrame([describe("CCCCC(C)O")], index=["CCCCC(C)O"])
for name in X.columns.difference(new.columns):  # the descriptors of RDKit
    compute = {"logP": Descriptors.MolLogP, "surface": Descriptors.TPSA}[name]
    new[name] = compute(Chem.MolFromSmiles("CCCCC(C)O"))
new = new[X.columns]
display = ComparablesDisplay.from_estimator(twin, new, n=5, target="boiling point, °C")

# %% [markdown]
# ## Molecules unlike the known ones
#
# Octadecanol is far larger than all molecules of the table. `applicability` marks it.

# %%
large = pd.DataFrame([describe("C" * 18 + "O")], index=["octadecanol"])
twin.applicability(pd.concat([new, large.reindex(columns=X.columns, fill_value=0)]))
