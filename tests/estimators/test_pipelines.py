"""Methods of twins through a pipeline."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import AutoTwinRegressor, TwinRegressor, explain, load, predict_interval, query, save
from twinned.datasets import make_wsb

X, y = make_wsb(60, random_state=0)
X, y = X.set_axis(range(100, 160)), y.set_axis(range(100, 160))
TRAIN, NEW = slice(0, 40), slice(40, 60)


@pytest.fixture(scope="module")
def blend():
    model = AutoTwinRegressor(members=["ridge"], random_state=0)
    return make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), model)).fit(
        X[TRAIN], y[TRAIN]
    )


def test_results_are_those_of_the_last_step_for_transformed_rows(blend):
    twin = blend[-1][-1]
    rows = blend[-1][:-1].transform(blend[:-1].transform(X[NEW]))
    np.testing.assert_array_equal(predict_interval(blend, X[NEW]), twin.predict_interval(rows))
    found = explain(blend, X[NEW], 2, adjustments=True)
    expected = twin.explain(rows, 2, adjustments=True)
    np.testing.assert_array_equal(found["estimate"], expected["estimate"])
    assert found["query"].tolist() == np.repeat(X.index[NEW], 3).tolist()
    np.testing.assert_array_equal(query(blend, X[NEW], 3), query(twin, rows, 3))


def test_twin_without_a_pipeline():
    twin = TwinRegressor(Ridge()).fit(X[TRAIN], y[TRAIN])
    assert explain(twin, X[NEW], 2).equals(twin.explain(X[NEW], 2))


def test_model_without_the_method_is_refused():
    ridge = make_pipeline(StandardScaler(), Ridge()).fit(X[TRAIN], y[TRAIN])
    with pytest.raises(TypeError, match="pipeline that ends with one"):
        explain(ridge, X)
    with pytest.raises(TypeError, match="no prediction intervals"):
        predict_interval(ridge, X)


def test_name_of_the_target_is_saved(tmp_path):
    twin = TwinRegressor(Ridge()).fit(X[TRAIN], y[TRAIN])
    twin.target_name_ = "V [mV]"
    save(twin, tmp_path / "own.twin")
    assert load(tmp_path / "own.twin").target_name_ == "V [mV]"
