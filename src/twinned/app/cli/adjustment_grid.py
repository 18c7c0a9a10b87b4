"""Adjustment grids of `twinned explain`: lines of a terminal, and rows of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from twinned.fitted.explanation import ComparableCase, Value

MAX_FEATURES = 12  # lines of a grid; the adjustments of all others are summed
_MAX_NAME, _MAX_VALUE = 24, 16  # characters
_GAP = "   "
_MARKS = {
    "inside": "",
    "edge": "; at the edge of the known rows",
    "outside": "; outside of the known rows, so an extrapolation",
}


@dataclass(frozen=True)
class ExplainedRow:
    """A row of the user's table, its prediction and its comparable known cases."""

    row: int
    name: str
    prediction: float
    interval: tuple[float, float] | None
    applicability: str
    values: dict[str, Value]
    cases: list[ComparableCase]

    @property
    def share(self) -> float:
        """The share of the cases in the weight of the prediction."""
        return sum(case.weight for case in self.cases)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        low, high = self.interval or (None, None)
        return {
            "row": self.row,
            "name": self.name,
            "prediction": self.prediction,
            **({} if self.interval is None else {"low": low, "high": high}),
            "applicability": self.applicability,
            "values": self.values,
            "share": self.share,
            "comparables": [case.as_dict() for case in self.cases],
        }


class _Column(NamedTuple):
    """A column of a grid: its title, and a value and a number for each line."""

    title: str
    cells: list[tuple[str, str]]

    def lines(self) -> list[str]:
        """The title and the cells with one width: values at the left, numbers at the right."""
        left = max(len(value) for value, _ in self.cells)
        right = max(len(number) for _, number in self.cells)
        body = [f"{value:<{left}}  {number:>{right}}" for value, number in self.cells]
        if not left:
            body = [number.rjust(right) for _, number in self.cells]
        width = max(len(self.title), len(body[0]))
        return [self.title.ljust(width), *(line.ljust(width) for line in body)]


def format_grid(explained: ExplainedRow, target: str, width: int) -> list[str]:
    """Return the adjustment grid of a row as lines.

    Each known case is a column: its value, what each feature adds, and their sum. Columns that do
    not fit into `width` characters are below the others; each block has at least one.
    """
    write = _number_format(
        [
            explained.prediction,
            *(v for case in explained.cases for v in (case.known, case.estimate)),
        ]
    )
    features = _shown_features(explained.cases)
    others = _other_adjustments(explained.cases, features)
    names = ["known value", *features, *(["other features"] if any(others) else [])]
    titles = ["", *(_short(name, _MAX_NAME) for name in (*names, "adjusted value"))]
    head = [title.ljust(max(map(len, titles))) for title in titles]
    own = ["", *(_value_text(explained.values[name]) for name in features)]
    own += [""] * (len(names) - len(own)) + [write(explained.prediction)]
    first = _Column("this row", [(text, "") for text in own]).lines()
    columns = [
        _case_column(case, features, other if any(others) else None, write).lines()
        for case, other in zip(explained.cases, others, strict=True)
    ]
    available = width - len(head[0]) - len(_GAP + first[0])
    lines = [_heading(explained, target, write)]
    for block in _blocks(columns, available):
        lines.append("")
        rows = zip(head, first, *block, strict=True)
        lines += [f"  {_GAP.join(row)}".rstrip() for row in rows]
    return lines


def _heading(explained: ExplainedRow, target: str, write: Callable[[float], str]) -> str:
    interval = ""
    if explained.interval is not None:
        low, high = map(write, explained.interval)
        interval = f", 90 % prediction interval {low} to {high}"
    prediction = f"{explained.name}: predicted {target} {write(explained.prediction)}"
    return prediction + interval + _MARKS[explained.applicability]


def _case_column(
    case: ComparableCase,
    features: Sequence[str],
    other: float | None,
    write: Callable[[float], str],
) -> _Column:
    cells = [("", write(case.known))]
    for name in features:
        cells.append((_value_text(case.values[name]), _signed(case.adjustments[name], write)))
    if other is not None:
        cells.append(("", _signed(other, write)))
    return _Column(_short(case.label, _MAX_NAME), [*cells, ("", write(case.estimate))])


def _shown_features(cases: Sequence[ComparableCase]) -> list[str]:
    """The features that are adjusted for in any case, the largest adjustment first."""
    largest = {name: max(abs(case.adjustments[name]) for case in cases) for name in cases[0].values}
    shown = sorted((name for name in largest if largest[name] > 0), key=lambda n: -largest[n])
    return shown[:MAX_FEATURES]


def _other_adjustments(cases: Sequence[ComparableCase], shown: Sequence[str]) -> list[float]:
    """What the features that are not shown add in each case."""
    return [
        sum(value for name, value in case.adjustments.items() if name not in shown)
        for case in cases
    ]


def _blocks(columns: list[list[str]], available: int) -> list[list[list[str]]]:
    """Columns that fit beside each other into that many characters, at least one in each block."""
    blocks: list[list[list[str]]] = []
    used = 0
    for column in columns:
        size = len(_GAP + column[0])
        if not blocks or used + size > available - 2:  # the indentation
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += size
    return blocks


def _number_format(values: Sequence[float]) -> Callable[[float], str]:
    """A format with the same decimals for all values, so that they sum to each other."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0 or not 1e-6 <= largest < 1e12:
        return lambda value: f"{value:.3e}".replace("-", "−", 1) if value < 0 else f"{value:.3e}"
    decimals = max(0, 3 - math.floor(math.log10(largest)))
    return lambda value: f"{value:,.{decimals}f}".replace("-", "−")


def _signed(value: float, write: Callable[[float], str]) -> str:
    """An adjustment with its sign; empty where there is none."""
    if value == 0:
        return ""
    return write(value) if value < 0 else f"+{write(value)}"


def _value_text(value: Value) -> str:
    from twinned.rows.formatting import format_number

    if value is None or value != value:  # NaN
        return "missing"
    return _short(value, _MAX_VALUE) if isinstance(value, str) else format_number(value)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def grid_rows(explained: Sequence[ExplainedRow]) -> tuple[list[str], list[list[Any]]]:
    """Return the header and the rows of a table with one row for each known case.

    Of each feature it has the value of the row, that of the known case, and the adjustment.
    """
    features = list(explained[0].values)
    with_interval = explained[0].interval is not None
    header = ["row", "prediction", *(["low", "high"] if with_interval else [])]
    header += ["applicability", "known case", "known value"]
    for name in features:
        header += [f"{name} ({part})" for part in ("this row", "known case", "adjustment")]
    header += ["adjusted value", "weight"]
    rows: list[list[Any]] = []
    for own in explained:
        for case in own.cases:
            row: list[Any] = [own.name, own.prediction, *(own.interval or ())]
            row += [own.applicability, case.label, case.known]
            for name in features:
                row += [own.values[name], case.values[name], case.adjustments[name]]
            rows.append([*row, case.estimate, case.weight])
    return header, rows
