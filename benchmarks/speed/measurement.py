"""Measurements that several benchmarks share: memory, matrix products, training steps."""

import os
import resource
import time

import numpy as np


def peak_megabytes():
    """Return the peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def use_cores(n_cores):
    """Restrict this process to the last cores and return the clock to time it by.

    On one core that is processor time, which other programs do not lengthen.
    """
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-n_cores:]))
    return time.process_time if n_cores == 1 else time.perf_counter


def product_rate(clock, seconds):
    """Return the operations per second of numpy's float32 product of 1024 × 1024 matrices."""
    square = np.random.RandomState(0).uniform(size=(1024, 1024)).astype(np.float32)
    square @ square
    start, count = clock(), 0
    while clock() - start < seconds:
        square @ square
        count += 1
    return count * 2 * 1024**3 / (clock() - start)


def training_loops(estimator, X, y, lengths):
    """Return the training loop of a neural twin, once for each number of steps between checks.

    A loop has `advance(check)`. The loop is internal to the estimator: `fit` also prepares the
    rows and selects members, which a measurement of one step must not include.
    """
    from twinned.models.neural.fitting import training_config
    from twinned.models.neural.problem import build_problem
    from twinned.models.neural.training_run import EnsembleMember, TrainingRun, stack_problems

    problem = build_problem(estimator, X, y)
    settings = problem.options.settings
    config = training_config([problem], settings)
    own = [EnsembleMember(settings[i % len(settings)], 0, i) for i in range(estimator.n_members)]
    problems, members = stack_problems([problem], [own], config.shape.n_features)
    return [TrainingRun(config, problems, members, (steps, 10**6), n_jobs=-1) for steps in lengths]
