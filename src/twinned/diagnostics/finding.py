"""What a diagnostic found: numbers, one sentence, and a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """The result of one diagnostic.

    Parameters
    ----------
    key : str
        Its name: "comparison".
    title : str
        The question that it answers.
    verdict : str
        One sentence.
    numbers : dict
        What the sentence rests on; texts, numbers and lists of them.
    draw : callable (matplotlib axes, numbers)
        Draws the numbers.
    """

    key: str
    title: str
    verdict: str
    numbers: dict[str, Any]
    draw: Callable[[Any, dict[str, Any]], None]

    def plot(self, axes: Any = None) -> Any:
        """Draw into these matplotlib axes, or into new ones; returns them."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(5.6, 3.6), layout="constrained").subplots()
        self.draw(axes, self.numbers)
        axes.set_title(self.title)
        return axes

    def __str__(self) -> str:
        return f"{self.title} {self.verdict}"


def draw_curve(axes: Any, numbers: dict[str, Any]) -> None:
    """RMSE with its standard error against what `across` names, on a logarithmic scale."""
    axes.errorbar(numbers["at"], numbers["rmse"], numbers["error"], marker="o", capsize=3)
    axes.set_xscale("log", base=2)
    axes.set_xlabel(numbers["across"])
    axes.set_ylabel("RMSE of left-out points")


def per_cent(share: float) -> str:
    """A share as a rounded percentage without a sign.

    >>> per_cent(-0.034), per_cent(0.212), per_cent(0.0)
    ('3.4 %', '21 %', '0 %')
    """
    size = abs(100 * share)
    if size < 0.05:
        return "0 %"
    return f"{size:.1f} %" if size < 10 else f"{size:.0f} %"
