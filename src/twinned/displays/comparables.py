"""Display of the comparable anchors of one query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from twinned._compat import safe_indexing
from twinned.displays.intervals import GUIDE, check_one_target, make_axes
from twinned.estimators.pipelines import explain, predict_interval, unwrap
from twinned.fitted.explanation import COLUMNS, OTHERS, name_case
from twinned.rows.formatting import format_number, format_significant, shorten
from twinned.rows.schema import Floats
from twinned.rows.validation import check_integer, count_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

_TEXT_MARGIN = 0.3  # of the middle of written adjustments, as a share of the axes
_MAX_LABEL, _MAX_TITLE = 24, 60  # characters
_LEAST_SHARE = 0.01  # of the largest adjustment of an anchor, for one that is written


class ComparablesDisplay:
    """Comparable anchors of one query: known values, adjustments and estimates.

    Each anchor has an arrow from its known value to its estimate of the query. The largest
    adjustments, which sum to the length of the arrow with those not written, are below it. The last
    arrow, in grey, has the weighted means of all other anchors. A vertical line is the prediction,
    and a band its interval where there is one.

    Make it with `from_estimator`, or draw a table of `explain` by `plot`.

    Parameters
    ----------
    comparables : DataFrame
        Rows of one query in the table of `explain`; the most important first.
    y_pred : float or None, default=None
        Prediction of the query.
    interval : array of shape (2,) or None, default=None
        Its prediction interval.
    target : str, default="y"
        Name of the target, for the label of the axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    known_, estimates_ : matplotlib PathCollection
        Points of the known values and of the estimates; the last is all other anchors.
    line_ : matplotlib Line2D or None
        The prediction.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import ComparablesDisplay, TwinRegressor
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(40, random_state=0)
    >>> twin = TwinRegressor(Ridge()).fit(X[:30], y[:30])
    >>> display = ComparablesDisplay.from_estimator(twin, X[30:], query=2, n=4, target="V")
    >>> len(display.comparables)  # with all other anchors
    5
    """

    ax_: Axes
    figure_: Figure | SubFigure
    known_: PathCollection
    estimates_: PathCollection
    line_: Line2D | None

    def __init__(
        self,
        *,
        comparables: pd.DataFrame,
        y_pred: float | None = None,
        interval: ArrayLike | None = None,
        target: str = "y",
    ) -> None:
        self.comparables = comparables
        self.y_pred = y_pred
        self.target = target
        self.interval: Floats | None = (
            None if interval is None else np.asarray(interval, dtype=np.float64)
        )

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        query: int = 0,
        n: int = 5,
        adjustments: bool = True,
        confidence: float = 0.9,
        target: str = "y",
        **options: Any,
    ) -> Self:
        """Explain the prediction of one row, and draw it.

        Parameters
        ----------
        estimator : fitted twin or Pipeline
            A pipeline must end with a twin.
        X : table or array of shape (n_queries, n_features)
            Rows to predict.
        query : int, default=0
            Which row of X to explain: its position.
        n : int, default=5
            Number of anchors.
        adjustments : bool, default=True
            Whether to write what the features add.
        confidence : float, default=0.9
            Confidence of the interval, where the twin stores a calibration.
        target : str, default="y"
            Name of the target.
        **options
            `ax` and others of `plot`.

        Returns
        -------
        display : ComparablesDisplay
        """
        if check_integer("query", query, 0) >= count_rows(X):
            raise ValueError(f"query={query} must be less than the {count_rows(X)} rows of X.")
        row = safe_indexing(X, np.array([query]))
        predicted = check_one_target(estimator.predict(row))
        is_calibrated = unwrap(estimator)[0].calibration_ is not None
        return cls(
            comparables=explain(estimator, row, n, adjustments=adjustments),
            y_pred=float(predicted[0]),
            interval=predict_interval(estimator, row, confidence)[0] if is_calibrated else None,
            target=target,
        ).plot(**options)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        max_features: int = 3,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; None makes a figure.
        max_features : int, default=3
            Number of adjustments that are written for each anchor.

        Returns
        -------
        self
        """
        table, position = self.comparables, np.arange(len(self.comparables))
        self.ax_ = ax = make_axes(ax, (7.0, 1.4 + 0.62 * len(table)))
        self.figure_ = ax.figure
        known_y, estimates = (table[name].to_numpy() for name in ("anchor_y", "estimate"))
        self._draw_prediction(ax)
        arrow = {"arrowstyle": "->", "color": "0.5", "linewidth": 1.3}
        for at, start, end in zip(position, known_y, estimates, strict=True):
            ax.annotate("", xy=(end, at), xytext=(start, at), arrowprops=arrow, zorder=2)
        colors = np.where(table["anchor"] >= 0, "C0", "0.6").tolist()
        style: dict[str, Any] = {"s": 34, "zorder": 3}
        self.known_ = ax.scatter(
            known_y, position, facecolors="none", edgecolors=colors, label="known value", **style
        )
        self.estimates_ = ax.scatter(
            estimates, position, color=colors, label="adjusted: estimate", **style
        )
        self._write_adjustments(ax, max_features)
        numbered = [f"row {anchor}" if anchor >= 0 else OTHERS for anchor in table["anchor"]]
        names = map(name_case, map(str, table.get("label", numbered)), table["count"])
        pairs = zip(names, table["weight"], strict=True)
        ax.set_yticks(position, [f"{name}\nweight {100 * weight:.1f} %" for name, weight in pairs])
        ax.set_ylim(len(table) - 0.35, -0.55)
        ax.set_xlabel(self.target)
        query = table["query"].iloc[0]
        name = query if isinstance(query, str) else f"row {query}"
        ax.set_title(f"Comparables of {shorten(name, _MAX_TITLE)}")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return self

    def _draw_prediction(self, ax: Axes) -> None:
        self.line_ = None
        if self.interval is not None:
            ax.axvspan(*self.interval, color="C1", alpha=0.15, zorder=0, label="interval")
        if self.y_pred is not None:
            shown = format_number(self.y_pred).replace("-", "−")
            style = {**GUIDE, "color": "C1"}
            self.line_ = ax.axvline(self.y_pred, **style, label=f"prediction: {shown}")

    def _write_adjustments(self, ax: Axes, max_features: int) -> None:
        table = self.comparables
        features = [name for name in table.columns if name not in (*COLUMNS, "label", "output")]
        middles = table[["anchor_y", "estimate"]].to_numpy().mean(axis=1)
        low, high = ax.get_xlim()
        ax.set_xlim(low, high)
        # a text as wide as half of the axes stays within them
        middles = np.clip((middles - low) / (high - low), _TEXT_MARGIN, 1 - _TEXT_MARGIN)
        for at, adjustments in enumerate(table[features].to_numpy(dtype=np.float64)):
            text = describe_adjustments(features, adjustments, max_features)
            ax.annotate(
                text,
                xy=(middles[at], at),
                xycoords=("axes fraction", "data"),
                xytext=(0, -6),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize="small",
            )


def describe_adjustments(names: list[str], values: Floats, most: int) -> str:
    """Return the largest of (feature,) adjustments in words.

    >>> describe_adjustments(["area", "age", "floor"], np.array([12.0, -3.456, 0.0]), 2)
    'area +12, age −3.46'
    """
    sizes, names = np.abs(values), [shorten(name, _MAX_LABEL) for name in names]
    return ", ".join(
        f"{names[i]} {'+' if values[i] > 0 else '−'}{format_significant(sizes[i])}"
        for i in np.argsort(-sizes, kind="stable")[:most]
        if sizes[i] > _LEAST_SHARE * sizes.max()
    )
