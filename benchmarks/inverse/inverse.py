"""Inputs that give wanted targets: `InverseTwinRegressor` and `solve` beside the published figures.

The nine problems of S. J. Wetzel, Inverting Non-Injective Functions with Twin Neural Network
Regression (arXiv:2601.05378): inputs are uniform, each target is multiplied by a normal factor of
mean 1, and rows are split 60/20/20. Models are fitted to the first 60 %; the validation rows are
not used. Wanted targets are those of the test rows, with their noise. Reported is the mean squared
error between them and the true function at the returned inputs; on the hemisphere, inputs outside
of the circle are first moved onto it, as by the author. Five draws of the data, by the seeds 0 to
4: the author's own draw is not known. Nothing was chosen by them, but by draws from seed 100 on;
the powers of a positive target were added for the hemisphere, whose square is a polynomial.

- nearest row: the inputs of the training row with the nearest targets, each divided by its
  standard deviation.
- inverse network: `NeuralRegressor` with the training of the inverse twin, of the inputs as a
  function of the targets.
- inverse twin: `InverseTwinRegressor()`.
- solve: `twinned.solve` with `AutoTwinRegressor(effort="fast")`, for the first 50 test rows.

Appends to `benchmarks/results/inverse.csv` and writes `inverse.md` beside it.

    python -m benchmarks.inverse.inverse  # several core-hours, most of them for blends
    python -m benchmarks.inverse.inverse --methods "inverse twin" "nearest row"  # 20 minutes
    python -m benchmarks.inverse.inverse --only-table
"""

import warnings
from typing import NamedTuple

import numpy as np

import twinned
from benchmarks import frame
from twinned import AutoTwinRegressor, InverseTwinRegressor, NeuralRegressor, NeuralTraining
from twinned.rows.neighbors import NeighborIndex

N_SEEDS, N_SOLVED = 5, 50
METHODS = ["nearest row", "inverse network", "inverse twin", "solve"]
COLUMNS = ["problem", "seed", "method", "mse:.4g", "floor:.3g", "seconds:.3g"]
# Means of five runs on one draw, from the result files of the author: a network trained on the
# inverse, the nearest row, and the inverse twin of data with a choice by a learned forward model,
# by the true function, and with pairs of the known formula.
PUBLISHED = {
    1: (0.0151, 0.00742, 2.9e-4, 3.2e-5, 2.8e-5),
    2: (0.097, 9.0e-4, 1.0e-4, 2.0e-5, 7.0e-6),
    3: (0.0335, 1.4e-4, 6.9e-5, 8.6e-6, 2.7e-6),
    4: (0.158, 2.2e-4, 8.8e-5, 2.0e-5, 5.8e-7),
    5: (15.7, 1.12, 0.0591, 0.0472, 0.0234),
    6: (4.59, 1.23, 0.0228, 0.0190, 0.00789),
    7: (0.0528, 0.00292, 1.3e-4, 8.3e-5, 1.6e-5),
    8: (0.389, 0.0147, 6.1e-4, 3.6e-4, 1.6e-4),
    9: (0.0458, 0.0185, 6.1e-4, 4.3e-4, 1.4e-4),
}


# --- the true functions, of the columns of the inputs ---------------------------------------------


def hemisphere(x, y):
    radius = np.hypot(x, y)
    shrink = np.where(radius > 0.999, 1 / (radius + 1e-6), 1.0)
    return (np.sqrt(1 - (shrink * radius) ** 2),)


def polynomials(x, y):
    return x**3 - 2 * x * y**2 + 5 * x + 5 * y, y**2 - 2 * x * y + 3 * x - 2 * y


def quadratics(x, y, z):
    return x**2 - y**2 + z, 2 * x * y + z, x + y + z**2


def two_links(a, b):
    return np.cos(a) + np.cos(a + b), np.sin(a) + np.sin(a + b)


def three_links(a, b, c):  # each angle is that of a link with the axis
    return np.cos(a) + np.cos(b) + np.cos(c), np.sin(a) + np.sin(b) + np.sin(c)


def two_links_in_space(turn, a, b):
    reach, height = two_links(a, b)
    return np.cos(turn) * reach, np.sin(turn) * reach, height


class Problem(NamedTuple):
    name: str
    function: object
    n_features: int
    limit: float  # inputs are between −limit and limit
    n_rows: int
    noise: float = 0.01
    bounds: tuple = (-np.inf, np.inf)  # of the only target
    reach: float = np.inf  # the largest distance of an arm

    def truth(self, X):
        return np.column_stack(self.function(*X.T))

    def draw(self, number, seed):
        """Training rows and test rows, as inputs and noisy targets."""
        rng = np.random.RandomState(1000 * seed + number)
        X = rng.uniform(-self.limit, self.limit, (4 * self.n_rows, self.n_features))
        if self.function is hemisphere:
            X = X[np.sum(X**2, axis=1) < 0.99]
        X = X[: self.n_rows]
        Y = self.truth(X)
        Y *= rng.normal(1.0, self.noise, Y.shape)
        ends = round(0.6 * self.n_rows), round(0.8 * self.n_rows)
        return X[: ends[0]], Y[: ends[0]], X[ends[1] :], Y[ends[1] :]

    def floor(self, wanted):
        """The mean squared error of the nearest targets in the range of the function."""
        distance = np.linalg.norm(wanted, axis=1, keepdims=True)
        nearest = wanted * np.minimum(1.0, self.reach / distance)
        return np.mean((wanted - np.clip(nearest, *self.bounds)) ** 2)


PROBLEMS = {
    1: Problem("x³ − x", lambda x: (x**3 - x,), 1, 2.0, 500),
    2: Problem("x⁴ − 4x²", lambda x: (x**4 - 4 * x**2,), 1, 2.0, 500, bounds=(-4.0, np.inf)),
    3: Problem("sin 5x", lambda x: (np.sin(5 * x),), 1, 2.0, 500, bounds=(-1.0, 1.0)),
    4: Problem("hemisphere", hemisphere, 2, 1.0, 500, noise=0.02, bounds=(0.0, 1.0)),
    5: Problem("two polynomials", polynomials, 2, 3.0, 1000),
    6: Problem("three quadratics", quadratics, 3, 3.0, 1000),
    7: Problem("two links in a plane", two_links, 2, np.pi / 2, 1000, reach=2.0),
    8: Problem("three links in a plane", three_links, 3, np.pi / 2, 1000, reach=3.0),
    9: Problem("two links in space", two_links_in_space, 3, np.pi / 2, 1000, reach=2.0),
}


# --- methods: each fits to X and Y, and returns a function of wanted targets ----------------------


def fit_nearest(X, Y, seed):
    spread = Y.std(axis=0)
    index = NeighborIndex(Y / spread)
    return lambda wanted: X[index.kneighbors(wanted / spread, 1)[0][:, 0]]


def fit_network(X, Y, seed):
    # as the difference model of the inverse twin
    training = NeuralTraining(n_folds=1)
    model = NeuralRegressor(effort="fast", training=training, random_state=seed).fit(Y, X)
    return model.predict


def fit_twin(X, Y, seed):
    return InverseTwinRegressor(random_state=seed).fit(X, Y).predict


def fit_blend(X, Y, seed):
    model = AutoTwinRegressor(effort="fast", random_state=seed)
    model.fit(X, Y if Y.shape[1] > 1 else Y[:, 0])
    names = [f"x{j}" for j in range(X.shape[1])]

    def solve_all(wanted):
        found = []
        for row in wanted:
            target = float(row[0]) if len(row) == 1 else {f"y{j}": v for j, v in enumerate(row)}
            found.append(twinned.solve(model, target, n=1, random_state=seed)[names].iloc[0])
        return np.array(found, dtype=float)

    return solve_all


FITS = [fit_nearest, fit_network, fit_twin, fit_blend]
FIT = dict(zip(METHODS, FITS, strict=True))


def measure(number, seed, method):
    problem = PROBLEMS[number]
    X, Y, _, wanted = problem.draw(number, seed)
    wanted = wanted[:N_SOLVED] if method == "solve" else wanted
    invert = FIT[method](X, Y, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of targets that are out of reach
        found = invert(wanted).reshape(len(wanted), -1)
    error = np.mean((problem.truth(found) - wanted) ** 2)
    return {"mse": error, "floor": problem.floor(wanted)}


def summary(runs):
    """Return the lines of the Markdown file."""
    lines = [
        "# Inputs that give wanted targets",
        "",
        "Made by `python -m benchmarks.inverse.inverse`. Mean squared errors of the "
        "true function at the "
        "returned inputs: means of five draws, with the largest of them in brackets. Published "
        "figures are means of five runs on one draw, which is not known; those with the known "
        "formula are without noise. Targets with noise may be outside of the range of the function "
        "or out of reach of the arm, which costs at least what is given as out of range, and that "
        "of the first 50 rows, which are those of solve, in the last column.",
        "",
    ]
    methods = [method for method in METHODS if method in set(runs["method"])]
    rows = []
    for number, own in runs.groupby("problem"):
        floor = {method: f"{each.mean():.1e}" for method, each in own.groupby("method")["floor"]}
        cells = [f"{number}", PROBLEMS[number].name, floor.get(METHODS[0], "")]
        cells += [f"{value:.2g}" for value in PUBLISHED[number]]
        for method in methods:
            errors = own.loc[own["method"] == method, "mse"]  # none where it was not run
            cells.append(f"{errors.mean():.2g} ({errors.max():.2g})" if len(errors) else "")
        rows.append([*cells, floor.get("solve", "")])
    header = ["#", "problem", "out of range", "published: network", "nearest row", "inverse twin"]
    header += ["choice by the truth", "known formula", *(f"**{method}**" for method in methods)]
    lines += frame.markdown_table([*header, "out of range of solve"], rows)
    draws = runs.groupby(["method", "problem"]).size()
    fewer = draws[draws < N_SEEDS].reset_index(name="n").groupby(["method", "n"])["problem"]
    texts = [f"{method} {n} on {', '.join(map(str, numbers))}" for (method, n), numbers in fewer]
    return [*lines, *(["", f"Draws where there are fewer: {'; '.join(texts)}."] if texts else [])]


BENCHMARK = frame.Benchmark(
    "inverse",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=("problem", "seed", "method"),
    axes={"method": METHODS, "seed": N_SEEDS, "problem": list(PROBLEMS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
