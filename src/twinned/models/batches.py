"""Offsets of batches by a Gaussian process, before other models are fitted to y without them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from scipy.linalg import cho_solve

from twinned.models.gaussian_process import GaussianProcess, fit_gaussian_process
from twinned.models.resources import limit_threads
from twinned.rows.batches import BatchOffsets
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TargetBounds, TrainingRows

_MAX_ROWS = 2000  # whose offsets are estimated at once
_ROUNDS = 2  # of length scales and offsets

Rows = TypeVar("Rows", bound=TrainingRows)


def remove_offsets(rows: Rows, shrinks: bool) -> Rows:
    """The rows with first estimates of the offsets of their batches, and y without them."""
    if rows.batch is None:
        return rows
    names, codes = np.unique(rows.batch, return_inverse=True)
    known = replace(rows, batch=codes).take(rows.known).of_positive_weight()
    parts = known.y, names.tolist(), np.asarray(known.batch), known.weight
    first = estimate_offsets(known.rows.features, *parts, shrinks)
    bounds = rows.bounds and TargetBounds(*(first.remove(end, codes) for end in rows.bounds))
    return replace(rows, y=first.remove(rows.y, codes), bounds=bounds, batch=codes, offsets=first)


def estimate_offsets(
    features: Floats,
    y: Floats,
    names: list[str],
    batch: Indices,
    weight: Floats | None,
    shrinks: bool,
) -> BatchOffsets:
    """Estimate the offsets of batches by generalized least squares.

    y is a Gaussian process of the features plus a constant for each batch. The length scales are
    those of y without the offsets, first without the means of the batches. So a constant that is
    added to all y of one batch changes its offset alone, by the constant.

    Parameters
    ----------
    features : ndarray of shape (n, n_encoded)
        Numeric features and indicators; a missing value counts as the mean.
    y, batch : ndarrays of shape (n,)
        Known values of y, and codes of batches.
    names : list of str
        Names of the batches.
    weight : ndarray of shape (n,) or None
        Sample weights.
    shrinks : bool
        See `BatchOffsets`.
    """
    rows = StandardScaling.fit(features).fill(features)
    weight = np.ones(len(y)) if weight is None else weight / weight.mean()
    result = BatchOffsets.estimate(names, y, batch, weight, False)
    process = None
    for _ in range(_ROUNDS):
        remaining = result.remove(y, batch)
        with limit_threads(1):
            process = fit_gaussian_process(
                rows,
                remaining,
                sample_weight=weight,
                max_rows=_MAX_ROWS,
                similar=process,
                random_state=0,
            )
        remaining = remaining - process.mean[0]
        result = _least_squares(process, rows, remaining, result, batch, weight)
    means = result.means + np.mean(result.remove(y, batch))  # so that the rest has the mean 0
    return replace(result, means=means, shrinks=shrinks)


def _least_squares(
    process: GaussianProcess,
    rows: Floats,
    remaining: Floats,
    before: BatchOffsets,
    batch: Indices,
    weight: Floats,
) -> BatchOffsets:
    """Constants of the batches, from y that remains without earlier ones.

    Those of many rows are computed in parts of whole batches.
    """
    names = before.names
    scale = float(process.scale[0])
    within = scale * float(np.sqrt(process.amplitude * process.noise))
    means, counts = np.zeros((2, len(names)))
    order = np.random.RandomState(0).permutation(len(batch))
    order = order[np.argsort(batch[order], kind="stable")]
    sizes = np.minimum(np.bincount(batch, minlength=len(names)), _MAX_ROWS)
    part_of_batch = np.cumsum(sizes) // (_MAX_ROWS + 1)
    for part in np.unique(part_of_batch):
        own = np.flatnonzero((part_of_batch == part) & (sizes > 0))
        chosen = [order[batch[order] == code][:_MAX_ROWS] for code in own]
        if not chosen:
            continue
        index = np.concatenate(chosen)
        design = np.repeat(np.eye(len(own)), [len(part) for part in chosen], axis=0)
        factor = process.factorize(rows[index], process.noise / weight[index])
        solved = cho_solve((factor, True), design)
        information = design.T @ solved
        change = np.linalg.lstsq(information, solved.T @ remaining[index], rcond=1e-12)[0]
        means[own] = before.means[own] + change
        if len(own) > 1:  # of differences between batches: what is common is of no interest
            total = information.sum(axis=0)
            information -= np.outer(total, total) / total.sum()
        variance = np.diag(np.linalg.pinv(information, hermitian=True))
        # the number of independent errors whose mean has this variance
        counts[own] = process.noise / np.maximum(variance, 1e-300)
    return BatchOffsets.of_means(names, means, counts, max(within, 1e-9 * scale), False)
