"""The paper's conclusions: results computed from records, and what happens where they lack."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from paper.conclusions import CONCLUSIONS, VARIANTS, Measured, Status, ensembles, evaluate
from paper.conclusions import costs as cost_checks
from paper.conclusions import forests as forest_checks
from paper.conclusions import neighbors as neighbor_checks
from paper.conclusions.measured import MissingRecordsError
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
        "members": sizes, "members_one_anchor": sizes, "anchors": sizes, "one_anchor": one,
        "nearest": {"test": {"1": nearest}, "validation": {"1": nearest}},
    }  # fmt: skip


# --- the committed records ------------------------------------------------------------------------


def test_most_conclusions_have_a_result(outcomes):
    run = [
        own for own in outcomes.values() if any(o.status != Status.MISSING for o in own.values())
    ]
    assert len(CONCLUSIONS) >= 24
    assert len(run) >= 24
    for own in outcomes.values():
        for outcome in own.values():
            assert outcome.details
            assert outcome.details.startswith("missing: ") == (outcome.status == Status.MISSING)


def test_conclusions_without_any_record_are_not_run_yet(tmp_path):
    for own in evaluate(Records(tmp_path)).values():
        # two conclusions also need benchmarks; they need records, too, or more splits
        assert {o.status for o in own.values()} == {Status.MISSING}


@pytest.mark.parametrize("variant", ["as_published", "modern"])
def test_twins_and_networks_by_a_slow_version(outcomes, variant):
    errors = {}
    for kind, study in (("twin", "twin-networks"), ("plain", "plain-networks")):
        for record in raw_records(study, variant):
            own = errors.setdefault((kind, record["config"]["dataset"]), [])
            own.append(record["result"]["members"]["1"])
    lower = [k for k in KEYS if np.mean(errors["twin", k]) < np.mean(errors["plain", k])]
    details = outcomes[find(ensembles.twin_beats_network)][variant].details
    assert f"on {len(lower)} of 9 sets ({', '.join(lower[:-1])} and {lower[-1]})" in details
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
    assert "k = 1" in before.details
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
    with pytest.raises(MissingRecordsError):
        Measured("as_published", lambda study: []).records("neighbors")
    assert lacking.knn.empty


def test_on_every_set_a_worse_twin_fails():
    results = {
        "twin-networks": [({}, twin_result(one=1.0))],
        "plain-networks": [({}, {"members": {"1": 0.9, "32": 0.8}})],
    }
    assert find(ensembles.twin_beats_network).evaluate(measured(results)).status == Status.FAILS
    results["plain-networks"] = [({}, {"members": {"1": 1.1, "32": 0.8}})]
    assert find(ensembles.twin_beats_network).evaluate(measured(results)).status == Status.HOLDS


def test_weights_that_help_contradict_the_paper():
    result = {"equal": 1.0, "members": 0.9, "loops": 1.0, "distance": 1.0}
    conclusion = find(cost_checks.uncertainty_weights_do_not_help)
    assert (
        conclusion.evaluate(measured({"weighted-anchors": [({}, result)]})).status == Status.FAILS
    )


def test_every_variant_is_one_of_a_study():
    assert set(VARIANTS) == set().union(*(study.variants for study in STUDIES.values()))


def test_quotes_differ_and_statements_that_are_not_in_the_paper_are_absent():
    quotes = [conclusion.quote for conclusion in CONCLUSIONS]
    assert len(set(quotes)) == len(quotes)
    for quote in quotes:
        assert "worse than a plain network" not in quote
        assert "competes with" not in quote
