"""Prediction intervals of rows that are unlike the training rows, and of incomplete rows.

All models are blends of four quick members. The kinds of trials are

- *beyond*: five generated functions of six features, 160 training rows with 5 % noise; of the test
  rows, one to three of the five features that matter are beyond the range of the training rows by
  up to 0.15, 0.5 or 2 times the range. The widening was chosen on `waves`, `growth` and `friedman`;
- *cut*: five real tables without the fifth of the rows with the largest values of the feature of
  the largest rank correlation with y, which are the test rows, and a fifth of the others;
- *missing*: eight real tables of up to 300 training rows; of 100 test rows, each feature in turn is
  missing, and then 300 times two random ones. `median` is the error where it is replaced by the
  median of the training rows;
- *optimum*: three proposals of `solve` for the maximum and the minimum of ten functions, by 60 rows
  with 5 % or 30 % noise; covered are the true values;
- *standard* and *unseen*: rows like the training rows, of standard splits and of 18 other tables of
  `benchmarks/accuracy/tables.py`.

Reported are the coverage of intervals of 80, 90 and 95 %, the mean width of those of 90 %, the
mean negative logarithm of the density, and the root mean square error, `after` the widening and the
completion were added, and `before`, that is without both. `pit` are the probabilities that the
intervals give to values below those of the test rows; they are uniform where all intervals hold.
Appends to
`benchmarks/results/outside.csv` and writes `outside.md` beside it.

    python -m benchmarks.intervals.outside  # about 40 minutes of one core
    python -m benchmarks.intervals.outside --kinds beyond --seeds 1
    python -m benchmarks.intervals.outside --only-table
"""

import warnings
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.stats import kstest, kstwo, spearmanr
from sklearn.datasets import load_diabetes

from benchmarks import frame
from benchmarks.accuracy.tables import FOR_INTERVALS, STANDARD_TABLES, split_table
from twinned import AutoTwinRegressor, solve
from twinned.datasets import load
from twinned.exceptions import ShiftWarning
from twinned.fitted.twin import FittedTwin
from twinned.rows.neighbors import MetricProcess
from twinned.search.forward import ForwardModel

MEMBERS = ["ridge", "gp_matern", "extra_trees:fast", "boosting:fast"]
LEVELS, FARTHEST = (0.8, 0.9, 0.95), (0.15, 0.5, 2.0)
N_FUNCTION, N_REAL, N_TEST, N_FEATURES = 160, 300, 100, 6
LARGEST_DISTANCE = 0.05  # of the distribution of `pit` from the uniform one
COLUMNS = [
    "version", "kind", "dataset", "seed", "rows", "n",
    *(f"coverage_{100 * p:g}:.4f" for p in LEVELS),
    "width:.5g", "nll:.4f", "rmse:.5g", "median:.5g", "seconds:.3g", "pit",
]  # fmt: skip


def waves(x):
    return np.sin(5 * x[0]) + 2 * x[1] * x[2] + x[3] - np.cos(3 * x[4])


def growth(x):
    return np.exp(1.2 * x[0] + 0.5 * x[1]) * (1 + x[2]) + 2 * x[3] ** 2 - x[4]


def friedman(x):
    return 10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4]


def saturation(x):
    return (
        4 * np.tanh(3 * x[0] - 1.5) + 3 / (1.2 + np.abs(x[1])) + x[2] * np.abs(x[3]) ** 0.5 + x[4]
    )


def kinks(x):
    return 4 * np.abs(x[0] - 0.4) + np.maximum(0, 5 * x[1] - 2) + 2 * (x[2] > 0.6) + x[3] * x[4]


def peak(x):
    return 5 * np.exp(-8 * (x[0] - 0.6) ** 2 - 6 * (x[1] - 0.3) ** 2) + x[2]


def ripple(x):
    return np.sin(9 * x[0]) + np.cos(7 * x[1]) + x[2] * x[3]


def product(x):
    return 6 * x[0] * x[1] * (1.2 - x[2]) * (x[3] + 0.3)


def valley(x):
    return x[2] - (1 - 2 * x[0]) ** 2 - 8 * (x[1] - x[0] ** 2) ** 2


def basins(x):
    a, b = 15 * x[0] - 5, 15 * x[1]
    bowl = (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2
    return -(bowl + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10) / 50


FUNCTIONS = {f.__name__: f for f in (waves, growth, friedman, saturation, kinks)}
OPTIMA = FUNCTIONS | {f.__name__: f for f in (peak, ripple, product, valley, basins)}
CUT = ["BH", "CS", "WN", "diabetes", "kin8nm"]
MISSING = ["BC", "BH", "CS", "EE", "WN", "WSB", "YH", "diabetes"]
STANDARD = ["bostonHousing", "concrete", "energy", "yacht", "wine-quality-red"]
DATASETS = {
    "beyond": list(FUNCTIONS),
    "cut": CUT,
    "missing": MISSING,
    "optimum": list(OPTIMA),
    "standard": STANDARD,
    "unseen": list(FOR_INTERVALS),
}
N_SEEDS = {"beyond": 4, "cut": 2, "missing": 1, "optimum": 1, "standard": 3, "unseen": 4}


def read(name):
    """X and y of a real table."""
    if name == "diabetes":
        return load_diabetes(return_X_y=True)
    X, y = load(STANDARD_TABLES.get(f"uci {name}", name))
    return X.to_numpy(float), y.to_numpy(float)


def fit(X, y, seed, members=MEMBERS):
    return AutoTwinRegressor(members=members, random_state=seed).fit(X, y)


def rate(model, X, y, rows, median=np.nan):
    """One row of results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        ends = {level: model.predict_interval(X, level).T for level in LEVELS}
    result = {
        f"coverage_{100 * level:g}": np.mean((low <= y) & (y <= high))
        for level, (low, high) in ends.items()
    }
    return result | {
        "rows": rows,
        "n": len(y),
        "width": np.mean(ends[0.9][1] - ends[0.9][0]),
        "nll": -np.mean(model.log_density(X, y)),
        "rmse": np.sqrt(np.mean((model.predict(X) - y) ** 2)),
        "median": median,
        "pit": "",
    }


def measure_beyond(dataset, seed):
    rng, function = np.random.RandomState(seed), FUNCTIONS[dataset]
    noise = 0.05 * np.std(function(rng.uniform(size=(N_FEATURES, 10_000))))

    def draw(n, beyond=0, farthest=0.0):
        X = rng.uniform(size=(n, N_FEATURES))
        for row in X[: n if beyond else 0]:
            for j in rng.permutation(N_FEATURES - 1)[:beyond]:
                excess = farthest * rng.uniform()
                row[j] = 1 + excess if rng.uniform() < 0.5 else -excess
        return X, function(X.T) + noise * rng.normal(size=n)

    model = fit(*draw(N_FUNCTION), seed)
    yield rate(model, *draw(5 * N_TEST), "inside")
    for farthest in FARTHEST:
        for beyond in (1, 2, 3):
            yield rate(model, *draw(N_TEST, beyond, farthest), f"{farthest:g}, {beyond}")


def measure_cut(dataset, seed):
    X, y = read(dataset)
    rows = np.random.RandomState(seed).permutation(len(y))[: 2 * N_REAL]
    X, y = X[rows], y[rows]
    strongest = np.argmax([abs(spearmanr(column, y)[0]) for column in X.T])
    is_outside = X[:, strongest] > np.quantile(X[:, strongest], 0.8)
    inside = np.flatnonzero(~is_outside)
    n_training = min(N_REAL, int(0.8 * len(inside)))
    model = fit(X[inside[:n_training]], y[inside[:n_training]], seed)
    yield rate(model, X[inside[n_training:]], y[inside[n_training:]], "inside")
    yield rate(model, X[is_outside], y[is_outside], "outside")


def measure_missing(dataset, seed):
    X, y = read(dataset)
    rng = np.random.RandomState(seed)
    rows = rng.permutation(len(y))
    n_training = min(N_REAL, len(y) - N_TEST)
    training, test = rows[:n_training], rows[n_training : n_training + N_TEST]
    model, median = fit(X[training], y[training], seed), np.median(X[training], axis=0)

    def hide(columns, rows, name):
        """Rates test rows without these columns (row, column)."""
        incomplete, filled = X[rows].copy(), X[rows].copy()
        np.put_along_axis(incomplete, columns, np.nan, axis=1)
        np.put_along_axis(filled, columns, median[columns], axis=1)
        error = np.sqrt(np.mean((model.predict(filled) - y[rows]) ** 2))
        return rate(model, incomplete, y[rows], name, error)

    yield rate(model, X[test], y[test], "complete")
    n_features = X.shape[1]
    yield hide(
        np.repeat(np.arange(n_features), len(test))[:, None], np.tile(test, n_features), "one"
    )
    pairs = np.array([rng.permutation(n_features)[:2] for _ in range(3 * len(test))])
    yield hide(pairs, np.tile(test, 3), "two")


def measure_optimum(dataset, seed):
    function, number = OPTIMA[dataset], list(OPTIMA).index(dataset)
    rng, names = np.random.RandomState(number + 100 * seed), list("abcde")
    X = pd.DataFrame(rng.uniform(size=(60, 5)), columns=names)
    y = function(X.to_numpy().T)
    y = y + [0.05, 0.3][number % 2] * y.std() * rng.normal(size=len(y))
    model = fit(X, y, seed, MEMBERS[:3])
    for goal in ("max", "min"):
        found = solve(model, goal, n=3, random_state=seed)
        truth = function(found[names].to_numpy().T)
        covered = np.mean((found["lower"] <= truth) & (truth <= found["upper"]))
        yield dict.fromkeys((column.split(":")[0] for column in COLUMNS[6:-2]), np.nan) | {
            "pit": "",
            "rows": goal,
            "n": len(found),
            "coverage_90": covered,
            "width": np.mean(found["upper"] - found["lower"]),
            "rmse": np.sqrt(np.mean((found["predicted"] - truth) ** 2)),
        }


def measure_similar(dataset, seed):
    name = f"uci {dataset}" if dataset in STANDARD else dataset
    (X, y), (X_test, y_test) = split_table(name, seed)
    model = fit(X, y, seed)
    pit = " ".join(f"{p:.3f}" for p in model.predict_cdf(X_test, y_test))
    yield rate(model, X_test, y_test, "test") | {"pit": pit}


def measure(version, kind, dataset, seed):
    function = {
        "beyond": measure_beyond,
        "cut": measure_cut,
        "missing": measure_missing,
        "optimum": measure_optimum,
        "standard": measure_similar,
        "unseen": measure_similar,
    }[kind]
    with ExitStack() as stack:
        if version == "before":
            stack.enter_context(patch.object(MetricProcess, "held_out_std", lambda *_: None))
            stack.enter_context(patch.object(FittedTwin, "find_incomplete", all_complete))
            stack.enter_context(patch.object(ForwardModel, "extend_by_selection", unchanged))
        return list(function(dataset, seed))


def all_complete(_, queries):
    return np.zeros(len(queries), dtype=bool)


def unchanged(_, ends, *__):
    return ends


def _coverages(means):
    return ", ".join(f"{100 * means[f'coverage_{100 * p:g}']:.1f}" for p in LEVELS)


def pit_distances(runs):
    """Distances of `pit` from uniform values by table, and their numbers, of all seeds."""
    pit = runs.groupby("dataset", sort=False)["pit"].apply(
        lambda texts: np.array(" ".join(texts).split(), float)
    )
    pit["all"] = np.concatenate(pit.to_list())
    return pit.map(lambda values: kstest(values, "uniform").statistic), pit.map(len)


def pit_summary(distances, numbers):
    """The sentences on how many distances are small, and how many would be of uniform values."""
    tables, n_rows = distances.drop("all"), numbers.drop("all").to_numpy()
    sufficient = next(n for n in range(100, 10_000) if kstwo.cdf(LARGEST_DISTANCE, n) >= 0.8)
    return (
        f"The distance is at most {LARGEST_DISTANCE:g} on {(tables <= LARGEST_DISTANCE).sum()} "
        f"of {len(tables)} tables; with as many independent uniform values it would be so on "
        f"{kstwo.cdf(LARGEST_DISTANCE, n_rows).sum():.1f} of them on average, by chance, and on "
        f"80 % of tables of {sufficient} test rows. That of the {numbers['all']:,} values of all "
        f"tables together is {distances['all']:.3f}."
    )


def summary(runs):
    """Return the lines of the Markdown file."""
    lines = [
        "# Intervals of rows unlike the training rows",
        "",
        "Made by `python -m benchmarks.intervals.outside`. Coverage of intervals of 80, 90 and "
        "95 % in %, before and after the widening of intervals; then the width of those of 90 % "
        "and the root mean square error after it, in units of those before, and the mean negative "
        "logarithm of the density. `before`, *unseen*, and `after` of missing values, optima and "
        "standard splits were measured before the spread of members had its present power.",
    ]
    values = [f"coverage_{100 * p:g}" for p in LEVELS] + ["width", "nll", "rmse", "median"]
    runs = runs.assign(rows=runs["rows"].str.split(",").str[0])
    for kind, of_kind in runs.groupby("kind", sort=False):
        cells = []
        keys = ["dataset", "rows"]
        means = of_kind.groupby(["version", *keys], sort=False)[values].mean()
        for key in dict.fromkeys(zip(of_kind["dataset"], of_kind["rows"], strict=True)):
            last, first = means.loc[("after", *key)], None
            if ("before", *key) in means.index:
                first = means.loc[("before", *key)]
            shown = ["" if v is None else _coverages(v) for v in (first, last)]
            shown += [
                "" if first is None else f"{last[c] / first[c]:.3f}" for c in ("width", "rmse")
            ]
            shown += [", ".join(f"{v['nll']:.3f}" for v in (first, last) if v is not None)]
            if kind == "missing":
                shown.append(f"{last['rmse'] / last['median']:.3f}")
            if kind == "unseen":
                distances, numbers = pit_distances(of_kind)
                shown.append(f"{distances[key[0]]:.3f}, {0.87 / numbers[key[0]] ** 0.5:.3f}")
            cells.append([*key, *shown])
        header = ["table", "rows", "before", "after", "width", "rmse", "nll: before, after"]
        header += ["rmse / by median"] * (kind == "missing")
        header += ["distance of PIT, of as many uniform values"] * (kind == "unseen")
        lines += ["", f"## {kind}", "", *frame.markdown_table(header, cells)]
        if kind == "unseen":
            lines += ["", pit_summary(*pit_distances(of_kind))]
    return lines


BENCHMARK = frame.Benchmark(
    "outside",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=("version", "kind", "dataset", "seed"),
    axes={
        "version": ["before", "after"],
        "seed": max(N_SEEDS.values()),
        "kind": list(DATASETS),
        "dataset": sorted({name for names in DATASETS.values() for name in names}),
    },
    is_trial=lambda version, kind, dataset, seed: (
        dataset in DATASETS[kind]
        and seed < N_SEEDS[kind]
        and (version == "after" or kind != "unseen")
    ),
)

if __name__ == "__main__":
    BENCHMARK.main()
