"""Offsets of batches of a twin: estimated in its fit, and updated with its anchors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from twinned.estimators.several_targets import per_target
from twinned.fitted.sampling import ErrorFeatures, MetricProcess, predict_error
from twinned.fitted.twin import Anchors, Queries
from twinned.models.gaussian_process import kernel_of_rows
from twinned.rows.batches import BatchOffsets, batch_labels
from twinned.rows.folds import complete_predictions
from twinned.rows.schema import Floats, Indices

# Bounds of the error of a known row of a new batch, in units of that of all rows, and the share of
# its variance that the process of the learned metric explains: the rest is independent.
_STD_BOUNDS, _SHARED = (0.3, 30.0), 0.99


def check_no_batch(batch: Any) -> None:
    """Raise where a batch is given for a model without batches."""
    if batch is not None:
        raise ValueError("The model was fitted without batch; fit it with one.")


class BatchMethods:
    """Methods of a twin for batches, whose offsets its anchors do not have."""

    anchor_batches_: Indices | None = None  # (anchor,): codes of batches
    _batches: tuple[Any, ...] | None = None  # the parts of `BatchOffsets`
    # (anchor,): coefficients of the process of the learned metric, whose sum is the expected error
    # of the model by anchors that were added; None without such
    error_coefficients_: Floats | None = None
    shrinks_offsets = False  # whether offsets are shrunk by their estimated variance

    @property
    def batches_(self) -> BatchOffsets | None:
        """The offsets of batches, of a model that was fitted with them."""
        return None if self._batches is None else BatchOffsets(*self._batches)

    @property
    @per_target
    def batch_offsets_(self) -> pd.DataFrame:
        """`offset`, `std_error` and `n_rows` of each batch, relative to the mean of all batches."""
        batches, codes = self.batches_, self.anchor_batches_
        if batches is None or codes is None:
            raise AttributeError("The model has no batches; fit(X, y, batch=…) estimates offsets.")
        return batches.table(np.bincount(codes, minlength=len(batches.names)))

    def offsets_of(self, batch: Any, n_rows: int) -> tuple[Floats | None, Floats | None]:
        """(row,): offsets of batches and their standard errors; None without batches."""
        batches = self.batches_
        if batches is None:
            check_no_batch(batch)
            return None, None
        no_batch = np.full(n_rows, -1)
        return batches.of_rows(no_batch if batch is None else batches.codes(batch, n_rows))

    def expected_errors(self: Any, queries: Queries) -> Floats:
        """(query,): errors of the model, as expected by anchors that were added."""
        if self.error_coefficients_ is None:
            return np.zeros(len(queries))
        metric, anchors = self._anchors.metric, self._anchors.features
        rows = (metric.in_length_scales(part) for part in (queries.encode().features, anchors))
        errors: Floats = kernel_of_rows("matern", *rows)[0] @ self.error_coefficients_
        return errors

    def _add_to_batches(
        self: Any, queries: Queries, y: Floats, batch: Any
    ) -> tuple[BatchOffsets | None, Anchors, Floats, Floats | None]:
        """Offsets with further known rows, anchors and y of these rows without them, coefficients.

        `queries` are the new rows, without offsets of batches. The anchors have the batches of all
        rows. The last are `error_coefficients_` of the anchors and the new rows.
        """
        batches, anchors, fitted = self.batches_, self._anchors, self.fitted_
        if batches is None or anchors.batch is None:
            check_no_batch(batch)
            return None, anchors, y, None
        labels = [] if batch is None else batch_labels(batch, len(y))
        names = [label for label in labels if label is not None]
        if len(names) < len(y):
            raise ValueError("The model has batches; give the batch of each new anchor.")
        predicted, std = fitted.predict(queries)[0][:, 0], np.full(len(y), batches.within)
        if self.calibration_ is not None:  # rows with small errors know the offset better
            std = predict_error(fitted, queries, self.calibration_)[1]
            std = np.clip(std, *(bound * batches.within for bound in _STD_BOUNDS))
        std = np.maximum(std, 1e-140)
        batches, codes = batches.add(names, y - predicted, std**2)
        process = MetricProcess(anchors.features, anchors.metric)
        rows = ErrorFeatures.of(np.zeros((len(y), 1)), queries.encode().features, process)
        correlation = _SHARED * rows.process_correlation() + (1 - _SHARED) * np.eye(len(y))
        root = np.sqrt(rows.variance)
        errors = (y - predicted - batches.offsets[codes]) / root
        values = _SHARED * np.linalg.solve(correlation, errors) / root
        coefficients = process.coefficients(rows.explained, values)
        if (before := self.error_coefficients_) is not None:
            coefficients[: len(before)] += before
        known_y = fitted.known_y - batches.offsets[anchors.batch]
        # the coefficients are those of this metric, which y with other offsets would change
        parts = {"batch": np.append(anchors.batch, codes), "fitted_metric": anchors.metric}
        anchors = replace(anchors, y=known_y, **parts)
        return batches, anchors, y - batches.offsets[codes], coefficients

    def set_offsets(self: Any, first: BatchOffsets | None, predicted: Floats | None = None) -> None:
        """Set the offsets of batches, if there are any, from out-of-fold predictions (anchor,).

        Without predictions, they are those of `anchor_errors_`; without these, the first offsets
        remain. The anchors have y without the first offsets, and then without the final ones.
        """
        if first is None:
            return
        anchors, codes = self._anchors, self._anchors.batch
        batches, before = first, first.offsets[codes]
        if predicted is None and self.anchor_errors_ is not None:
            predicted = anchors.y - self.anchor_errors_
        if predicted is not None:
            residual = anchors.y + before - complete_predictions(predicted, anchors.y, None)
            held_out = ~np.isnan(predicted)
            # of a batch without held-out rows, the first offset
            weight = (held_out | ~np.isin(codes, codes[held_out])).astype(np.float64)
            weight = weight if anchors.weights is None else weight * anchors.weights
            parts = residual, codes, weight, self.shrinks_offsets
            batches = BatchOffsets.estimate(first.names, *parts)
            # relative to the first ones, so that predictions are not changed as a whole
            shift = np.average(batches.offsets[codes] - before, weights=anchors.weights)
            batches = batches._replace(means=batches.means - shift)
        moved = before - batches.offsets[codes]
        self._anchors = replace(anchors, y=anchors.y + moved)
        self.anchors_y_ = self._anchors.y
        if self.anchor_errors_ is not None:
            self.anchor_errors_ = self.anchor_errors_ + moved
        self._batches = tuple(batches)
