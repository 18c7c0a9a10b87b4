"""Numbers as text, and HTML views of results in notebooks.

All colors of the views are those of the notebook, so that they are readable in light and dark
themes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape

import pandas as pd

_STYLE = (
    "<style>.twinned{color:inherit;line-height:1.45;max-width:60rem;overflow-x:auto}"
    ".twinned table{border-collapse:collapse;margin:.4em 0;background:transparent;color:inherit}"
    ".twinned th,.twinned td{padding:.2em .7em;text-align:right;color:inherit;"
    "border:0;border-bottom:1px solid rgba(128,128,128,.35);font-variant-numeric:tabular-nums}"
    ".twinned th{font-weight:600}"
    ".twinned th:first-child,.twinned td:first-child{text-align:left}"
    ".twinned .soft{opacity:.7}.twinned .strong{font-weight:600}"
    ".twinned pre{background:rgba(128,128,128,.12);padding:.5em .8em;color:inherit}</style>"
)
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


def view(*parts: str) -> str:
    """Return parts of HTML as one view with its style."""
    return f'{_STYLE}<div class="twinned">{"".join(parts)}</div>'


def paragraph(text: str, style: str = "") -> str:
    """Return an escaped paragraph.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f'<p class="{style}">{escape(text)}</p>' if style else f"<p>{escape(text)}</p>"


def details(title: str, *parts: str) -> str:
    """Return a section that is closed at first."""
    return f"<details><summary>{escape(title)}</summary>{''.join(parts)}</details>"


def preformatted(text: str) -> str:
    """Return escaped text in lines as they are."""
    return f"<pre>{escape(text)}</pre>"


def bullets(items: Iterable[str]) -> str:
    """Return an escaped list."""
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def table(
    columns: Mapping[str, Sequence[object]] | pd.DataFrame, formats: Mapping[str, str] | None = None
) -> str:
    """Return columns as a table of at most 60 rows.

    Numbers have four significant digits, or are formatted by a `formats` string of their column.
    Missing values are empty.

    >>> "<td>0.12</td>" in table({"name": ["a<b"], "rmse": [0.123456]}, {"rmse": ".2f"})
    True
    """
    frame = pd.DataFrame(columns).astype(object)
    return frame.to_html(
        index=False,
        border=0,
        na_rep="",
        formatters={
            name: partial(_format, spec=(formats or {}).get(str(name))) for name in frame.columns
        },
        max_rows=_MAX_ROWS,
        show_dimensions=len(frame) > _MAX_ROWS,
    )


def _format(value: object, spec: str | None) -> str:
    """Return a value as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        plain = str(value) if isinstance(value, int) else format_number(value)
        return (format(value, spec) if spec else plain).replace("-", "−").replace("%", " %")
    return str(value)


class ResultTable(pd.DataFrame):
    """A DataFrame whose view in notebooks has rounded values, and in a console all columns.

    Every operation on it returns a plain DataFrame.
    """

    _metadata = ["html_formats"]  # noqa: RUF012 (as pandas has it)
    html_formats: Mapping[str, str]

    @classmethod
    def create(
        cls, data: Mapping[str, object] | pd.DataFrame, formats: Mapping[str, str]
    ) -> ResultTable:
        """Return a table with a format string for the numbers of each of these columns."""
        made = cls(data)
        made.html_formats = formats
        return made

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns
        return pd.DataFrame(self).to_string(max_rows=_MAX_ROWS, line_width=width)

    def _repr_html_(self) -> str:
        return view(table(pd.DataFrame(self), getattr(self, "html_formats", None)))
