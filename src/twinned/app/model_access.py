"""What the service and the report need of a fitted twin beyond its public methods."""

from __future__ import annotations

import numpy as np
from sklearn.utils import get_tags

from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.base import BaseTwin
from twinned.estimators.twin import TwinRegressor
from twinned.intervals.applicability import LABELS
from twinned.intervals.stored import StoredIntervals
from twinned.pairing.anchors import as_anchor_strategy
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, TableSchema


def table_schema(twin: BaseTwin) -> TableSchema:
    """Return the kinds and categories of the features."""
    return twin._schema


def has_feature_names(twin: BaseTwin) -> bool:
    """Return whether the twin was fitted to a table with named columns."""
    return "feature_names_in_" in vars(twin)


def accepts_missing_values(twin: BaseTwin) -> bool:
    """Return whether queries may have missing values; the metric of the anchors must take them."""
    nearest = as_anchor_strategy(twin.anchors).nearest(len(twin.anchors_y_))
    metric_accepts = nearest is None or nearest[1] in ("nan_euclidean", "learned")
    return metric_accepts and bool(get_tags(twin).input_tags.allow_nan)


def target_name(twin: BaseTwin) -> str:
    """Return the name of the target that `twinned fit` stores, or "y"."""
    return str(vars(twin).get("target_name_", "y"))


def stored_intervals(twin: BaseTwin) -> StoredIntervals | None:
    """Return the calibration that a twin stores, or None."""
    return StoredIntervals(twin) if "intervals_" in vars(twin) else None


def prepare_trees(twin: BaseTwin) -> None:
    """Prepare the trees of a twin for many small predictions."""
    if isinstance(twin, TwinRegressor):
        twin._prepare_fast_path()


def predict_error_scale(
    twin: BaseTwin, X: object, intervals: StoredIntervals
) -> tuple[Floats, Floats, Floats]:
    """Return (query,) mean and standard deviation of predictions, and their error scale."""
    return twin._predict_error_scale(X, intervals)


def predict_encoded(twin: AutoTwinRegressor, matrix: Floats) -> Floats:
    """Return (query,) predictions of encoded rows, without known values of equal rows."""
    used = np.flatnonzero(twin.member_weights_)
    predictions: Floats = twin._predict_by(matrix, used) @ twin.member_weights_[used]
    return predictions


def adjustments_between_anchors(twin: BaseTwin, first: Indices, second: Indices) -> Floats:
    """Return (pair, feature): what each feature adds to the difference between two anchors."""
    return twin._adjustments_of_anchors(first, second)


def anchor_features(twin: BaseTwin, *, learned_metric: bool) -> Floats:
    """Return (anchor, encoded feature), in units of the learned metric if that is wanted."""
    features = twin._anchors.features
    return twin._metric().transform(features) if learned_metric else features


def anchor_applicability(twin: BaseTwin) -> dict[int, str]:
    """Return the label of each anchor beside the others, by its index."""
    domain = twin._applicability_domain()
    classes = zip(domain.known_rows, domain.classify_known(), strict=True)
    return {int(row): LABELS[label] for row, label in classes}
