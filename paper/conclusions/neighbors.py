"""Conclusions of sections 7 and 8: nearest anchors, nearest pairs, and k-NN."""

from __future__ import annotations

from typing import Any

import pandas as pd

from paper.conclusions.measured import (
    EQUAL,
    NEVER,
    Measured,
    Outcome,
    Status,
    each,
    grade,
    names,
    on,
    percent,
    spread,
)
from paper.networks import NEAREST_PAIRS

LARGE_GAIN = 0.1  # the three largest gains of table 3 are above this
LOW_NOISE = ["TF", "RCL", "WSB"]  # formulas with no noise, or little


def at(errors: pd.DataFrame, sizes: pd.Series) -> pd.Series:
    """Return the error of each data set at its own size."""
    cells: Any = errors.loc
    return pd.Series({str(key): float(cells[key, size]) for key, size in sizes.items()})


def best_nearest_anchors(m: Measured) -> pd.Series:
    """Return the errors of nearest anchors, with the number chosen for each data set.

    The twins are those of `all_pairs`, so that nearest pairs can be compared with them.
    """
    test = m.nearest_of_all_pairs()
    return at(test, m.best_number(test, m.nearest_of_all_pairs("validation")))


def best_nearest_pairs(m: Measured) -> pd.Series:
    """Return the errors of nearest pairs and anchors, with the number chosen for each data set."""
    test = m.paired("nearest")
    return at(test, m.best_number(test, m.paired("nearest", "validation")))


def one_neighbor_is_worse(m: Measured) -> Outcome:
    """Figure D at k = 1: both below standard TNNR in accuracy, nearest pairs the worse."""
    anchors, pairs = m.nearest_of_all_pairs(), m.paired("nearest", sizes=[1])
    both = (anchors[1] > m.all_pairs) & (pairs[1] > m.all_pairs)
    order = pairs[1] > anchors[1]
    details = (
        f"both are worse than all pairs and anchors on {on(both)}; nearest pairs are worse than all"
        f" pairs on {on(order)}"
    )
    return Outcome(grade(min(both, order, key=sum), 7, 5), details)


def neighbors_converge(m: Measured) -> Outcome:
    """Figure D at its right end.

    The limit itself holds by definition, so the approach to it is judged: a data set speaks for it
    where both versions are nearer to standard TNNR with 128 neighbors than with one.
    """
    anchors, pairs = m.nearest_of_all_pairs(), m.paired("nearest", sizes=[1, 128])
    of_anchors = anchors[128] / m.all_pairs - 1
    of_pairs = pairs[128] / m.all_pairs - 1
    near = of_pairs.abs() <= EQUAL
    closer = of_pairs.abs() < (pairs[1] / m.all_pairs - 1).abs()
    closer_anchors = of_anchors.abs() < (anchors[1] / m.all_pairs - 1).abs()
    details = (
        f"128 nearest anchors are within {percent(EQUAL)} of all on "
        f"{on(of_anchors.abs() <= EQUAL)}, and nearer than one nearest anchor on "
        f"{on(closer_anchors)}; 128 nearest pairs are within {percent(EQUAL)} of all pairs on "
        f"{on(near)}, and nearer than one nearest pair on {on(closer)}; their errors are "
        f"{spread(of_pairs)} above"
    )
    return Outcome(grade(closer & closer_anchors, 9, 5), details)


def sweet_spot(m: Measured) -> Outcome:
    """Figure D: nearest pairs with 16 to 64 neighbors against all pairs and anchors.

    In part where they are better with one of these numbers, though another one may be the best.
    """
    pairs = m.paired("nearest", sizes=NEAREST_PAIRS)
    best = m.best_number(pairs, m.paired("nearest", "validation"))
    gain = 1 - at(pairs, best) / m.all_pairs
    inside = best.between(16, 64) & (gain > 0)
    numbers = ", ".join(f"{key} {number}" for key, number in best.items())
    between = pairs[[16, 32, 64]].min(axis=1) < m.all_pairs
    details = (
        f"better than all pairs, with the best number from 16 to 64, on {on(inside)}; better with "
        f"one of 16, 32 and 64 on {on(between)}; best numbers of 1 to 128: {numbers}"
    )
    holds = grade(inside, 7, 5) == Status.HOLDS
    return Outcome(Status.HOLDS if holds else grade(between, NEVER, 5), details)


def large_margins(m: Measured) -> Outcome:
    """Table 3: gains above 10 % on three sets, the largest on TF."""
    m.require_datasets(["TF"])
    gain = 1 - best_nearest_pairs(m) / m.all_pairs
    large = gain > LARGE_GAIN
    details = f"gains over all pairs and anchors: {each(gain)}"
    holds = int(large.sum()) >= 3 and gain.idxmax() == "TF" and gain["TF"] > 0.5
    part = large["TF"] or large.sum() >= 2
    return Outcome(Status.HOLDS if holds else Status.IN_PART if part else Status.FAILS, details)


def nearest_anchors_help(m: Measured) -> Outcome:
    """Table 3, nearest anchors against all: "tend to" is seven of nine."""
    gain = 1 - at(m.nearest, m.best_number(m.nearest, m.nearest_validation)) / m.twins[1]
    details = f"better than all anchors on {on(gain > 0)}; gains: {each(gain)}"
    return Outcome(grade(gain > 0, 7, 5), details)


def nearest_pairs_help(m: Measured) -> Outcome:
    """Table 3: nearest pairs against all pairs, both with nearest anchors."""
    gain = 1 - best_nearest_pairs(m) / best_nearest_anchors(m)
    details = f"better than nearest anchors alone on {on(gain > 0)}; gains: {each(gain)}"
    return Outcome(grade(gain > 0, 7, 5), details)


def both_beat_standard(m: Measured) -> Outcome:
    """Table 3: both versions against standard TNNR, above all where there is little noise.

    The printed table has both on seven sets, and on two of the three with little noise.
    """
    anchors = 1 - best_nearest_anchors(m) / m.all_pairs
    pairs = 1 - best_nearest_pairs(m) / m.all_pairs
    both = (anchors > 0) & (pairs > 0)
    m.require_datasets(LOW_NOISE)
    low = both[LOW_NOISE]
    details = (
        f"nearest anchors are better than standard TNNR on {on(anchors > 0)}, nearest pairs on "
        f"{on(pairs > 0)}, both on {on(both)}; of the sets with no noise or little, both are "
        f"better on {on(low)}: nearest anchors "
        f"{each(anchors[LOW_NOISE])}, nearest pairs {each(pairs[LOW_NOISE])}"
    )
    return Outcome(grade(both, 7 if low.sum() >= 2 else NEVER, 5), details)


def neighbors_beat_knn(m: Measured) -> Outcome:
    """Figure B: seven sets, and k-NN the winner on BC and WN."""
    knn = m.knn.min(axis=1)
    gain = 1 - best_nearest_pairs(m) / knn
    holds = names(gain <= 0) == m.present(["BC", "WN"])
    details = (
        f"better than the best k-NN on {on(gain > 0)}; its error below that of k-NN by: "
        f"{each(gain)}"
    )
    return Outcome(Status.HOLDS if holds else grade(gain > 0, NEVER, 5), details)


def more_anchors_than_knn(m: Measured) -> Outcome:
    """Section 8: the best number of anchors against the best k of k-NN, both by test error."""
    anchors, k = m.nearest.idxmin(axis=1), m.knn.idxmin(axis=1)
    larger = anchors > k
    much = anchors >= 4 * k
    pairs = ", ".join(f"{key} {anchors[key]} and {k[key]}" for key in anchors.index)
    details = f"larger on {on(larger)}, four times or more on {on(much)}: {pairs}"
    if larger.all() and grade(much, 7, 5) == Status.HOLDS:
        return Outcome(Status.HOLDS, details)
    return Outcome(grade(larger, NEVER, 5), details)


def knn_profile_differs(m: Measured) -> Outcome:
    """Section 8: if F were a minor contribution, both would depend on k alike."""
    anchors, knn = m.nearest.dropna(axis=1), m.knn
    last = max(k for k in anchors.columns.to_list() if k in knn)
    rise_twin, rise_knn = anchors[last] / anchors[16] - 1, knn[last] / knn[16] - 1
    apart = rise_knn > rise_twin + EQUAL
    details = (
        f"from 16 to {last} neighbors the error of k-NN changes by {spread(rise_knn)}, that of "
        f"twins with nearest anchors by {spread(rise_twin)}; k-NN rises more on {on(apart)}"
    )
    return Outcome(grade(apart, 7, 5), details)
