"""Result of a check: numbers, a summary of one sentence, and a plot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = dict[str, Any]  # what JSON holds: strings, numbers, and lists and dicts of them


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Parameters
    ----------
    key : str
        The name of the check, such as "comparison".
    title : str
        The heading of its plot.
    summary : str
        One sentence.
    numbers : dict
        The numbers behind the summary; they can be written as JSON.
    draw : callable (matplotlib axes, numbers)
        Draws the numbers.
    model : str, default=""
        The name of the model to which the numbers belong; empty where they belong to the data.
    """

    key: str
    title: str
    summary: str
    numbers: Numbers
    draw: Callable[[Axes, Numbers], Any]
    model: str = ""

    @property
    def heading(self) -> str:
        """The title and the model."""
        return f"{self.title} ({self.model})" if self.model else self.title

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw into these matplotlib axes, or into new ones, and return them."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(5.6, 3.6), layout="constrained").subplots()
        self.draw(axes, self.numbers)
        axes.set_title(self.heading)
        return axes

    def __str__(self) -> str:
        return f"{self.heading} {self.summary}"


def draw_curve(axes: Axes, numbers: Numbers, **options: Any) -> Any:
    """Draw RMSE with standard errors against `numbers["x"]`, on a logarithmic scale.

    Returns the container of the error bars; `options` are those of `Axes.errorbar`.
    """
    style = {"marker": "o", "capsize": 3, **options}
    bars = axes.errorbar(numbers["x"], numbers["rmse"], numbers["standard_error"], **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(numbers["x_label"])
    axes.set_ylabel("RMSE of held-out rows")
    return bars


def format_percent(share: float) -> str:
    """Return a share as a rounded percentage without a sign.

    >>> format_percent(-0.034), format_percent(0.212), format_percent(0.0)
    ('3.4 %', '21 %', '0 %')
    """
    size = abs(100 * share)
    if size < 0.05:
        return "0 %"
    return f"{size:.1f} %" if size < 10 else f"{size:.0f} %"
