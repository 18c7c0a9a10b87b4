"""Display of the error by the number of anchors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import sem
from sklearn.base import clone

from twinned._compat import safe_indexing
from twinned.diagnostics.curves import draw_curve
from twinned.diagnostics.data_checks import check_diagnosable
from twinned.diagnostics.errors import rmse
from twinned.displays.intervals import make_axes
from twinned.estimators.base import BaseTwin
from twinned.exceptions import TableWarning
from twinned.rows.folds import row_folds
from twinned.rows.validation import count_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure, SubFigure

_N_FOLDS = 5
_LEAST_ROWS, _MAX_ESTIMATES = 20, 1_000_000  # of held-out rows, and of these by all anchors


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
        estimator: BaseTwin,
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
        known_y, rng = check_diagnosable(y, count_rows(X)), np.random.RandomState(0)
        folds = row_folds(len(known_y), _N_FOLDS, random_state)
        with warnings.catch_warnings(action="ignore", category=TableWarning):
            twins = [
                clone(estimator).fit(safe_indexing(X, rows), known_y[rows]) for rows, _ in folds
            ]
            most = min(len(twin.anchors_y_) for twin in twins)
            n_anchors = [2**i for i in range(most.bit_length()) if 2**i < most] + [most]
            errors = []
            for twin, (_, held_out) in zip(twins, folds, strict=True):
                n_rows = max(_LEAST_ROWS, _MAX_ESTIMATES // len(twin.anchors_y_))
                rows = np.random.RandomState(0).permutation(held_out)[:n_rows]
                estimates = twin.predict_anchors(safe_indexing(X, rows))[1]
                totals = np.cumsum(estimates[:, rng.permutation(estimates.shape[1])], axis=1)
                errors.append([rmse(totals[:, n - 1] / n, known_y[rows]) for n in n_anchors])
        means, standard_errors = np.mean(errors, axis=0), sem(errors, axis=0)
        display = cls(
            n_anchors=n_anchors, rmse=means.tolist(), standard_error=standard_errors.tolist()
        )
        return display.plot(**options)

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
