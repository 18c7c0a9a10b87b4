"""Predictions, intervals and comparable cases of one fitted twin, as plain JSON values."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from twinned.app.serve.errors import BadRequest, value_error_as_bad_request
from twinned.app.serve.inputs import InputDate, InputFeature
from twinned.app.serve.schema import RequestSchema
from twinned.app.tables import EPOCH
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.twin import TwinRegressor
from twinned.fitted.calibration import stored_calibration
from twinned.fitted.explanation import comparable_cases
from twinned.fitted.known_values import TargetRange
from twinned.fitted.quantiles import check_confidence
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

N_COMPARABLES = 8
MAX_ADJUSTED_ROWS = 20  # of a request with adjustments
_MIN_SCORES = 9  # the fewest that suffice for the intervals of 90 % on the page


class BatchPredictions(NamedTuple):
    """Predictions of several rows, on the scale of the fitted target."""

    mean: Floats
    std: Floats  # raw, not calibrated, unless the twin is a blend
    error_scale: Floats | None  # None where no intervals are requested

    def take(self, rows: slice) -> BatchPredictions:
        """Return the predictions of a slice of the rows."""
        scale = None if self.error_scale is None else self.error_scale[rows]
        return BatchPredictions(self.mean[rows], self.std[rows], scale)


class PredictionService:
    """A fitted twin prepared for serving, with the arguments of `make_app`."""

    def __init__(self, model: BaseEstimator, name: str) -> None:
        twin = getattr(model, "regressor_", model)
        self.name = name
        self._log_target = twin is not model
        if self._log_target and (model.func is not np.log or model.inverse_func is not np.exp):
            raise ValueError(f"{name} transforms its target by other functions than log and exp.")
        if np.ndim(twin.anchors_y_) != 1:
            raise ValueError(f"{name} has several outputs; only a model with one can be served.")
        self.schema = RequestSchema.from_twin(twin)
        self._named_twin = twin
        if self.schema.named and self.schema.is_all_numeric:
            # arrays are validated faster than tables, and the columns are in the right order
            twin = copy.copy(twin)
            del twin.feature_names_in_
        if isinstance(twin, TwinRegressor):
            twin.prepare_fast_path()
        self._twin = twin
        self._intervals = stored_calibration(twin) if hasattr(twin, "intervals_") else None

    def about(self) -> dict[str, Any]:
        """Return the target, the number of anchors, whether there are intervals, and the features.

        `lower_bound` is 0 where no known value is negative, `upper_bound` 100 for a share in %, and
        both are None elsewhere. `calibrated_std` is whether the standard deviation is calibrated,
        as that of a blend. `columns` are the features, and `inputs` what a row must have: a date
        instead of its parts. `allow_missing` is whether values may be missing.
        """
        target = getattr(self._twin, "target_name_", "y")
        possible = TargetRange.of(target, self._to_target(self._twin.anchors_y_))
        lower, upper = (end if np.isfinite(end) else None for end in possible)
        known = dict(zip(self.schema.names, self._twin.anchors_X_.T, strict=True))
        columns = [
            {
                "name": each.name,
                "choices": each.labels,
                "ordered": each.ordered,
                "middle": _initial_value(each, known[each.name]),
            }
            for each in self.schema.features
        ]
        by_name = {own["name"]: own for own in columns}
        inputs = [
            _date_input(own, known) if isinstance(own, InputDate) else by_name[own.name]
            for own in self.schema.inputs
        ]
        return {
            "name": self.name,
            "target": target,
            "lower_bound": lower,
            "upper_bound": upper,
            "anchors": len(self._twin.anchors_y_),
            "intervals": self._intervals is not None and len(self._intervals.scores) >= _MIN_SCORES,
            "calibrated_std": isinstance(self._twin, AutoTwinRegressor),
            "allow_missing": self.schema.allow_missing,
            "columns": columns,
            "inputs": inputs,
        }

    def check_intervals_available(self, confidence: float | None) -> None:
        """Raise `BadRequest` where intervals of this confidence are requested and impossible."""
        if confidence is None:
            return
        if self._intervals is None:
            raise BadRequest(f"{self.name} stores no intervals; fit it with `twinned fit`.")
        with value_error_as_bad_request():
            check_confidence(confidence, len(self._intervals.scores))

    def predict(self, rows: list[list[Any]], intervals: bool = False) -> BatchPredictions:
        """Return the predictions of parsed rows, with the error scale if `intervals`."""
        X = self.schema.to_table(rows)
        with value_error_as_bad_request():
            if not intervals or self._intervals is None:
                mean, std = self._twin.predict(X, return_std=True)
                return BatchPredictions(mean, std, None)
            return BatchPredictions(*self._twin._predict_error_scale(X, self._intervals))

    def to_columns(
        self, predictions: BatchPredictions, confidence: float | None
    ) -> dict[str, list[float]]:
        """Return `prediction`, `std` and, with a confidence, `low` and `high`, in units of y."""
        mean, std, error_scale = predictions
        columns = {"prediction": mean, "std": std}
        if self._log_target:
            columns = {"prediction": self._to_target(mean), "std": self._to_target(mean) * std}
        if confidence is not None and self._intervals is not None and error_scale is not None:
            bounds = self._to_target(self._intervals.interval(mean, error_scale, confidence))
            columns["low"], columns["high"] = bounds.T
        _check_finite(np.column_stack(list(columns.values())))
        return {name: values.tolist() for name, values in columns.items()}

    def explain(self, rows: list[list[Any]]) -> list[list[dict[str, Any]]]:
        """Return, for each parsed row, its most important anchors and their estimates.

        Few rows also have `adjustments`: what each feature adds to the difference.
        """
        X = self.schema.to_table(rows, with_names=True)
        with value_error_as_bad_request():
            comparables = comparable_cases(
                self._named_twin,
                X,
                N_COMPARABLES,
                log_target=self._log_target,
                adjustments=len(rows) <= MAX_ADJUSTED_ROWS,
            )
        values = [(case.known, case.estimate) for own in comparables for case in own]
        _check_finite(np.array(values), np.repeat(np.arange(len(rows)), len(comparables[0])))
        return [[case.as_dict() for case in own] for own in comparables]

    def applicability(self, rows: list[list[Any]]) -> list[dict[str, Any]]:
        """Return, for each parsed row, its score and label, and what is measured of its class.

        After a log-transformed target there is no error, as it would be that of the logarithm.
        """
        with value_error_as_bad_request():
            table = self._twin.applicability(self.schema.to_table(rows))
        if self._log_target:
            table = table.drop(columns="error", errors="ignore")
        return [
            {name: value for name, value in row.items() if value == value}  # no NaN
            for row in table.to_dict("records")
        ]

    def _to_target(self, values: Floats) -> Floats:
        with np.errstate(over="ignore"):  # reported by `_check_finite`
            return np.exp(values) if self._log_target else values


def _check_finite(values: Floats, rows: Indices | None = None) -> None:
    """Raise `BadRequest` where a result of a row is infinite or no number, which JSON cannot hold.

    `values` are (n, column), and `rows` (n,) the rows of the request that they belong to.
    """
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        row = 1 + int(bad[0] if rows is None else rows[bad[0]])
        raise BadRequest(f"row {row}: the prediction is not a finite number.")


def _date_input(date: InputDate, known: dict[str, Floats]) -> dict[str, Any]:
    """Return the description of a date, with that of the median day as the initial value."""
    days = known[date.features["days"]]
    middle = EPOCH + timedelta(days=float(np.nanmedian(days)))
    if date.has_time:
        value = middle.isoformat(sep="T", timespec="minutes")
    else:
        value = middle.date().isoformat()
    return {"name": date.name, "kind": "datetime" if date.has_time else "date", "middle": value}


def _initial_value(feature: InputFeature, known: Floats) -> float | str:
    """Return an initial value for the form: the median of the anchors, or their commonest category.

    `known` are the values of the anchors, categories as codes.
    """
    present = known[~np.isnan(known)]
    if feature.labels is not None:
        counts = np.bincount(present.astype(np.intp), minlength=1)
        return feature.labels[int(np.argmax(counts))] if feature.labels else ""
    return float(np.median(present)) if len(present) else 0.0
