"""CatBoost and other models beside `AutoTwinRegressor`: errors and conformal intervals.

Everything at its default, on the splits of `benchmarks.accuracy.tables`. The intervals of CatBoost
are those of split conformal prediction: a model of four fifths of the training rows, and the
quantile of its absolute errors on the last fifth. RealMLP is that of `pip install pytabkit`, and
pdll's default takes so long that it has three splits. Results: `benchmarks/results/peers.csv`,
which `benchmarks.accuracy.accuracy_auto` reads.

    python -m benchmarks.accuracy.peers --jobs 2
"""

import numpy as np

from benchmarks import frame
from benchmarks.accuracy.tables import OTHER_TABLES, WN_GROUPED, split_table
from paper.data import rmse
from twinned.datasets import KEYS, PAPER_SEEDS

CONFIDENCES = (80, 90, 95)
COLUMNS = [
    "dataset", "model", "seed", "rmse:.6g",
    *(f"coverage_{confidence}:.4g" for confidence in CONFIDENCES),
    *(f"width_{confidence}:.6g" for confidence in CONFIDENCES), "seconds:.4g",
]  # fmt: skip
MODELS = ["catboost", "lightgbm", "xgboost", "realmlp", "pdll"]
N_SPLITS = 10  # of tables outside the paper
ELSEWHERE = ["lightgbm", "xgboost"]  # on the paper's sets: in `accuracy_trees.csv`
ON_PAPER_SETS = {"realmlp": PAPER_SEEDS, "pdll": PAPER_SEEDS[:3]}


def make_model(name, X):
    """Return a model for these features; categorical ones are declared."""
    texts = [c for c in getattr(X, "columns", []) if X[c].dtype == "category"]
    if name == "catboost":
        from catboost import CatBoostRegressor

        return CatBoostRegressor(
            verbose=False,
            random_seed=0,
            allow_writing_files=False,
            thread_count=1,
            cat_features=texts or None,
        )
    if name == "lightgbm":
        from lightgbm import LGBMRegressor

        return LGBMRegressor(random_state=0, verbosity=-1, n_jobs=1)
    if name == "realmlp":
        from pytabkit import RealMLP_TD_Regressor

        return RealMLP_TD_Regressor(device="cpu", random_state=0, n_threads=1)
    if name == "pdll":
        from pdll import PairwiseDifferenceRegressor

        return PairwiseDifferenceRegressor()
    from xgboost import XGBRegressor

    return XGBRegressor(random_state=0, n_jobs=1, enable_categorical=bool(texts))


def run_split(dataset, model, seed):
    """Return the test error and, of CatBoost, coverage and width of split conformal intervals."""
    (X, y), (X_test, y_test) = split_table(dataset, seed)
    result = {"rmse": rmse(make_model(model, X).fit(X, y).predict(X_test), y_test)}
    if model != "catboost":
        return result | dict.fromkeys(
            (column.partition(":")[0] for column in COLUMNS[4:-1]), np.nan
        )
    order = np.random.RandomState(seed).permutation(len(y))
    n = round(0.8 * len(y))

    def take(rows):
        return X.iloc[rows] if hasattr(X, "iloc") else X[rows]

    half = make_model(model, X).fit(take(order[:n]), y[order[:n]])
    scores = np.sort(np.abs(half.predict(take(order[n:])) - y[order[n:]]))
    error = np.abs(half.predict(X_test) - y_test)
    for confidence in CONFIDENCES:
        rank = int(np.ceil(confidence / 100 * (len(scores) + 1)))
        radius = scores[rank - 1] if rank <= len(scores) else np.inf
        result[f"coverage_{confidence}"] = np.mean(error <= radius)
        result[f"width_{confidence}"] = 2 * radius
    return result


def splits(dataset, model):
    """Return the splits of a data set on which a model is measured."""
    if dataset in KEYS:
        return [] if model in ELSEWHERE else ON_PAPER_SETS.get(model, PAPER_SEEDS)
    return [] if model in ON_PAPER_SETS else range(N_SPLITS)


BENCHMARK = frame.Benchmark(
    "peers",
    __doc__,
    COLUMNS,
    run=run_split,
    trial=("dataset", "model", "seed"),
    axes={
        "model": MODELS,
        "dataset": [*KEYS, *OTHER_TABLES, WN_GROUPED],
        "seed": list(PAPER_SEEDS),
    },
    is_trial=lambda dataset, model, seed: seed in splits(dataset, model),
)

if __name__ == "__main__":
    BENCHMARK.main()
