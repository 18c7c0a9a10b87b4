import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import ComparablesDisplay, TwinRegressor, explain
from twinned.displays.comparables import describe_adjustments


def test_points_are_those_of_explain(twin, table):
    X = table[0][60:]
    display = ComparablesDisplay.from_estimator(twin, X, query=2, n=4)
    expected = twin.explain(X.iloc[[2]], 4)
    at = np.arange(5)  # the last is all other cases
    for points, column in ((display.known_, "anchor_y"), (display.estimates_, "estimate")):
        np.testing.assert_allclose(
            points.get_offsets(), np.column_stack([expected[column], at]), rtol=1e-12
        )
    assert display.line_.get_xdata()[0] == pytest.approx(twin.predict(X)[2])
    labels = [text.get_text().split("\n")[0] for text in display.ax_.get_yticklabels()]
    assert labels == [*expected["label"][:4], "all other cases (56 rows)"]
    grey = display.estimates_.get_facecolors()
    assert (grey[:4] == grey[0]).all()
    assert (grey[4] != grey[0]).any()
    assert display.ax_.get_title() == "Comparables of bridge 62"
    assert display.interval is None


def test_interval_of_a_calibrated_model(blend, table):
    X = table[0][60:]
    display = ComparablesDisplay.from_estimator(blend, X, query=1, adjustments=False)
    np.testing.assert_allclose(display.interval, blend.predict_interval(X)[1])


def test_a_table_of_explain_is_drawn(twin, table):
    found = twin.explain(table[0].iloc[[61]], 3, adjustments=True)
    display = ComparablesDisplay(comparables=found).plot()
    assert display.ax_.get_title() == "Comparables of bridge 61"
    assert display.line_ is None


def test_position_of_the_query_is_checked(twin, table):
    with pytest.raises(ValueError, match="query=80 must be less than the 80 rows"):
        ComparablesDisplay.from_estimator(twin, table[0], query=80)


def test_pipeline(table):
    X, y = table
    model = make_pipeline(StandardScaler(), TwinRegressor(Ridge())).fit(X[:60], y[:60])
    display = ComparablesDisplay.from_estimator(model, X[60:], query=3)
    assert display.ax_.get_title() == "Comparables of bridge 63"
    expected = model[-1].explain(model[0].transform(X[60:]), 5)
    np.testing.assert_allclose(explain(model, X[60:])["estimate"], expected["estimate"])


def test_long_labels_are_cut(twin, table):
    label = "No. 12, a street with a very long name that leaves no room for the picture"
    found = twin.explain(table[0].iloc[[60]], 3, adjustments=True)
    found = found.assign(label=label, query=label).rename(columns={"R1": label})
    display = ComparablesDisplay(comparables=found).plot()
    labels = [text.get_text().split("\n")[0] for text in display.ax_.get_yticklabels()]
    assert labels[:3] == ["No. 12, a street with a…"] * 3
    assert display.ax_.get_title().endswith("very long name that leaves no room …")
    assert describe_adjustments([label], np.ones(1), 1) == "No. 12, a street with a… +1"


def test_written_adjustments_are_the_largest():
    values = np.array([0.001, -20.0, 5.0, 1.0])
    assert describe_adjustments(list("abcd"), values, 2) == "b −20, c +5"
    assert describe_adjustments(list("abcd"), values, 9) == "b −20, c +5, d +1"
    assert describe_adjustments(list("ab"), np.zeros(2), 3) == ""
