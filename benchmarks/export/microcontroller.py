"""Figure F on real bytes: test RMSE against the flash memory of compiled C.

The paper's splits, trained on the 80 %. *twin*: a neural twin of four members, with one to all of
them and 1 to all anchors, chosen by `twinned.thin` and, of members, here, without any label;
`size` is the member of the smallest tables, which has no periodic embedding where there is one.
*plain*: ensembles of 1 to 32 plain networks. All have hidden layers of 128 and the settings of
`effort="fast"`. *small twin* and *small plain*: eight members with hidden layers of 64 and half
of the frequencies, trained longer, with `effort="balanced"`. *trees*: the default `TwinRegressor`
with chosen anchors. *forest*: a random forest exported with emlearn (`method="inline"`);
*lightgbm*: LightGBM, exported by `to_c`. All are float32.

Flash is what `arm-none-eabi-gcc -Os` links into a program that predicts one row, with startup and
mathematical functions. Code is compiled for the smallest number of anchors of each ensemble; more
anchors add their tables, byte by byte. QEMU counts the instructions of one prediction.

Results: `benchmarks/results/microcontroller.csv`, `.md` and `docs/pictures/microcontrollers.png`.

    python -m benchmarks.export.microcontroller     # hours of one core, most of them to fit
    python -m benchmarks.export.microcontroller --models plain "small twin" --seeds 3
    python -m benchmarks.export.microcontroller --only-table
"""

import copy
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import frame
from benchmarks.export import cortex_m
from benchmarks.export.microcontroller_summary import summary
from paper.data import rmse, training_and_test_rows
from twinned import (
    NeuralRegressor,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
    load,
    save,
)
from twinned.datasets import KEYS
from twinned.export.c import to_c
from twinned.export.thinning import (
    choose_anchors,
    crossed_rows,
    deviation_gram,
    take_anchors,
    thin_by_gram,
)
from twinned.models.greedy_selection import greedy_selection

COLUMNS = [
    "dataset", "seed", "model", "choice", "dtype", "members", "anchors", "rmse:.6g", "tables",
    "ram", "flash_m0", "flash_m4", "instructions_m0", "instructions_m4",
]  # fmt: skip
SMALL = {"hidden_sizes": (64, 64), "effort": "balanced", "n_members": 8, "random_state": 0}
SMALL |= {"training": NeuralTraining(n_frequencies=8)}
FITTED = {
    "twin": lambda: TwinNeuralRegressor(effort="fast", n_members=4, random_state=0),
    "plain": lambda: NeuralRegressor(effort="fast", n_members=32, random_state=0),
    "small twin": lambda: TwinNeuralRegressor(**SMALL),
    "small plain": lambda: NeuralRegressor(**SMALL),
    "trees": lambda: TwinRegressor(random_state=0),
}
PLAIN = ("plain", "small plain")
ANCHORS = (1, 2, 4, 8, 16, 32)
# members of networks, or numbers of trees
CHOICES = {
    "twin": ("size", 4, 1, 2),
    "small twin": ("size", 1, 2),
    "plain": (32, 1),
    "small plain": ("size", 1, 2),
    "trees": ("all",),
    "forest": (1, 3, 10),
    "lightgbm": (3, 10, 30, 100),
}
RUN = ("size", 1, "all")  # choices whose instructions are counted
N_RANDOM = 100  # draws of random anchors
FOLDER = frame.ROOT / "build" / "microcontroller"


def fitted_model(dataset, seed, kind, X, y):
    """The fitted networks, stored for the next run."""
    path = FOLDER / f"{dataset}-{seed}-{kind.replace(' ', '-')}.twin"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        save(FITTED[kind]().fit(X, y), path)
    return load(path)


def exported(model, **options):
    with tempfile.TemporaryDirectory() as folder:
        return to_c(model, Path(folder) / "model.h", name="model", **options)


def compiled_sizes(report, *, run=True):
    """Flash of both processors beyond the tables, and instructions of one prediction."""
    measured = {}
    for column, processor in {"m0": "M0+", "m4": "M4F"}.items():
        measured[f"code_{column}"] = (
            cortex_m.flash_bytes(report.text, processor) - report.flash_bytes
        )
        instructions = ""
        if run and not cortex_m.missing_programs("qemu-system-arm"):
            failed, instructions = cortex_m.run_self_test(report.text, processor)
            assert not failed, f"{failed} test rows are predicted wrongly on {processor}"
        measured[f"instructions_{column}"] = instructions
    return measured


def result_row(report, error, code, instructions=None, **settings):
    """One row of results; `code` is the flash beyond the tables."""
    instructions = instructions or {}
    return {
        "dtype": "float32",
        "members": report.n_members,
        "anchors": report.n_anchors,
        "rmse": error,
        "tables": report.flash_bytes,
        "ram": report.ram_bytes,
        "flash_m0": report.flash_bytes + code["code_m0"],
        "flash_m4": report.flash_bytes + code["code_m4"],
        "instructions_m0": instructions.get("instructions_m0", ""),
        "instructions_m4": instructions.get("instructions_m4", ""),
        **settings,
    }


def choose_members(model, choice, X):
    """The ensemble of a number of members, or the member of the smallest tables."""
    if choice == "all":
        return model
    if choice == "size":
        weights = np.zeros(len(model.member_weights_))
        weights[np.argmin(model._gates)] = 1.0
        return with_members(model, weights)
    if choice >= len(model.member_weights_):
        return model
    return thin_members(model, choice, X)


def with_members(model, weights):
    """A copy of the networks with the members of positive weight."""
    used = np.flatnonzero(weights)
    other = copy.copy(model)
    other._parameters = {name: value[used] for name, value in model._parameters.items()}
    other._gates = model._gates[used]
    other.member_weights_ = weights[used] / weights[used].sum()
    other.n_members_ = len(used)
    return other


def thin_members(model, n_members, X):
    """The networks that predict as the whole ensemble, on anchors and rows crossed from them."""
    if isinstance(model, NeuralRegressor):
        predicted = model.predict_members(X[:200])
    else:
        rng, fitted = np.random.RandomState(0), model.fitted_
        rows = rng.permutation(len(model.anchors_X_))[:200]
        matrix = np.concatenate([model.anchors_X_[rows], crossed_rows(model, rows, rng)])
        predicted = fitted.squeeze(fitted.predict_members(fitted.queries(matrix)))
    deviations = (predicted - model.member_weights_ @ predicted).T
    chosen = choose_anchors(deviations.T @ deviations, n_members)
    weights = np.zeros(len(predicted))
    # a chosen member that the selection drops still lowers the variance of new rows
    weights[chosen] = 0.5 * greedy_selection(deviations[:, chosen]) + 0.5 / len(chosen)
    return with_members(model, weights)


def run_variants(kind, choice, model, X, X_test, y_test):
    """Rows of all numbers of anchors."""
    rows = []
    ensemble = choose_members(model, choice, X)
    variants = {0: ensemble}
    if kind not in PLAIN:
        n_known = len(ensemble.anchors_X_)
        candidates, gram = deviation_gram(ensemble)
        numbers = [n for n in ANCHORS if n < n_known]
        variants = {n: thin_by_gram(ensemble, n, candidates, gram) for n in numbers}
        variants[n_known] = ensemble
        rows += random_anchor_rows(ensemble, X_test, y_test)
    smallest = exported(variants[min(variants)])
    code = compiled_sizes(smallest, run=choice in RUN)
    for n_anchors, variant in variants.items():
        # each anchor adds its features, value and weight
        more = 4 * (X.shape[1] + 2) * (n_anchors - min(variants))
        report = replace(smallest, flash_bytes=smallest.flash_bytes + more, n_anchors=n_anchors)
        instructions = code if n_anchors == min(variants) else None
        if choice in RUN and n_anchors == 8:
            instructions = compiled_sizes(exported(variant))
        error = rmse(variant.predict(X_test), y_test)
        rows.append(result_row(report, error, code, instructions))
    return rows


def random_anchor_rows(twin, X_test, y_test):
    """The mean error of random anchors, for 32 of them."""
    rng = np.random.RandomState(0)
    few = rng.permutation(len(twin.anchors_X_))[:300]  # the anchors that are drawn from
    subset = take_anchors(twin, few, np.ones(len(few)))
    _, estimates = subset.predict_anchors(X_test)
    errors = [
        rmse(estimates[:, rng.permutation(len(few))[:32]].mean(axis=1), y_test)
        for _ in range(N_RANDOM)
    ]
    empty = dict.fromkeys(("tables", "ram", "flash_m0", "flash_m4"), "")
    empty |= dict.fromkeys(("instructions_m0", "instructions_m4"), "")
    n_members = len(twin.predict_members(X_test[:1]))
    settings = {"dtype": "random anchors", "members": n_members, "anchors": 32}
    return [{**settings, "rmse": float(np.mean(errors)), **empty}]


def run_forest(n_trees, X, y, X_test, y_test):
    """A forest as emlearn exports it."""
    import emlearn
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(n_trees, min_samples_leaf=2, random_state=0).fit(X, y)
    converted = emlearn.convert(forest, method="inline", dtype="float")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forest.h"
        converted.save(name="forest", file=str(path))
        header = path.read_text()
    n_features = X.shape[1]
    header += f"""
#define MODEL_N_FEATURES {n_features}
static inline float model_predict(const float *x) {{ return forest_predict(x, {n_features}); }}
"""
    row = {"dtype": "float32", "members": n_trees, "anchors": 0, "tables": "", "ram": ""}
    row["rmse"] = rmse(forest.predict(X_test), y_test)
    for column, processor in {"m0": "M0+", "m4": "M4F"}.items():
        row[f"flash_{column}"] = cortex_m.flash_bytes(header, processor)
        row[f"instructions_{column}"] = ""
    return [row]


def run_lightgbm(n_trees, X, y, X_test, y_test):
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(
        n_estimators=n_trees, num_leaves=15, n_jobs=1, verbose=-1, random_state=0
    ).fit(X, y)
    report = exported(model)
    code = compiled_sizes(report)
    error = rmse(model.predict(X_test), y_test)
    return [result_row(report, error, code, code, members=n_trees)]


def run_trial(dataset, seed, kind, choice):
    warnings.filterwarnings("ignore")
    (X, y), (X_test, y_test) = training_and_test_rows(dataset, seed)
    if kind in FITTED:
        model = fitted_model(dataset, seed, kind, X, y)
        return run_variants(kind, choice, model, X, X_test, y_test)
    run = run_forest if kind == "forest" else run_lightgbm
    return run(choice, X, y, X_test, y_test)


BENCHMARK = frame.Benchmark(
    "microcontroller",
    __doc__,
    COLUMNS,
    run=run_trial,
    summary=summary,
    trial=("dataset", "seed", "model", "choice"),
    axes={
        "seed": 1,
        "model": list(CHOICES),
        "choice": list(dict.fromkeys(choice for own in CHOICES.values() for choice in own)),
        "dataset": list(KEYS),
    },
    is_trial=lambda dataset, seed, model, choice: choice in CHOICES[model],
)

if __name__ == "__main__":
    BENCHMARK.main()
