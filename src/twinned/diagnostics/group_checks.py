"""Checks of rows that belong together although no groups are given: similar rows, and batches.

Rows that agree in most features belong together if the error of a quick model is higher where they
are held out together. A feature names batches if the residuals of rows with equal values are alike,
and those of rows with adjacent numbers, which a smooth effect makes alike, are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice, pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, hstack
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata, zscore

from twinned.diagnostics.errors import format_percent, rmse, rmse_ratio
from twinned.diagnostics.findings import CheckedTable, Finding, quick_predictions
from twinned.diagnostics.row_checks import check_time_order
from twinned.estimators.auto import AutoTwinRegressor
from twinned.rows.batches import batch_labels
from twinned.rows.formatting import format_significant
from twinned.rows.neighbors import Indices, NeighborIndex
from twinned.rows.schema import Floats

_LEAST_ROWS, _LEAST_GROUPS = 40, 10
_LEAST_SHARE, _LEAST_RATIO = 0.05, 1.05  # of rows in groups, and of errors
_GAP = 0.05  # nearest rows are nearly equal if they are so much nearer than the next one
_MAX_NEAR = 9  # rows that are nearly equal to one
_SURPRISE = 3.0  # beyond twice the logarithm of the number of rows
_MAX_RARE = 0.02  # probability that two rows agree in a feature
_LEAST_CORRELATION, _LEAST_Z, _LEAST_PAIRS = 0.15, 4.0, 10  # of residuals in batches
# Of names of batches: the candidate that is mentioned where there are several.
_BATCH_NAME = re.compile(r"lab|batch|lot|instrument|operator|site|device|plate|run|subject", re.I)
_CLEARLY_LOWER, _HARDLY_LOWER = 0.95, 0.99  # of errors
_LEAST_NOISE = 2.0  # of a batch, in units of the median
_QUICK = ["ridge", "gp_matern", "extra_trees:small"]  # members that compare uses of batches
_MAX_BATCH_ROWS = 200  # for the comparison


# --- groups of similar rows -----------------------------------------------------------------------


def check_groups(sample: CheckedTable) -> Iterator[Finding]:
    """Find groups of similar rows; at most one finding of them.

    No two rows of the sample have equal features. Rows in the order of time are another finding.
    """
    yield from check_time_order(dict(zip(sample.names, sample.matrix.T, strict=True)))
    if sample.n_rows < _LEAST_ROWS:
        return
    nearly_equal = _similar_rows(sample, near_groups(sample), "nearly all")
    partly_equal = _similar_rows(sample, partly_equal_groups(sample.matrix), "most")
    yield from islice(chain(nearly_equal, partly_equal), 1)


def _similar_rows(sample: CheckedTable, codes: Indices, features: str) -> Iterator[Finding]:
    """Find that the error is higher where rows that agree in these features are held out together.

    `features` are "most" or "nearly all" of them; `codes` (row,) are those of the groups.
    """
    counts = np.bincount(codes)
    sizes = counts[counts > 1]
    share = float(sizes.sum() / sample.n_rows)
    if share < _LEAST_SHARE or len(counts) < _LEAST_GROUPS:
        return
    is_partly = features == "most"
    apart = quick_predictions(sample, trees=is_partly)
    together = quick_predictions(sample, codes, trees=is_partly)
    ratio = rmse_ratio(together, apart, sample.y, codes)
    if ratio.value < _LEAST_RATIO or ratio.low <= 1:
        return
    errors = rmse(apart, sample.y), rmse(together, sample.y)
    error, error_together = map(format_significant, errors)
    mean_size = float(sizes.mean())
    is_pairs = not is_partly and mean_size <= 2.5
    yield Finding(
        "TW102" if is_pairs else "TW104",
        f"{format_percent(share)} of the rows agree with others in {features} features, in groups "
        f"of {mean_size:.1f} rows on average. Held out together, the error of a quick model is "
        f"{error_together} instead of {error}.",
        f"{'Remove copies. ' if is_pairs else ''}If new rows will come from new groups, name the "
        "group of each row with --group (groups in Python); otherwise the errors reported here are "
        "too low for them.",
        {"share": share, "groups": len(sizes), "mean_size": mean_size, "ratio": ratio.value},
    )


def near_groups(sample: CheckedTable) -> Indices:
    """(row,) codes of groups of nearly equal rows; all rows differ where there are few by chance.

    The k nearest rows of a row are nearly equal to it if they are at most a twentieth as far as the
    next one. With features of m dimensions this has a probability of about 20⁻ᵐ. No two rows have
    exactly equal features.
    """
    n = sample.n_rows
    nearest = NeighborIndex(sample.features).kneighbors_self(_MAX_NEAR + 1)
    near = np.take_along_axis(sample.distances, nearest, axis=1)
    ratios = near[:, :-1] / np.maximum(near[:, 1:], 1e-300)
    gap = np.argmin(ratios, axis=1)
    rows = np.flatnonzero(ratios.min(axis=1) < _GAP)
    if len(rows) <= 2 * n * _share_by_chance(near):
        return np.arange(n)
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


# --- batches --------------------------------------------------------------------------------------


def check_batch_offsets(sample: CheckedTable) -> Iterator[Finding]:
    """Find offsets of batches, which are given or the values of a feature, and different scales."""
    if sample.batch is not None:
        yield from describe_batches(sample, sample.batch_name, sample.batch)
        return
    correlations = {}
    for j in range(len(sample.names)):
        if (correlation := batch_correlation(sample, j)) > _LEAST_CORRELATION:
            correlations[j] = bool(_BATCH_NAME.search(sample.names[j])), correlation
    if not correlations:
        return
    likeliest = max(correlations, key=lambda j: correlations[j])
    labels, categories = sample.matrix[:, likeliest], sample.schema.categories[likeliest]
    if categories:
        labels = np.array(categories)[labels.astype(np.intp)]
    yield from describe_batches(sample.without(likeliest), sample.names[likeliest], labels)


def batch_correlation(sample: CheckedTable, feature: int) -> float:
    """Return the correlation of residuals of rows with equal values of a feature; 0 if unclear.

    It is that of their ranks. A numeric feature remains in the quick model, and the correlation of
    rows with adjacent values is subtracted, so that a smooth effect of it is no sign.
    """
    values, codes = np.unique(sample.matrix[:, feature], return_inverse=True)
    is_category = feature in sample.schema.categorical
    is_code = is_category or np.ptp(values) < 2 * len(values)  # numbers in sequence
    is_whole = bool((values == np.round(values)).all())  # and none is missing
    if not is_whole or not is_code or not 2 <= len(values) <= sample.n_rows / 3:
        return 0.0
    predicted = (
        quick_predictions(sample.without(feature)) if is_category else sample.quick_prediction
    )
    scores = np.nan_to_num(zscore(rankdata(sample.y - predicted)))
    rng = np.random.RandomState(0)
    batches = [rng.permutation(np.flatnonzero(codes == code)) for code in range(len(values))]
    same = [scores[rows[1:]] * scores[rows[:-1]] for rows in batches]
    correlation, error = _mean_and_error(np.concatenate(same))
    if not is_category:
        adjacent = [
            scores[rows] * scores[rng.choice(next_rows, len(rows))]
            for rows, next_rows in pairwise(batches)
        ]
        of_adjacent, error_of_adjacent = _mean_and_error(np.concatenate(adjacent))
        correlation -= of_adjacent
        error = float(np.hypot(error, error_of_adjacent))
    return correlation if correlation > _LEAST_Z * error else 0.0


def _mean_and_error(values: Floats) -> tuple[float, float]:
    """Return the mean and its standard error, infinite for few values."""
    if len(values) < _LEAST_PAIRS:
        return 0.0, np.inf
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def describe_batches(others: CheckedTable, name: str, batch: ArrayLike) -> Iterator[Finding]:
    """Describe what batches (row,) differ by at equal other features.

    Quick members ignore them, have them as a feature, and remove constants or functions of each.
    """
    rows = np.sort(np.random.RandomState(0).permutation(others.n_rows)[:_MAX_BATCH_ROWS])
    features, y = others.features[rows], others.y[rows]
    texts = np.array(batch_labels(np.asarray(batch)[rows], len(rows)), dtype=str)
    names, codes = np.unique(texts, return_inverse=True)
    if not 1 < len(names) < len(rows):
        return
    blends = _fit_uses_of_batches(features, y, codes)
    errors = [float(blend.blend_["rmse"]) for blend in blends]
    table = blends[3].batch_offsets_.set_axis(names).sort_values("offset")
    table = table[table["std_error"] <= 2 * table["std_error"].median()]
    low, high = table.iloc[0], table.iloc[-1]
    size = high["offset"] - low["offset"]
    error = np.hypot(high["std_error"], low["std_error"])
    difference = f"{format_significant(size, 2)} ± {format_significant(error, 2)}"
    ignored, feature, functions, offsets = map(format_significant, errors)
    kind = "Batches differ by constants."
    if errors[2] < _CLEARLY_LOWER * errors[3]:
        kind = "Batches differ in shape: a function of the features describes each of them."
    elif errors[3] > _HARDLY_LOWER * errors[0]:
        kind = "Batches hardly differ."
    noise = blends[2].batch_effects_["noise_std"].set_axis(names)
    ratio = noise.max() / noise.median()
    if ratio > _LEAST_NOISE:
        kind += f" The noise of {noise.idxmax()} is {format_significant(ratio, 2)} times the usual."
    advice = "The model has these offsets; a few known rows of a new batch suffice."
    if others.batch is None:
        advice = (
            f"If {name!r} names laboratories, instruments or lots, use --batch {name!r} (batch in "
            "Python), so that a few known rows of a new one suffice. If it names samples, use "
            f"--group {name!r} (groups in Python): errors for rows of new ones are higher."
        )
    yield Finding(
        "TW107",
        f"The rows of {name!r} {high.name} are {difference} higher than those of {low.name} at "
        f"equal features. The error of quick models is {ignored} without {name!r}, {feature} with "
        f"it as a feature, {offsets} with its offsets, and {functions} with its functions, for "
        f"rows of known batches. {kind}",
        advice,
        {
            "column": name,
            "difference": float(size),
            "std_error": float(error),
            "rmse": [*errors[:2], errors[3], errors[2]],
        },
    )


def _fit_uses_of_batches(features: Floats, y: Floats, codes: Indices) -> list[AutoTwinRegressor]:
    """Fit quick members without batches, and with these as a feature, functions and offsets."""
    labels = [f"b{code:05}" for code in codes]  # in the order of the codes
    with_indicators = np.hstack([features, np.eye(codes.max() + 1)[codes]])
    uses = ((features, None), (with_indicators, None), (features, "function"), (features, "offset"))
    blends = []
    for X, kind in uses:
        blend = AutoTwinRegressor(members=_QUICK, cv=5, batch_effect=kind or "auto", random_state=0)
        blends.append(blend.fit_blend(X, y, batch=kind and labels, calibrate=False))
    return blends
