"""Variances of the deviations of batches and of the errors of their rows, from residuals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar

from twinned.batches.deviation import Deviation, variance_between
from twinned.batches.effects import LOST_FREEDOM, BatchEffects
from twinned.batches.noise import fit_noise

_MAX_ROWS = 1000  # of a batch, by which a deviation that is no constant is known
_NOISE_FACTORS = (-5.0, 4.0)  # logarithms, of the variance of the errors
_CLEAR_GAIN = 3.0  # of the log density of held-out residuals, by a deviation that is a function


def estimate_effects(known: BatchEffects) -> BatchEffects:
    """With variances of the errors and of the constants that the residuals of known rows show.

    The covariance of functions remains, and a factor of their variance of the errors is found.
    """
    constant = replace(known.deviation, slope=0.0, smooth=0.0)
    if known.kind == "offset" or known.deviation.is_constant:
        return _fit(known, constant)
    by_functions = _fit(known, known.deviation)
    if known.kind == "function":
        return by_functions
    by_constants = _fit(known, constant)
    gains = by_functions.log_densities() - by_constants.log_densities()
    return by_functions if gains.sum() > _CLEAR_GAIN else by_constants


def _fit(known: BatchEffects, deviation: Deviation) -> BatchEffects:
    weight = known.weight / known.weight.mean()
    if not deviation.is_constant:  # of a large batch, some rows
        order = np.random.RandomState(0).permutation(len(known.codes))
        order = order[np.argsort(known.codes[order], kind="stable")]
        sorted_codes = known.codes[order]
        position = np.arange(len(order)) - np.searchsorted(sorted_codes, sorted_codes)
        weight[order[position >= _MAX_ROWS]] = 0.0
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
    return with_uncertainty(effects).with_noise_ratios(effects.known_batches)


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
        return -float(candidate.log_densities().sum())

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


def with_uncertainty(effects: BatchEffects) -> BatchEffects:
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
