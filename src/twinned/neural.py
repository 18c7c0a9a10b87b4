"""Neural estimators, and the training of many problems at once.

`fit_many` trains splits, folds or data sets as one compiled program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import joblib
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import clone

from twinned._compat import is_remote_backend
from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.twin_neural import TwinNeuralRegressor
from twinned.models.learned_metric import MetricCache
from twinned.models.neural.fitting import fit_problems
from twinned.models.neural.problem import TrainingProblem, build_problem
from twinned.models.resources import one_thread_if_remote

__all__ = ["NeuralRegressor", "TwinNeuralRegressor", "fit_many"]


# Estimators may differ in these: they are data of the compiled program, or used after it.
_PER_PROBLEM = {"pairs", "anchors", "weights", "random_state"}


def fit_many(estimator: Any, problems: Sequence[Any]) -> list[Any]:
    """Fit one estimator to many training sets at once.

    With `joblib.parallel_config(backend="dask")`, the problems are spread over the cluster: as many
    tasks as it has cores, each of which trains its share at once on the device of its worker.

    Parameters
    ----------
    estimator : TwinNeuralRegressor or NeuralRegressor, or a list of them
        The estimator to fit; it is cloned for each problem and not changed itself. A list has one
        for each problem; they may differ in `pairs`, `anchors`, `weights` and `random_state`. Its
        `n_jobs` is also the number of processes that prepare the problems.
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
    for one in each:
        if not isinstance(one, (TwinNeuralRegressor, NeuralRegressor)):
            raise TypeError(
                "fit_many takes a TwinNeuralRegressor or a NeuralRegressor, not "
                f"{type(one).__name__}."
            )
    if not each:
        return []
    twin = isinstance(each[0], TwinNeuralRegressor)
    if any(_shared_parameters(one) != _shared_parameters(each[0]) for one in each):
        raise ValueError(f"the estimators differ in more than {', '.join(sorted(_PER_PROBLEM))}.")
    for problem in problems:
        if not 2 <= len(problem) <= 7:
            raise ValueError(f"a problem has 2 to 7 parts (X, y, …), not {len(problem)}.")
    pairs = list(zip(each, problems, strict=True))
    if not is_remote_backend():
        return _fit_together(pairs, twin)
    n_tasks = min(len(pairs), effective_n_jobs(each[0].n_jobs))
    shares = [pairs[i::n_tasks] for i in range(n_tasks)]
    fitted: list[Any] = [None] * len(pairs)
    results = Parallel()(delayed(_fit_share)(share, twin) for share in shares)
    for i, models in enumerate(results):
        fitted[i::n_tasks] = models
    return fitted


def _fit_share(pairs: list[tuple[Any, Any]], twin: bool) -> list[Any]:
    with one_thread_if_remote():
        return _fit_together(pairs, twin)


def _fit_together(pairs: list[tuple[Any, Any]], twin: bool) -> list[Any]:
    """Fit clones of the estimators to their problems as one compiled program."""
    first = pairs[0][0]
    built = _build_all(pairs, first.n_jobs)
    ensembles = fit_problems(first, [problem for _, problem in built], twin)
    for (one, problem), ensemble in zip(built, ensembles, strict=True):
        one._set_fitted(problem, ensemble)
    return [one for one, _ in built]


def _build_all(pairs: list[tuple[Any, Any]], n_jobs: Any) -> list[tuple[Any, TrainingProblem]]:
    """Return clones of the estimators, which now know their features, and their training problems.

    Equal data are prepared by one process, which learns their relevance once.
    """
    is_parallel = effective_n_jobs(n_jobs) > 1
    groups: dict[str, list[int]] = {}
    for i, (_, problem) in enumerate(pairs):
        groups.setdefault(joblib.hash(problem) if is_parallel else "", []).append(i)
    results = Parallel(n_jobs=n_jobs)(
        delayed(_build)([pairs[i] for i in group]) for group in groups.values()
    )
    built: dict[int, tuple[Any, TrainingProblem]] = {}
    for group, own in zip(groups.values(), results, strict=True):
        built.update(zip(group, own, strict=True))
    return [built[i] for i in range(len(pairs))]


def _build(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, TrainingProblem]]:
    learn = MetricCache()
    clones = [clone(estimator) for estimator, _ in pairs]
    return [
        (one, build_problem(one, *problem, twin=one._twin, learn=learn))
        for one, (_, problem) in zip(clones, pairs, strict=True)
    ]


def _shared_parameters(estimator: Any) -> tuple[type, dict[str, Any]]:
    """Return the parameters that must be equal for problems to be trained together."""
    parameters = estimator.get_params(deep=False)
    return type(estimator), {name: v for name, v in parameters.items() if name not in _PER_PROBLEM}
