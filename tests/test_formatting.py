"""Numbers as text."""

from twinned.diagnostics.errors import Ratio


def test_interval_of_a_ratio_has_enough_digits():
    assert str(Ratio(0.999, 0.997, 1.002)) == "0.999 (0.997 to 1.002)"
    assert str(Ratio(1.0, 1.0, 1.0)).startswith("1.00")
    assert str(Ratio(0.8, 0.7, 0.95)) == "0.80 (0.70 to 0.95)"
