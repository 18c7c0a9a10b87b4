"""Install a wheel with each extra into an empty environment, and run every command there.

A command that needs an extra must work where the extra is installed, and elsewhere must end with
exit code 2 and one line that names the extra. Standard library only.

    python .ci/test_wheel.py build/dist/twinned-0.1.0-py3-none-any.whl            # all extras
    python .ci/test_wheel.py build/dist core onnx  # the wheel in a folder
"""

import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = "core"  # the package without extras
# extra → the parts of the command line that need it; others are for developers
EXTRAS = {
    CORE: set(),
    "boost": {"boost"},
    "chem": {"rdkit"},
    "cuda": set(),  # several GB; without a GPU, networks are trained on the CPU
    "dask": {"dask", "parquet"},
    "excel": {"excel"},
    "onnx": {"onnx"},
    "parquet": {"parquet"},
    "serve": {"serve"},
}
COMMANDS = ["advise", "fit", "predict", "explain", "query", "export", "serve", "datasets"]

LIGHTGBM = """
import numpy as np
from lightgbm import LGBMRegressor
from twinned import AutoTwinRegressor
X = np.random.RandomState(0).uniform(size=(40, 2))
member = ("lightgbm", LGBMRegressor(verbosity=-1))
AutoTwinRegressor(members=[member], cv=3).fit(X, X[:, 0]).predict(X)
"""
WRITE_TABLES = """
import sys
import pandas as pd
rows = pd.read_csv("new.csv")
rows.to_excel("new.xlsx", index=False) if "excel" in sys.argv else None
rows.to_parquet("new.parquet") if "parquet" in sys.argv else None
"""


# without PYTHONPATH: the wheel is tested, not the source
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Environment:
    """An empty environment with the wheel, and a folder with tables in which commands run."""

    def __init__(self, folder, wheel, extra):
        self.extra, self.provided, self.folder = extra, EXTRAS[extra], folder / "work"
        self.failures = []
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        self.bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        wanted = str(wheel) if extra == CORE else f"{wheel}[{extra}]"
        install = [self.bin / "python", "-m", "pip", "--disable-pip-version-check", "install"]
        subprocess.run(
            [*install, "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", wanted],
            check=True,
            cwd=folder,
        )
        self.folder.mkdir()
        self._write_tables()

    def _write_tables(self):
        generator = random.Random(0)
        rows = [[generator.random(), generator.random()] for _ in range(50)]
        known = [[a, b, a + b * b + 0.05 * generator.random()] for a, b in rows[:40]]
        parts = self.folder / "parts"
        parts.mkdir()
        write_csv(self.folder / "table.csv", ["a", "b", "y"], known)
        write_csv(self.folder / "new.csv", ["a", "b"], rows[40:])
        alkanes = [["C" * n, n**0.5] for n in range(1, 31)]
        write_csv(self.folder / "molecules.csv", ["smiles", "y"], alkanes)
        write_csv(parts / "1.csv", ["a", "b"], rows[40:45])
        write_csv(parts / "2.csv", ["a", "b"], rows[45:])
        # what suffices to ask for the extra; where it is installed, the files are written anew
        (self.folder / "new.xlsx").write_bytes(b"PK\x03\x04")
        (self.folder / "new.parquet").write_bytes(b"PAR1")
        self.execute("python", "-c", WRITE_TABLES, *sorted(self.provided), check=True)

    def execute(self, program, *arguments, **options):
        return subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            **options,
        )

    def check(self, *arguments, needs=None, program="twinned", label=None):
        """Run a command, and note how it fails where it should not."""
        result = self.execute(program, *arguments)
        label = label or " ".join([program, *arguments])
        if needs is None or needs in self.provided:
            self.report(label, result.returncode == 0, result.stderr)
        else:
            lines = [line for line in result.stderr.splitlines() if "error:" in line]
            is_clear = len(lines) == 1 and needs in lines[0] and "Traceback" not in result.stderr
            self.report(f"{label}, refused", is_clear and result.returncode == 2, result.stderr)

    def check_serve(self):
        """Start the service, fetch a page, and stop it."""
        if "serve" not in self.provided:
            self.check("serve", "model.twin", needs="serve")
            return
        process = subprocess.Popen(
            [self.bin / "twinned", "serve", "model.twin", "--port", "0"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        line = ""
        try:
            line = process.stdout.readline()
            with urllib.request.urlopen(f"{line.split()[0]}/about", timeout=60) as answer:
                self.report("twinned serve", answer.status == 200, line)
        except (OSError, IndexError, ValueError) as error:
            self.report("twinned serve", False, f"{line}{error}")
        finally:
            process.terminate()
            process.wait(timeout=60)

    def report(self, label, passed, details):
        print(f"{self.extra:8} {'passed' if passed else 'FAILED'}  {label}", flush=True)
        if not passed:
            print(details, flush=True)
            self.failures.append(f"{self.extra}: {label}")

    def run_all(self):
        self.check("--version")
        self.check("--help")
        for command in COMMANDS:
            self.check(command, "--help")
        self.check("datasets", "list")
        self.check("fit", "table.csv", "--target", "y", "--model", "ridge", "-o", "model.twin")
        self.check("fit", "table.csv", "--target", "y", "--budget", "5s", "-o", "blend.twin")
        self.check("predict", "model.twin", "new.csv", "--std", "-o", "out.csv")
        self.check("predict", "blend.twin", "new.csv", "--interval", "0.8")
        advice = ["--budget", "5s", "--report", "advice.html", "-o", "advised.twin"]
        self.check("advise", "table.csv", "--target", "y", *advice)
        self.check("query", "model.twin", "new.csv", "-n", "2")
        self.check("explain", "model.twin", "new.csv", "-k", "2")
        self.check("fit", "table.csv", "--target", "y", "--model", "twin", "-o", "trees.twin")
        self.check("export", "trees.twin", "-o", "model.h")
        self.check("export", "model.twin", "-o", "model.onnx", needs="onnx")
        self.check("predict", "model.twin", "new.xlsx", needs="excel")
        self.check("predict", "model.twin", "new.parquet", needs="parquet")
        self.check("predict", "model.twin", "parts", "-o", "out")
        smiles = ["--target", "y", "--smiles", "smiles", "--model", "ridge", "-o", "molecules.twin"]
        self.check("fit", "molecules.csv", *smiles, needs="rdkit")
        if "boost" in self.provided:
            self.check("-c", LIGHTGBM, program="python", label="lightgbm in a blend")
        self.check_serve()


def write_csv(path, names, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def main():
    path, extras = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(EXTRAS)
    wheel = path if path.is_file() else next(path.glob("*.whl"))
    failures = []
    for extra in extras:
        folder = Path(tempfile.mkdtemp(prefix=f"twinned-{extra}-"))
        try:
            environment = Environment(folder, wheel, extra)
            environment.run_all()
            failures += environment.failures
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if failures:
        raise SystemExit("\n".join(["failed:", *failures]))
    print(f"all commands work with {', '.join(extras)}")


if __name__ == "__main__":
    main()
