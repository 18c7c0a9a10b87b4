"""A fitted model as a function of encoded rows, with the known rows that it was fitted to.

The known rows of a function fill the bounds of its columns.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from scipy.stats import qmc
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.base import TwinMethods
from twinned.estimators.twin import TwinRegressor
from twinned.fitted.prediction import Prediction
from twinned.fitted.twin import FittedTwin
from twinned.rows.schema import NUMERIC, Floats, Indices, TableSchema
from twinned.rows.validation import target_names
from twinned.search.optimization import parse_range

# Networks are compiled for each number of rows, so that all predictions are of such numbers.
_MULTIPLE = 16
_N_SAMPLES = 1000  # joint ones of candidates
_N_ROWS = 256  # at which a function is evaluated


def require_twin(model: object) -> TwinMethods:
    """Return a fitted twin; other models are refused."""
    if not isinstance(model, TwinMethods):
        raise TypeError(f"model must be a twin, not a {type(model).__name__}.")
    check_is_fitted(model)
    return model


def fit_function(function: Callable, bounds: Mapping) -> TwinMethods:
    """Return a twin of the values of a function at rows that fill the bounds of its columns."""
    unlimited = np.array(np.inf)
    ends = [parse_range(f"bounds of {name!r}", bounds[name], unlimited) for name in bounds]
    if not ends or not np.isfinite(ends).all():
        raise ValueError("bounds must have both ends of all columns of a function.")
    low, high = np.transpose(ends)
    rows = low + (high - low) * qmc.Sobol(len(ends), scramble=False).random(_N_ROWS)
    X = pd.DataFrame(rows, columns=list(bounds))
    return TwinRegressor(Ridge(), pairs=1, random_state=0).fit(X, function(X))


def predict_in_batch(fitted: FittedTwin, rows: Floats, batch: object) -> Prediction:
    """Return the predictive distribution of encoded rows (row, feature) in a batch."""
    return fitted.predict(fitted.in_batches(fitted.queries(rows), batch))


def known_values(fitted: FittedTwin, batch: object) -> Floats:
    """Return the known values (anchor, output) in units of y, as they would be in a batch."""
    y = fitted.anchors.outputs
    if fitted.batches is not None:
        queries = fitted.in_batches(fitted.queries(fitted.anchors.matrix), batch)
        y = y + np.asarray(queries.offset)[:, None]
    return fitted.target.invert_known(y)


class ForwardModel:
    """A fitted twin, and the fitted state of each target, or the one of all outputs.

    A function has a twin, too, but its own values are the predictions. Rows are (row, feature)
    arrays with categories as codes; `known` are the known ones.
    """

    def __init__(self, model: BaseEstimator, batch: str | None, bounds: Mapping) -> None:
        self.function: Callable | None = model if callable(model) else None
        self.twin: TwinMethods = (
            fit_function(model, bounds) if self.function else require_twin(model)
        )
        self.batch = batch
        targets = self.twin.targets_ or [self.twin]
        self.fitted: list[FittedTwin] = [target.fitted_ for target in targets]
        if batch is None:
            self.fitted[0].warn_without_batch()
        self.schema: TableSchema = self.fitted[0].schema
        self.names: list[str] = self.twin.feature_labels()
        self.known: Floats = self.fitted[0].anchors.matrix
        self.anchor_labels: list[Hashable] | None = self.fitted[0].anchors.labels
        self.has_intervals: bool = self.fitted[0].calibration is not None
        self.known_y: list[Floats] = [known_values(fitted, batch) for fitted in self.fitted]
        names = target_names(self.fitted[0].anchors.y)
        if self.twin.targets_:
            names = [target.target_name_ for target in self.twin.targets_]
        self.target_names: list[str] = [str(name) for name in names] or ["y"]

    @property
    def known_outputs(self) -> list[Floats]:
        """Of each output, (row,) the known values."""
        return [y for known_y in self.known_y for y in known_y.T]

    def table(self, rows: Floats) -> pd.DataFrame:
        """Rows as a table, with the names of categories."""
        columns: dict[str, object] = {}
        for j, name in enumerate(self.names):
            columns[name] = rows[:, j]
            if self.schema.kinds[j] != NUMERIC:
                levels = np.array([*self.schema.categories[j], None], dtype=object)
                columns[name] = levels[np.nan_to_num(rows[:, j], nan=-1).astype(int)]
        return pd.DataFrame(columns)

    def encode(self, X: pd.DataFrame) -> Floats:
        """(row, feature): a table with the names of the features, encoded."""
        twin = self.twin.targets_[0] if self.twin.targets_ else self.twin
        return twin.validate_queries(
            X if "feature_names_in_" in vars(twin) else X.to_numpy()
        ).matrix

    def _of_predictions(self, rows: Floats, result: Callable[[Prediction], Floats]) -> Floats:
        """(row, output, …): a result of the predictive distributions."""
        n_rows = _MULTIPLE * -(-len(rows) // _MULTIPLE)
        padded = np.resize(rows, (n_rows, rows.shape[1]))
        results = []
        for fitted, known_y in zip(self.fitted, self.known_y, strict=True):
            values = result(predict_in_batch(fitted, padded, self.batch))[: len(rows)]
            results.append(values.reshape(len(rows), known_y.shape[1], -1))
        return np.concatenate(results, axis=1)

    def predict(self, rows: Floats) -> Floats:
        """(row, output, 1): predictions."""
        if self.function is not None:
            values = np.asarray(self.function(self.table(rows)), dtype=np.float64)
            return values.reshape(len(rows), -1, 1)
        return self._of_predictions(rows, lambda prediction: prediction.mean)

    def predict_interval(self, rows: Floats, confidence: float) -> Floats:
        """(row, output, 2): ends of prediction intervals."""
        return self._of_predictions(rows, lambda prediction: prediction.interval(confidence))

    def extend_by_selection(
        self, ends: Floats, candidates: Floats, output: int, direction: int
    ) -> Floats:
        """(row, 2): ends of intervals of the best among candidates, which may be luck.

        The worse end is moved by the mean error of the best candidate, over joint samples.
        """
        fitted, extended = self.fitted[output], ends.copy()
        joint = predict_in_batch(fitted, candidates, self.batch).joint
        samples = joint.sample(_N_SAMPLES, np.random.RandomState(0))
        best = np.argmax(direction * samples, axis=1)
        excess = np.mean(samples[np.arange(len(samples)), best] - joint.mean[best])
        worse = 0 if direction > 0 else 1
        extended[:, worse] = fitted.target.invert(fitted.target.apply(ends[:, worse]) - excess)
        return extended

    def probability(self, rows: Floats, low: float, high: float) -> Floats:
        """(row, output, 1): probability that a measurement is between two values."""

        def between(prediction: Prediction) -> Floats:
            above = 1.0 if np.isinf(high) else prediction.cdf(high)
            below = 0.0 if np.isinf(low) else prediction.cdf(low)
            return np.asarray(above - below)

        return self._of_predictions(rows, between)

    def rate(self, rows: Floats) -> tuple[Floats, Indices]:
        """(row,): scores and classes of the applicability domain, the worst of all targets."""
        rates = [fitted.anchors.domain.rate(fitted.queries(rows)) for fitted in self.fitted]
        scores, classes, *_ = zip(*rates, strict=True)
        return np.max(scores, axis=0), np.max(classes, axis=0)

    def distances(self, rows: Floats, others: Floats) -> Floats:
        """(row, other row): distances in the learned metric, root mean squares over targets."""
        squares = []
        for fitted in self.fitted:
            scale = fitted.anchors.metric.transform
            first = scale(fitted.queries(rows).encode().features)
            second = scale(fitted.queries(others).encode().features)
            squares.append(cdist(first, second, "sqeuclidean"))
        return np.sqrt(np.mean(squares, axis=0))

    def approximate(self, rows: Floats) -> Floats:
        """(row, output, 1): values near the predictions, which are quick to compute.

        They are those of a Gaussian process of the known rows of each target.
        """
        values = [
            regress(fitted.queries(rows).encode().features)
            for regress, fitted in zip(self._regressions, self.fitted, strict=True)
        ]
        return np.concatenate(values, axis=1)[..., None]

    @cached_property
    def _regressions(self) -> list[Callable[[Floats], Floats]]:
        pairs = zip(self.fitted, self.known_y, strict=True)
        return [fitted.anchors.process.regression(known_y) for fitted, known_y in pairs]
