"""Notation of numbers: parsing and detection, against numbers written in a known notation."""

import math
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinned.app.tables.columns import parse_number, read_dates
from twinned.app.tables.numbers import PLAIN, NumberFormat, detect_formats

NOTATIONS = [(".", ""), (",", ""), (".", ","), (",", "."), (",", " "), (".", "'")]
numbers = st.lists(
    st.decimals(-(10**9), 10**9, places=2, allow_nan=False).map(float), min_size=1, unique=True
)


def written(value, decimal, thousands):
    """A number with two decimals in a notation."""
    text = f"{value:,.2f}"
    return text.translate(str.maketrans({",": thousands, ".": decimal}))


@given(numbers, st.sampled_from(NOTATIONS))
def test_notation_with_two_decimals_is_detected(values, notation):
    cells = [written(value, *notation) for value in values]
    (found,) = detect_formats([cells], point_expected=False)
    assert [found.parse(cell) for cell in cells] == values
    assert found.decimal == notation[0]
    given_format = NumberFormat(*notation)
    assert [given_format.parse(cell) for cell in cells] == values


@given(numbers, st.sampled_from(NOTATIONS[1:]))
def test_plain_notation_never_misreads_another(values, notation):
    """A cell in another notation is no number, rather than a wrong one, if it can be recognized."""
    for value in values:
        cell = written(value, *notation)
        assert PLAIN.parse(cell) in (None, value)


@given(st.text("0123456789.,-+−eE_ x", max_size=8))
def test_parsing_agrees_with_float(cell):
    try:
        expected = None if "_" in cell else float(cell.replace("−", "-"))
    except ValueError:
        expected = None
    parsed = PLAIN.parse(cell)
    assert parsed == expected or (math.isnan(parsed) and math.isnan(expected))


@given(st.lists(st.integers(0, 10**6), min_size=3, unique=True))
def test_ambiguous_cells_are_never_guessed(values):
    cells = [f"{value % 999 + 1},{value % 1000:03}" for value in values]
    assert len(detect_formats([cells])) == 2
    (decimal,), (thousands,) = (detect_formats([cells, [other]]) for other in ("0,5", "0.5"))
    for cell in cells:
        assert decimal.parse(cell) == float(cell.replace(",", "."))
        assert thousands.parse(cell) == float(cell.replace(",", ""))


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("<5", (2.5, -1)),
        ("> 7", (7, 1)),
        ("<-4", (-4, -1)),
        ("≤0", (0, -1)),
        ("5", (5, 0)),
        ("<x1", None),
    ],
)
def test_limits(cell, expected):
    assert parse_number(cell) == expected


@given(
    st.lists(st.dates(date(1950, 1, 1), date(2050, 1, 1)), min_size=1),
    st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%Y%m%d", "%d %b %Y", "%Y-%m-%d %H:%M"]),
)
def test_dates_are_parsed(days, notation):
    cells = [day.strftime(notation) for day in days]
    assert [each.date() for each in read_dates(cells)[0]] == days
    assert not read_dates([*cells, "31.02.2024"])


@given(st.lists(st.floats(-(10**7), 10**7).map("{:.3f}".format), min_size=1))
def test_numbers_are_no_dates(cells):
    assert not read_dates(cells)
