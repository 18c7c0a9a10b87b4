"""Tables T1 to T3 and figures A to E: networks and twin networks, trained on the paper's splits.

Three studies train, and the tables and figures are views of what they found:

- *plain networks*: an ensemble of 32 on each split;
- *twin networks*: 32 twins, each trained on all pairs, asked with few and many, random and nearest
  anchors;
- *paired networks*: twins that are trained on some pairs only: those of nearest neighbours (as many
  as there are anchors afterwards), or of random partners (the training-set multiplier).

All learn from the 70 %, stop by the 10 % and are tested on the 20 %. `as_published` and
`as_written` train as the author's code and the paper's text do, `modern` with our network,
optimizer and schedule.

Where a figure is of fewer networks or anchors than there are, it is a mean: over all networks for
one network, over disjoint groups of them for several. So it estimates the same error as one draw
would, with less noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.records import Run
from twinned._neighbors import distance_matrix
from twinned._table import Floats

N_MEMBERS, N_PAIRED = 32, {"as_published": 1, "as_written": 1, "modern": 4}
QUICK_MEMBERS, QUICK_ROWS = 4, 100  # the latter are asked, of the validation and the test rows
NEIGHBOURS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # anchors asked of a twin of all pairs
NEAREST_PAIRS = (2, 4, 8, 16, 32, 64)  # trained and asked; a point is its own nearest
MULTIPLIERS = (1, 2, 4, 8, 16, 32, 64)
FLAVOURS = ("as_published", "modern", "as_written")


def expand_plain(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    settings = {"members": QUICK_MEMBERS if quick else N_MEMBERS, **extent(flavour, quick)}
    return [Run("plain-networks", flavour, dataset, split, settings)]


def expand_twins(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    settings = {"members": QUICK_MEMBERS if quick else N_MEMBERS, **extent(flavour, quick)}
    return [
        Run("twin-networks", flavour, dataset, split, settings | {"neighbours": list(NEIGHBOURS)})
    ]


def expand_paired(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    kinds = {"nearest": NEAREST_PAIRS, "random": MULTIPLIERS}
    if quick:
        kinds = {"nearest": (4, 16), "random": (1, 8)}
    settings = {"members": 1 if quick else N_PAIRED[flavour], **extent(flavour, quick)}
    return [
        Run("paired-networks", flavour, dataset, split, settings | {"pairs": kind, "partners": k})
        for kind, partners in kinds.items()
        for k in partners
    ]


def extent(flavour: str, quick: bool) -> dict[str, Any]:
    """How long is trained, and how many points are asked: of a quick look alone it is said."""
    settings: dict[str, Any] = {}
    if flavour == "modern":
        settings["effort"] = "fast" if quick else "balanced"
    return settings | ({"asked": QUICK_ROWS} if quick else {})


def shared_program(run: Run) -> Any:
    """Which runs are trained as one program: those of a data set, or, in our way, of all of them.

    The paper's epochs are as long as its data sets are large; our steps are not. A quick look goes
    from set to set, so that little is lost where it is stopped.
    """
    return run.dataset if "asked" in run.settings else run.flavour == "modern" or run.dataset


# --- training -------------------------------------------------------------------------------------


def execute_plain(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Errors of one network, and of ensembles."""
    for run, model, (_, test) in trained(batch, twin=False):
        told = model.predict_members(test[0])
        yield run, {"members": by_size(told, test[1]), "epochs": _epochs(model)}


def execute_twins(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Errors with one anchor, many, all of them, the nearest; of one twin, and of ensembles."""
    for run, model, (validation, test) in trained(batch, twin=True):
        rng = np.random.RandomState(run.split)
        order = rng.permutation(len(model.anchors_y_))
        sizes = [k for k in run.settings["neighbours"] if k <= len(order)]
        near = neighbour_places(model, test[0], max(sizes))
        all_anchors, one_anchor, alone, curves, nearest = [], [], [], [], []
        for estimates in member_estimates(model, test[0]):
            all_anchors.append(estimates.mean(axis=1))
            one_anchor.append(estimates[np.arange(len(estimates)), _any_anchors(estimates, rng)])
            alone.append(errors(estimates, test[1], axis=0).mean())
            curves.append(by_anchors(estimates, test[1], order))
            nearest.append(by_neighbours(estimates, test[1], near, sizes))
        near = neighbour_places(model, validation[0], max(sizes))
        judged = [
            by_neighbours(estimates, validation[1], near, sizes)
            for estimates in member_estimates(model, validation[0])
        ]
        yield (
            run,
            {
                "one_anchor": float(np.mean(alone)),
                "anchors": _means(curves),
                "members": by_size(np.array(all_anchors), test[1]),
                "members_one_anchor": by_size(np.array(one_anchor), test[1]),
                "nearest": {"validation": _means(judged), "test": _means(nearest)},
                "epochs": _epochs(model),
            },
        )


def execute_paired(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Errors of one twin: with as many nearest anchors as it was trained with, or with all."""
    for run, model, (validation, test) in trained(batch, twin=True):
        result = {"epochs": _epochs(model)}
        near = run.settings["partners"] if run.settings["pairs"] == "nearest" else None
        for name, (X, y) in {"validation": validation, "test": test}.items():
            told = member_means(model, X) if near is None else nearest_means(model, X, near)
            result[name] = float(np.mean(errors(told, y, axis=1)))
        yield run, result


def _means(curves: list[dict[str, float]]) -> dict[str, float]:
    return {size: float(np.mean([curve[size] for curve in curves])) for size in curves[0]}


def trained(batch: list[Run], twin: bool) -> Iterator[tuple[Run, Any, Any]]:
    """Each run with its fitted model and its (validation, test) points; all trained at once.

    Where a run's settings say how many points are `asked`, these are that many of each.
    """
    from twinned.neural import fit_many

    rows = [rows_of(run.dataset, run.split) for run in batch]
    problems = [(*learn, None, *validation) for learn, validation, _ in rows]
    models = fit_many([_estimator(run, twin) for run in batch], problems)
    for run, model, (_, validation, test) in zip(batch, models, rows, strict=True):
        most = run.settings.get("asked")
        yield run, model, tuple((X[:most], y[:most]) for X, y in (validation, test))


def rows_of(dataset: str, split: int) -> tuple[tuple[Floats, Floats], ...]:
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
    from twinned.pairing.pairs import NearestPairs, RandomPairs

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


def member_estimates(model: Any, X: Floats) -> Iterator[Floats]:
    """(query, anchor) of each member: what each anchor says. All members at once may be a lot."""
    for told in _member_differences(model, X):
        yield told.astype(np.float64) * _spread(model) + model.anchors_y_


def member_means(model: Any, X: Floats) -> Floats:
    """(member, query): with all anchors. Quicker than the mean of what each of them says."""
    told = [one.mean(axis=1, dtype=np.float64) for one in _member_differences(model, X)]
    return np.stack(told) * _spread(model) + model.anchors_y_.mean()


def nearest_means(model: Any, X: Floats, k: int) -> Floats:
    """(member, query): with the k nearest anchors."""
    from twinned.models.neural.device import on_device
    from twinned.models.neural.inference import indexed_differences

    # always as many neighbours as the largest k has: one program for all k
    places = neighbour_places(model, X, min(max(NEAREST_PAIRS), len(model.anchors_y_)))
    with on_device(model.device):
        shape, queries, anchors = _asked(model, X)
        told = indexed_differences(shape, model._parameters, model._gates, queries, anchors, places)
    estimates = told[..., 0].astype(np.float64) * _spread(model) + model.anchors_y_[places]
    return estimates[:, :, :k].mean(axis=2)


def _spread(model: Any) -> float:
    from twinned.models.neural.problem import Scale

    return float(Scale(*model._scale).y_spread[0])


def _asked(model: Any, X: Floats) -> tuple[Any, Any, Any]:
    """The networks' shape, and the queries and anchors as they see them."""
    networks = model._difference_model()
    queries = networks.matrix(model._open(X).take(slice(None)))
    return networks.shape, queries, networks.matrix(model._points)


def _member_differences(model: Any, X: Floats) -> Iterator[Any]:
    """(query, anchor) of each member: F(x, a), as it is learned."""
    from twinned.models.neural.device import on_device
    from twinned.models.neural.inference import grid_differences

    shape, queries, anchors = _asked(model, X)
    step = max(1, model._pairs_per_block() // len(anchors))
    for member in range(len(model.member_weights_)):
        own = {name: value[member : member + 1] for name, value in model._parameters.items()}
        gate = model._gates[member : member + 1]
        with on_device(model.device):
            blocks = [
                grid_differences(shape, own, gate, queries[low : low + step], anchors)
                for low in range(0, len(queries), step)
            ]
        yield np.concatenate(blocks, axis=1)[0, :, :, 0]


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


def by_anchors(estimates: Floats, y: Floats, order: Any) -> dict[str, float]:
    """The error of one twin (query, anchor) with the first 1, 2, 4, … anchors, and with all."""
    totals = np.cumsum(estimates[:, order], axis=1)
    sizes = [2**i for i in range(int(np.log2(len(order))) + 1)]
    return {
        str(size): float(errors(totals[:, size - 1] / size, y, axis=0))
        for size in dict.fromkeys([*sizes, len(order)])
    }


def _any_anchors(estimates: Floats, rng: np.random.RandomState) -> Any:
    """(query,): a random anchor of its own for each query."""
    return rng.randint(estimates.shape[1], size=len(estimates))


def neighbour_places(model: Any, X: Floats, k: int) -> Any:
    """(query, k): the nearest anchors, nearest first, in the space that the networks see."""
    return first_places(query_distances(model, X), k)


def first_places(values: Floats, k: int) -> Any:
    """(row, k): where the smallest values of each row are, in order, of equal ones the first.

    >>> first_places(np.array([[3.0, 1.0, 2.0, 1.0]]), 3)
    array([[1, 3, 2]])
    """
    if k >= values.shape[1]:
        return np.argsort(values, axis=1, kind="stable")[:, :k]
    some = np.sort(np.argpartition(values, k - 1, axis=1)[:, :k], axis=1)
    found = np.take_along_axis(values, some, axis=1)
    places = np.take_along_axis(some, np.argsort(found, axis=1, kind="stable"), axis=1)
    # where equal ones were left out, it was any of them
    tied = np.flatnonzero((values <= found.max(axis=1, keepdims=True)).sum(axis=1) > k)
    places[tied] = np.argsort(values[tied], axis=1, kind="stable")[:, :k]
    return places


def query_distances(model: Any, X: Floats) -> Floats:
    """(query, anchor), in the space that the networks see."""
    return distance_matrix(model._open(X).take(slice(None)).features, model._points.features)


def by_neighbours(estimates: Floats, y: Floats, near: Any, sizes: list[int]) -> dict[str, float]:
    """The error of one twin with its nearest anchors; `near` has them in order."""
    totals = np.cumsum(np.take_along_axis(estimates, near, axis=1), axis=1)
    return {str(k): float(errors(totals[:, k - 1] / k, y, axis=0)) for k in sizes}
