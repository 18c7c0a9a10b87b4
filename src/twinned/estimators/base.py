"""Base classes of twins, with the attributes of every fitted twin and its further anchors."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import r2_score

from twinned._compat import BaseEstimator, RegressorMixin
from twinned.batches.estimation import tabulate_effects, tabulate_offsets
from twinned.estimators.explanation_methods import ExplanationMethods
from twinned.estimators.methods import per_target
from twinned.fitted.calibration import Calibration
from twinned.fitted.prediction import target_columns
from twinned.fitted.updating import add_rows
from twinned.pairing.anchors import as_anchor_strategy, as_weight_strategy
from twinned.rows.schema import Floats, Indices, row_labels
from twinned.rows.training import VALIDATED, TrainingRows
from twinned.rows.validation import validate_target


class TwinMethods(ExplanationMethods, RegressorMixin):
    """Attributes and methods of a fitted twin, each of which is a function of its `FittedTwin`."""

    @property
    def calibration_(self) -> Calibration | None:
        """The stored calibration of prediction intervals, or None."""
        return self.fitted_.calibration

    @property
    def applicability_(self) -> pd.DataFrame | None:
        """`rows`, `error` and `coverage` of each class, as by `measure_applicability`, or None."""
        measured = self.fitted_.applicability
        return None if measured is None else measured.table()

    @property
    def anchors_X_(self) -> Floats:
        """(n_anchors, n_features): anchors, with categories as codes."""
        return self.fitted_.anchors.matrix

    @property
    def anchors_y_(self) -> Floats:
        """(n_anchors,) or (n_anchors, n_outputs): known values of the anchors."""
        return self.fitted_.anchors.y

    @property
    def anchor_weights_(self) -> Floats | None:
        """(n_anchors,): sample weights of the anchors, or None."""
        return self.fitted_.anchors.weight

    @property
    def anchor_rows_(self) -> Indices:
        """(n_anchors,): rows of the training table; −1 of anchors that were added."""
        return self.fitted_.anchors.table_rows

    @property
    def anchor_residuals_(self) -> Floats | None:
        """Out-of-fold residuals like `anchors_y_`, minus their mean; None without folds."""
        residuals = self.fitted_.residuals
        return None if residuals is None else self.fitted_.squeeze(residuals)

    @property
    def local_power_(self) -> float:
        """The power of `GPWeights` that weights the estimates by residuals; 0 for equal weights."""
        weights = self.fitted_.local_weights
        return 0.0 if weights is None else float(weights.power)

    @property
    @per_target
    def batch_offsets_(self) -> pd.DataFrame:
        """`offset`, `std_error` and `n_rows` of each batch, relative to the mean of all batches."""
        batches, codes = self.fitted_.batches, self.fitted_.anchors.batch
        if batches is None or codes is None:
            raise AttributeError("The model has no batches; fit(X, y, batch=…) estimates offsets.")
        return tabulate_offsets(batches, np.bincount(codes, minlength=len(batches.names)))

    @property
    @per_target
    def batch_effects_(self) -> pd.DataFrame:
        """What each batch deviates by, with slopes of numeric features and errors of its rows."""
        table = self.batch_offsets_
        batches, schema = self.fitted_.batches, self.fitted_.schema
        assert batches is not None, "the model has batches"
        names = self.feature_labels()
        columns = {names[j]: column for column, j in enumerate(schema.numeric)}
        return tabulate_effects(batches, table["n_rows"].to_numpy(), columns)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        batch: ArrayLike | None = None,
    ) -> float:
        """R² of the prediction; rows whose y is NaN are ignored.

        With several targets, the mean of those of all targets.
        """
        predicted, known = np.asarray(self.predict(X, batch=batch)), np.asarray(y, dtype=np.float64)
        pairs = [(known, predicted)]
        if self.targets_:
            pairs = list(zip(target_columns(y, len(self.targets_)), predicted.T, strict=True))
        scores = []
        for known, predicted in pairs:
            labelled = ~np.isnan(known.reshape(len(known), -1)).any(axis=1)
            if not labelled.any():
                raise ValueError(f"y has no labelled row to score: all {len(known)} are NaN.")
            weight = None if sample_weight is None else np.asarray(sample_weight)[labelled]
            scores.append(r2_score(known[labelled], predicted[labelled], sample_weight=weight))
        return float(np.mean(scores))

    # --- further known rows -------------------------------------------------------------------

    def add_anchors(self, X: ArrayLike, y: ArrayLike, *, batch: ArrayLike | None = None) -> Self:
        """A new fitted model with the same trained model and further anchors.

        The original is unchanged, and the learned metric is the same. The new anchors have weight 1
        where the fit had sample weights, and are groups of one row. Intervals stay calibrated by
        the rows of the fit. A model with batches needs their `batch`, a label for all or for each:
        the deviation of a new batch is estimated from them, and that of a known batch again.
        """
        fitted = self.fitted_
        queries = self.validate_queries(X, learn_categories=True)
        known_y = fitted.anchors.y
        new_y = validate_target(self, y, len(queries), multi_output=known_y.ndim == 2)
        if new_y.shape[1:] != known_y.shape[1:]:
            raise ValueError(f"y has shape {new_y.shape}, but that of the fit {known_y.shape}.")
        fitted.target.check(new_y)
        new_y = fitted.target.apply(new_y)
        return self.with_fitted(add_rows(fitted, queries, new_y, row_labels(X), batch))


class BaseTwin(TwinMethods, BaseEstimator):
    """Base class of regressors that predict from differences to anchors.

    A subclass has the parameters `anchors`, `weights`, `symmetric`, `memory_limit`, `n_jobs` and
    `random_state`. Its `fit` sets `_pair_dtype` and, at its end, the fitted state.
    """

    weights: object
    refit: Callable[..., Self]  # of a fit that can be repeated with some of the rows
    training_rows: Callable[[], TrainingRows]  # of blends, as the next
    out_of_fold: Callable[[], pd.DataFrame]
    target_name_: str  # only of a model that the command line fitted
    batch_name_: str | None  # column of batches, of a fit with a Series or by the command line

    def with_strategies(self, *, anchors: object = None, weights: object = None) -> Self:
        """The same fitted model with other strategies of anchors or weights; None keeps one.

        Nothing is fitted again. Out-of-fold residuals and a calibration belong to the strategies of
        the fit, so the result has none.

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from twinned import NearestAnchors, TwinRegressor
        >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> twin.with_strategies(anchors=NearestAnchors(1)).predict_anchors([[0.1]])[0]
        array([[0]])
        """
        chosen = {"anchors": anchors, "weights": weights}
        other = self.with_fitted(self.fitted_)
        vars(other).update({name: value for name, value in chosen.items() if value is not None})
        return other.with_fitted(
            replace(
                other.fitted_,
                nearest=as_anchor_strategy(other.anchors).nearest(len(self.fitted_.anchors)),
                weight_strategy=as_weight_strategy(other.weights),
                residuals=None,
                local_weights=None,
                calibration=None,
                applicability=None,
            )
        )

    def unfitted_copy(self, **attributes: Any) -> Any:
        """A clone that has the features of this estimator, and these attributes."""
        other = clone(self)
        of_table = {name: vars(self)[name] for name in VALIDATED & vars(self).keys()}
        vars(other).update(of_table | attributes)
        return other

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.targets_) or self._fitted is not None
