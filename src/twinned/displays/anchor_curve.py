"""AnchorCurveDisplay: error against the number of anchors."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_consistent_length, check_random_state

from twinned.diagnostics.twin_checks import (
    anchor_counts,
    anchor_curve,
    cross_validate_twin,
    draw_curve,
    neighbor_curve,
)
from twinned.displays.drawing import make_axes
from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.weights import rmse_and_error
from twinned.rows.validation import check_choice, check_integer

ORDERS = ("random", "nearest")


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
    def from_estimator(cls, estimator, X, y, *, order="random", random_state=0, **options):
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
        random_state : int, default=0
            Draws the folds.
        **options
            `ax` and `errorbar_kwargs` of `plot`.

        Returns
        -------
        display : AnchorCurveDisplay
            The standard errors are those over folds.
        """
        compute = {"random": anchor_curve, "nearest": neighbor_curve}
        check_choice("order", order, ORDERS)
        if not isinstance(estimator, BaseTwin):
            raise TypeError(f"estimator must be a twin, not {estimator!r}.")
        folds = cross_validate_twin(X, y, estimator, random_state=random_state)
        numbers = compute[order](X, y, estimator, cross_validation=folds).numbers
        rmse, standard_error = numbers["rmse"], numbers["standard_error"]
        display = cls(n_anchors=numbers["x"], rmse=rmse, standard_error=standard_error, order=order)
        return display.plot(**options)

    @classmethod
    def from_predictions(
        cls, y_true, estimates, *, order="random", n_repeats=10, random_state=0, **options
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
        random_state : int, RandomState or None, default=0
            Draws these orders.
        **options
            As in `from_estimator`.

        Returns
        -------
        display : AnchorCurveDisplay
            The standard errors are those over rows.
        """
        check_choice("order", order, ORDERS)
        check_consistent_length(y_true, estimates)
        y, values = (np.asarray(part, dtype=np.float64) for part in (y_true, estimates))
        if values.ndim != 2:
            raise ValueError(
                f"estimates must have the shape (n_queries, n_anchors), not {values.shape}."
            )
        rng, sizes = check_random_state(random_state), anchor_counts(values.shape[1])
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
        numbers = {
            "x": self.n_anchors,
            "rmse": self.rmse,
            "standard_error": self.standard_error,
            "x_label": "anchors",
        }
        options = {"label": f"{self.order} anchors", **(errorbar_kwargs or {})}
        self.errorbar_ = draw_curve(ax, numbers, **options)
        ax.legend()
        return self
