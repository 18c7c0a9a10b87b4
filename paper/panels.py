"""A figure of panels, one for each data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from paper.comparison import published
from paper.harness import write_figure

GREY = "#6b6b6b"
SIZE, DPI = (9.6, 8.4), 130  # inches: the width of a page


class Panels:
    """A grid of panels, one for each data set, with one legend."""

    def __init__(self, datasets: list[str], title: str, x_label: str, y_label: str) -> None:
        n_rows = -(-len(datasets) // 3)
        height = SIZE[1] * (n_rows / 3 if len(datasets) > 1 else 0.6) + 0.5
        self.figure = Figure(figsize=(SIZE[0], height), layout="constrained", dpi=DPI)
        grid = self.figure.subplots(n_rows, min(3, len(datasets)), squeeze=False)
        self.axes: dict[Any, Any] = dict(zip(datasets, grid.ravel(), strict=False))
        for axis in grid.ravel()[len(datasets) :]:
            axis.set_visible(False)
        for i, (dataset, axis) in enumerate(self.axes.items()):
            if len(datasets) > 1:
                axis.set_title(dataset, fontsize=11, loc="left", fontweight="bold")
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
            axis.tick_params(which="both", labelsize=8)
            axis.grid(True, color="#dddddd", linewidth=0.5)
            axis.set_axisbelow(True)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
            if i % 3 == 0:
                axis.set_ylabel(y_label, fontsize=9)
            if i >= len(datasets) - 3:
                axis.set_xlabel(x_label, fontsize=9)
        self.figure.suptitle(title, fontsize=12)
        self._legend: dict[str, Any] = {}

    def set_log_y(self) -> None:
        """Make the vertical axes logarithmic, with plain numbers at the ticks."""
        for axis in self.axes.values():
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(_PlainLogFormatter())
            axis.yaxis.set_minor_formatter(_PlainLogFormatter(minor_thresholds=(2, 0.4)))

    def draw_curve(self, rows: pd.DataFrame, name: str, **style: Any) -> None:
        """Draw a curve in each panel: `rows` has dataset, x and value, averaged over the rest."""
        for dataset, own in rows.groupby("dataset"):
            grouped = own.groupby("x")["value"]
            mean: Any = grouped.mean()
            error: Any = grouped.std(ddof=0) / np.sqrt(grouped.count())
            (drawn,) = self.axes[dataset].plot(
                mean.index, mean, markersize=3, marker="o", linewidth=1.4, **style
            )
            self.axes[dataset].fill_between(
                mean.index, mean - error, mean + error, color=drawn.get_color(), alpha=0.15, lw=0
            )
            self.add_to_legend(name, drawn)

    def draw_level(self, rows: pd.DataFrame, name: str, **style: Any) -> None:
        """Draw a horizontal line in each panel: `rows` has dataset and value."""
        for dataset, value in rows.groupby("dataset")["value"].mean().items():
            if dataset in self.axes:
                drawn = self.axes[dataset].axhline(value, **{"linewidth": 1.4, **style})
                self.add_to_legend(name, drawn)

    def draw_published(self, table: str, method: str, color: str, x: float | None = None) -> None:
        """Draw the published value: a diamond at x, or a dotted horizontal line."""
        mark = {"linestyle": ":"} if x is None else {"marker": "D", "linestyle": ""}
        grey = Line2D([], [], color=GREY, markerfacecolor="white", **mark)  # type: ignore[arg-type]
        self.add_to_legend("printed in the paper", grey)
        for row in published().query("table == @table and method == @method").itertuples():
            axis = self.axes.get(row.dataset)
            if axis is None:
                continue
            if x is None:
                axis.axhline(row.rmse, color=color, linestyle=":", linewidth=1.1)
            else:
                style = {"markerfacecolor": "white", "markeredgecolor": color}
                axis.plot([x], [row.rmse], "D", markersize=5, zorder=5, **style)

    def add_to_legend(self, name: str, drawn: Any) -> None:
        """Add a name to the legend, once."""
        self._legend.setdefault(name, drawn)

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write the figure as SVG and PNG."""
        self.figure.legend(
            self._legend.values(),
            self._legend.keys(),
            loc="outside lower center",
            ncols=min(3, len(self._legend)),
            fontsize=9,
            frameon=False,
        )
        paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
        for path in paths:
            # without a date or random identifiers: the same figure is the same file
            metadata = {"Date": None} if path.suffix == ".svg" else {}
            with rc_context({"svg.hashsalt": "twinned"}):
                write_figure(path, self.figure, metadata=metadata)
        return paths


class _PlainLogFormatter(LogFormatter):
    """Writes 0.02 where its base class writes 2e-2, and nothing where that writes nothing."""

    def __call__(self, x: float, pos: Any = None) -> str:
        return f"{x:.3g}" if super().__call__(x, pos) else ""
