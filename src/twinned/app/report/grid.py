"""Adjustment grids: a row and its comparable known cases, one in each column, as texts."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from twinned.estimators.molecules import is_fragment, matched_pair
from twinned.fitted.explanation import ComparableCase, ComparableCases, Value, name_case
from twinned.rows.formatting import format_value, shorten

MAX_FEATURES = 12  # lines of a grid; the adjustments of all others are summed
OTHER_FEATURES = "other features"
_MAX_NAME, _MAX_VALUE = 24, 16  # characters


@dataclass(frozen=True)
class Grid:
    """The texts of a grid; the last column is all other cases, unless all are shown."""

    headings: list[str]  # of the cases
    lines: list[tuple[str, str, list[tuple[str, str]]]]  # title, this row, (value, number) of cases
    summary: str  # the estimate from the cases shown alone, beside the prediction


def summarize_features(comparables: ComparableCases) -> ComparableCases:
    """The cases with the features of largest adjustment; those of all others are summed.

    Features without any adjustment are left out. Without adjustments, the first features are used.
    Counts of the fragments of molecules, which say nothing to a reader, are among all others.
    """
    sizes = {
        name: max(abs(case.adjustments.get(name, 0.0)) for case in comparables.cases)
        for name in comparables.cases[0].values
    }
    adjusted = [name for name in sizes if sizes[name] > 0] or list(sizes)
    named = [name for name in adjusted if not is_fragment(name)]
    shown = sorted(named, key=lambda name: -sizes[name])[:MAX_FEATURES]
    cases = []
    for case in comparables.cases:
        adjustments = {name: case.adjustments[name] for name in shown if case.adjustments}
        if case.adjustments and len(shown) < len(adjusted):
            adjustments[OTHER_FEATURES] = case.difference - sum(adjustments.values())
        values = {name: case.values[name] for name in shown}
        cases.append(replace(case, values=values, adjustments=adjustments))
    return replace(comparables, cases=cases)


def find_pairs(comparables: ComparableCases, molecule: str) -> ComparableCases:
    """The cases that are matched pairs with a molecule, by SMILES, with the groups that differ."""
    pairs = [matched_pair(case.label, molecule) for case in comparables.cases]
    cases = zip(comparables.cases, pairs, strict=True)
    return replace(comparables, cases=[replace(case, pair=pair) for case, pair in cases])


def make_grid(values: dict[str, Value], prediction: float, comparables: ComparableCases) -> Grid:
    """The grid of a row with these values, from the result of `summarize_features`.

    It has the known value of each case, what each feature adds, their sum and its weight.
    """
    cases, spec = comparables.with_others, number_format(prediction, comparables)
    features = dict.fromkeys(name for case in cases for name in (*case.values, *case.adjustments))

    def numbers(values: Iterable[float]) -> list[tuple[str, str]]:
        return [("", show_number(value, spec)) for value in values]

    def cell(case: ComparableCase, name: str) -> tuple[str, str]:
        number = show_number(case.adjustments.get(name, 0.0), f"+{spec}")
        return _value_text(case.values, name), number if set(number) & set("123456789") else ""

    lines = [("known value", "", numbers(case.known for case in cases))]
    if any(case.pair for case in cases):
        lines.insert(0, ("matched pair", "", [(case.pair, "") for case in cases]))
    for name in features:
        cells = [cell(case, name) for case in cases]
        lines.append((shorten(name, _MAX_NAME), _value_text(values, name), cells))
    predicted = show_number(prediction, spec)
    lines.append(("adjusted value", predicted, numbers(case.estimate for case in cases)))
    lines.append(("weight", "", [("", f"{100 * case.weight:.2f} %") for case in cases]))
    alone = f"From the cases shown alone: {show_number(comparables.estimate, spec)}."
    share = f"{100 * comparables.share:.3g} % of the weight of the prediction"
    summary = f"{alone} They carry {share}, {predicted}."
    return Grid([name_case(case.label, case.count) for case in cases], lines, summary)


def number_format(prediction: float, comparables: ComparableCases) -> str:
    """A format with the same decimals for all values, so that they sum to each other."""
    known_y = [
        abs(value) for case in comparables.with_others for value in (case.known, case.estimate)
    ]
    largest = max(abs(prediction), *known_y)
    if not 1e-6 <= largest < 1e12:
        return ".3e"
    return f",.{max(0, 3 - math.floor(math.log10(largest)))}f"


def show_number(value: float, spec: str) -> str:
    """A number with a minus sign."""
    return format(value, spec).replace("-", "−")


def _value_text(values: dict[str, Value], name: str) -> str:
    return shorten(format_value(values[name]), _MAX_VALUE) if name in values else ""
