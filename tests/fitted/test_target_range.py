"""Possible values of a target."""

import numpy as np
import pytest

from twinned.fitted.known_values import TargetRange


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("yield (%)", [0.0, 100.0], (0, 100)),
        ("yield [%]", [3.0, 101.0], (0, np.inf)),
        ("conc. (mg/l)", [3.0, 50.0], (0, np.inf)),
        ("change (%)", [-3.0, 50.0], (-np.inf, np.inf)),
    ],
)
def test_range_is_that_of_the_unit_and_the_known_values(name, known, expected):
    assert TargetRange.of(name, np.array(known)) == expected


def test_ends_beyond_are_counted():
    share = TargetRange(0.0, 100.0)
    low, high = np.array([-1.0, 0.0, -3.0]), np.array([50.0, 100.0, 101.0])
    words = share.describe_beyond(low, high)
    assert "2 of 3 intervals begin below 0" in words
    assert "1 of 3 intervals end above 100" in words
    assert share.describe_beyond(low[1:2], high[1:2]) == ""
    assert TargetRange().describe_beyond(low, high) == ""
