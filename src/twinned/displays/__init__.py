"""Displays: predictions with intervals, comparables, and errors by the number of anchors.

As those of scikit-learn, they are made by `from_estimator` or `from_predictions`, and have `plot`,
`ax_` and `figure_`. matplotlib is loaded when a display is drawn.
"""

from twinned.displays.anchor_curve import AnchorCurveDisplay
from twinned.displays.comparables import ComparablesDisplay
from twinned.displays.intervals import PredictionIntervalDisplay

__all__ = ["AnchorCurveDisplay", "ComparablesDisplay", "PredictionIntervalDisplay"]
