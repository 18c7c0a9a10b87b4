"""Neural estimators, and the training of many problems at once.

`fit_many` trains splits, folds or data sets as one compiled program.
"""

from collections.abc import Sequence
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import clone

from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.twin_neural import TwinNeuralRegressor
from twinned.models.learned_metric import MetricCache
from twinned.models.neural.parameters import NeuralTraining
from twinned.models.neural.problem import build_problem
from twinned.models.resources import is_remote_backend, one_thread_if_remote

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
        `random_state` are trained as one program.
    problems : sequence of (X, y), (X, y, sample_weight) or (X, y, sample_weight, X_val, y_val)
        The training sets, as arguments of `fit`; y_lower and y_upper may follow. They may differ
        in size; they are padded, and padding changes nothing.

    Returns
    -------
    list of fitted estimators
        In the order of the problems. Each equals what `fit` on that problem alone would give, to
        rounding.
    """
    is_list = isinstance(estimator, (list, tuple))
    estimators = list(estimator) if is_list else [estimator] * len(problems)
    if len(estimators) != len(problems):
        raise ValueError(f"{len(estimators)} estimators do not fit {len(problems)} problems.")
    pairs = list(zip(estimators, problems, strict=True))
    for one, problem in pairs:
        if not isinstance(one, (TwinNeuralRegressor, NeuralRegressor)):
            raise TypeError(f"fit_many takes neural estimators, not {type(one).__name__}.")
        if not 2 <= len(problem) <= len(_PARTS):
            raise ValueError(f"a problem has 2 to 7 parts (X, y, …), not {len(problem)}.")
    if not pairs:
        return []
    if not is_remote_backend():
        return _fit_together(pairs)
    n_tasks = min(len(pairs), effective_n_jobs(estimators[0].n_jobs))
    fitted = [None] * len(pairs)
    results = Parallel()(delayed(_fit_together)(pairs[i::n_tasks]) for i in range(n_tasks))
    for i, models in enumerate(results):
        fitted[i::n_tasks] = models
    return fitted


@one_thread_if_remote()
def _fit_together(pairs):
    """Fit clones of the estimators to their problems, by as few compiled programs as possible.

    The relevance of features of equal data is learned once.
    """
    from twinned.models.neural.fitting import fit_problems

    learn, models, problems = MetricCache(), [], []
    for estimator, problem in pairs:
        models.append(clone(estimator))
        arguments = dict(zip(_PARTS, problem, strict=False))
        problems.append(build_problem(models[-1], **arguments, learn=learn))
    for model, problem, ensemble in zip(models, problems, fit_problems(problems), strict=True):
        model.set_networks(problem, ensemble)
    return models
