"""A fitted model as a function of rows, with the known rows that it was fitted to."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_solve
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.base import BaseTwin
from twinned.estimators.pipelines import Transform, unwrap
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor
from twinned.estimators.target import TransformedTargetTwin
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.conformal import Calibrated, CrossCalibrated
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.inverse.goals import Goal
from twinned.models.gaussian_process import factorize, kernel_of_rows
from twinned.rows.schema import NUMERIC, Floats, Indices, TableSchema

# Networks are compiled for each number of rows, so that all predictions are of as many rows.
_BLOCK_ROWS = 16
_MAX_KNOWN = 1000  # rows of the process that approximates the model


@dataclass(frozen=True, eq=False)
class ForwardModel:
    """A fitted model, and the twins of its targets.

    Rows are (row, feature) arrays of the columns that the model takes, with categories as codes.
    """

    model: Any  # that predicts, of transformed rows
    transform: Transform
    twins: list[BaseTwin]  # of each target, or one of all outputs
    schema: TableSchema
    names: list[str]
    known: Floats  # (row, feature)
    target: TargetTransform
    batch: str | None
    has_names: bool

    @classmethod
    def of(cls, model: Any, batch: str | None) -> ForwardModel:
        """The forward model of a fitted twin, blend, calibrated model or pipeline."""
        last, transform = unwrap(model)
        twin, target, inner = last, IDENTITY, transform
        if isinstance(twin, Calibrated | CrossCalibrated):
            twin = twin.model
        if isinstance(twin, TransformedTargetTwin):
            check_is_fitted(twin, "regressor_")
            target = twin.target_
            twin, of_twin = unwrap(twin.regressor_)
            inner = lambda X: of_twin(transform(X))  # noqa: E731
        if isinstance(twin, SemiSupervisedTwinRegressor):
            check_is_fitted(twin)
            twin = twin.twin_
        if not isinstance(twin, BaseTwin):
            raise TypeError(f"model must be a twin or end with one, not {twin!r}.")
        check_is_fitted(twin)
        twins = twin.targets_ or [twin]
        schema, known, names = twin.schema_, twins[0].anchors_X_, twin.feature_labels()
        return cls(
            last,
            transform,
            twins,
            schema,
            names,
            known,
            target,
            batch,
            hasattr(twin, "feature_names_in_"),
        )

    # --- tables and rows ----------------------------------------------------------------------

    def table(self, rows: Floats) -> Any:
        """Rows as the model takes them."""
        if self.schema.is_all_numeric and not self.has_names:
            return rows
        columns = {}
        for j, name in enumerate(self.names):
            columns[name] = rows[:, j]
            if self.schema.kinds[j] != NUMERIC:
                levels = self.schema.categories[j]
                values = [None if np.isnan(code) else levels[int(code)] for code in rows[:, j]]
                columns[name] = pd.Series(values, dtype=object).to_numpy()
        frame = pd.DataFrame(columns)
        return frame if self.has_names else frame.to_numpy(dtype=object)

    def decoded_table(self, rows: Floats, is_whole: Any) -> pd.DataFrame:
        """Rows as a table with the names of the columns, and whole numbers as integers."""
        frame = pd.DataFrame(self.table(rows))
        frame.columns = pd.Index(self.names)
        for j, name in enumerate(self.names):
            if self.schema.kinds[j] == NUMERIC and is_whole[j] and not np.isnan(rows[:, j]).any():
                frame[name] = rows[:, j].astype(np.int64)
        return frame

    def decode(self, row: Floats) -> dict[str, Any]:
        """The values of one row by name."""
        table = pd.DataFrame(self.table(row[None]))
        return dict(zip(self.names, table.iloc[0], strict=True))

    @property
    def labels(self) -> list[Any]:
        """(known row,): labels in the training table, or numbers of rows."""
        return self.twins[0].anchor_labels_ or list(range(len(self.known)))

    def encode(self, X: Any) -> Floats:
        """(row, feature): rows of a table, with categories as codes."""
        return self.twins[0].encode(X).matrix

    def features(self, rows: Floats, twin: int = 0) -> Floats:
        """(row, encoded feature) of one of the twins."""
        return self.twins[twin].fitted_.queries(rows).encode().features

    # --- predictions --------------------------------------------------------------------------

    @property
    def target_names(self) -> list[str]:
        if len(self.twins) > 1:
            return [str(name) for name in self.model.target_names_]
        y = self.twins[0].anchors_y_
        return ["y"] if y.ndim == 1 else [f"y{j}" for j in range(y.shape[1])]

    @property
    def has_intervals(self) -> bool:
        is_calibrated = isinstance(self.model, Calibrated | CrossCalibrated)
        return is_calibrated or self.twins[0].calibration_ is not None

    @cached_property
    def known_y(self) -> Floats:
        """(known row, output): values of the known rows, with the offsets of their batches."""
        values = [twin.fitted_.known_y.reshape(len(twin.anchors_y_), -1) for twin in self.twins]
        if len(values) > 1 and len({len(each) for each in values}) > 1:
            return self.predict(self.known)
        return self.target.invert_known(np.concatenate(values, axis=1))

    def _call(self, method: str, rows: Floats, *arguments: Any, **options: Any) -> Any:
        """(row, output, …): the result of a method of the model, in blocks of as many rows."""
        if self.batch is not None:
            options["batch"] = self.batch
        results = []
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = rows[start : start + _BLOCK_ROWS]
            filled = np.concatenate([block, np.repeat(block[:1], _BLOCK_ROWS - len(block), axis=0)])
            with warnings.catch_warnings(), ignore_table_warnings():
                X = self.transform(self.table(filled))
                result = getattr(self.model, method)(X, *arguments, **options)
            parts = result if isinstance(result, tuple) else (result,)
            results.append([part[: len(block)] for part in parts])
        joined = [np.concatenate(parts) for parts in zip(*results, strict=True)]
        return joined if len(joined) > 1 else joined[0]

    def predict(self, rows: Floats) -> Floats:
        """(row, output): predictions."""
        return self._call("predict", rows).reshape(len(rows), -1)

    def predict_std(self, rows: Floats) -> Floats:
        """(row, output): standard deviations of predictions."""
        return self._call("predict", rows, return_std=True)[1].reshape(len(rows), -1)

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

    def expected_error(self, rows: Floats) -> Floats:
        """(row,): the largest expected error of all targets, by the applicability domain."""
        scores = [
            twin.fitted_.anchors.domain.rate(twin.fitted_.queries(rows))[0] for twin in self.twins
        ]
        return np.max(scores, axis=0)

    def applicability(self, rows: Floats) -> Indices:
        """(row,): the worst class of all targets, as an index of `LABELS`."""
        classes = [
            twin.fitted_.anchors.domain.rate(twin.fitted_.queries(rows))[1] for twin in self.twins
        ]
        return np.max(classes, axis=0)

    def distances(self, rows: Floats, others: Floats) -> Floats:
        """(row, other row): mean over targets of the distances in the learned metric."""
        total = np.zeros((len(rows), len(others)))
        for j, twin in enumerate(self.twins):
            metric = twin.fitted_.anchors.metric
            first, second = (metric.transform(self.features(each, j)) for each in (rows, others))
            total += np.sum((first[:, None] - second) ** 2, axis=2)
        return np.sqrt(total / len(self.twins))

    @cached_property
    def approximation(self) -> Approximation:
        """A process that is quick to evaluate, with values near those of the model."""
        return Approximation(self)


class Approximation:
    """Gaussian processes of the known rows, by the learned metrics, which approximate a model."""

    def __init__(self, forward: ForwardModel) -> None:
        self._forward, self._parts = forward, []
        for j, twin in enumerate(forward.twins):
            anchors = twin.fitted_.anchors
            rows = np.random.RandomState(0).permutation(len(anchors))[:_MAX_KNOWN]
            scaled = anchors.metric.in_length_scales(anchors.features[rows])
            y = forward.target.invert_known(anchors.targets[rows])
            covariance = kernel_of_rows("matern", scaled, scaled)[0]
            factor = factorize(covariance, np.full(len(rows), anchors.metric.noise + 1e-10))
            mean = y.mean(axis=0)
            dual = cho_solve((factor, True), y - mean)
            self._parts.append((j, anchors.metric, scaled, mean, dual))

    def predict(self, rows: Floats) -> Floats:
        """(row, output)."""
        values = []
        for j, metric, scaled, mean, dual in self._parts:
            queries = metric.in_length_scales(self._forward.features(rows, j))
            values.append(kernel_of_rows("matern", queries, scaled)[0] @ dual + mean)
        return np.concatenate(values, axis=1)
