"""The configuration of JAX: unchanged by imports and fits, and a cache of compiled programs."""

import os
import subprocess
import sys

import pytest

CONFIG = """
import jax

def configuration():
    return {name: getattr(jax.config, name) for name in dir(jax.config) if name.startswith("jax_")}

before = configuration()
"""
FIT = """
import numpy as np
from twinned import NeuralTraining, TwinNeuralRegressor
X = np.random.RandomState(0).normal(size=(20, 2))
training = NeuralTraining(max_steps=4)
twin = TwinNeuralRegressor((4,), n_members=1, training=training, random_state=0).fit(X, X[:, 0])
twin.predict(X)
"""
UNCHANGED = "\nassert configuration() == before, (before, configuration())\n"


def run(code, folder, **environment):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    # with the default options: those of the tests compile faster than is worth storing
    environ.pop("XLA_FLAGS", None)
    environ |= {"XDG_CACHE_HOME": str(folder), **environment}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def programs(folder):
    return {path.name for path in folder.rglob("*-cache")}


@pytest.mark.slow
def test_importing_leaves_the_configuration_of_jax_unchanged(tmp_path):
    run(CONFIG + "import twinned.neural, twinned.models.neural.fitting" + UNCHANGED, tmp_path)


@pytest.mark.slow
def test_fitting_stores_compiled_programs_and_restores_the_configuration(tmp_path):
    run(CONFIG + FIT + UNCHANGED, tmp_path)
    stored = programs(tmp_path / "twinned" / "compiled")
    assert len(stored) >= 2
    # the next process finds all of them, and programs of others are not stored here
    hits = """
import logging
logging.getLogger("jax._src.compiler").setLevel(logging.DEBUG)
logging.getLogger("jax._src.compiler").addHandler(logging.StreamHandler(__import__("sys").stdout))
"""
    other = "\njax.config.update('jax_persistent_cache_min_compile_time_secs', 0)"
    other += "\njax.jit(lambda x: x * 3.25 + 1)(2.0)"
    output = run(CONFIG + hits + FIT + other, tmp_path)
    assert output.count("Persistent compilation cache hit") >= len(stored)
    assert programs(tmp_path / "twinned" / "compiled") == stored


@pytest.mark.slow
def test_a_cache_folder_of_the_user_is_used(tmp_path):
    own = tmp_path / "own"
    code = f"import jax\njax.config.update('jax_compilation_cache_dir', {str(own)!r})\n"
    environment = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    run(code + CONFIG + FIT + UNCHANGED, tmp_path, **environment)
    assert programs(own)
    assert not (tmp_path / "twinned").exists()
