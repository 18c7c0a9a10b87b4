"""Everything that the page says, as texts, numbers and lists of them: what `--json` prints."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from twinned._table import column_list, is_numeric_dtype, is_table, to_numeric
from twinned._version import __version__
from twinned.diagnostics import Diagnosis
from twinned.report.charts import number

LEVEL = 0.9  # of the intervals shown
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST_POINTS = 600  # in a picture
MOST_QUERIES, MOST_COMPARABLES, MOST_FEATURES = 40, 8, 5
_PERMUTED_PAIRS = 2_000


def collect(
    found: Diagnosis,
    *,
    title: str,
    target: str = "y",
    labels: list[str] | None = None,
    random_state: int = 0,
) -> Any:
    """The facts of a diagnosis; `labels` are what the rows of the table are called."""
    rng = check_random_state(random_state)
    evidence = found.evidence
    names = feature_names(evidence.X)
    return {
        "title": title,
        "target": target,
        "version": __version__,
        "rows": found.n_rows,
        "judged": len(evidence.y),
        "columns": names,
        "seconds": round(found.seconds, 1),
        "answer": found.findings["comparison"].numbers["answer"],
        "verdict": found.verdict,
        "code": found.code,
        "findings": {
            key: {
                "title": finding.title,
                "verdict": finding.verdict,
                "numbers": _without_points(finding.numbers),
            }
            for key, finding in found.findings.items()
        },
        "left_out": found.left_out,
        "notes": found.notes,
        "predictions": predictions(found, rng),
        "calibration": calibration(found),
        "importance": importance(found, names, rng),
        "comparables": comparables(found, names, labels, rng),
        "next": next_steps(found),
    }


def feature_names(X: Any) -> list[str]:
    if is_table(X):
        return [str(name) for name in column_list(X)[1]]
    return [f"x{i}" for i in range(np.shape(X)[1])]


def _without_points(numbers: dict[str, Any]) -> dict[str, Any]:
    """Long lists are drawn from a sample instead."""
    return {
        name: value
        for name, value in numbers.items()
        if not (isinstance(value, list) and len(value) > 64)
    }


def _left_out(found: Diagnosis) -> tuple[Any, Any, Any, Any]:
    """Row, prediction, expected error and score of every point, by the models that left it out."""
    rows = np.concatenate([rows for _, rows in found.evidence.folds])
    told = np.concatenate([own.mean for own in found.calibrated._told])
    error = np.abs(found.evidence.y[rows] - told)
    scores = found.calibrated.scores
    sigma = np.divide(error, scores, out=np.full_like(error, np.nan), where=scores > 0)
    return rows, told, np.where(np.isnan(sigma), np.nanmedian(sigma), sigma), scores


def predictions(found: Diagnosis, rng: Any) -> dict[str, Any]:
    """Left-out points, predicted, with the half width of their intervals."""
    rows, told, sigma, scores = _left_out(found)
    reach = np.quantile(scores, LEVEL) * sigma
    some = rng.permutation(len(rows))[:MOST_POINTS]
    some = some[np.argsort(rows[some])]
    return {
        "level": LEVEL,
        "row": _numbered(found, rows[some]),
        "truth": _rounded(found.evidence.y[rows[some]]),
        "predicted": _rounded(told[some]),
        "reach": _rounded(reach[some]),
        "mean_reach": float(np.mean(reach)),
    }


def _numbered(found: Diagnosis, rows: Any) -> list[int]:
    """Rows of the evidence as they are numbered in the table, from 1."""
    places = found.evidence.places
    return [int(row if places is None else places[row]) + 1 for row in rows]


def _called(found: Diagnosis, row: int, labels: list[str] | None) -> dict[str, Any]:
    """A row's number in the table, and what it is called in a sentence."""
    (number,) = _numbered(found, [row])
    name = f"row {number}" if labels is None else f"{labels[number - 1]} (row {number})"
    return {"row": number, "name": name}


def calibration(found: Diagnosis) -> dict[str, Any]:
    """How many points lie within intervals that were set by the points of the other folds."""
    _, _, _, scores = _left_out(found)
    sizes = [len(rows) for _, rows in found.evidence.folds]
    folds = np.repeat(np.arange(len(sizes)), sizes)
    covered = []
    for level in LEVELS:
        inside = np.empty(len(scores), dtype=bool)
        for fold in range(folds.max() + 1):
            own = folds == fold
            inside[own] = scores[own] <= np.quantile(scores[~own], level)
        covered.append(float(inside.mean()))
    return {"level": list(LEVELS), "covered": covered}


def importance(found: Diagnosis, names: list[str], rng: Any) -> list[dict[str, Any]]:
    """How much a predicted difference changes when one feature of its first point is another's.

    Root mean square change over random pairs, as a share of that of all features together.
    """
    evidence, model = found.evidence, found.model
    n = len(evidence.y)
    first, second, other = (rng.randint(0, n, _PERMUTED_PAIRS) for _ in range(3))
    told = np.ravel(model.predict_difference(evidence.rows(first), evidence.rows(second)))
    every = np.ravel(model.predict_difference(evidence.rows(other), evidence.rows(second)))
    whole = float(np.sqrt(np.mean((every - told) ** 2)))
    shares = []
    for place, name in enumerate(names):
        mixed = _with_column(evidence.rows(first), evidence.rows(other), place)
        change = np.ravel(model.predict_difference(mixed, evidence.rows(second))) - told
        share = float(np.sqrt(np.mean(change**2))) / whole if whole > 0 else 0.0
        shares.append({"name": name, "share": round(share, 4)})
    return sorted(shares, key=lambda one: -one["share"])


def _with_column(X: Any, other: Any, place: int) -> Any:
    """X with one column of another table of as many rows."""
    if not is_table(X):
        mixed = np.array(X, copy=True)
        mixed[:, place] = np.asarray(other)[:, place]
        return mixed
    if hasattr(X, "with_columns"):  # polars
        return X.with_columns(other[:, place])
    mixed = X.copy()
    mixed[mixed.columns[place]] = other.iloc[:, place].to_numpy()
    # a category stays one
    return mixed.astype(X.dtypes.to_dict())


def comparables(
    found: Diagnosis, names: list[str], labels: list[str] | None, rng: Any
) -> list[dict[str, Any]]:
    """For some points, each left out by its twin: the anchors nearest to it, and what they say.

    Nearest in standardised columns: of hundreds of anchors with equal weights, those are the ones
    to look at.
    """
    evidence, queries = found.evidence, []
    cells = _cells(evidence.X)
    scale = _spreads(cells)
    wide = evidence.encoder.standardised
    per_fold = max(1, MOST_QUERIES // len(evidence.folds))
    for model, (learned, left_out) in zip(found.calibrated.models, evidence.folds, strict=True):
        some = rng.permutation(left_out)[:per_fold]
        asked = evidence.rows(some)
        table = model.explain(asked, n=len(model.anchors_y_))
        told = np.ravel(model.predict(asked))
        for place, row in enumerate(some):
            own = table[table["query"] == place]
            rows = learned[model.anchor_rows_[own["anchor"].to_numpy()]]
            distance = np.sqrt(np.sum((wide[rows] - wide[row]) ** 2, axis=1))
            near = np.argsort(distance, kind="stable")[:MOST_COMPARABLES]
            anchors = [
                {
                    **_called(found, known, labels),
                    "known": _short(line.anchor_y),
                    "difference": _short(line.difference),
                    "estimate": _short(line.estimate),
                    "weight": _short(line.weight),
                    "features": _differing(cells, names, scale, row, known),
                }
                for known, line in zip(rows[near], own.iloc[near].itertuples(), strict=True)
            ]
            queries.append(
                {
                    **_called(found, row, labels),
                    "truth": _short(evidence.y[row]),
                    "predicted": _short(told[place]),
                    "anchors": anchors,
                    "values": [_shown(column[row]) for column in cells],
                }
            )
    return sorted(queries, key=lambda query: query["row"])


def _cells(X: Any) -> list[Any]:
    """Each column: numbers, or objects where they are names."""
    if not is_table(X):
        return list(np.asarray(X).T)
    columns, names = column_list(X)
    return [
        to_numeric(column, name)
        if is_numeric_dtype(column)
        else np.array(column.to_list(), dtype=object)
        for column, name in zip(columns, names, strict=True)
    ]


def _spreads(cells: list[Any]) -> list[float | None]:
    """The standard deviation of each column of numbers; None for names."""
    return [
        float(np.nanstd(column)) if np.issubdtype(column.dtype, np.number) else None
        for column in cells
    ]


def _differing(
    cells: list[Any], names: list[str], spreads: list[float | None], row: int, anchor: int
) -> list[dict[str, Any]]:
    """The features in which an anchor differs most from the query, in standard deviations."""
    found = []
    for name, column, spread in zip(names, cells, spreads, strict=True):
        mine, other = column[row], column[anchor]
        if spread is None:
            size = 0.0 if str(mine) == str(other) else 1.0
        elif spread == 0:
            continue
        else:
            size = abs(float(mine) - float(other)) / spread
            size = 1.0 if np.isnan(size) and np.isnan(mine) != np.isnan(other) else size
        if size > 0:
            found.append((size, {"name": name, "query": _shown(mine), "anchor": _shown(other)}))
    found.sort(key=lambda one: -one[0])
    return [one for _, one in found[:MOST_FEATURES]]


MANY_TIMES = 30


def next_steps(found: Diagnosis) -> list[str]:
    """What to do now, in a few lines."""
    steps = []
    comparison = found.findings["comparison"].numbers
    if comparison["answer"] == "helps":
        steps.append("Use the twin: the lines above make it, and the saved model is fitted.")
    elif comparison["answer"] == "does not help":
        steps.append("Keep the plain estimator: on these data pairs teach it nothing.")
    else:
        steps.append(
            "Choose by what else you need: the twin has an uncertainty and comparables, the plain "
            "estimator is quicker."
        )
    if comparison["best"] == "linear":
        steps.append("A straight line is best here: fit the twin around one (--model ridge).")
    if comparison["best"] == "k-NN":
        steps.append("k-NN is best here: look for columns that tell the points apart better.")
    learning = found.findings.get("learning")
    if learning is not None and learning.numbers["doubled"] < 0.95:
        steps.append(f"Get more labels. {learning.verdict} twinned.query says which ones.")
    multiplier = found.findings.get("multiplier")
    if multiplier is not None and multiplier.numbers["answer"] == "grows":
        steps.append(multiplier.verdict)
    y = found.evidence.y
    if (y > 0).all() and y.max() > MANY_TIMES * y.min():
        steps.append(
            f"The largest value is {y.max() / y.min():,.0f} times the smallest: try the logarithm "
            "(--log-target), which learns ratios."
        )
    if found.left_out:
        steps.append(f"Give it more time for: {', '.join(found.left_out)} (--budget).")
    return steps


def _rounded(values: Any) -> list[float]:
    return [_short(value) for value in values]


def _short(value: Any) -> float:
    """Six digits that count."""
    return float(f"{float(value):.6g}")


def _shown(value: Any) -> str:
    """A number rounded, a name as it is."""
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return "missing" if np.isnan(value) else number(float(value))
    return "missing" if value is None else str(value)
