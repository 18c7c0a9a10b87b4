"""Processor seconds, pairs and steps of fits and predictions with all defaults.

Beside them is scikit-learn's gradient boosting in the same run: as seconds depend on the machine,
compare the ratios. `python -m benchmarks.speed.cost` prints the table next to the committed figures
of the last release, and `--write` replaces these.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.cost           # make bench-cost, four minutes
    OMP_NUM_THREADS=1 python -m benchmarks.speed.cost --large   # and the large tables, half an hour

Data are Friedman's first function with noise; predictions are of 200 rows, after a first call.
Results: `benchmarks/results/cost.csv` and `.md`.
"""

import time

import pandas as pd
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor

import twinned
from benchmarks import frame
from twinned import AutoTwinRegressor, TwinNeuralRegressor, TwinRegressor

PATH = frame.RESULTS / "cost.csv"
QUICK_SIZES = [(50, 5), (300, 10), (1000, 10), (500, 185)]
LARGE_SIZES = [(3000, 10), (10_000, 10)]
N_QUERIES = 200
MODELS = {
    "boosting": HistGradientBoostingRegressor,
    "TwinRegressor": TwinRegressor,
    "TwinNeuralRegressor": TwinNeuralRegressor,
    "AutoTwinRegressor": AutoTwinRegressor,
}
# Rows up to which a model is fitted without --large.
QUICK_ROWS = {"TwinNeuralRegressor": 50, "AutoTwinRegressor": 1000}


def seconds_of(function, *arguments):
    """Return the result and the processor seconds of a call."""
    start = time.process_time()
    result = function(*arguments)
    return result, time.process_time() - start


def measure(name, n_rows, n_features):
    """Return the row of the table of a model and a size."""
    X, y = make_friedman1(n_rows + N_QUERIES, n_features=n_features, noise=1.0, random_state=0)
    model, fit_seconds = seconds_of(MODELS[name](random_state=0).fit, X[:n_rows], y[:n_rows])
    model.predict(X[n_rows:])
    _, predict_seconds = seconds_of(model.predict, X[n_rows:])
    return {
        "model": name,
        "rows": n_rows,
        "features": n_features,
        "fit_seconds": fit_seconds,
        "predict_seconds": predict_seconds,
        "pairs": getattr(model, "n_pairs_", 0),
        "steps": number_of_steps(model),
    }


def number_of_steps(model):
    """Return the number of trees, or of training steps of networks; 0 of a blend."""
    if isinstance(model, TwinRegressor):
        return model.estimator_.n_iter_
    return getattr(model, "n_iter_", 0) if "max_iter" in model.get_params() else 0


def table(runs, committed):
    """The lines of the page: measured values, relative to boosting, and those committed."""
    index = ["model", "rows", "features"]
    runs, committed = runs.set_index(index), committed.set_index(index)
    rows = []
    for key, run in runs.iterrows():
        boosting = runs.loc[("boosting", *key[1:])]
        before = committed.loc[key] if key in committed.index else None
        rows.append(
            [
                f"{key[0]} {key[1]} × {key[2]}",
                f"{run['fit_seconds']:.2f}",
                f"{run['fit_seconds'] / boosting['fit_seconds']:.1f}",
                f"{run['predict_seconds']:.3f}",
                f"{run['pairs']:,.0f}",
                f"{run['steps']:,.0f}",
                "" if before is None else f"{before['fit_seconds']:.2f}",
                "" if before is None else f"{before['relative']:.1f}",
                "" if before is None else f"{before['predict_seconds']:.3f}",
            ]
        )
    version = committed["version"].iloc[0] if len(committed) else "none"
    header = (
        " | fit, s | / boosting | predict 200 rows, s | pairs | trees or steps"
        f" | fit, s ({version}) | / boosting ({version}) | predict ({version})"
    )
    return [
        "# Cost of the defaults",
        "",
        "Processor seconds of one thread, beside scikit-learn's `HistGradientBoostingRegressor` in "
        "the same run, and the committed figures of the last release. "
        "A busy machine takes up to twice as long. `python -m benchmarks.speed.cost`.",
        "",
        *frame.markdown_table(header, rows),
    ]


def main():
    arguments = frame.parse_arguments(__doc__, large=False, write=False)
    for name in ("boosting", "TwinRegressor"):
        measure(name, 60, 5)  # loads libraries and the compiled kernel
    runs = []
    for size in QUICK_SIZES + LARGE_SIZES * arguments.large:
        for name in MODELS:
            if arguments.large or size[0] <= QUICK_ROWS.get(name, size[0]):
                runs.append(measure(name, *size))
                print(runs[-1], flush=True)
    runs = pd.DataFrame(runs)
    committed = pd.read_csv(PATH) if PATH.exists() else runs.head(0)
    lines = table(runs, committed)
    print("\n".join(lines))
    if arguments.write:
        boosting = runs[runs["model"] == "boosting"].set_index(["rows", "features"])
        sizes = pd.MultiIndex.from_frame(runs[["rows", "features"]])
        runs["relative"] = (
            runs["fit_seconds"].to_numpy() / boosting["fit_seconds"][sizes].to_numpy()
        )
        figures = runs.assign(version=twinned.__version__)
        frame.write_file(PATH, figures.to_csv(index=False, float_format="%.4g").encode())
        frame.write_markdown(PATH.with_suffix(".md"), table(runs, pd.read_csv(PATH)))


if __name__ == "__main__":
    main()
