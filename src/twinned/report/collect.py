"""Content of the report as strings, numbers and lists of them: the JSON output of `advise`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned._neighbors import Indices
from twinned._table import Floats, column_list, is_numeric_dtype, is_table, to_numeric
from twinned._version import __version__
from twinned.diagnostics import Diagnosis
from twinned.diagnostics.comparison import HELPS, HURTS
from twinned.diagnostics.cross_validation import ignore_unknown_categories, use_all_cores
from twinned.diagnostics.result import CheckResult
from twinned.report.charts import format_number

Content = dict[str, Any]  # what JSON holds

CONFIDENCE = 0.9  # of the intervals shown
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MAX_POINTS = 600  # in a chart
MAX_QUERIES, MAX_COMPARABLES, MAX_FEATURES = 40, 8, 5
_MAX_NUMBERS = 64  # longer lists of a check are not part of the report
_N_PAIRS = 2_000  # for the importance of features
_LARGE_RATIO = 30  # of the largest and the smallest y


def collect(
    diagnosis: Diagnosis,
    *,
    title: str,
    target: str = "y",
    labels: list[str] | None = None,
    random_state: int = 0,
) -> Content:
    """Return the content of the report of a diagnosis.

    `title` is the heading of the page, `target` the name of y, and `labels` are names of the rows
    of the table. `random_state` draws the rows that are shown, and the pairs for the importance
    of features.
    """
    rng = np.random.RandomState(random_state)
    names = feature_names(diagnosis.cross_validation.X)
    with ignore_unknown_categories():
        return {
            "title": title,
            "target": target,
            "version": __version__,
            "rows": diagnosis.n_rows,
            "cross_validated_rows": len(diagnosis.cross_validation.y),
            "columns": names,
            "seconds": round(diagnosis.seconds, 1),
            "conclusion": diagnosis.checks["comparison"].numbers["conclusion"],
            "summary": diagnosis.summary,
            "code": diagnosis.code,
            "checks": {key: _check_content(check) for key, check in diagnosis.checks.items()},
            "skipped": diagnosis.skipped,
            "notes": diagnosis.notes,
            "predictions": predictions(diagnosis, rng),
            "calibration": calibration(diagnosis),
            "importance": importance(diagnosis, names, rng),
            "comparables": comparables(diagnosis, names, labels, rng),
            "next_steps": next_steps(diagnosis),
        }


def feature_names(X: Any) -> list[str]:
    if is_table(X):
        return [str(name) for name in column_list(X)[1]]
    return [f"x{i}" for i in range(np.shape(X)[1])]


def _check_content(check: CheckResult) -> Content:
    """Return a check without its long lists."""
    numbers = {
        name: value
        for name, value in check.numbers.items()
        if not (isinstance(value, list) and len(value) > _MAX_NUMBERS)
    }
    return {"title": check.title, "summary": check.summary, "numbers": numbers}


def predictions(diagnosis: Diagnosis, rng: np.random.RandomState) -> Content:
    """Return predictions of held-out rows with the half widths of their intervals."""
    rows = np.concatenate([rows for _, rows in diagnosis.cross_validation.folds])
    truth = diagnosis.cross_validation.y[rows]
    predicted = np.concatenate([mean for mean, _ in diagnosis.held_out])
    # a score is the error divided by sigma, the predicted size of the error
    error, scores = np.abs(truth - predicted), diagnosis.calibrated.scores
    sigma = np.divide(error, scores, out=np.full_like(error, np.nan), where=scores > 0)
    sigma = np.where(np.isnan(sigma), np.nanmedian(sigma), sigma)
    half_width = np.quantile(scores, CONFIDENCE) * sigma
    sample = rng.permutation(len(rows))[:MAX_POINTS]
    sample = sample[np.argsort(rows[sample])]
    return {
        "confidence": CONFIDENCE,
        "row": _row_numbers(diagnosis, rows[sample]),
        "truth": _rounded(truth[sample]),
        "predicted": _rounded(predicted[sample]),
        "half_width": _rounded(half_width[sample]),
        "mean_half_width": float(np.mean(half_width)),
    }


def calibration(diagnosis: Diagnosis) -> Content:
    """Return the coverage of intervals that are calibrated on the other folds."""
    scores = diagnosis.calibrated.scores
    sizes = [len(rows) for _, rows in diagnosis.cross_validation.folds]
    fold = np.repeat(np.arange(len(sizes)), sizes)
    coverage = []
    for confidence in CONFIDENCES:
        limits = [np.quantile(scores[fold != k], confidence) for k in range(len(sizes))]
        coverage.append(float(np.mean(scores <= np.repeat(limits, sizes))))
    return {"confidence": list(CONFIDENCES), "coverage": coverage}


def importance(diagnosis: Diagnosis, names: list[str], rng: np.random.RandomState) -> list[Content]:
    """Return how much predicted differences change when one feature of the first row changes.

    The feature is taken from a random row. Root mean square change over random pairs, as a share
    of the change when all features are taken from that row.
    """
    cv, model = diagnosis.cross_validation, diagnosis.model
    first, second, other = (cv.rows(rng.randint(0, len(cv.y), _N_PAIRS)) for _ in range(3))
    unchanged = np.ravel(model.predict_difference(first, second))

    def change(changed: Any) -> float:
        difference = np.ravel(model.predict_difference(changed, second))
        return float(np.sqrt(np.mean((difference - unchanged) ** 2)))

    whole = change(other)
    shares = []
    for index, name in enumerate(names):
        share = change(_with_column(first, other, index)) / whole if whole > 0 else 0.0
        shares.append({"name": name, "share": round(share, 4)})
    return sorted(shares, key=lambda feature: -feature["share"])


def _with_column(X: Any, other: Any, index: int) -> Any:
    """Return X with one column of another table of as many rows."""
    if not is_table(X):
        mixed = np.array(X, copy=True)
        mixed[:, index] = np.asarray(other)[:, index]
        return mixed
    if hasattr(X, "with_columns"):  # polars
        return X.with_columns(other[:, index])
    mixed = X.copy()
    mixed[mixed.columns[index]] = other.iloc[:, index].to_numpy()
    return mixed.astype(X.dtypes.to_dict())  # a category stays a category


def comparables(
    diagnosis: Diagnosis, names: list[str], labels: list[str] | None, rng: np.random.RandomState
) -> list[Content]:
    """Return for a sample of held-out rows the nearest anchors and their estimates.

    Nearest in standardized features: of hundreds of anchors with equal weights, those are the most
    useful to look at.
    """
    cv, queries = diagnosis.cross_validation, []
    columns = _columns(cv.X, names)
    per_fold = max(1, MAX_QUERIES // len(cv.folds))
    for twin, (train, held_out) in zip(diagnosis.calibrated.models, cv.folds, strict=True):
        sample = rng.permutation(held_out)[:per_fold]
        X = cv.rows(sample)
        with use_all_cores(twin, len(sample)):
            explained = twin.explain(X, n=len(twin.anchors_y_))
            predicted = np.ravel(twin.predict(X))
        n_each = len(explained) // len(sample)
        for i, row in enumerate(sample):
            own = explained.iloc[i * n_each : (i + 1) * n_each]
            rows = train[twin.anchor_rows_[own["anchor"].to_numpy()]]
            features = cv.standardized_features
            distance = np.sqrt(np.sum((features[rows] - features[row]) ** 2, axis=1))
            nearest = np.argsort(distance, kind="stable")[:MAX_COMPARABLES]
            anchors = [
                {
                    **_identity(diagnosis, anchor, labels),
                    "known": _short(line.anchor_y),
                    "difference": _short(line.difference),
                    "estimate": _short(line.estimate),
                    "weight": _short(line.weight),
                    "features": _differing_features(columns, row, anchor),
                }
                for anchor, line in zip(rows[nearest], own.iloc[nearest].itertuples(), strict=True)
            ]
            queries.append(
                {
                    **_identity(diagnosis, row, labels),
                    "truth": _short(cv.y[row]),
                    "predicted": _short(predicted[i]),
                    "anchors": anchors,
                    "values": [_format_value(column.values[row]) for column in columns],
                }
            )
    return sorted(queries, key=lambda query: query["row"])


def _row_numbers(diagnosis: Diagnosis, rows: Indices) -> list[int]:
    """Return cross-validated rows as numbers of rows of the table, counted from 1."""
    subset = diagnosis.cross_validation.subset
    return ((rows if subset is None else subset[rows]) + 1).tolist()


def _identity(diagnosis: Diagnosis, row: int, labels: list[str] | None) -> Content:
    """Return a row's number in the table, and its name."""
    (number,) = _row_numbers(diagnosis, np.array([row]))
    name = f"row {number}" if labels is None else f"{labels[number - 1]} (row {number})"
    return {"row": number, "name": name}


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


def _differing_features(columns: list[Column], row: int, anchor: int) -> list[Content]:
    """Return the features in which an anchor differs most from the query.

    Numbers differ by standard deviations; two categories, and a number and a missing value, by 1.
    """
    found = []
    for name, values, std in columns:
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
            shown = {"query": _format_value(value), "anchor": _format_value(other)}
            found.append((size, {"name": name, **shown}))
    found.sort(key=lambda feature: -feature[0])
    return [feature for _, feature in found[:MAX_FEATURES]]


def next_steps(diagnosis: Diagnosis) -> list[str]:
    """Return recommendations, one sentence each."""
    comparison = diagnosis.checks["comparison"].numbers
    by_conclusion = {
        HELPS: "Use the twin: the code above makes it, and the saved model is fitted.",
        HURTS: "Use the base estimator on plain rows: twinning does not improve it here.",
    }
    otherwise = (
        "Choose by other needs: the twin has an uncertainty and comparable cases, the base "
        "estimator on plain rows is faster."
    )
    steps = [by_conclusion.get(comparison["conclusion"], otherwise)]
    if comparison["best"] == "ridge":
        steps.append("Ridge regression is best here: fit a twin of it (--model ridge).")
    if comparison["best"] == "k-NN":
        steps.append("k-NN is best here: look for features that separate the rows better.")
    learning = diagnosis.checks.get("learning")
    if learning is not None and learning.numbers["doubled"] < 0.95:
        steps.append(f"Get more labels. {learning.summary} twinned.query selects which ones.")
    multiplier = diagnosis.checks.get("multiplier")
    if multiplier is not None and multiplier.numbers["trend"] == "grows":
        steps.append(multiplier.summary)
    y = diagnosis.cross_validation.y
    if (y > 0).all() and y.max() > _LARGE_RATIO * y.min():
        steps.append(
            f"The largest value is {y.max() / y.min():,.0f} times the smallest: try the logarithm "
            "(--log-target); its differences are ratios."
        )
    if diagnosis.skipped:
        steps.append(f"Give more time (--budget) for: {', '.join(diagnosis.skipped)}.")
    return steps


def _rounded(values: Floats) -> list[float]:
    return [_short(value) for value in values]


def _short(value: Any) -> float:
    """Return a number rounded to six significant digits."""
    return float(f"{float(value):.6g}")


def _format_value(value: Any) -> str:
    """Return a rounded number, or a category as it is."""
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return "missing" if np.isnan(value) else format_number(float(value))
    return "missing" if value is None else str(value)
