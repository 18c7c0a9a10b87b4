"""The estimators with the defaults that users get, which other tests shorten."""

import numpy as np
import pytest

from twinned import TwinNeuralRegressor, TwinRegressor
from twinned.datasets import make_tf


def error_ratio(model):
    """RMSE on 40 test samples of the test function, relative to their standard deviation."""
    X, y = make_tf(100, random_state=1)
    error = model.fit(X[:60], y[:60]).predict(X[60:]) - y[60:]
    return np.sqrt(np.mean(error**2)) / np.std(y[60:])


def test_default_twin(shipped_defaults):
    twin = TwinRegressor(random_state=0)
    assert error_ratio(twin) < 0.4
    assert twin.estimator_.n_iter_ == 100  # of few rows, whose errors are large


@pytest.mark.slow  # about 20 seconds of processor time
def test_fast_neural_twin():
    assert error_ratio(TwinNeuralRegressor(effort="fast", random_state=0)) < 0.1
