"""A fitted model as a function of rows, with the known rows that it was fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_solve
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.base import BaseTwin
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor
from twinned.estimators.target import split_target
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.conformal import Calibrated, CrossCalibrated
from twinned.fitted.target import TargetTransform
from twinned.inverse.problem import Goal
from twinned.models.gaussian_process import factorize, kernel_of_rows
from twinned.rows.schema import NUMERIC, Floats, Indices, TableSchema

# Networks are compiled for each number of rows, so that all predictions are of as many rows.
BLOCK_ROWS = 16
_MAX_KNOWN = 1000  # rows of the process that approximates the model


@dataclass(frozen=True, eq=False)
class ForwardModel:
    """A fitted model, and the twins of its targets, or the one of all outputs.

    Rows are (row, feature) arrays with categories as codes.
    """

    model: Any
    twin: BaseTwin
    target: TargetTransform
    batch: str | None = None

    @classmethod
    def of(cls, model: Any, batch: str | None) -> ForwardModel:
        """The forward model of a fitted twin, a blend, or what is around one."""
        is_calibrated = isinstance(model, Calibrated | CrossCalibrated)
        twin, target = split_target(model.model if is_calibrated else model)
        if isinstance(twin, SemiSupervisedTwinRegressor):
            check_is_fitted(twin)
            model = twin = twin.twin_
        if not isinstance(twin, BaseTwin):
            raise TypeError(f"model must be a twin, without a pipeline, not {twin!r}.")
        check_is_fitted(twin)
        return cls(model, twin, target, batch)

    @cached_property
    def twins(self) -> list[BaseTwin]:
        """The twin of each target, or the one of all outputs."""
        return self.twin.targets_ or [self.twin]

    @property
    def schema(self) -> TableSchema:
        return self.twin.schema_

    @cached_property
    def known(self) -> Floats:
        """(known row, feature)."""
        return self.twins[0].anchors_X_

    @cached_property
    def known_y(self) -> Floats:
        """(known row, output): known values, or predictions where targets have other rows."""
        if len({len(twin.anchors_y_) for twin in self.twins}) > 1:
            return self.predict(self.known)
        values = [twin.fitted_.known_y.reshape(len(self.known), -1) for twin in self.twins]
        return self.target.invert_known(np.concatenate(values, axis=1))

    @cached_property
    def target_names(self) -> list[str]:
        if self.twin.targets_:
            return [str(name) for name in self.twin.target_names_]
        y = self.twin.anchors_y_
        return ["y"] if y.ndim == 1 else [f"y{j}" for j in range(y.shape[1])]

    @property
    def has_intervals(self) -> bool:
        is_calibrated = isinstance(self.model, Calibrated | CrossCalibrated)
        return is_calibrated or self.twins[0].calibration_ is not None

    def table(self, rows: Floats) -> pd.DataFrame:
        """Rows as a table, with the names of categories."""
        columns: dict[str, Any] = {}
        for j, name in enumerate(self.twin.feature_labels()):
            columns[name], levels = rows[:, j], np.array([*self.schema.categories[j], None], object)
            if self.schema.kinds[j] != NUMERIC:
                columns[name] = levels[np.nan_to_num(rows[:, j], nan=-1).astype(int)]
        return pd.DataFrame(columns)

    def _call(self, method: str, rows: Floats, *arguments: Any) -> Floats:
        """(row, …): the result of a method of the model, in blocks of as many rows."""
        options = {} if self.batch is None else {"batch": self.batch}
        results = []
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            X = self.table(np.resize(block, (BLOCK_ROWS, rows.shape[1])))
            with ignore_table_warnings():
                X = X if "feature_names_in_" in vars(self.twin) else X.to_numpy()
                results.append(getattr(self.model, method)(X, *arguments, **options)[: len(block)])
        return np.concatenate(results)

    def predict(self, rows: Floats) -> Floats:
        """(row, output): predictions."""
        return self._call("predict", rows).reshape(len(rows), -1)

    def predict_interval(self, rows: Floats, confidence: float) -> Floats:
        """(row, output, 2): ends of prediction intervals."""
        return self._call("predict_interval", rows, confidence).reshape(len(rows), -1, 2)

    def probability(self, rows: Floats, goal: Goal) -> Floats:
        """(row,): probability that a measurement is within the range of a goal."""

        def below(end: float) -> Floats:
            if np.isinf(end):
                return np.full(len(rows), float(end > 0))
            return self._call("predict_cdf", rows, end).reshape(len(rows), -1)[:, goal.output]

        return below(goal.high) - below(goal.low)

    def rate(self, rows: Floats) -> tuple[Floats, Indices]:
        """(row,): scores and classes of the applicability domain, the worst of all targets."""
        fitted = [twin.fitted_ for twin in self.twins]
        rates = [each.anchors.domain.rate(each.queries(rows)) for each in fitted]
        scores, classes = zip(*rates, strict=True)
        return np.max(scores, axis=0), np.max(classes, axis=0)

    def distances(self, rows: Floats, others: Floats) -> Floats:
        """(row, other row): distances in the learned metric, root mean squares over targets."""
        squares = np.zeros((len(rows), len(others)))
        for twin in self.twins:
            fitted = twin.fitted_
            features = (fitted.queries(each).encode().features for each in (rows, others))
            first, second = map(fitted.anchors.metric.transform, features)
            squares += np.sum((first[:, None] - second) ** 2, axis=2)
        return np.sqrt(squares / len(self.twins))

    @cached_property
    def processes(self) -> list[tuple[Any, ...]]:
        """Gaussian processes of the known rows by the learned metrics, one for each twin."""
        processes = []
        for twin in self.twins:
            fitted = twin.fitted_
            rows = np.random.RandomState(0).permutation(len(fitted.anchors))[:_MAX_KNOWN]
            metric, y = (
                fitted.anchors.metric,
                self.target.invert_known(fitted.anchors.targets[rows]),
            )
            scaled = metric.in_length_scales(fitted.anchors.features[rows])
            correlation = kernel_of_rows("matern", scaled, scaled)[0]
            factor = factorize(correlation, np.full(len(rows), metric.noise))
            mean = y.mean(axis=0)
            processes.append((fitted, scaled, mean, cho_solve((factor, True), y - mean)))
        return processes

    def approximate(self, rows: Floats) -> Floats:
        """(row, output): values near the predictions, which are quick to compute."""
        values = []
        for fitted, known, mean, dual in self.processes:
            features = fitted.queries(rows).encode().features
            scaled = fitted.anchors.metric.in_length_scales(features)
            values.append(kernel_of_rows("matern", scaled, known)[0] @ dual + mean)
        return np.concatenate(values, axis=1)
