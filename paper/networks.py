"""Tables T1 to T3 and figures A to E: networks and twin networks, trained on the paper's splits.

Three studies train; the tables and figures are views of their records:

- *plain networks*: an ensemble of 32 on each split;
- *twin networks*: 32 twins, each trained on all pairs, which predict from few and many, random and
  nearest anchors;
- *paired networks*: twins trained on a subset of the pairs: those of nearest neighbors (as many as
  there are anchors afterwards), or of random partners (the training-set multiplier). Our ensembles
  vary the settings of their members, so `modern` also has twins of all pairs with the same members.

All train on the 70 %, stop early by the 10 % and are tested on the 20 %. `as_published` and
`as_written` train as the author's code and the paper's text do, `modern` with our network,
optimizer and schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.data import Points, split_rows
from paper.member_predictions import (
    FittedTwin,
    errors,
    errors_by_ensemble_size,
    errors_by_n_anchors,
    errors_by_n_neighbors,
    plain_predictions,
)
from paper.published import PublishedNetwork, PublishedTwin, fit_published
from paper.records import Trial
from twinned import NearestPairs, RandomPairs
from twinned.neural import NeuralRegressor, NeuralTraining, TwinNeuralRegressor, fit_many

N_MEMBERS, N_PAIRED = 32, {"as_published": 1, "as_written": 1, "modern": 4}
QUICK_MEMBERS, QUICK_STEPS = 4, 100
QUICK_ROWS = (140, 20, 40)  # training, validation and test: all data sets have as many
NEIGHBORS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # anchors of a twin that was trained on all pairs
NEAREST_PAIRS = (1, 2, 4, 8, 16, 32, 64, 128)  # in training and prediction
MULTIPLIERS = (1, 2, 4, 8, 16, 32, 64)
LEAST_PARTNERS = 2  # of the author's code; it counts a training point among its own neighbors
VARIANTS = ("as_published", "modern", "as_written")


def plain_trials(variant: str, dataset: str, split: int, quick: bool) -> list[Trial]:
    settings = {"members": QUICK_MEMBERS if quick else N_MEMBERS, **extent(variant, quick)}
    if variant != "modern":
        settings["last_batch"] = "remaining rows"  # earlier records: filled to a full batch
    return [Trial("plain-networks", variant, dataset, split, settings)]


def twin_trials(variant: str, dataset: str, split: int, quick: bool) -> list[Trial]:
    settings = {"members": QUICK_MEMBERS if quick else N_MEMBERS, **extent(variant, quick)}
    settings["neighbors"] = list(NEIGHBORS)
    return [Trial("twin-networks", variant, dataset, split, settings)]


def paired_trials(variant: str, dataset: str, split: int, quick: bool) -> list[Trial]:
    kinds: dict[str, tuple[int, ...]] = {"nearest": NEAREST_PAIRS, "random": MULTIPLIERS}
    if quick:
        kinds = {"nearest": (4, 16), "random": (1, 8)}
    if variant == "modern":
        kinds["all"] = (0,)
    settings = {"members": 1 if quick else N_PAIRED[variant], **extent(variant, quick)}
    return [
        Trial(
            "paired-networks",
            variant,
            dataset,
            split,
            settings | {"pairs": kind, "partners": k} | _author_rules(variant, kind, k),
        )
        for kind, partners in kinds.items()
        for k in partners
    ]


def _author_rules(variant: str, pairs: str, partners: int) -> dict[str, Any]:
    """Return the settings that distinguish the author's pairs from those of earlier records."""
    if variant == "as_published" and pairs == "nearest":
        return {"validation_pairs": "nearest"}
    if variant == "as_published" and pairs == "random" and partners < LEAST_PARTNERS:
        return {"least_partners": LEAST_PARTNERS}
    return {}


def extent(variant: str, quick: bool) -> dict[str, Any]:
    """Return the settings of training length and, for a quick run, of the number of rows."""
    settings: dict[str, Any] = {}
    if variant == "modern":
        settings |= quick_training() if quick else {"effort": "balanced"}
    return settings | ({"max_rows": list(QUICK_ROWS)} if quick else {})


def quick_training() -> dict[str, Any]:
    """Return the settings of our training for a quick run."""
    return {"effort": "fast", "max_steps": QUICK_STEPS}


def training_batch(trial: Trial) -> Any:
    """Return which trials train as one program: those of a data set.

    The length of the paper's epochs depends on the data set. That of our steps does not, but the
    records of a program are written when it ends: an interruption costs those of one data set. A
    quick run, most of which is compiling, has one program for all data sets.
    """
    return "quick" if "max_steps" in trial.settings else trial.dataset


def run_plain(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield errors of one network and of ensembles."""
    for trial, model, (_, (X, y)) in fit_trials(batch, NeuralRegressor):
        predicted = plain_predictions(model, X)
        yield (
            trial,
            {"members": errors_by_ensemble_size(predicted, y), "epochs": _epochs(model)},
        )


def run_twins(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield errors with one, several, all and the nearest anchors; of one twin and of ensembles."""
    for trial, model, (validation, (X, y)) in fit_trials(batch, TwinNeuralRegressor):
        twin = FittedTwin(model)
        rng = np.random.RandomState(trial.split)
        order = rng.permutation(len(twin.anchors_y))
        sizes = [k for k in trial.settings["neighbors"] if k <= len(order)]
        nearest = twin.nearest_anchors(X, max(sizes))
        all_anchors, random_anchor, one_anchor, by_n_anchors, by_n_neighbors = [], [], [], [], []
        for estimates in twin.estimates(X):
            queries = np.arange(len(estimates))
            all_anchors.append(estimates.mean(axis=1))
            random_anchor.append(
                estimates[queries, rng.randint(estimates.shape[1], size=len(estimates))]
            )
            one_anchor.append(errors(estimates, y, axis=0).mean())
            by_n_anchors.append(errors_by_n_anchors(estimates, y, order))
            by_n_neighbors.append(errors_by_n_neighbors(estimates, y, nearest, sizes))
        nearest = twin.nearest_anchors(validation[0], max(sizes))
        on_validation = [
            errors_by_n_neighbors(estimates, validation[1], nearest, sizes)
            for estimates in twin.estimates(validation[0])
        ]
        yield (
            trial,
            {
                "one_anchor": float(np.mean(one_anchor)),
                "anchors": _means(by_n_anchors),
                "members": errors_by_ensemble_size(np.array(all_anchors), y),
                "members_one_anchor": errors_by_ensemble_size(np.array(random_anchor), y),
                "nearest": {"validation": _means(on_validation), "test": _means(by_n_neighbors)},
                "epochs": _epochs(model),
            },
        )


def run_paired(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield errors of one twin: with as many nearest anchors as in training, or with all.

    For twins of all pairs also with the nearest anchors, by their number.
    """
    for trial, model, (validation, test) in fit_trials(batch, TwinNeuralRegressor):
        twin = FittedTwin(model)
        result: dict[str, Any] = {"epochs": _epochs(model)}
        for name, (X, y) in {"validation": validation, "test": test}.items():
            if trial.settings["pairs"] == "all":
                result.setdefault("nearest", {})[name] = _nearest_errors(twin, X, y)
            if trial.settings["pairs"] == "nearest":
                predicted = twin.nearest_predictions(
                    X, trial.settings["partners"], max(NEAREST_PAIRS)
                )
            else:
                predicted = twin.predictions(X)
            result[name] = float(np.mean(errors(predicted, y, axis=1)))
        yield trial, result


def _nearest_errors(twin: FittedTwin, X: Any, y: Any) -> dict[str, float]:
    """Errors of one twin by the number of its nearest anchors, mean over members."""
    sizes = [k for k in NEIGHBORS if k <= len(twin.anchors_y)]
    nearest = twin.nearest_anchors(X, max(sizes))
    return _means([errors_by_n_neighbors(own, y, nearest, sizes) for own in twin.estimates(X)])


def _means(curves: list[dict[str, float]]) -> dict[str, float]:
    return {size: float(np.mean([curve[size] for curve in curves])) for size in curves[0]}


def fit_trials(
    batch: list[Trial], kind: type[NeuralRegressor] | type[TwinNeuralRegressor]
) -> Iterator[tuple[Trial, Any, tuple[Points, Points]]]:
    """Yield each trial with its fitted model and its (validation, test) points.

    All are trained at once. Where the settings have `max_rows`, the parts have only so many points.
    """
    rows = [_parts(trial) for trial in batch]
    problems = [(*train, None, *validation) for train, validation, _ in rows]
    models = fit_all([make_estimator(trial, kind) for trial in batch], problems)
    for trial, model, (_, validation, test) in zip(batch, models, rows, strict=True):
        yield trial, model, (validation, test)


def _parts(trial: Trial) -> list[Points]:
    """Training, validation and test points."""
    parts = split_rows(trial.dataset, trial.split)
    sizes = trial.settings.get("max_rows", [None] * len(parts))
    return [(X[:n], y[:n]) for (X, y), n in zip(parts, sizes, strict=True)]


def fit_all(estimators: list[Any], problems: list[Any]) -> list[Any]:
    """Fit estimators of one variant to many training sets at once."""
    published = isinstance(estimators[0], PublishedNetwork | PublishedTwin)
    return (fit_published if published else fit_many)(estimators, problems)


def make_estimator(trial: Trial, kind: Any) -> Any:
    """Return the estimator of a trial, of the class `kind` or as the paper trains it."""
    options: dict[str, Any] = {"n_members": trial.settings["members"]}
    if trial.settings.get("pairs") in ("nearest", "random"):
        options["pairs"] = _pairs(trial)
    return make_network(kind, trial, random_state=trial.split, **options)


def make_network(kind: Any, trial: Trial, **options: Any) -> Any:
    """Return an estimator with a single validation set, trained in the variant of a trial."""
    if trial.variant != "modern":
        published = PublishedTwin if kind is TwinNeuralRegressor else PublishedNetwork
        return published(trial.variant, **options)
    settings = trial.settings
    training = NeuralTraining(n_folds=1, selection="mean", max_steps=settings.get("max_steps"))
    return kind(effort=settings["effort"], training=training, **options)


def _pairs(trial: Trial) -> Any:
    partners = trial.settings["partners"]
    published = trial.variant == "as_published"
    if published:
        partners = max(partners, LEAST_PARTNERS)
    if trial.settings["pairs"] == "random":
        return RandomPairs(partners)
    return NearestPairs(partners, include_self=published)


def _epochs(model: Any) -> float:
    """Return the mean number of validation checks of a member: the paper's epochs."""
    return float(np.isfinite(model.learning_curve_).sum(axis=1).mean())
