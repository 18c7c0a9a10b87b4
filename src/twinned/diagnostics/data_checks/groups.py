"""Checks for groups of rows that no column names: partly equal rows, identifiers, row order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array, hstack
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata

from twinned.diagnostics.data_checks.duplicates import GROUP_ADVICE, find_near_duplicates
from twinned.diagnostics.data_checks.findings import CheckedTable, Finding
from twinned.diagnostics.data_checks.quick_model import (
    held_out_together,
    quick_predictions,
    tree_predictions,
)
from twinned.diagnostics.result import format_percent
from twinned.rows.formatting import format_significant
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

_LEAST_SHARE = 0.1  # of rows in groups
_LEAST_RATIO = 1.1  # of errors with groups held out together and with random folds
_SURPRISE = 3.0  # beyond twice the logarithm of the number of rows
_LEAST_GROUPS = 10
_MAX_RARE = 0.02  # probability that two rows agree in a feature
# Of correlations between the residuals of rows that may belong together.
_LEAST_CORRELATION, _LEAST_Z = 0.15, 4.0
_NEAR_ROWS = 10  # in the order of the table
_N_CONTROLS = 5
_MAX_GROUP_ROWS = 12  # mean number of rows of a value of an identifier
_LEAST_ROWS = 40


def check_groups(sample: CheckedTable) -> list[Finding]:
    """Find groups of rows whose errors are lower where folds separate them; at most one finding.

    No two rows of the sample have equal features.
    """
    if sample.n_rows < _LEAST_ROWS:
        return []
    near = [find_near_duplicates(sample), _partly_equal_rows(sample)]
    measured = [found for found in near if found is not None]
    if measured:
        return [max(measured, key=lambda found: float(found.numbers["ratio"]))]
    residual = sample.y - quick_predictions(sample)
    found = _identifiers(sample, residual) or _row_order(sample, residual)
    return [] if found is None else [found]


# --- rows that agree in many features -----------------------------------------------------------


def _partly_equal_rows(sample: CheckedTable) -> Finding | None:
    """Report rows that agree in more features than happens by chance."""
    groups = partly_equal_groups(sample.matrix)
    counts = np.bincount(groups)
    share = float(np.mean(counts[groups] > 1))
    if share < _LEAST_SHARE or len(counts) < _LEAST_GROUPS:
        return None
    random, together, ratio = held_out_together(sample, groups, tree_predictions)
    if ratio.value < _LEAST_RATIO or ratio.low <= 1:
        return None
    several = counts[counts > 1]
    return Finding(
        "TW104",
        f"{format_percent(share)} of the rows agree with others in most features, in groups of "
        f"{several.mean():.1f} rows on average, such as measurements of one sample. Held out "
        f"together, the error of extra trees is {format_significant(together)} instead of "
        f"{format_significant(random)}.",
        GROUP_ADVICE,
        {
            "kind": "partly equal rows",
            "share": share,
            "groups": len(several),
            "rmse_random_folds": random,
            "rmse_held_out_together": together,
            "ratio": ratio.value,
        },
    )


def partly_equal_groups(matrix: Floats) -> Indices:
    """(row,) codes of groups of rows that agree in more features than happens by chance.

    Agreement in a feature counts with minus the logarithm of its probability, so that rare values
    count much and those of a designed grid little. Two rows belong together where the sum exceeds
    twice the logarithm of the number of rows by 3: among independent features, 0.03 pairs of rows
    would.
    """
    n = len(matrix)
    agreement = np.zeros((n, n), dtype=np.float32)
    rare = []  # indicators of columns with few equal pairs, whose product is sparse
    for column in matrix.T:
        values, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
        probability = float(np.sum((counts / n) ** 2))
        if len(values) == n or probability == 1:
            continue
        weight = np.float32(-np.log(probability))
        if probability > _MAX_RARE:
            agreement += (codes[:, None] == codes) * weight
            continue
        row = np.flatnonzero(counts[codes] > 1)
        entries = np.full(len(row), np.sqrt(weight)), (row, codes[row])
        rare.append(coo_array(entries, shape=(n, len(values))))
    if rare:
        indicators = hstack(rare).tocsr()
        agreement += (indicators @ indicators.T).toarray()
    linked = agreement > 2 * np.log(n) + _SURPRISE
    return np.asarray(connected_components(linked, directed=False)[1], dtype=np.intp)


# --- identifiers of groups among the features ---------------------------------------------------


def _identifiers(sample: CheckedTable, residual: Floats) -> Finding | None:
    """Report a feature whose equal values mark rows with similar residuals."""
    for feature, name in enumerate(sample.names):
        column = sample.matrix[:, feature]
        if not _may_be_identifier(column, sample.n_rows):
            continue
        correlation, z = identifier_correlation(column, residual, sample.is_categorical(feature))
        if correlation > _LEAST_CORRELATION and z > _LEAST_Z:
            n_values = len(np.unique(column))
            return Finding(
                "TW104",
                f"The {n_values} values of {name!r} seem to name groups of rows: errors of rows "
                f"with the same value are similar (correlation {correlation:.2f}), those of rows "
                "with adjacent values are not.",
                f"If new rows will come from new groups, use --group {name!r} (groups in Python); "
                "otherwise the errors reported here are too low for them.",
                {"kind": "identifier", "column": name, "correlation": correlation},
            )
    return None


def _may_be_identifier(column: Floats, n_rows: int) -> bool:
    """Whether a column has many different whole numbers or categories, each several times."""
    if np.isnan(column).any() or np.any(column != np.round(column)):
        return False
    n_values = len(np.unique(column))
    return _LEAST_GROUPS <= n_values <= n_rows / 2 and n_rows / n_values <= _MAX_GROUP_ROWS


def identifier_correlation(
    column: Floats, residual: Floats, is_categorical: bool
) -> tuple[float, float]:
    """Correlation of the residuals of rows with equal values, and its z-score.

    Of a numeric column, the correlation of rows with adjacent values is subtracted: a smooth effect
    of the column gives both.
    """
    rng, scores = np.random.RandomState(0), _normalized_ranks(residual)
    values, codes = np.unique(column, return_inverse=True)
    members = [rng.permutation(np.flatnonzero(codes == code)) for code in range(len(values))]
    same = np.concatenate([scores[own[1:]] * scores[own[:-1]] for own in members])
    difference, error = _mean_and_error(same)
    if not is_categorical:
        adjacent = np.concatenate(
            [scores[own] * scores[rng.choice(other, len(own))] for own, other in pairwise(members)]
        )
        mean, adjacent_error = _mean_and_error(adjacent)
        difference, error = difference - mean, float(np.hypot(error, adjacent_error))
    return difference, difference / error


# --- order of the rows --------------------------------------------------------------------------


def _row_order(sample: CheckedTable, residual: Floats) -> Finding | None:
    """Report residuals that are similar in adjacent rows of the table.

    A quick model leaves residuals that are similar for similar rows of a sorted table; those of
    trees decide.
    """
    if (np.diff(sample.y) >= 0).mean() > 0.95 or (np.diff(sample.y) <= 0).mean() > 0.95:
        return None  # sorted by the target
    for own in (lambda: residual, lambda: sample.y - tree_predictions(sample)):
        correlation, z = order_correlation(sample, own())
        if correlation < _LEAST_CORRELATION or z < _LEAST_Z:
            return None
    return Finding(
        "TW104",
        "Adjacent rows of the table have similar errors beyond what their features explain "
        f"(correlation {correlation:.2f}), as batches, days or samples do.",
        "Find out what orders the rows: add it as a feature (a date, a temperature), or name the "
        "batch of each row with --group (groups in Python), so that errors hold for new batches.",
        {"kind": "row order", "correlation": correlation, "z": z},
    )


def order_correlation(sample: CheckedTable, residual: Floats) -> tuple[float, float]:
    """Correlation of the residuals of adjacent rows beyond that of equally distant others, and z.

    Each row is compared with the next one, and with five rows elsewhere in the table whose features
    are about as far away.
    """
    scores, n = _normalized_ranks(residual), sample.n_rows
    row = np.arange(n - 1)
    gaps = np.abs(sample.distances[:-1] - sample.distances[row, row + 1][:, None])
    gaps[np.abs(np.arange(n) - row[:, None]) <= _NEAR_ROWS] = np.inf
    controls = np.argpartition(gaps, _N_CONTROLS - 1, axis=1)[:, :_N_CONTROLS]
    beyond = scores[:-1] * (scores[1:] - scores[controls].mean(axis=1))
    mean, error = _mean_and_error(beyond)
    return mean, mean / error


def _normalized_ranks(values: Floats) -> Floats:
    """Return ranks with mean 0 and standard deviation 1."""
    ranks = rankdata(values)
    std = ranks.std()
    return np.asarray((ranks - ranks.mean()) / (std if std > 0 else 1.0))


def _mean_and_error(values: Floats) -> tuple[float, float]:
    """Return the mean and its standard error, infinite for fewer than ten values."""
    if len(values) < 10:
        return 0.0, np.inf
    return float(values.mean()), float(max(values.std() / np.sqrt(len(values)), 1e-300))
