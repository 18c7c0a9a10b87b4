"""A fitted model as a function of rows, with the known rows that it was fitted to."""

from __future__ import annotations

from collections.abc import Callable
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
from twinned.fitted.sampling import MetricProcess
from twinned.fitted.twin import FittedTwin
from twinned.models.gaussian_process import kernel_of_rows
from twinned.rows.schema import NUMERIC, Floats, Indices

# Networks are compiled for each number of rows, so that all predictions are of as many rows.
BLOCK_ROWS = 16


class ForwardModel:
    """A fitted model, and the twins of its targets, or the one of all outputs.

    Rows are (row, feature) arrays with categories as codes; `known` are the known ones.
    """

    def __init__(self, model: Any, batch: str | None) -> None:
        is_calibrated = isinstance(model, Calibrated | CrossCalibrated)
        twin, self.target = split_target(model.model if is_calibrated else model)
        if isinstance(twin, SemiSupervisedTwinRegressor):
            check_is_fitted(twin)
            model = twin = twin.twin_
        if not isinstance(twin, BaseTwin):
            raise TypeError(f"model must be a twin, without a pipeline, not {twin!r}.")
        check_is_fitted(twin)
        self.model, self.twin, self.twins = model, twin, twin.targets_ or [twin]
        self.options = {} if batch is None else {"batch": batch}
        self.schema, self.names = twin.schema_, twin.feature_labels()
        self.known = self.twins[0].anchors_X_
        self.has_intervals = is_calibrated or self.twins[0].calibration_ is not None

    @cached_property
    def _known_targets(self) -> list[Floats]:
        """Of each twin, the (row, output) known values, as measured in the batch."""
        known = []
        for twin in self.twins:
            offset, _ = twin.offsets_of(self.options.get("batch"), 1)
            targets = twin.fitted_.anchors.targets + (0.0 if offset is None else offset)
            known.append(self.target.invert_known(targets))
        return known

    @cached_property
    def known_y(self) -> list[Floats]:
        """The known values of each output; those of targets may be of different rows."""
        return [y for targets in self._known_targets for y in targets.T]

    @cached_property
    def target_names(self) -> list[str]:
        if self.twin.targets_:
            return [str(name) for name in self.twin.target_names_]
        y = self.twin.anchors_y_
        return ["y"] if y.ndim == 1 else [f"y{j}" for j in range(y.shape[1])]

    def table(self, rows: Floats) -> pd.DataFrame:
        """Rows as a table, with the names of categories."""
        columns: dict[str, Any] = {}
        for j, name in enumerate(self.names):
            columns[name], levels = rows[:, j], np.array([*self.schema.categories[j], None], object)
            if self.schema.kinds[j] != NUMERIC:
                columns[name] = levels[np.nan_to_num(rows[:, j], nan=-1).astype(int)]
        return pd.DataFrame(columns)

    def as_fitted(self, X: pd.DataFrame) -> Any:
        """A table, or an array for a model that was fitted to one."""
        return X if "feature_names_in_" in vars(self.twin) else X.to_numpy()

    def _call(self, method: Callable[..., Floats], rows: Floats, *arguments: Any) -> Floats:
        """(row, …): the result of a method of the model, in blocks of as many rows."""
        results = []
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            X = self.table(np.resize(block, (BLOCK_ROWS, rows.shape[1])))
            with ignore_table_warnings():
                result = method(self.as_fitted(X), *arguments, **self.options)
            results.append(result[: len(block)])
        return np.concatenate(results)

    def predict(self, rows: Floats) -> Floats:
        """(row, output): predictions."""
        return self._call(self.model.predict, rows).reshape(len(rows), -1)

    def predict_interval(self, rows: Floats, confidence: float) -> Floats:
        """(row, output, 2): ends of prediction intervals."""
        return self._call(self.model.predict_interval, rows, confidence).reshape(len(rows), -1, 2)

    def predict_cdf(self, rows: Floats, y: float) -> Floats:
        """(row, output): probability that a measurement is at most y."""
        if np.isinf(y):
            return np.full((len(rows), len(self.target_names)), float(y > 0))
        return self._call(self.model.predict_cdf, rows, y).reshape(len(rows), -1)

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
    def _processes(self) -> list[tuple[FittedTwin, MetricProcess, Floats, Floats]]:
        """Of each twin, a process of its known rows, the mean of y and the dual coefficients."""
        processes = []
        for twin, targets in zip(self.twins, self._known_targets, strict=True):
            fitted = twin.fitted_
            process = MetricProcess(fitted.anchors.features, fitted.anchors.metric)
            y = targets[process.used]
            mean = y.mean(axis=0)
            dual = cho_solve((process.factor, True), y - mean)
            processes.append((fitted, process, mean, dual))
        return processes

    def approximate(self, rows: Floats) -> Floats:
        """(row, output): values near the predictions, which are quick to compute."""
        values = []
        for fitted, process, mean, dual in self._processes:
            scaled = process.metric.in_length_scales(fitted.queries(rows).encode().features)
            values.append(kernel_of_rows("matern", scaled, process.scaled)[0] @ dual + mean)
        return np.concatenate(values, axis=1)
