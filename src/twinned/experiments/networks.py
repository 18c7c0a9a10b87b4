"""Tables T1 to T3 and figures A to E: networks and twin networks, trained on the paper's splits.

Three studies train, and the tables and figures are views of what they found:

- *plain networks*: an ensemble of 32 on each split;
- *twin networks*: 32 twins, each trained on all pairs, asked with few and many, random and nearest
  anchors;
- *paired networks*: twins that are trained on some pairs only: those of nearest neighbours (as many
  as there are anchors afterwards), or of random partners (the training-set multiplier).

All learn from the 70 %, stop by the 10 % and are tested on the 20 %. `as_published` and
`as_written` train as the author's code and the paper's text do, `modern` with our network,
optimiser and schedule.

Where a figure is of fewer networks or anchors than there are, it is a mean: over all networks for
one network, over disjoint groups of them for several. So it estimates the same error as one draw
would, with less noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from twinned.columns import Floats
from twinned.experiments.records import Run
from twinned.neighbours import all_distances

N_MEMBERS, N_PAIRED = 32, {"as_published": 1, "as_written": 1, "modern": 4}
QUICK_MEMBERS = 4
NEIGHBOURS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # anchors asked of a twin of all pairs
NEAREST_PAIRS = (2, 4, 8, 16, 32, 64)  # trained and asked; a point is its own nearest
MULTIPLIERS = (1, 2, 4, 8, 16, 32, 64)
FLAVOURS = ("as_published", "modern", "as_written")


def expand_plain(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    settings = {"members": QUICK_MEMBERS if quick else N_MEMBERS, **_effort(flavour, quick)}
    return [Run("plain-networks", flavour, dataset, split, settings)]


def expand_twins(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    settings = {"members": QUICK_MEMBERS if quick else N_MEMBERS, **_effort(flavour, quick)}
    return [
        Run("twin-networks", flavour, dataset, split, settings | {"neighbours": list(NEIGHBOURS)})
    ]


def expand_paired(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    kinds = {"nearest": NEAREST_PAIRS, "random": MULTIPLIERS}
    if quick:
        kinds = {"nearest": (4, 16, 64), "random": (1, 8)}
    settings = {"members": 1 if quick else N_PAIRED[flavour], **_effort(flavour, quick)}
    return [
        Run("paired-networks", flavour, dataset, split, settings | {"pairs": kind, "partners": k})
        for kind, partners in kinds.items()
        for k in partners
    ]


def _effort(flavour: str, quick: bool) -> dict[str, str]:
    return {"effort": "fast" if quick else "balanced"} if flavour == "modern" else {}


def shared_program(run: Run) -> Any:
    """Which runs are trained as one program: those of a data set, or, in our way, of all of them.

    The paper's epochs are as long as its data sets are large; our steps are not.
    """
    return run.flavour == "modern" or run.dataset


# --- training -------------------------------------------------------------------------------------


def execute_plain(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Errors of one network, and of ensembles."""
    for run, model, (_, test) in _trained(batch, twin=False):
        told = np.concatenate(list(model._member_values(test[0])), axis=1)[:, :, 0]
        yield run, {"members": by_size(told, test[1]), "epochs": _epochs(model)}


def execute_twins(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Errors with one anchor, many, all of them, the nearest; of one twin, and of ensembles."""
    for run, model, (validation, test) in _trained(batch, twin=True):
        estimates = member_estimates(model, test[0])
        rng = np.random.RandomState(run.split)
        yield (
            run,
            {
                "one_anchor": float(np.mean(errors(estimates, test[1], axis=1))),
                "anchors": by_anchors(estimates, test[1], rng),
                "members": by_size(estimates.mean(axis=2), test[1]),
                "members_one_anchor": by_size(one_anchor_each(estimates, rng), test[1]),
                "nearest": {
                    "validation": by_neighbours(
                        model, validation, member_estimates(model, validation[0]), run
                    ),
                    "test": by_neighbours(model, test, estimates, run),
                },
                "epochs": _epochs(model),
            },
        )


def execute_paired(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Errors of one twin: with as many nearest anchors as it was trained with, or with all."""
    for run, model, (validation, test) in _trained(batch, twin=True):
        result = {"epochs": _epochs(model)}
        for name, (X, y) in {"validation": validation, "test": test}.items():
            estimates = member_estimates(model, X)
            if run.settings["pairs"] == "nearest":
                places = neighbour_places(model, X, run.settings["partners"])
                estimates = np.take_along_axis(estimates, places[None], axis=2)
            result[name] = float(np.mean(errors(estimates.mean(axis=2), y, axis=1)))
        yield run, result


def _trained(batch: list[Run], twin: bool) -> Iterator[tuple[Run, Any, Any]]:
    """Each run with its fitted model and its (validation, test) points; all trained at once."""
    from twinned.neural import fit_many

    rows = [_rows(run.dataset, run.split) for run in batch]
    problems = [(*learn, None, *validation) for learn, validation, _ in rows]
    models = fit_many([_estimator(run, twin) for run in batch], problems)
    for run, model, (_, validation, test) in zip(batch, models, rows, strict=True):
        yield run, model, (validation, test)


def _rows(dataset: str, split: int) -> tuple[tuple[Floats, Floats], ...]:
    """(X, y) to learn from, to stop by, and to test on."""
    from twinned.datasets import load, paper_split

    table, values = load(dataset)
    X, y = table.to_numpy(), values.to_numpy()
    return tuple((X[rows], y[rows]) for rows in paper_split(len(y), split))


def _estimator(run: Run, twin: bool) -> Any:
    from twinned.neural import NeuralRegressor, TwinNeuralRegressor

    kind: Any = TwinNeuralRegressor if twin else NeuralRegressor
    options: dict[str, Any] = {"n_members": run.settings["members"], "random_state": run.split}
    if "pairs" in run.settings:
        options["pairs"] = _pairs(run)
    if run.flavour == "modern":
        options |= {"n_folds": 1, "selection": "mean", "effort": run.settings["effort"]}
        return kind(**options)
    return getattr(kind, run.flavour)(**options)


def _pairs(run: Run) -> Any:
    from twinned.pairs import NearestPairs, RandomPairs

    partners = run.settings["partners"]
    if run.settings["pairs"] == "random":
        return RandomPairs(partners)
    # among a training point's neighbours the author counts the point itself
    if run.flavour == "modern":
        return NearestPairs(partners)
    return NearestPairs(partners, include_self=True)


def _epochs(model: Any) -> float:
    """How many checks of the validation rows there were, mean over members: the paper's epochs."""
    return float(np.isfinite(model.learning_curve_).sum(axis=1).mean())


# --- what is asked of trained networks ------------------------------------------------------------


def member_estimates(model: Any, X: Floats) -> Floats:
    """(member, query, anchor): what each anchor of each member says."""
    anchors, queries = model._points, model._open(X)
    step = max(1, model._pairs_per_block() // len(anchors))
    blocks = [
        model._member_differences(
            queries.take(slice(low, low + step)).as_first(), anchors.as_second()
        )[..., 0]
        for low in range(0, len(X), step)
    ]
    return np.concatenate(blocks, axis=1) + model.anchors_y_


def errors(told: Floats, y: Floats, axis: int) -> Floats:
    """RMSE over the queries, which lie along `axis`."""
    known = np.expand_dims(y, tuple(i for i in range(told.ndim) if i != axis))
    return np.sqrt(np.mean((told - known) ** 2, axis=axis))


def by_size(told: Floats, y: Floats) -> dict[str, float]:
    """The error of ensembles of 1, 2, 4, … of the members (member, query), mean over groups.

    >>> told = np.array([[0.0], [2.0], [0.0], [2.0]])
    >>> by_size(told, np.ones(1))
    {'1': 1.0, '2': 0.0, '4': 0.0}
    """
    found, size = {}, 1
    while size <= len(told):
        groups = told[: len(told) // size * size].reshape(-1, size, told.shape[1])
        found[str(size)] = float(np.mean(errors(groups.mean(axis=1), y, axis=1)))
        size *= 2
    return found


def by_anchors(estimates: Floats, y: Floats, rng: np.random.RandomState) -> dict[str, float]:
    """The error of one twin with 1, 2, 4, … random anchors, and with all, mean over members."""
    order = rng.permutation(estimates.shape[2])
    totals = np.cumsum(estimates[:, :, order], axis=2)
    sizes = [2**i for i in range(int(np.log2(len(order))) + 1)]
    return {
        str(size): float(np.mean(errors(totals[:, :, size - 1] / size, y, axis=1)))
        for size in dict.fromkeys([*sizes, len(order)])
    }


def one_anchor_each(estimates: Floats, rng: np.random.RandomState) -> Floats:
    """(member, query): each member of each query has a random anchor of its own."""
    n_members, n_queries, n_anchors = estimates.shape
    places = rng.randint(n_anchors, size=(n_members, n_queries, 1))
    return np.take_along_axis(estimates, places, axis=2)[:, :, 0]


def neighbour_places(model: Any, X: Floats, k: int) -> Any:
    """(query, k): the nearest anchors, nearest first, in the space that the networks see."""
    distances = all_distances(model._open(X).take(slice(None)).wide, model._points.wide)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def by_neighbours(model: Any, points: Any, estimates: Floats, run: Run) -> dict[str, float]:
    """The error of one twin with its nearest anchors, mean over members."""
    X, y = points
    sizes = [k for k in run.settings["neighbours"] if k <= estimates.shape[2]]
    places = neighbour_places(model, X, max(sizes))
    near = np.cumsum(np.take_along_axis(estimates, places[None], axis=2), axis=2)
    return {str(k): float(np.mean(errors(near[:, :, k - 1] / k, y, axis=1))) for k in sizes}
