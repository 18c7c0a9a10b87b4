"""PredictionIntervalDisplay: known and predicted values with prediction intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, check_random_state

from twinned._compat import safe_indexing
from twinned.displays.drawing import GUIDE, make_axes, merge
from twinned.estimators.pipelines import predict_interval
from twinned.rows.validation import check_choice, check_integer, count_rows

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

    def __init__(self, *, y_true, y_pred, intervals, confidence=None, target="y"):
        self.y_true = np.asarray(y_true, dtype=np.float64)
        self.y_pred = np.asarray(y_pred, dtype=np.float64)
        self.intervals = np.asarray(intervals, dtype=np.float64)
        self.confidence, self.target = confidence, target

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
        cls, estimator, X, y, *, confidence=0.9, subsample=300, random_state=None, **options
    ):
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
        intervals = predict_interval(estimator, X, confidence)
        options = {"confidence": confidence, "subsample": None, **options}
        return cls.from_predictions(y, estimator.predict(X), intervals, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_pred,
        intervals,
        *,
        confidence=None,
        subsample=300,
        random_state=None,
        target=None,
        **options,
    ):
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
        self, ax=None, *, kind=KINDS[0], scatter_kwargs=None, interval_kwargs=None, line_kwargs=None
    ):
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
        points = []
        for name, rows, color in zip(
            ("covered", "not covered"), (self.covered, ~self.covered), ("C0", "C3"), strict=True
        ):
            style = merge({"color": color, "s": 16, "zorder": 3}, scatter_kwargs)
            style["label"] = f"{name}: {rows.mean():.0%} of {len(rows)}"
            points.append(ax.scatter(self.y_pred[rows], (self.y_true - shift)[rows], **style))
        self.covered_, self.missed_ = points
        ax.set_xlabel(f"predicted {self.target}")
        ax.set_ylabel(
            f"known {self.target}" if kind == KINDS[0] else "residual (known − predicted)"
        )
        ax.legend()
        return self


def _sample(n, subsample, random_state):
    """Return the indices of at most `subsample` random rows, in order."""
    if subsample is None or check_integer("subsample", subsample) >= n:
        return np.arange(n)
    return np.sort(check_random_state(random_state).permutation(n)[:subsample])
