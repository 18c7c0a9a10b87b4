"""The frame of resumable experiments, and the committed results of the benchmarks."""

import sys
import time
from importlib import import_module

import pytest

from benchmarks import frame
from tests.paper import processes
from tests.paper.processes import BENCHMARK_TRIALS, make_table, run_trial


def test_finished_trials_are_not_repeated(tmp_path):
    table, reports = make_table(tmp_path), []
    trials = [(key, model) for key in ("TF", "YH") for model in ("twin", "plain")]
    execute = frame.in_parallel(run_trial)
    assert frame.run_pending(trials[:1], table, execute) == 1
    n_run = frame.run_pending(trials, table, execute, lambda *call: reports.append(call))
    assert n_run == 3
    assert reports[0] == (2, 4, trials[1])
    assert frame.run_pending(trials, table, execute) == 0
    lines = table.path.read_text().splitlines()
    assert lines[:2] == ["dataset,model,seed,rmse,seconds", "TF,twin,0,0.333333,0.5"]
    assert len(lines) == 9


def test_rows_complete_and_override_the_values_of_the_trial(tmp_path):
    table = make_table(tmp_path)
    table.write(("TF", "twin"), {"seed": 0, "rmse": 1.0}, seconds=2.0)
    table.write(("YH", "twin"), [{"model": "plain", "seed": 0, "rmse": 1.0}], seconds=3.0)
    assert table.read().to_numpy().tolist() == [["TF", "twin", 0, 1, 2], ["YH", "plain", 0, 1, 3]]


def test_equal_numbers_identify_the_same_trial(tmp_path):
    table = frame.ResultTable(tmp_path / "t.csv", ("dataset", "scale"), ["dataset", "scale", "x"])
    table.path.write_bytes(b"dataset,scale,x\r\nTF,3.0,1\r\n")
    assert table.pending([("TF", 3), ("TF", 0.3), ("YH", 3.0)]) == [("TF", 0.3), ("YH", 3.0)]


def test_a_killed_benchmark_leaves_whole_trials_only(tmp_path):
    table = make_table(tmp_path)
    with processes.start("run_benchmark", tmp_path) as process:
        deadline = time.monotonic() + 100
        while len(table.pending(BENCHMARK_TRIALS)) > 1990 and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
    runs = table.read()
    assert 10 <= runs["dataset"].nunique() < 2000
    assert (runs.groupby("dataset").size() == 2).all()


def test_options_have_the_types_of_their_defaults(monkeypatch):
    command = "b --models a b --seeds 3 --only-table --share 0.5 --scales 1 2"
    monkeypatch.setattr(sys, "argv", command.split())
    arguments = frame.parse_arguments(
        "Title.", models=["c"], seeds=1, only_table=False, share=1.0, scales=float, sizes=[4]
    )
    assert vars(arguments) == {
        "models": ["a", "b"], "seeds": 3, "only_table": True, "share": 0.5,
        "scales": [1.0, 2.0], "sizes": [4],
    }  # fmt: skip


@pytest.mark.slow
def test_a_function_is_called_in_a_process_of_its_own():
    rows = frame.run_in_subprocess(frame.markdown_table, ["a"], ["1"])
    assert rows == ["| a |", "|---|", "| 1 |"]
    with pytest.raises(RuntimeError, match="TypeError"):
        frame.run_in_subprocess(frame.markdown_table, ["a"])


def test_results_of_other_files_are_added_and_a_block_of_a_page_is_written(tmp_path, monkeypatch):
    """The trials that are there remain; nothing is run with `--only-table`."""
    (tmp_path / "b.csv").write_text("seed,x,seconds\n0,1,5\n")
    (tmp_path / "other.csv").write_text("seed,x,seconds\n0,7,6\n1,2,6\n1,3,6\n")
    page = tmp_path / "page.md"
    page.write_text("before <!-- own:begin --> old <!-- own:end --> after")
    benchmark = frame.Benchmark(
        "b",
        "A benchmark.",
        ["seed", "x", "seconds"],
        ("seed",),
        summary=lambda runs: ["title", "", "text", "", f"{runs['x'].sum()} in {len(runs)} rows"],
        axes={"seed": 2},
        block=(page, "own"),
    )
    command = ["b", "--only-table", "--page", "--merge", str(tmp_path / "other.csv")]
    monkeypatch.setattr(sys, "argv", [*command, "--output", str(tmp_path / "b.csv")])
    benchmark.main()
    assert (tmp_path / "b.csv").read_text().splitlines()[1:] == ["0,1,5", "1,2,6", "1,3,6"]
    block = "<!-- own:begin -->\n\n6 in 3 rows\n\n<!-- own:end -->"
    assert page.read_text() == f"before {block} after"


# Trials of default options that the committed files do not have: `anchor_weights` ran one split of
# most sets, `active_learning` two of the ways to choose, `accuracy_neural` one effort of plain
# networks, `uncertainty` 16 splits of the tree twin, and `batches` and
# `real_batches` not all models on all tables.
INCOMPLETE = {
    "accuracy_neural", "active_learning", "anchor_weights", "batches", "budgets", "real_batches",
    "standard_splits", "uncertainty",
}  # fmt: skip
BENCHMARKS = [
    f"benchmarks.{folder}.{name}"
    for folder, names in {
        "accuracy": [
            "accuracy_auto",
            "accuracy_neural",
            "accuracy_trees",
            "advice",
            "budgets",
            "standard_splits",
        ],
        "anchors": ["anchor_weights"],
        "batches": ["batches", "new_batches", "real_batches"],
        "intervals": ["loop_uncertainty", "outside", "uncertainty"],
        "labels": ["active_learning", "relabelled_networks"],
        "speed": ["forest_times"],
    }.items()
    for name in names
]
BENCHMARKS += [
    f"paper.{name}"
    for name in ("dropout_members", "formulas", "larger_ensembles", "multiplier", "other_models")
]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_committed_results_are_complete_and_agree_with_their_page(name, monkeypatch):
    module, pages, pending = import_module(name), {}, []

    def collect_pending(trials, store, execute, report=None):
        pending.extend(store.pending(list(trials)))
        return 0

    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.setattr(frame, "run_pending", collect_pending)
    monkeypatch.setattr(frame, "write_markdown", pages.__setitem__)
    module.BENCHMARK.main()
    assert bool(pending) == (name.rpartition(".")[2] in INCOMPLETE)
    for path, lines in pages.items():
        assert path.read_text(encoding="utf-8") == "\n".join([*lines, ""])
    assert len(pages) == (module.BENCHMARK.summary is not None)


def test_trials_are_the_combinations_of_the_values_of_the_axes(tmp_path, monkeypatch):
    executed = []

    def run(dataset, seed, *, scale):
        executed.append((dataset, seed, scale))
        return {"x": seed * scale}

    benchmark = frame.Benchmark(
        "b",
        "A benchmark.",
        ["dataset", "seed", "x"],
        ("dataset", "seed"),
        run=run,
        summary=lambda runs: [str(runs["x"].sum())],
        axes={"seed": 3, "dataset": ["TF", "YH"]},
        is_trial=lambda dataset, seed: (dataset, seed) != ("YH", 1),
        options={"scale": 2.0},
    )
    command = ["b", "--seeds", "2", "--scale", "3", "--output", str(tmp_path / "b.csv")]
    monkeypatch.setattr(sys, "argv", command)
    benchmark.main()
    assert executed == [("TF", 0, 3.0), ("YH", 0, 3.0), ("TF", 1, 3.0)]
    assert (tmp_path / "b.md").read_text() == "3.0\n"
