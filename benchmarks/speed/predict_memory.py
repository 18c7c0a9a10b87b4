"""Peak memory and time of predicting many rows, ours beside pdll 1.0.0, each in its own process.

A shallow tree (depth 3) on 10 features; 200,000 rows to predict. Ours uses 1,000 anchors, pdll its
maximum of 500. Writes `benchmarks/results/predict_memory.md`.

    python -m benchmarks.speed.predict_memory
"""

import time

import numpy as np

from benchmarks import frame
from benchmarks.speed.measurement import peak_megabytes

N_TRAIN, N_FEATURES = 1_000, 10


def measure_prediction(library, n_rows):
    """Return the number of anchors, peak MB after fit and after predict, and its seconds."""
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.RandomState(0)
    X = rng.uniform(size=(N_TRAIN, N_FEATURES))
    y = X[:, 0] + np.sin(6 * X[:, 1]) + 0.1 * rng.normal(size=N_TRAIN)
    queries = rng.uniform(size=(n_rows, N_FEATURES))
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    if library == "twinned":
        from twinned import TwinRegressor

        model = TwinRegressor(tree, random_state=0).fit(X, y)
        n_anchors = len(model.anchors_X_)
    else:
        import pandas as pd
        from pdll import PairwiseDifferenceRegressor

        model = PairwiseDifferenceRegressor(tree)
        model.fit(pd.DataFrame(X), pd.Series(y))
        queries = pd.DataFrame(queries)
        n_anchors = 500
    fitted = peak_megabytes()
    start = time.perf_counter()
    model.predict(queries)
    return n_anchors, fitted, peak_megabytes(), time.perf_counter() - start


def main():
    arguments = frame.parse_arguments(__doc__, rows=200_000)
    rows = []
    for library in ("twinned", "pdll"):
        try:
            numbers = frame.run_in_subprocess(measure_prediction, library, arguments.rows)
            rows.append([library, *(f"{number:.0f}" for number in numbers)])
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            rows.append(f"{library} | did not run: {reason} |  |  | ")
    header = " | anchors | peak after fit, MB | peak after predict, MB | seconds to predict"
    lines = [
        f"# Predicting {arguments.rows:,} rows with a twinned tree of depth 3",
        "",
        "Peak resident memory of the whole process, imports and data included. Times are of a "
        "shared machine: read them as a ratio.",
        "",
        *frame.markdown_table(header, rows),
    ]
    frame.write_markdown(frame.RESULTS / "predict_memory.md", lines)


if __name__ == "__main__":
    main()
