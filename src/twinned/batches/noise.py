"""The errors of rows of batches: heavy tails, and variances that differ between batches."""

from itertools import product

import numpy as np
from scipy.special import gammaln

from twinned.rows.schema import Floats, Indices

# The likeliest are chosen: degrees of freedom of the t distribution of errors, and numbers of rows
# that the common variance counts for in a batch. The first are those of equal normal ones.
NORMAL = 1e6
_TAILS = (NORMAL, 12.0, 6.0, 4.0, 3.0, 2.0)
_COMMON_ROWS = (np.inf, 32.0, 16.0, 8.0, 4.0, 2.0)
_CLEAR_GAIN = 3.0  # of the log density of held-out errors, by either of them
_TAIL_OF_RATIOS = 2.0  # degrees of freedom of the t distribution of logarithms of variances
N_STEPS = 5  # of the weights of outlying rows


def fit_noise(squares: Floats, codes: Indices, share: Floats) -> tuple[float, float, float]:
    """Degrees of freedom, rows of the common variance, and this variance in units of the errors.

    From `squares` (row,) of held-out errors in units of their standard deviations, and the `share`
    of their variances that is that of the errors of rows.

    >>> fit_noise(np.ones(40), np.arange(40) % 4, np.ones(40))
    (1000000.0, inf, 1.0)
    """
    best, result = -np.inf, (NORMAL, np.inf, 1.0)
    for tail, common_rows in product(_TAILS, _COMMON_ROWS):
        value, unit = _held_out_likelihood(squares, codes, share, tail, common_rows)
        value -= _CLEAR_GAIN * ((tail != NORMAL) + np.isfinite(common_rows))
        if value > best:
            best, result = value, (tail, common_rows, unit)
    return result if result[:2] != (NORMAL, np.inf) else (NORMAL, np.inf, 1.0)


def tail_weight(squares: Floats, tail: float) -> Floats:
    """(row,): weights of rows with these squares of scaled errors, by a t distribution."""
    return np.ones(len(squares)) if tail == NORMAL else (tail + 1.0) / (tail + squares)


def noise_ratio(
    sums: Floats | Indices, counts: Floats | Indices, common_rows: Floats | float
) -> Floats:
    """Variances of the errors of batches with these sums of scaled squares, in common ones.

    The common variance counts less in a batch that is clearly noisier than others.

    >>> noise_ratio(np.array([15.0, 250.0]), np.array([10.0, 10.0]), 10.0).round(2)
    array([ 1.25, 22.67])
    """
    excess = np.log(np.maximum(sums / np.maximum(counts, 1e-9), 1.0))
    score = excess**2 / (2.0 / np.maximum(counts, 1e-9) + 2.0 / common_rows)
    common_rows = common_rows / np.maximum(1.0, (_TAIL_OF_RATIOS + score) / (_TAIL_OF_RATIOS + 1.0))
    return 1.0 + (sums - counts) / (common_rows + counts)


def log_density(squares: Floats, variances: Floats, tail: float) -> Floats:
    """(row,): logarithms of the densities of errors with these squares, up to a constant."""
    constant = gammaln((tail + 1.0) / 2.0) - gammaln(tail / 2.0) - 0.5 * np.log(tail)
    scores = squares / variances
    return constant - 0.5 * ((tail + 1.0) * np.log1p(scores / tail) + np.log(variances))


def _held_out_likelihood(
    squares: Floats, codes: Indices, share: Floats, tail: float, common_rows: float
) -> tuple[float, float]:
    """Of errors, by the noise that the others of their batch have; and the common variance."""
    unit, counts = 1.0, np.bincount(codes, share)
    ratio: Floats = np.ones(len(counts))
    for _ in range(N_STEPS):
        weighted = squares * tail_weight(squares / (unit * ratio[codes]), tail)
        unit = float(np.average(weighted / ratio[codes], weights=share)) + 1e-9
        own = share * weighted / unit
        sums = np.bincount(codes, own)
        ratio = noise_ratio(sums, counts, common_rows)
    others = noise_ratio(sums[codes] - own, counts[codes] - share, common_rows)
    return float(log_density(squares, unit * others, tail).sum()), unit
