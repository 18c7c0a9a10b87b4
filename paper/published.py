"""The paper's own training of twins and plain networks, as published and as written.

It differs from that of `twinned` in almost everything: X is divided by its signed maximum and y is
left as it is, the loss is of the raw F over *triples* of points (their three differences), the
optimizer is Adadelta, whose rate halves when the training loss stops falling, training stops when
the loss of a fixed set of validation triples stops falling, and the last parameters are used. The
numbers are those of the author's code and of the Keras that ran it; where the paper's text differs,
`as_written` follows the text: pairs instead of triples, and the limits of the epochs swapped.

Networks, random numbers and predictions are those of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from paper.published_training import (
    NetworkData,
    PublishedConfig,
    PublishedSchedule,
    train_as_published,
)
from twinned.models.neural.device import on_device
from twinned.models.neural.inputs import NetworkInputs, Scale, one_if_constant
from twinned.models.neural.network import Shape, TrainedNetworks, pad_to, round_up
from twinned.models.neural.parameters import resolve_options
from twinned.models.neural.problem import (
    TrainingProblem,
    draw_pairs,
    prepare_rows,
    scale_validation_rows,
    tabulate_partners,
)
from twinned.models.neural.selection import TrainedEnsemble, TrainedMembers, converged
from twinned.models.neural.trainable_network import stack_fields
from twinned.models.resources import limit_threads
from twinned.neural import NeuralRegressor, TwinNeuralRegressor
from twinned.pairing.pairs import NearestPairs
from twinned.rows.neighbors import NeighborIndex
from twinned.rows.schema import Floats, known_medians
from twinned.rows.training import TrainingRows, validate_training_rows
from twinned.rows.validation import check_choice, check_integer, draw_seed

BATCH_SIZE = 16

# By the variant, and whether it is a twin. The code swaps the two limits that the text gives.
SCHEDULES = {
    ("as_published", True): PublishedSchedule(True, 2_000, 32, 64),
    ("as_published", False): PublishedSchedule(False, 10_000, 20, 50),
    ("as_written", True): PublishedSchedule(False, 10_000, 32, 64),
    ("as_written", False): PublishedSchedule(False, 2_000, 20, 50),
}


class PublishedNetwork(NeuralRegressor):
    """Plain networks of the paper, trained by its own code or as its text describes it.

    Parameters
    ----------
    variant : {"as_published", "as_written"}, default="as_published"
        The training of the author's code, or of the paper's text.
    n_members : int, default=1
        Number of networks.
    max_epochs, patience : int or None, default=None
        Largest number of epochs, and epochs without a lower validation loss that end training;
        None is that of the variant.
    learning_rate : float, default=1.0
        Initial learning rate of Adadelta.
    device, n_jobs, random_state, verbose
        As in `NeuralRegressor`.
    """

    hidden_sizes, effort, training = (128, 128), "balanced", None
    categorical_features, memory_limit = None, "512MB"

    def __init__(
        self,
        variant="as_published",
        *,
        n_members=1,
        max_epochs=None,
        patience=None,
        learning_rate=1.0,
        device="auto",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.variant = variant
        self.n_members = n_members
        self.max_epochs = max_epochs
        self.patience = patience
        self.learning_rate = learning_rate
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y, sample_weight=None, X_val=None, y_val=None, y_lower=None, y_upper=None):
        """Train until the loss of the validation rows stops falling."""
        if y_lower is not None or y_upper is not None:
            raise ValueError("the paper's own training has no y_lower and y_upper.")
        with limit_threads(self.n_jobs):
            problem = build_published_problem(self, X, y, sample_weight, X_val, y_val)
            self.set_networks(problem, _train_group([self], [problem])[0])
        return self


class PublishedTwin(TwinNeuralRegressor):
    """Twins of the paper; see `PublishedNetwork`.

    `PublishedTwin(pairs=NearestPairs(16, include_self=True), anchors=NearestAnchors(16))` is the
    paper's nearest-neighbor twin. `loop_weight` is that of the loss of loops, which needs the
    unlabelled rows of `fit_published`.
    """

    hidden_sizes, effort, training = (128, 128), "balanced", None
    weights = "uniform"
    categorical_features, memory_limit = None, "512MB"
    fit = PublishedNetwork.fit  # type: ignore[assignment]  # without batch and y_std

    def __init__(
        self,
        variant="as_published",
        *,
        n_members=1,
        pairs="all",
        anchors="all",
        loop_weight=0.0,
        max_epochs=None,
        patience=None,
        learning_rate=1.0,
        device="auto",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.variant = variant
        self.n_members = n_members
        self.pairs = pairs
        self.anchors = anchors
        self.loop_weight = loop_weight
        self.max_epochs = max_epochs
        self.patience = patience
        self.learning_rate = learning_rate
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose


def fit_published(estimators: Sequence[Any], problems: Sequence[Any]) -> list[Any]:
    """Fit clones of the estimators, those of the same kind and size as one compiled program.

    The problems are (X, y, None, X_val, y_val), or with X of unlabelled rows as well.
    """
    models = [clone(estimator) for estimator in estimators]
    groups: dict[tuple, list[int]] = {}
    built = []
    for i, (model, problem) in enumerate(zip(models, problems, strict=True)):
        built.append(build_published_problem(model, *problem))
        # the length of an epoch depends on the number of training rows
        options = replace(built[i].options, loop_weight=0.0)  # which is data of the program
        kind = (type(model), resolve_schedule(model), options, built[i].n_train)
        data = built[i].partners is None, len(built[i].unlabelled)
        groups.setdefault((*kind, *data), []).append(i)
    for group in groups.values():
        ensembles = _train_group([models[i] for i in group], [built[i] for i in group])
        for i, ensemble in zip(group, ensembles, strict=True):
            models[i].set_networks(built[i], ensemble)
    return models


def resolve_schedule(estimator: Any) -> PublishedSchedule:
    """Return the schedule of the variant, with the estimator's own `max_epochs` and `patience`."""
    check_choice("variant", estimator.variant, ["as_published", "as_written"])
    schedule = SCHEDULES[estimator.variant, estimator.is_twin]
    changes: dict[str, Any] = {
        name: check_integer(name, getattr(estimator, name))
        for name in ("max_epochs", "patience")
        if getattr(estimator, name) is not None
    }
    return schedule._replace(**changes)


def steps_per_epoch(n_train: int, twin: bool, n_unlabelled: int = 0) -> int:
    """Return the number of steps that the author calls an epoch.

    A plain network uses each row once. A twin takes 5 (n_train + n_test) / 16 steps, and the
    paper's test rows are 2/7 of its training rows; with unlabelled rows, these are 5/6 of them.

    >>> steps_per_epoch(700, twin=False), steps_per_epoch(700, twin=True)
    (44, 281)
    >>> steps_per_epoch(300, twin=True, n_unlabelled=500)
    281
    """
    if not twin:
        return -(-n_train // BATCH_SIZE)
    n_test = 6 / 5 * n_unlabelled if n_unlabelled else 2 / 7 * n_train
    return max(1, round(5 * (n_train + n_test) / BATCH_SIZE))


def build_published_problem(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    X_val: Any,
    y_val: Any,
    X_unlabelled: Any = None,
) -> TrainingProblem:
    """Return the training problem of the paper: the validation rows are the only fold."""
    table = prepare_rows(
        validate_training_rows(estimator, X, y, sample_weight=sample_weight, multi_output=True)
    )
    weight = (
        np.ones(len(table.outputs)) if table.weight is None else table.weight / table.weight.mean()
    )
    rng = np.random.RandomState(draw_seed(estimator.random_state))
    seed = int(rng.randint(2**31 - 1))
    scale = fit_signed_maximum(table, weight)
    features = scale.transform(table.schema.to_rows(table.matrix)).features
    n_train, columns = features.shape[0], np.arange(features.shape[1])
    partners = None
    if estimator.is_twin and (pairs := draw_pairs(estimator.pairs, features, rng)) is not None:
        partners = tabulate_partners(pairs[0], pairs[1], n_train)
    validation = scale_validation_rows(estimator, X_val, y_val, table, scale)
    no_rows = np.empty((0, features.shape[1])), np.empty((0, table.outputs.shape[1]))
    unlabelled = no_rows
    if X_unlabelled is not None:  # no value of y is used
        no_y = np.zeros(len(X_unlabelled))
        unlabelled = scale_validation_rows(estimator, X_unlabelled, no_y, table, scale)
    parts = (features, table.outputs), validation, unlabelled
    rows, outputs = (np.concatenate(own) for own in zip(*parts, strict=True))
    labelled = n_train + len(validation[0])
    factors = np.ones((2, len(columns)))
    return TrainingProblem(
        options=resolve_options(estimator),
        table=table,
        scale=scale,
        selected=np.arange(table.schema.n_features),
        columns=columns,
        X=rows,
        y=outputs,
        row_weight=np.append(weight, np.ones(len(rows) - n_train)),
        merged_into=np.arange(n_train),
        folds=[np.arange(n_train, labelled)],
        training=[np.arange(n_train)],
        unlabelled=np.arange(labelled, len(rows)),
        partners=partners,
        learned_metric=None,
        inputs=[NetworkInputs(columns, factors, factors)] * 2,
        seed=seed,
    )


def n_validation_partners(estimator: Any, n_validation: int) -> int:
    """Return the number of nearest validation rows that a validation row is paired with.

    As published, twins of k nearest pairs have 0.1 / 0.7 of k, the share of the validation rows,
    rounded down, two at least, and the row itself is one of them. 0: validation pairs are random.

    >>> twin = PublishedTwin(pairs=NearestPairs(32, include_self=True))
    >>> n_validation_partners(twin, 100), n_validation_partners(PublishedTwin(), 100)
    (4, 0)
    """
    if not estimator.is_twin or estimator.variant != "as_published":
        return 0
    if not isinstance(estimator.pairs, NearestPairs):
        return 0
    return min(max(int(estimator.pairs.k * 0.1 / 0.7), 2), n_validation)


def fit_signed_maximum(table: TrainingRows, weight: Floats) -> Scale:
    """The author's scale: X by its largest excess over the mean, y as it is."""
    numeric = table.schema.to_rows(table.matrix).numeric
    fill = known_medians(numeric)
    numeric = np.where(np.isnan(numeric), fill, numeric)
    mean = ((weight / weight.sum())[:, None] * numeric).sum(axis=0)
    spread = one_if_constant((numeric - mean).max(axis=0, initial=0.0), mean)
    n_outputs = table.outputs.shape[1]
    return Scale(mean, spread, np.zeros(n_outputs), np.ones(n_outputs), fill)


def _train_group(estimators: list[Any], group: list[TrainingProblem]) -> list[TrainedEnsemble]:
    """Train the networks of all problems as one program."""
    first, problem = estimators[0], group[0]
    n_features = round_up(problem.X.shape[1], 4)
    shape = Shape(n_features, problem.y.shape[1], first.hidden_sizes, 0, "relu", first.is_twin)
    schedule = resolve_schedule(first)
    has_table, loops = problem.partners is not None, len(problem.unlabelled) > 0
    config = PublishedConfig(shape, BATCH_SIZE, schedule.triples, has_table, loops)
    data = _stack_problems(estimators, group, n_features)
    keys = np.array([_keys(own.seed, first.n_members) for own in group])
    steps = steps_per_epoch(problem.n_train, first.is_twin, len(problem.unlabelled))
    with on_device(first.device, first.n_jobs):
        parameters, errors = train_as_published(config, schedule, data, keys, steps, first.verbose)
    return [
        _make_ensemble(shape, {name: value[i] for name, value in parameters.items()}, errors[i])
        for i in range(len(group))
    ]


def _keys(seed: int, n_members: int) -> list[np.uint32]:
    """Keys of the random numbers of each member."""
    return [np.uint32((seed + 7919 * number) % 2**32) for number in range(n_members)]


def _stack_problems(
    estimators: list[Any], group: list[TrainingProblem], n_features: int
) -> NetworkData:
    """Return the padded arrays of all problems."""
    n_rows = round_up(max(len(problem.X) for problem in group), 64)
    n_held_out = round_up(max(len(problem.folds[0]) for problem in group), 32)
    n_unlabelled = max(1, len(group[0].unlabelled))
    tables = [_partner_table(*own) for own in zip(estimators, group, strict=True)]
    n_partners = max(table.shape[1] for table in tables)
    n_table_rows = 1 if group[0].partners is None else n_rows
    return stack_fields(
        [
            NetworkData(
                X=pad_to(problem.X, n_rows, n_features),
                y=pad_to(problem.y, n_rows, problem.y.shape[1]),
                weight=pad_to(problem.row_weight, n_rows),
                rows=pad_to(np.arange(problem.n_train), n_rows, dtype=np.int32),
                n_rows=np.int32(problem.n_train),
                held_out=pad_to(problem.folds[0], n_held_out, dtype=np.int32),
                n_held_out=np.int32(len(problem.folds[0])),
                partners=pad_to(table, n_table_rows, n_partners, dtype=np.int32),
                n_partners=np.uint32(1 if problem.partners is None else problem.partners.shape[1]),
                loop_weight=np.float32(own.loop_weight if own.is_twin else 0.0),
                unlabelled=pad_to(problem.unlabelled, n_unlabelled, dtype=np.int32),
                n_unlabelled=np.int32(len(problem.unlabelled)),
                n_held_out_partners=np.int32(n_validation_partners(own, len(problem.folds[0]))),
                n_features=np.int32(problem.X.shape[1]),
                learning_rate=np.float32(own.learning_rate),
            )
            for own, problem, table in zip(estimators, group, tables, strict=True)
        ]
    )


def _partner_table(estimator: Any, problem: TrainingProblem) -> NDArray[np.int32]:
    """(row, partner): the partners of training rows, then those of validation rows."""
    if problem.partners is None:
        return np.zeros((1, 1), np.int32)
    rows = problem.folds[0]
    k = n_validation_partners(estimator, len(rows))
    if not k:
        return problem.partners
    nearest = NeighborIndex(problem.X[rows]).kneighbors_self(k, include_self=True)
    columns = max(k, problem.partners.shape[1])
    parts: list[NDArray[Any]] = [problem.partners, rows[nearest]]
    return np.vstack([pad_to(own, len(own), columns, dtype=np.int32) for own in parts])


def _make_ensemble(shape: Shape, parameters: dict[str, Any], errors: Floats) -> TrainedEnsemble:
    """Return the networks that converged, with equal weights."""
    n_members = len(errors)
    # no predictions of held-out rows are needed: their errors are known
    no_predictions = np.zeros((n_members, 1, 0, 1), np.float32)
    finite = converged(TrainedMembers(parameters, errors, no_predictions))
    networks = TrainedNetworks(shape, parameters)
    return TrainedEnsemble(
        networks=networks.take(np.flatnonzero(finite)),
        weights=np.full(finite.sum(), 1.0 / finite.sum()),
        learning_curve=errors,
        n_members=n_members,
    )
