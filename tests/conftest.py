import os

# Two workers share two cores: threads inside a test would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

# one profile for everyone: same examples each run, no clock
hypothesis.settings.register_profile(
    "twinned",
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
    database=None,
)
hypothesis.settings.load_profile("twinned")


@pytest.fixture
def rng():
    return np.random.RandomState(0)


@pytest.fixture
def data_folder():
    """The paper's data files, or a skip that says what is missing."""
    folder = os.environ.get("TWINNED_DATA")
    if not folder:
        pytest.skip("TWINNED_DATA does not name a folder with the paper's data files")
    return folder


@pytest.fixture(autouse=True)
def few_iterations(monkeypatch):
    """What the default twin does, not how well it learns, is what tests are about."""
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 100)
