"""Displays: predictions with intervals, and comparables.

As those of scikit-learn, they are made by `from_estimator` or `from_predictions`, and have `plot`,
`ax_` and `figure_`. matplotlib is loaded when a display is drawn.
"""

from twinned.displays.comparables import ComparablesDisplay
from twinned.displays.intervals import PredictionIntervalDisplay

__all__ = ["ComparablesDisplay", "PredictionIntervalDisplay"]
