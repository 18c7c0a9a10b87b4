"""Check of the differences between batches of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from twinned.diagnostics.findings import CheckedTable, Finding
from twinned.estimators.auto import AutoTwinRegressor
from twinned.rows.batches import batch_labels
from twinned.rows.formatting import format_significant
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

_CLEARLY_LOWER, _HARDLY_LOWER = 0.95, 0.99  # of errors
_LEAST_NOISE = 2.0  # of a batch, in units of the median
_QUICK = ["ridge", "gp_matern", "extra_trees:small"]  # members that compare uses of batches
_MAX_BATCH_ROWS = 200  # for the comparison


def compare_uses_of_batches(table: CheckedTable, batch: ArrayLike) -> Iterator[Finding]:
    """Describe what batches (row,) differ by at equal other features.

    Quick members ignore them, have them as a feature, and remove constants or functions of each.
    """
    name = str((batch.name if isinstance(batch, pd.Series) else None) or "batch")
    rows = np.sort(np.random.RandomState(0).permutation(table.n_rows)[:_MAX_BATCH_ROWS])
    features, y = table.features[rows], table.y[rows]
    texts = np.array(batch_labels(np.asarray(batch)[rows], len(rows)), dtype=str)
    names, codes = np.unique(texts, return_inverse=True)
    if not 1 < len(names) < len(rows):
        return
    blends = _fit_uses_of_batches(features, y, codes)
    errors = [float(blend.blend_["rmse"]) for blend in blends]
    offset_table = blends[3].batch_offsets_.set_axis(names).sort_values("offset")
    precise = offset_table[offset_table["std_error"] <= 2 * offset_table["std_error"].median()]
    low, high = precise.iloc[0], precise.iloc[-1]
    size = high["offset"] - low["offset"]
    error = np.hypot(high["std_error"], low["std_error"])
    difference = f"{format_significant(size, 2)} ± {format_significant(error, 2)}"
    ignored, feature, functions, offsets = map(format_significant, errors)
    kind = "Batches differ by constants."
    if errors[2] < _CLEARLY_LOWER * errors[3]:
        kind = "Batches differ in shape: a function of the features describes each of them."
    elif errors[3] > _HARDLY_LOWER * errors[0]:
        kind = "Batches hardly differ."
    noise = blends[2].batch_effects_["noise_std"].set_axis(names)
    ratio = noise.max() / noise.median()
    if ratio > _LEAST_NOISE:
        kind += f" The noise of {noise.idxmax()} is {format_significant(ratio, 2)} times the usual."
    yield Finding(
        "TW107",
        f"The rows of {name!r} {high.name} are {difference} higher than those of {low.name} at "
        f"equal features. The error of quick models is {ignored} without {name!r}, {feature} with "
        f"it as a feature, {offsets} with its offsets, and {functions} with its functions, for "
        f"rows of known batches. {kind}",
        "The model has these offsets; a few known rows of a new batch suffice.",
        {
            "column": name,
            "difference": float(size),
            "std_error": float(error),
            "rmse": [*errors[:2], errors[3], errors[2]],
        },
    )


def _fit_uses_of_batches(features: Floats, y: Floats, codes: Indices) -> list[AutoTwinRegressor]:
    """Fit quick members without batches, and with these as a feature, functions and offsets."""
    labels = [f"b{code:05}" for code in codes]  # in the order of the codes
    with_indicators = np.hstack([features, np.eye(codes.max() + 1)[codes]])
    uses = ((features, None), (with_indicators, None), (features, "function"), (features, "offset"))
    blends = []
    for X, kind in uses:
        blend = AutoTwinRegressor(members=_QUICK, cv=5, batch_effect=kind or "auto", random_state=0)
        blends.append(blend.fit_blend(X, y, batch=kind and labels, calibrate=False))
    return blends
