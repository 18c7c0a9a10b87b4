"""PredictionIntervalDisplay: known and predicted values with prediction intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils import check_consistent_length, check_random_state

from twinned._compat import safe_indexing
from twinned.displays.axes import GUIDE, Options, make_axes, merge
from twinned.estimators.pipelines import predict_interval
from twinned.rows.schema import Floats
from twinned.rows.validation import check_choice, check_integer, count_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

KINDS = ("actual_vs_predicted", "residual_vs_predicted")


class PredictionIntervalDisplay:
    """Known values against predicted ones, with prediction intervals.

    Each row is a point above its predicted value, on a bar that is its interval: the interval
    covers the known value where the point is on the bar. Rows whose value is not covered have
    another color. The legend has the share of the covered rows.

    Make it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    y_true : ndarray of shape (n_samples,)
        Known values.
    y_pred : ndarray of shape (n_samples,)
        Predicted values.
    intervals : ndarray of shape (n_samples, 2)
        Lower and upper ends.
    confidence : float or None, default=None
        Confidence of the intervals, for the legend.
    target : str, default="y"
        Name of the target, for the labels of the axes.

    Attributes
    ----------
    coverage : float
        Share of the rows whose interval covers the known value.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D
        The predicted values.
    intervals_ : matplotlib LineCollection
    covered_, missed_ : matplotlib PathCollection
        Points of the rows whose interval covers the known value, and of the others.

    See Also
    --------
    sklearn.metrics.PredictionErrorDisplay : The same without intervals.

    Examples
    --------
    >>> from twinned import AutoTwinRegressor, PredictionIntervalDisplay
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(80, random_state=0)
    >>> model = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X[:60], y[:60])
    >>> display = PredictionIntervalDisplay.from_estimator(model, X[60:], y[60:])
    >>> display.ax_.get_xlabel()
    'predicted V'
    """

    ax_: Axes
    figure_: Figure | SubFigure

    def __init__(
        self,
        *,
        y_true: Any,
        y_pred: Any,
        intervals: Any,
        confidence: float | None = None,
        target: str = "y",
    ) -> None:
        self.y_true = np.asarray(y_true, dtype=np.float64)
        self.y_pred = np.asarray(y_pred, dtype=np.float64)
        self.intervals = np.asarray(intervals, dtype=np.float64)
        self.confidence, self.target = confidence, target

    @property
    def coverage(self) -> float:
        """Share of the rows whose interval covers the known value."""
        return float(self._covered().mean())

    def _covered(self) -> Any:
        lower, upper = self.intervals.T
        return (lower <= self.y_true) & (self.y_true <= upper)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        confidence: float = 0.9,
        kind: str = "actual_vs_predicted",
        subsample: int | None = 300,
        random_state: Any = None,
        ax: Axes | None = None,
        target: str | None = None,
        **options: Options,
    ) -> Self:
        """Predict rows that were not fitted, with intervals, and draw them.

        Parameters
        ----------
        estimator : fitted model
            An `AutoTwinRegressor`, a twin that stores its calibration, the result of `conformal` or
            `cross_conformal`, or a pipeline that ends with one of these.
        X : table or array of shape (n_samples, n_features)
            Rows to predict.
        y : array of shape (n_samples,)
            Their known values.
        confidence : float, default=0.9
            Confidence of the intervals.
        kind : {"actual_vs_predicted", "residual_vs_predicted"}, default="actual_vs_predicted"
            Whether to draw known values, or known minus predicted values.
        subsample : int or None, default=300
            Number of random rows; None is all.
        random_state : int, RandomState or None, default=None
            Draws these rows.
        ax : matplotlib Axes, default=None
            Axes to draw into; None makes a figure.
        target : str, default=None
            Name of the target; None is the name of the Series y, or "y".
        **options
            As those of `plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        check_consistent_length(X, y)
        rows = _sample(count_rows(X), subsample, random_state)
        X, known = safe_indexing(X, rows), np.asarray(y, dtype=np.float64)[rows]
        display = cls(
            y_true=known,
            y_pred=estimator.predict(X),
            intervals=predict_interval(estimator, X, confidence),
            confidence=confidence,
            target=target or str(getattr(y, "name", None) or "y"),
        )
        return display.plot(ax, kind=kind, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        intervals: Any,
        *,
        confidence: float | None = None,
        kind: str = "actual_vs_predicted",
        subsample: int | None = 300,
        random_state: Any = None,
        ax: Axes | None = None,
        target: str | None = None,
        **options: Options,
    ) -> Self:
        """Draw known and predicted values and intervals.

        Parameters
        ----------
        y_true, y_pred : array of shape (n_samples,)
            Known and predicted values.
        intervals : array of shape (n_samples, 2)
            Lower and upper ends.
        confidence : float, default=None
            Confidence of the intervals, for the legend.
        kind, subsample, random_state, ax, target, **options
            As in `from_estimator`.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        check_consistent_length(y_true, y_pred, intervals)
        rows = _sample(count_rows(y_true), subsample, random_state)
        ends = np.asarray(intervals, dtype=np.float64)
        if ends.ndim != 2 or ends.shape[1] != 2:
            raise ValueError(f"intervals must have the shape (n_samples, 2), not {ends.shape}.")
        display = cls(
            y_true=np.asarray(y_true)[rows],
            y_pred=np.asarray(y_pred)[rows],
            intervals=ends[rows],
            confidence=confidence,
            target=target or str(getattr(y_true, "name", None) or "y"),
        )
        return display.plot(ax, kind=kind, **options)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        kind: str = "actual_vs_predicted",
        scatter_kwargs: Options = None,
        interval_kwargs: Options = None,
        line_kwargs: Options = None,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; None makes a figure.
        kind : {"actual_vs_predicted", "residual_vs_predicted"}, default="actual_vs_predicted"
            Whether to draw known values, or known minus predicted values.
        scatter_kwargs, interval_kwargs, line_kwargs : dict, default=None
            Options of `Axes.scatter`, `Axes.vlines` and `Axes.plot`.

        Returns
        -------
        self
        """
        check_choice("kind", kind, KINDS)
        self.ax_ = ax = make_axes(ax)
        self.figure_ = ax.figure
        shift = self.y_pred if kind == KINDS[1] else np.zeros_like(self.y_pred)
        ends = np.array([self.y_pred.min(), self.y_pred.max()])
        guide = ends if kind == KINDS[0] else np.zeros(2)
        (self.line_,) = ax.plot(ends, guide, **merge(GUIDE, line_kwargs))
        label = "interval" if self.confidence is None else f"{self.confidence:.0%} interval"
        bars = {"color": "C0", "alpha": 0.3, "linewidth": 2.0, "zorder": 2, "label": label}
        lower, upper = (end - shift for end in self.intervals.T)
        self.intervals_ = ax.vlines(self.y_pred, lower, upper, **merge(bars, interval_kwargs))
        covered = self._covered()
        self.covered_ = self._scatter(ax, covered, shift, "covered", "C0", scatter_kwargs)
        self.missed_ = self._scatter(ax, ~covered, shift, "not covered", "C3", scatter_kwargs)
        ax.set_xlabel(f"predicted {self.target}")
        ax.set_ylabel(
            f"known {self.target}" if kind == KINDS[0] else "residual (known − predicted)"
        )
        ax.legend()
        return self

    def _scatter(
        self, ax: Axes, rows: Any, shift: Floats, label: str, color: str, given: Options
    ) -> Any:
        """Draw the points of these rows, with their share in the legend."""
        style = {"color": color, "s": 16, "zorder": 3}
        shown = merge(style, given) | {"label": f"{label}: {rows.mean():.0%} of {len(rows)}"}
        return ax.scatter(self.y_pred[rows], (self.y_true - shift)[rows], **shown)


def _sample(n: int, subsample: int | None, random_state: Any) -> Any:
    """Indices of at most `subsample` random rows, in order."""
    if subsample is None or check_integer("subsample", subsample) >= n:
        return np.arange(n)
    return np.sort(check_random_state(random_state).permutation(n)[:subsample])
