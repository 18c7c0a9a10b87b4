"""Lines, points and bars as SVG. Marks have classes; their colors are those of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from twinned.rows.formatting import format_number

WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 44
_MAX_LETTERS = 20  # of a name beside a bar
_LETTER = 7  # width of a digit
_LARGE = 1e6  # numbers from here on have a power of ten


class Chart:
    """Frame with two axes, to which marks are added."""

    def __init__(
        self,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        x_label: str,
        y_label: str,
        *,
        log_x: bool = False,
    ) -> None:
        self.x_range, self.y_range = _padded(x_range, log_x), _padded(y_range, False)
        self._log, self._labels = log_x, (x_label, y_label)
        self._marks: list[str] = []
        self._y_ticks = ticks(*self.y_range)
        self._x_ticks = powers(*self.x_range) if log_x else ticks(*self.x_range)
        longest = max(map(len, tick_labels(self._y_ticks)), default=0)
        self._left = max(LEFT, 28 + _LETTER * longest)
        widths = [_LETTER * len(label) for label in tick_labels(self._x_ticks)]
        self._right = max(RIGHT, *(width // 2 for width in widths), 0)
        # every second one, where labels would touch
        space = (WIDTH - self._left - self._right) / max(1, len(widths))
        if max(widths, default=0) + _LETTER > space:
            self._x_ticks = self._x_ticks[::2]

    def x(self, value: float) -> float:
        low, high, value = (math.log2(v) if self._log else v for v in (*self.x_range, value))
        return self._left + (value - low) / (high - low) * (WIDTH - self._left - self._right)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def line(self, xs: Sequence[float], ys: Sequence[float], kind: str = "one") -> None:
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))
        self._marks.append(f'<polyline class="line {kind}" points="{points}"/>')

    def intervals(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> None:
        """Add vertical intervals, cut at the frame."""
        for x, low, high in zip(xs, lows, highs, strict=True):
            bottom, top = max(low, self.y_range[0]), min(high, self.y_range[1])
            at = f"{self.x(x):.1f}"
            self._marks.append(
                f'<line class="interval" x1="{at}" x2="{at}" y1="{self.y(bottom):.1f}" '
                f'y2="{self.y(top):.1f}"/>'
            )

    def points(
        self, xs: Sequence[float], ys: Sequence[float], names: Sequence[str] | None = None
    ) -> None:
        for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
            tip = f"<title>{escape(names[i])}</title>" if names else ""
            self._marks.append(
                f'<circle class="point" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3">{tip}'
                "</circle>"
            )

    def svg(self, description: str) -> str:
        """Return the chart; `description` is its text for screen readers."""
        x_label, y_label = (escape(label) for label in self._labels)
        labels = (
            f'<text class="label" x="{(self._left + WIDTH - self._right) / 2}" y="{HEIGHT - 8}" '
            f'text-anchor="middle">{x_label}</text>'
            f'<text class="label" transform="translate(14 {(HEIGHT - BOTTOM) / 2}) rotate(-90)" '
            f'text-anchor="middle">{y_label}</text>'
        )
        return _svg([*self._axes(), *self._marks, labels], HEIGHT, description)

    def _axes(self) -> Iterator[str]:
        left, right = self._left, WIDTH - self._right
        for value, label in zip(self._y_ticks, tick_labels(self._y_ticks), strict=True):
            at = self.y(value)
            yield (
                f'<line class="grid" x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
                f'<text class="tick" x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">'
                f"{label}</text>"
            )
        for value, label in zip(self._x_ticks, tick_labels(self._x_ticks), strict=True):
            yield (
                f'<text class="tick" x="{self.x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" '
                f'text-anchor="middle">{label}</text>'
            )


def bar_chart(
    names: Sequence[str],
    values: Sequence[float],
    description: str,
    *,
    errors: Sequence[float] | None = None,
    marked: int = 0,
) -> str:
    """Return horizontal bars, the first on top, each with its name and number.

    `errors` are half the lengths of error bars, and `marked` is the index of the emphasized bar.
    """
    half_lengths = [0.0] * len(names) if errors is None else errors
    ends = [value + half for value, half in zip(values, half_lengths, strict=True)]
    unit, rows = (WIDTH - 250) / max(*ends, 1e-300), []
    for i, (name, value, end) in enumerate(zip(names, values, ends, strict=True)):
        at, length = 8 + 30 * i, unit * value
        short = name if len(name) <= _MAX_LETTERS else f"{name[: _MAX_LETTERS - 1]}…"
        rows.append(
            f'<text class="name" x="152" y="{at + 15}" text-anchor="end">{escape(short)}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="bar{" best" if i == marked else ""}" x="162" y="{at}" rx="2" '
            f'width="{max(1.0, length):.1f}" height="20"/>'
            f'<text class="tick" x="{170 + unit * end:.1f}" y="{at + 15}">{format_number(value)}'
            "</text>"
        )
        if end > value:
            low, high = 162 + length - unit * (end - value), 162 + unit * end
            rows.append(
                f'<line class="error" x1="{low:.1f}" x2="{high:.1f}" y1="{at + 10}" '
                f'y2="{at + 10}"/>'
            )
    return _svg(rows, 30 * len(names) + 8, description)


def curve(numbers: dict[str, Any], description: str) -> str:
    """Return RMSE against a number of anchors, pairs or rows, with bars of standard errors."""
    x, rmse, standard_error = numbers["x"], numbers["rmse"], numbers["standard_error"]
    lows = [e - s for e, s in zip(rmse, standard_error, strict=True)]
    highs = [e + s for e, s in zip(rmse, standard_error, strict=True)]
    limits = min(lows), max(highs)
    chart = Chart((min(x), max(x)), limits, numbers["x_label"], "RMSE", log_x=True)
    chart.intervals(x, lows, highs)
    chart.line(x, rmse)
    chart.points(x, rmse, [f"{a}: {format_number(e)}" for a, e in zip(x, rmse, strict=True)])
    return chart.svg(description)


def _svg(parts: list[str], height: int, description: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(description)}">'
        f"{''.join(parts)}</svg>"
    )


def _padded(limits: tuple[float, float], log: bool) -> tuple[float, float]:
    """Return limits with a margin at both ends, also where they are equal."""
    low, high = limits
    if log:
        return (low / 1.15, high * 1.15) if high > low else (low / 2, high * 2)
    margin = 0.04 * (high - low) or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two.

    >>> ticks(0.0, 10.0)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Return the numbers of an axis as different texts, large ones with a power of ten.

    >>> tick_labels([0.0, 1000.0]), tick_labels([0.0, 2e6, 2.5e6]), tick_labels([1e7, 10000001.0])
    (['0', '1,000'], ['0', '2e6', '2.5e6'], ['10,000,000', '10,000,001'])
    """
    labels = [format_number(value) for value in values]
    if max(map(abs, values), default=0.0) >= _LARGE:
        short = [_with_power(value) for value in values]
        labels = short if len(set(short)) == len(short) else labels
    return labels


def _with_power(value: float) -> str:
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}" if value else "0"


def powers(low: float, high: float) -> list[float]:
    """Return powers of two between two numbers, at most eight of them.

    >>> powers(0.9, 9.0)
    [1.0, 2.0, 4.0, 8.0]
    """
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / 8))
    return [2.0**i for i in range(first, last + 1, step)]
