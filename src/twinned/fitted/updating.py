"""Known rows that are added to a fitted twin, and the offsets of its batches."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.exceptions import MissingBatchWarning, warn_caller
from twinned.fitted.anchors import Anchors, Queries
from twinned.fitted.sampling import ErrorFeatures
from twinned.fitted.twin import FittedTwin
from twinned.models.gaussian_process import kernel_of_rows
from twinned.rows.batches import BatchOffsets, batch_labels
from twinned.rows.folds import complete_predictions
from twinned.rows.schema import Floats, storable_labels

# Bounds of the error of a known row of a new batch, in units of that of all rows, and the share of
# its variance that the process of the learned metric explains: the rest is independent.
_STD_BOUNDS, _SHARED = (0.3, 30.0), 0.99


def add_rows(
    fitted: FittedTwin,
    queries: Queries,
    y: Floats,
    labels: list[Hashable] | None = None,
    batch: Any = None,
) -> FittedTwin:
    """The same model with further anchors.

    The new anchors have weight 1 where the fit had sample weights, and are groups of one row. The
    intervals stay calibrated by the rows of the fit.

    Parameters
    ----------
    fitted : FittedTwin
        It is not changed.
    queries : Queries
        The new rows, without batches.
    y : ndarray of shape (n,) or (n, n_outputs)
        Their values of the fitted target.
    labels : list, default=None
        Their labels in the table.
    batch : str or array of shape (n,), default=None
        Their batches, of a model with batches.
    """
    check_batches(fitted, batch)
    residuals = fitted.residuals
    if fitted.batches is not None:
        y_before = fitted.anchors.y
        fitted, y, queries = _add_to_batches(fitted, queries, y, batch)
        if residuals is not None:
            residuals = residuals + (fitted.anchors.y - y_before)[:, None]
    extended = replace(
        fitted,
        model=fitted.model.with_anchors(queries.encode()),
        anchors=_append(fitted.anchors, queries, y, labels),
        applicability=None,
    )
    if residuals is not None:  # the model was not fitted to the new rows
        predicted = _model_of_fit(fitted).moments(queries)[0]
        expected = expected_errors(extended, queries)[:, None]
        new_residuals = y.reshape(predicted.shape) - predicted - expected
        extended = replace(extended, residuals=np.concatenate([residuals, new_residuals]))
    if (calibration := fitted.calibration) is not None:
        anchors = extended.anchors
        calibration = calibration.with_known_rows(anchors.X, anchors.y)
        extended = replace(extended, calibration=calibration)
    return extended


def _model_of_fit(fitted: FittedTwin) -> FittedTwin:
    """The prediction of the model from the anchors of the fit, without residuals.

    So rows that are added in two steps are as those added in one.
    """
    of_fit = np.flatnonzero(fitted.anchors.table_rows >= 0)
    anchors = fitted.anchors
    if len(of_fit) < len(anchors):
        anchors = anchors.take(of_fit)
    return replace(
        fitted, anchors=anchors, residuals=None, local_weights=None, replicate_correlation=0.0
    )


def _append(
    anchors: Anchors, queries: Queries, y: Floats, labels: list[Hashable] | None
) -> Anchors:
    """The anchors and, after them, new ones, with the same metric."""
    n_added = len(queries)
    all_labels, weights = anchors.labels, anchors.weights
    groups, y_std = anchors.groups, anchors.y_std
    if all_labels is not None:
        all_labels = storable_labels(all_labels + (labels or [""] * n_added))
    if weights is not None:
        weights = np.concatenate([weights, np.ones(n_added)])
    if groups is not None:
        groups = np.append(groups, groups.max() + 1 + np.arange(n_added))
    batch = anchors.batch
    if batch is not None and queries.batch is not None:
        batch = np.append(batch, queries.batch)
    if y_std is not None:
        y_std = np.append(y_std, np.full(n_added, np.median(y_std)))
    return replace(
        anchors,
        schema=queries.schema,
        X=np.concatenate([anchors.X, queries.matrix]),
        y=np.concatenate([anchors.y, y]),
        table_rows=np.append(anchors.table_rows, np.full(n_added, -1)),
        weights=weights,
        labels=all_labels,
        learned_metric=anchors.metric,
        groups=groups,
        batch=batch,
        y_std=y_std,
    )


# --- batches --------------------------------------------------------------------------------------


def check_batches(fitted: FittedTwin, batch: Any) -> None:
    """Raise where a batch is given for a model without batches."""
    if batch is not None and fitted.batches is None:
        raise ValueError("The model was fitted without batch; fit it with one.")


def warn_without_batch(fitted: FittedTwin) -> None:
    """Warn where a model has batches, and none is given."""
    if fitted.batches is not None:
        message = (
            "The model was fitted with batches, and none is given: predictions are those of the "
            "mean of all batches. Give batch=, one label or one for each row."
        )
        warn_caller(message, MissingBatchWarning)


def in_batches(fitted: FittedTwin, queries: Queries, batch: Any) -> Queries:
    """Rows to predict with the offsets of their batches; None is an unknown batch."""
    check_batches(fitted, batch)
    if fitted.batches is None:
        return queries
    no_batch = np.full(len(queries), -1)
    codes = no_batch if batch is None else fitted.batches.codes(batch, len(queries))
    offset, offset_std = fitted.batches.of_rows(codes)
    if batch is not None and (codes < 0).any():  # unknown batches are not all the same
        labels = np.array([str(label) for label in batch_labels(batch, len(queries))])
        numbers = np.unique(labels, return_inverse=True)[1]
        codes = np.where(codes < 0, -2 - numbers, codes)
    offset = offset + expected_errors(fitted, queries)
    return replace(queries, offset=offset, offset_std=offset_std, batch=codes)


def expected_errors(fitted: FittedTwin, queries: Queries) -> Floats:
    """(query,): errors of the model, as expected by anchors that were added to batches."""
    if fitted.error_coefficients is None:
        return np.zeros(len(queries))
    metric, anchors = fitted.anchors.metric, fitted.anchors.features
    scaled_queries = metric.in_length_scales(queries.encode().features)
    kernel = kernel_of_rows("matern", scaled_queries, metric.in_length_scales(anchors))[0]
    errors: Floats = kernel @ fitted.error_coefficients
    return errors


def _add_to_batches(
    fitted: FittedTwin, queries: Queries, y: Floats, batch: Any
) -> tuple[FittedTwin, Floats, Queries]:
    """The state with offsets by further known rows, and y of these rows without them.

    The queries that are returned have their batches, and the errors that are expected of the model
    by the rows added before and now as offset.
    """
    batches, anchors = fitted.batches, fitted.anchors
    assert batches is not None, "the model has batches"
    labels = [] if batch is None else batch_labels(batch, len(y))
    names = [label for label in labels if label is not None]
    if len(names) < len(y):
        raise ValueError("The model has batches; give the batch of each new anchor.")
    expected = replace(queries, offset=expected_errors(fitted, queries))
    prediction = fitted.predict(expected)
    predicted, std = prediction.location, np.full(len(y), batches.within)
    if fitted.calibration is not None:  # rows with small errors know the offset better
        std = prediction.error_std
        low, high = (bound * batches.within for bound in _STD_BOUNDS)
        std = np.clip(std, low, high)
    std = np.maximum(std, 1e-140)
    batches, codes = batches.add(names, y - predicted, std**2)
    process = fitted.process
    rows = ErrorFeatures.of(np.zeros((len(y), 1)), queries.encode().features, process)
    correlation = _SHARED * rows.process_correlation() + (1 - _SHARED) * np.eye(len(y))
    root = np.sqrt(rows.variance)
    errors = (y - predicted - batches.offsets[codes]) / root
    values = _SHARED * np.linalg.solve(correlation, errors) / root
    coefficients = process.coefficients(rows.explained, values)
    if (before := fitted.error_coefficients) is not None:
        coefficients[: len(before)] += before
    known_y = fitted.fitted_y - batches.offsets[anchors.batch]
    # the coefficients are those of this metric, which y with other offsets would change
    anchors = replace(anchors, y=known_y, learned_metric=anchors.metric)
    updated = replace(fitted, anchors=anchors, batches=batches, error_coefficients=coefficients)
    return updated, y - batches.offsets[codes], replace(queries, batch=codes)


def update_offsets(
    fitted: FittedTwin, first: BatchOffsets | None, shrinks: bool, predicted: Floats | None = None
) -> FittedTwin:
    """The state with offsets of batches from out-of-fold predictions (anchor,), if there are any.

    The anchors have y without the `first` offsets, and in the result without the final ones.
    Without predictions, they are those of the residuals; without these, the first offsets remain.
    With `shrinks`, the offsets are shrunk by their estimated variance.
    """
    if first is None:
        return fitted
    anchors = fitted.anchors
    codes = anchors.batch
    assert codes is not None, "the anchors have batches"
    batches, before = first, first.offsets[codes]
    if predicted is None and fitted.residuals is not None:
        predicted = anchors.y - fitted.residuals[:, 0]
    if predicted is not None:
        residual = anchors.y + before - complete_predictions(predicted, anchors.y, None)
        held_out = ~np.isnan(predicted)
        # of a batch without held-out rows, the first offset
        weight = (held_out | ~np.isin(codes, codes[held_out])).astype(np.float64)
        weight = weight if anchors.weights is None else weight * anchors.weights
        batches = BatchOffsets.estimate(first.names, residual, codes, weight, shrinks)
        # relative to the first ones, so that predictions are not changed as a whole
        shift = np.average(batches.offsets[codes] - before, weights=anchors.weights)
        batches = replace(batches, means=batches.means - shift)
    moved = before - batches.offsets[codes]
    residuals = fitted.residuals
    return replace(
        fitted,
        anchors=replace(anchors, y=anchors.y + moved, learned_metric=anchors.known_metric),
        residuals=None if residuals is None else residuals + moved[:, None],
        batches=batches,
    )


class BatchErrors(NamedTuple):
    """Out-of-fold errors where the offset of a row is estimated from the other rows of its batch.

    So errors are those of new rows. All arrays are (anchor,).
    """

    prediction: Floats  # out of fold, without the offset
    known_y: Floats  # y without the offset by the other rows
    widening: Floats  # of errors, by those of the offsets
    missing_offsets: tuple[Floats, Floats]  # that the blend and its members do not have
    rmse: dict[str, float]  # of rows of a batch with "known" rows, and of a "new" one


def errors_of_batches(
    fitted: FittedTwin, predicted: Floats, held_out: NDArray[np.bool_]
) -> BatchErrors:
    """The errors of out-of-fold predictions (anchor,), which are without the offsets."""
    batches, codes, weights = fitted.batches, fitted.anchors.batch, fitted.anchors.weights
    assert batches is not None, "the model has batches"
    assert codes is not None, "its anchors have batches"
    y = fitted.fitted_y
    residual = y - predicted
    of_others, widening = batches.without_own(residual, codes, weights)
    centers = {"known": of_others, "new": np.full(len(y), batches.center)}
    weights = None if weights is None else weights[held_out]
    rmse = {
        name: float(np.sqrt(np.average((residual - center)[held_out] ** 2, weights=weights)))
        for name, center in centers.items()
    }
    return BatchErrors(
        prediction=fitted.anchors.y - residual + of_others,
        known_y=y - of_others,
        widening=widening,
        missing_offsets=(fitted.anchor_offsets, of_others),
        rmse=rmse,
    )
