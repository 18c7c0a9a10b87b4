"""Files that a fit and a prediction enter, their calls, and switches between files.

How much code a reader has to follow: each call of a named function of the package is counted, and
how often it is in another file than the one before.

    python -m benchmarks.speed.calls           # half a minute
    python -m benchmarks.speed.calls --trace   # prints the calls, indented by their depth

Results: `benchmarks/results/calls.md`.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge

import twinned
from benchmarks import frame
from twinned import AutoTwinRegressor, TwinRegressor

PACKAGE = Path(twinned.__file__).parent


def trace(action):
    """Return the (depth, file, function) of all calls of the package, in their order."""
    calls, depth = [], 0

    def profile(stack_frame, event, _):
        nonlocal depth
        code = stack_frame.f_code
        path = Path(code.co_filename)
        if code.co_name.startswith("<") or not path.is_relative_to(PACKAGE):
            return
        if event == "call":
            calls.append((depth, path.relative_to(PACKAGE).as_posix(), code.co_qualname))
            depth += 1
        elif event == "return":
            depth -= 1

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def actions():
    """Return what is traced by its name; a first fit has imported all that it needs."""
    rng = np.random.RandomState(0)
    X, batch = rng.normal(size=(60, 3)), np.repeat(list("abc"), 20)
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    with_offsets = y + np.repeat([-3.0, 0.0, 3.0], 20)
    twin = TwinRegressor(Ridge()).fit(X, y)
    blend = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X, y)
    batched = AutoTwinRegressor(members=["ridge"], random_state=0)
    batched.fit(X, with_offsets, batch=batch)
    rows = {"X": X[:5], "batch": batch[:5]}
    twin.predict(X), batched.predict_interval(**rows)
    return {
        "`TwinRegressor(Ridge()).fit`": lambda: twin.fit(X, y),
        '`AutoTwinRegressor(members=["ridge"]).fit`': lambda: blend.fit(X, y),
        "`predict` of one row, the first after a fit": lambda: twin.predict(X[:1]),
        "`predict_interval` of a blend with batches": lambda: batched.predict_interval(**rows),
    }


def row(name, calls):
    """Return the cells of a table: the files entered, the calls, and the switches."""
    files = [file for _, file, _ in calls]
    switches = sum(first != second for first, second in pairwise(files))
    return [name, str(len(set(files))), f"{len(calls):,}", f"{switches:,}"]


def main():
    traces = {name: trace(action) for name, action in actions().items()}
    if "--trace" in sys.argv:
        for name, calls in traces.items():
            print(name, *("  " * (depth + 1) + f"{a} {b}" for depth, a, b in calls), sep="\n")
    lines = [
        "# Calls of fits and predictions",
        "",
        "Files of the package that are entered, calls of its named functions, and switches between "
        "files, for 60 rows of 3 features. Made by `python -m benchmarks.speed.calls`.",
        "",
        *frame.markdown_table(
            ["", "files", "calls", "switches"], [row(*item) for item in traces.items()]
        ),
    ]
    frame.write_markdown(frame.RESULTS / "calls.md", lines)


if __name__ == "__main__":
    main()
