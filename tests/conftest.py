import gc
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from inspect import getattr_static

# Two workers use two cores: threads inside a test would only compete with the other worker.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Compiling takes most of the time of the tests of networks. These options halve it; the compiled
# code differs in rounding only. XLA stops the process at an option that it does not know, hence the
# version. `make test-slow` sets XLA_FLAGS, so that it tests the code that users get.
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
        "--xla_backend_optimization_level=0",
    )

import hypothesis
import pytest

# Further libraries are imported in the functions that use them: pytest-xdist starts its workers
# after its own process has read this file, so the time of an import is added to that of the tests.

# `make test` uses the same examples in every run. `make test-slow` draws new and more ones, from a
# seed that it prints, by `--hypothesis-profile=random`.
PROFILE = {
    "deadline": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
    "database": None,
}
hypothesis.settings.register_profile("random", print_blob=True, max_examples=40, **PROFILE)
hypothesis.settings.register_profile("repeatable", derandomize=True, max_examples=6, **PROFILE)
hypothesis.settings.load_profile("repeatable")


def pytest_configure(config):
    """Draw no constants of the imported modules: they differ between the workers.

    To find them, hypothesis reads all modules, which takes six seconds of each worker.
    """
    if config.getoption("--hypothesis-profile") != "random":
        with suppress(ImportError):  # of versions that do not look for constants
            from hypothesis.internal.conjecture import providers

            providers.is_local_module_file = lambda path: False


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Do once what costs time in each test.

    Objects of libraries are kept out of the search for garbage, which is rare. The names of the
    parameters of a class, which scikit-learn reads from its signature, are kept, and whether a
    class has an attribute, which narwhals asks for each argument that may be a table.
    """
    from narwhals import _utils as narwhals_utils
    from sklearn.base import BaseEstimator

    of_class = cache(lambda kind, name: any(name in vars(parent) for parent in kind.__mro__))

    def has_attribute(value, name):
        if isinstance(value, type):
            return getattr_static(value, name, None) is not None
        return name in getattr(value, "__dict__", ()) or of_class(type(value), name)

    narwhals_utils._hasattr_static = has_attribute
    BaseEstimator._get_param_names = classmethod(cache(BaseEstimator._get_param_names.__func__))
    gc.disable()
    result = yield
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000)
    return result


@pytest.fixture
def rng():
    import numpy as np

    return np.random.RandomState(0)


@pytest.fixture(autouse=True)
def seed_of_numpy():
    """Make what has `random_state=None` repeatable, in each test by itself."""
    import numpy as np

    np.random.seed(0)  # noqa: NPY002


@pytest.fixture
def data_folder():
    """The folder with the data files of the paper; the test is skipped if there is none."""
    folder = os.environ.get("TWINNED_DATA")
    if not folder:
        pytest.skip("TWINNED_DATA is not set to a folder with the data files of the paper")
    return folder


@pytest.fixture(scope="session")
def is_quick(pytestconfig):
    """Whether only tests that are not slow run, as by `make test`."""
    return "not slow" in pytestconfig.option.markexpr


def use_small_defaults(patch, is_quick):
    from sklearn.ensemble import ExtraTreesRegressor

    def few_trees(n_estimators, **options):
        return ExtraTreesRegressor(2 if is_quick else 5, **options)

    patch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 30)
    patch.setattr("twinned.models.marginal_likelihood._START_STEPS", 8)
    patch.setattr("twinned.models.marginal_likelihood._MOST_STEPS", 20)
    patch.setattr("twinned.fitted.calibration.ExtraTreesRegressor", few_trees)
    patch.setattr("twinned.estimators.blending.weights._BAGS", 5)
    patch.setattr("twinned.estimators.blending.weights._NESTED_REPEATS", 1)
    patch.setattr("twinned.estimators.blending.weights._BOOTSTRAP_DRAWS", 200)
    if is_quick:
        use_smaller_defaults(patch)


def use_smaller_defaults(patch):
    from twinned.estimators.blending.members import SIZES

    patch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 5)
    patch.setattr("twinned.models.marginal_likelihood._COARSE_ROWS", 40)
    patch.setattr("twinned.models.marginal_likelihood._START_STEPS", 3)
    patch.setattr("twinned.models.marginal_likelihood._MOST_STEPS", 5)
    patch.setattr("twinned.estimators.blending.weights._BAGS", 2)
    patch.setattr("twinned.estimators.blending.weights._BOOTSTRAP_DRAWS", 50)
    patch.setattr("twinned.batches.joint._STEPS", 15)
    patch.setattr("twinned.estimators.twin_folds.N_FOLDS", 2)
    patch.setattr("twinned.estimators.blending.rows._FOLDS_OF_FEW_ROWS", 4)
    for effort, sizes in SIZES.items():
        trees, iterations = sizes.trees // 5, sizes.boosting_iterations // 5
        few = sizes._replace(trees=trees, boosting_iterations=iterations)
        patch.setitem(SIZES, effort, few)


@pytest.fixture(scope="session", autouse=True)
def small_defaults(is_quick):
    """Fit the default base estimator, Gaussian processes, intervals and blends with less work.

    The scope is that of the session, so that it holds in fixtures of any scope as well.
    """
    with pytest.MonkeyPatch.context() as patch:
        use_small_defaults(patch, is_quick)
        yield patch


@pytest.fixture
def shipped_defaults(small_defaults, is_quick):
    """Fit with as many iterations, trees and samples as users do."""
    small_defaults.undo()
    yield
    use_small_defaults(small_defaults, is_quick)


@pytest.fixture(scope="session", autouse=True)
def commands_built_once():
    """Build the commands of an application once, which takes longer than most calls in tests."""
    import typer.main
    import typer.testing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="module")
def quick_checks(is_quick):
    """Compare uses of batches by ridge regression, unless slow tests run."""
    with pytest.MonkeyPatch.context() as patch:
        if is_quick:
            patch.setattr("twinned.diagnostics.data_checks._QUICK", ["ridge"])
        yield
