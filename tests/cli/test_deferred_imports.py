"""Modules whose import is deferred, in new processes."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from twinned import TwinRegressor, save

DEFER = "from twinned.cli._deferred_imports import defer_imports\ndefer_imports()\n"


def output_of(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_deferred_modules_are_those_of_a_plain_import():
    """Names, objects, other attributes and submodules, in the orders that need different code."""
    code = DEFER + (
        "from scipy.stats import chi2, rankdata\n"
        "import sys, scipy.stats\n"
        "print('scipy.stats._stats_py' in sys.modules)\n"
        "print(round(chi2.ppf(0.5, 2), 6), rankdata([3, 1]).tolist())\n"
        "print(round(scipy.stats.norm.cdf(0), 6), type(scipy.stats).__name__)\n"
        "import scipy.interpolate\n"
        "from scipy.interpolate import BSpline\n"
        "print(scipy.interpolate.CubicSpline([0, 1, 2], [0, 1, 2])(1.5), isinstance(1, int))\n"
        "import numpy.f2py\n"
        "print(len(numpy.f2py.get_include()) > 0)\n"
    )
    expected = ["False", "1.386294 [2.0, 1.0]", "0.5 module", "1.5 True", "True"]
    assert output_of(code).splitlines() == expected


def test_a_submodule_is_imported_after_its_package_and_once():
    code = DEFER + (
        "import scipy.stats.qmc\n"
        "from scipy import stats\n"
        "from scipy.stats._stats_py import rankdata\n"
        "print(stats.qmc is scipy.stats.qmc, stats.rankdata is rankdata)\n"
        "print(len(stats.qmc.Sobol(2, seed=0).random(4)))\n"
    )
    assert output_of(code).splitlines() == ["True True", "4"]


def test_threads_wait_for_a_complete_module():
    code = DEFER + (
        "import scipy.stats\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "names = ['chi2', 'norm', 'rankdata', 'uniform', 'gmean', 'qmc', 'kstest', 'zscore']\n"
        "with ThreadPoolExecutor(8) as threads:\n"
        "    found = list(threads.map(lambda name: getattr(scipy.stats, name).__name__\n"
        "                             if name in ('kstest', 'zscore')\n"
        "                             else getattr(scipy.stats, name) is not None, names))\n"
        "print(found)\n"
    )
    expected = [True] * 6 + ["kstest", "zscore"]
    assert output_of(code) == f"{expected}\n"


def test_an_imported_module_is_not_deferred():
    code = "import scipy.stats\nbefore = scipy.stats\n" + DEFER + "print(scipy.stats is before)\n"
    assert output_of(code) == "True\n"


@pytest.fixture(scope="module")
def saved_forest(tmp_path_factory):
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(20, 2))
    twin = TwinRegressor(RandomForestRegressor(3, random_state=0), random_state=0).fit(X, X[:, 0])
    folder = tmp_path_factory.mktemp("forest")
    save(twin, folder / "model.twin")
    (folder / "rows.csv").write_text("a,b\n0.1,0.2\n0.5,0.3\n")
    return twin, folder


def test_predict_imports_no_module_that_it_does_not_use(saved_forest):
    twin, folder = saved_forest
    code = (
        "import sys\n"
        "from twinned.cli import app\n"
        "app(['predict', *sys.argv[1:]], standalone_mode=False)\n"
        "unused = {'scipy.stats._stats_py', 'scipy.integrate._ode',\n"
        "          'scipy.interpolate._fitpack2',\n"
        "          'numpy.f2py.f2py2e', 'numba', 'jax', 'matplotlib', 'treelite', 'optax'}\n"
        "print(sorted(unused & set(sys.modules)))\n"
    )
    *predicted, unused = output_of(code, folder / "model.twin", folder / "rows.csv").splitlines()
    assert unused == "[]"
    np.testing.assert_array_equal(
        [float(value) for value in predicted[1:]], twin.predict([[0.1, 0.2], [0.5, 0.3]])
    )


def test_serve_defers_nothing(saved_forest):
    """It predicts in threads, which could wait for each other's imports."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    _, folder = saved_forest
    code = (
        "import sys\n"
        "from types import SimpleNamespace\n"
        "from twinned.cli import app\n"
        "from twinned.serve import server\n"
        "server.make_server = lambda app: SimpleNamespace(run=lambda sockets: None)\n"
        "app(['serve', sys.argv[1], '--port', '0'], standalone_mode=False)\n"
        "print(type(sys.modules['scipy.stats']).__name__)\n"
    )
    assert output_of(code, folder / "model.twin").splitlines()[-1] == "module"
