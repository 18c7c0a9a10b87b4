"""Predictions, intervals and comparable cases of one fitted twin, as plain JSON values."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from twinned.app.serve.models import (
    MAX_KNOWN_ROWS,
    BadRequest,
    InputDate,
    InputFeature,
    Json,
    KnownRows,
    ParsedRows,
    RequestSchema,
    SolveRequest,
    Value,
    refuse_value_errors,
)
from twinned.app.tables.columns import EPOCH
from twinned.estimators.methods import TwinMethods
from twinned.estimators.target import replace_twin, split_target
from twinned.estimators.twin import TwinRegressor
from twinned.fitted.calibration import Calibration
from twinned.fitted.explanation import BATCH, anchor_label, decode_row, find_comparables
from twinned.fitted.known_values import TargetRange
from twinned.fitted.quantiles import check_confidence
from twinned.fitted.target import IDENTITY
from twinned.rows.schema import Floats
from twinned.search.solve import solve

N_COMPARABLES = 8
MAX_CASES = 1_000  # that are listed
MAX_ADJUSTED_ROWS = 20  # of a request with adjustments
MAX_WORKERS = min(2, os.cpu_count() or 1)  # threads: the tree kernel releases the GIL
WORK_SECONDS = 120.0
"""Seconds for one step of a request: reading a file, or the predictions of up to 1,000 rows."""
_MIN_SCORES = 9  # the fewest that suffice for the intervals of 90 % on the page
_SEARCHES = ThreadPoolExecutor(max_workers=1)  # the other processor is for predictions
# columns of `solve` that have other names in a response
_NAMES = {"predicted": "prediction", "lower": "low", "upper": "high", "applicable": "applicability"}
T = TypeVar("T")


class PredictionService:
    """A fitted twin prepared for serving, with the arguments of `make_app`."""

    def __init__(self, model: BaseEstimator, name: str) -> None:
        self.name, self._model = name, model
        twin, self._target = split_target(model)
        if not isinstance(twin, TwinMethods):
            raise ValueError(f"{name} holds a {type(twin).__name__}, which is no twin.")
        if twin.targets_ or np.ndim(twin.anchors_y_) != 1:
            raise ValueError(f"{name} has several outputs; only a model with one can be served.")
        self.schema = RequestSchema(twin)
        if self.schema.named and self.schema.is_all_numeric:
            # arrays are validated faster than tables, and the columns are in the right order
            twin = copy.copy(twin)
            del twin.feature_names_in_
        if isinstance(twin, TwinRegressor):
            twin.prepare_fast_path()
        self._twin, self._calibration = twin, twin.calibration_
        self.target = self.schema.target

    def with_known(self, known: KnownRows) -> PredictionService:
        """Return the service of the model with further known rows of batches.

        Nothing is trained or stored.
        """
        *_, batch, y = zip(*known, strict=True)
        X, known_y = self.schema.to_table(known, with_names=True), self._target.apply(np.array(y))
        if np.isinf(known_y).any():
            raise BadRequest(f"known rows: the logarithm of {self.target!r} needs positive values.")
        with refuse_value_errors():
            twin = split_target(self._model)[0].add_anchors(X, known_y, batch=list(batch))
        return PredictionService(replace_twin(self._model, twin), self.name)

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
        calibration = self._calibration
        known_y = self._twin.fitted_.known_y
        known_y = self._target.invert_known(known_y)
        possible = TargetRange.of(self.target, known_y)
        lower, upper = (end if np.isfinite(end) else None for end in possible)
        labels = [anchor_label(self._twin.fitted_.anchors, i) for i in range(len(known_y))]
        anchors = dict(zip(self.schema.names, self._twin.anchors_X_.T, strict=True))
        anchors |= {each.name: 1.0 * self._twin.anchor_batches_ for each in self.schema.batch}
        describe = partial(_describe_input, anchors, self.schema.allow_missing)
        return {
            "name": self.name,
            "target": self.target,
            "log_target": self._target.is_log,
            "lower_bound": lower,
            "upper_bound": upper,
            "anchors": len(self._twin.anchors_y_),
            "intervals": calibration is not None and calibration.n_rows >= _MIN_SCORES,
            "calibrated_std": calibration is not None,
            "allow_missing": self.schema.allow_missing,
            "known_rows": MAX_KNOWN_ROWS if self.schema.batch else 0,
            "cases": list(zip(labels, known_y.tolist(), strict=True))[:MAX_CASES],
            "columns": [describe(each) for each in self.schema.features],
            "inputs": [describe(each) for each in self.schema.inputs],
        }

    def calibration(self, confidence: float) -> Calibration:
        """Return the stored calibration; raise `BadRequest` where it has no such intervals."""
        if self._calibration is None:
            raise BadRequest(f"{self.name} stores no intervals; fit it with `twinned fit`.")
        with refuse_value_errors():
            check_confidence(confidence, self._calibration.n_rows)
        return self._calibration

    def predict(self, rows: ParsedRows, intervals: bool = False) -> Floats:
        """Return predictions of parsed rows (row, column).

        They are the prediction in units of y, and on the scale of the fitted target the mean, the
        standard deviation, which is raw unless the twin is a blend, and with `intervals` the error
        scale.
        """
        X, twin, given = self.schema.to_table(rows), self._twin, self._batch(rows)
        with refuse_value_errors():
            predict = partial(twin.predict, return_std=True)
            parts = (twin.predict_error_scale if intervals else predict)(X, **given)
            value = parts[0]
            if self._target != IDENTITY:
                value = self._target.predict(twin.fitted_, twin.encode(X, **given))
        return np.column_stack([value, *parts])

    def to_columns(self, predictions: Floats, confidence: float | None) -> dict[str, list[float]]:
        """Return `prediction`, `std` and, with a confidence, `low` and `high`, in units of y."""
        target, (value, mean, std) = self._target, predictions.T[:3]
        columns = {"prediction": value, "std": target.slope(value) * std}
        if confidence is not None:
            ends = self.calibration(confidence).interval(mean, predictions[:, 3], confidence)
            columns["low"], columns["high"] = target.invert(ends).T
        _check_finite(np.column_stack(list(columns.values())))
        return {name: values.tolist() for name, values in columns.items()}

    def _batch(self, rows: ParsedRows) -> Json:
        """The batches of parsed rows as an argument of `predict`; none of a model without."""
        return {"batch": [row[-1] for row in rows]} if self.schema.batch else {}

    def explain(self, rows: ParsedRows) -> list[Json]:
        """Return, for each parsed row, its comparable cases and all others.

        Few rows also have `adjustments`: what each feature adds to the difference.
        """
        X = self.schema.to_table(rows, with_names=True)
        with refuse_value_errors():
            few = len(rows) <= MAX_ADJUSTED_ROWS
            parts = *split_target(self._model), X, N_COMPARABLES
            found = find_comparables(*parts, **self._batch(rows), adjustments=few)
        values = [[(case.known, case.estimate) for case in each.with_others] for each in found]
        _check_finite(np.array(values).reshape(len(rows), -1))
        return [each.as_dict() for each in found]

    def known_case(self, number: int) -> Json:
        """Return the values of a known case, as a row of a request."""
        fitted = self._twin.fitted_
        if number >= len(fitted.anchors):
            raise BadRequest(f"near: there are {len(fitted.anchors)} known cases, from 0 on.")
        values = decode_row(fitted.anchors, number, self.schema.names, fitted.batches)
        return values | {each.name: values.pop(BATCH) for each in self.schema.batch}

    def solve(self, wanted: SolveRequest, row: Sequence[Value]) -> list[Json]:
        """Return proposals of changes of a parsed row, as described by `Proposals`.

        Dates and marks of limits do not change, as their features belong together.
        """
        names, sources = self.schema.names, self.schema.sources
        fixed = {*wanted.fixed, *sources} - ({*sources.values()} - {*names})
        if fixed >= {*names}:
            raise BadRequest("fixed: no column is left that may change.")
        options = wanted.model_dump(include={"bounds", "constraints", "n", "confidence"})
        options |= {"near": self.schema.to_table([row], with_names=True), "fixed": sorted(fixed)}
        options |= {"batch": row[-1] if self.schema.batch else None, "random_state": 0}
        with refuse_value_errors():
            table = solve(self._model, wanted.target, **options)
        table = table.rename(columns=_NAMES)
        _check_finite(table.filter(["prediction", "low", "high"]).to_numpy())
        anchors = self._twin.fitted_.anchors
        if anchors.labels is None:
            table["anchor"] = [anchor_label(anchors, anchor) for anchor in table["anchor"]]
        cells = table.astype({"anchor": str}).astype(object).where(table.notna(), None)
        return [
            {
                "columns": {name: record[name] for name in names},
                "changes": {name: record[f"change of {name}"] for name in names},
                **{name: record[name] for name in table.columns[2 * len(names) :]},
            }
            for record in cells.to_dict("records")
        ]

    def applicability(self, rows: ParsedRows) -> list[Json]:
        """Return, for each parsed row, its score and label, and what is measured of its class.

        With a transformed target there is no error, as it would be that of the transformed one.
        """
        with refuse_value_errors():
            table = self._twin.applicability(self.schema.to_table(rows))
        if self._target != IDENTITY:
            table = table.drop(columns="error", errors="ignore")
        rows_of_table = table.to_dict("records")
        return [{name: x for name, x in row.items() if x == x} for row in rows_of_table]  # no NaN


def _check_finite(values: Floats) -> None:
    """Raise `BadRequest` where a result is infinite or no number, which JSON cannot hold.

    `values` are (row of the request, column).
    """
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise BadRequest(f"row {bad[0] + 1}: the prediction is not a finite number.")


def _describe_input(
    anchors: dict[str, Floats], allow_missing: bool, each: InputFeature | InputDate
) -> Json:
    """Return the description of an input, with an initial value for the form.

    That is the median day of a date, the median of a number, or the commonest category; None where
    most known rows have no value, if it may be missing. `anchors` has the values (anchor,) of each
    feature, categories as codes.
    """
    if isinstance(each, InputDate):
        values = anchors[each.features["days"]]
        described: Json = {"kind": "datetime" if "hour" in each.features else "date"}
    else:
        values = anchors[each.name]
        described = {"choices": each.labels, "ordered": each.ordered}
    present = values[~np.isnan(values)]
    middle: float | str | None = None
    if len(present) >= (len(values) / 2 if allow_missing else 1):
        middle = float(np.median(present))
        if isinstance(each, InputDate):
            date, has_time = EPOCH + timedelta(days=middle), "hour" in each.features
            middle = date.isoformat(timespec="minutes") if has_time else date.date().isoformat()
        elif each.labels is not None:
            middle = each.labels[int(np.argmax(np.bincount(present.astype(np.intp))))]
    if described.get("choices", ...) is None:
        described["range"] = [float(present.min()), float(present.max())] if len(present) else None
    return {"name": each.name, **described, "middle": middle}


def _call(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a thread."""
    try:
        return function(*arguments)
    except StopIteration as error:  # which a future cannot hold, so that the wait would not end
        raise RuntimeError(f"{function.__qualname__} raised StopIteration") from error


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a function that runs in a thread, within `WORK_SECONDS`."""
    return await _in_time(asyncio.to_thread(_call, function, *arguments))


async def in_turn(function: Callable[..., T], *arguments: object) -> T:
    """As `in_thread`, one search after the other; one that waits too long is not started."""
    work = asyncio.get_running_loop().run_in_executor(_SEARCHES, _call, function, *arguments)
    return await _in_time(work, "fix some columns")


async def _in_time(work: Awaitable[T], advice: str = "send fewer rows") -> T:
    try:
        async with asyncio.timeout(WORK_SECONDS):
            return await work
    except TimeoutError:
        message = f"the request takes more than {WORK_SECONDS:g} seconds; {advice}."
        raise BadRequest(message, 503) from None


class _PendingRequest(NamedTuple):
    rows: ParsedRows
    intervals: bool
    result: asyncio.Future[Floats]


class MicroBatcher:
    """Collects the requests that arrive while the model is busy, and predicts them together.

    A request never waits for others to arrive: it starts a worker where one is free. The gain is
    that a tree in the processor's cache is evaluated for many rows.
    """

    def __init__(self, service: PredictionService) -> None:
        self._service = service
        self._pending: list[_PendingRequest] = []
        self._n_workers = 0
        self._tasks = set[asyncio.Task[None]]()

    async def predict(self, rows: ParsedRows, intervals: bool) -> Floats:
        """Return the predictions of parsed rows, as `PredictionService.predict`."""
        result: asyncio.Future[Floats] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingRequest(rows, intervals, result))
        if self._n_workers < MAX_WORKERS:
            self._n_workers += 1
            task = asyncio.create_task(self._work())
            self._tasks.add(task)  # the event loop holds only a weak reference
            task.add_done_callback(self._tasks.discard)
        return await _in_time(result)

    async def _work(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            await self._predict_batch(batch)
        self._n_workers -= 1  # no await since the check: the next request starts a worker

    async def _predict_batch(self, batch: list[_PendingRequest]) -> None:
        rows = [row for request in batch for row in request.rows]
        intervals = any(request.intervals for request in batch)
        try:
            predictions = await asyncio.to_thread(_call, self._service.predict, rows, intervals)
        except Exception as error:
            if len(batch) > 1:
                for request in batch:  # each alone, so that only the faulty ones fail
                    await self._predict_batch([request])
            elif not batch[0].result.done():
                batch[0].result.set_exception(error)
            return
        ends = np.cumsum([len(request.rows) for request in batch])
        for request, part in zip(batch, np.split(predictions, ends[:-1]), strict=True):
            if not request.result.done():  # done if the time is over
                request.result.set_result(part)
