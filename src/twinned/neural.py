"""Neural estimators, and the training of many problems at once.

`fit_many` trains splits, folds or data sets as one compiled program.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import joblib
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import clone

from twinned._compat import is_remote_backend
from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.twin_neural import TwinNeuralRegressor
from twinned.models.learned_metric import MetricCache
from twinned.models.neural.fitting import fit_problems
from twinned.models.neural.parameters import NeuralTraining
from twinned.models.neural.problem import build_problem
from twinned.models.resources import one_thread_if_remote

__all__ = ["NeuralRegressor", "NeuralTraining", "TwinNeuralRegressor", "fit_many"]
_PARTS = ("X", "y", "sample_weight", "X_val", "y_val", "y_lower", "y_upper")  # of a problem


def fit_many(estimator: Any, problems: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Fit one estimator to many training sets at once.

    With `joblib.parallel_config(backend="dask")`, the problems are spread over the cluster: as many
    tasks as it has cores, each of which trains its share at once on the device of its worker.

    Parameters
    ----------
    estimator : TwinNeuralRegressor or NeuralRegressor, or a list of them
        The estimator to fit; it is cloned for each problem and not changed itself. A list has one
        for each problem; those that differ in no more than `pairs`, `anchors`, `weights` and
        `random_state` are trained as one program. Its `n_jobs` is also the number of processes
        that prepare the problems.
    problems : sequence of (X, y), (X, y, sample_weight) or (X, y, sample_weight, X_val, y_val)
        The training sets, as arguments of `fit`; y_lower and y_upper may follow. They may differ
        in size; they are padded, and padding changes nothing.

    Returns
    -------
    list of fitted estimators, in the order of the problems. Each equals what `fit` on that problem
    alone would give, to rounding.
    """
    each = list(estimator) if isinstance(estimator, (list, tuple)) else [estimator] * len(problems)
    if len(each) != len(problems):
        raise ValueError(f"{len(each)} estimators do not fit {len(problems)} problems.")
    pairs = list(zip(each, problems, strict=True))
    for one, problem in pairs:
        if not isinstance(one, (TwinNeuralRegressor, NeuralRegressor)):
            raise TypeError(f"fit_many takes neural estimators, not {type(one).__name__}.")
        if not 2 <= len(problem) <= len(_PARTS):
            raise ValueError(f"a problem has 2 to 7 parts (X, y, …), not {len(problem)}.")
    if not pairs:
        return []
    if not is_remote_backend():
        return _fit_together(pairs)
    n_tasks = min(len(pairs), effective_n_jobs(each[0].n_jobs))
    fitted = [None] * len(pairs)
    results = Parallel()(delayed(_fit_together)(pairs[i::n_tasks]) for i in range(n_tasks))
    for i, models in enumerate(results):
        fitted[i::n_tasks] = models
    return fitted


@one_thread_if_remote()
def _fit_together(pairs):
    """Fit clones of the estimators to their problems, by as few compiled programs as possible.

    Equal data are prepared by one process, which learns their relevance once.
    """
    n_jobs = pairs[0][0].n_jobs
    separate = effective_n_jobs(n_jobs) > 1
    keys = [joblib.hash(problem) if separate else "" for _, problem in pairs]
    groups = [[i for i, key in enumerate(keys) if key == one] for one in dict.fromkeys(keys)]
    results = Parallel(n_jobs=n_jobs)(delayed(_build)([pairs[i] for i in own]) for own in groups)
    built = dict(zip(chain(*groups), chain(*results), strict=True))
    models, problems = zip(*(built[i] for i in range(len(pairs))), strict=True)
    ensembles = fit_problems(list(problems))
    for model, problem, ensemble in zip(models, problems, ensembles, strict=True):
        model.set_networks(problem, ensemble)
    return list(models)


def _build(pairs):
    """Return clones of the estimators, which now know their features, and their problems."""
    learn, built = MetricCache(), []
    for estimator, problem in pairs:
        model = clone(estimator)
        arguments = dict(zip(_PARTS, problem, strict=False))
        built.append((model, build_problem(model, **arguments, learn=learn)))
    return built
