"""Conclusions of sections 5 and 9: ensembles of networks, of twins and of anchors."""

from __future__ import annotations

from typing import Any

import pandas as pd

from paper.conclusions.measured import (
    CLEAR,
    EQUAL,
    NEVER,
    Measured,
    Outcome,
    Status,
    each,
    grade,
    join,
    names,
    on,
    percent,
    spread,
    standard_scores,
)
from paper.forests import forest_errors

SIZE = 32  # of the largest ensembles
NO_GAIN = ["BC", "WN"]  # where the paper finds that twins do not help
FORMULAS = ["TF", "RCL", "WSB"]  # deterministic functions with no noise, or little


def twin_beats_network(m: Measured) -> Outcome:
    """One twin with all anchors against one network: "almost always" is eight of nine."""
    gain = 1 - m.twins[1] / m.plain[1]
    lower = gain > 0
    details = f"one twin has a lower error than one network on {on(lower)}; gains: {each(gain)}"
    return Outcome(grade(lower, 8, 5), details)


def twins_beat_their_base(m: Measured) -> Outcome:
    """One twin against one network, and a twinned forest against a forest: six, as in print."""
    forests = m.means("forests", forest_errors, ("rf", "twinned_rf"))
    gains = {
        "twin networks": 1 - m.twins[1] / m.plain[1],
        "twinned forests": 1 - forests["twinned_rf"] / forests["rf"],
    }
    parts = [f"{name} on {on(gain > 0)}" for name, gain in gains.items()]
    fewest = min((gain > 0 for gain in gains.values()), key=sum)
    return Outcome(grade(fewest, 6, 5), f"a lower error than their base: {', '.join(parts)}")


def anchors_are_an_ensemble(m: Measured) -> Outcome:
    """All anchors against one."""
    gain = 1 - m.twins[1] / m.one_anchor
    details = f"all anchors lower the error of one on {on(gain > 0)}, by {spread(gain)}"
    return Outcome(grade(gain > 0, 9, 5), details)


def both_curves_fall(m: Measured) -> Outcome:
    """Error by number of anchors, and by number of networks."""
    anchors = m.anchors[SIZE] < m.one_anchor
    networks = m.plain[SIZE] < m.plain[1]
    left = m.anchors[SIZE] / m.twins[1] - 1
    details = (
        f"{SIZE} random anchors are better than one on {on(anchors)}, {SIZE} networks than one on "
        f"{on(networks)}; {SIZE} anchors are {spread(left)} above all of them"
    )
    return Outcome(grade(anchors & networks, 9, 5), details)


def anchors_differ_from_networks(m: Measured) -> Outcome:
    """Limits and slopes of the blue and the orange dashed lines.

    By the printed tables, limits differ by more than three per cent on seven sets, gains on five.
    """
    limits = m.twins[1] / m.plain[SIZE] - 1
    slopes = (1 - m.twins[1] / m.one_anchor) - (1 - m.plain[SIZE] / m.plain[1])
    apart, slanted = limits.abs() > EQUAL, slopes.abs() > EQUAL
    details = (
        f"the limit of anchors is {spread(limits)} above that of networks, and differs by more than"
        f" {percent(EQUAL)} on {on(apart)}; the gains of all anchors over one and of {SIZE} "
        f"networks over one differ by more on {on(slanted)}"
    )
    both = grade(apart, 7, 5) == grade(slanted, 5, 4) == Status.HOLDS
    return Outcome(Status.HOLDS if both else grade(apart | slanted, NEVER, 5), details)


def retrained_anchors_are_better(m: Measured) -> Outcome:
    """The red line below the blue one at every size."""
    sizes = [2, 4, 8, 16, SIZE]
    below = m.single_anchor_twins[sizes] < m.anchors[sizes]
    lower = below.all(axis=1)
    details = (
        f"below at every size from {sizes[0]} to {SIZE} on {on(lower)}; in {int(below.sum().sum())}"
        f" of {below.size} pairs of points"
    )
    return Outcome(grade(lower, 9, 5), details)


def retrained_anchors_fall_faster(m: Measured) -> Outcome:
    """The fall from one to eight, red and blue."""
    red = 1 - m.single_anchor_twins[8] / m.single_anchor_twins[1]
    blue = 1 - m.anchors[8] / m.one_anchor
    details = (
        f"from 1 to 8, retrained twins gain {spread(red)}, anchors of one twin {spread(blue)}; "
        f"more on {on(red > blue)}"
    )
    return Outcome(grade(red > blue, 9, 5), details)


def ensembles_of_twins_are_best(m: Measured) -> Outcome:
    """The green line at its end against the orange and the solid blue one.

    Clearly: by more than two standard errors, over the splits, of the difference to each.
    """
    others = pd.concat([m.plain[SIZE], m.twins[1]], axis=1).min(axis=1)
    gain = 1 - m.twins[SIZE] / others
    twins, networks = (
        m.by_split(study, lambda r: {int(n): e for n, e in r["result"]["members"].items()})
        for study in ("twin-networks", "plain-networks")
    )
    scores = [standard_scores(own - twins[SIZE]) for own in (networks[SIZE], twins[1])]
    clear = pd.concat(scores, axis=1).min(axis=1) > CLEAR
    details = (
        f"{SIZE} twins are better than {SIZE} networks and than one twin on {on(gain > 0)}, by more"
        f" than two standard errors of both differences on {on(clear)}; gains: {each(gain)}"
    )
    return Outcome(grade(clear, 7, 5), details)


def single_anchors_meet_all_anchors(m: Measured) -> Outcome:
    """The red and the green line at 32 members."""
    excess = m.single_anchor_twins[SIZE] / m.twins[SIZE] - 1
    near = excess.abs() <= EQUAL
    details = (
        f"at {SIZE} members the two are within {percent(EQUAL)} on {on(near)}; twins of one anchor "
        f"are {spread(excess)} above"
    )
    return Outcome(grade(near, 9, 5), details)


def combined_gain_exceeds_networks(m: Measured) -> Outcome:
    """From one anchor of one twin to 32 twins, against from one network to 32.

    The printed tables have a larger gain of twins on eight sets, all but WN.
    """
    twins = 1 - m.twins[SIZE] / m.one_anchor
    networks = 1 - m.plain[SIZE] / m.plain[1]
    details = (
        f"twins gain more on {on(twins > networks)}: {spread(twins)}, on average "
        f"{percent(twins.mean())}; networks {spread(networks)}, on average "
        f"{percent(networks.mean())}"
    )
    return Outcome(grade(twins > networks, 8, 5), details)


def several_networks_beat_one(m: Measured) -> Outcome:
    """Table 1, the column of gains: "tend to" is seven of nine."""
    gain = 1 - m.plain[SIZE] / m.plain[1]
    details = f"{SIZE} networks are better than one on {on(gain > 0)}, by {spread(gain)}"
    return Outcome(grade(gain > 0, 7, 5), details)


def several_twins_beat_one(m: Measured) -> Outcome:
    """Table 2, the last column of gains."""
    gain = 1 - m.twins[SIZE] / m.twins[1]
    details = f"{SIZE} twins are better than one on {on(gain > 0)}, by {spread(gain)}"
    return Outcome(grade(gain > 0, 9, 5), details)


def same_sets_beat_networks_and_neighbors(m: Measured) -> Outcome:
    """Section 9: the same seven sets; as many twins as networks, and one twin as in figure B."""
    networks = m.twins[SIZE] < m.plain[SIZE]
    neighbors = m.twins[1] < m.knn.min(axis=1)
    both, neither = networks & neighbors, ~networks & ~neighbors
    details = (
        f"{SIZE} twins beat {SIZE} networks and one twin beats k-NN on {on(both)}, neither on"
        f" {join(names(neither))}; only networks are beaten on "
        f"{join(names(networks & ~neighbors))}, only k-NN on {join(names(neighbors & ~networks))}"
    )
    holds = names(~both) == names(neither) == m.present(NO_GAIN)
    return Outcome(Status.HOLDS if holds else grade(both, NEVER, 5), details)


def reformulation_helps(m: Measured) -> Outcome:
    """Section 9: as many twins as networks; one anchor of one twin is a network itself."""
    gain, single = 1 - m.twins[SIZE] / m.plain[SIZE], 1 - m.one_anchor / m.plain[1]
    details = (
        f"{SIZE} twins are better than {SIZE} networks on {on(gain > 0)}; one twin with one "
        f"anchor, which is a network trained on the dual problem, than one network on "
        f"{on(single > 0)}, by {spread(single)}"
    )
    return Outcome(grade(gain > 0, 5, 4), details)


def deterministic_sets_gain_most(m: Measured) -> Outcome:
    """Section 13: where the label is nearly a deterministic function; two of three, as in print."""
    m.require_datasets(FORMULAS)
    gain = (1 - m.twins[SIZE] / m.plain[SIZE]).sort_values(ascending=False)
    first = pd.Series({key: key in gain.index[:3] for key in FORMULAS})
    details = (
        f"gains of {SIZE} twins over {SIZE} networks: {each(gain)}; {int(first.sum())} of the "
        f"three formulas are among the first three"
    )
    return Outcome(grade(first, 6, 6), details)


def partners_help_except_on_two(m: Measured) -> Outcome:
    """Figure E: a multiplier of 1 (as published two partners) against all pairs."""
    rises = m.paired("random", sizes=[1])[1] < m.all_pairs
    holds = names(rises) == m.present(NO_GAIN)
    details = f"a multiplier of 1 is better than all pairs on {on(rises)}"
    return Outcome(Status.HOLDS if holds else grade(~rises, 9, 5), details)


def few_partners_suffice(m: Measured) -> Outcome:
    """Figure E: 8 to 16 partners within three per cent of all pairs."""
    errors = m.paired("random", sizes=[8, 16])
    excess = {k: errors[k] / m.all_pairs - 1 for k in (8, 16)}
    enough = excess[16] <= EQUAL
    details = "; ".join(
        f"with {k} partners within {percent(EQUAL)} of all pairs, or below, on "
        f"{on(excess[k] <= EQUAL)}, the errors {spread(excess[k])} above"
        for k in (8, 16)
    )
    return Outcome(grade(enough, 9, 5), details)


def one_partner_is_best_on_two(m: Measured) -> Outcome:
    """Figure E: the lowest error of BC and WN.

    As published, multipliers of 1 and 2 train alike, so that 2 is not compared with 1.
    """
    m.require_datasets(NO_GAIN)
    errors = m.paired("random", sizes=[1]).assign(all=m.all_pairs)
    if m.variant == "as_published":
        errors = errors.drop(columns=[2], errors="ignore")
    best = errors.idxmin(axis=1)
    details = "lowest error: " + ", ".join(
        f"{key} with {_multiplier(best[key])}" for key in NO_GAIN
    )
    others = [key for key in names(best == 1) if key not in NO_GAIN]
    details += f"; with 1 also on {join(others)}" if others else "; with 1 on no other set"
    return Outcome(grade(best[NO_GAIN] == 1, 9, 1), details)


def _multiplier(value: Any) -> str:
    return "all pairs" if value == "all" else f"a multiplier of {value}"


def failures_coincide(m: Measured) -> Outcome:
    """Section 6: the multiplier check finds the sets where other methods are better."""
    m.require_datasets(NO_GAIN)
    one_partner = m.paired("random", sizes=[1])[1]
    found = {
        "a multiplier of 1 is better than all pairs": names(one_partner < m.all_pairs),
        f"{SIZE} networks are better than {SIZE} twins": names(m.plain[SIZE] < m.twins[SIZE]),
        "k-NN is better than one twin": names(m.knn.min(axis=1) < m.twins[1]),
    }
    details = "; ".join(f"{text} on {join(keys)}" for text, keys in found.items())
    sets = [set(keys) for keys in found.values()]
    if sets[0] == sets[1] == sets[2]:
        return Outcome(Status.HOLDS, details)
    return Outcome(Status.IN_PART if sets[0] & sets[1] & sets[2] else Status.FAILS, details)


def check_rejects_rightly(m: Measured) -> Outcome:
    """Section 6: where fewer pairs are better than all, another algorithm is better than twins."""
    rejected = m.paired("random", sizes=[1])[1] < m.all_pairs
    networks = m.plain[SIZE] < m.twins[SIZE]
    knn = m.knn.min(axis=1) < m.twins[1]
    right = (networks | knn)[rejected]
    details = (
        f"the check rejects twins on {join(names(rejected))}; there {SIZE} networks are better on "
        f"{join(names(networks & rejected))} and k-NN on {join(names(knn & rejected))}; where it "
        f"does not reject them, {SIZE} networks are better on {join(names(networks & ~rejected))}"
    )
    holds = len(right) > 0 and bool(right.all())
    return Outcome(Status.HOLDS if holds else Status.FAILS, details)
