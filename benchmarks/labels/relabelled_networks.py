"""Algorithm 1 of the paper for networks, beside loops in their loss: errors with few labels.

Of the training rows of the first splits (80 %), three tenths are labelled. Small networks are
fitted to these alone (*supervised*); with loops through the other rows in the loss, of weight 1
(*loss*); and by `SemiSupervisedTwinRegressor` with Λ = 0, 1/3 and 1. Errors are those of the test
rows, which are apart. Weights were not chosen by results: 1 is in the middle of those of
`python -m paper run S`, and the three Λ are those that the paper names.

    python -m benchmarks.labels.relabelled_networks    # four minutes

Results: `benchmarks/results/relabelled_networks.csv`; the page of the reproduction has the ratios.
"""

import numpy as np

from benchmarks import frame
from paper.data import rmse, training_and_test_rows
from twinned import NeuralTraining, SemiSupervisedTwinRegressor, TwinNeuralRegressor

SHARE, N_SPLITS, N_STEPS = 0.3, 5, 800
RELABELLED = {"Λ = 0": 0.0, "Λ = 1/3": 1 / 3, "Λ = 1": 1.0}
METHODS = ["supervised", "loss", *RELABELLED]
COLUMNS = ["dataset", "seed", "method", "rmse:.6g", "seconds:.3g"]


def run_split(dataset, seed, method):
    (X, y), (X_test, y_test) = training_and_test_rows(dataset, seed)
    labelled = np.random.RandomState(seed).permutation(len(y))[: round(SHARE * len(y))]
    partial = np.full(len(y), np.nan)
    partial[labelled] = y[labelled]
    model = TwinNeuralRegressor(
        (64, 64),
        effort="small",
        loop_weight=float(method == "loss"),
        training=NeuralTraining(max_steps=N_STEPS),
        random_state=seed,
    )
    if method == "supervised":
        model.fit(X[labelled], y[labelled])
    elif method == "loss":
        model.fit(X, partial)
    else:
        weight = RELABELLED[method]
        model = SemiSupervisedTwinRegressor(model, loop_weight=weight, random_state=seed)
        model.fit(X, partial)
    return {"rmse": rmse(model.predict(X_test), y_test)}


BENCHMARK = frame.Benchmark(
    "relabelled_networks",
    __doc__,
    COLUMNS,
    run=run_split,
    trial=("dataset", "seed", "method"),
    axes={"seed": N_SPLITS, "dataset": ["YH", "WSB", "BC"], "method": METHODS},
)

if __name__ == "__main__":
    BENCHMARK.main()
