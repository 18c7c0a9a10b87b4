"""How far to trust a twin: what its spread and its loops say of errors, and how noisy y is."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.base import clone

from twinned._neighbors import NeighborIndex
from twinned._table import Floats
from twinned.diagnostics.cross_validation import Evidence, ask_on_all_cores, gather, rmse
from twinned.diagnostics.finding import Finding, per_cent

_NEIGHBORS = 10
_SETS = 4  # training sets of the decomposition


def loop_check(X: Any, y: Any, twin: Any = None, *, evidence: Evidence | None = None) -> Finding:
    """Are loops through a point further from closing where its prediction errs more?

    Parameters as of `compare`. `numbers` has the rank correlations of the absolute error with the
    loop inconsistency and with the standard deviation, and the points themselves.
    """
    evidence = gather(X, y, twin) if evidence is None else evidence
    assert evidence.spread is not None  # gathered with the twin's predictions
    asked = evidence.asked()
    loops = np.concatenate(
        [
            model.loop_inconsistency(evidence.rows(rows), random_state=0)
            for model, rows in zip(evidence.twins, asked, strict=True)
        ]
    )
    rows = np.concatenate(asked)
    spread, error = evidence.spread[rows], np.abs(evidence.told["twin"] - evidence.y)[rows]
    of_spread, of_loops = (_rank_correlation(what, error) for what in (spread, loops))
    better, word = max((of_spread, "standard deviation"), (of_loops, "loop inconsistency"))
    if better > 0.3:
        verdict = f"Yes: the {word} ranks the errors well (rank correlation {better:.2f})."
    elif better > 0.1:
        verdict = f"Roughly: the {word} ranks the errors weakly (rank correlation {better:.2f})."
    else:
        verdict = "Hardly: neither the standard deviation nor loops tell large errors from small."
    numbers = {
        "spread": spread.tolist(),
        "loops": loops.tolist(),
        "error": error.tolist(),
        "spread_correlation": of_spread,
        "loop_correlation": of_loops,
    }
    return Finding("loops", "Does the twin know where it errs?", verdict, numbers, _draw_loops)


def _rank_correlation(one: Floats, other: Floats) -> float:
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(spearmanr(one, other)[0])


def _draw_loops(axes: Any, numbers: dict[str, Any]) -> None:
    axes.loglog(numbers["loops"], numbers["error"], ".", alpha=0.5)
    axes.set_xlabel("loop inconsistency")
    axes.set_ylabel("absolute error")


def noise_estimate(
    X: Any, y: Any, twin: Any = None, *, evidence: Evidence | None = None
) -> Finding:
    """How much of the error no model could remove: the gamma test.

    Half the mean square difference of y between a point and its k-th neighbor falls with their
    distance; where the distance is zero, the noise is left. Parameters as of `compare`.
    `numbers["noise"]` is its standard deviation; 0 where none is seen.
    """
    evidence = gather(X, y, twin) if evidence is None else evidence
    error = rmse(evidence.told["twin"], evidence.y)
    noise = gamma_test(evidence.encoder.standardised, evidence.y)
    share = (noise / error) ** 2 if error > 0 else 0.0
    if share > 1:
        verdict = "It cannot be told: neighboring points differ by more than the twin errs."
    elif share < 0.1:
        verdict = "Little noise is seen: a better model or more labels can lower the error much."
    elif share < 0.8:
        verdict = (
            f"About {per_cent(share)} of the squared error looks like noise that no model removes."
        )
    else:
        verdict = (
            "The error is about as large as the scatter of near points: little is left to gain, "
            "unless the law behind them is simple."
        )
    numbers = {"noise": noise, "rmse": error, "share": float(share)}
    return Finding("noise", "How noisy are the values?", verdict, numbers, _draw_noise)


def gamma_test(wide: Floats, y: Floats) -> float:
    """The standard deviation of the noise in y.

    >>> rng = np.random.RandomState(0)
    >>> x = rng.uniform(size=(2000, 2))
    >>> noise = gamma_test(x, x[:, 0] + 0.1 * rng.normal(size=2000))
    >>> bool(0.08 < noise < 0.12)
    True
    """
    k = min(_NEIGHBORS, len(y) - 1)
    rows = NeighborIndex(wide).kneighbors_self(k)
    squares = np.sum((wide[rows] - wide[:, None]) ** 2, axis=2)
    halves = 0.5 * (y[rows] - y[:, None]) ** 2
    delta, gamma = squares.mean(axis=0), halves.mean(axis=0)
    if np.ptp(delta) == 0:
        return float(np.sqrt(gamma.mean()))
    intercept = np.polyfit(delta, gamma, 1)[1]
    return float(np.sqrt(max(intercept, 0.0)))


def _draw_noise(axes: Any, numbers: dict[str, Any]) -> None:
    axes.barh(["noise", "RMSE"], [numbers["noise"], numbers["rmse"]])


def anchor_decomposition(
    X: Any, y: Any, twin: Any = None, *, evidence: Evidence | None = None
) -> Finding:
    """What averaging over anchors removes: variance, but not bias and covariance.

    The twin is fitted to four random 80 % of the points outside the first fold, whose points it
    predicts. Parameters as of `compare`. The truth is not known, so bias² holds the noise of y.
    """
    evidence = gather(X, y, twin) if evidence is None else evidence
    learned, left_out = evidence.folds[0][0], evidence.asked()[0]
    known = evidence.y[left_out]
    rng = np.random.RandomState(0)
    size = min(64, int(0.8 * len(learned)))
    estimates = []
    for _ in range(_SETS):
        some = rng.permutation(learned)[: int(0.8 * len(learned))]
        model = clone(evidence.twin).set_params(anchors="all")
        model.fit(evidence.rows(some), evidence.y[some])
        told = ask_on_all_cores(model).predict_anchors(evidence.rows(left_out))[1]
        estimates.append(told[:, rng.permutation(told.shape[1])[:size]].T)
    parts = decompose(np.stack(estimates), known)
    one = parts["bias"] + parts["variance"]
    many = parts["bias"] + parts["covariance"]
    removed = 1 - many / one if one > 0 else 0.0
    verdict = (
        f"Averaging over many anchors removes {per_cent(removed)} of the squared error of "
        "one; the rest is bias, noise, and what all anchors have in common."
    )
    return Finding("variance", "What do many anchors buy?", verdict, parts, _draw_parts)


def decompose(estimates: Floats, truth: Floats) -> dict[str, float]:
    """Bias², variance and covariance of (training set, estimate, point) against (point,).

    Means over points. The mean square error of an ensemble of M estimates is
    bias² + variance / M + (1 − 1/M) covariance (Ueda and Nakano).

    >>> rng = np.random.RandomState(0)
    >>> estimates, truth = rng.normal(size=(25, 4, 3)), np.zeros(3)
    >>> parts = decompose(estimates, truth)
    >>> error = np.mean((estimates.mean(axis=1) - truth) ** 2)
    >>> formula = parts["bias"] + parts["variance"] / 4 + 0.75 * parts["covariance"]
    >>> bool(abs(error - formula) < 1e-12)
    True
    """
    size = estimates.shape[1]
    off = estimates - estimates.mean(axis=0)
    variance = float(np.mean(off**2))
    # the sum over all pairs, less each with itself
    together = float(np.mean(off.sum(axis=1) ** 2))
    covariance = (together - size * variance) / (size * (size - 1)) if size > 1 else 0.0
    bias = float(np.mean((estimates.mean(axis=(0, 1)) - truth) ** 2))
    return {"bias": bias, "variance": variance, "covariance": covariance, "size": size}


def _draw_parts(axes: Any, numbers: dict[str, Any]) -> None:
    names = ("bias", "variance", "covariance")
    axes.bar(["bias² and noise", *names[1:]], [numbers[name] for name in names])
