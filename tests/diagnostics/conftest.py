import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor
from twinned.datasets import make_wsb
from twinned.diagnostics.cross_validation import cross_validate_twin


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """The error scale of the intervals takes most of the time of a fit to few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "twinned.intervals.error_scale.ExtraTreesRegressor",
            lambda n_estimators, **parameters: ExtraTreesRegressor(5, **parameters),
        )
        yield


@pytest.fixture
def tree_twin():
    return TwinRegressor(DecisionTreeRegressor(max_depth=9, random_state=0), random_state=0)


@pytest.fixture(scope="session")
def bridge():
    return make_wsb(120, random_state=0)


@pytest.fixture(scope="session")
def bridge_cv(bridge):
    """Cross-validation of the same twin as `tree_twin`."""
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=9, random_state=0), random_state=0)
    return cross_validate_twin(*bridge, twin)
