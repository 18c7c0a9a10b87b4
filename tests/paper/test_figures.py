"""Every figure can be drawn from records as its studies write them."""

import pytest

from paper.experiments import EXPERIMENTS, STUDIES
from paper.figures import _loop_rows
from paper.loop_relabelling import ALL_LOOP_WEIGHTS, ROUND_WEIGHTS, weight_name

pytestmark = pytest.mark.slow

DRAWN = [experiment for experiment in EXPERIMENTS.values() if experiment.draw is not None]
SIZES = {"1": 0.5, "2": 0.4, "4": 0.3}
PARTS = {"bias": 0.1, "variance": 0.3, "covariance": 0.1, "size": 4, "error": 0.25}
RESULTS = {
    "plain-networks": {"members": SIZES, "epochs": 90.0},
    "twin-networks": {
        "anchors": SIZES, "members": SIZES, "members_one_anchor": SIZES,
        "nearest": {"validation": SIZES, "test": SIZES}, "epochs": 80.0,
    },
    "paired-networks": {
        "validation": 0.4, "test": 0.5, "epochs": 70.0,
        "nearest": {"validation": SIZES, "test": SIZES},
    },
    "neighbors": SIZES,
    "timing": {
        "training": [1.0, 1.2, 0.9], "prediction": {"all": [0.03, 0.02], "4": [0.01, 0.02]},
    },
    "decomposition": dict.fromkeys(("anchors", "twins", "networks"), PARTS),
    "semi-supervised-forests": {
        "supervised": 0.5, "loops": {weight_name(weight): 0.4 for weight in ALL_LOOP_WEIGHTS},
    },
    "iterated-loops": {
        weight_name(weight): {"rmse": [0.5, 0.4], "inconsistency": [0.2, 0.3]}
        for weight in ROUND_WEIGHTS
    },
    "weighted-anchors": {"equal": 0.5, "members": 0.49, "loops": 0.51, "distance": 0.5},
    "storage": {"numbers": {"10": [[2, 3], [4, 3]]}, "bytes": [[90, 95]]},
}  # fmt: skip


def records(study, variant):
    """Return one record for each trial of two data sets and splits."""
    if study == "storage":
        settings = {"features": [10], "sizes": [1, 2], "measured": [1], "measured_features": 10}
        trials = [{"dataset": "none", "split": 0, "settings": settings}]
    else:
        trials = [
            {"dataset": trial.dataset, "split": trial.split, "settings": trial.settings}
            for dataset in ("TF", "WSB")
            for split in (0, 1)
            for trial in STUDIES[study].trials(variant, dataset, split)
        ]
    return [
        {"config": trial | {"variant": variant}, "result": result(study, trial["settings"])}
        for trial in trials
    ]


def result(study, settings):
    """Return a result as a trial of these settings would write it."""
    whole = RESULTS[study]
    tried = {weight_name(weight) for weight in settings.get("loop_weights", ())}
    if study == "iterated-loops":
        return {name: value for name, value in whole.items() if name in tried}
    if study == "semi-supervised-forests":
        return whole | {"loops": {name: 0.4 for name in whole["loops"] if name in tried}}
    return whole


@pytest.mark.parametrize("experiment", DRAWN, ids=[experiment.key for experiment in DRAWN])
def test_a_figure_is_the_same_file_when_drawn_again(experiment, tmp_path):
    for variant in experiment.variants:
        by_study = {study: records(study, variant) for study in experiment.studies}
        path = experiment.draw(by_study).save(tmp_path, f"{experiment.key}-{variant}")
        assert path.stat().st_size > 10_000
    content = path.read_bytes()
    variant = path.stem.split("-")[1]
    by_study = {study: records(study, variant) for study in experiment.studies}
    experiment.draw(by_study).save(tmp_path, f"{experiment.key}-{variant}")
    assert path.read_bytes() == content


@pytest.mark.parametrize("experiment", DRAWN, ids=[experiment.key for experiment in DRAWN])
def test_each_panel_of_a_figure_has_a_curve(experiment):
    by_study = {study: records(study, "modern") for study in experiment.studies}
    for axis in experiment.draw(by_study).axes.values():
        # horizontal lines span the axis whatever the records are; curves are in data coordinates
        assert any(line.get_transform() == axis.transData for line in axis.lines)


def test_every_experiment_is_a_table_or_a_figure():
    for experiment in EXPERIMENTS.values():
        assert (experiment.table is None) != (experiment.draw is None)
        assert experiment.variants


def test_a_loop_weight_is_shown_where_all_splits_of_a_data_set_have_it():
    def record(dataset, split, *weights):
        result = {"loops": dict.fromkeys(weights, 2.0), "supervised": 1.0}
        return {"config": {"dataset": dataset, "split": split}, "result": result}

    rows = _loop_rows(
        [record("BC", 0, "1", "10"), record("BC", 1, "1")]  # Λ = 10 has one of two splits
        + [record("BH", split, "1") for split in range(2)]
        + [record("BH", split, "10") for split in range(2)]
    )
    shown = set(zip(rows["dataset"], rows["x"], strict=True))
    assert shown == {("BC", 1.0), ("BH", 1.0), ("BH", 10.0)}
