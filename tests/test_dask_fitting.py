"""Fits on a Dask cluster through joblib, against the same fits in this process."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge

from twinned import (
    AutoTwinRegressor,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
    cross_conformal,
    diagnose,
)
from twinned.datasets import make_wsb
from twinned.models.resources import count_threads
from twinned.neural import fit_many

distributed = pytest.importorskip("distributed")

X, y = make_wsb(60, random_state=0)


@pytest.fixture(scope="module")
def client() -> Any:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def tasks(client: Any) -> Callable[[], int]:
    """A function that returns how many tasks the workers have run since the test began."""

    def count() -> int:
        (scheduler,) = [client.cluster.scheduler]
        return sum(1 for key, *_ in scheduler.transition_log if "batch_of" in str(key))

    before = count()
    return lambda: count() - before


def blend() -> AutoTwinRegressor:
    return AutoTwinRegressor(members=["ridge", "extra_trees:fast"], cv=3, random_state=0)


@pytest.mark.slow
def test_blend(tasks: Any) -> None:
    expected = blend().fit(X, y)
    with parallel_config(backend="dask"):
        found = blend().fit(X, y)
    assert tasks() > 0
    assert_array_equal(found.predict(X), expected.predict(X))
    assert_array_equal(found.member_weights_, expected.member_weights_)


def test_cross_conformal(tasks: Any) -> None:
    twin = TwinRegressor(Ridge(), random_state=0)
    expected = cross_conformal(twin, X, y, cv=3, random_state=0).predict_interval(X)
    with parallel_config(backend="dask"):
        found = cross_conformal(twin, X, y, cv=3, random_state=0).predict_interval(X)
    assert tasks() > 0
    assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
def test_diagnose(tasks: Any) -> None:
    expected = diagnose(X, y, estimator=blend(), random_state=0).blend.predict(X)
    with parallel_config(backend="dask"):
        found = diagnose(X, y, estimator=blend(), random_state=0).blend.predict(X)
    assert tasks() > 0
    assert_array_equal(found, expected)


def test_trees_of_a_forest(tasks: Any) -> None:
    twin = TwinRegressor(RandomForestRegressor(4, random_state=0), random_state=0)
    expected = twin.fit(X, y).predict(X)
    with parallel_config(backend="dask"):
        twin.fit(X, y)
    assert tasks() > 0
    assert_array_equal(twin.predict(X), expected)


def test_fit_many(tasks: Any) -> None:
    network = TwinNeuralRegressor(
        (4,), n_members=1, training=NeuralTraining(n_folds=1, max_steps=4), random_state=0
    )
    problems = [(X[i : i + 20], y[i : i + 20]) for i in (0, 10, 20)]
    expected = fit_many(network, problems)
    with parallel_config(backend="dask"):
        found = fit_many(network, problems)
    assert tasks() > 0
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one.predict(X), other.predict(X), rtol=1e-4)


def test_threads_of_this_process(client: Any) -> None:
    with parallel_config(backend="dask"):
        assert count_threads(None) == 1
        assert count_threads(3) == 3
    with parallel_config(n_jobs=3):
        assert count_threads(None) == 3


class ExitsOnce(RegressorMixin, BaseEstimator):
    """A mean that ends its process in the first fit."""

    def __init__(self, flag: str = "") -> None:
        self.flag = flag

    def fit(self, X: Any, y: Any) -> Any:
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            self.mean_ = float(np.mean(y))
            return self
        time.sleep(0.2)
        os._exit(1)

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.mean_)


@pytest.mark.slow
def test_a_worker_that_dies_costs_its_task_only(tmp_path: Any) -> None:
    flag = tmp_path / "exited"
    members = ["ridge", ("mean", ExitsOnce(str(flag)))]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster),
        parallel_config(backend="dask"),
    ):
        found = AutoTwinRegressor(members=members, cv=3, random_state=0).fit(X, y)
    assert flag.exists()
    expected = AutoTwinRegressor(members=members, cv=3, random_state=0).fit(X, y)
    assert_allclose(found.predict(X), expected.predict(X))
