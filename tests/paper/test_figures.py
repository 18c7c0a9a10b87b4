"""Every figure can be drawn from records of the form that its studies write."""

import pytest

from paper import EXPERIMENTS, STUDIES
from paper.semi import LOOP_WEIGHTS, ROUND_WEIGHTS

DRAWN = [one for one in EXPERIMENTS.values() if one.draw is not None]
SIZES = {"1": 0.5, "2": 0.4, "4": 0.3}
PARTS = {"bias": 0.1, "variance": 0.3, "covariance": 0.1, "size": 4, "error": 0.25}
RESULTS = {
    "plain-networks": {"members": SIZES, "epochs": 90.0},
    "twin-networks": {
        "one_anchor": 0.6, "anchors": SIZES, "members": SIZES, "members_one_anchor": SIZES,
        "nearest": {"validation": SIZES, "test": SIZES}, "epochs": 80.0,
    },
    "paired-networks": {"validation": 0.4, "test": 0.5, "epochs": 70.0},
    "neighbours": SIZES,
    "timing": {
        "plain_unit": 1e-3, "twin_unit": 2e-3, "plain_predict": 0.01, "twin_predict": 0.02,
        "nearest_predict": {"1": 0.01, "64": 0.02},
    },
    "decomposition": dict.fromkeys(("anchors", "twins", "networks"), PARTS),
    "semi-supervised-forests": {
        "supervised": 0.5, "loops": {f"{weight:.6g}": 0.4 for weight in LOOP_WEIGHTS},
    },
    "iterated-loops": {
        f"{weight:.6g}": {"rmse": [0.5, 0.4], "inconsistency": [0.2, 0.3]}
        for weight in ROUND_WEIGHTS
    },
    "weighted-anchors": {"equal": 0.5, "members": 0.49, "loops": 0.51, "distance": 0.5},
    "storage": {"numbers": {"10": [[2, 3], [4, 3]]}, "bytes": [[90, 95]]},
}  # fmt: skip


def records(study, flavour, quick):
    """One record for each run of two data sets and splits."""
    if study == "storage":
        settings = {"features": [10], "sizes": [1, 2], "measured": [1], "measured_features": 10}
        runs = [{"dataset": "none", "split": 0, "settings": settings}]
    else:
        runs = [
            {"dataset": run.dataset, "split": run.split, "settings": run.settings}
            for dataset in ("TF", "WSB")
            for split in (0, 1)
            for run in STUDIES[study].expand(flavour, dataset, split, quick)
        ]
    return [
        {"config": run | {"flavour": flavour}, "result": result(study, run["settings"])}
        for run in runs
    ]


def result(study, settings):
    """What a run of these settings would write."""
    whole = RESULTS[study]
    tried = {f"{weight:.6g}" for weight in settings.get("loop_weights", ())}
    if study == "iterated-loops":
        return {name: told for name, told in whole.items() if name in tried}
    if study == "semi-supervised-forests":
        return whole | {"loops": {name: 0.4 for name in whole["loops"] if name in tried}}
    return whole


@pytest.mark.parametrize("one", DRAWN, ids=[one.key for one in DRAWN])
def test_a_figure_is_drawn_and_is_the_same_file_again(one, tmp_path):
    for flavour in one.flavours:
        found = {study: records(study, flavour, False) for study in one.studies}
        vector, pixels = one.draw(found, flavour).save(tmp_path, f"{one.key}-{flavour}")
        assert pixels.stat().st_size > 10_000
    content = vector.read_bytes()
    one.draw(found, flavour).save(tmp_path, f"{one.key}-{flavour}")
    assert vector.read_bytes() == content


@pytest.mark.parametrize("one", DRAWN, ids=[one.key for one in DRAWN])
def test_a_quick_look_has_all_that_a_figure_needs(one):
    found = {study: records(study, "modern", True) for study in one.studies}
    for axis in one.draw(found, "modern").axes.values():
        # levels go from edge to edge, whatever the records say; lines are in units of the data
        assert any(line.get_transform() == axis.transData for line in axis.lines)


def test_every_experiment_is_a_table_or_a_picture():
    for one in EXPERIMENTS.values():
        assert (one.table is None) != (one.draw is None)
        assert one.flavours
