"""How many files and functions of twinned run in a fit and a prediction, each counted once.

`python benchmarks/call_counts.py [--list]`; with `--list`, the functions are printed, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge

import twinned

PACKAGE = str(Path(twinned.__file__).parent)
LIMITS = {"TwinRegressor.fit": (12, 60), "TwinRegressor.predict": (12, 60)}
LIMITS["AutoTwinRegressor.fit"] = 18, 120


def functions_of(call: Callable[[], object]) -> set[tuple[str, str]]:
    """(file, function) of this package that run in a call."""
    seen = set()

    def profile(frame, event, argument):
        code = frame.f_code
        is_function = not code.co_name.startswith("<")  # neither a lambda nor a comprehension
        if event == "call" and is_function and code.co_filename.startswith(PACKAGE):
            seen.add((code.co_filename[len(PACKAGE) + 1 :], code.co_qualname))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def main() -> None:
    rng = np.random.RandomState(0)
    X = rng.normal(size=(40, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=40)
    twin = twinned.TwinRegressor(Ridge())
    blend = twinned.AutoTwinRegressor(members=["ridge"], random_state=0)
    calls = {
        "TwinRegressor.fit": lambda: twin.fit(X, y),
        "TwinRegressor.predict": lambda: twin.predict(X),
        "AutoTwinRegressor.fit": lambda: blend.fit(X, y),
    }
    for name, call in calls.items():
        seen = functions_of(call)
        most_files, most_functions = LIMITS[name]
        n_files = len({file for file, _ in seen})
        print(
            f"{name}: {n_files} files (at most {most_files}), "
            f"{len(seen)} functions (at most {most_functions})"
        )
        if "--list" in sys.argv:
            for file, function in sorted(seen):
                print(f"    {file:40} {function}")


if __name__ == "__main__":
    main()
