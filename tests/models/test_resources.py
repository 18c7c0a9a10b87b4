"""The number of threads: one without `n_jobs`, in fits and predictions."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from threadpoolctl import ThreadpoolController, threadpool_limits

from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
)
from twinned.models.gaussian_process import fit_gaussian_process
from twinned.models.resources import limit_openmp, limit_threads

X = np.random.RandomState(0).normal(size=(40, 3))
y = X[:, 0]


def n_threads(user_api):
    """The largest number of threads of the loaded libraries of a kind."""
    found = ThreadpoolController().select(user_api=user_api).info()
    return max((each["num_threads"] for each in found), default=1)


@contextmanager
def two_threads():
    """Where libraries would use two threads, as on a machine of two cores."""
    with threadpool_limits(2):
        yield


class Recorder(RegressorMixin, BaseEstimator):
    """A regressor that records the threads of OpenMP and BLAS in `fit` and `predict`."""

    seen: list[tuple[int, int]] = []  # noqa: RUF012

    def fit(self, X, y):
        self.seen.append((n_threads("openmp"), n_threads("blas")))
        self.mean_ = 0.0
        return self

    def predict(self, X):
        self.seen.append((n_threads("openmp"), n_threads("blas")))
        return np.zeros(len(X))


@pytest.mark.parametrize(("n_jobs", "most"), [(None, 1), (1, 1), (2, 2)])
def test_fits_and_predictions_have_the_threads_of_n_jobs(n_jobs, most):
    Recorder.seen.clear()
    with two_threads():
        twin = TwinRegressor(Recorder(), anchors=NearestAnchors(3), n_jobs=n_jobs).fit(X, y)
        twin.predict(X)
        twin.predict_difference(X, X)
        twin.explain(X)
        assert {max(pair) for pair in Recorder.seen} == {most}
        assert n_threads("openmp") == n_threads("blas") == 2  # as before


def test_blocks_of_queries_on_two_threads_have_one_thread_each():
    Recorder.seen.clear()
    with two_threads():
        twin = TwinRegressor(Recorder(), n_jobs=2, memory_limit="100KB", pairs=2).fit(X, y)
        Recorder.seen.clear()
        twin.predict(np.tile(X, (20, 1)))
    assert {openmp for openmp, _ in Recorder.seen} == {1}


def test_members_of_a_blend_predict_with_one_thread():
    Recorder.seen.clear()
    with two_threads():
        members = [("recorder", Recorder()), "ridge"]
        blend = AutoTwinRegressor(members=members, random_state=0).fit(X, y)
        blend.predict_members(X)
    assert {max(pair) for pair in Recorder.seen} == {1}


def test_the_learned_metric_has_one_thread(monkeypatch):
    """Whatever `n_jobs` is: threads that wait for each other are slow on a busy machine."""
    seen = []

    def record(*arguments, **options):
        seen.append(n_threads("blas"))
        return fit_gaussian_process(*arguments, **options)

    monkeypatch.setattr("twinned.models.learned_metric.fit_gaussian_process", record)
    twin = TwinRegressor(LinearRegression(), n_jobs=2).fit(X, y)
    with two_threads():
        assert n_threads("blas") == 2
        twin.feature_relevance_  # noqa: B018
    assert seen == [1]


def test_limits_of_two_threads_at_a_time_leave_blas_as_it_was():
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first():
        with limit_threads(1):
            first_is_in.set()
            assert second_is_in.wait(60)
        first_is_out.set()

    def second():
        assert first_is_in.wait(60)
        with limit_threads(1):
            second_is_in.set()
            assert first_is_out.wait(60)

    def set_blas_threads(n):
        for library in ThreadpoolController().select(user_api="blas").lib_controllers:
            library.set_num_threads(n)

    before = n_threads("blas")
    with ThreadPoolExecutor(1) as own:  # a thread that ends, so that others can set limits
        own.submit(set_blas_threads, 2).result()
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(first), threads.submit(second)]:
            done.result()
    after = n_threads("blas")
    with ThreadPoolExecutor(1) as own:
        own.submit(set_blas_threads, before).result()
    assert after == 2


def test_libraries_that_are_loaded_later_are_limited(monkeypatch):
    monkeypatch.setitem(sys.modules, "twinned_a_new_module", None)
    with two_threads(), limit_openmp(1):
        assert n_threads("openmp") == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_device_of_one_thread_leaves_the_cores_of_the_process():
    from twinned.models.neural.device import limited_device, on_device

    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    import jax

    cores = os.sched_getaffinity(0)
    options = [name for name in dir(jax.config) if name.startswith("jax_")]
    before = [getattr(jax.config, name) for name in options]
    device = limited_device(1)
    assert device is not None
    assert device is limited_device(1)
    assert device not in jax.devices()
    assert limited_device(len(cores)) is None
    with on_device("auto", None):
        assert jax.numpy.ones(2).devices() == {device}
    with on_device("cpu", -1):
        assert jax.numpy.ones(2).devices() == {jax.devices("cpu")[0]}
    assert jax.numpy.ones(2).devices() == {jax.devices()[0]}
    assert [getattr(jax.config, name) for name in options] == before
    for thread in os.listdir("/proc/self/task"):
        assert os.sched_getaffinity(int(thread)) == cores


def most_runnable_threads(function):
    """The largest share of samples in which so many threads of the process are runnable."""
    counts, done = [], threading.Event()

    def sample():
        own = str(threading.get_native_id())
        while not done.is_set():
            states = []
            for thread in set(os.listdir("/proc/self/task")) - {own}:
                try:
                    with open(f"/proc/self/task/{thread}/stat") as file:
                        states.append(file.read().rpartition(")")[2].split()[0])
                except OSError:
                    continue
            counts.append(states.count("R"))
            time.sleep(0.002)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        function()
    finally:
        done.set()
        thread.join()
    return np.mean(np.array(counts) > 1)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_networks_are_trained_on_one_thread():
    twin = TwinNeuralRegressor(
        (64, 64), n_members=2, training=NeuralTraining(max_steps=200), random_state=0
    )
    twin.fit(X, y)  # compile
    assert most_runnable_threads(lambda: twin.fit(X, y)) < 0.2


FORKED = """
import os
import jax
from twinned.models.neural.device import on_device

def forked():
    child = os.fork()
    if child == 0:
        try:
            with on_device("auto", None):
                print("computes", flush=True)
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)

forked()
jax.devices()
forked()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
def test_networks_in_a_process_forked_after_the_start_of_jax_raise_an_error():
    command = [sys.executable, "-c", FORKED]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    before, after = run.stdout.splitlines()
    assert before == "computes"
    assert "forked" in after
    assert "get_context('spawn')" in after


def test_boosting_is_the_same_with_any_number_of_threads():
    boosting = HistGradientBoostingRegressor(max_iter=2, max_leaf_nodes=5)
    one, two = (TwinRegressor(boosting, n_jobs=n, random_state=0).fit(X, y) for n in (None, 2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
