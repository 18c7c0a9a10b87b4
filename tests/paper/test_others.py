"""Statements that are measured by a study of their own: rules, by made-up results."""

import pandas as pd
import pytest

from paper.conclusions import others
from paper.conclusions.measured import Measured, Status
from twinned.datasets import KEYS


def judge(monkeypatch, check, rows, variant="modern"):
    monkeypatch.setattr(Measured, "benchmark", lambda self, *name: pd.DataFrame(rows))
    return check(Measured(variant, lambda study: []))


@pytest.mark.parametrize(
    ("n_good", "nearest", "status"),
    [(9, 0.5, Status.HOLDS), (5, 0.5, Status.HOLDS), (5, 0.9, Status.IN_PART), (4, 0.5, "fails")],
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
    assert outcome.status == (Status.FAILS if status == "fails" else status)
    assert f"a: a lower error than the base model on {n_good}, than one anchor" in outcome.details


@pytest.mark.parametrize(
    ("at_32", "at_128", "n_sets", "status"),
    [(1.04, 1.01, 9, Status.HOLDS), (1.04, 1.01, 8, Status.IN_PART), (1.2, 1.05, 9, Status.FAILS),
     (1.01, 1.02, 9, Status.FAILS)],
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
    [((0.9, 0.9, 1.1), Status.HOLDS), ((0.9, 1, 1.1), Status.IN_PART), ((1, 1, 1), Status.FAILS)],
)
def test_algorithm_1_for_networks(monkeypatch, errors, status):
    rows = [
        {"dataset": key, "seed": 0, "method": method, "rmse": value}
        for key, error in zip(("BC", "WSB", "YH"), errors, strict=True)
        for method, value in {"supervised": 1.0, "Λ = 1": error}.items()
    ]
    check = others.relabelling_works_for_networks
    assert judge(monkeypatch, check, rows).status == status
