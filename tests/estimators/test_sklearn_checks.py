"""scikit-learn's own checks over several base estimators."""

import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from twinned import TwinRegressor

# 2 MB hold a few thousand pairs, so "auto" is all pairs for small data and random partners for
# larger data: the checks cover both, and are quick.
SMALL, SMALLER = {"memory_limit": "2MB"}, {"memory_limit": "500KB"}

# Bootstrap and binning draw rows, so scikit-learn lists the check for these two itself.
WEIGHTS_BY_DRAWING = {
    "check_sample_weight_equivalence_on_dense_data": (
        "scikit-learn lists this for the base estimator: it draws rows, so a weight is not the "
        "same as a repetition"
    )
}
LOCAL_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "the check gives folds, and a search finds the length scales of local weights, which are "
        "not the same with repeated rows"
    )
}
TWINS = [
    (TwinRegressor(Ridge(), **SMALL), LOCAL_WEIGHTS),
    (TwinRegressor(cv=2, memory_limit="200KB"), WEIGHTS_BY_DRAWING),
]
OTHER_TWINS = [
    (TwinRegressor(**SMALLER), WEIGHTS_BY_DRAWING),
    (TwinRegressor(RandomForestRegressor(5, max_depth=4), **SMALL), WEIGHTS_BY_DRAWING),
    (TwinRegressor(DecisionTreeRegressor(max_depth=4), **SMALL), {}),
    (TwinRegressor(HistGradientBoostingRegressor(max_iter=5), **SMALL), WEIGHTS_BY_DRAWING),
    (TwinRegressor(KNeighborsRegressor(), memory_limit="1MB"), LOCAL_WEIGHTS),
]


@pytest.fixture(autouse=True)
def few_iterations(monkeypatch):
    """The default twin is checked for its API, not for its accuracy."""
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 5)


def expected_failures(estimator):
    return next(known for twin, known in TWINS + OTHER_TWINS if repr(twin) == repr(estimator))


@parametrize_with_checks([twin for twin, _ in TWINS], expected_failed_checks=expected_failures)
def test_sklearn_check(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [twin for twin, _ in OTHER_TWINS], expected_failed_checks=expected_failures
)
def test_sklearn_check_of_other_bases(estimator, check):
    check(estimator)


@pytest.mark.parametrize("base", [RandomForestRegressor(), HistGradientBoostingRegressor()])
def test_expected_failures_are_scikit_learns_own(base):
    """A failure is only expected while scikit-learn itself expects it."""
    from sklearn.utils._test_common.instance_generator import PER_ESTIMATOR_XFAIL_CHECKS

    assert "check_sample_weight_equivalence_on_dense_data" in PER_ESTIMATOR_XFAIL_CHECKS[type(base)]


def test_many_checks_are_run():
    names = [check for _, check in estimator_checks_generator(TWINS[0][0])]
    assert len(names) > 50
