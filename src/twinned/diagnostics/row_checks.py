"""Checks of rows that belong together: duplicates, replicates, and groups that no column names.

Groups are nearly equal rows, rows that agree in many features, identifiers among the features, and
adjacent rows of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, hstack
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2, rankdata, zscore

from twinned.diagnostics.errors import Numbers, Ratio, format_percent, rmse, rmse_ratio
from twinned.diagnostics.findings import CheckedTable, Finding, quick_predictions
from twinned.diagnostics.twin_checks import CheckResult
from twinned.estimators.auto import AutoTwinRegressor
from twinned.rows.batches import batch_labels
from twinned.rows.folds import (
    Folds,
    ForwardFolds,
    count_earlier,
    distinct_rows,
    encode_groups,
    row_folds,
)
from twinned.rows.formatting import format_interval, format_significant
from twinned.rows.neighbors import Indices, NeighborIndex
from twinned.rows.schema import Floats

_LEAST_SHARE, _LEAST_COPIES = 0.01, 3  # of duplicate rows
_CHANCE = 3.0  # times as many equal pairs as independent features would have
_LEAST_DEGREES = 5  # of freedom of a noise floor
_COMMON_SHARE = 0.3  # of replicates whose noise is that of all rows
_LEAST_ROWS, _LEAST_GROUPS = 40, 10
# The least share of rows in groups, and ratio of errors with groups held out together and apart.
_NEAR_LIMITS = 0.03, 1.05  # of nearly equal rows
_PARTLY_LIMITS = 0.1, 1.1  # of rows that agree in many features
_GAP = 0.05  # nearest rows are nearly equal if they are so much nearer than the next one
_MAX_NEAR = 9  # rows that are nearly equal to one
_SURPRISE = 3.0  # beyond twice the logarithm of the number of rows
_MAX_RARE = 0.02  # probability that two rows agree in a feature
# Of correlations between the residuals of rows that may belong together.
_LEAST_CORRELATION, _LEAST_Z = 0.15, 4.0
_NEAR_ROWS = 10  # in the order of the table
_N_CONTROLS = 5
_LEAST_STEPS, _NEARLY_ALL = 5, 0.95  # of a sorted column, and share of steps
_TIME_NAME = re.compile(r"(.*[\W_])?(year|date|time|timestamp|month|week|days?)([\W_].*)?", re.I)
# Of names of batches: the candidate that is mentioned where there are several.
_BATCH_NAME = re.compile(r"lab|batch|lot|instrument|operator|site|device|plate|run|subject", re.I)
_QUICK = ["ridge", "gp_matern", "extra_trees:small"]  # which compare uses of batches
_MAX_BATCH_ROWS, _LEAST_BATCH_ROWS = 200, 8  # for the comparison, and for a slope
_LEAST_RATIO = 1.25  # of slopes
_MAX_GROUP_ROWS = 12  # mean number of rows of a value of an identifier
_ERRORS = "rmse_random_folds", "rmse_held_out_together"
# Of the comparison with random folds: draws of them, rows, blocks of rows in time whose errors may
# be alike, and the ratio of errors from which random folds are too optimistic.
_N_FOLDS, _N_DRAWS, _MAX_COMPARED, _TIME_BLOCKS, _OPTIMISTIC = 5, 5, 2000, 40, 1.05
_GROUP_ADVICE = (
    "If new rows will come from new groups, name the group of each row with --group (groups in "
    "Python); otherwise the errors reported here are too low for them."
)


# --- duplicates and replicates --------------------------------------------------------------------


def check_duplicates(table: CheckedTable) -> Iterator[Finding]:
    """Find rows that are equal in all features and the target, more than occur by chance."""
    counts = np.bincount(distinct_rows(np.column_stack([table.matrix, table.y]))[1])
    n_copies = table.n_rows - len(counts)
    has_few_copies = n_copies < max(_LEAST_COPIES, _LEAST_SHARE * table.n_rows)
    if has_few_copies or np.sum(counts * (counts - 1) / 2) < _CHANCE * _pairs_by_chance(table):
        return
    share, sample = n_copies / table.n_rows, table.sample()
    effect = _effect_of_groups(sample, distinct_rows(sample.matrix)[1], (0.0, _NEAR_LIMITS[1]))
    gain = format_percent(1 - 1 / effect["ratio"]) if effect else ""
    yield Finding(
        "TW101",
        f"{n_copies:,} of {table.n_rows:,} rows ({format_percent(share)}) repeat another row, the "
        f"target included.{f' Random folds make the error look {gain} lower.' if gain else ''}",
        "Remove copies, unless they are separate measurements. Errors reported here do not profit "
        "from them, as equal rows are merged; with random folds of other tools they would.",
        {"rows": n_copies, "share": share},
    )


def _pairs_by_chance(table: CheckedTable) -> float:
    """Return the expected number of equal pairs of rows if all columns were independent."""
    n, columns = table.n_rows, (*table.matrix.T, table.y)
    counts = [np.unique(column, return_counts=True)[1] for column in columns]
    return float(n * (n - 1) / 2 * np.prod([np.sum((count / n) ** 2) for count in counts]))


def check_replicates(table: CheckedTable) -> Iterator[Finding]:
    """Find rows with equal features and different values, and the noise that they imply."""
    codes = distinct_rows(table.matrix)[1]
    counts = np.bincount(codes)
    degrees = table.n_rows - len(counts)
    means = np.bincount(codes, weights=table.y) / counts
    within = float(np.sum((table.y - means[codes]) ** 2))
    if degrees < _LEAST_DEGREES or within <= 1e-24 * float(np.sum(table.y**2)):
        return
    noise = float(np.sqrt(within / degrees))
    low, high = (float(np.sqrt(within / chi2.ppf(q, degrees))) for q in (0.95, 0.05))
    if noise < 0.02 * table.y.std():
        return
    n_rows = int(counts[counts > 1].sum())
    shown, interval = format_significant(noise, 2), format_interval(noise, low, high)
    is_common = n_rows >= _COMMON_SHARE * table.n_rows
    scope = "no model of these features can" if is_common else "on these rows no model can"
    yield Finding(
        "TW103",
        f"{n_rows:,} rows have the features of another, with a standard deviation of the target "
        f"of {interval}: {scope} have an RMSE much below {shown}.",
        "To go lower, measure more precisely, average replicates, or add a feature.",
        {"noise": noise, "interval": [low, high], "rows": n_rows},
    )


# --- time ----------------------------------------------------------------------------------------


def check_time_order(columns: Mapping[str, Floats]) -> Iterator[Finding]:
    """Find columns, (row,) by name, that are times and in whose order the rows are; at most one.

    Days of a date, such as 'sold (days)', have the name of the column, 'sold'.
    """
    times = (name for name in columns if _TIME_NAME.fullmatch(name) and is_sorted(columns[name]))
    for name in islice((time.removesuffix(" (days)") for time in times), 1):
        yield Finding(
            "TW105",
            f"The rows are in the order of {name!r}, but are held out at random, so that training "
            "rows are before and after each of them.",
            f"To predict later rows, use --time-column {name!r} (groups and cv=ForwardFolds() in "
            "Python); else errors may be too low.",
            {"column": name},
        )


def is_sorted(values: Floats, share: float = 1.0) -> bool:
    """Return whether all or a share of the steps between different values have the same sign."""
    steps = np.diff(values[~np.isnan(values)])
    increases = steps[steps != 0] > 0
    return len(increases) >= _LEAST_STEPS and max(increases.mean(), 1 - increases.mean()) >= share


# --- given groups and times -----------------------------------------------------------------------


def compare_folds(X: ArrayLike, y: Floats, groups: object, cv: object = None) -> CheckResult:
    """Compare the error of a quick model with groups or later rows held out, and with random rows.

    `groups` (n,) are times where `cv` is `ForwardFolds`. Random folds hold out the same rows, and
    have as many training rows. The model is the quick one with the lower error by random folds.
    """
    table, labels = CheckedTable.encode(X, y), np.asarray(groups)
    if table.n_rows > _MAX_COMPARED:
        rows = np.sort(np.random.RandomState(0).permutation(table.n_rows)[:_MAX_COMPARED])
        table, labels = table.take(rows), labels[rows]
    kind, units = "whole groups", encode_groups(labels, table.n_rows)
    if isinstance(cv, ForwardFolds):
        kind, units = "later rows", count_earlier(labels) * _TIME_BLOCKS // table.n_rows
        folds = list(cv.split(labels, groups=labels))
    else:
        folds = row_folds(table.n_rows, _N_FOLDS, 0, units, min_rows=2)
    rows = np.sort(np.concatenate([held_out for _, held_out in folds]))
    drawn = [random_folds_like(folds, table.n_rows, seed) for seed in range(_N_DRAWS)]
    known, units, errors = table.y[rows], units[rows], []
    for trees in (False, True):
        random = [quick_predictions(table, trees=trees, folds=own)[rows] for own in drawn]
        errors.append((float(np.median([rmse(own, known) for own in random])), trees, random))
    random_error, trees, random = min(errors, key=lambda own: own[0])
    predicted = quick_predictions(table, trees=trees, folds=folds)[rows]
    # errors also depend on the training rows: the interval covers those of all draws
    values, lows, highs = np.transpose([rmse_ratio(predicted, own, known, units) for own in random])
    ratio = Ratio(float(np.median(values)), float(lows.min()), float(highs.max()))
    is_higher = ratio.low > 1 and ratio.value >= _OPTIMISTIC
    rmses = {kind: rmse(predicted, known), "random rows": random_error}
    error, of_random = map(format_significant, rmses.values())
    answer = "Yes" if is_higher else "Not clearly"
    summary = f"{answer}. The error of a quick model is {error} with {kind} held out, {ratio} "
    summary += f"times the {of_random} with random rows held out and as many training rows."
    numbers = {"rmse": rmses, "ratio": ratio.value, "interval": ratio.interval}
    numbers["too_optimistic"] = is_higher
    return CheckResult("folds", "Are random folds too optimistic?", summary, numbers, shown=rmses)


def random_folds_like(folds: Folds, n: int, seed: int) -> Folds:
    """Random folds of n rows that hold out the same rows and have as many training rows."""
    rng, sizes = np.random.RandomState(seed), [len(held_out) for _, held_out in folds]
    rows = rng.permutation(np.concatenate([held_out for _, held_out in folds]))
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    others = [rng.permutation(np.setdiff1d(np.arange(n), part)) for part in parts]
    both = zip(folds, others, parts, strict=True)
    return [(other[: len(training)], part) for (training, _), other, part in both]


def find_optimistic_folds(check: CheckResult) -> Iterator[Finding]:
    """Find that random folds are too optimistic, by the check of folds."""
    if check.numbers.get("too_optimistic"):
        kind, _ = check.numbers["rmse"]
        advice = f"Use the errors and intervals reported here, which are those of {kind}."
        yield Finding("TW106", check.summary.removeprefix("Yes. "), advice, check.numbers)


# --- groups of similar rows -----------------------------------------------------------------------


def check_groups(sample: CheckedTable) -> Iterator[Finding]:
    """Find groups of rows whose errors are lower where folds separate them; at most one finding.

    No two rows of the sample have equal features. Rows in the order of time are another finding.
    """
    yield from check_time_order(dict(zip(sample.names, sample.matrix.T, strict=True)))
    if sample.n_rows < _LEAST_ROWS:
        return
    if similar := list(_similar_rows(sample)):
        yield max(similar, key=lambda finding: float(finding.numbers["ratio"]))
        return
    residual = sample.y - quick_predictions(sample)
    yield from islice(chain(_identifiers(sample, residual), _row_order(sample, residual)), 1)


def _similar_rows(sample: CheckedTable) -> Iterator[Finding]:
    """Find rows with similar features that lower the error where folds separate them.

    They are rows with nearly equal features, of which pairs have a code of their own, and rows that
    agree in more features than happens by chance.
    """
    kinds = {
        "nearly equal rows": (near_groups(sample), _NEAR_LIMITS),
        "partly equal rows": (partly_equal_groups(sample.matrix), _PARTLY_LIMITS),
    }
    for kind, (groups, limits) in kinds.items():
        is_partly = kind == "partly equal rows"
        numbers = _effect_of_groups(sample, groups, limits, trees=is_partly)
        if not numbers:
            continue
        is_pairs = not is_partly and numbers["mean_size"] <= 2.5
        before, after = (format_significant(numbers[name]) for name in _ERRORS)
        yield Finding(
            "TW102" if is_pairs else "TW104",
            f"{format_percent(numbers['share'])} of the rows agree with others in "
            f"{'most' if is_partly else 'nearly all'} features, in groups of "
            f"{numbers['mean_size']:.1f} rows on average. Held out together, the error of a quick "
            f"model is {after} instead of {before}.",
            f"{'Remove copies. ' if is_pairs else ''}{_GROUP_ADVICE}",
            {"kind": kind, **numbers},
        )


def _effect_of_groups(
    sample: CheckedTable, groups: Indices, limits: tuple[float, float], *, trees: bool = False
) -> Numbers:
    """Errors with random folds and with groups held out together.

    There are none where few rows are in groups, or where the errors are about as large: `limits`
    are the least share of rows and the least ratio of errors.
    """
    counts = np.bincount(groups)
    several = counts[counts > 1]
    n_near, share = int(several.sum()), float(several.sum() / sample.n_rows)
    if n_near < _LEAST_COPIES or share < limits[0] or len(counts) < _LEAST_GROUPS:
        return {}
    random, together = (quick_predictions(sample, kept, trees=trees) for kept in (None, groups))
    ratio = rmse_ratio(together, random, sample.y, groups)
    if ratio.value < limits[1] or ratio.low <= 1:
        return {}
    numbers = {"share": share, "groups": len(several), "mean_size": float(several.mean())}
    errors = dict(zip(_ERRORS, (rmse(mean, sample.y) for mean in (random, together)), strict=True))
    return {**numbers, **errors, "ratio": ratio.value}


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


# --- groups of rows with similar residuals --------------------------------------------------------


def check_batches(sample: CheckedTable) -> Iterator[Finding]:
    """Find offsets of batches, which are given or the values of a feature, and different scales.

    A numeric feature remains in the quick model, so that a smooth effect of it is no sign.
    """
    if sample.batch is not None:
        yield from describe_batches(sample, sample.batch_name, sample.batch)
        return
    found: list[tuple[bool, float, int]] = []
    for feature, name in enumerate(sample.names):
        column, is_category = sample.matrix[:, feature], feature in sample.schema.categorical
        n_values, is_whole = len(np.unique(column)), not np.any(column != np.round(column))
        is_code = is_category or np.ptp(column) < 2 * n_values  # numbers in sequence
        if is_whole and is_code and 2 <= n_values <= len(column) / 3:
            others = sample.without(feature) if is_category else sample
            residual = sample.y - quick_predictions(others)
            correlation, z = identifier_correlation(column, residual, is_category)
            if correlation > _LEAST_CORRELATION and z > _LEAST_Z:
                found.append((bool(_BATCH_NAME.search(name)), z, feature))
    for *_, j in sorted(found)[-1:]:
        known, codes = sample.schema.categories[j], sample.matrix[:, j]
        labels = np.array(known)[codes.astype(np.intp)] if known else codes
        yield from describe_batches(sample.without(j), sample.names[j], labels)


def describe_batches(others: CheckedTable, name: str, batch: ArrayLike) -> Iterator[Finding]:
    """Describe the offsets of batches (row,) at equal other features, and their scales.

    Quick members ignore them, have them as a feature, and remove their offsets.
    """
    rows = np.sort(np.random.RandomState(0).permutation(others.n_rows)[:_MAX_BATCH_ROWS])
    features, y = others.features[rows], others.y[rows]
    texts = np.array(batch_labels(np.asarray(batch)[rows], len(rows)), dtype=str)
    names, codes = np.unique(texts, return_inverse=True)
    if not 1 < len(names) < len(rows):
        return
    labels = [f"b{code:05}" for code in codes]  # in the order of the names
    errors, with_indicators = [], np.hstack([features, np.eye(len(names))[codes]])
    blend = AutoTwinRegressor(members=_QUICK, cv=5, random_state=0)
    for X, own in ((features, None), (with_indicators, None), (features, labels)):
        blend.fit_blend(X, y, batch=own, calibrate=False)
        errors.append(float(blend.blend_["rmse"]))
    table = blend.batch_offsets_.set_axis(names).sort_values("offset")
    table = table[table["std_error"] <= 2 * table["std_error"].median()]
    low, high = table.iloc[0], table.iloc[-1]
    size, error = high["offset"] - low["offset"], np.hypot(high["std_error"], low["std_error"])
    difference = f"{format_significant(size, 2)} ± {format_significant(error, 2)}"
    ignored, feature, offsets = map(format_significant, errors)
    advice = "The model has these offsets; a few known rows of a new batch suffice."
    if others.batch is None:
        advice = f"If {name!r} names laboratories, instruments or lots, use --batch {name!r} "
        advice += "(batch in Python), so that a few known rows of a new one suffice."
    yield Finding(
        "TW107",
        f"The rows of {name!r} {high.name} are {difference} higher than those of {low.name} at "
        f"equal features. The error of quick models is {ignored} without {name!r}, {feature} with "
        f"it as a feature, and {offsets} with its offsets, for rows of known batches.",
        advice,
        {"column": name, "difference": float(size), "std_error": float(error), "rmse": errors},
    )
    yield from _batch_scales(blend.anchors_y_, blend.out_of_fold_prediction_, codes, names)


def _batch_scales(y: Floats, predicted: Floats, codes: Indices, names: Any) -> Iterator[Finding]:
    """Find batches in which y without offsets has different slopes against its prediction."""
    x, own = predicted - predicted.mean(), np.eye(len(names))[codes]
    squares, counts = np.maximum(x**2 @ own, 1e-300), own.sum(axis=0)
    slopes = (x * y) @ own / squares
    errors = np.sqrt((y - slopes[codes] * x) ** 2 @ own / np.maximum(counts - 2, 1) / squares)
    order = [code for code in np.argsort(slopes) if counts[code] >= _LEAST_BATCH_ROWS]
    low, high = order[0] if order else 0, order[-1] if order else 0
    ratio, error = slopes[high] / slopes[low], np.hypot(errors[low], errors[high])
    if ratio > _LEAST_RATIO and slopes[high] - slopes[low] > _LEAST_Z * error:
        yield Finding(
            "TW108",
            f"The values of batch {names[high]} change {format_significant(ratio, 2)} times as "
            f"much with the features as those of {names[low]}.",
            "Use --batch with --log-target (log_target=True in Python): a factor of a batch is an "
            "offset of the logarithm of a positive target.",
            {"ratio": float(ratio)},
        )


def _identifiers(sample: CheckedTable, residual: Floats) -> Iterator[Finding]:
    """Find features whose equal values mark rows with similar residuals."""
    for feature, name in enumerate(sample.names):
        column = sample.matrix[:, feature]
        if not _may_be_identifier(column):
            continue
        is_categorical = feature in sample.schema.categorical
        correlation, z = identifier_correlation(column, residual, is_categorical)
        if correlation > _LEAST_CORRELATION and z > _LEAST_Z:
            yield Finding(
                "TW104",
                f"The {len(np.unique(column))} values of {name!r} seem to name groups of rows: "
                f"errors of rows with the same value are similar (correlation {correlation:.2f}).",
                f"If new rows will come from new groups, use --group {name!r} (groups in Python); "
                "otherwise the errors reported here are too low for them.",
                {"kind": "identifier", "column": name, "correlation": correlation},
            )


def _may_be_identifier(column: Floats) -> bool:
    """Whether a column has many different whole numbers or categories, each several times."""
    if np.any(column != np.round(column)):  # or missing
        return False
    n_rows, n_values = len(column), len(np.unique(column))
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
    same = np.concatenate([scores[rows[1:]] * scores[rows[:-1]] for rows in members])
    difference, error = _mean_and_error(same)
    if not is_categorical:
        neighbors = [(rows, rng.choice(after, len(rows))) for rows, after in pairwise(members)]
        adjacent = [scores[rows] * scores[after] for rows, after in neighbors]
        mean, adjacent_error = _mean_and_error(np.concatenate(adjacent))
        difference, error = difference - mean, float(np.hypot(error, adjacent_error))
    return difference, difference / error


def _row_order(sample: CheckedTable, residual: Floats) -> Iterator[Finding]:
    """Find residuals that are similar in adjacent rows of the table.

    A quick model leaves residuals that are similar for similar rows of a sorted table; those of
    trees decide.
    """
    if is_sorted(sample.y, _NEARLY_ALL):
        return
    for trees in (False, True):
        if trees:
            residual = sample.y - quick_predictions(sample, trees=True)
        correlation, z = order_correlation(sample, residual)
        if correlation < _LEAST_CORRELATION or z < _LEAST_Z:
            return
    yield Finding(
        "TW104",
        "Adjacent rows of the table have similar errors beyond what their features explain "
        f"(correlation {correlation:.2f}), as batches, days or samples do.",
        "Add what orders the rows as a feature, such as a date, or name the batch of each row with "
        "--group (groups in Python), so that errors hold for new batches.",
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
    mean, error = _mean_and_error(scores[:-1] * (scores[1:] - scores[controls].mean(axis=1)))
    return mean, mean / error


def _normalized_ranks(values: Floats) -> Floats:
    """Return ranks with mean 0 and standard deviation 1, or zeros where all are equal."""
    return np.nan_to_num(zscore(rankdata(values)))


def _mean_and_error(values: Floats) -> tuple[float, float]:
    """Return the mean and its standard error, infinite for fewer than ten values."""
    if len(values) < 10:
        return 0.0, np.inf
    return float(values.mean()), float(max(values.std() / np.sqrt(len(values)), 1e-300))
