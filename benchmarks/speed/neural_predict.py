"""Prediction with all anchors, beside the machine's own matrix products.

1,000 anchors, 10,000 queries, hidden layers of 128 and 128. Counted are the multiply-adds of the
second layer alone (2 × 2 orders × queries × anchors × 128 × 128 a member), beside the rate of a
product of two 1024 × 1024 float32 matrices. Each run is on one core and timed in processor seconds,
which other programs cannot lengthen; with `--cores 2` it is timed by the clock, the products taken
as often as they fit into the same time. Writes `benchmarks/results/neural_predict.md`.

    python -m benchmarks.speed.neural_predict
"""

import numpy as np

from benchmarks import frame
from benchmarks.speed.measurement import peak_megabytes, product_rate, use_cores

N_ANCHORS, N_QUERIES, N_FEATURES, WIDTH = 1_000, 10_000, 8, 128
CASES = [(1, "silu"), (8, "silu"), (1, "relu"), (8, "relu")]


def fit_twin(n_members, activation):
    from twinned import NeuralTraining, TwinNeuralRegressor

    rng = np.random.RandomState(0)
    X = rng.normal(size=(N_ANCHORS, N_FEATURES))
    twin = TwinNeuralRegressor(
        (WIDTH, WIDTH),
        n_members=n_members,
        training=NeuralTraining(activation=activation, n_folds=1, selection="mean", max_steps=20),
        random_state=0,
    )
    return twin.fit(X, X[:, 0] + np.sin(X[:, 1])), rng.normal(size=(N_QUERIES, N_FEATURES))


def measure(cores, n_members, activation, repeats):
    """Return medians of seconds, rates and their ratio; and memory added, and before, in MB."""
    clock = use_cores(cores)
    twin, queries = fit_twin(n_members, activation)
    before = peak_megabytes()
    twin.predict(queries, return_std=True)  # compiles
    work = n_members * 2 * 2 * N_QUERIES * N_ANCHORS * WIDTH**2
    runs = []
    for _ in range(repeats):
        start = clock()
        twin.predict(queries, return_std=True)
        seconds = clock() - start
        rate = product_rate(clock, min(seconds, 5.0))
        runs.append((seconds, work / seconds / 1e9, rate / 1e9, work / seconds / rate))
    return [*np.median(runs, axis=0), peak_megabytes() - before, before]


def main():
    arguments = frame.parse_arguments(__doc__, cores=1, repeats=5)
    cores, repeats = arguments.cores, arguments.repeats
    rows = []
    for n_members, activation in CASES:
        seconds, rate, products, share, added, before = frame.run_in_subprocess(
            measure, cores, n_members, activation, repeats
        )
        rows.append(
            f"{n_members} | {activation} | {seconds:.2f} | {rate:.0f} | {products:.0f} | "
            f"{100 * share:.0f} % | {before:.0f} | {added:.0f}"
        )
        print(rows[-1], flush=True)
    header = (
        "members | activation | seconds | GFLOP/s | float32 products, GFLOP/s | share | "
        "peak memory after fit, MB | more while predicting, compiling included, MB"
    )
    lines = [
        "# Predicting with all anchors, beside the machine's own matrix products",
        "",
        f"{N_ANCHORS:,} anchors, {N_QUERIES:,} queries, hidden layers {WIDTH}–{WIDTH}, mean and "
        f"spread, `memory_limit` 512 MB, {cores} core(s), median of {repeats} "
        "runs, each beside a run of products. Counted are the second layer's multiply-adds only; "
        "activations, first layer, output layer and sums come on top of them. Made by `python -m "
        f"benchmarks.speed.neural_predict --cores {cores}`.",
        "",
        *frame.markdown_table(header, rows),
    ]
    name = "neural_predict.md" if cores == 1 else f"neural_predict_{cores}.md"
    frame.write_markdown(frame.RESULTS / name, lines)


if __name__ == "__main__":
    main()
