"""Ratios of the errors of two models."""

import numpy as np
import pytest

from twinned.diagnostics.errors import rmse_ratio


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
