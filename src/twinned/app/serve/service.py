"""Predictions, intervals and comparable cases of one fitted twin, as plain JSON values."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from twinned import solve
from twinned.app.prediction import FeatureRows, TablePredictor
from twinned.app.serve.inputs import Json, RowInputs
from twinned.app.serve.models import (
    MAX_KNOWN_ROWS,
    MAX_ROWS,
    BadRequest,
    SolveRequest,
    refuse_value_errors,
    rows_table,
)
from twinned.app.tables.table import Table
from twinned.estimators.twin import TwinRegressor
from twinned.fitted.explanation import BATCH, anchor_label, decode_row, find_comparables
from twinned.fitted.known_values import TargetRange
from twinned.fitted.target import IDENTITY
from twinned.rows.columns import unknown_categories

N_COMPARABLES = 8
MAX_CASES = 1_000  # that are listed
MAX_ADJUSTED_ROWS = 20  # of a request with adjustments
WORK_SECONDS = 120.0
"""Seconds for one step of a request: reading a file, or the predictions of up to 1,000 rows."""
_MIN_SCORES = 9  # the fewest that suffice for the intervals of 90 % on the page
_PREDICTIONS = ThreadPoolExecutor(min(2, os.cpu_count() or 1))  # the tree kernel releases the GIL
_SEARCHES = ThreadPoolExecutor(max_workers=1)  # the other processor is for predictions
# columns of `solve` that have other names in a response
_NAMES = {"predicted": "prediction", "lower": "low", "upper": "high", "applicable": "applicability"}
Result = TypeVar("Result")


class PredictionService:
    """A fitted twin prepared for serving, with the arguments of `make_app`."""

    def __init__(self, model: BaseEstimator, name: str) -> None:
        predictor = TablePredictor.of(model, name)
        if predictor.model.n_outputs_ is not None:
            raise ValueError(f"{name} has several outputs; only a model with one can be served.")
        # the columns of a request have names, also for a model that was fitted to an array
        self.predictor: TablePredictor = replace(predictor, names=predictor.model.feature_labels())
        if isinstance(predictor.twin, TwinRegressor):
            predictor.twin.prepare_fast_path()

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.predictor.name

    @property
    def target(self) -> str:
        """The name of the target."""
        return self.predictor.target

    @cached_property
    def inputs(self) -> RowInputs:
        """What a row must have."""
        return RowInputs.of(self.predictor)

    def with_known(self, known: list[Json]) -> PredictionService:
        """Return the service of the model with further known rows of batches.

        Nothing is trained or stored.
        """
        if self.inputs.batch is None:
            raise BadRequest("known rows need a model that was fitted with batches.")
        with refuse_value_errors():
            predictor = self.predictor.with_known_rows(rows_table(known, "known rows"), "known")
        return PredictionService(predictor.model, self.name)

    def about(self) -> Json:
        """Return the target, the number of anchors, whether there are intervals, and the features.

        `log_target` is whether the model is fitted to the logarithm. `lower_bound` is 0 where no
        known value is negative, `upper_bound` 100 for a share in %, and both are None elsewhere.
        `calibrated_std` is whether the standard deviation is calibrated.
        `columns` are the features, and `inputs` what a row must have: a date instead of its parts.
        `allow_missing` is whether values may be missing.
        `known_rows` is the largest number of further known rows of batches.
        `cases` has the labels and values of up to 1,000 known cases.
        """
        fitted, allow_missing = self.predictor.fitted, self.predictor.allow_nan
        known_y, calibration = fitted.known_y, fitted.calibration
        lower, upper = TargetRange.of(self.target, known_y)
        labels = [anchor_label(fitted.anchors, i) for i in range(len(known_y))]
        return {
            "name": self.name,
            "target": self.target,
            "log_target": fitted.target.is_log,
            "lower_bound": lower if np.isfinite(lower) else None,
            "upper_bound": upper if np.isfinite(upper) else None,
            "anchors": len(known_y),
            "intervals": calibration is not None and calibration.n_rows >= _MIN_SCORES,
            "calibrated_std": calibration is not None,
            "allow_missing": allow_missing,
            "known_rows": MAX_KNOWN_ROWS if self.inputs.batch else 0,
            "cases": list(zip(labels, known_y.tolist(), strict=True))[:MAX_CASES],
            "columns": [feature.describe(allow_missing) for feature in self.inputs.features],
            "inputs": [column.describe(allow_missing) for column in self.inputs.inputs],
        }

    def read(self, table: Table) -> FeatureRows:
        """Return the features of the rows of a table, with warnings as notes."""
        with refuse_value_errors():
            rows = self.predictor.read(table)
            notes = [*rows.notes, *self.predictor.describe_unlike_known(rows.X)]
        if table.detected:
            notes.insert(0, f"{table.path} is read with {', '.join(table.detected)}.")
        columns = np.asarray(rows.X, dtype=object).T
        for feature, cells in zip(self.inputs.features, columns, strict=True):
            if feature.categories is not None:
                new = _new_values(cells, feature.categories)
                if new:
                    notes.append(unknown_categories(feature.name, new, feature.categories))
        if self.inputs.batch is not None:
            column = self.inputs.batch.name
            if_missing = f"a column {column!r} names them"
            if_new = "known of a request, or Known rows of a new batch on the page"
            notes += self.predictor.describe_unknown_batch(rows.batch, if_missing, if_new)
        return replace(rows, notes=notes)

    def predict(self, rows: FeatureRows, confidence: float | None) -> dict[str, list]:
        """Return `prediction`, `std` and, with a confidence, `low`, `high` and `applicability`."""
        with refuse_value_errors():
            columns = self.predictor.predict(
                rows, std=True, confidence=confidence, applicability=confidence is not None
            )
        labels = columns.pop("applicability", None)
        _check_finite(np.column_stack(list(columns.values())))
        content = {name: values.tolist() for name, values in columns.items()}
        return content if labels is None else content | {"applicability": labels.tolist()}

    def explain(self, rows: FeatureRows) -> Json:
        """Return the comparable cases of each row and all others, and its applicability.

        Few rows also have `adjustments`: what each feature adds to the difference.
        """
        with refuse_value_errors():
            explained = find_comparables(
                self.predictor.model,
                rows.X,
                N_COMPARABLES,
                batch=rows.batch,
                adjustments=len(rows) <= MAX_ADJUSTED_ROWS,
            )
        values = [
            [(case.known, case.estimate) for case in comparables.with_others]
            for comparables in explained
        ]
        _check_finite(np.array(values).reshape(len(rows), -1))
        records = [comparables.as_dict() for comparables in explained]
        content: Json = {name: [record[name] for record in records] for name in records[0]}
        return content | {"applicability": self.applicability(rows)}

    def applicability(self, rows: FeatureRows) -> list[Json]:
        """Return, for each row, its score and label, and what is measured of its class.

        With a transformed target there is no error, as it would be that of the transformed one.
        """
        with refuse_value_errors():
            table = self.predictor.model.applicability(rows.X)
        if self.predictor.fitted.target != IDENTITY:
            table = table.drop(columns="error", errors="ignore")
        records: Any = table.to_dict("records")
        return [{name: x for name, x in record.items() if x == x} for record in records]  # no NaN

    def known_case(self, number: int) -> Json:
        """Return the values of a known case, as a row of a request."""
        fitted = self.predictor.fitted
        if number >= len(fitted.anchors):
            raise BadRequest(f"near: there are {len(fitted.anchors)} known cases, from 0 on.")
        names = self.predictor.model.feature_labels()
        values: Json = decode_row(fitted.anchors, number, names, fitted.batches)
        if self.inputs.batch is not None:
            values[self.inputs.batch.name] = values.pop(BATCH)
        return values

    def solve(self, wanted: SolveRequest, row: FeatureRows) -> list[Json]:
        """Return proposals of changes of a row, the best first.

        Dates and marks of limits do not change, as their features belong together.
        """
        names, sources = self.predictor.model.feature_labels(), self.inputs.sources
        fixed = {*wanted.fixed, *sources} - ({*sources.values()} - {*names})
        if fixed >= {*names}:
            raise BadRequest("fixed: no column is left that may change.")
        with refuse_value_errors():
            table = solve(
                self.predictor.model,
                wanted.target,
                near=row.X,
                fixed=sorted(fixed),
                bounds=wanted.bounds,
                constraints=wanted.constraints,
                n=wanted.n,
                confidence=wanted.confidence,
                batch=None if row.batch is None else row.batch[0],
                random_state=0,
            )
        n_names = len(names)
        cells = table.astype(object).where(table.notna(), None)
        inputs, changes = cells.iloc[:, :n_names], cells.iloc[:, n_names : 2 * n_names]
        results = cells.iloc[:, 2 * n_names :].rename(columns=_result_name)
        _check_finite(results.filter(["prediction", "low", "high"]).to_numpy(dtype=float))
        anchors = self.predictor.fitted.anchors
        if anchors.labels is None:
            results["anchor"] = [anchor_label(anchors, anchor) for anchor in results["anchor"]]
        results["anchor"] = results["anchor"].astype(str)
        records: Any = results.to_dict("records")
        rows = zip(inputs.to_numpy(), changes.to_numpy(), records, strict=True)
        return [
            {
                "columns": dict(zip(names, values, strict=True)),
                "changes": dict(zip(names, changed, strict=True)),
                **result,
            }
            for values, changed, result in rows
        ]


def _new_values(cells: np.ndarray, known: Sequence[str]) -> list[str]:
    """Return the different values that are neither known nor missing."""
    present = [str(cell) for cell in cells if cell is not None and cell == cell]
    return [text for text in dict.fromkeys(present) if text not in known]


def _result_name(name: str) -> str:
    """Return the name in a response of a result of `solve`.

    Results of `solve` have `_` after a name that an input has.
    """
    name = name.rstrip("_")
    return _NAMES.get(name, name)


def _check_finite(values: np.ndarray) -> None:
    """Raise `BadRequest` where a result is infinite or no number, which JSON cannot hold.

    `values` are (row of the request, column).
    """
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise BadRequest(f"row {bad[0] + 1}: the prediction is not a finite number.")


async def predict_in_blocks(
    service: PredictionService, rows: FeatureRows, confidence: float | None
) -> dict[str, list]:
    """Return the columns of predictions, which are computed `MAX_ROWS` rows at a time."""
    columns: dict[str, list] = {}
    for start in range(0, len(rows), MAX_ROWS):
        block = rows.take(slice(start, start + MAX_ROWS))
        for name, values in (await in_thread(service.predict, block, confidence)).items():
            columns.setdefault(name, []).extend(values)
    return columns


async def in_thread(function: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of a function that runs in a thread, within `WORK_SECONDS`."""
    return await _run(_PREDICTIONS, "send fewer rows", function, *arguments)


async def in_turn(function: Callable[..., Result], *arguments: object) -> Result:
    """As `in_thread`, one search after the other; one that waits too long is not started."""
    return await _run(_SEARCHES, "fix some columns", function, *arguments)


async def _run(
    pool: ThreadPoolExecutor, advice: str, function: Callable[..., Result], *arguments: object
) -> Result:
    try:
        async with asyncio.timeout(WORK_SECONDS):
            return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
    except TimeoutError:
        message = f"the request takes more than {WORK_SECONDS:g} seconds; {advice}."
        raise BadRequest(message, 503) from None
