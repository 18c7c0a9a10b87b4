import matplotlib
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from twinned import AutoTwinRegressor, TwinRegressor
from twinned.datasets import make_wsb


@pytest.fixture(autouse=True)
def close_figures():
    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="module")
def table():
    """80 rows with labels."""
    X, y = make_wsb(80, random_state=0)
    index = pd.Index([f"bridge {i}" for i in range(80)])
    return X.set_axis(index), y.set_axis(index)


@pytest.fixture(scope="module")
def blend(table):
    X, y = table
    return AutoTwinRegressor(members=["ridge"], random_state=0).fit(X[:60], y[:60])


@pytest.fixture(scope="module")
def twin(table):
    X, y = table
    return TwinRegressor(Ridge()).fit(X[:60], y[:60])
