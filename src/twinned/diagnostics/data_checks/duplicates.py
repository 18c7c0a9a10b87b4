"""Checks for duplicate rows, nearly equal rows and replicates."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2

from twinned.diagnostics.data_checks.findings import CheckedTable, Finding
from twinned.diagnostics.data_checks.quick_model import held_out_together
from twinned.diagnostics.result import format_percent
from twinned.rows.folds import distinct_rows
from twinned.rows.formatting import format_significant
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

_LEAST_SHARE, _LEAST_ROWS = 0.01, 3  # of duplicate rows
_CHANCE = 3.0  # times as many equal pairs as independent features would have
_GAP = 0.05  # nearest rows are nearly equal if they are so much nearer than the next one
_MAX_NEAR = 9  # rows that are nearly equal to one
_LEAST_NEAR = 0.03  # share of nearly equal rows
LEAST_RATIO = 1.05  # of errors, that is reported
_LEAST_DEGREES = 5  # of freedom of a noise floor
_COMMON_SHARE = 0.3  # of replicates whose noise is that of all rows


def check_duplicates(table: CheckedTable) -> list[Finding]:
    """Find rows that are equal in all features and the target, more than occur by chance."""
    counts = np.bincount(distinct_rows(np.column_stack([table.matrix, table.y]))[1])
    n_copies = table.n_rows - len(counts)
    if n_copies < max(_LEAST_ROWS, _LEAST_SHARE * table.n_rows):
        return []
    n_pairs = float(np.sum(counts * (counts - 1) / 2))
    if n_pairs < _CHANCE * _pairs_by_chance(table):
        return []
    share = n_copies / table.n_rows
    effect = _effect_of_copies(table)
    return [
        Finding(
            "TW101",
            f"{n_copies:,} of {table.n_rows:,} rows ({format_percent(share)}) repeat another row, "
            f"the target included.{effect}",
            "Remove copies, unless they are separate measurements. Here equal rows are held out "
            "together and merged, so the errors reported here do not profit from them; with the "
            "random folds of other tools they would.",
            {"rows": n_copies, "share": share},
        )
    ]


def _pairs_by_chance(table: CheckedTable) -> float:
    """Return the expected number of equal pairs of rows if all columns were independent."""
    log_share = 0.0
    for column in (*table.matrix.T, table.y):
        frequency = np.bincount(distinct_rows(column[:, None])[1]) / len(column)
        log_share += float(np.log(np.sum(frequency**2)))
    n = table.n_rows
    return float(n * (n - 1) / 2 * np.exp(log_share))


def _effect_of_copies(table: CheckedTable) -> str:
    sample = table.sample()
    groups = distinct_rows(sample.matrix)[1]
    if groups.max() + 1 == sample.n_rows or groups.max() < 9:
        return ""
    random, together, _ = held_out_together(sample, groups)
    if random * LEAST_RATIO > together:
        return ""
    return f" Random folds make the error look {format_percent(1 - random / together)} lower."


def find_near_duplicates(sample: CheckedTable) -> Finding | None:
    """Find rows with nearly equal features that lower the error where folds separate them.

    Pairs are reported as nearly equal rows, and larger sets as groups.
    """
    groups = near_groups(sample)
    counts = np.bincount(groups)
    several = counts[counts > 1]
    n_near = int(several.sum())
    if n_near < max(_LEAST_ROWS, _LEAST_NEAR * sample.n_rows) or len(counts) < 10:
        return None
    random, together, ratio = held_out_together(sample, groups)
    if ratio.value < LEAST_RATIO or ratio.low <= 1:
        return None
    share = n_near / sample.n_rows
    errors = (
        f"Held out together, the error of a quick model is {format_significant(together)} instead "
        f"of {format_significant(random)}."
    )
    numbers = {
        "share": share,
        "groups": len(several),
        "rmse_random_folds": random,
        "rmse_held_out_together": together,
        "ratio": ratio.value,
    }
    if several.mean() > 2.5:
        found = (
            f"{format_percent(share)} of the rows form groups with nearly equal features, of "
            f"{several.mean():.1f} rows on average. {errors}"
        )
        return Finding("TW104", found, GROUP_ADVICE, numbers)
    return Finding(
        "TW102",
        f"{format_percent(share)} of the rows have nearly the same features as another row. "
        + errors,
        "Remove copies, or give rows that belong together the same value of a column and name it "
        "with --group (groups in Python).",
        numbers,
    )


GROUP_ADVICE = (
    "If new rows will come from new groups, name the group of each row with --group (groups in "
    "Python); otherwise the errors reported here are too low for them."
)


def near_groups(sample: CheckedTable) -> Indices:
    """(row,) codes of groups of nearly equal rows; all rows differ where there are few by chance.

    The k nearest rows of a row are nearly equal to it if they are at most a twentieth as far as the
    next one. With features of m dimensions this has a probability of about 20⁻ᵐ. No two rows have
    exactly equal features.
    """
    n, k = sample.n_rows, _MAX_NEAR + 1
    alone = np.arange(n)
    if n < 2 * k:
        return alone
    distances = sample.distances.copy()
    np.fill_diagonal(distances, np.inf)
    nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1)
    nearest = np.take_along_axis(nearest, order, axis=1)
    near = np.take_along_axis(distances, nearest, axis=1)
    ratios = near[:, :-1] / np.maximum(near[:, 1:], 1e-300)
    gap = np.argmin(ratios, axis=1)
    rows = np.flatnonzero(ratios.min(axis=1) < _GAP)
    if len(rows) <= 2 * n * _share_by_chance(near):
        return alone
    linked = np.zeros((n, n), dtype=bool)
    for row in rows:
        linked[row, nearest[row, : gap[row] + 1]] = True
    return np.asarray(connected_components(linked, directed=False)[1], dtype=np.intp)


def _share_by_chance(near: Floats) -> float:
    """Return the expected share of rows with a gap, from (row, k) distances of nearest rows."""
    middle = near.shape[1] // 2
    spread = np.log(near[:, -1] / np.maximum(near[:, middle - 1], 1e-300))
    dimensions = np.sum(1.0 / np.arange(middle, near.shape[1])) / max(np.median(spread), 1e-9)
    share = _GAP ** max(1.0, dimensions)
    return float(share / (1 - share))


def check_replicates(table: CheckedTable) -> list[Finding]:
    """Find rows with equal features and different values, and the noise that they imply."""
    codes = distinct_rows(table.matrix)[1]
    counts = np.bincount(codes)
    degrees = table.n_rows - len(counts)
    means = np.bincount(codes, weights=table.y) / counts
    within = float(np.sum((table.y - means[codes]) ** 2))
    if degrees < _LEAST_DEGREES or within <= 1e-24 * float(np.sum(table.y**2)):
        return []
    noise = float(np.sqrt(within / degrees))
    low, high = (float(np.sqrt(within / chi2.ppf(q, degrees))) for q in (0.95, 0.05))
    if noise < 0.02 * table.y.std():
        return []
    n_rows = int(counts[counts > 1].sum())
    shown, low_shown, high_shown = (format_significant(value, 2) for value in (noise, low, high))
    is_common = n_rows >= _COMMON_SHARE * table.n_rows
    scope = "no model of these features can" if is_common else "on these rows no model can"
    return [
        Finding(
            "TW103",
            f"{n_rows:,} rows agree in all features with another row; within such replicates the "
            f"standard deviation of the target is {shown} ({low_shown} to {high_shown}): {scope} "
            f"have an RMSE much below {shown}.",
            "Compare it with the errors reported here. To go lower, measure more precisely, "
            "average replicates, or add a feature in which they differ.",
            {"noise": noise, "interval": [low, high], "rows": n_rows},
        )
    ]
