"""What the command line imports."""

import subprocess
import sys

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from twinned import TwinRegressor, __version__, save


def test_predict_imports_no_library_that_it_does_not_use(tmp_path):
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(20, 2))
    twin = TwinRegressor(RandomForestRegressor(3, random_state=0), random_state=0).fit(X, X[:, 0])
    save(twin, tmp_path / "model.twin")
    (tmp_path / "rows.csv").write_text("a,b\n0.1,0.2\n0.5,0.3\n")
    code = (
        "import sys\n"
        "from twinned.app.cli import app\n"
        "app(['predict', 'model.twin', 'rows.csv', '--digits', '17'], standalone_mode=False)\n"
        "unused = {'numba', 'jax', 'matplotlib', 'treelite', 'optax', 'dask', 'jinja2'}\n"
        "print(sorted(unused & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *predicted, unused = done.stdout.splitlines()
    assert unused == "[]"
    np.testing.assert_array_equal(
        [float(value) for value in predicted[1:]], twin.predict([[0.1, 0.2], [0.5, 0.3]])
    )


def test_python_m_twinned_is_the_command():
    command = [sys.executable, "-m", "twinned", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"twinned {__version__}\n"
