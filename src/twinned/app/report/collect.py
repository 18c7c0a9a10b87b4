"""Content of the report as strings, numbers and lists of them: the JSON output of `advise`."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned._version import __version__
from twinned.diagnostics import CheckResult, Diagnosis, Finding
from twinned.diagnostics.findings import WARNING, feature_names
from twinned.diagnostics.recommendation import HELPS, HURTS, UNKNOWN
from twinned.estimators.blending.results import rmse_and_error
from twinned.fitted.adjustments import from_logarithm, scale_to
from twinned.fitted.applicability import LABELS
from twinned.fitted.known_values import TargetRange
from twinned.rows.formatting import format_number
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, column_list, is_numeric_dtype, is_table, to_numeric

Content = dict[str, Any]  # what JSON holds

CONFIDENCE = 0.9  # of the intervals shown
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MAX_POINTS = 600  # in a chart
MAX_QUERIES, MAX_COMPARABLES, MAX_FEATURES = 40, 8, 5
_QUERIES_PER_BLOCK = 8  # whose adjustments are computed at once
_MAX_NUMBERS = 64  # longer lists of a check are not part of the report
_LEAST_ROWS, _MOST_ROWS = 20, 500  # for the importance of features
_MAX_IMPORTANCE = 40  # features whose importance is computed


def collect(
    diagnosis: Diagnosis,
    *,
    title: str,
    target: str = "y",
    labels: list[str] | None = None,
    row_numbers: list[int] | None = None,
    seconds: float = 10.0,
    random_state: int = 0,
) -> Content:
    """Return the content of the report of a diagnosis.

    `title` is the heading of the page, `target` the name of y, and `labels` are names of the rows
    of the table. `row_numbers` are those of its rows in a file; by default they count from 1.
    `seconds` are about the time for the importance of features, and for adjustments.
    `random_state` draws the rows that are shown, and those for the importance of features.
    """
    rng = np.random.RandomState(random_state)
    names = feature_names(diagnosis.X)
    rows = _identify_rows(diagnosis, labels, row_numbers)
    twin, recommendation = diagnosis.twin, diagnosis.recommendation
    weights = zip(twin.member_names_, twin.member_weights_, strict=True)
    return {
        "title": title,
        "target": target,
        "version": __version__,
        "rows": diagnosis.n_rows,
        "fitted_rows": len(diagnosis.y),
        "fitted_rows_label": "with a known value" if diagnosis.rows is None else "fitted",
        "columns": names,
        "log_target": diagnosis.log_target,
        "seconds": round(diagnosis.seconds, 1),
        "conclusion": recommendation.conclusion,
        "summary": diagnosis.summary,
        "recommended": {name: float(weight) for name, weight in weights},
        "errors": diagnosis.errors._asdict(),
        "error_summary": diagnosis.describe_errors(target),
        "findings": [_finding_content(finding) for finding in diagnosis.findings],
        "leaderboard": _leaderboard(diagnosis),
        "code": diagnosis.code,
        "checks": {key: _check_content(check) for key, check in diagnosis.checks.items()},
        "skipped": diagnosis.skipped,
        "notes": [*diagnosis.notes, *_range_note(diagnosis, target)],
        "predictions": predictions(diagnosis, rows, rng),
        "calibration": calibration(diagnosis),
        "importance": importance(diagnosis, names, rng, seconds),
        "comparables_share": 100 * min(1.0, MAX_COMPARABLES / len(diagnosis.y)),
        "comparables": comparables(diagnosis, names, rows, rng, seconds),
        "next_steps": next_steps(diagnosis),
    }


def _leaderboard(diagnosis: Diagnosis) -> list[Content]:
    """Return the rows of the leaderboard; JSON has no NaN."""
    return [
        {str(name): None if value != value else value for name, value in row.items()}  # NaN
        for row in diagnosis.leaderboard.to_dict("records")
    ]


def _finding_content(finding: Finding) -> Content:
    return {
        "code": finding.code,
        "level": finding.level,
        "title": finding.title,
        "message": finding.message,
        "advice": finding.advice,
        "about": finding.about,
        "numbers": finding.numbers,
        "link": finding.link,
    }


def _check_content(check: CheckResult) -> Content:
    """Return a check without its long lists."""
    numbers = {
        name: value
        for name, value in check.numbers.items()
        if not (isinstance(value, list) and len(value) > _MAX_NUMBERS)
    }
    return {
        "title": check.title,
        "model": check.model,
        "summary": check.summary,
        "numbers": numbers,
    }


def _range_note(diagnosis: Diagnosis, target: str) -> list[str]:
    """Return a sentence on intervals that reach beyond the possible values, if any does."""
    table, y = diagnosis.out_of_fold, diagnosis.y
    lower, upper = (table[name].to_numpy() for name in ("lower", "upper"))
    beyond = TargetRange.of(target, y).describe_beyond(lower, upper)
    if not beyond:
        return []
    positive = " After --log-target, none begins below 0." if y.min() > 0 > lower.min() else ""
    return [f"{beyond}: cut them there (--bounds of twinned predict).{positive}"]


class RowIdentity(NamedTuple):
    """Number of a row in its file, and its name."""

    row: int
    name: str


def _identify_rows(
    diagnosis: Diagnosis, labels: list[str] | None, row_numbers: list[int] | None
) -> list[RowIdentity]:
    """Return the identity of each fitted row."""
    fitted = range(len(diagnosis.y)) if diagnosis.rows is None else diagnosis.rows.tolist()
    numbers = [row + 1 if row_numbers is None else row_numbers[row] for row in fitted]
    names = [f"row {number}" for number in numbers]
    if labels is not None:
        names = [labels[row] for row in fitted]
    return [RowIdentity(*own) for own in zip(numbers, names, strict=True)]


def predictions(
    diagnosis: Diagnosis, identities: list[RowIdentity], rng: np.random.RandomState
) -> Content:
    """Return out-of-fold predictions of the recommended model with their intervals."""
    table = diagnosis.out_of_fold
    rows = np.sort(rng.permutation(len(table))[:MAX_POINTS])
    shown = table.iloc[rows]
    return {
        "confidence": CONFIDENCE,
        "row": [identities[row].row for row in rows],
        "name": [identities[row].name for row in rows],
        "truth": _rounded(shown["y"]),
        "predicted": _rounded(shown["prediction"]),
        "lower": _rounded(shown["lower"]),
        "upper": _rounded(shown["upper"]),
        "mean_half_width": float(np.mean(table["upper"] - table["lower"]) / 2),
    }


def calibration(diagnosis: Diagnosis) -> Content:
    """Return the coverage of intervals that are calibrated on the other folds."""
    scores, fold = (diagnosis.out_of_fold[name].to_numpy() for name in ("score", "fold"))
    coverage, errors = [], []
    for confidence in CONFIDENCES:
        limits = [np.quantile(scores[fold != k], confidence) for k in range(fold.max() + 1)]
        coverage.append(float(np.mean(scores <= np.array(limits)[fold])))
        errors.append(float(np.sqrt(confidence * (1 - confidence) / len(scores))))
    return {"confidence": list(CONFIDENCES), "coverage": coverage, "standard_error": errors}


def importance(
    diagnosis: Diagnosis, names: list[str], rng: np.random.RandomState, seconds: float
) -> list[Content]:
    """Return how much predictions change when one feature is taken from a random row.

    Root mean square change over random rows, as a share of the change when all features are taken
    from that row. Of many features, those of largest relevance are compared.
    """
    twin, relevance = diagnosis.twin, diagnosis.relevance
    features = np.arange(len(names))
    if relevance is not None:
        features = np.argsort(-relevance, kind="stable")
    features = features[:_MAX_IMPORTANCE]
    used = np.flatnonzero(twin.member_weights_)
    board = twin.leaderboard_.set_index("member")["predict_seconds"]
    row_seconds = sum(board[twin.member_names_[i]] for i in used) / len(twin.anchors_y_)
    most = seconds / max(row_seconds, 1e-9) / (len(features) + 2)
    n_rows = int(np.clip(most, _LEAST_ROWS, _MOST_ROWS))
    first, other = (twin.anchors_X_[rng.randint(len(twin.anchors_X_), size=n_rows)] for _ in "12")
    variants = [first, other]
    for index in features:
        mixed = first.copy()
        mixed[:, index] = other[:, index]
        variants.append(mixed)
    predicted = twin._predict_by(np.concatenate(variants), used) @ twin.member_weights_[used]
    unchanged, *changed = predicted.reshape(len(variants), n_rows)
    (whole, _), *changes = (rmse_and_error(own, unchanged, None) for own in changed)
    whole = whole if whole > 0 else np.inf
    shares = [
        {
            "name": names[index],
            "share": round(change / whole, 4),
            "standard_error": round(error / whole, 4),
        }
        for index, (change, error) in zip(features, changes, strict=True)
    ]
    return sorted(shares, key=lambda feature: -feature["share"])


def comparables(
    diagnosis: Diagnosis,
    names: list[str],
    identities: list[RowIdentity],
    rng: np.random.RandomState,
    seconds: float = 10.0,
) -> list[Content]:
    """Return for a sample of rows the nearest other rows and the estimates from them.

    Both rows of a difference are predicted out of fold by the recommended model. The fitted model
    attributes the difference to features, within about so many seconds.
    """
    columns, table = _columns(diagnosis.X, names), diagnosis.out_of_fold
    y, predicted = table["y"].to_numpy(), table["prediction"].to_numpy()
    features = _comparable_features(diagnosis)
    rows = np.sort(rng.permutation(len(y))[:MAX_QUERIES])
    nearest = np.array([_nearest_rows(features, row) for row in rows])
    if diagnosis.log_target:
        estimates = y[nearest] * predicted[rows, None] / predicted[nearest]
    else:
        estimates = y[nearest] + predicted[rows, None] - predicted[nearest]
    adjustments = _adjustments(diagnosis, rows, nearest, y[nearest], estimates, seconds)
    applicability, queries = _applicability_of_rows(diagnosis), []
    for i, row in enumerate(rows):
        anchors = [
            {
                **identities[anchor]._asdict(),
                "known": _short(y[anchor]),
                "difference": _short(estimate - y[anchor]),
                "estimate": _short(estimate),
                **_differing_features(columns, row, anchor, own),
            }
            for anchor, estimate, own in zip(nearest[i], estimates[i], adjustments[i], strict=True)
        ]
        queries.append(
            {
                **identities[row]._asdict(),
                "truth": _short(y[row]),
                "predicted": _short(predicted[row]),
                "lower": _short(table["lower"][row]),
                "upper": _short(table["upper"][row]),
                "applicability": applicability.get(int(row)),
                "anchors": anchors,
                "values": [_format_value(column.values[row]) for column in columns],
            }
        )
    return queries


def _nearest_rows(features: Floats, row: int) -> Indices:
    """Return the nearest other rows."""
    distance = np.sum((features - features[row]) ** 2, axis=1)
    distance[row] = np.inf
    return np.argsort(distance, kind="stable")[: min(MAX_COMPARABLES, len(features) - 1)]


def _adjustments(
    diagnosis: Diagnosis,
    rows: Indices,
    nearest: Indices,
    known: Floats,
    estimates: Floats,
    seconds: float,
) -> list[list[Floats | None]]:
    """Return what each feature adds to each difference, or None where time did not suffice.

    `nearest`, `known` and `estimates` are (query, anchor).
    """
    found: list[list[Floats | None]] = []
    end = time.perf_counter() + seconds
    for start in range(0, len(rows), _QUERIES_PER_BLOCK):
        block = slice(start, start + _QUERIES_PER_BLOCK)
        size = nearest[block].shape
        if time.perf_counter() > end:
            found += [[None] * size[1] for _ in range(size[0])]
            continue
        pairs = np.repeat(rows[block], size[1]), nearest[block].ravel()
        own = diagnosis.twin._adjustments_of_anchors(*pairs)
        y, estimate = known[block].ravel(), estimates[block].ravel()
        if diagnosis.log_target:
            own = from_logarithm(scale_to(own, np.log(estimate / y)), y, estimate)
        found += [list(part) for part in scale_to(own, estimate - y).reshape(*size, -1)]
    return found


def _applicability_of_rows(diagnosis: Diagnosis) -> dict[int, str]:
    """Return the label of each row beside the others, where the metric was learned."""
    if diagnosis.relevance is None:
        return {}
    domain = diagnosis.twin.fitted_.anchors.domain
    classes = zip(domain.known_rows, domain.classify_known(), strict=True)
    return {int(row): LABELS[own] for row, own in classes}


def _comparable_features(diagnosis: Diagnosis) -> Floats:
    """Return (n, column) features in which distances are those of `explain`.

    Where there was no time to learn the metric, features are standardized.
    """
    features = diagnosis.twin._anchors.features
    if diagnosis.relevance is not None:
        return diagnosis.twin.fitted_.anchors.metric.transform(features)
    known = np.nan_to_num(features - np.nanmean(features, axis=0), nan=0.0)
    std = known.std(axis=0)
    return known / np.where(std > 0, std, 1.0)


class Column(NamedTuple):
    """A feature of all rows; `std` is None for a categorical feature."""

    name: str
    values: NDArray[Any]
    std: float | None


def _columns(X: Any, names: list[str]) -> list[Column]:
    if not is_table(X):
        values = list(np.asarray(X).T)
    else:
        values = [
            to_numeric(column, name)
            if is_numeric_dtype(column)
            else np.array(column.to_list(), dtype=object)
            for column, name in zip(*column_list(X), strict=True)
        ]
    return [
        Column(name, own, float(np.nanstd(own)) if np.issubdtype(own.dtype, np.number) else None)
        for name, own in zip(names, values, strict=True)
    ]


def _differing_features(
    columns: list[Column], row: int, anchor: int, adjustments: Floats | None
) -> Content:
    """Return the features in which an anchor differs from the query, and what the others add.

    Shown are those of largest adjustment or, without adjustments, those that differ most: numbers
    by standard deviations; two categories, and a number and a missing value, by 1.
    """
    found = []
    for j, (_, values, std) in enumerate(columns):
        value, other = values[row], values[anchor]
        if std is None:
            size = float(str(value) != str(other))
        elif std == 0:
            continue
        elif np.isnan(value) or np.isnan(other):
            size = float(np.isnan(value) != np.isnan(other))
        else:
            size = abs(float(value) - float(other)) / std
        if size > 0:
            if adjustments is not None:
                size = abs(adjustments[j])
            found.append((size, j))
    found.sort(key=lambda feature: -feature[0])
    features: list[Content] = []
    for _, j in found[:MAX_FEATURES]:
        name, values, _ = columns[j]
        query, known = (_format_value(values[number]) for number in (row, anchor))
        feature: Content = {"name": name, "query": query, "anchor": known}
        if adjustments is not None:
            feature["adjustment"] = float(adjustments[j])
        features.append(feature)
    if adjustments is None:
        return {"features": features}
    others = float(adjustments.sum()) - sum(feature["adjustment"] for feature in features)
    return {"features": features, "others": others if len(found) > MAX_FEATURES else 0.0}


def next_steps(diagnosis: Diagnosis) -> list[str]:
    """Return recommendations, one sentence each."""
    errors, steps = diagnosis.errors, []
    if errors.rmse >= errors.mean_rmse:
        steps.append("Look for other features: with these, no model is better than the mean.")
    else:
        steps.append("Use the recommended model: the code above makes it, and -o saves it.")
    steps += [f"{own.code}: {own.advice}" for own in diagnosis.findings if own.level == WARNING]
    of_twins = {
        HELPS: "Keep the twins: they lower the error.",
        HURTS: "Use models without twins: twins do not lower the error here.",
        UNKNOWN: "Give more time (--budget), so that twins can be compared with the other models.",
    }
    if diagnosis.recommendation.conclusion in of_twins:
        steps.append(of_twins[diagnosis.recommendation.conclusion])
    learning = diagnosis.checks.get("learning")
    if learning is not None and learning.numbers["trend"] == "falls":
        steps.append(f"Get more labels. {learning.summary} twinned.query selects which ones.")
    multiplier = diagnosis.checks.get("multiplier")
    if multiplier is not None and multiplier.numbers["trend"] == "grows":
        steps.append(multiplier.summary)
    steps += [f"{own.code}: {own.advice}" for own in diagnosis.findings if own.code == "TW304"]
    if diagnosis.skipped:
        steps.append(f"Give more time (--budget) for: {', '.join(diagnosis.skipped)}.")
    return steps


def _rounded(values: Any) -> list[float]:
    return [_short(value) for value in values]


def _short(value: Any) -> float:
    """Return a number rounded to six significant digits."""
    return float(f"{float(value):.6g}")


def _format_value(value: Any) -> str:
    """Return a rounded number, or a category as it is."""
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return "missing" if np.isnan(value) else format_number(float(value))
    return "missing" if value is None else str(value)
