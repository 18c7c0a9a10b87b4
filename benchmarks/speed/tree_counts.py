"""The mean over all anchors: anchors that are counted at leaves, beside sets of anchors.

Both parts of `models.trees.kernel` predict the same rows in turn in one process, on one thread.
Writes `benchmarks/results/tree_counts.md`.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.tree_counts
"""

import copy
import time
from unittest import mock

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks import frame
from twinned import RandomAnchors, TwinRegressor
from twinned.models.trees import packing

N_QUERIES, ROUNDS = 200, 3
DEFAULT = "default"
# leaves of boosted trees, training rows, anchors
CASES = [
    (DEFAULT, 500, 500),
    (DEFAULT, 500, 50),
    *((leaves, n, n) for leaves in (31, 127) for n in (400, 1000)),
]


def make_data():
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(1_500, 10))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
    y += 5 * X[:, 4] + rng.normal(size=len(X))
    return X[:1_000], y[:1_000], X[1_000:]


def processor_seconds(function, *arguments):
    start = time.process_time()
    result = function(*arguments)
    return time.process_time() - start, result


def fit(name, n_rows, n_anchors):
    X, y, _ = make_data()
    anchors = "all" if n_anchors == n_rows else RandomAnchors(n_anchors)
    if name == DEFAULT:
        twin = TwinRegressor(anchors=anchors, random_state=0)
    else:
        options = {"max_leaf_nodes": name, "learning_rate": 0.05, "early_stopping": False}
        boosting = HistGradientBoostingRegressor(max_iter=600, **options)
        twin = TwinRegressor(boosting, pairs=32, anchors=anchors, random_state=0)
    return twin.fit(X[:n_rows], y[:n_rows])


def microseconds(twin, queries):
    """Processor time of a row, by both kernels; and the largest difference of their predictions."""
    by_sets = copy.deepcopy(twin)
    with mock.patch.object(packing, "MAX_INNER_NODES", 0):
        by_sets.predict(queries)  # packs the trees
    twin.predict(queries)
    seconds, apart = [], 0.0
    for _ in range(ROUNDS):
        (of_sets, expected), (of_counts, found) = (
            processor_seconds(one.predict, queries) for one in (by_sets, twin)
        )
        seconds.append([of_sets, of_counts])
        apart = max(apart, np.abs(found - expected).max())
    return 1e6 * np.median(seconds, axis=0) / len(queries), apart / np.ptp(twin.anchors_y_)


def main():
    frame.parse_arguments(__doc__)
    queries = make_data()[2][:N_QUERIES]
    rows = []
    for name, n_rows, n_anchors in CASES:
        (of_sets, of_counts), apart = microseconds(fit(name, n_rows, n_anchors), queries)
        times = f"{of_sets:.0f}", f"{of_counts:.0f}", f"{of_sets / of_counts:.2f}×"
        label = name if name == DEFAULT else f"HistGradientBoosting, 600 × {name} leaves"
        rows.append([label, f"{n_anchors:,}", *times, f"{apart:.0e}"])
        print(*rows[-1], flush=True)
    header = "model | anchors | sets, µs | counts, µs | faster | apart"
    lines = [
        "# The mean over all anchors by counting anchors at leaves",
        "",
        f"Processor time of one row of {N_QUERIES}, 10 features, both orders of each pair, one "
        f"thread; medians of {ROUNDS} turns in one process. *Sets*: the kernel that is also used "
        "for single estimates. *Apart*: the largest difference of predictions, by the range of y. "
        "The default twin is fitted to 500 rows.",
        "",
        "`OMP_NUM_THREADS=1 python -m benchmarks.speed.tree_counts`",
        "",
        *frame.markdown_table(header, rows),
    ]
    frame.write_markdown(frame.RESULTS / "tree_counts.md", lines)


if __name__ == "__main__":
    main()
