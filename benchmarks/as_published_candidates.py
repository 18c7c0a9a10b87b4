"""Possible causes of the printed errors of TF, RCL and WSB, each tried alone on all nine sets.

The paper's own training reproduces the twins of the six sets with noise, and has lower errors than
printed on TF, RCL and WSB. Each candidate is a rule of the training that neither the text nor the
description of the author's code states, changed here alone and not in the reproduction. One that
is the cause brings TF, RCL and WSB to print together and leaves the six others.

Every candidate has errors of three predictions: ½F(x, a) − ½F(a, x), as in the reproduction, and
F(x, a) or −F(a, x) alone; with one anchor, drawn at random for each row, with all, and with the
best number of nearest anchors. Results: `benchmarks/results/as_published_candidates.csv`, `.md`.

    python -m benchmarks.as_published_candidates                       # minutes on a GPU
    python -m benchmarks.as_published_candidates --datasets WSB --splits 2 --members 1
    python -m benchmarks.as_published_candidates --only-table
"""

from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import optax

from paper import harness, published, published_training
from paper.comparison import published_rmse
from paper.data import rmse, split_rows
from paper.member_predictions import FittedTwin, errors_by_n_neighbors
from paper.networks import NEIGHBORS
from twinned.datasets import KEYS
from twinned.models.neural.network import fold_in, integers

COLUMNS = [
    "candidate",
    "dataset",
    "prediction",
    "rmse_1_anchor:.5g",
    "rmse_all_anchors:.5g",
    "rmse_nearest:.5g",
    "rmse_ensemble:.5g",
    "epochs:.0f",
    "splits",
    "members",
    "seconds:.3g",
]
LOW_LOSS = ("TF", "RCL", "WSB")
PREDICTIONS = ("mean", "first", "second")  # ½F(x, a) − ½F(a, x), F(x, a) and −F(a, x)

KINDS = {
    "1 anchor": ("rmse_1_anchor", "T2", "tnnr_1_anchor"),
    "all": ("rmse_all_anchors", "T2", "tnnr_all_anchors"),
    "nearest": ("rmse_nearest", "T3", "nn_inference"),
}


def scaled_loss(factor):
    """The training loss multiplied by a factor: of the plateau rule and of the optimizer."""
    return {"LABELLED_SHARE": factor * published_training.LABELLED_SHARE}


def optimizer(epsilon):
    return {"_OPTIMIZER": optax.scale_by_adadelta(rho=0.95, eps=epsilon)}


def validation(count=None, fresh=False, least_fall=0.0):
    """Another validation loss of twins.

    `count` is the number of triples (None: one for each validation row), `fresh` draws them anew
    in every epoch, and falls of less than `least_fall` count as none.
    """

    class Loss(published_training.PublishedLoss):
        def of_held_out_rows(self, parameters):
            rows, n_rows = self.data.held_out, jnp.maximum(self.data.n_held_out, 1)
            key = fold_in(self.key, 3)
            if fresh:  # parameters differ between epochs, so their bits are a new key
                bias = parameters[f"bias_{len(self.config.shape.hidden_sizes) - 1}"]
                key = fold_in(key, jnp.sum(jax.lax.bitcast_convert_type(bias, jnp.uint32)))
            size = rows.shape[0] if count is None else count
            corners = [rows[integers(fold_in(key, i), n_rows, size)] for i in range(3)]
            if count is None:
                corners[0] = rows
            used = n_rows if count is None else count
            inside = (jnp.arange(size) < used).astype(jnp.float32)
            a, b = jnp.concatenate(corners), jnp.concatenate([*corners[1:], corners[0]])
            squares = self._pair_squares(parameters, a, b)
            loss = jnp.sum(jnp.tile(inside, 3) * squares) / (3.0 * used)
            # a loss that is rounded up to multiples falls only by these
            return jnp.ceil(loss / least_fall) * least_fall if least_fall else loss

    return {"PublishedLoss": Loss}


CANDIDATES = {
    "none": {},
    "loss × 3/4": scaled_loss(0.75),
    "loss × 1/3": scaled_loss(1 / 3),
    "loss × 1/8": scaled_loss(1 / 8),
    "plateau threshold × 3": {"LEAST_FALL": 3e-4},
    "plateau threshold × 10": {"LEAST_FALL": 1e-3},
    "epsilon 1e-8": optimizer(1e-8),
    "epsilon 1e-6": optimizer(1e-6),
    "epsilon 1e-5": optimizer(1e-5),
    "8 validation triples": validation(8),
    "16 validation triples": validation(16),
    "fresh validation triples": validation(fresh=True),
    "16 fresh validation triples": validation(16, fresh=True),
    "validation threshold 1e-4": validation(least_fall=1e-4),
}


@contextmanager
def changed_training(candidate):
    """Context in which the paper's own training has the rule of a candidate."""
    changes = CANDIDATES[candidate]
    jax.clear_caches()  # the rules are compiled in
    try:
        with patch.multiple(published_training, **changes) if changes else _unchanged():
            yield
    finally:
        jax.clear_caches()


@contextmanager
def _unchanged():
    yield


def run_candidate(candidate, dataset, *, n_splits, n_members):
    """Return the mean errors of each prediction, over splits and members."""
    splits = [split_rows(dataset, seed) for seed in range(n_splits)]
    twin = published.PublishedTwin(n_members=n_members, random_state=0)
    with changed_training(candidate):
        models = published.fit_published(
            [twin] * n_splits, [(*train, None, *held_out) for train, held_out, _ in splits]
        )
    errors = [split_errors(own, *rows[2]) for own, rows in zip(models, splits, strict=True)]
    means = np.mean(errors, axis=0)  # (prediction, kind)
    epochs = np.mean([np.isfinite(model.learning_curve_).sum(axis=1).mean() for model in models])
    return [
        {
            "prediction": name,
            "rmse_1_anchor": one,
            "rmse_all_anchors": every,
            "rmse_nearest": min(nearest),
            "rmse_ensemble": ensemble,
            "epochs": epochs,
            "splits": n_splits,
            "members": n_members,
        }
        for name, (one, every, ensemble, *nearest) in zip(PREDICTIONS, means, strict=True)
    ]


def split_errors(model, X, y):
    """(prediction, kind): errors with one anchor and with all, of one network and of all members.

    The others are of one network with nearest anchors, by their number.
    """
    twin = FittedTwin(model)
    sizes = [k for k in NEIGHBORS if k <= len(twin.anchors_y)]
    nearest = twin.nearest_anchors(X, max(sizes))
    predicted, single = [], []
    for forward, backward, anchors_y in twin.both_orders(X):
        orders = [0.5 * (forward - backward), forward, -backward]
        estimates = [own + anchors_y for own in orders]
        predicted.append([own.mean(axis=1) for own in estimates])
        single.append(
            [
                # the expected error of an anchor that is drawn at random for each row
                [
                    np.sqrt(np.mean((own - y[:, None]) ** 2)),
                    rmse(own.mean(axis=1), y),
                    *errors_by_n_neighbors(own, y, nearest, sizes).values(),
                ]
                for own in estimates
            ]
        )
    ensemble = [rmse(own, y) for own in np.mean(predicted, axis=0)]
    one, every, *by_number = np.mean(single, axis=0).T
    return np.column_stack([one, every, ensemble, *by_number])


def summary(runs):
    """Return the ratios to print of each candidate: of the three sets, and of the six others."""
    rows = []
    for (candidate, prediction), own in runs.groupby(["candidate", "prediction"], sort=False):
        own = own.set_index("dataset")
        cells = [candidate, prediction]
        for column, table, method in KINDS.values():
            ratios = own[column] / published_rmse(table)[method]
            cells += [f"{ratios.get(key, np.nan):.3f}" for key in LOW_LOSS]
            others = ratios.drop(list(LOW_LOSS), errors="ignore").dropna()
            cells.append(f"{others.min():.2f} to {others.max():.2f}" if len(others) else "–")
        cells.append(", ".join(f"{own['epochs'].get(key, np.nan):.0f}" for key in LOW_LOSS))
        rows.append(cells)
    splits, members = runs["splits"].max(), runs["members"].max()
    header = ["candidate", "prediction"]
    for kind in KINDS:
        header += [f"{key}, {kind}" for key in LOW_LOSS] + [f"six others, {kind}"]
    return [
        "# Candidates for the cause of the printed errors of TF, RCL and WSB",
        "",
        f"Ratios to the printed errors of tables 2 and 3; {splits} splits, {members} networks "
        "each. *mean* is ½F(x, a) − ½F(a, x), *first* F(x, a), *second* −F(a, x). "
        "`python -m benchmarks.as_published_candidates`.",
        "",
        *harness.markdown_table([*header, "epochs"], rows),
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__,
        datasets=list(KEYS),
        candidates=list(CANDIDATES),
        splits=5,
        members=4,
        only_table=False,
        output=harness.RESULTS / "as_published_candidates.csv",
    )
    table = harness.ResultTable(arguments.output, ("candidate", "dataset"), COLUMNS)
    trials = [(name, key) for name in arguments.candidates for key in arguments.datasets]
    run = partial(run_candidate, n_splits=arguments.splits, n_members=arguments.members)
    harness.run_benchmark(table, trials, run, arguments)
    harness.write_markdown(arguments.output.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
