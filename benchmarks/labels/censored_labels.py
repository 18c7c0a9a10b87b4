"""Test error with censored labels: rows dropped, the limit substituted, or bounds given to `fit`.

Of the training rows of a split of the paper (at most `--rows` of them), a share is censored: below
a limit, above a limit, or half of it on either side. The limits are quantiles of the training
labels, so every row beyond a limit is censored, and no label there is known. All test rows count,
with their true values:

- `dropped`: the model fitted to the known rows alone;
- `substituted`: fitted to all rows, with the limit as the value of a censored row;
- `censored`: `fit(X, y, y_lower=…, y_upper=…)`;
- `known`: fitted to the values of all rows, which bounds what can be reached.

Models: `twin`, the default `TwinRegressor`; `neural`, `TwinNeuralRegressor(effort="fast")`; `auto`,
`AutoTwinRegressor(effort="fast")` without networks. The method was chosen on a fourth of the
training rows of split 0, which was held out. That networks replace infinite bounds by finite ones
was tried because of a test error of YH on split 0: only later splits evaluate networks. That the
kernel of the imputation has the higher likelihood was chosen by imputed values of training rows of
split 0, after test errors of blends on TF and WSB of split 1; networks were measured before.
Appends to `benchmarks/results/censored_labels.csv` and writes `censored_labels.md` beside it.

    python -m benchmarks.labels.censored_labels --models twin
    python -m benchmarks.labels.censored_labels --models auto --seeds 1 --rows 150 --shares 0.4
"""

import warnings

import numpy as np

from benchmarks import frame
from paper.data import rmse, training_and_test_rows
from twinned import AutoTwinRegressor, TwinNeuralRegressor, TwinRegressor
from twinned.datasets import KEYS
from twinned.rows.training import TargetBounds

SIDES = ("below", "above", "both")
SHARES = (0.2, 0.4)
METHODS = ("dropped", "substituted", "censored", "known")
MEMBERS = ["ridge", "gp_matern", "gp_rbf", "extra_trees", "boosting", "tree_twin"]
MODELS = {
    "twin": lambda: TwinRegressor(random_state=0),
    "neural": lambda: TwinNeuralRegressor(effort="fast", random_state=0),
    "auto": lambda: AutoTwinRegressor(effort="fast", members=MEMBERS, random_state=0),
}
TRIAL = ("model", "dataset", "rows", "seed", "side", "share")
COLUMNS = [*TRIAL[:-1], "share:g", *(f"{name}:.5g" for name in METHODS), "seconds:.3g"]


def censor(y, side, share):
    """y with NaN for censored rows, and the bounds of all rows."""
    below = {"below": share, "above": 0.0, "both": share / 2}[side]
    low, high = np.quantile(y, [below, 1.0 - (share - below)])
    is_low, is_high = (y < low) & (below > 0), (y > high) & (share > below)
    lower = np.where(is_low, -np.inf, np.where(is_high, high, y))
    upper = np.where(is_low, low, np.where(is_high, np.inf, y))
    return np.where(is_low | is_high, np.nan, y), TargetBounds(lower, upper)


def measure(model, dataset, rows, seed, side, share):
    (X, y), (X_test, y_test) = training_and_test_rows(dataset, seed)
    chosen = np.random.RandomState(seed).permutation(len(y))[: rows or None]
    X, y = X[chosen], y[chosen]
    partial, bounds = censor(y, side, share)
    known = ~bounds.censored
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = {
            "dropped": MODELS[model]().fit(X[known], y[known]),
            "substituted": MODELS[model]().fit(X, bounds.limits()),
            "censored": MODELS[model]().fit(X, partial, y_lower=bounds.lower, y_upper=bounds.upper),
            "known": MODELS[model]().fit(X, y),
        }
        return {name: rmse(own.predict(X_test), y_test) for name, own in fitted.items()}


def summary(runs):
    runs = runs.assign(better=runs[["dropped", "substituted"]].min(axis=1))
    lines = [
        "# Censored labels",
        "",
        "RMSE of all test rows with censored labels (bounds given to `fit`), as a ratio to the "
        "better of dropping the censored rows and substituting the limit; in brackets that of a "
        "fit to the values of all rows. Means are geometric. "
        "`python -m benchmarks.labels.censored_labels`.",
    ]
    for (model, rows), own in runs.groupby(["model", "rows"], sort=False):
        settings = [(side, share) for share in SHARES for side in SIDES]
        table = [
            [key, *(_ratio(by_set[_is(by_set, *each)]) for each in settings), _ratio(by_set)]
            for key, by_set in own.groupby("dataset")
        ]
        total = ["mean", *(_ratio(own[_is(own, *each)]) for each in settings), _ratio(own)]
        size = f"at most {rows} rows" if rows else "all rows"
        lines += ["", f"## {model}, {size}, splits {sorted(own['seed'].unique().tolist())}", ""]
        header = ["", *(f"{share:.0%} {side}" for side, share in settings), "mean"]
        lines += frame.markdown_table(header, [*table, total])
        ratio = (np.log(own["censored"] / own["better"])).groupby(own["dataset"]).mean()
        wins = [
            (own["censored"] < own[name]).groupby([own["side"], own["share"]]).agg(["sum", "count"])
            for name in METHODS[:2]
        ]
        counts = ", ".join(
            f"{name} in {each['sum'].sum()} of {each['count'].sum()} settings"
            for name, each in zip(METHODS[:2], wins, strict=True)
        )
        lines += [
            "",
            f"Lower than the better of both on {(ratio < 0).sum()} of {len(ratio)} sets (geometric "
            f"mean over settings), and lower than {counts}.",
        ]
    return lines


def _is(runs, side, share):
    return (runs["side"] == side) & np.isclose(runs["share"], share)


def _ratio(runs):
    if not len(runs):
        return ""
    censored, known = (
        np.exp(np.log(runs[name] / runs["better"]).mean()) for name in ("censored", "known")
    )
    return f"{censored:.2f} ({known:.2f})"


BENCHMARK = frame.Benchmark(
    "censored_labels",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=TRIAL,
    axes={
        "model": list(MODELS),
        "seed": [0],
        "share": sorted(SHARES, reverse=True),
        "side": list(SIDES),
        "dataset": list(KEYS),
        "rows": [300],
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
