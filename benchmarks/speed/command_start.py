"""Processor seconds of `twinned predict` for five rows, beside `import sklearn`.

Each command runs in new processes, in turns, so that other work on the machine slows all of them.
A random forest of 100 trees is twinned on 100 rows, and the default twin on the same rows. Writes
`benchmarks/results/command_start.md`.

    python -m benchmarks.speed.command_start
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import frame

IMPORT = [sys.executable, "-c", "import sklearn.ensemble"]
TWINNED = [sys.executable, "-m", "twinned.app.cli"]


def measure_seconds(command):
    """Return the processor seconds of a command in a new process, and the elapsed ones."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system, after.elapsed - before.elapsed


def save_models(folder):
    """Save a twinned forest and a default twin; return their paths, and that of five rows."""
    from sklearn.ensemble import RandomForestRegressor

    from twinned import TwinRegressor, save
    from twinned.datasets import make_wsb
    from twinned.persistence.archive import write_atomically

    X, y = make_wsb(105, random_state=0)
    write_atomically(folder / "five.csv", X.iloc[100:].to_csv(index=False).encode())
    bases = {"forest": RandomForestRegressor(100, min_samples_leaf=2), "default": None}
    for name, base in bases.items():
        save(TwinRegressor(base, random_state=0).fit(X[:100], y[:100]), folder / f"{name}.twin")
    return [folder / f"{name}.twin" for name in bases], folder / "five.csv"


def main():
    arguments = frame.parse_arguments(__doc__, repetitions=5)
    with tempfile.TemporaryDirectory() as folder:
        (forest, default), table = save_models(Path(folder))
        commands = {
            "`import sklearn.ensemble`": IMPORT,
            "`twinned --version`": [*TWINNED, "--version"],
            "`twinned predict`, default twin": [*TWINNED, "predict", default, table],
            "`twinned predict`, twinned forest": [*TWINNED, "predict", forest, table],
        }
        megabytes = forest.stat().st_size / 1e6
        runs = [
            {name: measure_seconds(command) for name, command in commands.items()}
            for _ in range(arguments.repetitions)
        ]
    used, elapsed = (
        {name: min(run[name][clock] for run in runs) for name in commands} for clock in (0, 1)
    )
    unit = used["`import sklearn.ensemble`"]
    rows = [
        [name, f"{used[name]:.2f}", f"{used[name] / unit:.2f}", f"{elapsed[name]:.2f}"]
        for name in commands
    ]
    header = " | processor seconds | ratio to `import sklearn.ensemble` | elapsed seconds"
    lines = [
        "# The start of the command line: five rows, from the start of the process",
        "",
        f"The least of {arguments.repetitions} runs in turns. The file of the forest has "
        f"{megabytes:.0f} MB. Times are of a shared machine: read them as ratios. Elapsed seconds "
        "include the waiting for other programs. Made by `python -m "
        "benchmarks.speed.command_start`.",
        "",
        *frame.markdown_table(header, rows),
    ]
    frame.write_markdown(frame.RESULTS / "command_start.md", lines)


if __name__ == "__main__":
    main()
