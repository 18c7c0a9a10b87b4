"""The common frame of `benchmarks` and `paper`: trials that resume, arguments, tables and files.

An experiment is a list of *trials*, each identified by its settings. A *store* knows which trials
have a result and writes one more: `paper.records.Records` as JSON, `ResultTable` as rows of a CSV
file. `run_pending` runs the trials that have no result yet and writes each result as it arrives,
so that an interrupted experiment continues where it stopped. Several processes may run the same
experiment: each result is stored once.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import nan
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pandas as pd
from joblib import Parallel, delayed

try:
    import fcntl
except ImportError:  # Windows, where only one process may run an experiment
    fcntl = None  # type: ignore[assignment]

from twinned.persistence.archive import write_atomically

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

COLORS = (
    ":root { --paper: #fff; color: #222; background: var(--paper); } text { fill: currentColor; }"
    " @media (prefers-color-scheme: dark) { :root { --paper: #1d2127; color: #e7e6e2; } }"
)

T = TypeVar("T")
Report = Callable[[int, int, Any], None]  # number of finished trials, number of all, the last one
Executor = Callable[[list[T]], Iterable[tuple[T, Any, float]]]  # → (trial, result, seconds)


class Store(Protocol[T]):
    """The results of an experiment."""

    def pending(self, trials: Sequence[T]) -> list[T]:
        """Return the trials that have no result."""

    def write(self, trial: T, result: Any, seconds: float) -> None:
        """Write the result of one trial, whole or not at all."""


def run_pending(
    trials: Iterable[T], store: Store[T], execute: Executor[T], report: Report | None = None
) -> int:
    """Run the trials that have no result and store each result as it arrives.

    Returns the number of trials that were run.
    """
    trials = list(trials)
    pending = store.pending(trials)
    n_finished = len(trials) - len(pending)
    for count, (trial, result, seconds) in enumerate(execute(pending), 1):
        store.write(trial, result, seconds)
        if report is not None:
            report(n_finished + count, len(trials), trial)
    return len(pending)


def in_parallel(function: Callable[..., Any], n_jobs: int = 1) -> Executor[Any]:
    """Return an executor that calls `function(*trial)` for each trial, in `n_jobs` processes."""

    def execute(trials: list[Any]) -> Iterator[tuple[Any, Any, float]]:
        calls = (delayed(_timed_call)(function, trial) for trial in trials)
        yield from Parallel(n_jobs=n_jobs, return_as="generator_unordered")(calls)

    return execute


def _timed_call(function: Callable[..., Any], trial: tuple[Any, ...]) -> tuple[Any, Any, float]:
    start = time.perf_counter()
    result = function(*trial)
    return trial, result, time.perf_counter() - start


def print_progress(finished: int, total: int, trial: Any) -> None:
    """Print one line for a finished trial."""
    print(f"{finished}/{total}:", *trial, flush=True)


class ResultTable:
    """The results of trials as rows of a CSV file.

    Parameters
    ----------
    path : Path
    trial : tuple of str
        The columns that identify a trial, in the order of its values.
    columns : list of str
        All columns in the order of the file, each with the format of its values: "rmse:.6g".
    """

    def __init__(self, path: Path, trial: tuple[str, ...], columns: list[str]) -> None:
        self.path, self.trial = path, trial
        self._formats = dict(column.partition(":")[::2] for column in columns)

    def pending(self, trials: Sequence[Any]) -> list[Any]:
        """Return the trials that have no rows; raise `ValueError` where the file is damaged."""
        finished = set()
        if self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as file:
                try:
                    finished = {
                        _identity(row[name] for name in self.trial) for row in csv.DictReader(file)
                    }
                except (KeyError, TypeError, UnicodeDecodeError, csv.Error) as error:
                    raise ValueError(
                        f"{self.path} is damaged ({type(error).__name__}: {error}); restore it "
                        "from version control, or remove it to run its trials again."
                    ) from None
        return [trial for trial in trials if _identity(trial) not in finished]

    def write(self, trial: Any, result: Any, seconds: float) -> None:
        """Append the rows of one trial, unless another process has done so.

        `result` is a row or a list of rows: dictionaries of columns to values. Columns that a row
        does not have come from the trial; a missing `seconds` is that of the whole trial.
        """
        with lock_folder(self.path.parent):
            if self.pending([trial]):
                self._append(trial, [result] if isinstance(result, dict) else result, seconds)

    def _append(self, trial: Any, rows: list[dict[str, Any]], seconds: float) -> None:
        known = {"seconds": seconds, **dict(zip(self.trial, trial, strict=True))}
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        if not self.path.exists():
            writer.writerow(self._formats)
        for row in rows:
            values = known | row
            writer.writerow([format(values[name], how) for name, how in self._formats.items()])
        before = self.path.read_bytes() if self.path.exists() else b""
        write_file(self.path, before + buffer.getvalue().encode())

    def read(self) -> pd.DataFrame:
        return pd.read_csv(self.path)


def _identity(values: Iterable[Any]) -> tuple[str, ...]:
    """Return comparable texts of a trial's values: 3, 3.0 and "3.0" are the same."""
    texts = []
    for value in values:
        try:
            texts.append(f"{float(value):g}")
        except ValueError:
            texts.append(str(value))
    return tuple(texts)


@dataclass(frozen=True)
class Benchmark:
    """A table of trials: their command line, how they are run, and the page of the results.

    The trials are all combinations of the values of some axes, each of which is an option of the
    command line: the axis "dataset" is `--datasets`. Results are rows of
    `benchmarks/results/<name>.csv`, and `summary` writes the page beside it.

    Parameters
    ----------
    name : str
        Of the results.
    description : str
        The docstring of the module, whose first line describes the command.
    columns : list of str
        Those of `ResultTable`.
    trial : tuple of str
        The columns that identify a trial, in the order of the arguments of `run`.
    run : callable (*trial, **options) → row or rows, default=None
        Runs one trial, in one of `--jobs` processes.
    execute : callable (trials, jobs) → iterator of (trial, result, seconds), default=None
        Runs all trials, where these share a program.
    summary : callable (DataFrame) → list of str, default=None
        The lines of the page; None: there is no page.
    axes : dict of str to list or int, default={}
        The values of each column of a trial, in the order of the loops, the outermost first; an
        integer n stands for 0 to n − 1.
    is_trial : callable (*trial) → bool, default=None
        Which combinations are trials; None: all.
    trials : list of tuple, default=None
        The trials, where they are no combinations.
    options : dict, default={}
        Further options of the command line and their defaults; they are passed to `run`.
    block : (Path, str), default=None
        A page of the documentation and the name of its block that `--page` replaces by the lines
        of `summary` after the first four.
    """

    name: str
    description: str | None
    columns: list[str]
    trial: tuple[str, ...]
    run: Callable[..., Any] | None = None
    execute: Callable[..., Any] | None = None
    summary: Callable[[pd.DataFrame], list[str]] | None = None
    axes: dict[str, Any] = field(default_factory=dict)
    is_trial: Callable[..., bool] | None = None
    trials: list[Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    block: tuple[Path, str] | None = None

    def main(self) -> None:
        """Run the trials that have no result yet, and write the page."""
        arguments = parse_arguments(
            self.description,
            **{plural(axis): values for axis, values in self.axes.items()},
            **self.options,
            jobs=1,
            merge=str,
            only_table=False,
            page=False,
            output=RESULTS / f"{self.name}.csv",
        )
        table = ResultTable(arguments.output, self.trial, self.columns)
        for path in arguments.merge:
            for trial, rows in pd.read_csv(path).groupby(list(self.trial), sort=False):
                table.write(trial, rows.to_dict("records"), nan)  # each row has its seconds
        if not arguments.only_table:
            trials = self._trials(arguments)
            run_pending(trials, table, self._executor(arguments), print_progress)
        if self.summary is not None:
            lines = self.summary(table.read())
            write_markdown(table.path.with_suffix(".md"), lines)
            if self.block is not None and arguments.page:
                replace_block(*self.block, lines[4:])

    def _trials(self, arguments: argparse.Namespace) -> list[Any]:
        if self.trials is not None:
            return self.trials
        values = [getattr(arguments, plural(axis)) for axis in self.axes]
        loops = [range(own) if isinstance(own, int) else own for own in values]
        places = [list(self.axes).index(column) for column in self.trial]
        trials = [tuple(point[place] for place in places) for point in product(*loops)]
        return [own for own in trials if self.is_trial is None or self.is_trial(*own)]

    def _executor(self, arguments: argparse.Namespace) -> Executor[Any]:
        if arguments.jobs > 1:
            os.environ["OMP_NUM_THREADS"] = "1"  # of each process
        if self.execute is not None:
            return partial(self.execute, jobs=arguments.jobs)
        assert self.run is not None
        options = {name: getattr(arguments, name) for name in self.options}
        return in_parallel(partial(self.run, **options), arguments.jobs)


def plural(axis: str) -> str:
    """Return the option of an axis.

    >>> plural("dataset"), plural("rows")
    ('datasets', 'rows')
    """
    return axis if axis.endswith("s") else f"{axis}s"


def parse_arguments(docstring: str | None, **defaults: Any) -> argparse.Namespace:
    """Parse the command line of a benchmark.

    Each keyword becomes an option of the type of its default: a list takes several values, a type
    takes several values of it and has none by default, False is a switch.
    """
    parser = argparse.ArgumentParser(description=(docstring or "").splitlines()[0])
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(option, nargs="*", type=default, default=[])
        elif isinstance(default, list):
            parser.add_argument(option, nargs="*", type=type(default[0]), default=default)
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser.parse_args()


def run_in_subprocess(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what a function of a module returns in a process of its own.

    Arguments and result travel as JSON. `options` are those of `subprocess.run`.
    """
    module = sys.modules[function.__module__].__spec__
    assert module is not None, "run the module with python -m"
    code = (
        "import json, sys\nfrom importlib import import_module\n"
        "module, name, arguments = json.loads(sys.argv[1])\n"
        "print(json.dumps(getattr(import_module(module), name)(*arguments)))"
    )
    call = json.dumps([module.name, function.__name__, arguments])
    environment = options.pop("env", os.environ)
    paths = [str(ROOT), environment.get("PYTHONPATH", "")]
    environment = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    run = subprocess.run(
        [sys.executable, "-c", code, call],
        capture_output=True,
        text=True,
        env=environment,
        **options,
    )
    if run.returncode:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def markdown_table(header: Sequence[str] | str, rows: Iterable[Sequence[str] | str]) -> list[str]:
    """Return the lines of a Markdown table; a row is a list of cells, or these joined by " | ".

    >>> markdown_table(["", "rmse"], [["TF", "0.1"], "YH | 0.2"])
    ['| | rmse |', '|---|---|', '| TF | 0.1 |', '| YH | 0.2 |']
    """
    lines = []
    for row in (header, *rows):
        lines.append(f"| {row if isinstance(row, str) else ' | '.join(row)} |")
    lines[0] = lines[0].replace("|  |", "| |")
    return [lines[0], "|---" * (lines[0].count("|") - 1) + "|", *lines[1:]]


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Context that one process at a time enters for a folder, which is created.

    The lock is the system's, so none remains of a process that was killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_markdown(path: Path, lines: Sequence[str]) -> None:
    """Write a page and print it."""
    text = "\n".join([*lines, ""])
    write_file(path, text.encode())
    print(text)


def replace_block(path: Path, name: str, lines: Sequence[str]) -> None:
    """Write lines between the marks `<!-- name:begin -->` and `<!-- name:end -->` of a page."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, _, rest = path.read_text("utf-8").partition(begin)
    text = "\n".join([begin, "", *lines, "", end])
    write_file(path, (before + text + rest.partition(end)[2]).encode())


def write_figure(path: Path, figure: Any, **options: Any) -> None:
    """Write a matplotlib figure in the format of the suffix; `options` are those of `savefig`.

    An SVG has the light or dark colors that the reader prefers.
    """
    import matplotlib as mpl

    buffer, is_svg = io.BytesIO(), path.suffix == ".svg"
    if is_svg:
        options |= {"transparent": True, "metadata": {"Date": None}}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}):
        figure.savefig(buffer, format=path.suffix[1:], **options)
    content = buffer.getvalue()
    if is_svg:
        content = content.replace(b"#000000", b"currentColor").replace(b"#ffffff", b"var(--paper)")
        content = content.replace(b"</defs>", f"<style>{COLORS}</style></defs>".encode(), 1)
    write_file(path, content)


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, in a folder that need not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
