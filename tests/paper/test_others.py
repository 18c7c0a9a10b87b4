"""Statements that are measured by a study of their own: rules, by made-up results."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.frame import RESULTS
from paper import larger_ensembles, other_models
from paper.conclusions import ensembles, neighbors, others
from paper.conclusions.measured import Measured, NotStudiedError, Status
from tests.paper.test_conclusions import measured, twin_result
from twinned.datasets import KEYS, info

HOLDS, IN_PART, FAILS = Status.HOLDS, Status.IN_PART, Status.FAILS


def judge(monkeypatch, check, rows, variant="modern"):
    monkeypatch.setattr(Measured, "benchmark", lambda self, *name: pd.DataFrame(rows))
    return check(Measured(variant, lambda study: []))


@pytest.mark.parametrize(
    ("n_good", "nearest", "status"),
    [(9, 0.5, HOLDS), (5, 0.5, HOLDS), (5, 0.9, IN_PART), (4, 0.5, FAILS)],
)
def test_answers_for_other_models(monkeypatch, n_good, nearest, status):
    """Two models; on the other sets the twin is the worst of all but for its nearest anchors."""
    rows = []
    for model in ("a", "b"):
        for i, key in enumerate(KEYS):
            twin = 0.7 if i < n_good else 2.0
            rows.append(
                {"base_model": model, "dataset": key, "seed": 0, "seconds": 1.0, "base": 1.0,
                 "one_anchor": 1.1, "all_anchors": twin, "nearest_anchors": nearest,
                 "one_partner": 1.2}
            )  # fmt: skip
    outcome = judge(monkeypatch, others.answers_hold_for_other_models, rows)
    assert outcome.status == status
    assert f"a: a lower error than the base model on {n_good}, than one anchor" in outcome.details


@pytest.mark.parametrize(
    ("at_32", "at_128", "n_sets", "status"),
    [(1.04, 1.01, 9, HOLDS), (1.04, 1.01, 8, IN_PART), (1.2, 1.05, 9, FAILS),
     (1.01, 1.02, 9, FAILS)],
)  # fmt: skip
def test_one_anchor_of_each_twin_beyond_32(monkeypatch, at_32, at_128, n_sets, status):
    rows = [
        {"dataset": key, "seed": 0, "size": size, "one_anchor": ratio, "all_anchors": 1.0}
        for i, key in enumerate(KEYS)
        for size, ratio in ((32, at_32), (128, at_128 if i < n_sets else 1.5))
    ]
    check = others.single_anchors_meet_beyond
    assert judge(monkeypatch, check, rows, "as_published").status == status


@pytest.mark.parametrize(
    ("errors", "status"),
    [((0.9, 0.9, 1.1), HOLDS), ((0.9, 1, 1.1), IN_PART), ((1, 1, 1), FAILS)],
)
def test_algorithm_1_for_networks(monkeypatch, errors, status):
    rows = [
        {"dataset": key, "seed": 0, "method": method, "rmse": value}
        for key, error in zip(("BC", "WSB", "YH"), errors, strict=True)
        for method, value in {"supervised": 1.0, "Λ = 1": error}.items()
    ]
    check = others.relabelling_works_for_networks
    assert judge(monkeypatch, check, rows).status == status


def of_first(n, value, other):
    """A value for the first data sets, another for the rest."""
    return {key: value if i < n else other for i, key in enumerate(KEYS)}


def timed(seconds, predicted=0.0):
    """Records of trainings of plain networks and twins of all pairs."""

    def result(key):
        return {"training": [seconds(key)], "prediction": {"all": [predicted]}}

    return [({"pairs": kind}, result) for kind in ("plain", "all")]


@pytest.mark.parametrize(("seconds", "status"), [(0.09, HOLDS), (0.11, FAILS)])
def test_predictions_with_all_anchors_beside_one_training(seconds, status):
    results = {"timing": timed(lambda key: 10.0, seconds)}
    assert others.anchors_are_cheap(measured(results)).status == status


@pytest.mark.parametrize(("of_twins", "status"), [(0.3, HOLDS), (0.7, IN_PART), (1.2, FAILS)])
def test_seconds_of_networks_as_a_power_of_the_rows(of_twins, status):
    results = {"timing": timed(lambda key: info(key).rows ** of_twins)}
    outcome = others.networks_scale_well(measured(results))
    assert outcome.status == status
    assert f"to the power of {of_twins} (plain networks), {of_twins} (twins" in outcome.details


@pytest.mark.parametrize(
    ("forest", "twin", "status"), [(1.5, 2, HOLDS), (0.9, 2, IN_PART), (0.9, 0.9, FAILS)]
)
def test_seconds_of_forests_as_a_power_of_the_rows(monkeypatch, forest, twin, status):
    rows = [
        {"kind": kind, "rows": n, "seed": 0, "cpu_seconds": n**power}
        for kind, power in (("forest", forest), ("twinned forest", twin))
        for n in (100, 200, 400, 800)
    ]
    assert judge(monkeypatch, others.forests_scale_poorly, rows).status == status


@pytest.mark.parametrize(
    ("low", "high", "status"), [(0.6, 0.7, HOLDS), (0.4, 0.7, IN_PART), (0.4, 0.3, FAILS)]
)
def test_correlations_of_masks_beside_those_of_anchors(monkeypatch, low, high, status):
    rows = [
        {"dataset": key, "ensemble": name, "seed": 0, "correlation": value}
        for key in ("BH", "EE")
        for name, value in {"dropout 0.1": low, "dropout 0.5": high, "anchors": 0.5}.items()
    ]
    assert judge(monkeypatch, others.masks_are_more_correlated, rows).status == status


@pytest.mark.parametrize(("n", "status"), [(9, HOLDS), (8, IN_PART), (4, FAILS)])
def test_rank_correlations_of_both_measures(monkeypatch, n, status):
    rows = [
        {"dataset": key, "seed": seed, "spread": 0.5, "loops": value + 0.1 * seed}
        for key, value in of_first(n, 0.16, 0.14).items()
        for seed in (0, 1)
    ]
    check = others.loops_and_spread_rank_errors
    assert judge(monkeypatch, check, rows, "as_published").status == status


@pytest.mark.parametrize(("n", "status"), [(7, HOLDS), (6, IN_PART), (4, FAILS)])
def test_active_learning_and_differences_need_seven_sets(monkeypatch, n, status):
    better = of_first(n, 0.9, 1.1)
    rows = [
        {"dataset": key, "seed": 0, "model": "twin", "choice": choice, "rmse": value}
        for key in KEYS
        for choice, value in {"random": 1.0, "spread": better[key]}.items()
    ]
    rows.append(rows[0] | {"model": "forest", "rmse": 99.0})
    assert judge(monkeypatch, others.spread_helps_active_learning, rows).status == status
    results = {"forests": [({}, lambda key: {
        "twinned_rf": better[key], "twinned_rf_without_differences": 1.0
    })]}  # fmt: skip
    assert others.differences_help_forests(measured(results, "modern")).status == status
    with pytest.raises(NotStudiedError):
        others.differences_help_forests(measured(results))


@pytest.mark.parametrize(("one", "status"), [(1.02, HOLDS), (0.9, HOLDS), (1.05, FAILS)])
def test_twins_beside_boosting(monkeypatch, one, status):
    boosting = pd.DataFrame({"catboost": 1.0, "twin:balanced": 1.02}, index=list(KEYS))
    monkeypatch.setattr(others, "_boosting_and_ours", lambda m: boosting)
    nearest = [({"pairs": "nearest", "partners": 1}, {"test": 2.0})]
    results = {"twin-networks": [({}, twin_result(one, nearest=3.0))], "paired-networks": nearest}
    assert others.twins_are_state_of_the_art(measured(results)).status == status
    assert others.twins_are_state_of_the_art(measured({}, "modern")).status == HOLDS


@pytest.mark.parametrize(
    ("networks", "knn", "status"), [(1.09, 1.09, HOLDS), (1.09, 1.2, IN_PART), (1.2, 1.2, FAILS)]
)
def test_errors_on_the_sets_where_twins_fail(monkeypatch, networks, knn, status):
    boosting = pd.DataFrame({"catboost": 1.0}, index=list(KEYS))
    monkeypatch.setattr(others, "_boosting_and_ours", lambda m: boosting)
    results = {
        "plain-networks": [({}, {"members": {"1": networks, "32": networks}})],
        "neighbors": [({}, {"1": 5.0, "4": knn})],
        "twin-networks": [({}, twin_result(one=1.3))],
    }
    check = others.networks_and_neighbors_work_on_failures
    assert check(measured(results)).status == status
    accurate = others.architecture_is_accurate(measured(results)).status
    assert accurate == (HOLDS if networks < 1.1 else FAILS)
    with pytest.raises(NotStudiedError):
        others.architecture_is_accurate(measured(results, "modern"))


@pytest.mark.parametrize(("n", "status"), [(9, HOLDS), (5, IN_PART), (4, FAILS)])
def test_the_largest_multiplier_beside_all_pairs(n, status):
    ratio = of_first(n, 0.98, 0.95)
    results = {
        "twin-networks": [({}, twin_result(one=1.0))],
        "paired-networks": [
            ({"pairs": "random", "partners": 1}, {"test": 1.0}),
            ({"pairs": "random", "partners": 64}, lambda key: {"test": ratio[key]}),
        ],
    }
    assert others.many_partners_converge(measured(results)).status == status


@pytest.mark.parametrize(
    ("deviations", "status"),
    [((0, 0.1, 0.102), HOLDS), ((0, 0.18, 0.01), IN_PART), ((0.1, 0.18, 0.01), FAILS)],
)
def test_noise_of_the_files_beside_the_printed_one(monkeypatch, deviations, status):
    rows = [
        {"dataset": key, "printed_noise": printed, "around_printed": own, "around_own": 0.0}
        for key, printed, own in zip(("TF", "RCL", "WSB"), (0, 0.1, 0.1), deviations, strict=True)
    ]
    assert judge(monkeypatch, others.files_follow_the_formulas, rows).status == status


def test_committed_noise_is_that_of_the_files(data_folder):
    from paper.formulas import BENCHMARK, describe_noise

    committed = pd.read_csv(RESULTS / "formulas.csv").set_index("dataset")
    for key in BENCHMARK.axes["dataset"]:
        for name, value in describe_noise(key).items():
            np.testing.assert_allclose(committed.loc[key, name], value, rtol=1e-3, atol=1e-12)


def test_a_split_of_another_base_model_gives_its_committed_row(data_folder):
    runs = pd.read_csv(RESULTS / "other_models.csv").set_index(["base_model", "dataset", "seed"])
    row = runs.loc["nearest neighbors", "YH", 1]
    for name, error in other_models.run_split("nearest neighbors", "YH", 1).items():
        assert error == pytest.approx(row[name], rel=1e-4)


def test_larger_ensembles_have_a_row_for_each_size(monkeypatch):
    def run_twins(batch):
        assert [(t.dataset, t.split, t.settings["members"]) for t in batch] == [
            ("YH", 0, 128), ("YH", 1, 128),
        ]  # fmt: skip
        for trial in batch:
            errors = {"1": 1.0 + trial.split, "2": 0.5}
            yield trial, {"members_one_anchor": errors, "members": {"1": 0.2, "2": 0.1}}

    monkeypatch.setattr(larger_ensembles, "run_twins", run_twins)
    first, second = larger_ensembles.run_splits([("YH", 0), ("YH", 1)])
    assert (first[0], second[0]) == (("YH", 0), ("YH", 1))
    assert second[1] == [
        {"size": 1, "one_anchor": 2.0, "all_anchors": 0.2},
        {"size": 2, "one_anchor": 0.5, "all_anchors": 0.1},
    ]


# --- of the tables, beside those that are computed by a slow version in test_checks.py ------------


@pytest.mark.parametrize(
    ("better", "status"),
    [(("TF", "RCL", *KEYS[:4], "YH"), HOLDS), ((*KEYS[:4], "TF", "YH", "WN"), IN_PART),
     (("TF", "RCL", "WSB"), FAILS)],
)  # fmt: skip
def test_nearest_anchors_and_pairs_must_both_be_better(better, status):
    """On seven sets, with two of the three that have little noise."""

    def nearest(key):
        return {"test": 0.9 if key in better else 1.1, "validation": 1.0}

    results = {
        "twin-networks": [({}, twin_result(one=1.0, nearest=0.95))],
        "paired-networks": [({"pairs": "nearest", "partners": 1}, nearest)],
    }
    assert neighbors.both_beat_standard(measured(results)).status == status


@pytest.mark.parametrize(("first", "status"), [(("TF", "RCL"), HOLDS), (("TF",), FAILS)])
def test_two_formulas_are_among_the_first_gains(first, status):
    gains = {"BC": 0.5, "BH": 0.4, "CS": 0.3} | dict.fromkeys(first, 0.9)
    results = {
        "twin-networks": [({}, lambda key: twin_result(one=1 - gains.get(key, 0.0)))],
        "plain-networks": [({}, {"members": {"1": 1.0, "32": 1.0}})],
    }
    assert ensembles.deterministic_sets_gain_most(measured(results)).status == status


@pytest.mark.parametrize(
    ("gains", "status"),
    [({"TF": 0.6, "YH": 0.2, "RCL": 0.2}, HOLDS), ({"TF": 0.3, "YH": 0.2, "RCL": 0.2}, IN_PART),
     ({"TF": 0.6, "YH": 0.7, "RCL": 0.2}, IN_PART), ({"YH": 0.6}, FAILS)],
)  # fmt: skip
def test_three_large_margins_of_which_that_of_tf_is_largest(gains, status):
    def nearest(key):
        return {"test": 1 - gains.get(key, 0.0), "validation": 1.0}

    results = {
        "twin-networks": [({}, twin_result(one=1.0))],
        "paired-networks": [({"pairs": "nearest", "partners": 1}, nearest)],
    }
    assert neighbors.large_margins(measured(results)).status == status
