"""Display of known and predicted values with prediction intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length, check_random_state

from twinned._compat import safe_indexing
from twinned.estimators.pipelines import predict_interval
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_choice, check_integer, count_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

GUIDE: dict[str, Any] = {"color": "0.5", "linestyle": "--", "linewidth": 1.0, "zorder": 1}
KINDS = ("actual_vs_predicted", "residual_vs_predicted")


def make_axes(ax: Axes | None, size: tuple[float, float] = (6.0, 4.5)) -> Axes:
    """Return these axes, or those of a new figure of pyplot, which notebooks show."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def check_one_target(predicted: Floats) -> Floats:
    """Return (n,) predictions; several targets are refused."""
    if np.ndim(predicted) > 1:
        raise ValueError(
            f"estimator predicts {np.shape(predicted)[1]} targets; a display shows one: use one "
            "of estimator.targets_ and its column of y."
        )
    return predicted


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
    covered : ndarray of shape (n_samples,)
        Whether the interval of each row covers its known value.
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
    line_: Line2D
    intervals_: LineCollection
    covered_: PathCollection
    missed_: PathCollection

    def __init__(
        self,
        *,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        intervals: ArrayLike,
        confidence: float | None = None,
        target: str = "y",
    ) -> None:
        self.y_true: Floats = np.asarray(y_true, dtype=np.float64)
        self.y_pred: Floats = np.asarray(y_pred, dtype=np.float64)
        self.intervals: Floats = np.asarray(intervals, dtype=np.float64)
        self.confidence = confidence
        self.target = target

    @property
    def coverage(self) -> float:
        """Share of the rows whose interval covers the known value."""
        return float(self.covered.mean())

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Whether the interval of each row covers its known value."""
        lower, upper = self.intervals.T
        return (lower <= self.y_true) & (self.y_true <= upper)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        confidence: float = 0.9,
        subsample: int | None = 300,
        random_state: int | np.random.RandomState | None = None,
        **options: Any,
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
        subsample : int or None, default=300
            Number of random rows; None is all.
        random_state : int, RandomState or None, default=None
            Draws these rows.
        **options
            `target` of `from_predictions`, and those of `plot`: `ax`, `kind` and others.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        check_consistent_length(X, y)
        rows = _sample(count_rows(X), subsample, random_state)
        X, y = safe_indexing(X, rows), safe_indexing(y, rows)
        predicted = check_one_target(estimator.predict(X))
        intervals = predict_interval(estimator, X, confidence)
        options = {"confidence": confidence, "subsample": None, **options}
        return cls.from_predictions(y, predicted, intervals, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        intervals: ArrayLike,
        *,
        confidence: float | None = None,
        subsample: int | None = 300,
        random_state: int | np.random.RandomState | None = None,
        target: str | None = None,
        **options: Any,
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
        subsample, random_state
            As in `from_estimator`.
        target : str, default=None
            Name of the target; None is the name of the Series y_true, or "y".
        **options
            Those of `plot`: `ax`, `kind` and others.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        check_consistent_length(y_true, y_pred, intervals)
        rows = _sample(count_rows(y_true), subsample, random_state)
        ends = np.asarray(intervals, dtype=np.float64)
        if ends.ndim != 2 or ends.shape[1] != 2:
            raise ValueError(f"intervals must have the shape (n_samples, 2), not {ends.shape}.")
        return cls(
            y_true=np.asarray(y_true)[rows],
            y_pred=np.asarray(y_pred)[rows],
            intervals=ends[rows],
            confidence=confidence,
            target=target or str(getattr(y_true, "name", None) or "y"),
        ).plot(**options)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        kind: str = KINDS[0],
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; None makes a figure.
        kind : {"actual_vs_predicted", "residual_vs_predicted"}, default="actual_vs_predicted"
            Whether to draw known values, or known minus predicted values.

        Returns
        -------
        self
        """
        check_choice("kind", kind, KINDS)
        self.ax_ = ax = make_axes(ax)
        self.figure_ = ax.figure
        is_residual = kind == KINDS[1]
        shift = self.y_pred if is_residual else 0.0
        ends = np.array([self.y_pred.min(), self.y_pred.max()])
        guide = np.zeros(2) if is_residual else ends
        (self.line_,) = ax.plot(ends, guide, **GUIDE)
        label = "interval" if self.confidence is None else f"{100 * self.confidence:.0f} % interval"
        lower, upper = (end - shift for end in self.intervals.T)
        self.intervals_ = ax.vlines(
            self.y_pred, lower, upper, color="C0", alpha=0.3, linewidth=2.0, zorder=2, label=label
        )
        self.covered_ = self._draw_points("covered", self.covered, "C0", shift)
        self.missed_ = self._draw_points("not covered", ~self.covered, "C3", shift)
        y_label = "residual (known − predicted)" if is_residual else f"known {self.target}"
        ax.set(xlabel=f"predicted {self.target}", ylabel=y_label)
        ax.legend()
        return self

    def _draw_points(
        self, name: str, rows: NDArray[np.bool_], color: str, shift: Floats | float
    ) -> PathCollection:
        label = f"{name}: {100 * rows.mean():.0f} % of {len(rows)}"
        values = (self.y_true - shift)[rows]
        return self.ax_.scatter(self.y_pred[rows], values, color=color, s=16, zorder=3, label=label)


def _sample(
    n: int, subsample: int | None, random_state: int | np.random.RandomState | None
) -> Indices:
    """Return the indices of at most `subsample` random rows, in order."""
    if subsample is None or check_integer("subsample", subsample) >= n:
        return np.arange(n)
    return np.sort(check_random_state(random_state).permutation(n)[:subsample])
