"""Known rows that are added to a fitted twin, and the deviations of its batches."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.batches.effects import BatchEffects
from twinned.batches.estimation import estimate_effects
from twinned.fitted.anchors import Anchors
from twinned.fitted.twin import FittedTwin
from twinned.rows.folds import complete_predictions
from twinned.rows.schema import Floats, Queries, storable_labels
from twinned.rows.validation import batch_labels

_STD_BOUNDS = (0.3, 30.0)  # of the error of a known row of a batch, in units of that of all rows


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
    fitted.check_batch(batch)
    if fitted.batches is not None:
        if batch is not None and (fitted.anchors.table_rows < 0).any():
            # with those added before, so that the result does not depend on the order
            queries, y, labels, batch = _with_added(fitted, queries, y, labels, batch)
            fitted = _state_of_fit(fitted)
        fitted, y, queries = _add_to_batches(fitted, queries, y, batch)
    anchors, residuals = _append(fitted.anchors, queries, y, labels), fitted.residuals
    model = fitted.model.with_anchors(queries.encode(), len(fitted.anchors))
    if residuals is not None:  # the model was not fitted to the new rows
        model_of_fit = replace(
            _state_of_fit(fitted), residuals=None, local_weights=None, replicate_correlation=0.0
        )
        predicted = model_of_fit.moments(replace(queries, offset=None))[0]
        residuals = np.concatenate([residuals, y.reshape(predicted.shape) - predicted])
    extended = replace(
        fitted, model=model, anchors=anchors, residuals=residuals, applicability=None
    )
    return _calibrated_by_anchors(extended)


def _calibrated_by_anchors(fitted: FittedTwin) -> FittedTwin:
    """The state whose calibration knows the present anchors."""
    if (calibration := fitted.calibration) is None:
        return fitted
    anchors = fitted.anchors
    return replace(fitted, calibration=calibration.with_known_rows(anchors.matrix, anchors.y))


def _state_of_fit(fitted: FittedTwin) -> FittedTwin:
    """The state before anchors were added."""
    anchors, residuals, batches = fitted.anchors, fitted.residuals, fitted.batches
    of_fit = np.flatnonzero(anchors.table_rows >= 0)
    if len(of_fit) == len(anchors):
        return fitted
    state = replace(
        fitted,
        model=fitted.model.with_anchors(anchors.rows.take(slice(0)), len(of_fit)),
        anchors=anchors.take(of_fit),
        residuals=None if residuals is None else residuals[of_fit],
    )
    if batches is not None:
        state = _replace_deviations(state, batches.without_last(len(anchors) - len(of_fit)))
    return _calibrated_by_anchors(state)


def _append(
    anchors: Anchors, queries: Queries, y: Floats, labels: list[Hashable] | None
) -> Anchors:
    """The anchors and, after them, new ones, with the same metric."""
    n_added, groups, y_std = len(queries), anchors.groups, anchors.y_std
    all_labels = anchors.labels
    if all_labels is not None:
        all_labels = storable_labels(all_labels + (labels or [""] * n_added))
    added: dict[str, Any] = {
        "matrix": queries.matrix,
        "y": y,
        "table_rows": np.full(n_added, -1),
        "weight": np.ones(n_added),
        "groups": None if groups is None else groups.max() + 1 + np.arange(n_added),
        "batch": queries.batch,
        "deviation": queries.offset,
        "y_std": None if y_std is None else np.full(n_added, np.median(y_std)),
    }
    values = {name: (vars(anchors)[name], of_added) for name, of_added in added.items()}
    joined: dict[str, Any] = {
        name: np.concatenate(both) for name, both in values.items() if both[0] is not None
    }
    return replace(
        anchors,
        **joined,
        schema=queries.schema,
        labels=all_labels,
        learned_metric=anchors.metric,
    )


# --- batches --------------------------------------------------------------------------------------


def _add_to_batches(
    fitted: FittedTwin, queries: Queries, y: Floats, batch: Any
) -> tuple[FittedTwin, Floats, Queries]:
    """The state with deviations by further known rows, and y of these rows without them.

    The queries that are returned have their batches and deviations.
    """
    batches, anchors = fitted.batches, fitted.anchors
    assert batches is not None, "the model has batches"
    labels = [] if batch is None else batch_labels(batch, len(y))
    names = [label for label in labels if label is not None]
    if len(names) < len(y):
        raise ValueError("The model has batches; give the batch of each new anchor.")
    prediction = fitted.predict(queries)
    std = np.full(len(y), batches.within)
    if fitted.calibration is not None:  # rows with small errors know the deviation better
        low, high = (bound * batches.within for bound in _STD_BOUNDS)
        std = np.clip(prediction.error_std, low, high)
    variance = np.maximum(std, 1e-140) ** 2
    residual = y - prediction.location
    batches, codes = batches.add(names, queries.encoded_features, residual, variance)
    queries = batches.with_deviations(queries, codes)
    fitted = _replace_deviations(fitted, batches)
    # the metric of the fit, which y with other deviations would change
    fitted = replace(fitted, anchors=replace(fitted.anchors, learned_metric=anchors.metric))
    return fitted, y - np.asarray(queries.offset), queries


def _with_added(
    fitted: FittedTwin, queries: Queries, y: Floats, labels: list[Hashable] | None, batch: Any
) -> tuple[Queries, Floats, list[Hashable] | None, list[str | None]]:
    """The anchors that were added, and after them further rows, as arguments of `add_rows`."""
    added = np.flatnonzero(fitted.anchors.table_rows < 0)
    anchors, batches = fitted.anchors.take(added), fitted.batches
    assert batches is not None, "the model has batches"
    names = [batches.names[code] for code in np.asarray(anchors.batch)]
    if anchors.labels is not None:
        labels = [*anchors.labels, *(labels or [""] * len(y))]
    return (
        replace(queries, matrix=np.concatenate([anchors.matrix, queries.matrix])),
        np.concatenate([fitted.fitted_y[added], y]),
        labels,
        [*names, *batch_labels(batch, len(y))],
    )


def _replace_deviations(fitted: FittedTwin, batches: BatchEffects) -> FittedTwin:
    """The state with anchors whose y is without the deviations of these batches."""
    anchors = fitted.anchors
    features = anchors.schema.to_rows(anchors.matrix).features
    deviation = batches.of_rows(features, np.asarray(anchors.batch))[0]
    residuals, moved = fitted.residuals, fitted.anchor_offsets - deviation
    return replace(
        fitted,
        anchors=replace(
            anchors,
            y=anchors.y + moved,
            deviation=deviation,
            learned_metric=anchors.known_metric,
        ),
        residuals=None if residuals is None else residuals + moved[:, None],
        batches=batches,
    )


def update_effects(
    fitted: FittedTwin,
    first: BatchEffects | None,
    predicted: Floats | None = None,
    excess: Floats | float = 0.0,
) -> FittedTwin:
    """The state with deviations of batches from out-of-fold predictions (anchor,), if any.

    The anchors have y without the first deviations, and in the result without the final ones.
    Without predictions, they are those of the residuals; without these, the `first` ones remain.
    Variances are estimated by out-of-fold predictions; deviations are those expected by them plus
    the `excess` (anchor,).
    """
    if first is None:
        return fitted
    anchors = fitted.anchors
    codes, before = np.asarray(anchors.batch), fitted.anchor_offsets
    if predicted is None and fitted.residuals is not None:
        predicted = anchors.y - fitted.residuals[:, 0]
    if predicted is None:
        return _replace_deviations(fitted, first)
    residual = anchors.y + before - complete_predictions(predicted, anchors.y, None)
    held_out = ~np.isnan(predicted)
    # of a batch without held-out rows, the first deviation
    weight = (held_out | ~np.isin(codes, codes[held_out])).astype(np.float64)
    weight = weight if anchors.weight is None else weight * anchors.weight
    features = anchors.schema.to_rows(anchors.matrix).features
    known = replace(first, features=features, codes=codes, residual=residual, weight=weight)
    batches = estimate_effects(known)
    batches = replace(batches, residual=residual - excess)
    batches = batches.with_noise_ratios(batches.known_batches)
    # relative to the first ones, so that predictions are not changed as a whole
    change = batches.of_rows(features, codes)[0] - before
    shift = float(np.average(change, weights=anchors.weight))
    return _replace_deviations(fitted, batches.shifted(-shift))


class BatchErrors(NamedTuple):
    """Out-of-fold errors where the deviation of a row is estimated from the others of its batch.

    So errors are those of new rows. All arrays are (anchor,).
    """

    prediction: Floats  # out of fold, without the deviation
    known_y: Floats  # y without the deviation by the other rows
    widening: Floats  # of errors, by those of the deviations and the noise of the batch
    missing_deviations: tuple[Floats, Floats]  # that the blend and its members do not have
    rmse: dict[str, float]  # of rows of a batch with "known" rows, and of a "new" one


def errors_of_batches(
    fitted: FittedTwin, predicted: Floats, held_out: NDArray[np.bool_]
) -> BatchErrors:
    """The errors of out-of-fold predictions (anchor,), which are without the deviations."""
    batches, weights = fitted.batches, fitted.anchors.weight
    assert batches is not None, "the model has batches"
    y = fitted.fitted_y
    residual = y - predicted
    of_others, std, ratio = batches.without_own()
    centers = {"known": of_others, "new": np.full(len(y), batches.center)}
    weights = None if weights is None else weights[held_out]
    rmse = {
        name: float(np.sqrt(np.average((residual - center)[held_out] ** 2, weights=weights)))
        for name, center in centers.items()
    }
    return BatchErrors(
        prediction=fitted.anchors.y - residual + of_others,
        known_y=y - of_others,
        widening=batches.widening(std, ratio),
        missing_deviations=(fitted.anchor_offsets, of_others),
        rmse=rmse,
    )
