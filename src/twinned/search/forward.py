"""A fitted model as a function of rows, with the known rows that it was fitted to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.base import BaseTwin
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor
from twinned.estimators.target import split_target
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.conformal import Calibrated, CrossCalibrated
from twinned.fitted.sampling import MetricProcess
from twinned.rows.schema import NUMERIC, Floats, Indices
from twinned.rows.validation import target_names

# Networks are compiled for each number of rows, so that all predictions are of such numbers.
_MULTIPLE = 16


def require_twin(model: Any) -> BaseTwin:
    """Return the fitted twin of a model, which may be semi-supervised; others are refused."""
    if not isinstance(model, BaseTwin | SemiSupervisedTwinRegressor):
        raise TypeError(f"model must be a twin, not {model!r}.")
    check_is_fitted(model)
    return model.twin_ if isinstance(model, SemiSupervisedTwinRegressor) else model


class ForwardModel:
    """A fitted model, and the twins of its targets, or the one of all outputs.

    Rows are (row, feature) arrays with categories as codes; `known` are the known ones.
    """

    def __init__(self, model: Any, batch: str | None) -> None:
        if isinstance(model, CrossCalibrated) and isinstance(model.model, BaseTwin):
            model = model.store_in(copy.copy(model.model))  # which knows batches
        is_calibrated = isinstance(model, Calibrated | CrossCalibrated)
        inner, self.target = split_target(model.model if is_calibrated else model)
        twin = require_twin(inner)
        if inner is not twin:
            model = twin
        self.model, self.twin, self.twins = model, twin, twin.targets_ or [twin]
        self.fitted = [each.fitted_ for each in self.twins]
        self.options = {} if batch is None else {"batch": batch}
        self.schema, self.names = twin.schema_, twin.feature_labels()
        self.known = self.twins[0].anchors_X_
        self.has_intervals = is_calibrated or self.twins[0].calibration_ is not None
        self.known_y: list[Floats] = []  # of each twin, (row, output) values as in the batch
        for each, fitted in zip(self.twins, self.fitted, strict=True):
            offset = each.offsets_of(batch, 1)[0]  # None without batches
            y = fitted.anchors.targets + (0.0 if offset is None else offset)
            self.known_y.append(self.target.invert_known(y))
        names = twin.target_names_ if twin.targets_ else target_names(twin.anchors_y_)
        self.target_names = [str(name) for name in names] or ["y"]

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
        """(row, output, …): the result of a method of the model."""
        n_rows = _MULTIPLE * -(-len(rows) // _MULTIPLE)
        X = self.table(np.resize(rows, (n_rows, rows.shape[1])))
        with ignore_table_warnings():
            result = method(self.as_fitted(X), *arguments, **self.options)[: len(rows)]
        return result.reshape(len(rows), len(self.target_names), -1)

    def predict(self, rows: Floats) -> Floats:
        """(row, output, 1): predictions."""
        return self._call(self.model.predict, rows)

    def predict_interval(self, rows: Floats, confidence: float) -> Floats:
        """(row, output, 2): ends of prediction intervals."""
        return self._call(self.model.predict_interval, rows, confidence)

    def probability(self, rows: Floats, low: float, high: float) -> Floats:
        """(row, output, 1): probability that a measurement is between two values."""
        cdf = self.model.predict_cdf
        ends = [float(y > 0) if np.isinf(y) else self._call(cdf, rows, y) for y in (low, high)]
        return np.subtract(ends[1], ends[0])

    def rate(self, rows: Floats) -> tuple[Floats, Indices]:
        """(row,): scores and classes of the applicability domain, the worst of all targets."""
        rates = [each.anchors.domain.rate(each.queries(rows)) for each in self.fitted]
        scores, classes = zip(*rates, strict=True)
        return np.max(scores, axis=0), np.max(classes, axis=0)

    def distances(self, rows: Floats, others: Floats) -> Floats:
        """(row, other row): distances in the learned metric, root mean squares over targets."""
        squares = []
        for each in self.fitted:
            features = (each.queries(part).encode().features for part in (rows, others))
            squares.append(cdist(*map(each.anchors.metric.transform, features), "sqeuclidean"))
        return np.sqrt(np.mean(squares, axis=0))

    @cached_property
    def _approximations(self) -> list[Callable[[Floats], Floats]]:
        """Of each twin, the prediction of a process of its known rows."""
        pairs = zip((each.anchors for each in self.fitted), self.known_y, strict=True)
        return [MetricProcess(known.features, known.metric).regression(y) for known, y in pairs]

    def approximate(self, rows: Floats) -> Floats:
        """(row, output, 1): values near the predictions, which are quick to compute."""
        each = zip(self._approximations, self.fitted, strict=True)
        values = [predict(twin.queries(rows).encode().features) for predict, twin in each]
        return np.concatenate(values, axis=1)[..., None]
