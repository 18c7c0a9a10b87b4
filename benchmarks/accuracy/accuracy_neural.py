"""Accuracy of the neural estimators on the paper's nine sets and 25 splits.

Each split trains on its 80 % (train and validation rows together), validates inside, and is tested
once on its 20 %. All splits of all data sets are trained together (`fit_many`); one GPU needs
minutes. Results: `benchmarks/results/accuracy_neural.csv` and `.md`.

    python -m benchmarks.accuracy.accuracy_neural --models twin:thorough twin:balanced --jobs 16
    python -m benchmarks.accuracy.accuracy_neural --models catboost           # on a CPU
"""

import time

import numpy as np

from benchmarks import frame
from benchmarks.accuracy.peers import make_model
from paper.comparison import published
from paper.data import rmse, training_and_test_rows
from twinned.datasets import KEYS, PAPER_SEEDS

COLUMNS = ["dataset", "model", "seed", "rmse:.6g", "seconds:.4g"]
MODELS = [
    f"{kind}:{effort}" for kind in ("twin", "plain") for effort in ("thorough", "balanced", "fast")
]
TWIN_METHODS = {
    "tnnr_1_anchor", "tnnr_all_anchors", "tnnr_ensemble_32", "nn_inference",
    "nn_train_and_inference",
}  # fmt: skip


def run_models(trials, jobs):
    """Yield the errors of the 25 splits of each trial; those of one model are trained together.

    Seconds are those of fitting, divided by the number of splits.
    """
    for model in dict.fromkeys(model for _, model in trials):
        keys = [key for key, own in trials if own == model]
        splits = [training_and_test_rows(key, seed) for key in keys for seed in PAPER_SEEDS]
        kind, *settings = model.split(":")
        start = time.perf_counter()
        if kind == "catboost":
            models = [make_model(kind, X).fit(X, y) for (X, y), _ in splits]
        else:
            models = fit_networks([train for train, _ in splits], jobs, kind, *settings)
        seconds = (time.perf_counter() - start) / len(splits)
        errors = iter(
            [rmse(fitted.predict(X), y) for fitted, (_, (X, y)) in zip(models, splits, strict=True)]
        )
        for key in keys:
            rows = [{"seed": seed, "rmse": next(errors)} for seed in PAPER_SEEDS]
            yield (key, model), rows, seconds


def fit_networks(problems, jobs, kind, effort, max_steps=None):
    from twinned.neural import NeuralRegressor, NeuralTraining, TwinNeuralRegressor, fit_many

    estimator = (TwinNeuralRegressor if kind == "twin" else NeuralRegressor)(
        effort=effort,
        training=NeuralTraining(max_steps=int(max_steps)) if max_steps else None,
        n_jobs=jobs,
        random_state=0,
    )
    return fit_many(estimator, problems)


def summary(runs):
    grouped = runs.groupby(["dataset", "model"])["rmse"]
    means, errors = grouped.mean(), grouped.std(ddof=0) / np.sqrt(len(PAPER_SEEDS))
    paper = published()
    best = paper[paper["method"].isin(TWIN_METHODS)].groupby("dataset")["rmse"].min()
    # only models that have results on all sets
    complete = means.groupby("model").size() == len(KEYS)
    models = sorted(complete.index[complete])
    ratios = {model: means[:, model] / best for model in models}
    rows = [
        [key, f"{best[key]:.4g}"]
        + [f"{means[key, m]:.4g} ({errors[key, m]:.2g}), {ratios[m][key]:.3f}" for m in models]
        for key in KEYS
    ]
    overall = [np.exp(np.log(ratios[model].drop("TF")).mean()) for model in models]
    rows += [
        ["geometric mean of the ratio, without TF", "", *(f"**{value:.3f}**" for value in overall)],
        [
            "sets below the paper's best",
            "",
            *(f"{(ratios[model] < 1).sum()} of {len(KEYS)}" for model in models),
        ],
    ]
    return [
        "# The neural estimators on the paper's 25 splits",
        "",
        "Mean test RMSE (standard error), trained on the 80 % of each split. *Paper's best* is the "
        "lowest published figure of any TNNR variant (tables T1 to T3). One setting for all sets.",
        "",
        *frame.markdown_table(["", "paper's best", *models], rows),
    ]


BENCHMARK = frame.Benchmark(
    "accuracy_neural",
    __doc__,
    COLUMNS,
    execute=run_models,
    summary=summary,
    trial=("dataset", "model"),
    axes={"model": [*MODELS, "catboost"], "dataset": list(KEYS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
