"""How many anchors, how many neighbors, how many partners, how many labels?"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned._neighbors import distance_matrix
from twinned._table import Floats
from twinned.diagnostics.comparison import ratio_interval
from twinned.diagnostics.cross_validation import Evidence, ask_on_all_cores, gather, rmse
from twinned.diagnostics.finding import Finding, draw_curve, per_cent
from twinned.estimators.twin import TwinRegressor

PARTNERS = (1, 4, 16, 64)
SHARES = (0.25, 0.5, 0.75, 1.0)


def _sizes(most: int) -> list[int]:
    """1, 2, 4, … and the largest."""
    return [2**i for i in range(int(np.log2(most)) + 1) if 2**i < most] + [most]


def _more(one: float, other: float) -> float:
    return one / other - 1 if other > 0 else 0.0


def _curve(at: list[Any], errors: Any, across: str, **more: Any) -> dict[str, Any]:
    """Numbers of (fold, place) errors: their mean over folds, and its standard error."""
    errors = np.asarray(errors)
    spread = errors.std(axis=0, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else 0 * errors[0]
    return {
        "at": list(at),
        "rmse": errors.mean(axis=0).tolist(),
        "error": spread.tolist(),
        "across": across,
        **more,
    }


def anchor_curve(X: Any, y: Any, twin: Any = None, *, evidence: Evidence | None = None) -> Finding:
    """The error with 1, 2, 4, … random anchors, and with all. Parameters as of `compare`."""
    evidence = gather(X, y, twin) if evidence is None else evidence
    rng = np.random.RandomState(0)
    most = min(len(one.anchors_y_) for one in evidence.twins)
    sizes = _sizes(most)
    errors = []
    for rows, estimates in evidence.estimates:
        totals = np.cumsum(estimates[:, rng.permutation(estimates.shape[1])], axis=1)
        known = evidence.y[rows]
        errors.append([rmse(totals[:, size - 1] / size, known) for size in sizes])
    means = np.mean(errors, axis=0)
    enough = sizes[int(np.argmax(means <= 1.02 * means[-1]))]
    verdict = (
        f"One anchor errs by {per_cent(_more(means[0], means[-1]))} more than all {most:,}; "
        f"{enough} random {'one is' if enough == 1 else 'ones are'} within 2 % of all."
    )
    numbers = _curve(sizes, errors, "random anchors", enough=enough)
    return Finding("anchors", "How many anchors?", verdict, numbers, draw_curve)


def neighbor_curve(
    X: Any, y: Any, twin: Any = None, *, evidence: Evidence | None = None
) -> Finding:
    """The error with the nearest 1, 2, 4, … anchors. Parameters as of `compare`.

    `numbers["best"]` is the number of nearest anchors to use, or None where all of them are as
    good: it must beat all anchors beyond doubt, on the same points.
    """
    evidence = gather(X, y, twin) if evidence is None else evidence
    most = min(len(one.anchors_y_) for one in evidence.twins)
    sizes = _sizes(most)
    errors, told = [], np.zeros((len(sizes), len(evidence.y)))
    missing = False
    for model, (rows, estimates) in zip(evidence.twins, evidence.estimates, strict=True):
        wide = model._open(evidence.rows(rows)).take(slice(None)).features
        missing |= bool(np.isnan(wide).any() or np.isnan(model._points.features).any())
        distances = distance_matrix(wide, model._points.features)
        if np.isnan(distances).any():
            raise ValueError("some points share no known column with others.")
        nearest = np.argsort(distances, axis=1, kind="stable")
        totals = np.cumsum(np.take_along_axis(estimates, nearest, axis=1), axis=1)
        for place, size in enumerate(sizes):
            told[place, rows] = totals[:, size - 1] / size
        known = evidence.y[rows]
        errors.append([rmse(told[place, rows], known) for place in range(len(sizes))])
    place = int(np.argmin(np.mean(errors, axis=0)))
    asked = np.concatenate([rows for rows, _ in evidence.estimates])
    groups = None if evidence.groups is None else evidence.groups[asked]
    ratio, _, high = ratio_interval(told[place, asked], told[-1, asked], evidence.y[asked], groups)
    best = sizes[place] if high < 1 else None
    if best is None:
        verdict = "All anchors are as good as any number of nearest ones."
    else:
        verdict = (
            f"The {best} nearest anchors err by {per_cent(ratio - 1)} less than all: use "
            f"NearestAnchors({best})."
        )
    metric = "nan_euclidean" if missing else "euclidean"
    numbers = _curve(sizes, errors, "nearest anchors", best=best, lowest=sizes[place], ratio=ratio)
    numbers["metric"] = metric
    return Finding("neighbors", "All anchors, or the nearest?", verdict, numbers, draw_curve)


def multiplier_check(
    X: Any, y: Any, twin: Any = None, *, evidence: Evidence | None = None
) -> Finding:
    """The paper's check: twins that learn 1, 4, 16, … random partners of each point.

    Where the error grows with the number of pairs, twinning does not suit the data. One fold is
    left out; parameters as of `compare`. `numbers["answer"]` is "falls", "grows" or "level".
    """
    evidence = gather(X, y, twin) if evidence is None else evidence
    learned, left_out = evidence.folds[0]
    queries, known = evidence.rows(left_out), evidence.y[left_out]
    sizes = [m for m in PARTNERS if m < len(learned)]
    told = []
    for m in sizes:
        few = _with_partners(evidence.twin, m).fit(evidence.rows(learned), evidence.y[learned])
        told.append(ask_on_all_cores(few).predict(queries))
    errors = [rmse(one, known) for one in told]
    groups = None if evidence.groups is None else evidence.groups[left_out]
    ratio, low, high = ratio_interval(told[-1], told[0], known, groups)
    answer = "falls" if high < 1 else "grows" if low > 1 else "level"
    verdict = {
        "falls": f"More pairs help: with {sizes[-1]} partners of each point the error is "
        f"{per_cent(ratio - 1)} lower than with {sizes[0]}, as it should be.",
        "grows": f"More pairs hurt: with {sizes[-1]} partners of each point the error is "
        f"{per_cent(ratio - 1)} higher than with {sizes[0]}. The paper would not twin these data.",
        "level": "The number of pairs makes no clear difference.",
    }[answer]
    numbers = _curve(sizes, [errors], "partners of each point", answer=answer, interval=[low, high])
    return Finding("multiplier", "Do more pairs help?", verdict, numbers, draw_curve)


def _with_partners(twin: Any, partners: int) -> Any:
    """The same twin with few pairs; the default's leaves are as large in proportion."""
    own = clone(twin).set_params(pairs=partners)
    if isinstance(own, TwinRegressor) and own.estimator is None:
        own.set_params(
            estimator=HistGradientBoostingRegressor(
                max_iter=200, min_samples_leaf=max(2, partners // 2), early_stopping=False
            )
        )
    return own


def learning_curve(
    X: Any, y: Any, twin: Any = None, *, evidence: Evidence | None = None
) -> Finding:
    """Would more labels help? The twin of a quarter, a half and three quarters of the points.

    One fold is left out; parameters as of `compare`. `numbers["doubled"]` is the ratio of errors
    that twice as many labels promise, if the error goes on falling as a power of their number.
    """
    evidence = gather(X, y, twin) if evidence is None else evidence
    learned, left_out = evidence.folds[0]
    order = np.random.RandomState(0).permutation(learned)
    if evidence.groups is not None:  # whole groups, one after the other
        _, which = np.unique(evidence.groups[order], return_inverse=True)
        turns = np.random.RandomState(0).permutation(which.max() + 1)
        order = order[np.argsort(turns[which], kind="stable")]
    queries, known = evidence.rows(left_out), evidence.y[left_out]
    sizes = [max(4, round(share * len(order))) for share in SHARES]
    errors = []
    for size in sizes:
        some = order[:size]
        if size == len(order):
            told = evidence.told["twin"][left_out]
        else:
            own = clone(evidence.twin).fit(evidence.rows(some), evidence.y[some])
            told = ask_on_all_cores(own).predict(queries)
        errors.append(rmse(told, known))
    power = _power(np.array(sizes, float), np.array(errors))
    doubled = 2.0**power
    if doubled < 0.95:
        verdict = f"Twice as many labels would lower the error by about {per_cent(1 - doubled)}."
    else:
        verdict = "More labels would change little; better features or cleaner labels might."
    numbers = _curve(sizes, [errors], "labelled points", doubled=doubled)
    return Finding("learning", "Would more labels help?", verdict, numbers, draw_curve)


def _power(sizes: Floats, errors: Floats) -> float:
    """The slope of log error over log size, never upwards.

    >>> round(_power(np.array([1.0, 2.0, 4.0]), np.array([4.0, 2.0, 1.0])), 6)
    -1.0
    """
    slope = np.polyfit(np.log(sizes), np.log(np.maximum(errors, 1e-300)), 1)[0]
    return float(min(slope, 0.0))
