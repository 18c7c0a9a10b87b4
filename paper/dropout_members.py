"""Are the members of a dropout ensemble more correlated than the anchors of a twin?

Section 2 of the paper says so: ensembles from a single model, such as those of dropout, are
strongly correlated, as their members can be deformed into each other; anchors differ by the
distances of their points. Here the members are

- those of one plain network that was trained with dropout: 32 random masks, each for all rows;
- the estimates of one twin network from 32 random anchors;
- eight plain networks with different initial weights, for comparison.

All have the same layers and training. The correlation is that of the errors e of two members on the
test rows, mean(e_i e_j) / mean(e_i²): with 1, the mean over members is no better than one of them;
with 0, its squared error falls as one over their number. Nothing is chosen by it. Results:
`benchmarks/results/dropout_members.csv`, and the page of the reproduction.

    python -m paper.dropout_members    # two minutes of a processor
"""

import time
from dataclasses import replace

import numpy as np

from benchmarks import frame
from paper.data import training_and_test_rows
from paper.member_predictions import FittedTwin
from twinned import NeuralRegressor, NeuralTraining, TwinNeuralRegressor
from twinned.neural import fit_many
from twinned.rows.validation import validate_table

DATASETS = ["BH", "EE", "WSB"]
DROPOUT = {"dropout 0.1": 0.1, "dropout 0.5": 0.5}
NETWORKS = "networks"
ENSEMBLES = [*DROPOUT, "anchors", NETWORKS]
N_MEMBERS, N_NETWORKS = 32, 8
COLUMNS = ["ensemble", "dataset", "seed", "rmse_one:.5g", "rmse_mean:.5g", "correlation:.4f"]
COLUMNS += ["seconds:.3g"]


def run_ensembles(trials, jobs=1):
    """Yield each trial with its errors; the networks of one kind are trained as one program."""
    for name in dict.fromkeys(trial[0] for trial in trials):
        own, start = [trial for trial in trials if trial[0] == name], time.perf_counter()
        splits = [training_and_test_rows(*trial[1:]) for trial in own]
        models = fit_many(make_network(name), [train for train, _ in splits])
        seconds = (time.perf_counter() - start) / len(own)
        for trial, model, (_, (X, y)) in zip(own, models, splits, strict=True):
            yield trial, describe_errors(predict(name, model, X) - y), seconds


def make_network(name):
    kind = TwinNeuralRegressor if name == "anchors" else NeuralRegressor
    training = NeuralTraining(
        max_steps=2000,
        n_folds=1,
        embedding=None,
        learning_rate=3e-3,
        dropout=DROPOUT.get(name, 0.0),
        weight_decay=0.0,
        scaling="standard",
        selection="mean",
    )
    n_members = N_NETWORKS if name == NETWORKS else 1
    return kind(n_members=n_members, training=training, random_state=0)


def predict(name, model, X):
    """(member, row): the prediction of each member."""
    rng = np.random.RandomState(0)
    if name == "anchors":
        (estimates,) = FittedTwin(model).estimates(X)
        return estimates[:, rng.permutation(estimates.shape[1])[:N_MEMBERS]].T
    if name == NETWORKS:
        return model.predict_members(X)
    networks = with_masks(model.networks(), DROPOUT[name], rng)
    matrix, schema = validate_table(NeuralRegressor(), X, None, np.dtype(np.float64))
    return networks.predict(networks.scale.transform(schema.to_rows(matrix)))[..., 0]


def with_masks(networks, rate, rng):
    """Return the single network of an ensemble as many, each with masks of dropout.

    A hidden unit is masked by the weights with which the next layer takes it.
    """
    parameters = {
        name: np.repeat(value, N_MEMBERS, axis=0) for name, value in networks.parameters.items()
    }
    for layer, size in enumerate(networks.shape.hidden_sizes, 1):
        kept = rng.uniform(size=(N_MEMBERS, size, 1)) >= rate
        masked = parameters[f"weight_{layer}"] * kept / (1 - rate)
        parameters[f"weight_{layer}"] = masked.astype(np.float32)
    weights = np.full(N_MEMBERS, 1 / N_MEMBERS)
    return replace(networks, parameters=parameters, member_weights=weights)


def describe_errors(errors):
    """Return the errors of one member and of the mean, and the correlation, of (member, row)."""
    n, one, mean = len(errors), np.mean(errors**2), np.mean(errors.mean(axis=0) ** 2)
    correlation = (n * mean / one - 1) / (n - 1)
    return {"rmse_one": one**0.5, "rmse_mean": mean**0.5, "correlation": correlation}


BENCHMARK = frame.Benchmark(
    "dropout_members",
    __doc__,
    COLUMNS,
    execute=run_ensembles,
    trial=("ensemble", "dataset", "seed"),
    axes={"ensemble": list(ENSEMBLES), "dataset": DATASETS, "seed": [0, 1, 2]},
)

if __name__ == "__main__":
    BENCHMARK.main()
