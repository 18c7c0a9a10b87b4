"""Differences between molecules on data sets of DeepDelta, with its folds.

The data sets are those of the repository RekerLab/DeepDelta, which `--data` reads from a folder or
from the web, and the folds are its own, `KFold(10, shuffle=True, random_state=1)` of the molecules.
The error is the root mean square error of the differences between all pairs of the test molecules
of a fold, over the pairs of all folds. The model is `AutoTwinRegressor` on `MoleculeFeatures`, both
with their defaults; its weights are those of the molecules it is fitted to. The errors of its
members are given beside it.

The kernels of the member `gp_tanimoto` were chosen by cross-validation on four other data sets:
solubility (ESOL), lipophilicity, inhibition of BACE-1 and bioconcentration; the members of the
blend, and the fragments and leaves of `extra_trees`, on Sol, VDss and HalfLife, which are left out
here.

The published errors are those of the predictions in the repository, of the same pairs: of the
repeat with seed 1, and the mean of all five repeats. Appends to `benchmarks/results/molecules.csv`
and writes `molecules.md` beside it; a fold takes minutes:

    python -m benchmarks.accuracy.molecules --data FOLDER
"""

import tempfile
from itertools import chain
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from scipy.stats import gmean
from sklearn.model_selection import KFold

from benchmarks import frame
from twinned import AutoTwinRegressor, MoleculeFeatures

DATA = "https://raw.githubusercontent.com/RekerLab/DeepDelta/main/Datasets/Benchmarks"
MODELS = ["extra_trees", "neural_twin", "gp_tanimoto", "blend"]  # in the table
N_FOLDS = 10
# RMSE of differences: DeepDelta, ChemProp and a random forest, of the repeat with seed 1; and the
# means of five repeats.
PUBLISHED = {
    "FUBrain": ((0.8120, 0.9557, 0.9261), (0.8302, 0.9645, 0.9284)),
    "RenClear": ((0.3390, 0.3302, 0.3355), (0.3502, 0.3389, 0.3374)),
    "FreeSolv": ((1.2710, 1.3658, 2.9574), (1.2900, 1.3717, 2.9137)),
    "MicroClear": ((0.5544, 0.5517, 0.5452), (0.5569, 0.5456, 0.5444)),
    "HemoTox": ((0.6411, 0.7385, 0.6707), (0.6349, 0.7286, 0.6629)),
    "HepClear": ((0.6234, 0.5679, 0.5673), (0.6217, 0.5704, 0.5636)),
    "Caco2": ((0.5797, 0.5838, 0.6175), (0.5724, 0.5748, 0.6141)),
}


@joblib.Memory(Path(tempfile.gettempdir()) / "twinned-molecules", verbose=0).cache
def features(dataset, data):
    """Return the features of the molecules of a data set and its property; computed once."""
    table = pd.read_csv(f"{data}/{dataset}.csv", encoding="utf-8-sig")
    return MoleculeFeatures().fit_transform(table["SMILES"]), table["Y"].to_numpy(float)


def measure(dataset, fold, data):
    """Return the mean square error of the differences between the test molecules of a fold."""
    X, y = features(dataset, data)
    train, test = list(KFold(N_FOLDS, shuffle=True, random_state=1).split(X))[fold]
    blend = AutoTwinRegressor(random_state=0).fit(X.iloc[train], y[train])
    members = blend.predict_members(X.iloc[test])
    predictions = dict(zip(blend.member_names_, members, strict=True))
    predictions["blend"] = blend.predict(X.iloc[test])
    # of all ordered pairs of errors, each with itself included, as in the published figures
    return [
        {"model": name, "test_molecules": len(test), "square": 2 * np.var(predicted - y[test])}
        for name, predicted in predictions.items()
    ]


def errors(table):
    """Return the RMSE of the differences of each data set and model that has all folds."""
    pairs = table["test_molecules"] ** 2
    sums = pd.DataFrame({"squares": table["square"] * pairs, "pairs": pairs, "folds": 1})
    sums = sums.groupby([table["dataset"], table["model"]]).sum().query(f"folds == {N_FOLDS}")
    return np.sqrt(sums["squares"] / sums["pairs"]).reset_index().pivot_table(0, "dataset", "model")


def summarize(table):
    """Return the lines of the page."""
    ours = errors(table)
    models = [model for model in MODELS if model in ours]
    names = [name for name in PUBLISHED if name in ours.index]
    rows = []
    for name in names:
        cells = [f"{a:.3f} ({b:.3f})" for a, b in zip(*PUBLISHED[name], strict=True)]
        own = [ours.loc[name, model] for model in models]
        rows.append([name, *cells, *("–" if np.isnan(error) else f"{error:.3f}" for error in own)])
    for folds, lowest in (
        ("these folds", [min(PUBLISHED[name][0]) for name in names]),
        ("all folds", [min(chain(*PUBLISHED[name])) for name in names]),
    ):
        ratios = ours.loc[names, models].div(lowest, axis=0)
        for title, values in (
            ("geometric mean", gmean(ratios, nan_policy="omit")),
            ("largest", ratios.max()),
        ):
            rows.append([f"ratio to the lowest of {folds}, {title}", "", "", ""])
            rows[-1] += [f"{value:.4f}" for value in values]
    return [
        "# Differences between molecules",
        "",
        "RMSE of the differences between test molecules, 10 folds with seed 1. Published errors: "
        "those of the same folds and, in brackets, the mean of five repeats with other folds. "
        "Ratios refer to the lowest of the same folds, and to the lowest of both.",
        "",
        *frame.markdown_table(["", "DeepDelta", "ChemProp", "random forest", *models], rows),
        "",
        "A member is absent where the blend of a fold does without it.",
        "",
        "`python -m benchmarks.accuracy.molecules`",
    ]


BENCHMARK = frame.Benchmark(
    name="molecules",
    description=__doc__,
    columns=["dataset", "fold", "model", "test_molecules", "square:.6g", "seconds:.3g"],
    trial=("dataset", "fold"),
    axes={"dataset": list(PUBLISHED), "fold": N_FOLDS},
    run=measure,
    summary=summarize,
    options={"data": DATA},
)

if __name__ == "__main__":
    BENCHMARK.main()
