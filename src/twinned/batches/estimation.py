"""Estimates of the deviations of batches, of their variances and of those of errors, and tables.

First estimates are made before models are fitted to y without the deviations.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from twinned.batches.effects import (
    LOST_FREEDOM,
    N_STEPS,
    BatchEffects,
    Deviation,
    log_density,
    noise_ratio,
)
from twinned.batches.joint import MAX_ROWS, CommonFunction, fit_joint, order_of_batches
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TargetBounds, TrainingRows
from twinned.rows.validation import check_choice

_CLEAR_GAIN = 3.0  # of the log density of held-out residuals, by a less simple model of them
_ROWS_OF_BATCH = 1000  # by which a deviation that is no constant is known
_ROWS_OF_TABLES = 200  # by which means of deviations are computed
# Numbers of rows that the common variance counts for in a batch, of which the likeliest is chosen.
# The first is that of equal variances.
_COMMON_ROWS = (np.inf, 32.0, 16.0, 8.0, 4.0, 2.0)
_NOISE_FACTORS = (-5.0, 4.0)  # logarithms, of the variance of the errors
_BETWEEN = np.exp(np.linspace(-14.0, 14.0, 281))  # variances that are compared

KINDS = ["auto", "offset", "function"]

Rows = TypeVar("Rows", bound=TrainingRows)


def remove_deviations(rows: Rows, kind: str, *, shrinks: bool) -> Rows:
    """The rows with first estimates of the deviations of their batches, and y without them.

    They are those of a Gaussian process of the features and of the deviations, each as expected by
    the other rows. Without `shrinks`, a constant that is added to all y of one batch changes its
    deviation alone, by the constant.

    Parameters
    ----------
    rows : TrainingRows
        Those without batches are not changed.
    kind : {"auto", "offset", "function"}
        Whether deviations are constants, or functions of the features.
    shrinks : bool
        See `BatchEffects`.
    """
    check_choice("batch_effect", kind, KINDS)
    if rows.batch is None:
        return rows
    names, codes = np.unique(rows.batch, return_inverse=True)
    used = rows.known
    if rows.weight is not None:
        used = used[rows.weight[used] > 0]
    known = replace(rows, batch=codes).take(used)
    features, known_codes = known.rows.features, np.asarray(known.batch)
    weight = np.ones(len(known)) if known.weight is None else known.weight / known.weight.mean()
    means = np.full(len(names), np.average(known.y, weights=weight))
    if not shrinks:
        sums = np.bincount(known_codes, weight, len(names))
        means = np.bincount(known_codes, weight * known.y, len(names)) / np.maximum(sums, 1e-300)
    y = _rounded(known.y - means[known_codes])
    joint = fit_joint(features, y, known_codes, weight, has_free_constants=not shrinks, kind=kind)
    parts = joint.deviation.scaled(features), y, known_codes, weight
    deviation, common = joint.held_out(*parts, np.arange(len(y)))
    shift = float(np.average(y - deviation, weights=weight))
    residual = y - common + shift + means[known_codes]
    effects = BatchEffects(
        names=names.tolist(),
        deviation=joint.deviation,
        features=features,
        codes=known_codes,
        residual=residual,
        weight=weight,
        noise_ratio=np.ones(len(names)),
        common_rows=np.full(len(names), np.inf),
        shrinks=shrinks,
        center=float(np.average(residual, weights=weight)),
        kind=kind,
    )
    # blends estimate the variances again, by their out-of-fold residuals
    effects = _with_uncertainty(effects) if shrinks else estimate_effects(effects)
    removed = effects.of_rows(rows.rows.features, codes)[0]
    removed[used] = deviation + shift + means[known_codes]
    has_common = shrinks and len(y) <= MAX_ROWS
    return replace(
        rows,
        y=effects.rounded(rows.y - removed),
        bounds=rows.bounds
        and TargetBounds(*(effects.rounded(end - removed) for end in rows.bounds)),
        batch=codes,
        deviation=removed,
        effects=effects,
        common=CommonFunction(joint, *parts, shift) if has_common else None,
    )


def _rounded(y: Floats) -> Floats:
    """Y far below its spread, so that estimates do not depend on what was subtracted."""
    unit = 10.0 ** np.floor(np.log10(max(float(np.std(y)), 1e-290)) - 10)
    return np.round(y / unit) * unit


def fit_noise(squares: Floats, codes: Indices, share: Floats) -> tuple[float, float]:
    """Rows that the common variance counts for, and this variance in units of the errors.

    From `squares` (row,) of held-out errors in units of their standard deviations, and the `share`
    of their variances that is that of the errors of rows.

    >>> fit_noise(np.ones(40), np.arange(40) % 4, np.ones(40))
    (inf, 1.0)
    """
    best, result = -np.inf, (np.inf, 1.0)
    for common_rows in _COMMON_ROWS:
        value, unit = _held_out_likelihood(squares, codes, share, common_rows)
        value -= _CLEAR_GAIN * np.isfinite(common_rows)
        if value > best:
            best, result = value, (common_rows, unit)
    return result if np.isfinite(result[0]) else (np.inf, 1.0)


def _held_out_likelihood(
    squares: Floats, codes: Indices, share: Floats, common_rows: float
) -> tuple[float, float]:
    """Of errors, by the noise that the others of their batch have; and the common variance."""
    counts = np.bincount(codes, share)
    ratio: Floats = np.ones(len(counts))
    for _ in range(N_STEPS):
        unit = float(np.average(squares / ratio[codes], weights=share)) + 1e-9
        own = share * squares / unit
        sums = np.bincount(codes, own)
        ratio = noise_ratio(sums, counts, common_rows)
    others = noise_ratio(sums[codes] - own, counts[codes] - share, common_rows)
    return float(log_density(squares, unit * others).sum()), unit


def estimate_effects(known: BatchEffects) -> BatchEffects:
    """With variances of the errors and of the constants that the residuals of known rows show.

    The covariance of functions remains, and a factor of their variance of the errors is found.
    """
    constant = replace(known.deviation, slope=0.0, smooth=0.0)
    effects = _fit(known, constant if known.kind == "offset" else known.deviation)
    if known.kind == "auto" and not known.deviation.is_constant:
        by_constants = _fit(known, constant)
        gain = effects.log_likelihood() - by_constants.log_likelihood()
        effects = effects if gain > _CLEAR_GAIN else by_constants
    effects = _with_uncertainty(effects)
    return effects.with_noise_ratios(effects.known_batches)


def _fit(known: BatchEffects, deviation: Deviation) -> BatchEffects:
    weight = known.weight / known.weight.mean()
    if not deviation.is_constant:  # of a large batch, some rows
        order, position = order_of_batches(known.codes)
        weight[order[position >= _ROWS_OF_BATCH]] = 0.0
    effects = replace(
        known,
        deviation=deviation,
        weight=weight,
        noise_ratio=np.ones(len(known.names)),
        common_rows=np.full(len(known.names), np.inf),
    )
    effects = _with_noise(_with_errors(effects))
    if np.isfinite(effects.common_rows).any():
        effects = _with_errors(effects)  # by rows with other variances
    return effects


def _with_errors(effects: BatchEffects) -> BatchEffects:
    """With the variance of the errors of rows, and then that of the constants.

    Where deviations are constants, it is that within batches; else the one by which held-out
    residuals are likeliest.
    """
    if effects.deviation.is_constant:
        return _with_error_variance(effects, _variance_within(effects))
    noise = effects.deviation.noise

    def loss(factor: float) -> float:
        candidate = _with_error_variance(effects, noise * np.exp(factor))
        return -candidate.log_likelihood()

    options = {"xatol": 0.1}
    found = minimize_scalar(loss, bounds=_NOISE_FACTORS, method="bounded", options=options)
    return _with_error_variance(effects, noise * float(np.exp(found.x)))


def _variance_within(effects: BatchEffects) -> float:
    """Of residuals within batches of several rows."""
    codes, residual = effects.codes, effects.residual
    weight = effects.weight / effects.noise_ratio[codes]
    sums = np.bincount(codes, weight)
    means = np.bincount(codes, weight * residual) / np.maximum(sums, 1e-300)
    centered = residual - means[codes]
    used = (np.bincount(codes)[codes] > 1) & (weight > 0)
    size = np.abs(residual).max() + 1e-280
    if not used.any() or np.sqrt(np.mean(centered[used] ** 2)) <= 1e-12 * size:
        return 1e-24 * float(np.mean(residual**2)) + 1e-280
    freedom = np.count_nonzero(used) - len(np.unique(codes[used]))
    return float(np.sum(weight[used] * centered[used] ** 2)) / freedom


def _with_error_variance(effects: BatchEffects, noise: float) -> BatchEffects:
    """With this variance of the errors, and constants whose variance and mean are estimated."""
    effects = replace(effects, deviation=replace(effects.deviation, noise=noise))
    free = replace(effects, shrinks=False)
    solutions = [free.solution(int(code)) for code in effects.known_batches]
    means = np.array([solution.constant for solution in solutions])
    variance = np.array([solution.variance for solution in solutions])
    between = variance_between(means, variance)
    center = float(np.average(means, weights=1.0 / (between + variance + 1e-300)))
    return replace(effects, deviation=replace(effects.deviation, between=between), center=center)


def _with_noise(effects: BatchEffects) -> BatchEffects:
    """With variances of the errors that differ between batches, if held-out errors show them."""
    held_out = effects.held_out(effects.known_batches)
    common_rows, unit = fit_noise(held_out.squares, held_out.codes, held_out.share)
    effects = replace(
        effects,
        deviation=replace(effects.deviation, noise=effects.deviation.noise * unit),
        common_rows=np.full(len(effects.names), common_rows),
    )
    return effects.with_noise_ratios(effects.known_batches)


def _with_uncertainty(effects: BatchEffects) -> BatchEffects:
    """With larger variances of deviations, as these are estimates from few batches.

    The common function is nearest to the batches that it was fitted to, and the deviation of a new
    one has a t distribution.
    """
    n_batches = max(len(effects.known_batches), 4)
    factor = (n_batches + 1.0) / (n_batches - 1.0 - LOST_FREEDOM)
    deviation = effects.deviation
    larger = replace(
        deviation,
        slope=deviation.slope * factor,
        smooth=deviation.smooth * factor,
        between=deviation.between * factor,
    )
    return replace(effects, deviation=larger)


def tabulate_offsets(effects: BatchEffects, n_rows: Indices) -> pd.DataFrame:
    """Mean deviations relative to that of all batches, their errors and numbers of rows."""
    features = _sample(effects)
    means, errors = [], []
    for code, known in enumerate(effects.n_known):
        codes = np.full(len(features), code if known else -1)
        means.append(effects.of_rows(features, codes)[0].mean() - effects.center)
        errors.append(np.sqrt(effects.covariance(features, codes).mean()))
    columns = {"offset": means, "std_error": errors, "n_rows": n_rows}
    return pd.DataFrame(columns, index=pd.Index(effects.names, name="batch"))


def tabulate_effects(
    effects: BatchEffects, n_rows: Indices, columns: dict[str, int]
) -> pd.DataFrame:
    """What `batch_effects_` of an estimator has; `columns` are encoded features by their names."""
    table = tabulate_offsets(effects, n_rows).rename(columns={"offset": "deviation"})
    features, n_known = _sample(effects), effects.n_known
    for name, column in columns.items():
        step = np.zeros(features.shape[1])
        step[column] = 0.1 * np.nanstd(features[:, column]) or 1.0
        slopes = []
        for code in range(len(effects.names)):
            codes = np.full(len(features), code if n_known[code] else -1)
            high, low = (effects.of_rows(features + sign * step, codes)[0] for sign in (1.0, -1.0))
            slopes.append((high - low).mean() / (2.0 * step[column]))
        table[f"slope {name}"] = slopes
    table["noise_std"] = effects.within * np.sqrt(effects.noise_ratio)
    held_out = effects.held_out(effects.known_batches)
    std = np.sqrt(held_out.variance) * effects.error_ratio(held_out.codes)
    is_covered = np.abs(held_out.errors) <= ndtri(0.95) * std
    rows = pd.DataFrame({"rmse": held_out.errors**2, "coverage": is_covered})
    means = rows.groupby(held_out.codes).mean().reindex(range(len(table)))
    table["rmse"] = means["rmse"].to_numpy() ** 0.5
    table["coverage"] = means["coverage"].to_numpy()
    return table


def _sample(effects: BatchEffects) -> Floats:
    """Features of some known rows of all batches."""
    order = np.random.RandomState(0).permutation(len(effects.codes))[:_ROWS_OF_TABLES]
    return effects.features[order]


def variance_between(means: Floats, variance: Floats) -> float:
    """The variance of constants, from estimates that have these variances.

    The restricted likelihood, with a Gamma(2) prior of the standard deviation that keeps it from
    zero: few batches that look alike may still differ (Chung et al., 2013).

    >>> bool(0 < variance_between(np.ones(5), np.ones(5)) < 1)
    True
    """
    unit = float(np.median(variance)) + float(np.var(means)) + 1e-280
    candidates = unit * _BETWEEN
    precision = 1.0 / (candidates[:, None] + variance)
    total = precision.sum(axis=1)
    deviations = means - (precision @ means / total)[:, None]
    value = np.sum(np.log(precision) - precision * deviations**2, axis=1) - np.log(total)
    return float(candidates[np.argmax(value + np.log(candidates))])
