"""Data checks with codes: duplicates, groups, leaks, counters, the target, the size and new rows.

`check_data` runs them all; none fits more than a quick model. docs/checks.md describes each code.
"""

from __future__ import annotations

from typing import Any

from twinned.diagnostics.cross_validation import MIN_ROWS, check_diagnosable
from twinned.diagnostics.data_checks import columns, duplicates, shift, target
from twinned.diagnostics.data_checks.findings import CODES, NOTE, WARNING, CheckedTable, Finding
from twinned.diagnostics.data_checks.groups import check_groups
from twinned.rows.neighbors import Indices
from twinned.rows.validation import count_rows, validate_target

__all__ = ["CODES", "NOTE", "WARNING", "Finding", "check_data", "suggest_logarithm"]


def suggest_logarithm(X: Any, y: Any) -> Finding | None:
    """Return the finding that the logarithm of y is predicted better, if it is.

    X and y are the labelled rows; fewer than twenty have no finding.
    """
    if count_rows(X) < MIN_ROWS:
        return None
    table = CheckedTable.encode(X, validate_target(None, y, count_rows(X), multi_output=False))
    return next(iter(target.check_skewness(table.sample())), None)


def check_data(
    X: Any,
    y: Any,
    *,
    groups: Indices | None = None,
    X_new: Any = None,
    log_target: bool = False,
) -> list[Finding]:
    """Check a table for what makes errors or predictions misleading.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All labelled rows; at least twenty.
    y : array of shape (n,)
        Their values.
    groups : array of shape (n,), default=None
        Groups of rows that are held out together; rows are then not checked for further ones.
    X_new : table or array of shape (n_new, n_features), default=None
        Rows to predict later, to compare with the labelled ones.
    log_target : bool, default=False
        Whether the logarithm of y will be fitted, so that it is not suggested.

    Returns
    -------
    list of Finding
        Warnings first; each has a `code`, a `message`, an `advice` and `numbers`.

    Examples
    --------
    >>> from twinned.datasets import make_wsb
    >>> from twinned.diagnostics import check_data
    >>> X, y = make_wsb(80, random_state=0)
    >>> check_data(X, y)
    []
    >>> [finding.code for finding in check_data(X.assign(copy=2 * y + 1), y)]
    ['TW201']
    """
    table = CheckedTable.encode(X, check_diagnosable(y, count_rows(X)))
    sample = table.sample()
    found = columns.check_leaks(sample) + columns.check_pairs(sample)
    found += columns.check_counters(table)
    found += duplicates.check_duplicates(table)
    if groups is None:
        found += check_groups(table.merged().sample())
    found += duplicates.check_replicates(table)
    found += target.check_rounding(table) + target.check_bounds(table)
    if not log_target:
        found += target.check_skewness(sample)
    found += target.check_dominant_row(sample) + target.check_size(table, groups)
    if X_new is not None:
        found += shift.check_new_rows(table, X_new)
    return sorted(found, key=lambda finding: finding.level != WARNING)
