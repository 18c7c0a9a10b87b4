"""Display of the error by the number of anchors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from twinned.diagnostics.findings import draw_curve
from twinned.diagnostics.twin_checks import anchor_curve, cross_validate_twin
from twinned.displays.intervals import make_axes
from twinned.estimators.methods import BaseTwin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure, SubFigure


class AnchorCurveDisplay:
    """Error of predictions from 1, 2, 4, … anchors, and from all.

    A twin predicts from as many anchors as it has. The curve shows how many are enough.

    Make it with `from_estimator`.

    Parameters
    ----------
    n_anchors : list of int
        Numbers of anchors.
    rmse : list of float
        Root mean squared errors.
    standard_error : list of float
        Their standard errors.

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

    ax_: Axes
    figure_: Figure | SubFigure
    errorbar_: ErrorbarContainer

    def __init__(
        self, *, n_anchors: Sequence[int], rmse: Sequence[float], standard_error: Sequence[float]
    ) -> None:
        self.n_anchors = n_anchors
        self.rmse = rmse
        self.standard_error = standard_error

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        random_state: int | np.random.RandomState | None = None,
        **options: Any,
    ) -> Self:
        """Cross-validate a twin, and draw the mean error over five folds.

        Parameters
        ----------
        estimator : twin
            Cloned and fitted in each fold, as in `sklearn.model_selection.LearningCurveDisplay`.
        X : table or array of shape (n_samples, n_features)
            All rows.
        y : array of shape (n_samples,)
            Their values.
        random_state : int, RandomState or None, default=None
            Draws the folds.
        **options
            `ax` and `label` of `plot`.

        Returns
        -------
        display : AnchorCurveDisplay
            The standard errors are those over folds.
        """
        if not isinstance(estimator, BaseTwin):
            raise TypeError(f"estimator must be a twin, not a {type(estimator).__name__}.")
        folds = cross_validate_twin(X, y, estimator, random_state=random_state)
        numbers = anchor_curve(X, y, cross_validation=folds).numbers
        shown = {name: numbers[name] for name in ("rmse", "standard_error")}
        return cls(n_anchors=numbers["x"], **shown).plot(**options)

    def plot(self, ax: Axes | None = None, *, label: str = "random anchors") -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; None makes a figure. Two displays in the same axes are compared.
        label : str, default="random anchors"
            Name of the curve in the legend.

        Returns
        -------
        self
        """
        self.ax_ = ax = make_axes(ax)
        self.figure_ = ax.figure
        shown = {"rmse": self.rmse, "standard_error": self.standard_error}
        numbers = {"x": self.n_anchors, **shown, "x_label": "anchors"}
        self.errorbar_ = draw_curve(ax, numbers, label=label)
        ax.legend()
        return self
