"""Should these data be twinned? Diagnostics that answer with numbers, a sentence and a picture.

`evidence` gathers out-of-fold predictions, `comparison`, `curves` and `trust` ask them one question
each, and `guide` asks all within a time budget.
"""

from twinned.diagnostics.comparison import compare
from twinned.diagnostics.curves import (
    anchor_curve,
    learning_curve,
    multiplier_check,
    neighbor_curve,
)
from twinned.diagnostics.diagnose import Diagnosis, diagnose
from twinned.diagnostics.finding import Finding
from twinned.diagnostics.uncertainty_checks import anchor_decomposition, loop_check, noise_estimate

__all__ = [
    "Diagnosis",
    "Finding",
    "anchor_curve",
    "anchor_decomposition",
    "compare",
    "diagnose",
    "learning_curve",
    "loop_check",
    "multiplier_check",
    "neighbor_curve",
    "noise_estimate",
]
