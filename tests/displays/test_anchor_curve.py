import numpy as np
import pytest
from sklearn.linear_model import Ridge

from twinned import AnchorCurveDisplay, NearestAnchors, TwinRegressor
from twinned.diagnostics import anchor_curve, neighbor_curve


@pytest.mark.parametrize(
    ("order", "compute"), [("random", anchor_curve), ("nearest", neighbor_curve)]
)
def test_from_estimator_is_the_curve_of_diagnostics(table, order, compute):
    twin = TwinRegressor(Ridge())
    display = AnchorCurveDisplay.from_estimator(twin, *table, order=order)
    numbers = compute(*table, twin).numbers
    assert display.n_anchors == numbers["x"]
    np.testing.assert_allclose(display.rmse, numbers["rmse"])
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == [
        f"{order} anchors"
    ]


def test_from_predictions_with_the_nearest_anchors(twin, table):
    X, y = table[0][60:], table[1][60:]
    nearest = TwinRegressor(Ridge(), anchors=NearestAnchors(6)).fit(*(part[:60] for part in table))
    estimates = nearest.predict_anchors(X)[1]
    display = AnchorCurveDisplay.from_predictions(y, estimates, order="nearest")
    assert display.n_anchors == [1, 2, 4, 6]
    slow = [np.sqrt(np.mean((estimates[:, :k].mean(axis=1) - y) ** 2)) for k in (1, 2, 4, 6)]
    np.testing.assert_allclose(display.rmse, slow)


def test_random_orders_end_at_the_same_error(twin, table):
    X, y = table[0][60:], table[1][60:]
    estimates = twin.predict_anchors(X)[1]
    first = AnchorCurveDisplay.from_predictions(y, estimates, n_repeats=3, random_state=1)
    second = AnchorCurveDisplay.from_predictions(y, estimates, ax=first.ax_, random_state=2)
    assert first.rmse[-1] == pytest.approx(np.sqrt(np.mean((twin.predict(X) - y) ** 2)))
    assert first.rmse[-1] == pytest.approx(second.rmse[-1])
    assert first.ax_ is second.ax_
    assert len(first.ax_.lines) > len(first.errorbar_.lines[1])


def test_wrong_input(table):
    with pytest.raises(TypeError, match="must be a twin"):
        AnchorCurveDisplay.from_estimator(Ridge(), *table)
    with pytest.raises(ValueError, match="order"):
        AnchorCurveDisplay.from_predictions([1.0], [[1.0]], order="best")
    with pytest.raises(ValueError, match=r"\(n_queries, n_anchors\)"):
        AnchorCurveDisplay.from_predictions([1.0], [1.0])
