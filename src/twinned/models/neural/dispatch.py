"""A compiled program on whatever there is: for all members at once, or for each on its own.

A GPU is filled by all members of all problems as one batch. On a processor a batch falls out of
the cache at every layer, so the program is that of one member of one problem, which also compiles
in half the time, and the cores share the members among them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from twinned.models.neural.network import Parameters
from twinned.models.neural.training import Member, Plan, Problem, advance, start

Part = tuple[Any, ...]  # a problem, a member, and what else a program takes of them


class Run:
    """Members of some problems between two checks.

    `schedule` is (steps between checks, steps in all).
    """

    def __init__(
        self, plan: Plan, problems: Problem, members: Member, schedule: tuple[int, int]
    ) -> None:
        self._plan, self._n_problems = plan, len(members.key)
        self._parts = parted(plan, problems, members)
        self._states = on_cores(lambda *part: start(plan, *part), self._parts, compiled=False)
        self._schedule = np.array(schedule, np.int32)

    def advance(self, check: int) -> NDArray[Any]:
        """Train up to the next check: (problem, member) errors there."""

        def one(problem: Problem, member: Member, state: Any) -> Any:
            return advance(self._plan, problem, member, state, np.int32(check), self._schedule)

        parts = [(*part, state) for part, state in zip(self._parts, self._states, strict=True)]
        moved = on_cores(one, parts, compiled=check > 0)
        self._states = [state for state, _ in moved]
        errors: NDArray[Any] = joined(self._plan, [error for _, error in moved], self._n_problems)
        return errors

    @property
    def best(self) -> Parameters:
        """The best weights of each member so far; leading axes problem and member."""
        best: Parameters = joined(self._plan, [s.best for s in self._states], self._n_problems)
        return best


def run_once(plan: Plan, program: Callable[..., Any], *everything: Any) -> Any:
    """What a program says of problems, members and whatever else has those two as leading axes."""
    parts = parted(plan, *everything)
    return joined(plan, on_cores(program, parts, compiled=False), len(everything[1].key))


def parted(plan: Plan, problems: Problem, members: Member, *more: Any) -> list[Part]:
    """What goes into the program at once: everything, or one member of one problem at a time."""
    if not plan.in_turn:
        return [jax.device_put((problems, members, *more))]

    def pick(values: Any, place: Any) -> Any:
        return jax.device_put(jax.tree.map(lambda value: np.asarray(value)[place], values))

    n_problems, n_members = members.key.shape
    own = [pick(problems, i) for i in range(n_problems)]
    return [
        (own[i], *(pick(values, (i, j)) for values in (members, *more)))
        for i in range(n_problems)
        for j in range(n_members)
    ]


def joined(plan: Plan, results: list[Any], n_problems: int) -> Any:
    """Results of all parts, with leading axes problem and member again."""
    if not plan.in_turn:
        return jax.tree.map(np.asarray, results[0])

    def join(*values: Any) -> NDArray[Any]:
        return np.stack([np.asarray(v) for v in values]).reshape(n_problems, -1, *values[0].shape)

    return jax.tree.map(join, *results)


def on_cores(program: Callable[..., Any], parts: list[Part], compiled: bool) -> list[Any]:
    """The program's answers, part by part; where it is not `compiled`, the first part does that."""
    device = getattr(jax.config, "jax_default_device", None)

    def one(part: Part) -> Any:
        # a thread has a default device of its own
        with jax.default_device(device):
            return jax.block_until_ready(program(*part))

    alone = 0 if compiled else 1
    done = [one(part) for part in parts[:alone]]
    with ThreadPoolExecutor(n_cores()) as threads:
        done += threads.map(one, parts[alone:])
    return done


def n_cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
