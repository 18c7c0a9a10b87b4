"""Diagnosis of a data set: which model to use, whether twinning helps, and checks of twins.

`diagnose` fits an `AutoTwinRegressor` within a time budget and recommends what its out-of-fold
errors show to be best. `check_data` finds what makes errors misleading.
"""

from twinned.diagnostics.curves import CheckResult
from twinned.diagnostics.data_checks import Finding, check_data
from twinned.diagnostics.diagnosis import Diagnosis, diagnose

__all__ = [
    "CheckResult",
    "Diagnosis",
    "Finding",
    "check_data",
    "diagnose",
]
