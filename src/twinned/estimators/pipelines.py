"""Methods of a twin at the end of a pipeline: comparables and prediction intervals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from twinned.rows.schema import Floats, is_table, row_labels

Transform = Callable[[ArrayLike], ArrayLike]


def unwrap(model: object) -> tuple[Any, Transform]:
    """The last step of a fitted pipeline, and the transformation of the rows for it.

    Another model is returned itself.
    """
    if not isinstance(model, Pipeline):
        return model, lambda X: X
    check_is_fitted(model)
    last, inner = unwrap(model.steps[-1][1])
    steps = model[:-1]
    return last, lambda X: inner(steps.transform(X) if len(steps) else X)


def explain(
    model: BaseEstimator,
    X: ArrayLike,
    n: int = 5,
    *,
    adjustments: bool = False,
    batch: ArrayLike | None = None,
) -> pd.DataFrame:
    """Comparable anchors of each query, also of a twin at the end of a pipeline.

    Parameters
    ----------
    model : fitted twin or Pipeline
        A pipeline must end with a twin.
    X : table or array of shape (n_queries, n_features)
        Rows to explain, as the pipeline expects them.
    n : int, default=5
        Number of anchors per query.
    adjustments : bool, default=False
        Whether to add a column for each feature that the twin gets, that is, after the
        transformations of the pipeline.
    batch : str or array of shape (n_queries,), default=None
        Batch of all rows or of each, for a twin that was fitted with batches.

    Returns
    -------
    DataFrame as that of `TwinRegressor.explain`. `query` has the labels of X.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from twinned import TwinRegressor, explain
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(40, random_state=0)
    >>> model = make_pipeline(StandardScaler(), TwinRegressor(Ridge())).fit(X[:30], y[:30])
    >>> explain(model, X[30:], n=2).shape  # with a row of all other cases for each query
    (30, 8)
    """
    twin, transform = unwrap(model)
    if not hasattr(twin, "explain"):
        kind = type(twin).__name__
        raise TypeError(f"model must be a twin or a pipeline that ends with one, not a {kind}.")
    rows = transform(X)
    table = twin.explain(rows, n, adjustments=adjustments, batch=batch)
    labels = row_labels(X)
    if labels is not None and not is_table(rows):
        table["query"] = [labels[i] for i in table["query"]]
    return table


def predict_interval(
    model: BaseEstimator,
    X: ArrayLike,
    confidence: float = 0.9,
    *,
    batch: ArrayLike | None = None,
    of: str = "measurement",
    y_std: ArrayLike | None = None,
) -> Floats:
    """Prediction intervals, also of a model at the end of a pipeline.

    Parameters
    ----------
    model : fitted model or Pipeline
        An `AutoTwinRegressor`, a twin that stores its calibration, the result of `conformal` or
        `cross_conformal`, or a pipeline that ends with one of these.
    X : table or array of shape (n_queries, n_features)
        Rows to predict, as the pipeline expects them.
    confidence : float, default=0.9
        Probability with which an interval covers y.
    batch : str or array of shape (n_queries,), default=None
        As in `TwinRegressor.predict_interval`, and so are the next two.
    of : {"measurement", "value"}, default="measurement"
        What the intervals cover.
    y_std : float or array of shape (n_queries,), default=None
        Errors of further measurements.

    Returns
    -------
    intervals : ndarray of shape (n_queries, 2)
        Lower and upper ends.
    """
    last, transform = unwrap(model)
    if not hasattr(last, "predict_interval"):
        raise TypeError(
            f"model has no prediction intervals, but is a {type(last).__name__}; use an "
            "AutoTwinRegressor, or cross_conformal(model, X, y)."
        )
    intervals: Floats = last.predict_interval(
        transform(X), confidence, batch=batch, of=of, y_std=y_std
    )
    return intervals


def replace_last_step(model: object, last: object) -> Any:
    """A copy of a pipeline with another last step, which is fitted; or this in place of a model."""
    if not isinstance(model, Pipeline):
        return last
    other = copy.copy(model)
    name, step = model.steps[-1]
    other.steps = [*model.steps[:-1], (name, replace_last_step(step, last))]
    return other
