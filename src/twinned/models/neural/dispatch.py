"""Dispatch of a compiled program: all members in one batch, or one member per thread.

A GPU is filled by all members of all problems as one batch. On a CPU a batch falls out of the
cache at every layer, so the program is that of one member of one problem, which also compiles in
half the time, and the members are distributed over `n_jobs` threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from twinned.models.neural.network import Parameters
from twinned.models.neural.training import (
    Check,
    MemberArrays,
    ProblemArrays,
    TrainingConfig,
    TrainingState,
    initial_state,
    train_to_check,
)
from twinned.models.resources import count_threads

# Arguments of one call of a program: a problem, a member, and other data of that member.
Part = tuple[Any, ...]


class TrainingRun:
    """Training of all members of a group of problems, from one check to the next.

    `schedule` is (steps between checks, steps in total). On a CPU, `n_jobs` members are trained at
    once.
    """

    def __init__(
        self,
        config: TrainingConfig,
        problems: ProblemArrays,
        members: MemberArrays,
        schedule: tuple[int, int],
        n_jobs: int | None = None,
    ) -> None:
        self._config, self._n_problems, self._n_jobs = config, len(members.key), n_jobs
        self._parts = _split(config, problems, members)
        self._states: list[TrainingState] = _run_parts(
            lambda *part: initial_state(config, *part), self._parts, n_jobs, compiled=False
        )
        self._schedule = np.array(schedule, np.int32)

    def advance(self, check: int) -> Check:
        """Train up to the next check; leading axes problem and member."""

        def one(problem: ProblemArrays, member: MemberArrays, state: TrainingState) -> Any:
            number = np.int32(check)
            return train_to_check(self._config, problem, member, state, number, self._schedule)

        parts = [(*part, state) for part, state in zip(self._parts, self._states, strict=True)]
        results = _run_parts(one, parts, self._n_jobs, compiled=check > 0)
        self._states = [state for state, _ in results]
        checks: Check = _join(self._config, [own for _, own in results], self._n_problems)
        return checks

    @property
    def best(self) -> Parameters:
        """The best parameters of each member so far; leading axes problem and member."""
        best: Parameters = _join(self._config, [s.best for s in self._states], self._n_problems)
        return best


def map_members(
    config: TrainingConfig, program: Callable[..., Any], *arguments: Any, n_jobs: int | None = None
) -> Any:
    """Apply a program to problems, members and other data with the axes problem and member."""
    parts = _split(config, *arguments)
    results = _run_parts(program, parts, n_jobs, compiled=False)
    return _join(config, results, len(arguments[1].key))


def _split(
    config: TrainingConfig, problems: ProblemArrays, members: MemberArrays, *more: Any
) -> list[Part]:
    """Return the arguments of each call: all at once, or one member of one problem at a time."""
    if not config.one_member:
        return [jax.device_put((problems, members, *more))]

    def pick(values: Any, index: Any) -> Any:
        return jax.device_put(jax.tree.map(lambda value: np.asarray(value)[index], values))

    n_problems, n_members = members.key.shape
    own = [pick(problems, i) for i in range(n_problems)]
    return [
        (own[i], *(pick(values, (i, j)) for values in (members, *more)))
        for i in range(n_problems)
        for j in range(n_members)
    ]


def _join(config: TrainingConfig, results: list[Any], n_problems: int) -> Any:
    """Join the results of all parts; leading axes problem and member."""
    if not config.one_member:
        return jax.tree.map(np.asarray, results[0])

    def join(*values: Any) -> NDArray[Any]:
        return np.stack([np.asarray(v) for v in values]).reshape(n_problems, -1, *values[0].shape)

    return jax.tree.map(join, *results)


def _run_parts(
    program: Callable[..., Any], parts: list[Part], n_jobs: int | None, *, compiled: bool
) -> list[Any]:
    """Run a program on all parts, on `n_jobs` threads.

    Where it is not `compiled`, the first part alone compiles it.
    """
    device = getattr(jax.config, "jax_default_device", None)

    def one(part: Part) -> Any:
        # a thread has a default device of its own
        with jax.default_device(device):
            return jax.block_until_ready(program(*part))

    n_alone = 0 if compiled else 1
    n_threads = count_threads(n_jobs)
    if n_threads == 1:
        return [one(part) for part in parts]
    results = [one(part) for part in parts[:n_alone]]
    with ThreadPoolExecutor(n_threads) as threads:
        results += threads.map(one, parts[n_alone:])
    return results
