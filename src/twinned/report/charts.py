"""Lines, points and bars as SVG. Colours are the page's: every mark has a class, none a colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 44
_LONGEST = 20  # letters of a name beside a bar


class Chart:
    """A frame with two axes, into which marks are put."""

    def __init__(
        self,
        across: tuple[float, float],
        up: tuple[float, float],
        x_label: str,
        y_label: str,
        *,
        log_x: bool = False,
    ) -> None:
        self._x, self._y, self._log = _padded(across, log_x), _padded(up, False), log_x
        self._labels, self._marks = (x_label, y_label), []  # type: ignore[var-annotated]

    def x(self, value: float) -> float:
        low, high, value = (math.log2(v) if self._log else v for v in (*self._x, value))
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def line(self, xs: Sequence[float], ys: Sequence[float], kind: str = "one") -> None:
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))
        self._marks.append(f'<polyline class="line {kind}" points="{points}"/>')

    def level(self, value: float, kind: str = "guide") -> None:
        self.line(self._x, [value, value], kind)

    def bars(self, xs: Sequence[float], ys: Sequence[float], reach: Sequence[float]) -> None:
        """Vertical intervals."""
        for x, y, r in zip(xs, ys, reach, strict=True):
            low, high = (min(max(v, self._y[0]), self._y[1]) for v in (y - r, y + r))
            at = f"{self.x(x):.1f}"
            self._marks.append(
                f'<line class="reach" x1="{at}" x2="{at}" y1="{self.y(low):.1f}" '
                f'y2="{self.y(high):.1f}"/>'
            )

    def points(
        self, xs: Sequence[float], ys: Sequence[float], names: Sequence[str] | None = None
    ) -> None:
        for place, (x, y) in enumerate(zip(xs, ys, strict=True)):
            tip = f"<title>{escape(names[place])}</title>" if names else ""
            self._marks.append(
                f'<circle class="point" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3">{tip}'
                "</circle>"
            )

    def svg(self, described: str) -> str:
        """The picture; `described` is what a screen reader says of it."""
        parts = [*self._axes(), *self._marks]
        x_label, y_label = (escape(label) for label in self._labels)
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(
            f'<text class="label" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{x_label}'
            f'</text><text class="label" transform="translate(14 {(HEIGHT - BOTTOM) / 2}) '
            f'rotate(-90)" text-anchor="middle">{y_label}</text>'
        )
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(described)}">'
            f"{''.join(parts)}</svg>"
        )

    def _axes(self) -> list[str]:
        parts = []
        for value in ticks(*self._y):
            at = self.y(value)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">'
                f"{number(value)}</text>"
            )
        for value in powers(*self._x) if self._log else ticks(*self._x):
            at = self.x(value)
            parts.append(
                f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                f"{number(value)}</text>"
            )
        return parts


def bar_chart(names: Sequence[str], values: Sequence[float], described: str) -> str:
    """Horizontal bars, the first on top, each with its name and number."""
    height, most = 30 * len(names) + 8, max(*values, 1e-300)
    width = WIDTH - 250
    rows = []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        at, full = 8 + 30 * place, escape(name)
        name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        rows.append(
            f'<text class="name" x="152" y="{at + 15}" text-anchor="end">{escape(name)}'
            f"<title>{full}</title></text>"
            f'<rect class="bar{" best" if place == 0 else ""}" x="162" y="{at}" rx="2" '
            f'width="{max(1.0, width * value / most):.1f}" height="20"/>'
            f'<text class="tick" x="{170 + width * value / most:.1f}" y="{at + 15}">'
            f"{number(value)}</text>"
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(described)}">'
        f"{''.join(rows)}</svg>"
    )


def curve(numbers: dict[str, Any], described: str) -> str:
    """RMSE against a number of something, with bars of standard errors."""
    at, errors, spread = numbers["at"], numbers["rmse"], numbers["error"]
    low = min(e - s for e, s in zip(errors, spread, strict=True))
    high = max(e + s for e, s in zip(errors, spread, strict=True))
    chart = Chart((min(at), max(at)), (low, high), numbers["across"], "RMSE", log_x=True)
    chart.bars(at, errors, spread)
    chart.line(at, errors)
    chart.points(at, errors, [f"{a}: {number(e)}" for a, e in zip(at, errors, strict=True)])
    return chart.svg(described)


def _padded(span: tuple[float, float], log: bool) -> tuple[float, float]:
    """A little room at both ends, and some at all."""
    low, high = span
    if log:
        return (low / 1.15, high * 1.15) if high > low else (low / 2, high * 2)
    room = 0.04 * (high - low) or abs(high) * 0.1 or 1.0
    return low - room, high + room


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two.

    >>> ticks(0.0, 10.0)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    step = 10 ** math.floor(math.log10((high - low) / 4))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= 6:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def powers(low: float, high: float) -> list[float]:
    """Powers of two between two numbers, at most eight of them.

    >>> powers(0.9, 9.0)
    [1.0, 2.0, 4.0, 8.0]
    """
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / 8))
    return [2.0**i for i in range(first, last + 1, step)]


def number(value: float) -> str:
    """Four digits that count, thousands apart.

    >>> number(12345.6), number(0.01234567), number(2.0)
    ('12,346', '0.01235', '2')
    """
    if value == 0:
        return "0"
    size = abs(value)
    if not 1e-4 <= size < 1e9:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
