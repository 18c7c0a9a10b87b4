"""Half widths of prediction intervals, as a view in notebooks."""

from __future__ import annotations

import numpy as np

from twinned.intervals.stored import quantile_rank
from twinned.rows.formatting import details, paragraph, preformatted, table, view
from twinned.rows.schema import Floats

_CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99)


def half_widths(scores: Floats, scales: Floats) -> dict[str, list[float]]:
    """Return the half widths of intervals of the held-out rows, by confidence.

    `scores` and `scales` are (row,) scores and error scales. A confidence that needs more rows is
    not included.

    >>> half_widths(np.arange(1.0, 10.0), np.full(9, 2.0))["typical half width"]
    [10.0, 16.0, 18.0]
    """
    n, ordered = len(scores), np.sort(scores)
    levels = [level for level in _CONFIDENCES if (1.0 - level) * (n + 1) + 1e-9 >= 1]
    factors = [float(ordered[-quantile_rank(level, n)]) for level in levels]
    return {
        "confidence": levels,
        "typical half width": [float(np.median(scales)) * factor for factor in factors],
        "smallest": [float(scales.min()) * factor for factor in factors],
        "largest": [float(scales.max()) * factor for factor in factors],
    }


def calibration_view(scores: Floats, scales: Floats, width: str, model: str) -> str:
    """Return the HTML view of a calibrated model; `model` describes it."""
    return view(
        paragraph(
            f"Prediction intervals calibrated by {len(scores):,} held-out rows, width={width!r}."
        ),
        table(half_widths(scores, scales), {"confidence": ".0%"}),
        paragraph("Half widths are those of the held-out rows; typical is the median.", "soft"),
        details("Model", preformatted(model)),
    )
