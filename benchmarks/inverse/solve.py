"""`solve` on problems whose truth is known: coverage of intervals, constraints, branches, seconds.

Five problems of 200 rows, each with eight wanted targets and five proposals for each, by
an `AutoTwinRegressor` of the members that are quick to fit (`MEMBERS`) at `confidence=0.9`:

- `reaction`: the yield has a peak in temperature, and depends on two categories
- `alloy`: a category and a whole number of passes
- `mixture`: four parts that sum to 100 %
- `noise`: the target has 15 % of noise, and two branches
- `unreachable`: all wanted values are beyond the function, so that the closest rows are returned

Every fourth call has a row to change, `near`, and a fixed column; half want a number, half a limit.
A proposal is covered if the true value, without noise, is within its interval. The error of
constraints is the largest of the sum, of bounds and of fixed columns. Branches: the share of calls
in which at least three of five proposals differ from each other by more than 10 % of the range in
some column. One choice was made by these results: where no row reaches the target, only rows that
were moved are returned.

The seconds are processor seconds of five proposals for 500 rows of ten features (`make_friedman1`),
the first call, in which networks and trees are compiled, and the less of two further ones.

    OMP_NUM_THREADS=1 python -m benchmarks.inverse.solve

Results: `benchmarks/results/solve.csv` and `.md`.
"""

import time
import warnings

import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1

from benchmarks import frame
from twinned import AutoTwinRegressor, TwinNeuralRegressor, TwinRegressor, solve

N_ROWS, N_TARGETS, N_PROPOSALS = 200, 8, 5
MEMBERS = ["ridge", "gp_matern", "gp_rbf", "extra_trees:fast", "tree_twin:fast"]
PARTS = ["cement", "ash", "sand", "water"]


def reaction(X):
    base = 60 - 0.004 * (X["temperature"] - 120) ** 2 + 4 * np.log(X["time"])
    return base + X["catalyst"].map({"Pd": 8, "Ni": 0, "Cu": -6}) + 5 * (X["solvent"] == "water")


def alloy(X):
    cooling = X["cooling"].map({"water": 1.0, "oil": 0.8, "air": 0.5})
    return 20 + 45 * cooling * np.sqrt(X["carbon"]) + 1.5 * X["chromium"] + 2 * X["passes"]


def mixture(X):
    return 10 + 0.9 * X["cement"] + 0.02 * X["cement"] * X["ash"] - 0.012 * (X["water"] - 15) ** 2


def noise(X):
    return 5 + 3 * np.sin(2.2 * X["speed"]) + X["load"] ** 2


def unreachable(X):
    return 10 * np.exp(-(X["a"] ** 2) - X["b"] ** 2) + X["c"]


def make_rows(name, rng):
    """Random inputs of a problem."""
    n = N_ROWS

    def numbers(low, high):
        return rng.uniform(low, high, n)

    if name == "reaction":
        kinds = {"catalyst": ["Pd", "Ni", "Cu"], "solvent": ["water", "ethanol"]}
        columns = {"temperature": numbers(60, 180), "time": numbers(1, 8)}
        return pd.DataFrame(columns | {key: rng.choice(kind, n) for key, kind in kinds.items()})
    if name == "alloy":
        columns = {"carbon": numbers(0.1, 1.0), "chromium": numbers(0, 6)}
        columns["passes"] = rng.randint(1, 9, n)
        columns["cooling"] = rng.choice(["water", "oil", "air"], n)
        return pd.DataFrame(columns)
    if name == "mixture":
        return pd.DataFrame(100 * rng.dirichlet([3, 2, 4, 2], n), columns=PARTS)
    if name == "noise":
        return pd.DataFrame({"speed": numbers(0, 3), "load": numbers(0, 2), "other": numbers(0, 1)})
    return pd.DataFrame({key: numbers(-1, 1) for key in "abc"})


# the function, quantiles of the known values that are wanted, and further arguments of `solve`
PROBLEMS = {
    "reaction": (reaction, (0.2, 0.85), {}),
    "alloy": (alloy, (0.2, 0.9), {}),
    "mixture": (mixture, (0.2, 0.9), {"constraints": "cement + ash + sand + water = 100"}),
    "noise": (noise, (0.2, 0.9), {}),
    "unreachable": (unreachable, None, {}),
}


def run_problem(name):
    """One row of the table of problems."""
    function, levels, options = PROBLEMS[name]
    rng = np.random.RandomState(0)
    X = make_rows(name, rng)
    truth = function(X)
    y = truth + (0.15 if name == "noise" else 0.01) * truth.std() * rng.normal(size=len(X))
    model = AutoTwinRegressor(members=MEMBERS, random_state=0).fit(X, y)
    levels = np.linspace(*levels, N_TARGETS) if levels else None
    wanted = y.max() + 5 + np.arange(N_TARGETS) if levels is None else np.quantile(y, levels)
    ranges = X.select_dtypes("number").agg(lambda column: column.max() - column.min())
    covered, errors, branches, reached, misses = [], [], [], [], []
    for i, value in enumerate(wanted):
        target = float(value) if i % 2 else f">= {value}"  # both kinds
        near = X.iloc[i].to_dict() if i % 4 == 0 else None
        fixed = [X.columns[1]] if near else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = solve(
                model, target, near=near, fixed=fixed, n=N_PROPOSALS, confidence=0.9, **options
            )
        rows = found[list(X)]
        true = function(rows)
        covered += list((found["lower"] <= true) & (true <= found["upper"]))
        reached += list(found["reached"])
        misses += list(np.maximum(value - true, 0) if target != value else np.abs(true - value))
        numeric = rows[list(ranges.index)]
        errors.append(float((numeric - X.max(numeric_only=True)).to_numpy().max(initial=0)))
        errors.append(float((X.min(numeric_only=True) - numeric).to_numpy().max(initial=0)))
        if "constraints" in options:
            errors.append(float(np.abs(rows[PARTS].sum(axis=1) - 100).max()))
        if fixed:
            errors.append(float(np.abs(rows[fixed[0]] - near[fixed[0]]).max()))
        if not near:
            branches.append(count_different(rows, ranges) >= 3)
    shares = [np.mean(covered), np.mean(reached), np.mean(branches)]
    rmse = float(np.sqrt(np.mean(np.square(misses))) / truth.std())
    print(name, len(covered), *shares, max(errors), rmse, flush=True)
    return [name, len(covered), *shares, max(errors), rmse]


def count_different(rows, ranges):
    """The largest number of rows, greedily, that differ by over 10 % of the range in a column."""
    chosen = []
    for _, row in rows.iterrows():
        if all(
            any(abs(row[key] - other[key]) > 0.1 * ranges[key] for key in ranges.index)
            or any(row[key] != other[key] for key in rows if key not in ranges.index)
            for other in chosen
        ):
            chosen.append(row)
    return len(chosen)


def measure_seconds():
    """Rows of the table of processor seconds: of the first call, and the less of two others."""
    X, y = make_friedman1(500, noise=0.3, random_state=0)
    models = {
        "`TwinRegressor()`": TwinRegressor(random_state=0),
        '`TwinNeuralRegressor(effort="fast")`': TwinNeuralRegressor(effort="fast", random_state=0),
        '`AutoTwinRegressor(effort="fast")`': AutoTwinRegressor(effort="fast", random_state=0),
    }
    calls = {"18": {"target": 18.0}, ">= 20": {"target": ">= 20", "near": X[0].tolist()}}
    calls["max"] = {"target": "max"}
    rows = []
    for name, model in models.items():
        model.fit(X, y)
        for goal, options in calls.items():
            seconds = []
            for _ in range(3):
                start = time.process_time()
                solve(model, **options)
                seconds.append(time.process_time() - start)
            rows.append([name, goal, f"{seconds[0]:.2f}", f"{min(seconds[1:]):.2f}"])
    return rows


def main():
    problems = [run_problem(name) for name in PROBLEMS]
    columns = ["problem", "proposals", "covered", "reached", "branches", "error", "miss"]
    table = pd.DataFrame(problems, columns=columns)
    text = table.to_csv(index=False, float_format="%.4g")
    frame.write_file(frame.RESULTS / "solve.csv", text.encode())
    rows = [
        [name, str(n), *(f"{share:.0%}" for share in shares), f"{error:.1e}", f"{miss:.3f}"]
        for name, n, *shares, error, miss in problems
    ]
    total = int(table["proposals"].sum())
    share = np.average(table["covered"], weights=table["proposals"])
    lines = [
        "# `solve` on problems with known truth",
        "",
        f"Of {total} proposals at confidence 0.9, {share:.0%} have the true value within their "
        "interval. Made by `OMP_NUM_THREADS=1 python -m benchmarks.inverse.solve`, whose "
        "description "
        "defines the columns; the miss is the root mean square distance of the true value from "
        "the wanted one, in standard deviations.",
        "",
        *frame.markdown_table(
            "problem | proposals | true value in interval | reached | calls with three different "
            "proposals | largest error of constraints | miss",
            rows,
        ),
        "",
        "Processor seconds of five proposals, 500 rows of ten features; the second is with `near`:",
        "",
        *frame.markdown_table("model | target | first call | a further call", measure_seconds()),
    ]
    frame.write_markdown(frame.RESULTS / "solve.md", lines)


if __name__ == "__main__":
    main()
