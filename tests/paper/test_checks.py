"""The checks of conclusions by slow versions, which read the committed records without our code."""

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from paper.conclusions import VARIANTS
from twinned.datasets import KEYS

RESULTS = Path(__file__).resolve().parents[2] / "paper" / "results"
SETS = re.compile(r"all 9 sets|\d of 9 sets(?: \(([A-Z, and]+)\))?")


def raw_records(study, variant):
    with gzip.open(RESULTS / f"{study}-{variant}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def means(rows):
    """Return size → data set → mean over the 25 splits; `rows` are (record, {size: error})."""
    cells = defaultdict(lambda: defaultdict(list))
    for record, errors in rows:
        for size, error in errors.items():
            cells[int(size)][record["config"]["dataset"]].append(error)
    return {
        size: {key: fmean(errors) for key, errors in own.items() if len(errors) == 25}
        for size, own in cells.items()
    }


def lowest(errors, key):
    """Return the lowest error of a data set, and its size."""
    return min((own[key], size) for size, own in errors.items() if key in own)


def at_best(test, validation, variant):
    """Return data set → error at the best number of neighbors, and the number."""
    chosen = {key: lowest(validation if variant == "modern" else test, key)[1] for key in KEYS}
    return {key: test[size][key] for key, size in chosen.items()}, chosen


def expected_sets(variant):
    """Return check → the data sets that its details name, in their order."""
    twins, plain = (raw_records(f"{kind}-networks", variant) for kind in ("twin", "plain"))
    paired = raw_records("paired-networks", variant)

    def of_pairs(kind, rows):
        own = [r for r in paired if r["config"]["settings"]["pairs"] == kind]
        return means((r, {r["config"]["settings"]["partners"]: r["result"][rows]}) for r in own)

    one, networks = "members", means((r, r["result"]["members"]) for r in plain)
    green, red, blue = (
        means((r, r["result"][name]) for r in twins)
        for name in (one, "members_one_anchor", "anchors")
    )
    near, near_validation = (
        means((r, r["result"]["nearest"][rows]) for r in twins) for rows in ("test", "validation")
    )
    knn = means((r, r["result"]) for r in raw_records("neighbors", variant))
    random, pairs = of_pairs("random", "test"), of_pairs("nearest", "test")
    every, same, same_validation = green[1], near, near_validation
    if variant == "modern":  # the twins of all pairs with the members of those of some
        own = [r for r in paired if r["config"]["settings"]["pairs"] == "all"]
        every = of_pairs("all", "test")[0]
        same, same_validation = (
            means((r, r["result"]["nearest"][rows]) for r in own) for rows in ("test", "validation")
        )
    best_pairs, numbers = at_best(pairs, of_pairs("nearest", "validation"), variant)
    best_anchors, _ = at_best(same, same_validation, variant)
    alone, _ = at_best(near, near_validation, variant)
    k_nearest = {key: lowest(knn, key) for key in KEYS}
    n_anchors = {key: lowest(near, key)[1] for key in KEYS}

    def where(condition):
        return [key for key in KEYS if condition(key)]

    def gain(better, than):
        return {key: 1 - better[key] / than[key] for key in KEYS}

    def apart(first, second):
        return where(lambda key: abs(first[key] / second[key] - 1) > 0.03)

    def near_to(first, second):
        return where(lambda key: abs(first[key] / second[key] - 1) <= 0.03)

    def below(first, second):
        return where(lambda key: first[key] < second[key])

    def nearer(errors):
        return where(
            lambda k: abs(errors[128][k] / every[k] - 1) < abs(errors[1][k] / every[k] - 1)
        )

    of_anchors, of_networks = gain(green[1], red[1]), gain(networks[32], networks[1])
    knn_error = {key: error for key, (error, _) in k_nearest.items()}
    return {
        "anchors_are_an_ensemble": [below(green[1], red[1])],
        "both_curves_fall": [below(blue[32], red[1]), below(networks[32], networks[1])],
        "anchors_differ_from_networks": [
            apart(green[1], networks[32]),
            where(lambda k: abs(of_anchors[k] - of_networks[k]) > 0.03),
        ],
        "retrained_anchors_are_better": [
            where(lambda k: all(red[n][k] < blue[n][k] for n in (2, 4, 8, 16, 32)))
        ],
        "retrained_anchors_fall_faster": [below(gain(blue[8], red[1]), gain(red[8], red[1]))],
        "single_anchors_meet_all_anchors": [near_to(red[32], green[32])],
        "combined_gain_exceeds_networks": [below(of_networks, gain(green[32], red[1]))],
        "several_networks_beat_one": [below(networks[32], networks[1])],
        "several_twins_beat_one": [below(green[32], green[1])],
        "reformulation_helps": [below(green[32], networks[32]), below(red[1], networks[1])],
        "partners_help_except_on_two": [below(random[1], every)],
        "few_partners_suffice": [
            where(lambda k, n=n: random[n][k] <= 1.03 * every[k]) for n in (8, 16)
        ],
        "same_sets_beat_networks_and_neighbors": [
            where(lambda k: green[32][k] < networks[32][k] and green[1][k] < knn_error[k])
        ],
        "one_neighbor_is_worse": [
            where(lambda k: same[1][k] > every[k] and pairs[1][k] > every[k]),
            below(same[1], pairs[1]),
        ],
        "neighbors_converge": [
            near_to(same[128], every), nearer(same), near_to(pairs[128], every), nearer(pairs),
        ],
        "sweet_spot": [
            where(lambda k: 16 <= numbers[k] <= 64 and best_pairs[k] < every[k]),
            where(lambda k: min(pairs[n][k] for n in (16, 32, 64)) < every[k]),
        ],
        "nearest_anchors_help": [below(alone, green[1])],
        "nearest_pairs_help": [below(best_pairs, best_anchors)],
        "neighbors_beat_knn": [below(best_pairs, knn_error)],
        "more_anchors_than_knn": [
            where(lambda k: n_anchors[k] > k_nearest[k][1]),
            where(lambda k: n_anchors[k] >= 4 * k_nearest[k][1]),
        ],
        "knn_profile_differs": [
            where(lambda k: knn[128][k] / knn[16][k] > near[128][k] / near[16][k] + 0.03)
        ],
        "neighbors_are_accurate_and_fast": [
            where(lambda k: best_pairs[k] < min(every[k], knn_error[k]))
        ],
    }  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_checks_name_the_data_sets_of_slow_versions(variant, outcomes):
    details = {own.check.__name__: found[variant].details for own, found in outcomes.items()}
    for check, expected in expected_sets(variant).items():
        named = [
            re.findall("[A-Z]{2,3}", found[0]) if "of" in found[0] else list(KEYS)
            for found in SETS.finditer(details[check])
        ]
        assert named[: len(expected)] == expected, check


def test_sets_on_which_other_methods_are_better(outcomes):
    """The checks that join lists of sets instead of counting them."""
    for variant in VARIANTS:
        own = expected_sets(variant)
        worse = [key for key in KEYS if key not in own["reformulation_helps"][0]]
        rejected = own["partners_help_except_on_two"][0]
        details = {c.check.__name__: found[variant].details for c, found in outcomes.items()}
        named = re.findall(r"[A-Z, and]+(?=;|$)", details["failures_coincide"])
        assert [re.findall("[A-Z]{2,3}", part) for part in named][:2] == [rejected, worse]
        kept = [key for key in worse if key not in rejected]
        assert details["check_rejects_rightly"].endswith(
            f"better on {', '.join(kept[:-1]) + ' and ' * (len(kept) > 1) + kept[-1]}"
            if kept else "better on none"
        )  # fmt: skip


@pytest.mark.parametrize("variant", ["as_published", "modern"])
def test_storage_by_a_slow_version(variant, outcomes):
    details = {c.check.__name__: found[variant].details for c, found in outcomes.items()}
    (record,) = raw_records("storage", variant)
    sizes = record["config"]["settings"]["sizes"]
    for features, numbers in record["result"]["numbers"].items():
        (plain, twin), (_, next_twin) = numbers[:2]
        assert all(own == size * plain for size, (own, _) in zip(sizes, numbers, strict=True))
        assert f"{plain} (f = {features})" in details["networks_need_linear_storage"]
        first = next(s for s, (own, one) in zip(sizes, numbers, strict=True) if one < own)
        assert f"{first} on ({features} feature" in details["twins_need_less_storage"]
        times = plain / (next_twin - twin)
        assert f"{times:.0f} times (f = {features})" in details["storage_trend_is_general"]


@pytest.mark.parametrize("variant", ["as_published", "modern"])
def test_covariances_of_anchors_by_a_slow_version(variant, outcomes):
    details = {c.check.__name__: found[variant].details for c, found in outcomes.items()}
    for record in raw_records("decomposition", variant):
        own, key = record["result"]["anchors"], record["config"]["dataset"]
        share = own["covariance"] / own["variance"]
        assert f"{100 * share:.0f} % ({key})" in details["ensembles_reduce_variance"]
        removed = 1 - own["error"] / (own["bias"] + own["variance"])
        assert f"{100 * removed:.0f} % ({key})" in details["ensembles_reduce_variance"]


@pytest.mark.parametrize("variant", ["as_published", "modern"])
def test_iterations_by_a_slow_version(variant, outcomes):
    details = {c.check.__name__: found[variant].details for c, found in outcomes.items()}
    ratios = defaultdict(lambda: defaultdict(list))
    for record in raw_records("iterated-loops", variant):
        for weight, own in record["result"].items():
            errors = own["rmse"]
            ratios[f"{float(weight):.3g}"][record["config"]["dataset"]].append(
                errors[-1] / errors[0]
            )
    for weight, own in ratios.items():
        worse = [key for key in KEYS if fmean(own[key]) > 1]
        text = "all 9 sets" if len(worse) == 9 else f"{len(worse)} of 9 sets ({worse[0]}"
        assert f"Λ = {weight}: worse on {text}" in details["iteration_is_not_better"]
