"""Displays: predictions with intervals, comparables, and errors by the number of anchors.

As those of scikit-learn, they are made by `from_estimator` or `from_predictions`, and have `plot`,
`ax_` and `figure_`. matplotlib is loaded when a display is drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, check_random_state

from twinned._compat import safe_indexing
from twinned.diagnostics import twin_checks
from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.weights import rmse_and_error
from twinned.estimators.pipelines import explain, predict_interval, unwrap
from twinned.fitted.explanation import COLUMNS, OTHERS, name_case
from twinned.rows.formatting import format_number, format_significant, shorten
from twinned.rows.schema import Floats
from twinned.rows.validation import check_choice, check_integer, count_rows

GUIDE = {"color": "0.5", "linestyle": "--", "linewidth": 1.0, "zorder": 1}
KINDS = ("actual_vs_predicted", "residual_vs_predicted")
CURVES_BY_ORDER = {"random": twin_checks.anchor_curve, "nearest": twin_checks.neighbor_curve}
_TEXT_MARGIN = 0.3  # of the middle of written adjustments, as a share of the axes
_MAX_LABEL, _MAX_TITLE = 24, 60  # characters
_LEAST_SHARE = 0.01  # of the largest adjustment of an anchor, for one that is written


def make_axes(ax, size=(6.0, 4.5)):
    """Return these axes, or those of a new figure of pyplot, which notebooks show."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def merge(defaults, given):
    """Return default options, replaced by those given; aliases of matplotlib count as the same.

    >>> merge({"color": "C0", "linewidth": 2.0}, {"c": "red"}) == {"c": "red", "linewidth": 2.0}
    True
    """
    given = given or {}
    aliases = {"color": "c", "linewidth": "lw", "linestyle": "ls", "markersize": "ms"}
    used = {name: value for name, value in defaults.items() if aliases.get(name) not in given}
    return {**used, **given}


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
        shift = self.y_pred if kind == KINDS[1] else 0.0
        ends = np.array([self.y_pred.min(), self.y_pred.max()])
        guide = ends if kind == KINDS[0] else np.zeros(2)
        (self.line_,) = ax.plot(ends, guide, **merge(GUIDE, line_kwargs))
        label = "interval" if self.confidence is None else f"{self.confidence:.0%} interval"
        bars = {"color": "C0", "alpha": 0.3, "linewidth": 2.0, "zorder": 2, "label": label}
        lower, upper = (end - shift for end in self.intervals.T)
        self.intervals_ = ax.vlines(self.y_pred, lower, upper, **merge(bars, interval_kwargs))
        points, covered = [], self.covered
        for name, rows, color in (("covered", covered, "C0"), ("not covered", ~covered, "C3")):
            style = merge({"color": color, "s": 16, "zorder": 3}, scatter_kwargs)
            style["label"] = f"{name}: {rows.mean():.0%} of {len(rows)}"
            points.append(ax.scatter(self.y_pred[rows], (self.y_true - shift)[rows], **style))
        self.covered_, self.missed_ = points
        y_label = f"known {self.target}" if kind == KINDS[0] else "residual (known − predicted)"
        ax.set(xlabel=f"predicted {self.target}", ylabel=y_label)
        ax.legend()
        return self


def _sample(n, subsample, random_state):
    """Return the indices of at most `subsample` random rows, in order."""
    if subsample is None or check_integer("subsample", subsample) >= n:
        return np.arange(n)
    return np.sort(check_random_state(random_state).permutation(n)[:subsample])


class ComparablesDisplay:
    """Comparable anchors of one query: known values, adjustments and estimates.

    Each anchor has an arrow from its known value to its estimate of the query. The largest
    adjustments, which sum to the length of the arrow with those not written, are below it. The last
    arrow, in grey, has the weighted means of all other anchors. A vertical line is the prediction,
    and a band its interval where there is one.

    Make it with `from_estimator` or `from_predictions`.

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

    def __init__(self, *, comparables, y_pred=None, interval=None, target="y"):
        self.comparables, self.y_pred, self.target = comparables, y_pred, target
        self.interval = None if interval is None else np.asarray(interval, dtype=np.float64)

    @classmethod
    def from_estimator(
        cls, estimator, X, *, query=0, n=5, adjustments=True, confidence=0.9, target="y", **options
    ):
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
        is_calibrated = unwrap(estimator)[0].calibration_ is not None
        return cls(
            comparables=explain(estimator, row, n, adjustments=adjustments),
            y_pred=float(np.ravel(estimator.predict(row))[0]),
            interval=predict_interval(estimator, row, confidence)[0] if is_calibrated else None,
            target=target,
        ).plot(**options)

    @classmethod
    def from_predictions(
        cls, comparables, y_pred=None, *, query=None, interval=None, target="y", **options
    ):
        """Draw the rows of one query in the table of `explain`.

        Parameters
        ----------
        comparables : DataFrame
            The table of `explain`, with or without adjustments.
        y_pred : float, default=None
            Prediction of the query.
        query : label, default=None
            Which query, as in the column `query`; None is the first.
        interval : array of shape (2,), default=None
            Prediction interval of the query.
        target, **options
            As in `from_estimator`.

        Returns
        -------
        display : ComparablesDisplay
        """
        if missing := [name for name in COLUMNS if name not in comparables.columns]:
            raise ValueError(f"comparables has no columns {missing}; it must be that of explain.")
        query = comparables["query"].iloc[0] if query is None else query
        rows = comparables[comparables["query"] == query]
        if rows.empty:
            raise ValueError(f"query={query!r} is not in the column `query` of comparables.")
        display = cls(comparables=rows, y_pred=y_pred, interval=interval, target=target)
        return display.plot(**options)

    def plot(
        self, ax=None, *, max_features=3, scatter_kwargs=None, arrow_kwargs=None, line_kwargs=None
    ):
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; None makes a figure.
        max_features : int, default=3
            Number of adjustments that are written for each anchor.
        scatter_kwargs, arrow_kwargs, line_kwargs : dict, default=None
            Options of `Axes.scatter`, of the arrows of `Axes.annotate`, and of `Axes.axvline`.

        Returns
        -------
        self
        """
        table, position = self.comparables, np.arange(len(self.comparables))
        self.ax_ = ax = make_axes(ax, (7.0, 1.4 + 0.62 * len(table)))
        self.figure_ = ax.figure
        known_y, estimates = (table[name].to_numpy() for name in ("anchor_y", "estimate"))
        self._draw_prediction(ax, line_kwargs)
        arrow = merge({"arrowstyle": "->", "color": "0.5", "linewidth": 1.3}, arrow_kwargs)
        for at, start, end in zip(position, known_y, estimates, strict=True):
            ax.annotate("", xy=(end, at), xytext=(start, at), arrowprops=arrow, zorder=2)
        colors = np.where(table["anchor"] >= 0, "C0", "0.6").tolist()
        hollow = {"facecolors": "none", "edgecolors": colors, "label": "known value"}
        filled = {"color": colors, "label": "adjusted: estimate"}
        self.known_, self.estimates_ = (
            ax.scatter(values, position, **merge({"s": 34, "zorder": 3, **style}, scatter_kwargs))
            for values, style in ((known_y, hollow), (estimates, filled))
        )
        self._write_adjustments(ax, max_features)
        numbered = [f"row {anchor}" if anchor >= 0 else OTHERS for anchor in table["anchor"]]
        names = map(name_case, map(str, table.get("label", numbered)), table["count"])
        pairs = zip(names, table["weight"], strict=True)
        ax.set_yticks(position, [f"{name}\nweight {weight:.1%}" for name, weight in pairs])
        ax.set_ylim(len(table) - 0.35, -0.55)
        ax.set_xlabel(self.target)
        query = table["query"].iloc[0]
        name = query if isinstance(query, str) else f"row {query}"
        ax.set_title(f"Comparables of {shorten(name, _MAX_TITLE)}")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return self

    def _draw_prediction(self, ax, line_kwargs):
        self.line_ = None
        if self.interval is not None:
            ax.axvspan(*self.interval, color="C1", alpha=0.15, zorder=0, label="interval")
        if self.y_pred is not None:
            shown = format_number(self.y_pred).replace("-", "−")
            style = {**GUIDE, "color": "C1", "label": f"prediction: {shown}"}
            self.line_ = ax.axvline(self.y_pred, **merge(style, line_kwargs))

    def _write_adjustments(self, ax, max_features):
        table = self.comparables
        features = [name for name in table.columns if name not in (*COLUMNS, "label", "output")]
        middles = table[["anchor_y", "estimate"]].to_numpy().mean(axis=1)
        low, high = ax.get_xlim()
        ax.set_xlim(low, high)
        # a text as wide as half of the axes stays within them
        middles = np.clip((middles - low) / (high - low), _TEXT_MARGIN, 1 - _TEXT_MARGIN)
        for at, adjustments in enumerate(table[features].to_numpy(dtype=np.float64)):
            text = describe_adjustments(features, adjustments, max_features)
            place = {"xy": (middles[at], at), "xycoords": ("axes fraction", "data")}
            shift = {"xytext": (0, -6), "textcoords": "offset points"}
            ax.annotate(text, **place, **shift, ha="center", va="top", fontsize="small")


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


class AnchorCurveDisplay:
    """Error of predictions from 1, 2, 4, … anchors, and from all.

    A twin predicts from as many anchors as it has. The curve shows how many are enough, and with
    `order="nearest"` whether the nearest ones alone predict better than all.

    Make it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    n_anchors : list of int
        Numbers of anchors.
    rmse : list of float
        Root mean squared errors.
    standard_error : list of float
        Their standard errors.
    order : {"random", "nearest"}, default="random"
        Which anchors are used first.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    errorbar_ : matplotlib ErrorbarContainer

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import AnchorCurveDisplay, TwinRegressor
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(60, random_state=0)
    >>> display = AnchorCurveDisplay.from_estimator(TwinRegressor(Ridge()), X, y)
    >>> display.n_anchors
    [1, 2, 4, 8, 16, 32, 48]
    """

    def __init__(self, *, n_anchors, rmse, standard_error, order="random"):
        self.n_anchors, self.rmse, self.standard_error = n_anchors, rmse, standard_error
        self.order = order

    @classmethod
    def from_estimator(cls, estimator, X, y, *, order="random", random_state=None, **options):
        """Cross-validate a twin, and draw the mean error over five folds.

        Parameters
        ----------
        estimator : twin
            Cloned and fitted in each fold, as in `sklearn.model_selection.LearningCurveDisplay`.
        X : table or array of shape (n_samples, n_features)
            All rows.
        y : array of shape (n_samples,)
            Their values.
        order : {"random", "nearest"}, default="random"
            Whether the anchors are random, or the nearest to each row.
        random_state : int, RandomState or None, default=None
            Draws the folds.
        **options
            `ax` and `errorbar_kwargs` of `plot`.

        Returns
        -------
        display : AnchorCurveDisplay
            The standard errors are those over folds.
        """
        check_choice("order", order, tuple(CURVES_BY_ORDER))
        if not isinstance(estimator, BaseTwin):
            raise TypeError(f"estimator must be a twin, not {estimator!r}.")
        folds = twin_checks.cross_validate_twin(X, y, estimator, random_state=random_state)
        numbers = CURVES_BY_ORDER[order](X, y, estimator, cross_validation=folds).numbers
        errors = {name: numbers[name] for name in ("rmse", "standard_error")}
        return cls(n_anchors=numbers["x"], **errors, order=order).plot(**options)

    @classmethod
    def from_predictions(
        cls, y_true, estimates, *, order="random", n_repeats=10, random_state=None, **options
    ):
        """Draw the error of the means of the first 1, 2, 4, … estimates.

        Parameters
        ----------
        y_true : array of shape (n_queries,)
            Known values of rows that were not fitted.
        estimates : array of shape (n_queries, n_anchors)
            Their estimates by each anchor: the second result of `predict_anchors`. For
            `order="nearest"` they must be those of a twin with `NearestAnchors`, nearest first.
        order : {"random", "nearest"}, default="random"
            Whether to use the anchors in random orders, or as they are.
        n_repeats : int, default=10
            Number of random orders.
        random_state : int, RandomState or None, default=None
            Draws these orders.
        **options
            As in `from_estimator`.

        Returns
        -------
        display : AnchorCurveDisplay
            The standard errors are those over rows.
        """
        check_choice("order", order, tuple(CURVES_BY_ORDER))
        check_consistent_length(y_true, estimates)
        y, values = (np.asarray(part, dtype=np.float64) for part in (y_true, estimates))
        if values.ndim != 2:
            raise ValueError(f"estimates must be (n_queries, n_anchors), not {values.shape}.")
        rng, sizes = check_random_state(random_state), twin_checks.anchor_counts(values.shape[1])
        n_repeats = 1 if order == "nearest" else check_integer("n_repeats", n_repeats)
        errors = []
        for _ in range(n_repeats):
            columns = slice(None) if order == "nearest" else rng.permutation(values.shape[1])
            totals = np.cumsum(values[:, columns], axis=1)
            errors.append([rmse_and_error(totals[:, k - 1] / k, y, None) for k in sizes])
        rmse, standard_error = np.mean(errors, axis=0).T.tolist()
        display = cls(n_anchors=sizes, rmse=rmse, standard_error=standard_error, order=order)
        return display.plot(**options)

    def plot(self, ax=None, *, errorbar_kwargs=None):
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; None makes a figure. Two displays in the same axes are compared.
        errorbar_kwargs : dict, default=None
            Options of `Axes.errorbar`.

        Returns
        -------
        self
        """
        self.ax_ = ax = make_axes(ax)
        self.figure_ = ax.figure
        errors = {"rmse": self.rmse, "standard_error": self.standard_error}
        numbers = {"x": self.n_anchors, "x_label": "anchors", **errors}
        options = {"label": f"{self.order} anchors", **(errorbar_kwargs or {})}
        self.errorbar_ = twin_checks.draw_curve(ax, numbers, **options)
        ax.legend()
        return self
