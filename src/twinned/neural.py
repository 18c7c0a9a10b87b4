"""The neural twin. JAX lives here and nowhere else.

`fit_many` trains many problems at once: splits, folds or data sets, as one compiled program.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
from sklearn.base import clone

from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.twin_neural import TwinNeuralRegressor
from twinned.models.neural.fitting import fit_prepared
from twinned.models.neural.problem import prepare

__all__ = ["NeuralRegressor", "TwinNeuralRegressor", "fit_many"]


# what a problem may have of its own: it is data of the compiled program, or comes after it
_OWN = {"pairs", "anchors", "weights", "random_state"}


def _keep_compiled_programs() -> None:
    """Let a program that one process compiled serve the next, unless the user says otherwise."""
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    jax.config.update("jax_compilation_cache_dir", os.path.join(root, "twinned", "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


_keep_compiled_programs()


def fit_many(estimator: Any, problems: Sequence[Any]) -> list[Any]:
    """Fit one estimator to many training sets at once.

    Parameters
    ----------
    estimator : TwinNeuralRegressor or NeuralRegressor, or a list of them
        What to fit; it is cloned for each problem and left alone itself. Of a list each is for one
        problem, and they may differ in `pairs`, `anchors`, `weights` and `random_state`.
    problems : sequence of (X, y), (X, y, sample_weight) or (X, y, sample_weight, X_val, y_val)
        The training sets, as arguments of `fit`. They may differ in size; they are padded, and
        padding changes nothing.

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
    if any(_program(one) != _program(each[0]) for one in each):
        raise ValueError(f"the estimators differ in more than {', '.join(sorted(_OWN))}.")
    fitted = [clone(one) for one in each]
    prepared = []
    for one, problem in zip(fitted, problems, strict=True):
        if not 2 <= len(problem) <= 5:
            raise ValueError(f"a problem has 2 to 5 parts (X, y, …), not {len(problem)}.")
        X, y, weight, X_val, y_val = (*problem, None, None, None)[:5]
        prepared.append(prepare(one, X, y, weight, X_val, y_val, twin))
    for one, problem, result in zip(
        fitted, prepared, fit_prepared(each[0], prepared, twin), strict=True
    ):
        one._settle(problem, result)
    return fitted


def _program(estimator: Any) -> tuple[type, dict[str, Any]]:
    """What must be the same for problems to be trained together."""
    shared = estimator.get_params(deep=False)
    return type(estimator), {name: v for name, v in shared.items() if name not in _OWN}
