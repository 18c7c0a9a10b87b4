"""Cross-validated checks of a data set: does twinning help, and with which settings?

`cross_validation` computes out-of-fold predictions, `comparison`, `curves` and
`uncertainty_checks` hold one function per check, and `diagnose` runs all checks within a time
budget.
"""

from twinned.diagnostics.comparison import compare
from twinned.diagnostics.curves import (
    anchor_curve,
    learning_curve,
    multiplier_check,
    neighbor_curve,
)
from twinned.diagnostics.diagnose import Diagnosis, diagnose
from twinned.diagnostics.noise import noise_estimate
from twinned.diagnostics.result import CheckResult
from twinned.diagnostics.uncertainty_checks import anchor_decomposition, loop_check

__all__ = [
    "CheckResult",
    "Diagnosis",
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
