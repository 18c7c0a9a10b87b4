"""Does twinning help on these data? Paired, on points that nobody learned from."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned._table import Floats
from twinned.diagnostics.cross_validation import Evidence, gather, rmse
from twinned.diagnostics.finding import Finding, per_cent

HELPS, HURTS, UNCLEAR = "helps", "does not help", "no clear difference"
_DRAWS = 2_000  # of the bootstrap
_CONFIDENCE = 0.95
_FEWEST_GROUPS = 5
_NEGLIGIBLE = 0.005  # a ratio so near to 1 is none, however sure


def compare(X: Any, y: Any, twin: Any = None, *, evidence: Evidence | None = None) -> Finding:
    """The twin beside its base, k-NN and whoever else is in the evidence.

    Parameters
    ----------
    X, y : table and values
        All points.
    twin : a twin that is not fitted, default=None
        None is `TwinRegressor()`.
    evidence : Evidence, default=None
        What was gathered before; None gathers it.

    Returns
    -------
    Finding
        `numbers["answer"]` is "helps", "does not help" or "no clear difference": the first two
        where the 95 % interval of the ratio of the two errors lies on one side of 1, and the ratio
        differs from 1 by half a per cent at least. It is a bootstrap over left-out points (or
        groups of them), paired.
    """
    evidence = gather(X, y, twin) if evidence is None else evidence
    y = evidence.y
    errors = {name: rmse(told, y) for name, told in evidence.told.items()}
    errors["always the mean"] = float(np.std(y))
    twin, groups = evidence.told["twin"], evidence.groups
    ratio, low, high = ratio_interval(twin, evidence.told["base"], y, groups)
    matters = abs(ratio - 1) > _NEGLIGIBLE
    answer = HELPS if matters and high < 1 else HURTS if matters and low > 1 else UNCLEAR
    change = per_cent(ratio - 1)
    verdict = {
        HELPS: f"Twinning helps: the twin's error is {change} below that of its base estimator.",
        HURTS: f"Twinning does not help: the twin's error is {change} above that of its base.",
        UNCLEAR: f"Twinning makes no clear difference: the errors differ by {change}, "
        "less than these points can tell.",
    }[answer]
    best = min((name for name in evidence.told), key=lambda name: errors[name])
    if best not in ("twin", "base"):
        verdict += f" The lowest error is that of {best}."
    numbers = {
        "rmse": errors,
        "answer": answer,
        "ratio": ratio,
        "interval": [low, high],
        "best": best,
        "points": len(y),
        "against": {
            name: list(ratio_interval(twin, told, y, groups))
            for name, told in evidence.told.items()
            if name != "twin"
        },
    }
    return Finding("comparison", "Does twinning help?", verdict, numbers, _draw)


def ratio_interval(
    told: Floats, other: Floats, y: Floats, groups: Any = None
) -> tuple[float, float, float]:
    """RMSE of one by that of the other, with a 95 % interval: a paired bootstrap over points.

    Where points come in `groups` (n,), whole groups are drawn.
    """
    squares = np.column_stack([(told - y) ** 2, (other - y) ** 2])
    squares = np.maximum(squares, 1e-300)
    middle = np.sqrt(squares[:, 0].mean() / squares[:, 1].mean())
    if groups is not None:
        _, numbers = np.unique(groups, return_inverse=True)
        squares = np.column_stack([np.bincount(numbers, weights=column) for column in squares.T])
        if len(squares) < _FEWEST_GROUPS:
            return float(middle), 0.0, float("inf")  # so few tell nothing of others
    rng = np.random.RandomState(0)
    n = len(squares)
    # how often each point is drawn; in slices, as all draws of many points would be large
    ratios = []
    for _ in range(0, _DRAWS, 100):
        counts = rng.multinomial(n, np.full(n, 1.0 / n), size=100)
        means = counts @ squares
        ratios.append(np.sqrt(means[:, 0] / means[:, 1]))
    tail = 50 * (1 - _CONFIDENCE)
    low, high = np.percentile(np.concatenate(ratios), [tail, 100 - tail])
    return float(middle), float(low), float(high)


def _draw(axes: Any, numbers: dict[str, Any]) -> None:
    names = sorted(numbers["rmse"], key=numbers["rmse"].get, reverse=True)
    axes.barh(names, [numbers["rmse"][name] for name in names])
    axes.set_xlabel("RMSE of left-out points")
