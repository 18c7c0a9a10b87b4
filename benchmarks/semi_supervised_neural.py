"""Semi-supervised TNNR: does the loop loss over unlabelled points help when labels are few?

The paper's 25 splits. Of each split's 80 % a share of the rows is labelled (the first ones of a
seeded permutation), the others are unlabelled; the test rows are seen by nobody. Everything is
`effort="fast"`:

- `supervised`: `TwinNeuralRegressor` on the labelled rows alone;
- `loops W`: the same with `loop_weight=W` over labelled and unlabelled rows;
- `plain`: `NeuralRegressor` on the labelled rows;
- `co-training`: two plain networks with different activations; in each of two rounds each gives the
  other the pseudo-labels of the unlabelled points that it is surest of (its members agree best), as
  many as there are labels; their mean predicts.

`loops, chosen` takes for each data set and share the W whose out-of-fold error of labelled rows,
summed over splits, is lowest. One GPU does it in minutes; finished rows are not run again.

    python benchmarks/semi_supervised_neural.py --shares 0.1 0.3
    python benchmarks/semi_supervised_neural.py --only-table
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import pandas as pd

from twinned.datasets import KEYS, PAPER_SEEDS, load, paper_split

RESULTS = Path(__file__).parent / "results"
LOOP_WEIGHTS = (0.1, 1.0, 10.0)
ROUNDS = 2
HEADER = "dataset,share,seed,model,rmse,out_of_fold,seconds\n"


def problems(key, share):
    """Labelled rows, unlabelled X and test rows of each split."""
    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    for seed in PAPER_SEEDS:
        train, validation, test = paper_split(len(y), seed)
        rows = np.random.RandomState(seed).permutation(np.concatenate([train, validation]))
        n = max(10, round(share * len(rows)))
        yield X[rows[:n]], y[rows[:n]], X[rows[n:]], X[test], y[test]


def rmse(predicted, y):
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def fitted(estimator, sets):
    from twinned.neural import fit_many

    return fit_many(estimator, sets)


def told(models, every):
    """(rmse, out-of-fold rmse of labelled rows) of each split."""
    for model, (X, y, _, X_test, y_test) in zip(models, every, strict=True):
        unseen = model.out_of_fold_prediction_[: len(X)]
        yield rmse(model.predict(X_test), y_test), rmse(unseen, y)


def run_twin(every, weight):
    from twinned.neural import TwinNeuralRegressor

    estimator = TwinNeuralRegressor(effort="fast", loop_weight=weight, random_state=0)
    sets = [
        (X, y)
        if weight == 0
        else (np.concatenate([X, pool]), np.append(y, np.full(len(pool), np.nan)))
        for X, y, pool, _, _ in every
    ]
    return told(fitted(estimator, sets), every)


def run_plain(every):
    from twinned.neural import NeuralRegressor

    models = fitted(NeuralRegressor(effort="fast", random_state=0), [one[:2] for one in every])
    return told(models, every)


def run_co_training(every):
    from twinned.neural import NeuralRegressor

    two = [NeuralRegressor(effort="fast", activation=a, random_state=0) for a in ("silu", "relu")]
    sets = [[one[:2] for one in every] for _ in two]
    models = [fitted(estimator, own) for estimator, own in zip(two, sets, strict=True)]
    left = [[np.arange(len(one[2])) for one in every] for _ in two]
    for _ in range(ROUNDS):
        for teacher in (0, 1):
            learner = 1 - teacher
            for i, (_, y, pool, _, _) in enumerate(every):
                rows = left[learner][i]
                if not len(rows):
                    continue
                value, spread = models[teacher][i].predict(pool[rows], return_std=True)
                surest = np.argsort(spread)[: len(y)]
                X_known, y_known = sets[learner][i]
                sets[learner][i] = (
                    np.concatenate([X_known, pool[rows[surest]]]),
                    np.append(y_known, value[surest]),
                )
                left[learner][i] = np.delete(rows, surest)
        models = [fitted(estimator, own) for estimator, own in zip(two, sets, strict=True)]
    for a, b, (_, _, _, X_test, y_test) in zip(*models, every, strict=True):
        yield rmse((a.predict(X_test) + b.predict(X_test)) / 2, y_test), np.nan


MODELS = {
    "supervised": lambda every: run_twin(every, 0.0),
    **{f"loops {w:g}": (lambda every, w=w: run_twin(every, w)) for w in LOOP_WEIGHTS},
    "plain": run_plain,
    "co-training": run_co_training,
}


def run(path, keys, shares, models):
    if not path.exists():
        path.write_text(HEADER)
    done = {(r["dataset"], float(r["share"]), r["model"]) for r in csv.DictReader(path.open())}
    for share in shares:
        for model in models:
            for key in keys:
                if (key, share, model) in done:
                    continue
                every = list(problems(key, share))
                start = time.perf_counter()
                figures = list(MODELS[model](every))
                seconds = (time.perf_counter() - start) / len(every)
                with path.open("a") as file:
                    for seed, (error, unseen) in zip(PAPER_SEEDS, figures, strict=True):
                        file.write(f"{key},{share:g},{seed},{model},{error:.6g},{unseen:.6g},")
                        file.write(f"{seconds:.3g}\n")
                mean = np.mean([error for error, _ in figures])
                print(f"{share:g} {model} {key}: {mean:.4g} in {seconds * 25:.1f} s", flush=True)


def summary(path):
    runs = pd.read_csv(path)
    lines = [
        "# Semi-supervised TNNR",
        "",
        "Mean test RMSE over 25 splits as a ratio to the supervised twin on the same labelled "
        'rows, all `effort="fast"`; in brackets the standard error of the paired difference. The '
        "unlabelled points are the rest of the 80 %. Made by "
        "`python benchmarks/semi_supervised_neural.py`.",
    ]
    for share, own in runs.groupby("share"):
        table = own.pivot_table(index=["dataset", "seed"], columns="model", values="rmse")
        unseen = own.assign(square=own["out_of_fold"] ** 2).pivot_table(
            index="dataset", columns="model", values="square"
        )
        loops = [name for name in MODELS if name.startswith("loops") and name in table]
        names = [*loops, "loops, chosen", *(n for n in ("plain", "co-training") if n in table)]
        lines += ["", f"## {share:.0%} labelled", ""]
        lines += ["| | supervised | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
        ratios = {name: [] for name in names}
        for key in KEYS:
            if key not in table.index.get_level_values(0):
                continue
            mine = table.loc[key].copy()
            mine["loops, chosen"] = mine[unseen.loc[key, loops].idxmin()]
            base = mine["supervised"]
            cells = []
            for name in names:
                change = (mine[name] - base) / base.mean()
                ratios[name].append(1 + change.mean())
                cells.append(f"{1 + change.mean():.3f} ({change.std() / np.sqrt(len(change)):.3f})")
            lines.append(f"| {key} | {base.mean():.4g} | " + " | ".join(cells) + " |")
        means = [f"**{np.exp(np.mean(np.log(ratios[name]))):.3f}**" for name in names]
        lines.append("| geometric mean | 1 | " + " | ".join(means) + " |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shares", type=float, nargs="*", default=[0.1, 0.3, 0.7])
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "semi_supervised_neural.csv")
    arguments = parser.parse_args()
    if not arguments.only_table:
        run(arguments.output, arguments.datasets, arguments.shares, arguments.models)
    text = summary(arguments.output)
    arguments.output.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
