"""Numbers and names as text."""

import re
import shutil
from collections.abc import Callable, Mapping

import pandas as pd

_MAX_ROWS = 60  # of a table that is shown


def format_significant(value: float, digits: int = 3) -> str:
    """Return a number with significant digits and separators of thousands.

    >>> format_significant(12345.6), format_significant(0.01234567), format_significant(123.0, 2)
    ('12,300', '0.0123', '120')
    """
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10**digits else f"{rounded:.{digits}g}"


def format_number(value: float) -> str:
    """Return a number with four significant digits and separators of thousands.

    >>> format_number(12345.6), format_number(0.01234567), format_number(2.0)
    ('12,346', '0.01235', '2')
    """
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_value(value: float | str | None) -> str:
    """Return a value of a feature: a category, or a number; those as large as years are plain.

    >>> format_value(2019.0), format_value(12019.0), format_value("north"), format_value(None)
    ('2019', '12,019', 'north', 'missing')
    """
    if value is None or isinstance(value, str):
        return "missing" if value is None else value
    return f"{value:.0f}" if 1000 <= abs(value) < 9999.5 else format_number(value)


def format_interval(*numbers: float, show: Callable[[float, int], str] = format_significant) -> str:
    """Return a value with the ends of its interval, with more digits where they look the same.

    >>> format_interval(140.2, 137.8, 143.1), format_interval(14.2, 7.8, 43.1)
    ('140 (138 to 143)', '14 (7.8 to 43)')
    """
    for digits in range(2, 7):
        value, *ends = (show(number, digits) for number in numbers)
        if value not in ends:
            break
    return f"{value} ({' to '.join(ends)})"


def shorten(text: str, most: int) -> str:
    """Return a text of at most so many characters, the last an ellipsis where it is cut.

    >>> shorten("a long name", 6), shorten("name", 6)
    ('a lon…', 'name')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def aligned(texts: Mapping[str, str]) -> list[str]:
    """Return lines of names and texts, in two columns.

    >>> aligned({"RMSE": "2.1", "R²": "0.9"})
    ['RMSE  2.1', 'R²    0.9']
    """
    width = max(map(len, texts))
    return [f"{name:<{width}}  {text}" for name, text in texts.items()]


def split_unit(target: str) -> tuple[str, str]:
    """Return the name of a target and its unit with a space before it, empty without one.

    >>> split_unit("R [ohm]"), split_unit("yield (%)"), split_unit("f(x)")
    (('R', ' ohm'), ('yield', ' %'), ('f(x)', ''))
    """
    match = re.fullmatch(r"(.*\S)\s+(?:\[([^\[\]]+)\]|\(([^()]+)\))\s*", target)
    if not match:
        return target, ""
    return match[1], f" {(match[2] or match[3]).strip()}"


def number_text(value: float, digits: int = 6) -> str:
    """Return a number with significant digits for a table that is read again.

    >>> number_text(61.23456789), number_text(1234567.8), number_text(5.0), number_text(1 / 3, 17)
    ('61.2346', '1234570', '5', '0.3333333333333333')
    """
    # repr of a float is the shortest text that parses to the same number
    return repr(float(f"{value:.{digits}g}")).removesuffix(".0")


class ResultTable(pd.DataFrame):
    """A DataFrame that is shown with all its columns in a console.

    Every operation on it returns a plain DataFrame.
    """

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns
        return pd.DataFrame(self).to_string(max_rows=_MAX_ROWS, line_width=width)
