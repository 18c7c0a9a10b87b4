import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from twinned import AnchorCurveDisplay, TwinRegressor
from twinned.rows.folds import row_folds


def test_curve_ends_at_the_twin_with_all_anchors(table):
    X, y = (np.asarray(values) for values in table)
    twin = TwinRegressor(Ridge())
    display = AnchorCurveDisplay.from_estimator(twin, X, y, random_state=0)
    errors, n_anchors = [], []
    for training, held_out in row_folds(len(y), 5, 0):
        fitted = clone(twin).fit(X[training], y[training])
        n_anchors.append(len(fitted.anchors_y_))
        errors.append(np.sqrt(np.mean((fitted.predict(X[held_out]) - y[held_out]) ** 2)))
    assert display.n_anchors[:3] == [1, 2, 4]
    assert display.n_anchors[-1] == min(n_anchors) == max(n_anchors)
    assert display.rmse[-1] == pytest.approx(np.mean(errors))
    assert display.standard_error[-1] == pytest.approx(np.std(errors, ddof=1) / np.sqrt(5))
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["random anchors"]


def test_curve_uses_a_sample_of_many_rows(table, monkeypatch):
    whole = AnchorCurveDisplay.from_estimator(TwinRegressor(Ridge()), *table, random_state=0)
    monkeypatch.setattr("twinned.displays.anchor_curve._LEAST_ROWS", 5)
    monkeypatch.setattr("twinned.displays.anchor_curve._MAX_ESTIMATES", 1)
    sampled = AnchorCurveDisplay.from_estimator(TwinRegressor(Ridge()), *table, random_state=0)
    assert sampled.rmse != whole.rmse
    assert sampled.rmse == pytest.approx(whole.rmse, rel=0.7)


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
