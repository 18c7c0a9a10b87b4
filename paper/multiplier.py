"""Does the number of pairs tell whether to twin? The paper's check on tables outside the paper.

The paper advises against twinning where the error grows with the number of pairs. Here the check
is made on the 80 % of a split, by held-out rows of these, and so is the direct comparison of the
twin with the same model without pairs. Both are judged by the errors of twin and plain model on the
20 %: a check is worth its time if it tells more than the comparison.

Networks of `effort="fast"`: out-of-fold predictions with one partner per row, with all pairs, and
of plain networks. Trees: `TwinRegressor(cv=0)` with 1 and 64 partners per row in five folds,
and boosting of plain rows. Results: `benchmarks/results/multiplier.csv`, `.md`.

    python -m paper.multiplier                             # ten minutes of a processor
    python -m paper.multiplier --kinds trees --datasets cpus mpg "wing weight"  # two
"""

import time
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks import frame
from benchmarks.accuracy.tables import GENERATED, REAL, split_table
from twinned import NeuralRegressor, TwinNeuralRegressor, TwinRegressor
from twinned._compat import safe_indexing
from twinned.diagnostics.errors import rmse, rmse_ratio
from twinned.neural import fit_many
from twinned.rows.folds import row_folds

PARTNERS = (1, 4, 16, 64)
CHECKS = ("pairs", "direct", "test")
TABLES = [name for both in zip(REAL, GENERATED, strict=True) for name in both]
AT_ONCE = 5  # tables whose networks are trained as one program
COLUMNS = ["kind", "dataset", "seed"]
COLUMNS += [f"{name}{end}:.4g" for name in CHECKS for end in ("", "_low", "_high")]
COLUMNS += ["seconds:.3g"]


def run_checks(trials, jobs=1):
    """Yield each trial with its ratios of errors and its seconds."""
    networks = [trial for trial in trials if trial[0] == "networks"]
    for first in range(0, len(networks), AT_ONCE):
        some, start = networks[first : first + AT_ONCE], time.perf_counter()
        rows = check_networks([split_table(key, seed) for _, key, seed in some])
        seconds = (time.perf_counter() - start) / len(some)
        yield from ((trial, row, seconds) for trial, row in zip(some, rows, strict=True))
    for trial in (trial for trial in trials if trial[0] == "trees"):
        start = time.perf_counter()
        row = check_trees(*split_table(*trial[1:]))
        yield trial, row, time.perf_counter() - start


def check_networks(splits):
    options: dict[str, Any] = {"effort": "fast", "random_state": 0}
    problems = [train for train, _ in splits]
    pairs = [pairs for pairs in (1, "all") for _ in splits]
    twins = fit_many([TwinNeuralRegressor(pairs=own, **options) for own in pairs], 2 * problems)
    plain = fit_many(NeuralRegressor(**options), problems)
    rows, n = [], len(splits)
    fitted = zip(twins[:n], twins[n:], plain, strict=True)
    for models, (train, test) in zip(fitted, splits, strict=True):
        one, every, without = (model.out_of_fold_prediction_ for model in models)
        y = train[1]
        pair_ratio, direct_ratio = rmse_ratio(every, one, y), rmse_ratio(every, without, y)
        rows.append(ratios(pair_ratio, direct_ratio, models[1:], *test))
    return rows


def check_trees(train, test):
    X, y = train
    y = np.asarray(y)
    folds = row_folds(len(y), 5, 0)
    most = max(m for m in PARTNERS if m < min(len(rows) for rows, _ in folds))
    few, many = (predict_held_out(lambda _, m=m: with_partners(m), X, y, folds) for m in (1, most))
    errors = [[rmse(own[rows], y[rows]) for own in (few, many)] for _, rows in folds]
    mean_of_few, mean_of_many = np.mean(errors, axis=0)
    rows = np.concatenate([held_out for _, held_out in folds])
    pairs = mean_of_many / mean_of_few, *rmse_ratio(many[rows], few[rows], y[rows])[1:]
    twin = TwinRegressor(cv=0, random_state=0).fit(X, y)
    of_twin = predict_held_out(lambda _: TwinRegressor(cv=0, random_state=0), X, y, folds)
    of_plain = predict_held_out(lambda n_rows: plain_boosting(twin, n_rows), X, y, folds)
    plain = plain_boosting(twin, len(y)).fit(X, y)
    return ratios(pairs, rmse_ratio(of_twin, of_plain, y), (twin, plain), *test)


def predict_held_out(make_model, X, y, folds):
    """Return (row,) predictions by models of so many training rows, which do not have the row."""
    predicted = np.zeros(len(y))
    for rows, held_out in folds:
        model = make_model(len(rows)).fit(safe_indexing(X, rows), y[rows])
        predicted[held_out] = model.predict(safe_indexing(X, held_out))
    return predicted


def with_partners(partners):
    """A twin with few pairs; the leaves of its boosting shrink in proportion."""
    leaf = max(2, partners // 2)
    boosting = HistGradientBoostingRegressor(
        max_iter=200, min_samples_leaf=leaf, early_stopping=False
    )
    return TwinRegressor(boosting, pairs=partners, cv=0, random_state=0)


def plain_boosting(twin, n_rows):
    """The boosting of a fitted twin, unfitted, with leaves for plain rows instead of pairs.

    Of 2, 5, 10, 20 and 40 rows in a leaf, 10 have the lowest mean error on the paper's nine data
    sets; of 2 to 14, 4 have the lowest with only 32 training rows.
    """
    leaf = max(2, min(10, n_rows // 8))
    return clone(twin.estimator_).set_params(min_samples_leaf=leaf, random_state=0)


def ratios(pairs, direct, models, X_test, y_test):
    """Return a row of the table; `models` are the twin and the plain model."""
    twin, plain = models
    test = rmse_ratio(twin.predict(X_test), plain.predict(X_test), y_test)
    row: dict[str, float] = {}
    for name, ratio in zip(CHECKS, (pairs, direct, test), strict=True):
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), ratio, strict=True))
    return row


def summary(runs):
    lines = [
        "# Does the number of pairs tell whether to twin?",
        "",
        "`python -m paper.multiplier`. Ratios of errors, below 1 where more pairs or the twin "
        "are better, with 95 % intervals. *Pairs*: many partners per row against one, by held-out "
        "training rows; *direct*: the twin against the model without pairs, by the same rows; "
        "*test*: the same on the test rows.",
    ]
    for kind, own in runs.groupby("kind"):
        rows = [
            [row.dataset, str(row.seed), *(describe(row, name) for name in CHECKS)]
            for row in own.itertuples()
        ]
        lines += ["", f"## Twins of {kind}", "", *conclusion(own), ""]
        lines += frame.markdown_table(["", "split", *CHECKS], rows)
    return lines


def describe(row, name):
    values = (getattr(row, f"{name}{end}") for end in ("", "_low", "_high"))
    return "{:.3f} ({:.3f} to {:.3f})".format(*values)


def conclusion(runs):
    worse = runs["test"] > 1
    lines = [f"- On the test rows the twin is worse in {worse.sum()} of {len(runs)} runs."]
    for name in CHECKS[:2]:
        clear = runs[f"{name}_low"] > 1
        correlation = spearmanr(runs[name], runs["test"]).statistic
        lines.append(
            f"- *{name}*: clearly against the twin in {clear.sum()} runs, in "
            f"{(clear & worse).sum()} of them rightly; on the right side of 1 in "
            f"{((runs[name] > 1) == worse).sum()} of {len(runs)}; rank correlation with the ratio "
            f"of test errors {correlation:.2f}."
        )
    return lines


BENCHMARK = frame.Benchmark(
    "multiplier",
    __doc__,
    COLUMNS,
    execute=run_checks,
    summary=summary,
    trial=("kind", "dataset", "seed"),
    axes={"seed": [0], "kind": ["networks"], "dataset": TABLES},
)

if __name__ == "__main__":
    BENCHMARK.main()
