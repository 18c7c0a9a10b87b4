"""A training run on whatever there is: all members at once, or in turn on each core.

A GPU is filled by all members as one batch. On a processor a batch falls out of the cache at every
layer, so members train one after another, and each core has its own share of them.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from twinned.neural.network import Parameters
from twinned.neural.training import Member, Plan, Problem, State, advance, start


class Run:
    """Members of some problems between two checks.

    `schedule` is (steps between checks, steps in all).
    """

    def __init__(
        self, plan: Plan, problems: Problem, members: Member, schedule: tuple[int, int]
    ) -> None:
        self._parts = _parts(members, n_cores() if plan.in_turn else 1)
        self._states = [start(plan, problems, part) for part in self._parts]
        self._plan, self._problems = plan, problems
        self._schedule = np.array(schedule, np.int32)

    def advance(self, check: int) -> NDArray[Any]:
        """Train up to the next check: (problem, member) errors there."""
        device = getattr(jax.config, "jax_default_device", None)

        def one(part: Member, state: State) -> Any:
            # a thread has a default device of its own
            with jax.default_device(device):
                moved = advance(
                    self._plan, self._problems, part, state, np.int32(check), self._schedule
                )
                return jax.block_until_ready(moved)

        # the first part compiles for all
        alone = 1 if check == 0 else 0
        done = [one(self._parts[i], self._states[i]) for i in range(alone)]
        with ThreadPoolExecutor(len(self._parts)) as threads:
            done += threads.map(one, self._parts[alone:], self._states[alone:])
        self._states = [state for state, _ in done]
        return np.concatenate([np.asarray(error) for _, error in done], axis=1)

    @property
    def best(self) -> Parameters:
        """The best weights of each member so far; leading axes problem and member."""
        own = [state.best for state in self._states]
        return jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *own)


def n_cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parts(members: Member, most: int) -> list[Member]:
    """Members in as many parts of one size, and so of one program, as there may be."""
    n_members = members.key.shape[1]
    n_parts = max(n for n in range(1, min(most, n_members) + 1) if n_members % n == 0)
    size = n_members // n_parts
    return [
        Member(*(field[:, low : low + size] for field in members))
        for low in range(0, n_members, size)
    ]
