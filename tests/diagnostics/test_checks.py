"""Each check on data with a known result."""

from dataclasses import replace

import numpy as np
import pytest

from twinned import diagnostics
from twinned.datasets import make_tf
from twinned.diagnostics import learning_curve, multiplier_check
from twinned.diagnostics.errors import rmse_ratio
from twinned.diagnostics.twin_checks import CrossValidation, cross_validate_twin

OTHERS = {"CheckResult", "Diagnosis", "Finding", "check_data", "diagnose"}


CHECKS = [getattr(diagnostics, name) for name in diagnostics.__all__ if name not in OTHERS]


@pytest.mark.parametrize("check", CHECKS)
def test_check_has_numbers_summary_and_plot(check, bridge, bridge_cv):
    result = check(*bridge, cross_validation=bridge_cv)
    assert result.summary.endswith(".")
    assert result.title.endswith("?")
    assert result.numbers
    axes = result.plot()
    assert axes.get_title() == result.title
    assert axes.has_data()


@pytest.mark.slow
def test_check_without_cross_validation_computes_its_own(bridge, bridge_cv, tree_twin):
    alone = learning_curve(*bridge, tree_twin)
    assert alone.numbers == learning_curve(*bridge, cross_validation=bridge_cv).numbers


@pytest.mark.parametrize(
    ("errors", "trend"),
    [
        ([[1, 0, 0, 0.1], [1, 1, 1, 1]], "unclear"),  # errors of exactly 0
        ([[2, 1, 1.5, 2], [2, 2, 1.5, 1]], "unclear"),  # opposite folds
        ([[9, 1, 1, 1], [9, 1, 1, 1]], "level"),
        ([[8, 4, 8 / 3, 2], [8, 4.4, 8 / 3, 2]], "falls"),
        ([[0, 0, 0, 0], [0, 0, 0, 0]], "level"),
    ],
)
def test_trend_of_the_learning_curve(bridge, bridge_cv, monkeypatch, errors, trend):
    found = iter(np.ravel(errors))
    monkeypatch.setattr(CrossValidation, "fit_and_predict", lambda *_: None)
    monkeypatch.setattr("twinned.diagnostics.twin_checks.rmse", lambda *_: next(found))
    two_folds = replace(bridge_cv, folds=bridge_cv.folds[:2])
    numbers = learning_curve(*bridge, cross_validation=two_folds).numbers
    assert numbers["trend"] == trend
    assert numbers["interval"][0] <= numbers["interval"][1]


# --- ratio of errors --------------------------------------------------------------------------


@pytest.mark.slow
def test_interval_of_rmse_ratio_covers_the_true_ratio():
    """95 % intervals of the ratio of two errors with a true ratio of 0.8."""
    rng = np.random.RandomState(0)
    covered = 0
    for _ in range(100):
        shared, y = rng.normal(size=60), np.zeros(60)
        same = rmse_ratio(0.8 * shared, shared, y)
        assert list(same) == pytest.approx([0.8] * 3)  # the same ratio in every row
        ratio = rmse_ratio(0.8 * rng.normal(size=60), rng.normal(size=60), y)
        covered += ratio.low <= 0.8 <= ratio.high
    assert 86 <= covered <= 99


def test_ratio_resamples_groups():
    rng = np.random.RandomState(0)
    groups = np.repeat(np.arange(20), 4)
    y = np.zeros(80)
    first, second = (np.repeat(rng.normal(size=20), 4) for _ in range(2))
    of_rows, of_groups = (rmse_ratio(first, second, y, own) for own in (None, groups))
    # twenty groups are less certain than eighty rows
    assert of_groups.high - of_groups.low > 1.3 * (of_rows.high - of_rows.low)
    # group codes that do not start at 0, as in a fold
    half = slice(40, 80)
    assert rmse_ratio(first[half], second[half], y[half], groups[half]) == rmse_ratio(
        first[half], second[half], y[half], groups[half] - 10
    )
    assert rmse_ratio(first, second, y, groups // 5)[1:] == (0.0, np.inf)  # too few groups


# --- curves -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_pairs_and_more_labels_help(tree_twin, bridge, bridge_cv):
    X, y = make_tf(200, random_state=0)
    cv = cross_validate_twin(X, y, tree_twin)
    assert multiplier_check(X, y, cross_validation=cv).numbers["trend"] == "falls"
    result = learning_curve(*bridge, cross_validation=bridge_cv)
    assert result.numbers["trend"] == "falls"
    assert "Twice as many labels" in result.summary
