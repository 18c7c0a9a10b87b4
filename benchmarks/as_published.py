"""The paper's own training of twins on its 25 splits, beside table T2.

`PublishedTwin()` of `paper.published` trains on the 70 % of each split, stops early by its 10 % and
is tested on its 20 %; all splits of a data set are trained as one program. Plain networks are in
the records of table T1. Results: `benchmarks/results/as_published.csv` and `.md`.

    python -m benchmarks.as_published                                  # minutes on a GPU
    python -m benchmarks.as_published --only-table

TF, RCL and WSB have losses near the 1e-4 below which the author's plateau rule sees no progress.
Their errors depend on the scale of the loss (`as_published_loss_scale.csv`):

    python -m benchmarks.as_published --loss-scales 3 0.333 0.125
"""

import time

import numpy as np

from paper import harness
from paper.comparison import published_rmse
from paper.data import rmse, split_rows
from twinned.datasets import KEYS, PAPER_SEEDS

COLUMNS = ["dataset", "method", "seed", "rmse:.6g", "epochs", "seconds:.4g"]
SCALE_COLUMNS = ["dataset", "method", "loss_scale", "rmse:.4g", "standard_error:.2g", "epochs:.0f"]
METHODS = ("tnnr_all_anchors", "tnnr_1_anchor")


def run_splits(dataset):
    """Return the errors of all 25 splits, with all anchors and with one."""
    from paper.published import PublishedTwin, fit_published

    splits = [split_rows(dataset, seed) for seed in PAPER_SEEDS]
    start = time.perf_counter()
    models = fit_published(
        [PublishedTwin(random_state=0)] * len(splits),
        [(*train, None, *validation) for train, validation, _ in splits],
    )
    seconds = (time.perf_counter() - start) / len(splits)
    rows = []
    for seed, model, (_, _, (X, y)) in zip(PAPER_SEEDS, models, splits, strict=True):
        _, estimates = model.predict_anchors(X)
        # the expected error of an anchor drawn at random
        one_anchor = np.sqrt(np.mean((estimates - y[:, None]) ** 2, axis=0)).mean()
        errors = rmse(estimates.mean(axis=1), y), one_anchor
        epochs = int(np.isfinite(model.learning_curve_).sum())
        rows += [
            {"method": name, "seed": seed, "rmse": error, "epochs": epochs, "seconds": seconds}
            for name, error in zip(METHODS, errors, strict=True)
        ]
    return rows


def run_loss_scale(dataset, scale):
    """Return the mean errors of the twins when the training loss is multiplied by `scale`."""
    import jax

    from paper import published_training

    share = published_training.LABELLED_SHARE
    published_training.LABELLED_SHARE = share * scale
    jax.clear_caches()  # the factor is compiled in
    try:
        runs = run_splits(dataset)
    finally:
        published_training.LABELLED_SHARE = share
        jax.clear_caches()
    rows = []
    for method in METHODS:
        own = [run for run in runs if run["method"] == method]
        errors = [run["rmse"] for run in own]
        rows.append(
            {
                "method": method,
                "rmse": np.mean(errors),
                "standard_error": np.std(errors) / np.sqrt(len(errors)),
                "epochs": np.mean([run["epochs"] for run in own]),
            }
        )
    return rows


def summary(runs):
    grouped = runs.groupby(["dataset", "method"])
    means, epochs = grouped["rmse"].mean(), grouped["epochs"].mean()
    errors = grouped["rmse"].std(ddof=0) / np.sqrt(len(PAPER_SEEDS))
    known = published_rmse("T2")
    rows, ratios = [], {method: [] for method in METHODS}
    for key in KEYS:
        cells = [key]
        for method in METHODS:
            ratio = means[key, method] / known.loc[key, method]
            ratios[method].append(ratio)
            mean = f"{means[key, method]:.4g} ({errors[key, method]:.2g})"
            cells.append(f"{mean}, {known.loc[key, method]:.4g}, **{ratio:.3f}**")
        cells.append(f"{epochs[key, 'tnnr_all_anchors']:.0f}")
        rows.append(cells)
    for limit in (0.03, 0.07):
        counts = [
            f"{sum(abs(ratio - 1) <= limit for ratio in own)} of {len(own)}"
            for own in ratios.values()
        ]
        rows.append([f"within {limit:.0%}", *counts, ""])
    return [
        "# The paper's own training, on its 25 splits",
        "",
        "Mean test RMSE (standard error) of one network a split, the published figure, and their "
        "ratio. `python -m benchmarks.as_published`.",
        "",
        *harness.markdown_table(["", *METHODS, "epochs"], rows),
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__,
        datasets=list(KEYS),
        loss_scales=float,
        only_table=False,
        output=harness.RESULTS / "as_published.csv",
    )
    if arguments.loss_scales:
        path = arguments.output.with_name("as_published_loss_scale.csv")
        table = harness.ResultTable(path, ("dataset", "loss_scale"), SCALE_COLUMNS)
        trials = [(key, scale) for key in arguments.datasets for scale in arguments.loss_scales]
        harness.run_benchmark(table, trials, run_loss_scale, arguments)
        return
    table = harness.ResultTable(arguments.output, ("dataset",), COLUMNS)
    harness.run_benchmark(table, [(key,) for key in arguments.datasets], run_splits, arguments)
    harness.write_markdown(arguments.output.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
