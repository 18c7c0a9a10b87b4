"""The settings of the neural ensembles, in the order of their use: forward selection.

Candidates are learning rate, dropout, weight decay, embedding and scaling of features. Each is
trained by 5 folds and on all rows, on data sets of two kinds: training rows of the paper's splits 0
and 1, of which a fifth is held out (the test rows are not used), and generated or public data sets.
A set of settings is weighted by greedy selection on its out-of-fold predictions, as in `fit`; its
score is the geometric mean over data sets of the error of the held-out rows. Forward selection adds
the setting that lowers it most. The order in use was found by such a selection, with 1,000 and
3,200 steps. One GPU needs some minutes and writes `benchmarks/results/neural_settings.md`.

    python -m benchmarks.neural_settings --steps 1000 3200
"""

import itertools

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3

from paper import harness
from paper.data import rmse, training_and_test_rows
from twinned.datasets import KEYS
from twinned.models.greedy_selection import greedy_selection
from twinned.models.neural.parameters import SETTINGS, Setting

N_ROWS, MAX_HELD_OUT = 300, 300  # of generated data sets; of any
# the settings in use, and those that were compared with them
OTHERS = [
    Setting(8e-3, 0.0, 0.0, 0.1),
    Setting(8e-3, 0.1, 0.1, 0.0),
    Setting(3e-3, 0.0, 0.1, 0.1),
    Setting(2e-2, 0.1, 0.03, 0.0),
    Setting(8e-3, 0.02, 0.0, 0.0),
    Setting(8e-3, 0.1, 0.03, 0.1),
    Setting(2e-2, 0.0, 0.0, 0.3),
    Setting(2e-2, 0.05, 0.1, 0.1),
]


def candidates():
    """Return the settings to select from, each with and without relevance."""
    plain = {setting._replace(relevance=False) for setting in (*SETTINGS, *OTHERS)}
    return [s._replace(relevance=r) for r in (False, True) for s in sorted(plain)]


def borehole(n, rng):
    low = np.array([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855])
    high = np.array([0.15, 50000, 115600, 1110, 116, 820, 1680, 12045])
    X = low + (high - low) * rng.uniform(size=(n, 8))
    radius, outer, upper, head, lower, base, length, conductivity = X.T
    log = np.log(outer / radius)
    flow = 2 * length * upper / (log * radius**2 * conductivity)
    return X, 2 * np.pi * upper * (head - base) / (log * (1 + flow + upper / lower))


def robot_arm(n, rng):
    X = rng.uniform(size=(n, 8))
    angle, length = 2 * np.pi * np.cumsum(X[:, :4], axis=1), X[:, 4:]
    return X, np.hypot((length * np.cos(angle)).sum(1), (length * np.sin(angle)).sum(1))


def noisy_waves(n, rng):
    X = rng.normal(size=(n, 5))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + 0.2 * X[:, 3]
    return X, y + 0.3 * rng.normal(size=n)


def skewed(n, rng):
    X = np.exp(rng.normal(size=(n, 6)))
    return X, X[:, 0] * np.sqrt(X[:, 1]) / (1 + X[:, 2]) * np.exp(0.2 * rng.normal(size=n))


GENERATED = {
    "Friedman 1": lambda n, rng: make_friedman1(n, random_state=rng),
    "Friedman 1, noise": lambda n, rng: make_friedman1(n, noise=1.0, random_state=rng),
    "Friedman 2": lambda n, rng: make_friedman2(n, random_state=rng),
    "Friedman 2, noise": lambda n, rng: make_friedman2(n, noise=125.0, random_state=rng),
    "Friedman 3": lambda n, rng: make_friedman3(n, random_state=rng),
    "Friedman 3, noise": lambda n, rng: make_friedman3(n, noise=0.1, random_state=rng),
    "borehole": borehole,
    "robot arm": robot_arm,
    "noisy waves": noisy_waves,
    "skewed": skewed,
}


def load_problems(keys):
    """Return (name, training points, held-out points) of all data sets."""

    def split(X, y, seed):
        order = np.random.RandomState(1000 + seed).permutation(len(y))
        n = round(0.8 * len(y))
        train, rest = order[:n], order[n:][:MAX_HELD_OUT]
        return (X[train], y[train]), (X[rest], y[rest])

    problems = []
    for key, seed in itertools.product(keys, (0, 1)):
        (X, y), _ = training_and_test_rows(key, seed)
        problems.append((key, *split(X, y, seed)))
    for number, (name, make) in enumerate(GENERATED.items()):
        X, y = make(N_ROWS + MAX_HELD_OUT, np.random.RandomState(number))
        problems.append((name, (X[:N_ROWS], y[:N_ROWS]), (X[N_ROWS:], y[N_ROWS:])))
    X, y = load_diabetes(return_X_y=True)
    return problems + [("diabetes", *split(X, y, seed)) for seed in (0, 1)]


def predictions(problems, settings, steps):
    """Return out-of-fold and held-out predictions, (setting, row) for each problem."""
    from twinned.neural import NeuralTraining, TwinNeuralRegressor, fit_many

    out_of_fold, held_out = [], []
    for setting in settings:
        training = NeuralTraining(
            n_folds=5,
            max_steps=steps,
            fold_steps=steps,
            learning_rate=setting.learning_rate,
            dropout=setting.dropout,
            weight_decay=setting.weight_decay,
            embedding=setting.frequency_scale or None,
            scaling="relevance" if setting.relevance else "standard",
        )
        twin = TwinNeuralRegressor(n_members=1, training=training, random_state=0)
        fitted = fit_many(twin, [train for _, train, _ in problems])
        out_of_fold.append([model.out_of_fold_prediction_ for model in fitted])
        rows = zip(fitted, problems, strict=True)
        held_out.append([model.predict(X) for model, (_, _, (X, _)) in rows])
        print(f"{len(out_of_fold)}/{len(settings)}: {setting}", flush=True)
    return [np.stack(own) for own in zip(*out_of_fold, strict=True)], [
        np.stack(own) for own in zip(*held_out, strict=True)
    ]


def score(problems, out_of_fold, held_out, chosen):
    """Return the geometric mean over data sets of the error of the chosen settings."""
    logarithms = {}
    for (name, (_, y), (_, y_held_out)), own, rest in zip(
        problems, out_of_fold, held_out, strict=True
    ):
        scale = y.std()
        weights = greedy_selection((own[chosen] - y).T / scale)
        error = rmse(weights @ rest[chosen], y_held_out) / scale
        logarithms.setdefault(name, []).append(np.log(error))
    return float(np.exp(np.mean([np.mean(own) for own in logarithms.values()])))


def forward_selection(problems, out_of_fold, held_out, n_settings):
    """Yield the settings in the order in which they lower the score most, and the score."""
    chosen, left = [], list(range(len(out_of_fold[0])))
    for _ in range(n_settings):
        scores = {i: score(problems, out_of_fold, held_out, [*chosen, i]) for i in left}
        best = min(scores, key=scores.__getitem__)
        chosen.append(best)
        left.remove(best)
        yield best, scores[best]


def main():
    arguments = harness.parse_arguments(
        __doc__,
        steps=[1000, 3200],
        datasets=list(KEYS),
        n_settings=8,
        output=harness.RESULTS / "neural_settings.md",
    )
    problems, settings = load_problems(arguments.datasets), candidates()
    lines = ["# Forward selection of the settings of neural twins", ""]
    for steps in arguments.steps:
        out_of_fold, held_out = predictions(problems, settings, steps)
        order = forward_selection(problems, out_of_fold, held_out, arguments.n_settings)
        rows = [[*map(str, settings[i]), f"{value:.4f}"] for i, value in order]
        lines += [f"{steps} steps.", ""]
        lines += [*harness.markdown_table([*Setting._fields, "score"], rows), ""]
    harness.write_markdown(arguments.output, lines[:-1])


if __name__ == "__main__":
    main()
