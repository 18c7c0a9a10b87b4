"""Figure 1 of the paper: the dual formulation of a regression problem."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#1f6fb4", "#e07b1a", "#6b6b6b"
POINTS = {1: (0.12, 0.22), 2: (0.88, 0.22), 3: (0.5, 0.86)}  # in the right panel


def draw_dual_formulation() -> Figure:
    """Return the figure: a function of one point, and one of the sides of a loop of points."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained", dpi=130)
    left, right = figure.subplots(1, 2)
    for axis, title in ((left, "regression"), (right, "twinned regression: the dual problem")):
        axis.set_title(title, fontsize=11, fontweight="bold", loc="left")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.set_axis_off()
    _draw_direct(left)
    _draw_loop(right)
    figure.suptitle("Figure 1 of the paper: dual formulation of a regression problem", fontsize=12)
    return figure


def _draw_direct(axis: Any) -> None:
    """Each point x is mapped to its target."""
    for i, height in ((1, 0.78), (2, 0.5), (3, 0.22)):
        _draw_node(axis, (0.2, height), f"$x_{i}$", BLUE)
        _draw_node(axis, (0.8, height), f"$y_{i}$", ORANGE)
        _draw_arrow(axis, (0.27, height), (0.73, height))
        axis.text(0.5, height + 0.03, f"$f(x_{i}) = y_{i}$", ha="center", fontsize=10)


def _draw_loop(axis: Any) -> None:
    """Each pair of points is mapped to the difference of their targets; loops sum to zero."""
    for i, position in POINTS.items():
        _draw_node(axis, position, f"$x_{i}, y_{i}$", BLUE)
    for (i, j), label, align in (
        ((1, 2), (0.5, 0.27), "center"),
        ((2, 3), (0.74, 0.58), "left"),
        ((3, 1), (0.26, 0.58), "right"),
    ):
        _draw_arrow(
            axis, _between(POINTS[i], POINTS[j], 0.14), _between(POINTS[i], POINTS[j], 0.86)
        )
        axis.text(*label, f"$F(x_{i}, x_{j}) = y_{i} - y_{j}$", ha=align, fontsize=10)
    axis.text(0.5, 0.46, "loop:", ha="center", fontsize=9, color=GREY)
    axis.text(0.5, 0.38, "$F(x_1,x_2)+F(x_2,x_3)+F(x_3,x_1)=0$", ha="center", fontsize=9)
    axis.text(
        0.5, 0.03, "anchor $(x_1, y_1)$ known:  $y_2 = F(x_2, x_1) + y_1$", ha="center", fontsize=10
    )


def _between(start: Any, end: Any, share: float) -> tuple[float, float]:
    """The point at this share of the way from start to end."""
    (x, y), (x_end, y_end) = start, end
    return x + share * (x_end - x), y + share * (y_end - y)


def _draw_node(axis: Any, position: Any, text: str, color: str) -> None:
    box = {"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": color, "linewidth": 1.6}
    axis.text(*position, text, ha="center", va="center", fontsize=11, bbox=box)


def _draw_arrow(axis: Any, start: Any, end: Any) -> None:
    style = {"arrowstyle": "-|>", "color": GREY, "linewidth": 1.3}
    axis.annotate("", xy=end, xytext=start, arrowprops=style)
