"""The variances of the errors of rows, which may differ between batches."""

import numpy as np

from twinned.rows.schema import Floats, Indices

# Numbers of rows that the common variance counts for in a batch, of which the likeliest is chosen.
# The first is that of equal variances.
_COMMON_ROWS = (np.inf, 32.0, 16.0, 8.0, 4.0, 2.0)
_CLEAR_GAIN = 3.0  # of the log density of held-out errors, by variances that differ
_TAIL_OF_RATIOS = 2.0  # degrees of freedom of the t distribution of logarithms of variances
N_STEPS = 5  # of these variances


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


def log_density(squares: Floats, variances: Floats) -> Floats:
    """(row,): logarithms of the densities of errors with these squares, up to a constant."""
    return -0.5 * (squares / variances + np.log(variances))


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
