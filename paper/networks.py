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
)
from paper.published import PublishedNetwork, PublishedTwin, fit_published
from paper.records import Trial
from twinned import NearestPairs, RandomPairs
from twinned.neural import NeuralRegressor, NeuralTraining, TwinNeuralRegressor, fit_many

N_MEMBERS, N_PAIRED = 32, {"as_published": 1, "as_written": 1, "modern": 4}
NEIGHBORS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # anchors of a twin that was trained on all pairs
NEAREST_PAIRS = (1, 2, 4, 8, 16, 32, 64, 128)  # in training and prediction
MULTIPLIERS = (1, 2, 4, 8, 16, 32, 64)
LEAST_PARTNERS = 2  # of the author's code; it counts a training point among its own neighbors
VARIANTS = ("as_published", "modern", "as_written")


def plain_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    settings = {"members": N_MEMBERS, **training_settings(variant)}
    if variant != "modern":
        settings["last_batch"] = "remaining rows"  # earlier records: filled to a full batch
    return [Trial("plain-networks", variant, dataset, split, settings)]


def twin_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    settings = {"members": N_MEMBERS, **training_settings(variant), "neighbors": list(NEIGHBORS)}
    return [Trial("twin-networks", variant, dataset, split, settings)]


def paired_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    kinds: dict[str, tuple[int, ...]] = {"nearest": NEAREST_PAIRS, "random": MULTIPLIERS}
    if variant == "modern":
        kinds["all"] = (0,)
    settings = {"members": N_PAIRED[variant], **training_settings(variant)}
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


def training_settings(variant: str) -> dict[str, Any]:
    """Return the settings of the training, which that of the paper does not have."""
    return {"effort": "balanced"} if variant == "modern" else {}


def run_plain(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield errors of one network and of ensembles."""
    for trial, model, (_, (X, y)) in fit_trials(batch, NeuralRegressor):
        members = errors_by_ensemble_size(model.predict_members(X), y)
        yield trial, {"members": members, "epochs": _epochs(model)}


def run_twins(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield errors with one, several, all and the nearest anchors; of one twin and of ensembles."""
    for trial, model, (validation, (X, y)) in fit_trials(batch, TwinNeuralRegressor):
        twin = FittedTwin(model)
        rng = np.random.RandomState(trial.split)
        order = rng.permutation(len(twin.anchors_y))
        sizes = [k for k in trial.settings["neighbors"] if k <= len(order)]
        nearest = twin.nearest_anchors(X, max(sizes))
        all_anchors, random_anchor, by_n_anchors, by_n_neighbors = [], [], [], []
        for estimates in twin.estimates(X):
            queries = np.arange(len(estimates))
            all_anchors.append(estimates.mean(axis=1))
            random_anchor.append(
                estimates[queries, rng.randint(estimates.shape[1], size=len(estimates))]
            )
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

    All are trained at once.
    """
    rows = [split_rows(trial.dataset, trial.split) for trial in batch]
    problems = [(*train, None, *validation) for train, validation, _ in rows]
    models = fit_all([make_estimator(trial, kind) for trial in batch], problems)
    for trial, model, (_, validation, test) in zip(batch, models, rows, strict=True):
        yield trial, model, (validation, test)


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
    training = NeuralTraining(n_folds=1, selection="mean")
    return kind(effort=trial.settings["effort"], training=training, **options)


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
