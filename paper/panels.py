"""A figure of panels, one for each data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from PIL import Image

from benchmarks.frame import write_figure
from paper.comparison import published
from twinned.datasets import KEYS, info

GREY = "#6b6b6b"
BANDS = "bands: ± one standard error over the 25 splits"
TITLE_PAD, LINE = 6, 11  # points between panel and title, and for a line between them
SIZE, DPI = (9.6, 8.4), 130  # inches: the width of a page
TITLE_SIZE = 12


class Panels:
    """A grid of panels, one for each data set, with one legend.

    Parameters
    ----------
    datasets : list of str
        Keys of the panels; those of data sets are titled with their full name.
    title, x_label, y_label : str
    note : str
        Printed below the panels: what the bands are.
    titles : dict of str to str, default=None
        Titles of panels that are not data sets.
    """

    def __init__(
        self,
        datasets: list[str],
        title: str,
        x_label: str,
        y_label: str,
        note: str = BANDS,
        titles: dict[str, str] | None = None,
    ) -> None:
        n_rows = -(-len(datasets) // 3)
        height = SIZE[1] * (n_rows / 3 if len(datasets) > 1 else 0.6) + 0.5
        self.figure = Figure(figsize=(SIZE[0], height), layout="constrained", dpi=DPI)
        grid = self.figure.subplots(n_rows, min(3, len(datasets)), squeeze=False)
        self.axes: dict[Any, Any] = dict(zip(datasets, grid.ravel(), strict=False))
        for axis in grid.ravel()[len(datasets) :]:
            axis.set_visible(False)
        for i, (dataset, axis) in enumerate(self.axes.items()):
            if len(datasets) > 1:
                name = (titles or {}).get(dataset) or full_name(dataset)
                _set_title(axis, name)
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
        self.figure.suptitle(title, fontsize=TITLE_SIZE)
        self._note = note
        self._legend: dict[str, Any] = {}

    def add_to_title(self, before: str, after: str) -> None:
        """Print texts before and after the title."""
        title = f"{before}: {self.figure.get_suptitle()}, {after}"
        self.figure.suptitle(title, fontsize=TITLE_SIZE)

    def add_note(self, note: str) -> None:
        """Print a further line below the panels."""
        self._note += f"\n{note}"

    def set_log_y(self) -> None:
        """Make the vertical axes logarithmic, with plain numbers at several ticks.

        Called when all is drawn, as the ticks depend on the range.
        """
        for axis in self.axes.values():
            low, high = axis.get_ylim()
            axis.set_yscale("log")
            narrow = low > 0 and high / low < 12
            axis.yaxis.set_major_locator(
                MaxNLocator(5) if narrow else LogLocator(subs=(1.0, 2.0, 5.0), numticks=12)
            )
            axis.yaxis.set_major_formatter("{x:.3g}")
            axis.yaxis.set_minor_locator(NullLocator())

    def draw_curve(
        self, rows: pd.DataFrame, name: str, standard_error: bool = True, **style: Any
    ) -> None:
        """Draw a curve in each panel: `rows` has dataset, x and value, averaged over the rest.

        The band is one standard error of the mean, or one standard deviation.
        """
        for dataset, own in rows.groupby("dataset"):
            grouped = own.groupby("x")["value"]
            mean: Any = grouped.mean()
            # the band may be of a paired difference instead
            spread = own.groupby("x")["difference"] if "difference" in own else grouped
            error: Any = spread.std(ddof=0) / (np.sqrt(spread.count()) if standard_error else 1.0)
            (drawn,) = self.axes[dataset].plot(
                mean.index, mean, markersize=3, marker="o", linewidth=1.4, **style
            )
            self.axes[dataset].fill_between(
                mean.index, mean - error, mean + error, color=drawn.get_color(), alpha=0.15, lw=0
            )
            if len(mean) == 1:  # a band of one point is invisible
                self.axes[dataset].errorbar(
                    mean.index, mean, error, color=drawn.get_color(), alpha=0.5, capsize=3
                )
            self.add_to_legend(name, drawn)

    def clip_above(self, limits: dict[str, float]) -> None:
        """Limit the vertical axes from above, and print the values of points beyond."""
        for dataset, top in limits.items():
            axis = self.axes[dataset]
            low = axis.get_ylim()[0]
            hidden = {
                (x, y, line.get_color())
                for line in axis.lines
                if line.get_transform() == axis.transData and line.get_marker() != "_"  # no cap
                for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
                if y > top
            }
            axis.set_ylim(low, top)
            if hidden:
                text = ", ".join(f"{y:.3g} at {x:.3g}" for x, y, _ in sorted(hidden))
                self._add_subtitle(dataset, f"above: {text}", next(iter(hidden))[2])

    def _add_subtitle(self, dataset: str, text: str, color: str) -> None:
        """Print a line between title and panel, where it covers no curve."""
        axis = self.axes[dataset]
        axis.annotate(
            text, (0, 1), (0, 4), xycoords="axes fraction",
            textcoords="offset points", fontsize=8, color=color,
        )  # fmt: skip
        _set_title(axis, axis.get_title("left"), TITLE_PAD + LINE)

    def draw_level(self, rows: pd.DataFrame, name: str, band: bool = False, **style: Any) -> None:
        """Draw a horizontal line in each panel: `rows` has dataset and value.

        With a band of one standard deviation, where that is requested.
        """
        for dataset, own in rows.groupby("dataset")["value"]:
            if dataset not in self.axes:
                continue
            value, spread = own.mean(), own.std(ddof=0)
            drawn = self.axes[dataset].axhline(value, **{"linewidth": 1.4, **style})
            self.add_to_legend(name, drawn)
            if band:
                self.axes[dataset].axhspan(
                    value - spread, value + spread, color=drawn.get_color(), alpha=0.15, lw=0
                )

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

    def save(self, folder: Path, name: str) -> Path:
        """Write the figure as PNG and return its path."""
        legend = self.figure.legend(
            self._legend.values(),
            self._legend.keys(),
            loc="outside lower center",
            ncols=min(3, len(self._legend)),
            fontsize=9,
            frameon=False,
            title=self._note,
            title_fontsize=8,
        )
        legend.get_title().set_multialignment("center")
        path = folder / f"{name}.png"
        write_figure(path, self.figure)
        _reduce_colors(path)
        return path


def _set_title(axis: Any, title: str, pad: float = TITLE_PAD) -> None:
    """Print the title of a panel, so many points above it."""
    axis.set_title(title, fontsize=10, loc="left", fontweight="bold", pad=pad)


def _reduce_colors(path: Path) -> None:
    """Store a picture with a palette, in a third of the bytes."""
    with Image.open(path) as picture:
        reduced = picture.convert("RGB").quantize(128)
    reduced.save(path, optimize=True)


def full_name(dataset: str) -> str:
    """Return name and key of a data set, or the key of another panel.

    >>> full_name("BH"), full_name("F")
    ('Boston housing (BH)', 'F')
    """
    return f"{info(dataset).name} ({dataset})" if dataset in KEYS else dataset
