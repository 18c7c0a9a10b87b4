"""Acquisition functions: which rows to measure next to find the best value of y.

Expected improvement is computed exactly for a single row. A batch is selected greedily by joint
samples: the next row is the one that improves most on the best value of each sample, which is the
best known one or that of a row that is pending or already selected. Thompson sampling selects the
best row of each sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from twinned._compat import safe_indexing
from twinned.fitted.sampling import MAX_ROWS, ErrorFeatures, JointPrediction, SamplingMixin
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats
from twinned.rows.validation import check_real, count_rows

IMPROVEMENT, THOMPSON = ACQUISITIONS = ("improvement", "thompson")
_N_SAMPLES = 2000  # by which the improvement of a batch is computed
_MAX_CANDIDATES = 2000  # of which joint samples are drawn: those of the largest improvement


def select_best(
    twin: SamplingMixin,
    X: Any,
    n: int,
    strategy: str,
    maximize: bool,
    pending: Any,
    best: float | None,
    rng: np.random.RandomState,
) -> Indices:
    """Return the n rows of X to measure next, in order; see `twinned.query`."""
    sign = 1.0 if maximize else -1.0
    mean, std = twin._predict_error(X)
    known = sign * (_best_known(twin, sign) if best is None else check_real("best", best))
    score = log_expected_improvement(sign * mean, std, known)
    is_new = _find_new(twin, X, pending)
    if n > is_new.sum():
        raise ValueError(
            f"n={n} exceeds the {is_new.sum()} different rows of the pool that are neither "
            "known nor pending."
        )
    order = np.argsort(-score, kind="stable")
    candidates = order[is_new[order]]
    if n == 1 and pending is None and strategy == IMPROVEMENT:
        return candidates[:1]
    candidates = candidates[: max(n, _MAX_CANDIDATES)]
    joint = _join(twin, safe_indexing(X, candidates), pending)
    joint = joint._replace(mean=sign * joint.mean)
    if strategy == THOMPSON:
        samples = joint.sample(n, rng)[:, : len(candidates)]
        return candidates[best_of_samples(samples)]
    samples = joint.sample(_N_SAMPLES, rng)
    reached = samples[:, len(candidates) :].max(axis=1, initial=known)
    first = [0] if pending is None else []  # whose improvement is known exactly
    # where no sample improves, candidates come in the order of their own expected improvement
    return candidates[improve_in_turn(samples[:, : len(candidates)], reached, n, first)]


def log_expected_improvement(mean: Floats, std: Floats, best: float) -> Floats:
    """(row,): logarithm of the expected excess of normal variables over a value.

    >>> np.exp(log_expected_improvement(np.array([0.0, 2.0]), np.array([1.0, 0.0]), 0.0)).round(3)
    array([0.399, 2.   ])
    """
    std = np.maximum(std, 1e-12 * (1.0 + np.abs(mean - best)))
    z = (mean - best) / std
    log_density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    # below, density and probability underflow; their ratio does not, and needs no more than 1e4
    low, high = np.clip(z, -1e4, 0.0), np.maximum(z, 0.0)
    below = log_density + np.log1p(low * np.sqrt(np.pi / 2) * erfcx(-low / np.sqrt(2)))
    above = np.log(np.exp(-0.5 * high**2) / np.sqrt(2 * np.pi) + high * ndtr(high))
    return np.log(std) + np.where(z > 0, above, below)


def improve_in_turn(samples: Floats, reached: Floats, n: int, first: Sequence[int] = ()) -> Indices:
    """Return n columns of (sample, row) samples, greedily by the mean improvement on `reached`.

    `reached` (sample,) is the best value so far. The columns `first` come first. Equal rows come in
    order.

    >>> samples = np.array([[3.0, 2.9, 0.0], [0.0, 0.0, 1.0]])
    >>> improve_in_turn(samples, np.zeros(2), 2)
    array([0, 2])
    """
    available = np.ones(samples.shape[1], dtype=bool)
    selected = np.empty(n, dtype=np.intp)
    for i in range(n):
        if i < len(first):
            row = first[i]
        else:
            gain = np.maximum(samples - reached[:, None], 0.0).mean(axis=0)
            row = int(np.argmax(np.where(available, gain, -1.0)))
        selected[i], available[row] = row, False
        reached = np.maximum(reached, samples[:, row])
    return selected


def best_of_samples(samples: Floats) -> Indices:
    """Return the best column of each sample that is not the best of an earlier one.

    >>> best_of_samples(np.array([[1.0, 5.0, 2.0], [1.0, 9.0, 3.0]]))
    array([1, 2])
    """
    available = np.ones(samples.shape[1], dtype=bool)
    selected = np.empty(len(samples), dtype=np.intp)
    for i, sample in enumerate(samples):
        row = int(np.argmax(np.where(available, sample, -np.inf)))
        selected[i], available[row] = row, False
    return selected


def _find_new(twin: SamplingMixin, X: Any, pending: Any) -> NDArray[np.bool_]:
    """(row,): whether a row of X differs from known, pending and earlier rows."""
    tables = [X] if pending is None else [pending, X]
    own = [twin.encode(table).encode().features for table in tables]
    rows = np.concatenate([twin.fitted_.anchors.measured_features, *own])
    _, first = np.unique(np.where(np.isnan(rows), np.inf, rows), axis=0, return_index=True)
    is_new = np.zeros(len(rows), dtype=bool)
    is_new[first] = True
    return is_new[-len(own[-1]) :]


def _best_known(twin: SamplingMixin, sign: float) -> float:
    return float(sign * np.max(sign * twin.anchors_y_))


def _join(twin: SamplingMixin, X: Any, pending: Any) -> JointPrediction:
    """The joint distribution of y at candidates and, after them, pending rows."""
    tables = [X] if pending is None else [X, pending]
    n_rows = sum(count_rows(table) for table in tables)
    if n_rows > MAX_ROWS:
        raise ValueError(f"{n_rows} rows are pending or requested; use at most {MAX_ROWS}.")
    means, stds = zip(*(twin._predict_error(table) for table in tables), strict=True)
    parts = zip(*(twin._error_features(table) for table in tables), strict=True)
    features = ErrorFeatures(*(np.concatenate(part) for part in parts))
    return JointPrediction(np.concatenate(means), np.concatenate(stds), features.correlation())
