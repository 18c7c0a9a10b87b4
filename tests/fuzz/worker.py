"""A process that loads and uses mutated model files, one after another, with a memory limit.

Usage: `python -m tests.fuzz.worker FOLDER NAME …`. It reads lines `name seed focus` from its input
and prints an outcome for each, by which its parent detects crashes and hangs.
"""

import os
import random
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import twinned
from tests.fuzz.models import queries
from tests.fuzz.mutations import mutate
from twinned.exceptions import IntegrityError
from twinned.models import marginal_likelihood
from twinned.models.trees import predictor
from twinned.persistence.archive import read_zip

MEMORY_LIMIT = 500_000_000
MAX_SECONDS = 10.0  # of processor time, for one file
CLEAR_ERRORS = (ValueError, TypeError, AttributeError)


def uses(model: Any, name: str, path: Path) -> list[Callable[[], Any]]:
    """Return all ways to use a model."""
    X, y = queries(name)
    if hasattr(model, "regressor_"):
        # the exponential of a transformed target may overflow
        inner = model.regressor_.predict
        return [lambda: inner(X), lambda: [model.predict(X)], lambda: twinned.save(model, path)]
    found = [lambda: model.predict(X)]
    if "return_std" in type(model).predict.__code__.co_varnames:
        found.append(lambda: model.predict(X, return_std=True))
    if hasattr(model, "predict_anchors"):
        found += [
            lambda: model.predict_interval(X, 0.8),
            # all other cases have no distance
            lambda: model.explain(X, 2).drop(columns="distance"),
            lambda: model.add_anchors(X, y).predict(X),
            lambda: model.predict_difference(X, X[::-1]),
            lambda: model.predict_members(X),
            lambda: model.predict_anchors(X),
            lambda: model.loop_inconsistency(X, n_loops=4, random_state=0),
            lambda: model.feature_relevance_,
        ]
    twin = getattr(model, "twin_", model)
    if hasattr(twin, "prepare_fast_path"):
        found += [twin.prepare_fast_path, lambda: model.predict(X)]
    return [*found, lambda: twinned.save(model, path)]


def try_file(name: str, data: bytes, path: Path) -> str:
    """Return what happened: refused, used, or a fault."""
    path.write_bytes(data)
    try:
        model = twinned.load(path)
    except IntegrityError as error:
        return "fault: memory" if "MemoryError" in str(error) else "refused"
    outcome = "used"
    for use in uses(model, name, path):
        try:
            result = use()
        except CLEAR_ERRORS as error:
            if not str(error):
                return f"fault: {type(error).__name__} without a message"
            outcome = "used with errors"
            continue
        except Exception as error:
            return f"fault: {type(error).__name__}: {error}".replace("\n", " ")
        parts = result if isinstance(result, tuple) else [result]
        if type(model).__module__.startswith("twinned.") and not all(map(_is_finite, parts)):
            return "fault: a result is not finite"
    return outcome


def _is_finite(result: Any) -> bool:
    if isinstance(result, pd.DataFrame):
        result = result.to_numpy(dtype=float)
    return not isinstance(result, np.ndarray) or bool(np.isfinite(result).all())


def limit_memory() -> None:
    """Limit the memory of this process to `MEMORY_LIMIT` more than it has now."""
    status = Path("/proc/self/status").read_text().splitlines()
    (used,) = (int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY_LIMIT, hard))


def main(folder: Path, names: list[str]) -> None:
    # a stored `verbose` may print, so outcomes have a channel of their own
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    predictor.MIN_WORK = 0  # use the compiled kernel for any number of pairs
    marginal_likelihood._START_STEPS = marginal_likelihood._MOST_STEPS = 2
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    np.seterr(all="ignore")
    path = folder / f"mutated-{id(object())}.twin"
    files = {name: (folder / f"{name}.twin").read_bytes() for name in names}
    members = {name: read_zip(data) for name, data in files.items()}
    for name, data in files.items():  # loads and compiles what valid models need
        assert try_file(name, data, path).startswith("used"), try_file(name, data, path)
    limit_memory()
    print("ready", file=channel, flush=True)
    for line in sys.stdin:
        name, seed, focus = line.split()
        rng = random.Random(f"{name} {seed} {focus}")
        data = mutate(members[name], rng, None if focus == "-" else focus)
        start = time.process_time()
        outcome = try_file(name, data, path)
        seconds = time.process_time() - start
        outcome = outcome if seconds < MAX_SECONDS else f"fault: {seconds:.0f} seconds"
        print(outcome, file=channel, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
