import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import AutoTwinRegressor, ComparablesDisplay, PredictionIntervalDisplay


def test_points_bars_and_coverage():
    y_true, y_pred = np.array([1.0, 2.0, 9.0]), np.array([1.5, 2.5, 3.0])
    intervals = np.column_stack([y_pred - 1, y_pred + 1])
    display = PredictionIntervalDisplay.from_predictions(y_true, y_pred, intervals, confidence=0.9)
    assert display.coverage == 2 / 3
    np.testing.assert_array_equal(display.covered_.get_offsets(), [[1.5, 1.0], [2.5, 2.0]])
    np.testing.assert_array_equal(display.missed_.get_offsets(), [[3.0, 9.0]])
    bars = np.array(display.intervals_.get_segments())
    np.testing.assert_array_equal(bars[:, :, 1], intervals)
    np.testing.assert_array_equal(bars[:, 0, 0], y_pred)
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["90 % interval", "covered: 67 % of 3", "not covered: 33 % of 3"]
    assert display.figure_ is display.ax_.figure


def test_residuals_are_relative_to_the_prediction():
    y_true, y_pred = np.array([1.0, 9.0]), np.array([1.5, 3.0])
    intervals = np.column_stack([y_pred - 1, y_pred + 2])
    display = PredictionIntervalDisplay.from_predictions(
        y_true, y_pred, intervals, kind="residual_vs_predicted"
    )
    np.testing.assert_array_equal(display.covered_.get_offsets(), [[1.5, -0.5]])
    bars = np.array(display.intervals_.get_segments())
    np.testing.assert_array_equal(bars[:, :, 1], [[-1, 2], [-1, 2]])


def test_from_estimator_equals_from_predictions(blend, table):
    X, y = table[0][60:], table[1][60:]
    first = PredictionIntervalDisplay.from_estimator(blend, X, y, confidence=0.8)
    intervals = blend.predict_interval(X, 0.8)
    second = PredictionIntervalDisplay.from_predictions(y, blend.predict(X), intervals)
    np.testing.assert_array_equal(first.y_pred, second.y_pred)
    np.testing.assert_array_equal(first.intervals, second.intervals)
    assert first.ax_.get_ylabel() == f"known {y.name}"


def test_pipeline(table):
    X, y = table
    model = make_pipeline(
        StandardScaler().set_output(transform="pandas"),
        AutoTwinRegressor(members=["ridge"], random_state=0),
    ).fit(X[:60], y[:60])
    display = PredictionIntervalDisplay.from_estimator(model, X[60:], y[60:])
    assert 0.6 < display.coverage <= 1
    np.testing.assert_allclose(display.y_pred, model.predict(X[60:]))


def test_given_axes_and_options(blend, table):
    first = PredictionIntervalDisplay.from_estimator(blend, *table, subsample=7, random_state=0)
    assert len(first.y_true) == 7
    second = first.plot(first.ax_, kind="residual_vs_predicted")
    assert second is first
    assert not second.line_.get_ydata().any()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kind": "both"}, "kind"), ({"subsample": 0}, "subsample")],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        PredictionIntervalDisplay.from_predictions([1.0, 2.0], [1.0, 2.0], [[0, 2]] * 2, **options)


def test_wrong_shape_of_intervals():
    with pytest.raises(ValueError, match=r"\(n_samples, 2\)"):
        PredictionIntervalDisplay.from_predictions([1.0, 2.0], [1.0, 2.0], [[0], [1]])


def test_a_model_of_several_targets_is_refused(table):
    X = table[0]
    Y = np.column_stack([table[1], 2 * table[1]])
    model = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="predicts 2 targets; a display shows one: use one of"):
        PredictionIntervalDisplay.from_estimator(model, X, Y)
    with pytest.raises(ValueError, match=r"estimator\.targets_"):
        ComparablesDisplay.from_estimator(model, X)
    display = PredictionIntervalDisplay.from_estimator(model.targets_[1], X, Y[:, 1])
    assert display.coverage > 0.6


def test_model_without_intervals(twin, table):
    with pytest.raises(AttributeError, match="stores no calibration"):
        PredictionIntervalDisplay.from_estimator(twin, *table)
