"""Predictions, intervals and comparable cases of one fitted twin, as plain JSON values."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from twinned.app.prediction import FeatureRows, TablePredictor
from twinned.app.serve.requests import Json, RowInputs
from twinned.app.tables.table import Table
from twinned.estimators.molecules import draw_molecules
from twinned.estimators.twin import TwinRegressor
from twinned.fitted.target import IDENTITY
from twinned.rows.columns import unknown_categories

N_COMPARABLES = 8
_MIN_SCORES = 9  # the fewest that suffice for the intervals of 90 % on the page
_PREDICTIONS = ThreadPoolExecutor(min(2, os.cpu_count() or 1))  # the tree kernel releases the GIL
Result = TypeVar("Result")


class PredictionService:
    """A fitted twin prepared for serving, with the arguments of `make_app`."""

    def __init__(self, model: BaseEstimator, name: str) -> None:
        self.predictor: TablePredictor = TablePredictor.of(model, name)
        self.predictor.require_single_target("serve")
        if isinstance(self.predictor.twin, TwinRegressor):
            self.predictor.twin.prepare_fast_path()

    @cached_property
    def inputs(self) -> RowInputs:
        """What a row must have."""
        return RowInputs.of(self.predictor)

    def about(self) -> Json:
        """Return the target, the number of anchors, whether there are intervals, and the features.

        `log_target` is whether the model is fitted to the logarithm, and `calibrated_std` whether
        the standard deviation is calibrated.
        `columns` are the features, and `inputs` what a row must have: a date instead of its parts.
        `allow_missing` is whether values may be missing.
        `batch` is the name of the batch among them, None for a model without batches.
        """
        fitted, allow_missing = self.predictor.fitted, self.predictor.allow_nan
        calibration = fitted.calibration
        return {
            "name": self.predictor.name,
            "target": self.predictor.target,
            "log_target": fitted.target.is_log,
            "anchors": len(fitted.anchors),
            "intervals": calibration is not None and calibration.n_rows >= _MIN_SCORES,
            "calibrated_std": calibration is not None,
            "allow_missing": allow_missing,
            "batch": self.inputs.batch and self.inputs.batch.name,
            "columns": [feature.describe(allow_missing) for feature in self.inputs.features],
            "inputs": [column.describe(allow_missing) for column in self.inputs.inputs],
        }

    def read(self, table: Table) -> FeatureRows:
        """Return the features of the rows of a table, with warnings as notes."""
        rows = self.predictor.read(table)
        notes = [*rows.notes, *self.predictor.describe_unlike_known(rows.X)]
        columns = np.asarray(rows.X, dtype=object).T
        for feature, cells in zip(self.inputs.features, columns, strict=True):
            if feature.categories is not None:
                new = _new_values(cells, feature.categories)
                if new:
                    notes.append(unknown_categories(feature.name, new, feature.categories))
        if self.inputs.batch is not None:
            column = self.inputs.batch.name
            if_missing = f"a column {column!r} names them"
            if_new = "--known of twinned predict, or add_anchors in Python"
            notes += self.predictor.describe_unknown_batch(rows.batch, if_missing, if_new)
        return replace(rows, notes=notes)

    def predict(self, rows: FeatureRows, confidence: float | None) -> dict[str, list]:
        """Return `prediction`, `std` and, with a confidence, `low`, `high` and `applicability`."""
        columns = self.predictor.predict(
            rows, std=True, confidence=confidence, applicability=confidence is not None
        )
        labels = columns.pop("applicability", None)
        content = {name: values.tolist() for name, values in columns.items()}
        return content if labels is None else content | {"applicability": labels.tolist()}

    def explain(self, rows: FeatureRows) -> Json:
        """Return the comparable cases of each row and all others, and its applicability.

        Few rows also have `adjustments`: what each feature adds to the difference. With a column of
        molecules, cases have the `pair` of groups by which they differ from the row, and there are
        `pictures` by SMILES.
        """
        explained = self.predictor.find_comparables(rows, N_COMPARABLES)
        records = [comparables.as_dict() for comparables in explained]
        content: Json = {name: [record[name] for record in records] for name in records[0]}
        if rows.molecules is not None:
            labels = (case.label for comparables in explained for case in comparables.cases)
            content["pictures"] = draw_molecules([*rows.molecules, *labels])
        return content | {"applicability": self.applicability(rows)}

    def applicability(self, rows: FeatureRows) -> list[Json]:
        """Return, for each row, its score and label, and what is measured of its class.

        With a transformed target there is no error, as it would be that of the transformed one.
        """
        table = self.predictor.model.applicability(rows.X)
        if self.predictor.fitted.target != IDENTITY:
            table = table.drop(columns="error", errors="ignore")
        records: Any = table.to_dict("records")
        return [{name: x for name, x in record.items() if x == x} for record in records]  # no NaN


def _new_values(cells: np.ndarray, known: Sequence[str]) -> list[str]:
    """Return the different values that are neither known nor missing."""
    present = [str(cell) for cell in cells if cell is not None and cell == cell]
    return [text for text in dict.fromkeys(present) if text not in known]


async def in_thread(function: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of a function that runs in a thread."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_PREDICTIONS, function, *arguments)
