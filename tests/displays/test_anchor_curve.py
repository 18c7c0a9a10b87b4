import numpy as np
import pytest
from sklearn.linear_model import Ridge

from twinned import AnchorCurveDisplay, TwinRegressor
from twinned.diagnostics import anchor_curve


def test_from_estimator_is_the_curve_of_diagnostics(table):
    twin = TwinRegressor(Ridge())
    display = AnchorCurveDisplay.from_estimator(twin, *table)
    numbers = anchor_curve(*table, twin).numbers
    assert display.n_anchors == numbers["x"]
    np.testing.assert_allclose(display.rmse, numbers["rmse"])
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["random anchors"]


def test_two_curves_share_axes(table):
    first = AnchorCurveDisplay.from_estimator(TwinRegressor(Ridge()), *table, random_state=0)
    second = AnchorCurveDisplay(n_anchors=[1, 2], rmse=[2.0, 1.0], standard_error=[0.1, 0.1])
    second.plot(first.ax_, label="other twin")
    assert second.ax_ is first.ax_
    labels = [text.get_text() for text in first.ax_.get_legend().get_texts()]
    assert labels == ["random anchors", "other twin"]


def test_only_a_twin_has_anchors(table):
    with pytest.raises(TypeError, match="must be a twin"):
        AnchorCurveDisplay.from_estimator(Ridge(), *table)
