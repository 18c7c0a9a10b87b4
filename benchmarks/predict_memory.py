"""Peak memory and time of predicting many rows, ours beside pdll 1.0.0, each in its own process.

A shallow tree (depth 3) on 10 features; 200,000 rows to predict. Ours uses 1,000 anchors, pdll
the 500 it caps itself at. Writes `benchmarks/results/predict_memory.md`.

    python benchmarks/predict_memory.py
"""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
N_TRAIN, N_FEATURES = 1_000, 10


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(who: str, n_rows: int) -> None:
    import numpy as np
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.RandomState(0)
    X = rng.uniform(size=(N_TRAIN, N_FEATURES))
    y = X[:, 0] + np.sin(6 * X[:, 1]) + 0.1 * rng.normal(size=N_TRAIN)
    queries = rng.uniform(size=(n_rows, N_FEATURES))
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    if who == "twinned":
        from twinned import TwinRegressor

        model = TwinRegressor(tree, random_state=0).fit(X, y)
        anchors = len(model.anchors_X_)
    else:
        import pandas as pd
        from pdll import PairwiseDifferenceRegressor

        model = PairwiseDifferenceRegressor(tree)
        model.fit(pd.DataFrame(X), pd.Series(y))
        queries = pd.DataFrame(queries)
        anchors = 500
    fitted = megabytes()
    start = time.perf_counter()
    model.predict(queries)
    print(anchors, fitted, megabytes(), time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--child", choices=["twinned", "pdll"])
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.rows)
        return
    lines = [
        f"# Predicting {arguments.rows:,} rows with a twinned tree of depth 3",
        "",
        "Peak resident memory of the whole process, imports and data included. Times are of a "
        "shared machine: read them as a ratio.",
        "",
        "| | anchors | peak after fit, MB | peak after predict, MB | seconds to predict |",
        "|---|---|---|---|---|",
    ]
    for who in ("twinned", "pdll"):
        command = [sys.executable, __file__, "--child", who, "--rows", str(arguments.rows)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            reason = run.stderr.strip().splitlines()[-1]
            lines.append(f"| {who} | did not run: {reason} | | | |")
            continue
        anchors, fitted, peak, seconds = (float(value) for value in run.stdout.split()[-4:])
        lines.append(f"| {who} | {anchors:.0f} | {fitted:.0f} | {peak:.0f} | {seconds:.0f} |")
        print(lines[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "predict_memory.md").write_text("\n".join([*lines, ""]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
