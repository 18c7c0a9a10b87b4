"""Content of the report as strings, numbers and lists of them: the JSON output of `advise`."""

import time
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from sklearn.utils import gen_batches

from twinned._version import __version__
from twinned.app.report.grid import find_pairs, make_grid, summarize_features
from twinned.diagnostics import Diagnosis, Finding
from twinned.diagnostics.data_checks import feature_names
from twinned.diagnostics.errors import ErrorSummary
from twinned.diagnostics.recommendation import NO_PREDICTION
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.molecules import is_fragment
from twinned.fitted.anchors import AnchorEstimates
from twinned.fitted.applicability import LABELS, ClassStatistics
from twinned.fitted.explanation import (
    decode_row,
    group_cases,
    offset_differences,
    tabulate_adjustments,
    tabulate_estimates,
)
from twinned.fitted.held_out import LocalResiduals
from twinned.fitted.quantiles import tails
from twinned.fitted.twin import FittedTwin
from twinned.rows.folds import Folds, distinct_rows
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

Content = dict[str, Any]  # what JSON holds

CONFIDENCE = 0.9  # of the intervals shown
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MAX_POINTS = 600  # in a chart
MAX_QUERIES, MAX_COMPARABLES = 40, 5
_ROWS_PER_BLOCK = 12  # whose adjustments are computed at once
_MAX_CURVES, _CURVE_POINTS = 6, 40  # batches whose deviations are drawn, and points of each
_PREDICTED_COLUMNS = {"y": "truth", "prediction": "predicted", "lower": "lower", "upper": "upper"}


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
    `seconds` are about the time for adjustments. `random_state` draws the rows that are shown.
    """
    rng = np.random.RandomState(random_state)
    names = feature_names(diagnosis.X)
    shown = _shown_rows(diagnosis, labels, row_numbers)
    twin = diagnosis.twin
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
        "conclusion": diagnosis.recommendation.conclusion,
        "verdict": _verdict(diagnosis),
        "summary": diagnosis.summary,
        "recommended": dict(zip(twin.member_names_, twin.member_weights_.tolist(), strict=True)),
        "errors": dict(zip(ErrorSummary.__annotations__, diagnosis.errors, strict=True)),
        "error_summary": diagnosis.errors.describe(target),
        "findings": [_finding_content(finding) for finding in diagnosis.findings],
        "leaderboard": leaderboard_content(diagnosis.leaderboard),
        "code": diagnosis.code,
        "batches": batch_content(twin),
        "checks": {key: asdict(check) for key, check in diagnosis.checks.items()},
        "skipped": diagnosis.skipped,
        "notes": diagnosis.notes,
        "predictions": _predictions(shown, rng),
        "calibration": calibration(diagnosis),
        "classes": coverage_of_classes(diagnosis),
        "importance": importance(diagnosis, names),
        "comparables": comparable_rows(diagnosis, names, shown, rng, seconds),
    }


def _verdict(diagnosis: Diagnosis) -> str:
    """Return how good the model is: "good" where it explains half of the variance of y or more."""
    if diagnosis.recommendation.conclusion == NO_PREDICTION:
        return "no-prediction"
    errors = diagnosis.errors
    return "good" if 2 * errors.rmse**2 <= errors.mean_rmse**2 else "fair"


def leaderboard_content(board: pd.DataFrame) -> list[Content]:
    """Return the rows of a leaderboard, without NaN."""
    rows = board.astype(object).where(board.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def batch_content(twin: AutoTwinRegressor) -> Content | None:
    """Return the offsets of batches, the largest first, and the errors of known and new batches."""
    if twin.fitted_.batches is None:
        return None
    table = twin.batch_offsets_.sort_values("offset", key=np.abs, ascending=False, kind="stable")
    return {
        "offsets": table.reset_index().to_dict("records"),
        "errors": twin.batch_errors_,
        "deviations": _deviation_curves(twin, list(table.index[:_MAX_CURVES])),
    }


def _deviation_curves(twin: AutoTwinRegressor, shown: list[str]) -> Content | None:
    """Return deviations of batches over the numeric feature of largest relevance, if any.

    The other features have their medians. Deviations that are constants are none.
    """
    batches, numeric = twin.fitted_.batches, list(twin.fitted_.schema.numeric)
    assert batches is not None, "the model has batches"
    if batches.deviation.is_constant or not numeric:
        return None
    column = int(np.argmax(np.asarray(twin.feature_relevance_)[numeric]))
    values = batches.features[:, column]
    rows = np.tile(np.nanmedian(batches.features, axis=0), (_CURVE_POINTS, 1))
    rows[:, column] = np.linspace(np.nanmin(values), np.nanmax(values), _CURVE_POINTS)
    curves = []
    for name in shown:
        codes = np.full(_CURVE_POINTS, batches.names.index(name))
        mean, std = batches.of_rows(rows, codes)
        deviation = (mean - batches.center).tolist()
        curves.append({"batch": name, "deviation": deviation, "std_error": std.tolist()})
    feature = twin.feature_labels()[numeric[column]]
    return {"feature": feature, "x": rows[:, column].tolist(), "curves": curves}


def _shown_rows(
    diagnosis: Diagnosis, labels: list[str] | None, row_numbers: list[int] | None
) -> pd.DataFrame:
    """Return the number of each fitted row in its file, its name and its rounded prediction.

    That of a row that no fold holds out is NaN.
    """
    rows = np.arange(len(diagnosis.y)) if diagnosis.rows is None else diagnosis.rows
    numbers = rows + 1 if row_numbers is None else np.array(row_numbers)[rows]
    names = [f"row {i}" for i in numbers] if labels is None else [labels[row] for row in rows]
    predicted = diagnosis.out_of_fold[list(_PREDICTED_COLUMNS)].rename(columns=_PREDICTED_COLUMNS)
    rounded = predicted.map(lambda value: float(f"{value:.6g}")).reindex(range(len(rows)))
    return pd.DataFrame({"row": numbers, "name": names, **rounded})


def _finding_content(finding: Finding) -> Content:
    about = {"level": finding.level, "title": finding.title, "about": finding.about}
    return {**asdict(finding), **about}


def _predictions(shown: pd.DataFrame, rng: np.random.RandomState) -> Content:
    """Return out-of-fold predictions of the recommended model with their intervals."""
    shown = shown.dropna()
    rows = np.sort(rng.permutation(len(shown))[:MAX_POINTS])
    half_width = float((shown["upper"] - shown["lower"]).mean() / 2)
    points = {str(name): column.tolist() for name, column in shown.iloc[rows].items()}
    return {"confidence": CONFIDENCE, **points, "mean_half_width": half_width}


def calibration(diagnosis: Diagnosis) -> Content:
    """Return the coverage of intervals that are calibrated on the other folds."""
    scores, fold = (diagnosis.out_of_fold[name].to_numpy() for name in ("score", "fold"))
    confidence = np.array(CONFIDENCES)
    levels = tails(confidence)
    ends = np.array([np.quantile(scores[fold != k], levels) for k in range(fold.max() + 1)])
    low, high = ends[fold].transpose(1, 0, 2)
    covered = (low <= scores[:, None]) & (scores[:, None] <= high)
    coverage = covered.mean(axis=0).tolist()
    errors = np.sqrt(confidence * (1 - confidence) / len(scores)).tolist()
    return {"confidence": list(CONFIDENCES), "coverage": coverage, "standard_error": errors}


def coverage_of_classes(diagnosis: Diagnosis) -> list[Content]:
    """Return number, RMSE and coverage of the held-out rows inside, at the edge and outside.

    Each row is classified by its distance from the other rows. Classes without rows are left out.
    """
    table, domain = diagnosis.out_of_fold, diagnosis.model.fitted_.anchors.domain
    classes = pd.Series(domain.classify_known(), index=domain.known_rows)
    table = table[table.index.isin(classes.index)]
    error = (table["y"] - table["prediction"]).to_numpy()
    covered = table["y"].between(table["lower"], table["upper"]).to_numpy()
    measured = ClassStatistics.of_rows(classes[table.index].to_numpy(), error, covered, CONFIDENCE)
    measured_table = measured.table().rename_axis("class").reset_index()
    shown = measured_table[measured.rows > 0].to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in shown]


def importance(diagnosis: Diagnosis, names: list[str]) -> list[Content]:
    """Return `feature_relevance_` of the recommended model, the largest first."""
    relevance = diagnosis.twin.feature_relevance_
    order = np.argsort(-relevance, kind="stable")
    shares = relevance.round(4).tolist()
    return [{"name": names[feature], "share": shares[feature]} for feature in order]


def comparable_rows(
    diagnosis: Diagnosis,
    names: list[str],
    shown: pd.DataFrame,
    rng: np.random.RandomState,
    seconds: float,
) -> list[Content]:
    """Return for a sample of rows the comparable known cases, and their adjustment grid.

    The rows are predicted out of fold by the recommended model, from the rows of other folds. The
    fitted model attributes differences to features, within about so many seconds.
    """
    table, fitted = diagnosis.out_of_fold, diagnosis.model.fitted_
    anchors, domain = replace(fitted.anchors, labels=shown["name"].tolist()), fitted.anchors.domain
    rows = np.sort(rng.permutation(table.index.to_numpy())[:MAX_QUERIES])
    predicted = fitted.target.apply(table["prediction"].reindex(range(len(anchors))).to_numpy())
    comparables = _tabulate_out_of_fold(fitted, rows, predicted, diagnosis.twin.folds_)
    adjustments = _adjustments(fitted, rows, comparables, seconds)
    cases_of_rows = group_cases(comparables, adjustments, anchors, names, fitted.batches)
    classes = zip(domain.known_rows, domain.classify_known(), strict=True)
    applicability = {int(row): LABELS[label] for row, label in classes}
    records, content = shown.to_dict("records"), []
    is_of_molecules = any(map(is_fragment, names))
    for row, cases in zip(rows.tolist(), map(summarize_features, cases_of_rows), strict=True):
        if is_of_molecules:
            cases = find_pairs(cases, records[row]["name"])
        values = decode_row(anchors, row, names, fitted.batches)
        content.append(
            {
                **records[row],
                "applicability": applicability.get(row),
                "values": {name: values[name] for name in cases.cases[0].values},
                **cases.as_dict(),
                "grid": asdict(make_grid(values, float(table["prediction"][row]), cases)),
            }
        )
    return content


def _tabulate_out_of_fold(
    fitted: FittedTwin, rows: Indices, predicted: Floats, folds: Folds
) -> pd.DataFrame:
    """Return the comparables of rows as `explain` does, from the training rows of their folds.

    `predicted` (anchor,) and `folds` are of all anchors. The weights are those of `explain`. The
    weighted mean of the errors of the anchors is subtracted, so that the weighted mean of the
    estimates is the prediction. All values are in units of y.
    """
    anchors, target, residuals = fitted.anchors, fitted.target, np.asarray(fitted.residuals)
    power = 0.0 if fitted.local_weights is None else fitted.local_weights.power
    shares = LocalResiduals(anchors, residuals, folds).shares(power, rows)
    features = anchors.metric.transform(anchors.features)
    distances = cdist(features[rows], features)
    known_y = anchors.outputs + fitted.anchor_offsets[:, None]
    content, tables = np.column_stack([anchors.matrix, known_y]), []
    for training, held_out in folds:
        queries = np.flatnonzero(np.isin(rows, held_out))
        if not len(queries):
            continue
        pairs = np.ix_(queries, training)
        mean_residuals = target.apply(shares[pairs] @ target.invert(residuals[training]))
        means = predicted[rows[queries], None, None] - mean_residuals[:, None]
        block = AnchorEstimates(
            indices=np.broadcast_to(np.arange(len(training)), shares[pairs].shape),
            estimates=target.invert(means + residuals[training]),
            weights=shares[pairs],
            distances=distances[pairs],
        )
        first, codes = distinct_rows(content[training])
        fold_y = target.invert_known(known_y[training])
        span = slice(0, len(queries))
        table = tabulate_estimates(span, block, fold_y, MAX_COMPARABLES, first, codes)
        is_case, anchor = table["anchor"] >= 0, training[table["anchor"]]
        tables.append(
            table.assign(query=queries[table["query"]], anchor=np.where(is_case, anchor, -1))
        )
    table = pd.concat(tables, ignore_index=True)
    return table.assign(offset=offset_differences(fitted, fitted.anchor_offsets[rows], table))


def _adjustments(fitted: FittedTwin, rows: Indices, table: pd.DataFrame, seconds: float) -> Floats:
    """Return (row of a table of comparables, feature) what adds to its differences.

    They are NaN for all other cases, and for the last rows where the time did not suffice.
    """
    queries = fitted.queries(fitted.anchors.matrix[rows])
    adjustments = np.full((len(table), fitted.anchors.matrix.shape[1]), np.nan)
    end = time.perf_counter() + seconds
    for block in gen_batches(len(rows), _ROWS_PER_BLOCK):
        if time.perf_counter() > end:
            break
        is_shown = table["query"].between(block.start, block.stop - 1).to_numpy()
        adjustments[is_shown] = tabulate_adjustments(fitted, queries, table[is_shown])
    return adjustments
