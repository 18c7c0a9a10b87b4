"""Checks of uncertainty: spread and loops against errors, variance over anchors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.base import clone

from twinned.diagnostics.cross_validation import (
    CrossValidation,
    cross_validate_twin,
)
from twinned.diagnostics.result import CheckResult, Numbers, format_percent
from twinned.estimators.base import BaseTwin
from twinned.rows.schema import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_N_TRAINING_SETS = 4  # of the decomposition
_MAX_ANCHORS = 64  # of the decomposition


def loop_check(
    X: Any, y: Any, twin: BaseTwin | None = None, *, cross_validation: CrossValidation | None = None
) -> CheckResult:
    """Correlate errors with the twin's standard deviation and with the inconsistency of loops.

    See `anchor_curve` for the parameters. `numbers` has both rank correlations with the absolute
    error, and the values of each held-out row.
    """
    cv = cross_validation or cross_validate_twin(X, y, twin)
    query_rows = cv.query_rows()
    loops = np.concatenate(
        [
            own.loop_inconsistency(cv.rows(rows), random_state=0)
            for own, rows in zip(cv.twins, query_rows, strict=True)
        ]
    )
    rows = np.concatenate(query_rows)
    std, error = cv.held_out[1][rows], np.abs(cv.held_out[0] - cv.y)[rows]
    of_std, of_loops = (_rank_correlation(values, error) for values in (std, loops))
    better, name = max((of_std, "standard deviation"), (of_loops, "loop inconsistency"))
    if better > 0.3:
        summary = f"Yes: the {name} ranks the errors well (rank correlation {better:.2f})."
    elif better > 0.1:
        summary = f"Roughly: the {name} ranks the errors weakly (rank correlation {better:.2f})."
    else:
        summary = "Hardly: neither the standard deviation nor the loops rank the errors."
    numbers = {
        "std": std.tolist(),
        "loops": loops.tolist(),
        "error": error.tolist(),
        "std_correlation": of_std,
        "loop_correlation": of_loops,
    }
    title = "Does the uncertainty rank the errors?"
    return CheckResult("loops", title, summary, numbers, _draw_loops, cv.name)


def _rank_correlation(first: Floats, second: Floats) -> float:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second)[0])


def _draw_loops(axes: Axes, numbers: Numbers) -> None:
    axes.loglog(numbers["loops"], numbers["error"], ".", alpha=0.5)
    axes.set_xlabel("loop inconsistency")
    axes.set_ylabel("absolute error")


def anchor_decomposition(
    X: Any, y: Any, twin: BaseTwin | None = None, *, cross_validation: CrossValidation | None = None
) -> CheckResult:
    """Decompose the error of single anchors into bias², variance and covariance.

    The mean over anchors removes the variance, but not the bias and the covariance. The twin is
    fitted to four random 80 % of the training rows of the first fold and predicts its held-out
    rows. bias² contains the noise of y. See `anchor_curve` for the parameters.
    """
    cv = cross_validation or cross_validate_twin(X, y, twin)
    train, queries = cv.folds[0][0], cv.query_rows()[0]
    rng = np.random.RandomState(0)
    size = int(0.8 * len(train))
    estimates = []
    for _ in range(_N_TRAINING_SETS):
        subset = rng.permutation(train)[:size]
        own = clone(cv.twin).set_params(anchors="all").fit(cv.rows(subset), cv.y[subset])
        by_anchor = own.predict_anchors(cv.rows(queries))[1]
        sample = rng.permutation(by_anchor.shape[1])[: min(_MAX_ANCHORS, size)]
        estimates.append(by_anchor[:, sample].T)
    parts = bias_variance_covariance(np.stack(estimates), cv.y[queries])
    one = parts["bias"] + parts["variance"]
    many = parts["bias"] + parts["covariance"]
    removed = 1 - many / one if one > 0 else 0.0
    summary = (
        f"The mean over many anchors removes {format_percent(removed)} of the squared error of a "
        "single anchor; bias, noise and the covariance of the anchors remain."
    )
    title = "What does averaging over anchors remove?"
    return CheckResult("variance", title, summary, parts, _draw_parts, cv.name)


def bias_variance_covariance(estimates: Floats, truth: Floats) -> dict[str, float]:
    """Return bias², variance and covariance of (training set, estimate, query) estimates.

    Means over queries; `truth` is (query,). The mean squared error of an ensemble of M estimates
    is bias² + variance / M + (1 − 1/M) covariance (Ueda and Nakano).

    >>> rng = np.random.RandomState(0)
    >>> estimates, truth = rng.normal(size=(25, 4, 3)), np.zeros(3)
    >>> parts = bias_variance_covariance(estimates, truth)
    >>> error = np.mean((estimates.mean(axis=1) - truth) ** 2)
    >>> formula = parts["bias"] + parts["variance"] / 4 + 0.75 * parts["covariance"]
    >>> bool(abs(error - formula) < 1e-12)
    True
    """
    size = estimates.shape[1]
    centered = estimates - estimates.mean(axis=0)
    variance = float(np.mean(centered**2))
    # the sum over all pairs of estimates, less each with itself
    total = float(np.mean(centered.sum(axis=1) ** 2))
    covariance = (total - size * variance) / (size * (size - 1)) if size > 1 else 0.0
    bias = float(np.mean((estimates.mean(axis=(0, 1)) - truth) ** 2))
    return {"bias": bias, "variance": variance, "covariance": covariance, "size": size}


def _draw_parts(axes: Axes, numbers: Numbers) -> None:
    names = ("bias", "variance", "covariance")
    axes.bar(["bias² and noise", *names[1:]], [numbers[name] for name in names])
