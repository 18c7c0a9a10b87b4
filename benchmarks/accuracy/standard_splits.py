"""Errors and predictive distributions on the UCI standard splits, beside what is published.

All 20 splits of six data sets (`twinned.datasets.standard_split`). `AutoTwinRegressor` has
`effort="balanced"` and no other setting; the other models have their defaults. Their predictive
distribution is a normal one: with the standard deviation of the process for the Gaussian process
(`GPRegressor` of `twinned`: Matérn 5/2, one length scale per feature, noise), and for others with
that of their out-of-fold errors in five folds. RealMLP, of `pip install pytabkit`, is run where it
is named.

`pit` are the values of the predictive distribution function at the test rows, in thousandths. The
`seconds` of the committed blends are those of all members, whose networks were trained on a GPU.
Results: `benchmarks/results/standard_splits.csv` and `.md`, which has the published figures of
`published_standard_splits.csv` beside them.

    python -m benchmarks.accuracy.standard_splits --jobs 16 --models catboost lightgbm xgboost
    python -m benchmarks.accuracy.standard_splits --jobs 16 --models twinned
    python -m benchmarks.accuracy.standard_splits --only-table
"""

import time

import numpy as np
import pandas as pd
from scipy.stats import kstest, norm
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import frame
from benchmarks.accuracy.peers import make_model
from benchmarks.accuracy.tables import split_table
from paper.data import rmse
from twinned import AutoTwinRegressor
from twinned.datasets import STANDARD_KEYS, STANDARD_SPLITS, info
from twinned.estimators.regressors import GPRegressor
from twinned.metrics import crps, log_likelihood

BLEND = "twinned"
CONFIDENCES = (80, 90, 95)
# name → name in tables
MODELS = {
    BLEND: "**`AutoTwinRegressor`**",
    "catboost": "CatBoost",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    "gaussian process": "Gaussian process",
    "realmlp": "RealMLP",
}
COLUMNS = [
    "dataset", "model", "seed", "rmse:.6g", "nll:.6g", "crps:.6g",
    *(f"coverage_{confidence}:.4g" for confidence in CONFIDENCES), "seconds:.4g", "pit",
]  # fmt: skip
N_FOLDS = 5
MEASURES = {"rmse": "RMSE", "nll": "negative log-likelihood", "crps": "CRPS"}
# Settings of the library were once chosen on training rows of the paper's splits of the other sets.
SAW_TEST_ROWS = "in part; kin8nm: no"
# The target has few values, so that a density with spikes has no bound.
WITHOUT_LOWEST = {("nll", "wine")}


class NormalErrors:
    """A fitted model whose errors have a normal distribution.

    Without `std`, the standard deviation is that which the model itself predicts.
    """

    def __init__(self, model, std=None):
        self.model, self.std = model, std

    def predict(self, X):
        return self.model.predict(X)

    def _distribution(self, X):
        if self.std is not None:
            return norm(self.model.predict(X), self.std)
        return norm(*self.model.predict(X, return_std=True))

    def predict_quantiles(self, X, quantiles):
        distribution = self._distribution(X)
        columns = distribution.mean()[:, None], distribution.std()[:, None]
        return norm(*columns).ppf(quantiles)

    def predict_cdf(self, X, y):
        return self._distribution(X).cdf(y)

    def log_density(self, X, y):
        return self._distribution(X).logpdf(y)


def fit_peer(name, X, y):
    """Return a fitted model with a normal predictive distribution."""
    if name == "gaussian process":
        process = make_pipeline(StandardScaler(), GPRegressor(random_state=0))
        return NormalErrors(process.fit(X, y))
    model = make_model(name, X)
    folds = KFold(N_FOLDS, shuffle=True, random_state=0)
    predicted = cross_val_predict(clone(model), X, y, cv=folds)
    return NormalErrors(model.fit(X, y), rmse(predicted, y))


def run_split(dataset, model, seed, n_jobs=1):
    """Return the figures of one model on one split."""
    table = f"uci {dataset}"
    (X, y), (X_test, y_test) = split_table(table, seed)
    start = time.perf_counter()
    if model != BLEND:
        fitted = fit_peer(model, X, y)
    else:
        fitted = AutoTwinRegressor(random_state=0, n_jobs=n_jobs).fit(X, y)
    seconds = time.perf_counter() - start
    return {**figures(fitted, X_test, y_test), "seconds": seconds}


def figures(model, X, y):
    """Return the error and the figures of the predictive distribution of a fitted model."""
    levels = [(50 + sign * confidence / 2) / 100 for confidence in CONFIDENCES for sign in (-1, 1)]
    ends = model.predict_quantiles(X, levels).reshape(len(y), -1, 2)
    inside = np.mean((ends[:, :, 0] <= y[:, None]) & (y[:, None] <= ends[:, :, 1]), axis=0)
    names = [f"coverage_{confidence}" for confidence in CONFIDENCES]
    return {
        "rmse": rmse(model.predict(X), y),
        "nll": -log_likelihood(model, X, y),
        "crps": crps(model, X, y),
        **dict(zip(names, inside, strict=True)),
        "pit": " ".join(f"{1000 * value:.0f}" for value in model.predict_cdf(X, y)),
    }


def published():
    return pd.read_csv(frame.RESULTS / "published_standard_splits.csv")


def fewer_splits(runs):
    """Return a sentence on the sets that were not run on all splits, or an empty text."""
    counts = runs.groupby(["dataset", "model"]).size().groupby("dataset").min()
    counts = counts.reindex(STANDARD_KEYS, fill_value=0)
    fewer = counts[counts < len(STANDARD_SPLITS)].items()
    parts = [f"{key} {n}" for key, n in fewer]
    if not parts:
        return ""
    counts = f"Number of splits that were run here, of 20: {', '.join(parts)}."
    return f"{counts} Published figures are means over all 20, so ratios to them may still change."


def summary(runs):
    """Return the lines of the page."""
    lines = [
        "# UCI standard splits",
        "",
        '`AutoTwinRegressor` with `effort="balanced"` and no other setting, models with their '
        "defaults that were run on the same splits, and published figures. Means over splits, "
        "in parentheses the standard error; the lowest of each column is bold. "
        "`python -m benchmarks.accuracy.standard_splits`.",
    ]
    if fewer := fewer_splits(runs):
        lines += ["", fewer]
    for measure, name in MEASURES.items():
        lines += ["", f"## {name[0].upper() + name[1:]}", "", *measure_table(runs, measure)]
    lines += ["", "## Coverage and seconds", "", *distribution_table(runs)]
    return lines


def measure_table(runs, measure):
    """One row for each model and each published method, one column for each data set."""
    shape = {"columns": "dataset", "values": measure}
    means, errors = (
        runs.pivot_table(index="model", aggfunc=how, dropna=False, **shape)
        for how in ("mean", "sem")
    )
    others = published().dropna(subset=measure).pivot_table(index="method", sort=False, **shape)
    lowest = pd.concat([means, others]).min()
    facts = published().drop_duplicates("method").set_index("method")

    def bold(value, key, text):
        is_lowest = (
            np.isclose(value, lowest[key], rtol=1e-9) and (measure, key) not in WITHOUT_LOWEST
        )
        return f"**{text}**" if is_lowest else text

    rows = []
    for model, label in MODELS.items():
        if model in means.index:
            cells = []
            for key in STANDARD_KEYS:
                value, error = (table.loc[model].get(key, np.nan) for table in (means, errors))
                text = f"{value:.4g}"
                cells.append("" if np.isnan(value) else f"{bold(value, key, text)} ({error:.2g})")
            rows.append([label, *cells, SAW_TEST_ROWS if model == BLEND else "no"])
    for method, values in others.iterrows():
        cells = [
            "" if np.isnan(values.get(key, np.nan)) else bold(values[key], key, f"{values[key]:g}")
            for key in STANDARD_KEYS
        ]
        rows.append([f"{method} (published)", *cells, facts.loc[method, "settings_saw_test_rows"]])
    rows.append(ratio_row(means, others, measure))
    return frame.markdown_table(["", *STANDARD_KEYS, "settings saw test rows"], rows)


def ratio_row(means, others, measure):
    """The blend beside the lowest published figure."""
    lowest, own = others.min(), means.loc[BLEND] if BLEND in means.index else pd.Series(dtype=float)
    cells = []
    for key in STANDARD_KEYS:
        value, best = own.get(key, np.nan), lowest.get(key, np.nan)
        if np.isnan(value) or np.isnan(best) or (measure, key) in WITHOUT_LOWEST:
            cells.append("")
        else:
            cells.append(f"{value - best:+.2f}" if measure == "nll" else f"{value / best:.3f}")
    what = "minus" if measure == "nll" else "divided by"
    return [f"`AutoTwinRegressor` {what} the lowest published", *cells, ""]


def largest_difference(runs):
    """Largest difference of the distribution of all `pit` from the uniform one."""
    values = np.concatenate([np.array(text.split(), float) for text in runs["pit"]]) / 1000
    return kstest(values, "uniform").statistic


def distribution_table(runs):
    """Coverage of intervals, distance of the transform from uniform, and seconds."""
    rows = []
    for model, label in MODELS.items():
        own = runs[runs["model"] == model]
        for key in STANDARD_KEYS:
            part = own[own["dataset"] == key]
            if len(part):
                coverage = [f"{100 * part[f'coverage_{c}'].mean():.1f}" for c in CONFIDENCES]
                rest = [f"{largest_difference(part):.3f}", f"{part['seconds'].mean():.3g}"]
                rows.append([label, f"{key} ({info(key).rows} rows)", *coverage, *rest])
    header = ["", "", *(f"coverage at {c} %" for c in CONFIDENCES)]
    return frame.markdown_table([*header, "distance from uniform", "seconds"], rows)


BENCHMARK = frame.Benchmark(
    "standard_splits",
    __doc__,
    COLUMNS,
    run=run_split,
    summary=summary,
    trial=("dataset", "model", "seed"),
    axes={
        # those that take longest first
        "dataset": sorted(STANDARD_KEYS, key=lambda key: -info(key).rows),
        "model": list(MODELS)[:-1],
        "seed": list(STANDARD_SPLITS),
    },
    options={"n_jobs": 1},
)

if __name__ == "__main__":
    BENCHMARK.main()
