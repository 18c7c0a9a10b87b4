"""Trials of the studies: all sizes, Λ and variants, each once; earlier records stay valid."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from paper import forests
from paper.data import forest_indices, load_arrays, rmse
from paper.experiments import STUDIES, current_records
from paper.loop_relabelling import (
    ALL_LOOP_WEIGHTS,
    LOOP_WEIGHTS,
    OTHER_LOOP_WEIGHTS,
    LoopRelabelling,
    weight_name,
)
from paper.networks import _pairs
from paper.records import Records, Trial
from paper.tables import chosen_loop_weights, table4

LOOPS = STUDIES["semi-supervised-forests"]


@pytest.mark.parametrize(
    ("variant", "dataset", "split", "expected"),
    [
        ("as_published", "TF", 0, LOOP_WEIGHTS),
        ("as_published", "TF", 7, LOOP_WEIGHTS),
        ("as_written", "TF", 0, ALL_LOOP_WEIGHTS),
        ("as_written", "BC", 7, ALL_LOOP_WEIGHTS),
        ("as_written", "TF", 7, LOOP_WEIGHTS),
        ("modern", "TF", 7, LOOP_WEIGHTS),
    ],
)
def test_each_loop_weight_has_one_trial_of_a_split(variant, dataset, split, expected):
    trials = LOOPS.trials(variant, dataset, split)
    weights = {}
    for trial in trials:
        forest = str(trial.settings["forest"])
        weights[forest] = weights.get(forest, []) + trial.settings["loop_weights"]
    assert len(weights) == 1  # all trials of a split have the same forests
    for own in weights.values():
        assert sorted(own) == sorted(expected)


def loop_record(trial, errors):
    loops = {weight_name(w): errors[w] for w in trial.settings["loop_weights"]}
    config = {"dataset": trial.dataset, "split": trial.split, "variant": trial.variant}
    config["settings"] = trial.settings
    return {"config": config, "result": {"supervised": 1.0, "loops": loops}}


def test_the_other_loop_weights_count_once_all_splits_have_them():
    errors = {weight: 1.0 + weight for weight in ALL_LOOP_WEIGHTS} | {10.0: 0.5, 1 / 3: 0.9}
    trials = [t for split in (0, 1) for t in LOOPS.trials("as_written", "BC", split)]
    records = [loop_record(trial, errors) for trial in trials]
    lacking = [
        record
        for record, trial in zip(records, trials, strict=True)
        if trial.settings["loop_weights"] != list(OTHER_LOOP_WEIGHTS)
    ]
    assert chosen_loop_weights({LOOPS.key: lacking}) == {"BC": weight_name(1 / 3)}
    assert chosen_loop_weights({LOOPS.key: records}) == {"BC": "10"}
    table = table4({LOOPS.key: records})
    assert table.groupby("method").size().to_dict() == {
        "twinned_rf_semi_supervised": 2,
        "twinned_rf_supervised": 2,
        "twinned_rf_weight_0": 2,
    }
    semi = table[table["method"] == "twinned_rf_semi_supervised"]["rmse"]
    assert np.allclose(semi, 0.5)


@pytest.mark.parametrize("variant", ["as_published", "modern", "as_written"])
def test_nearest_pairs_reach_from_1_to_128(variant):
    trials = STUDIES["paired-networks"].trials(variant, "TF", 0)
    sizes = [t.settings["partners"] for t in trials if t.settings["pairs"] == "nearest"]
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128]
    every = [t for t in trials if t.settings["pairs"] == "all"]
    assert len(every) == (variant == "modern")
    assert len({t.settings["members"] for t in trials}) == 1


def test_a_published_point_has_another_neighbor_besides_itself():
    def pairs(variant):
        return _pairs(
            Trial("paired-networks", variant, "TF", 0, {"pairs": "nearest", "partners": 1})
        )

    assert pairs("as_published").get_params()["k"] == 2
    assert pairs("as_published").get_params()["include_self"]
    for variant in ("modern", "as_written"):
        assert pairs(variant).get_params()["k"] == 1
        assert not pairs(variant).get_params()["include_self"]


def test_there_are_two_random_partners_as_published_whatever_the_multiplier():
    for variant, expected in (("as_published", [2, 2, 4]), ("as_written", [1, 2, 4])):
        settings = [{"pairs": "random", "partners": m} for m in (1, 2, 4)]
        trials = [Trial("paired-networks", variant, "TF", 0, own) for own in settings]
        assert [_pairs(trial).per_point for trial in trials] == expected


def test_only_trials_whose_training_changed_have_a_new_identity():
    before = {"members": 1}
    for trial in STUDIES["paired-networks"].trials("as_published", "TF", 0):
        kind, m = trial.settings["pairs"], trial.settings["partners"]
        earlier = Trial(
            "paired-networks", "as_published", "TF", 0, before | {"pairs": kind, "partners": m}
        )
        assert (trial.identity == earlier.identity) == (kind == "random" and m > 1)
    for trial in STUDIES["paired-networks"].trials("as_written", "TF", 0):
        assert set(trial.settings) == {"members", "pairs", "partners"}


def test_earlier_records_are_of_current_trials(tmp_path):
    """The seven multipliers and the nearest pairs of before have records still."""
    from paper.page import DOCS

    committed = Records(DOCS.parent / "paper" / "results")
    found = current_records(committed, "paired-networks", "as_published")
    assert {r["config"]["settings"]["partners"] for r in found} >= {2, 4, 8, 16, 32, 64}


def test_forests_as_written_follow_the_text(monkeypatch):
    point = {"max_depth": 4, "n_estimators": 7}
    kinds = ("plain", "leaking", "sound", "text_plain", "text_leaking", "text_sound")
    monkeypatch.setattr(forests, "tuned_parameters", lambda: {"TF": dict.fromkeys(kinds, point)})
    (trial,) = STUDIES["forests"].trials("as_written", "TF", 3)
    ((_, result),) = forests.run_forests([trial])
    assert set(result) == {"rf", "twinned_rf", "twinned_rf_leaking"}
    train, test = forest_indices(1000, 3, random=True)
    X, y = load_arrays("TF")
    plain = RandomForestRegressor(7, max_depth=4, random_state=3).fit(X[train], y[train])
    assert result["rf"] == pytest.approx(rmse(plain.predict(X[test]), y[test]))


def test_errors_are_roots_of_the_mean():
    assert rmse([[3.0], [0.0], [0.0], [0.0]], np.zeros(4)) == pytest.approx(1.5)


def test_the_text_has_a_loop_for_a_third_of_the_samples():
    settings = {"trees": 2, "forest": {"max_depth": 2}, "loop_weights": [1.0]}
    for rows, expected in (({"rows": "random"}, 33), ({}, 3333)):
        trial = Trial(LOOPS.key, "as_written", "TF", 0, settings | rows)
        assert len(LoopRelabelling(trial).predict_sides()[0]) == expected
