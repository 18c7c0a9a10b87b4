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
