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
