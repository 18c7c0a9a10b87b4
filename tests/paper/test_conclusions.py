"""The paper's conclusions: results computed from records, and what happens where they lack."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from paper.commits import SAME_TRAINING
from paper.conclusions import CONCLUSIONS, VARIANTS, ensembles, evaluate, others
from paper.conclusions import costs as cost_checks
from paper.conclusions import forests as forest_checks
from paper.conclusions import neighbors as neighbor_checks
from paper.conclusions.measured import Measured, MissingRecordsError, Status
from paper.experiments import STUDIES
from paper.records import Records
from twinned.datasets import KEYS

RESULTS = Path(__file__).resolve().parents[2] / "paper" / "results"


def find(check):
    (conclusion,) = (c for c in CONCLUSIONS if c.check is check)
    return conclusion


def raw_records(study, variant):
    """The committed records, read without our code."""
    with gzip.open(RESULTS / f"{study}-{variant}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def measured(results, variant="as_published"):
    """Records of 25 splits of all sets: `results[study]` is a list of (settings, result)."""

    def read(study):
        return [
            {
                "config": {"dataset": key, "split": split, "settings": settings},
                "result": result(key) if callable(result) else result,
            }
            for settings, result in results.get(study, [])
            for key in KEYS
            for split in range(25)
        ]

    return Measured(variant, read)


def twin_result(one=1.0, nearest=0.9):
    sizes = {"1": one, "8": one, "32": one}
    return {
        "members": sizes, "members_one_anchor": sizes, "anchors": sizes,
        "nearest": {"test": {"1": nearest}, "validation": {"1": nearest}},
    }  # fmt: skip


# --- the committed records ------------------------------------------------------------------------


def test_all_conclusions_have_a_result(outcomes):
    assert len(outcomes) == len(CONCLUSIONS) >= 65
    for own in outcomes.values():
        statuses = {outcome.status for outcome in own.values()}
        assert Status.MISSING not in statuses
        assert statuses != {Status.NOT_STUDIED}
        assert set().union(*(outcome.studies for outcome in own.values()))
        assert all(outcome.details for outcome in own.values())


def test_conclusions_without_any_record_are_not_run_yet(tmp_path):
    benchmarks = (
        cost_checks.process_weights_help.__name__,
        others.__name__,
    )  # with files of theirs
    for conclusion, own in evaluate(Records(tmp_path)).items():
        if not {conclusion.check.__name__, conclusion.check.__module__} & set(benchmarks):
            assert {o.status for o in own.values()} <= {Status.MISSING, Status.NOT_STUDIED}


def test_a_variant_without_a_study_is_not_missing_records():
    own = Measured("as_written", lambda study: [], not_studied=frozenset(["storage"]))
    conclusion = next(c for c in CONCLUSIONS if "requires linearly more memory" in c.quote)
    outcome = conclusion.evaluate(own)
    assert (outcome.status, outcome.details) == (
        Status.NOT_STUDIED,
        "storage has no such variant",
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_twins_and_networks_by_a_slow_version(outcomes, variant):
    errors, commits = {}, {}
    for kind, study in (("twin", "twin-networks"), ("plain", "plain-networks")):
        for record in raw_records(study, variant):
            dataset = record["config"]["dataset"]
            errors.setdefault((kind, dataset), []).append(record["result"]["members"]["1"])
            commit = record.get("commit")
            commits.setdefault(dataset, set()).add(SAME_TRAINING.get(commit, commit))
    keys = [key for key in KEYS if variant != "modern" or len(commits[key]) == 1]
    lower = [k for k in keys if np.mean(errors["twin", k]) < np.mean(errors["plain", k])]
    outcome = outcomes[find(ensembles.twin_beats_network)][variant]
    details, n = outcome.details, len(keys)
    assert outcome.n_datasets == n
    assert f"on {len(lower)} of {n} sets ({', '.join(lower[:-1])} and {lower[-1]})" in details
    gain = 1 - np.mean(errors["twin", "WSB"]) / np.mean(errors["plain", "WSB"])
    assert f"WSB {100 * gain:.0f} %" in details


def test_forests_by_a_slow_version(outcomes):
    error = {}
    for record in raw_records("forests", "modern"):
        for method, value in record["result"].items():
            error.setdefault((record["config"]["dataset"], method), []).append(value)
    outcome = outcomes[find(forest_checks.twinned_forests)]["modern"]
    for key in ("TF", "CS", "WSB"):
        gain = 1 - np.mean(error[key, "twinned_rf"]) / np.mean(error[key, "rf"])
        assert f"{key} {100 * gain:.0f} %" in outcome.details
    assert outcome.details.endswith("the sign differs from print on EE, YH")


# --- records that are added -----------------------------------------------------------------------


def test_nearest_pairs_of_one_neighbor_fill_in_their_conclusion():
    conclusion = find(neighbor_checks.one_neighbor_is_worse)
    results = {
        "twin-networks": [({}, twin_result(one=1.0, nearest=1.2))],
        "paired-networks": [({"pairs": "nearest", "partners": 2}, {"test": 1.1, "validation": 1})],
    }
    before = conclusion.evaluate(measured(results))
    assert before.status == Status.MISSING
    assert "twins of nearest pairs, k = 1 on BC" in before.details
    results["paired-networks"].append(
        ({"pairs": "nearest", "partners": 1}, {"test": 1.3, "validation": 1})
    )
    assert conclusion.evaluate(measured(results)).status == Status.HOLDS
    # the order of the two is part of the conclusion
    results["paired-networks"][1][1]["test"] = 1.1
    assert conclusion.evaluate(measured(results)).status == Status.FAILS


def test_pairs_of_our_training_need_all_pairs_with_the_same_members():
    results = {
        "twin-networks": [({}, twin_result())],
        "paired-networks": [
            ({"pairs": "random", "partners": m}, {"test": 1.0}) for m in (1, 8, 16)
        ],
    }
    conclusion = find(ensembles.few_partners_suffice)
    assert conclusion.evaluate(measured(results)).status == Status.HOLDS
    assert conclusion.evaluate(measured(results, "modern")).status == Status.MISSING
    results["paired-networks"].append(({"pairs": "all", "partners": 0}, {"test": 0.9}))
    assert conclusion.evaluate(measured(results, "modern")).status == Status.FAILS


def test_a_size_that_lacks_a_split_is_no_mean():
    results = {"neighbors": [({}, {"1": 2.0, "4": 1.0})]}
    complete = measured(results)
    assert list(complete.knn) == [1, 4]
    lacking = Measured("as_published", lambda study: complete.read(study)[:-1])
    with pytest.raises(MissingRecordsError) as error:
        _ = lacking.knn
    assert error.value.datasets == (KEYS[-1],)
    assert list(lacking.without(KEYS[-1:]).knn.index) == list(KEYS[:-1])
    with pytest.raises(MissingRecordsError) as error:
        Measured("as_published", lambda study: []).records("neighbors")
    assert error.value.datasets == ()


def only(whole, datasets, study):
    """The same records, where one study lacks those of the other data sets."""

    def read(name):
        found = whole.read(name)
        return [r for r in found if name != study or r["config"]["dataset"] in datasets]

    return Measured(whole.variant, read)


def test_a_conclusion_is_checked_on_the_data_sets_that_have_records():
    whole = measured(
        {
            "twin-networks": [({}, lambda key: twin_result(one=1.0 if key != "TF" else 2.0))],
            "plain-networks": [({}, {"members": {"1": 1.5, "32": 0.8}})],
        }
    )
    conclusion = find(ensembles.twin_beats_network)
    six, four = ("BC", "BH", "CS", "EE", "TF", "YH"), ("BC", "BH", "CS", "EE")
    outcome = conclusion.evaluate(only(whole, six, "plain-networks"))
    assert (outcome.status, outcome.n_datasets) == (Status.IN_PART, 6)  # five of six: below 8 of 9
    assert outcome.details.startswith("on 6 of 9 sets (BC, BH, CS, EE, TF and YH): one twin")
    assert outcome.details.endswith("missing: plain-networks on RCL, WN and WSB")
    outcome = conclusion.evaluate(only(whole, four, "plain-networks"))
    assert outcome.status == Status.MISSING
    assert "on 4 of 9 sets (BC, BH, CS and EE): one twin has a lower error" in outcome.details
    # a statement about named sets is not checked without them
    margins = find(neighbor_checks.large_margins)
    assert "records of TF, which" in margins.evaluate(whole.without(["TF"])).details


def test_records_of_two_versions_of_our_training_are_not_compared():
    results = {
        "twin-networks": [({}, twin_result(one=1.0))],
        "plain-networks": [({}, {"members": {"1": 1.5, "32": 0.8}})],
    }
    conclusion, outcomes = find(ensembles.twin_beats_network), {}
    for variant in ("modern", "as_published"):
        whole = measured(results, variant)

        def read(study, whole=whole, variant=variant):
            found = whole.read(study)
            for record in found:
                record["config"]["variant"] = variant
                is_old = study == "twin-networks" and record["config"]["dataset"] == "TF"
                record["commit"] = "old" if is_old else "new"
            return found

        outcomes[variant] = conclusion.evaluate(Measured(variant, read))
    assert outcomes["modern"].n_datasets == 8
    assert outcomes["modern"].details.endswith("missing: records of one commit on TF")
    # the settings of the other variants fix their training
    assert outcomes["as_published"].n_datasets == 9


def test_on_every_set_a_worse_twin_fails():
    results = {
        "twin-networks": [({}, twin_result(one=1.0))],
        "plain-networks": [({}, {"members": {"1": 0.9, "32": 0.8}})],
    }
    assert find(ensembles.twin_beats_network).evaluate(measured(results)).status == Status.FAILS
    results["plain-networks"] = [({}, {"members": {"1": 1.1, "32": 0.8}})]
    assert find(ensembles.twin_beats_network).evaluate(measured(results)).status == Status.HOLDS


def test_networks_and_forests_must_both_gain_from_twinning():
    conclusion = find(ensembles.twins_beat_their_base)
    results = {
        "twin-networks": [({}, twin_result(one=1.0))],
        "plain-networks": [({}, {"members": {"1": 1.1, "32": 0.8}})],
        "forests": [({}, {"rf": 1.0, "twinned_rf": 0.9})],
    }
    assert conclusion.evaluate(measured(results)).status == Status.HOLDS
    results["forests"] = [({}, {"rf": 1.0, "twinned_rf": 1.1})]
    assert conclusion.evaluate(measured(results)).status == Status.FAILS

    for n_sets, status in ((6, Status.HOLDS), (5, Status.IN_PART)):  # six, as in print

        def gains(key, n_sets=n_sets):
            return {"rf": 1.0, "twinned_rf": 0.9 if key in KEYS[:n_sets] else 1.1}

        results["forests"] = [({}, gains)]
        assert conclusion.evaluate(measured(results)).status == status


def test_gains_of_loops_count_where_they_exceed_two_standard_errors():
    def records(gain, noise):
        rng = np.random.RandomState(0)
        return [
            {
                "config": {
                    "dataset": key, "split": split, "settings": {}, "variant": "as_published",
                },
                "result": {
                    "supervised": 1.0,
                    "loops": {"0": 1.0, "1": 1.0 - gain - noise * rng.normal()},
                },
            }
            for key in KEYS
            for split in range(25)
        ]  # fmt: skip

    conclusion = find(forest_checks.loops_help_clearly)
    for gain, noise, status in (
        (0.01, 0.001, Status.HOLDS),
        (0.001, 0.1, Status.FAILS),
        (-0.01, 0.001, Status.FAILS),
    ):
        found = records(gain, noise)
        outcome = conclusion.evaluate(Measured("as_published", lambda study, own=found: own))
        assert outcome.status == status


def test_loops_are_judged_against_the_supervised_twin_and_against_no_relabelling():
    """A second fit with Λ = 0 raises the error by 2 %, of which Λ = 1 returns a half."""
    loops = {"supervised": 1.0, "loops": {"0": 1.02, "1": 1.01}, "inconsistency": {}}
    results = {"semi-supervised-forests": [({}, loops)]}
    whole = measured(results)

    def read(study):
        found = whole.read(study)
        for record in found:
            record["config"]["variant"] = "as_published"
        return found

    own = Measured("as_published", read)
    for check, first, second in (
        (forest_checks.loops_help, Status.FAILS, Status.HOLDS),
        (forest_checks.loops_help_everywhere, Status.FAILS, Status.HOLDS),
        (forest_checks.loops_help_clearly, Status.FAILS, Status.HOLDS),
        (forest_checks.weight_near_one_is_best, Status.FAILS, Status.HOLDS),
        (forest_checks.loop_gains_are_small, Status.FAILS, Status.HOLDS),
    ):
        outcome = find(check).evaluate(own)
        assert (outcome.status, outcome.other) == (first, (second, "against Λ = 0 retrained"))
        assert outcome.details.startswith("against the supervised twin: ")
        assert f"; against Λ = 0 retrained ({second}): " in outcome.details
    assert round(float(forest_checks.chosen_gain(own, forest_checks.RETRAINED)["TF"]), 4) == 0.0098


def test_the_best_ensemble_must_be_better_by_two_standard_errors():
    def read(noise):
        def records(study):
            rng = np.random.RandomState(0)
            one, many = {"twin-networks": (1.0, 0.9), "plain-networks": (1.2, 1.0)}[study]
            return [
                {
                    "config": {"dataset": key, "split": split, "settings": {}},
                    "result": {
                        "members": {
                            "1": one + noise * rng.normal(), "32": many + noise * rng.normal(),
                        }
                    },
                }
                for key in KEYS
                for split in range(25)
            ]  # fmt: skip

        return records

    conclusion = find(ensembles.ensembles_of_twins_are_best)
    for noise, status in ((0.01, Status.HOLDS), (0.6, Status.FAILS)):
        assert conclusion.evaluate(Measured("as_published", read(noise))).status == status


def test_fewer_seconds_are_needed_with_few_neighbors_and_with_many():
    conclusion = find(cost_checks.neighbors_train_faster)
    for few, many, status in (
        (0.9, 0.9, Status.HOLDS),
        (0.9, 1.1, Status.IN_PART),
        (1.1, 1.1, Status.FAILS),
    ):
        timing = [
            ({"pairs": "all"}, {"training": [1.0]}),
            ({"pairs": "nearest", "partners": 8}, {"training": [few]}),
            ({"pairs": "nearest", "partners": 128}, {"training": [many]}),
        ]
        assert conclusion.evaluate(measured({"timing": timing})).status == status


def test_weights_of_processes_must_help_networks_too(monkeypatch):
    def benchmark(self, name):
        of_forests = name == "learned_metric"
        rows = [
            {"dataset": key, "seed": 0, "way": way, "rmse": error, "twin": "neural"}
            for key in KEYS
            for way, error in {
                "process": 0.9 if of_forests or key in ("BC", "BH") else 1.1,
                "all" if of_forests else "equal": 1.0,
            }.items()
        ]
        return pd.DataFrame(rows)

    monkeypatch.setattr(Measured, "benchmark", benchmark)
    outcome = find(cost_checks.process_weights_help).evaluate(measured({}, "modern"))
    assert outcome.status == Status.FAILS


def test_weights_that_help_contradict_the_paper():
    result = {"equal": 1.0, "members": 0.9, "loops": 1.0, "distance": 1.0}
    conclusion = find(cost_checks.uncertainty_weights_do_not_help)
    assert (
        conclusion.evaluate(measured({"weighted-anchors": [({}, result)]})).status == Status.FAILS
    )


def test_weights_help_consistently_from_seven_sets_on():
    conclusion = find(cost_checks.uncertainty_weights_do_not_help)
    for n_sets, status in ((4, Status.HOLDS), (5, Status.IN_PART), (7, Status.FAILS)):

        def result(key, n_sets=n_sets):
            members = 0.9 if key in KEYS[:n_sets] else 1.1
            return {"equal": 1.0, "members": members, "loops": 1.0, "distance": 1.0}

        outcome = conclusion.evaluate(measured({"weighted-anchors": [({}, result)]}))
        assert outcome.status == status


def test_a_training_that_reaches_the_limit_of_epochs_contradicts_the_paper():
    conclusion = find(cost_checks.training_stops_early)
    for epochs, status in ((1999, Status.HOLDS), (2000, Status.FAILS)):
        results = {
            "paired-networks": [({"pairs": "nearest", "partners": 1}, {"epochs": epochs})],
            "plain-networks": [({}, {"epochs": 100})],
        }
        assert conclusion.evaluate(measured(results)).status == status
        assert conclusion.evaluate(measured(results, "as_written")).status == Status.HOLDS
    assert conclusion.evaluate(measured(results, "modern")).status == Status.NOT_STUDIED


def test_each_data_set_has_all_its_numbers_of_nearest_anchors():
    """WSB and YH have fewer training rows than the largest number."""

    def result(key):
        nearest = {"1": 1.2, "2": 1.1} | ({"4": 0.9} if key not in ("WSB", "YH") else {})
        return twin_result() | {"nearest": {"test": nearest, "validation": nearest}}

    outcome = find(neighbor_checks.nearest_anchors_help).evaluate(
        measured({"twin-networks": [({}, result)]})
    )
    assert outcome.status == Status.HOLDS
    assert "on 7 of 9 sets (BC, BH, CS, EE, RCL, TF and WN)" in outcome.details


def test_every_variant_is_one_of_a_study():
    assert set(VARIANTS) == set().union(*(study.variants for study in STUDIES.values()))


def test_quotes_differ_and_statements_that_are_not_in_the_paper_are_absent():
    quotes = [conclusion.quote for conclusion in CONCLUSIONS]
    assert len(set(quotes)) == len(quotes)
    for quote in quotes:
        assert "worse than a plain network" not in quote
        assert "competes with" not in quote


def test_equal_trainings_are_one_point_of_the_multiplier():
    conclusion = find(ensembles.one_partner_is_best_on_two)
    results = {
        "twin-networks": [({}, twin_result(one=1.0))],
        "paired-networks": [
            ({"pairs": "random", "partners": m}, {"test": error, "validation": 1})
            for m, error in ((1, 0.9), (2, 0.89), (4, 0.95))
        ],
    }
    # as published, multipliers of 1 and 2 train alike
    assert conclusion.evaluate(measured(results)).status == Status.HOLDS
    assert conclusion.evaluate(measured(results, "as_written")).status == Status.FAILS


def test_iterations_with_one_large_weight_hold_in_part():
    conclusion = find(forest_checks.iteration_diverges)

    def result(*weights):
        return {
            str(w): {"rmse": [1, 1], "inconsistency": [1, 2 if w > 0.34 else 0.5]} for w in weights
        }

    for weights, status in (
        ((0.333333, 1.0), Status.IN_PART),
        ((0.333333, 1.0, 3.33333), Status.HOLDS),
    ):
        results = {"iterated-loops": [({}, result(*weights))]}
        assert conclusion.evaluate(measured(results)).status == status
