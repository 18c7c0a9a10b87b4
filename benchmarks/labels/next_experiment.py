"""Best value found after 30 experiments: twins beside a Gaussian process, a forest and ActiveDelta.

A problem is a pool of at most 500 candidates, of which the best is to be found: random points of a
test function, drawn for each seed, or random rows of a table. The first 10 experiments are random,
the same for all methods; then a method chooses 20, one after the other, and is fitted again after
each. Reported is the regret: how far the best value found is from the best of the pool, as a share
of the range of the pool. Nothing was chosen by these results.

- twin: `TwinRegressor()` with `twinned.query`, expected improvement or Thompson sampling.
- blend: `AutoTwinRegressor` of a Gaussian process, extra trees and a tree twin, with 5 folds, and
  expected improvement.
- process: scikit-learn's Gaussian process (Matérn 5/2, one length scale per feature, noise), and
  forest: 100 trees and their spread; both with expected improvement.
- ActiveDelta: the largest predicted difference to the best known row, by the pairs' model of
  `TwinRegressor()`.

Results: `benchmarks/results/next_experiment.csv` and `.md`.

    python -m benchmarks.labels.next_experiment --jobs 16        # about 12 core-hours
    python -m benchmarks.labels.next_experiment --only-table
"""

import warnings

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import frame
from benchmarks.accuracy.tables import reaction_yield
from paper.data import load_arrays
from twinned import AutoTwinRegressor, TwinRegressor, query
from twinned.search.query import log_expected_improvement

N_FIRST, N_CHOSEN, MAX_POOL, N_SEEDS = 10, 20, 500, 20
REPORTED = (15, 20, 25, 30)  # numbers of experiments
COLUMNS = ["problem", "seed", "method", "experiments", "regret:.6g", "seconds:.3g"]
BLEND = ["gp_matern", "extra_trees:fast", "tree_twin:fast"]


# --- problems: each returns candidates and values, of which the largest is the best ---------------


def branin(rng):
    X = rng.uniform([-5, 0], [10, 15], size=(MAX_POOL, 2))
    a, b = X.T
    curve = b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6
    return X, -(curve**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def hartmann(weights, centers):
    def sample(rng):
        X = rng.uniform(size=(MAX_POOL, weights.shape[1]))
        squares = np.sum(weights * (X[:, None] - centers) ** 2, axis=2)
        return X, np.exp(-squares) @ np.array([1.0, 1.2, 3.0, 3.2])

    return sample


def ackley(rng):
    X = rng.uniform(-5, 5, size=(MAX_POOL, 5))
    root = np.sqrt(np.mean(X**2, axis=1))
    y = -20 * np.exp(-0.2 * root) - np.exp(np.cos(2 * np.pi * X).mean(axis=1)) + 20 + np.e
    return X, -y


def levy(rng):
    X = rng.uniform(-10, 10, size=(MAX_POOL, 4))
    w = 1 + (X - 1) / 4
    inner = (w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2)
    last = (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2)
    return X, -(np.sin(np.pi * w[:, 0]) ** 2 + inner.sum(axis=1) + last)


def rows_of(key, sign):
    def sample(rng):
        X, y = load_arrays(key)
        rows = rng.permutation(len(y))[:MAX_POOL]
        return np.asarray(X, dtype=float)[rows], sign * np.asarray(y, dtype=float)[rows]

    return sample


HARTMANN_3 = (
    np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]]),
    1e-4
    * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]),
)
HARTMANN_6 = (
    np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    ),
    1e-4
    * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    ),
)
PROBLEMS = {
    "Branin": branin,
    "Hartmann 3": hartmann(*HARTMANN_3),
    "Hartmann 6": hartmann(*HARTMANN_6),
    "Ackley 5": ackley,
    "Levy 4": levy,
    "CS, largest": rows_of("CS", 1),
    "EE, smallest": rows_of("EE", -1),
    "YH, largest": rows_of("YH", 1),
    "BC, largest": rows_of("BC", 1),
    "RCL, largest": rows_of("RCL", 1),
    "reaction yield": lambda rng: reaction_yield(MAX_POOL, rng),
}

FUNCTIONS = list(PROBLEMS)[:5]  # the others are tables


# --- methods: each returns the row of the pool to measure next ------------------------------------


def choose_by_twin(X, y, pool, rng, strategy="improvement"):
    twin = TwinRegressor(random_state=0).fit(X, y)
    return query(twin, pool, strategy=strategy, random_state=rng)[0]


def choose_by_thompson(X, y, pool, rng):
    return choose_by_twin(X, y, pool, rng, "thompson")


def choose_by_blend(X, y, pool, rng):
    blend = AutoTwinRegressor(members=BLEND, cv=5, random_state=0).fit(X, y)
    return query(blend, pool, strategy="improvement", random_state=rng)[0]


def choose_by_process(X, y, pool, rng):
    kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), nu=2.5) + WhiteKernel(1e-2)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    mean, std = make_pipeline(StandardScaler(), process).fit(X, y).predict(pool, return_std=True)
    return np.argmax(log_expected_improvement(mean, std, y.max()))


def choose_by_forest(X, y, pool, rng):
    forest = RandomForestRegressor(100, random_state=0).fit(X, y)
    trees = np.array([tree.predict(pool) for tree in forest.estimators_])
    return np.argmax(log_expected_improvement(trees.mean(axis=0), trees.std(axis=0), y.max()))


def choose_by_difference(X, y, pool, rng):
    twin = TwinRegressor(symmetric=False, random_state=0).fit(X, y)
    best = np.repeat(X[[np.argmax(y)]], len(pool), axis=0)
    return np.argmax(twin.predict_difference(pool, best))


def choose_at_random(X, y, pool, rng):
    return rng.randint(len(pool))


METHODS = {
    "twin": choose_by_twin, "twin Thompson": choose_by_thompson, "blend": choose_by_blend,
    "process": choose_by_process, "forest": choose_by_forest, "ActiveDelta": choose_by_difference,
    "random": choose_at_random,
}  # fmt: skip


def optimize(problem, seed, method):
    """Return the regret after each reported number of experiments."""
    warnings.filterwarnings("ignore")
    rng = np.random.RandomState(seed)
    X, y = PROBLEMS[problem](rng)
    order = rng.permutation(len(y))
    known, pool = order[:N_FIRST], order[N_FIRST:]
    rows = []
    for n in range(N_FIRST + 1, N_FIRST + N_CHOSEN + 1):
        chosen = METHODS[method](X[known], y[known], X[pool], rng)
        known, pool = np.append(known, pool[chosen]), np.delete(pool, chosen)
        if n in REPORTED:
            regret = (y.max() - y[known].max()) / (y.max() - y.min())
            rows.append({"experiments": n, "regret": regret})
    return rows


def summary(runs):
    final = runs[runs["experiments"] == REPORTED[-1]]
    regret = final.pivot_table(index=["problem", "seed"], columns="method", values="regret")
    names = [name for name in METHODS if name in regret]
    problems = [problem for problem in PROBLEMS if problem in regret.index.get_level_values(0)]
    rows = []
    for problem in problems:
        own = 100 * regret.loc[problem]
        means, errors = own[names].mean(), own[names].std() / np.sqrt(own[names].count())
        cells = []
        for name in names:
            text = f"{means[name]:.1f} ({errors[name]:.1f})"
            cells.append(f"**{text}**" if means[name] == means.min() else text)
        rows.append([problem, *cells])
    ranks = regret[names].rank(axis=1).groupby("problem").mean()
    is_function = regret.index.get_level_values("problem").isin(FUNCTIONS)
    parts = {"functions": is_function, "tables": ~is_function, "all": is_function | ~is_function}
    for part, chosen in parts.items():
        means = 100 * regret.loc[chosen, names].mean()
        rows.append([f"mean regret, {part}", *(f"{means[name]:.1f}" for name in names)])
    rows.append(["mean rank", *(f"{ranks[name].mean():.2f}" for name in names)])
    found = (regret[names] <= 1e-12).mean()
    rows.append(["best candidate found", *(f"{found[name]:.0%}" for name in names)])
    course = runs.groupby(["experiments", "method"])["regret"].mean().unstack()
    counts = final.groupby("method")["seed"].nunique()
    return [
        "# The next experiment",
        "",
        f"Regret in % after {N_FIRST} random and {N_CHOSEN} chosen experiments: the distance of "
        f"the best value found from the best of the pool of at most {MAX_POOL} candidates, as a "
        f"share of the range of the pool. Means of {counts.min()} seeds, in brackets their "
        "standard errors; the smallest is bold. `python -m benchmarks.labels.next_experiment`.",
        "",
        *frame.markdown_table(["", *names], rows),
        "",
        "Mean regret in % over all problems after fewer experiments:",
        "",
        *frame.markdown_table(
            ["experiments", *names],
            [[str(n), *(f"{100 * course[name][n]:.1f}" for name in names)] for n in course.index],
        ),
    ]


BENCHMARK = frame.Benchmark(
    "next_experiment",
    __doc__,
    COLUMNS,
    run=optimize,
    summary=summary,
    trial=("problem", "seed", "method"),
    axes={"seed": N_SEEDS, "method": list(METHODS), "problem": list(PROBLEMS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
