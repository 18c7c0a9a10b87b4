"""What the command line imports, and the options that its help shows first."""

import subprocess
import sys

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from typer.main import get_command

from twinned import NeuralTraining, TwinNeuralRegressor, TwinRegressor, __version__, save
from twinned.app.cli import app


def test_predict_imports_no_library_that_it_does_not_use(tmp_path):
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(20, 2))
    twin = TwinRegressor(RandomForestRegressor(3, random_state=0), random_state=0).fit(X, X[:, 0])
    save(twin, tmp_path / "model.twin")
    training = NeuralTraining(n_folds=1, max_steps=5)
    networks = TwinNeuralRegressor((4,), n_members=1, training=training, random_state=0)
    save(networks.fit(X, X[:, 0]), tmp_path / "networks.twin")
    (tmp_path / "rows.csv").write_text("x0,x1\n0.1,0.2\n0.5,0.3\n")
    code = (
        "import sys\n"
        "from twinned.app.cli import app\n"
        "for model in ('model.twin', 'networks.twin'):\n"
        "    app(['predict', model, 'rows.csv', '--digits', '17'], standalone_mode=False)\n"
        "unused = {'numba', 'jax', 'matplotlib', 'treelite', 'optax', 'dask', 'jinja2'}\n"
        "print(sorted(unused & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *predicted, unused = done.stdout.splitlines()
    assert unused == "[]"
    rows = [[0.1, 0.2], [0.5, 0.3]]
    np.testing.assert_array_equal(
        np.array(predicted).reshape(2, 3)[:, 1:].astype(float),
        [twin.predict(rows), networks.predict(rows)],
    )


def test_help_shows_few_options_before_the_advanced_ones():
    for name, command in get_command(app).commands.items():
        options = [each for each in command.params if each.param_type_name == "option"]
        panels = [getattr(option, "rich_help_panel", None) for option in options]
        assert set(panels) <= {None, "Advanced"}, name
        assert panels.count(None) <= 12, name  # and --help
    budgets = {
        name: [option for each in command.params for option in each.opts if "budget" in option]
        for name, command in get_command(app).commands.items()
    }
    assert budgets.pop("fit") == budgets.pop("advise") == ["--budget"]
    assert not any(budgets.values())


def test_python_m_twinned_is_the_command():
    command = [sys.executable, "-m", "twinned", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"twinned {__version__}\n"
