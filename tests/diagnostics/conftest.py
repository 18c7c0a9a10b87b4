import pytest
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor
from twinned.datasets import make_wsb


@pytest.fixture
def tree_twin():
    return TwinRegressor(DecisionTreeRegressor(max_depth=9, random_state=0), random_state=0)


@pytest.fixture(scope="session")
def bridge():
    return make_wsb(120, random_state=0)
