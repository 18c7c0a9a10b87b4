import pytest
from typer.testing import CliRunner

from paper import quick
from paper.cli import app
from paper.comparison import compare, published
from paper.experiments import EXPERIMENTS, STUDIES, Experiment, current_records
from paper.model_size import count_stored_numbers
from paper.records import Records, Trial


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def current_trials(n_splits):
    """Return the trials of T5 on TF, split by split."""
    return [STUDIES["forests"].trials("modern", "TF", split) for split in range(n_splits)]


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A folder for results, where no data file and no network is available."""
    monkeypatch.setenv("TWINNED_DATA", str(tmp_path))
    monkeypatch.setenv("TWINNED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("twinned.datasets.registry.BASE_URL", "http://127.0.0.1:9/")
    return tmp_path / "results"


def test_list_has_every_experiment_and_variant(tmp_path):
    lines = run("list", "--results", str(tmp_path)).stdout.splitlines()
    rows = [line.split("  ") for line in lines]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    found = {row[1]: row[3] for row in cells if len(row) == 4 and row[1] in EXPERIMENTS}
    assert list(found) == list(EXPERIMENTS)
    for key, splits in found.items():
        counts = dict(own.split(" ") for own in splits.split(", "))
        assert tuple(counts) == EXPERIMENTS[key].variants
        assert set(counts.values()) <= {"0/1", "0/25"}


def test_experiments_are_in_the_order_of_the_paper():
    items = [experiment.item for experiment in EXPERIMENTS.values()]
    for kind in ("figure", "table"):
        own = [item for item in items if item.startswith(kind)]
        assert own == sorted(own)
    assert len(items) == 16


def test_the_quick_run_shows_now_recorded_and_printed(empty, monkeypatch):
    monkeypatch.setattr("paper.quick.DATASETS", {"T5": "TF"})
    monkeypatch.setattr("paper.cli.DATASETS", {"T5": "TF"})
    for study, trials in quick.quick_trials().items():
        for trial in trials:
            Records(empty).write(trial, {trial.settings["search"]: 0.125}, 0.0)
        assert study == "forests"
    result = run("quick", "--results", str(empty))
    assert result.exit_code == 0, result.stderr
    (recorded,) = (
        record["result"]["rf"]
        for record in Records("paper/results").read("forests", "as_published")
        if "rf" in record["result"]
        and (record["config"]["dataset"], record["config"]["split"]) == ("TF", 0)
    )
    assert f"{recorded:.6g}" in result.stdout
    assert "0.125" in result.stdout
    assert "0.1402" in result.stdout  # table 5 of the paper


KNN = Experiment("N", "study", "k-NN", ("neighbors",))  # the others would take minutes


def test_run_without_data_files_names_them_and_runs_the_formula(empty, monkeypatch):
    monkeypatch.setattr("paper.cli.EXPERIMENTS", {"N": KNN})
    call = ["run", "N", "--variant", "modern", "--splits", "2", "--results", str(empty)]
    result = run(*call)
    assert result.exit_code == 0, result.stderr
    missing = [line for line in result.stderr.splitlines() if "is skipped" in line]
    assert len(missing) == 8
    assert all("TWINNED_DATA" in line for line in missing)
    records = Records(empty).read("neighbors", "modern")
    found = [(record["config"]["dataset"], record["config"]["split"]) for record in records]
    assert sorted(found) == [("TF", 0), ("TF", 1)]
    # a second run has nothing to do
    run(*call)
    assert Records(empty).read("neighbors", "modern") == records


def test_show_compares_with_the_published_values(tmp_path):
    records = Records(tmp_path)
    for (trial, _), error in zip(current_trials(2), [0.08, 0.10], strict=True):
        records.write(trial, {"rf": 0.1402, "twinned_rf": error}, 0.0)
    # a record of other settings is ignored
    records.write(Trial("forests", "modern", "TF", 0, {"trees": 1}), {"twinned_rf": 99.0}, 0.0)
    found = {"forests": current_records(records, "forests", "modern")}
    table = compare("T5", EXPERIMENTS["T5"].table(found)).set_index("method")
    theirs = published().query("table == 'T5' and dataset == 'TF'").set_index("method")
    assert table.loc["twinned_rf", "rmse"] == pytest.approx(0.09)
    assert table.loc["twinned_rf", "error"] == pytest.approx(0.01 / 2**0.5)
    assert table.loc["rf", "published"] == theirs.loc["rf", "rmse"]
    assert table.loc["rf", "ratio"] == pytest.approx(0.1402 / theirs.loc["rf", "rmse"])
    assert not table.loc["rf", "far"]
    shown = run("show", "T5", "--variant", "modern", "--results", str(tmp_path)).stdout
    assert "| TF | 0.1402" in shown
    assert set(table.index) == {"rf", "twinned_rf"}


def test_a_large_difference_is_marked(tmp_path):
    for (trial, _), error in zip(current_trials(2), [0.20, 0.21], strict=True):
        Records(tmp_path).write(trial, {"rf": error}, 0.0)
    assert "⚠" in run("show", "T5", "--variant", "modern", "--results", str(tmp_path)).stdout


def test_all_skips_experiments_without_that_variant(empty, monkeypatch):
    # one experiment with the variant and one without
    monkeypatch.setattr("paper.cli.EXPERIMENTS", {"V": EXPERIMENTS["V"], "N": KNN})
    result = run("run", "all", "--variant", "as_written", "--splits", "1",
                 "--datasets", "TF", "--results", str(empty))  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert len(Records(empty).read("neighbors", "as_written")) == 1
    assert not list(empty.rglob("*decomposition*"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run", "T99"), ("T99", "T5")),
        (("run", "T5", "--variant", "best"), ("best", "'as_published', 'modern', 'as_written'")),
        (("show", "T5"), ("no records of T5", "python -m paper run T5 --variant as_published")),
        (("show", "F"), ("no records of F", "python -m paper run F --variant as_published")),
        (("show", "T5", "--variant", "best"), ("best",)),
    ],
)
def test_bad_input_is_reported_in_one_line(tmp_path, arguments, expected):
    result = run(*arguments, "--results", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    for text in expected:
        assert text in result.stderr


@pytest.mark.parametrize("n_frequencies", [pytest.param(0, marks=pytest.mark.slow), 16])
def test_stored_numbers_are_those_of_fitted_models(n_frequencies):
    """The formula against the arrays of fitted models."""
    import numpy as np

    from twinned.neural import NeuralRegressor, NeuralTraining, TwinNeuralRegressor

    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(20, 12)), rng.normal(size=20)  # 12: no column is padded
    training = NeuralTraining(max_steps=1, n_folds=1, selection="mean")
    training.set_params(embedding=1.0 if n_frequencies else None)
    plain = NeuralRegressor(n_members=3, training=training, random_state=0).fit(X, y)
    twin = TwinNeuralRegressor(n_members=1, training=training, random_state=0).fit(X, y)
    n_plain = sum(value.size for value in plain._parameters.values())
    n_twin = sum(value.size for value in twin._parameters.values())
    assert count_stored_numbers(3, 12, n_frequencies)[0] == n_plain
    assert count_stored_numbers(20, 12, n_frequencies)[1] == n_twin + 20 * 13


def test_a_storage_run_measures_saved_models(empty, monkeypatch):
    monkeypatch.setattr("paper.model_size.MEASURED_SIZES", (1, 2))
    result = run("run", "F", "--variant", "modern", "--results", str(empty))
    assert result.exit_code == 0, result.stderr
    (record,) = Records(empty).read("storage", "modern")
    (one, twin), (two, _) = record["result"]["bytes"]
    assert one < two
    assert one < twin
