"""Each diagnostic on data of which the answer is known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from twinned import NearestAnchors, RandomAnchors, TwinRegressor, diagnose, diagnostics
from twinned.datasets import make_tf, make_wsb
from twinned.diagnostics import (
    anchor_curve,
    compare,
    learning_curve,
    loop_check,
    multiplier_check,
    neighbor_curve,
)
from twinned.diagnostics.comparison import ratio_interval
from twinned.diagnostics.cross_validation import Encoder, Evidence, gather
from twinned.diagnostics.uncertainty_checks import gamma_test
from twinned.report import collect

TOOLS = {"Diagnosis", "Finding", "diagnose"}  # the others are diagnostics
EACH = [getattr(diagnostics, name) for name in diagnostics.__all__ if name not in TOOLS]


def tree():
    return TwinRegressor(DecisionTreeRegressor(max_depth=9, random_state=0), random_state=0)


@pytest.fixture(scope="module")
def bridge():
    X, y = make_wsb(120, random_state=0)
    return X, y


@pytest.fixture(scope="module")
def evidence(bridge):
    return gather(*bridge, tree())


@pytest.mark.parametrize("check", EACH)
def test_each_has_numbers_a_sentence_and_a_picture(check, bridge, evidence):
    finding = check(*bridge, evidence=evidence)
    assert finding.verdict.endswith(".")
    assert finding.title.endswith("?")
    assert finding.numbers
    axes = finding.plot()
    assert axes.get_title() == finding.title
    assert axes.has_data()


def test_each_gathers_its_own_evidence(bridge, evidence):
    alone = compare(*bridge, tree())
    assert alone.numbers == compare(*bridge, evidence=evidence).numbers


def test_left_out_predictions_are_of_models_that_left_them_out(bridge, evidence):
    X, y = bridge
    learned, left_out = evidence.folds[2]
    alone = tree().fit(X.iloc[learned], y.iloc[learned]).predict(X.iloc[left_out])
    np.testing.assert_array_equal(evidence.told["twin"][left_out], alone)
    assert sorted(np.concatenate([rows for _, rows in evidence.folds])) == list(range(120))


def test_a_twin_that_helps_and_one_that_cannot():
    X, y = make_wsb(150, random_state=1)
    assert compare(X, y, tree()).numbers["answer"] == "helps"
    # differences of a linear function are the same linear function
    rng = np.random.RandomState(0)
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=80)
    found = compare(X, y, TwinRegressor(LinearRegression()))
    assert found.numbers["answer"] == "no clear difference"
    assert found.numbers["ratio"] == pytest.approx(1, abs=0.02)


def test_the_interval_of_a_ratio_covers_it():
    """95 % intervals of the ratio of two errors, whose true ratio is 0.8."""
    rng = np.random.RandomState(0)
    inside = 0
    for _ in range(100):
        shared, y = rng.normal(size=60), np.zeros(60)
        middle, low, high = ratio_interval(0.8 * shared, shared, y)
        assert [middle, low, high] == pytest.approx([0.8] * 3)  # always the same ratio: no doubt
        own = ratio_interval(0.8 * rng.normal(size=60), rng.normal(size=60), y)
        inside += own[1] <= 0.8 <= own[2]
    assert 86 <= inside <= 99


def test_more_anchors_and_the_last_place_is_the_twin_itself(bridge, evidence):
    X, y = bridge
    numbers = anchor_curve(X, y, evidence=evidence).numbers
    assert numbers["at"][-1] == 96
    each = [
        np.sqrt(np.mean((evidence.told["twin"][rows] - evidence.y[rows]) ** 2))
        for _, rows in evidence.folds
    ]
    assert numbers["rmse"][-1] == pytest.approx(np.mean(each))
    assert numbers["error"][-1] == pytest.approx(np.std(each, ddof=1) / np.sqrt(5))
    nearest = neighbor_curve(X, y, evidence=evidence).numbers
    assert nearest["rmse"][-1] == pytest.approx(numbers["rmse"][-1])
    # as the estimator does it
    learned, left_out = evidence.folds[0]
    k = nearest["at"][3]
    twin = tree().set_params(anchors=NearestAnchors(k)).fit(X.iloc[learned], y.iloc[learned])
    error = np.sqrt(np.mean((twin.predict(X.iloc[left_out]) - evidence.y[left_out]) ** 2))
    first = neighbor_curve(X, y, evidence=_first_fold(evidence)).numbers["rmse"][3]
    assert first == pytest.approx(error)


def _first_fold(evidence):
    learned, left_out = evidence.folds[0]
    return replace(
        evidence,
        folds=[(learned, left_out)],
        twins=evidence.twins[:1],
    )


def test_pairs_that_teach_and_labels_that_help():
    X, y = make_tf(200, random_state=0)
    own = gather(X, y, tree())
    assert multiplier_check(X, y, evidence=own).numbers["answer"] == "falls"
    found = learning_curve(X, y, evidence=own)
    assert found.numbers["doubled"] < 0.9
    assert "Twice as many labels" in found.verdict


def test_noise_is_found_where_it_is():
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(400, 2))
    clean = np.sin(3 * X[:, 0]) + X[:, 1]
    assert gamma_test(X, clean) < 0.02
    assert gamma_test(X, clean + 0.2 * rng.normal(size=400)) == pytest.approx(0.2, rel=0.2)
    assert gamma_test(np.zeros((50, 1)), rng.normal(size=50)) == pytest.approx(1, rel=0.3)


def test_any_table_becomes_numbers():
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan], "c": pd.Categorical(["x", "y", "x"])})
    wide = Encoder(frame).features
    assert wide.shape == (3, 3)
    np.testing.assert_array_equal(wide[:, 1:], [[1, 0], [0, 1], [1, 0]])
    np.testing.assert_array_equal(Encoder(frame)(frame.iloc[[1]]), wide[[1]])


def test_of_more_rows_than_there_is_time_for_some_are_judged(bridge, monkeypatch):
    X, y = bridge
    monkeypatch.setattr("twinned.diagnostics.cross_validation.FEWEST_JUDGED", 50)
    found = diagnose(X, y, estimator=tree(), budget=0.001)
    places = found.evidence.places
    assert len(places) == len(found.evidence.y) == 50
    np.testing.assert_array_equal(found.evidence.y, y.iloc[places])
    assert found.n_rows == len(found.model.anchors_y_) == 120
    assert "50 random rows of 120" in found.notes[0]
    assert found.calibrated.store_in() is found.model  # though its scores are of some points
    facts = collect(found, title="some")
    assert (facts["rows"], facts["judged"]) == (120, 50)
    for query in facts["comparables"]:
        assert query["truth"] == pytest.approx(y.iloc[query["row"] - 1], rel=1e-5)
        for anchor in query["anchors"]:
            assert anchor["known"] == pytest.approx(y.iloc[anchor["row"] - 1], rel=1e-5)


class Slow:
    """A twin that takes a millisecond for each of its anchors that it asks; the clock is ours."""

    def __init__(self, used, clock):
        self.anchors_y_, self._used, self._clock = np.zeros(4_000), used, clock

    def _n_used(self):
        return self._used

    def predict(self, X, return_std):
        self._clock[0] += 1e-3 * len(X) * self._used


@pytest.mark.parametrize(
    ("used", "seconds", "judged"),
    [
        (
            4_000,
            5 * 1_000 * 4.0 + 10,
            5_000,
        ),  # all: 1,000 rows a fold, 4,000 anchors each
        (4_000, 5 * 500 * 2.0 + 10, 2_000),  # half the rows are a quarter of the pairs; coarsely
        (16, 5 * 500 * 0.016 + 10, 2_000),  # with 16 anchors each, half the rows are half the pairs
        (16, 5 * 250 * 0.016 + 10, 1_000),
        (4_000, 0.0, 1_000),
        (4_000, None, 5_000),
    ],
)
def test_how_many_rows_there_is_time_for(used, seconds, judged, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("twinned.diagnostics.cross_validation.time.perf_counter", lambda: clock[0])
    X, folds = np.zeros((5_000, 1)), [(np.arange(4_000), np.arange(4_000, 5_000))] * 5
    found = Evidence(X, np.zeros(5_000), tree(), folds, last_seconds=2.0)
    assert found._askable(Slow(used, clock), folds[0][1], seconds) == judged


def test_curves_ask_as_many_points_as_they_need(bridge, evidence, monkeypatch):
    X, y = bridge
    whole = anchor_curve(X, y, evidence=evidence).numbers["rmse"]
    monkeypatch.setattr("twinned.diagnostics.cross_validation.MOST_ESTIMATES", 20 * 96)
    fewer = replace(evidence)
    assert [len(rows) for rows in fewer.asked()] == [20] * 5
    assert fewer.estimate_seconds > 0
    told = anchor_curve(X, y, evidence=fewer).numbers["rmse"]
    assert told != whole
    assert told == pytest.approx(whole, rel=0.5)
    assert len(loop_check(X, y, evidence=fewer).numbers["loops"]) == 100
    assert neighbor_curve(X, y, evidence=fewer).numbers["rmse"][-1] == pytest.approx(told[-1])


def test_a_diagnosis_within_no_time_does_what_is_essential(bridge):
    X, y = bridge
    found = diagnose(X, y, estimator=tree(), budget=0.001)
    assert list(found.findings) == ["comparison"]
    assert "multiplier check" in found.left_out
    assert "Left out for lack of time" in str(found)
    assert found.calibrated.predict_interval(X, 0.9).shape == (120, 2)
    np.testing.assert_array_equal(found.model.predict(X), tree().fit(X, y).predict(X))


def test_a_diagnosis_with_time_asks_everything(bridge):
    said = []
    found = diagnose(*bridge, estimator=tree(), progress=said.append)
    assert set(found.findings) == {
        "comparison", "anchors", "neighbors", "loops", "noise", "multiplier", "learning",
        "variance",
    }  # fmt: skip
    assert not found.left_out
    assert "twin, fold 1 of 5" in said
    namespace = {}
    lines = found.code.splitlines()
    assert len(lines) == 3
    exec("\n".join(lines[:2]), namespace)
    assert repr(namespace["twin"]) == repr(found.recommended)
    # whatever is recommended, its intervals are of models like it
    own = found.calibrated.models[0]
    assert repr(own.anchors) == repr(found.recommended.anchors)


def test_missing_values_leave_out_what_needs_them():
    X, y = make_wsb(60, random_state=0)
    X = X.copy()
    X.iloc[::9, 0] = np.nan
    from sklearn.ensemble import HistGradientBoostingRegressor

    few = TwinRegressor(HistGradientBoostingRegressor(max_iter=20), random_state=0)
    found = diagnose(X, y, estimator=few)
    assert "comparison" in found.findings
    assert found.calibrated.predict_interval(X, 0.8).shape == (60, 2)


def test_too_few_rows_are_told():
    with pytest.raises(ValueError, match="20 rows at least; there are 5"):
        diagnose(np.zeros((5, 1)), np.arange(5.0))


def test_a_constant_target_is_told():
    with pytest.raises(ValueError, match="All values of y are 1"):
        diagnose(np.random.RandomState(0).rand(25, 2), np.ones(25), estimator=tree())


def test_a_perfect_fit_is_no_accident():
    X = np.repeat(np.arange(5.0), 6)[:, None]
    found = diagnose(X, X[:, 0], estimator=tree())
    assert found.findings["noise"].numbers["noise"] < 1e-6


@pytest.mark.parametrize("anchors", [NearestAnchors(4), RandomAnchors(6)])
def test_a_twin_with_anchors_of_its_own(anchors, bridge):
    from twinned.report import collect, render

    X, y = bridge
    found = diagnose(X, y, estimator=tree().set_params(anchors=anchors))
    again = anchor_curve(X, y, evidence=found.evidence).numbers  # the evidence is as it was
    assert again == found.findings["anchors"].numbers
    facts = collect(found, title="t")
    render(facts)
    for query in facts["comparables"][:4]:
        for anchor in query["anchors"]:
            assert anchor["known"] == pytest.approx(y.iloc[anchor["row"] - 1], rel=1e-5)


def test_names_as_the_twin_takes_them():
    rng = np.random.RandomState(0)
    frame = pd.DataFrame({"a": rng.rand(60), "s": rng.choice(["x", "y"], 60)})
    y = frame["a"] + (frame["s"] == "x")
    twin = tree().set_params(categorical_features=["s"])
    assert "comparison" in diagnose(frame, y, estimator=twin, budget=0.001).findings
    assert Encoder(frame, ["s"]).features.shape == (60, 3)


def test_the_code_is_the_model(bridge):
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=4), pairs=9, symmetric=False)
    found = diagnose(*bridge, estimator=twin, budget=0.001)
    namespace = {}
    exec("\n".join(found.code.splitlines()[:2]), namespace)
    assert repr(namespace["twin"]) == repr(found.recommended)


def test_rows_of_a_group_are_left_out_together():
    """Measurements of one sample: their siblings among the anchors would give them away."""
    rng = np.random.RandomState(0)
    sample = np.repeat(np.arange(20), 4)
    X = rng.normal(size=(20, 3))[sample] + 0.01 * rng.normal(size=(80, 3))
    y = rng.normal(size=20)[sample] + 0.01 * rng.normal(size=80)
    names = np.array([f"s{i}" for i in sample])
    alone = diagnose(X, y, estimator=tree(), budget=0)
    together = diagnose(X, y, estimator=tree(), budget=0, groups=names)
    for learned, left_out in together.evidence.folds:
        assert not set(sample[learned]) & set(sample[left_out])
    of_twin = [one.findings["comparison"].numbers["rmse"]["twin"] for one in (alone, together)]
    assert 4 * of_twin[0] < of_twin[1]
    told, other = together.evidence.told["twin"], together.evidence.told["base"]
    _, low, high = ratio_interval(told, other, y)
    _, lower, higher = ratio_interval(told, other, y, sample)
    assert higher - lower > 1.3 * (high - low)  # twenty samples know less than eighty points
    # the largest numbers alone, as in a fold: those that are not there count for nothing
    some = slice(40, 80)
    assert np.isfinite(ratio_interval(told[some], other[some], y[some], sample[some])).all()
    assert ratio_interval(told, other, y, sample // 5)[1:] == (0.0, np.inf)  # four tell nothing
    with pytest.raises(ValueError, match="Row 1 has no group"):
        diagnose(X, y, groups=["s", None, *names[2:]])
    with pytest.raises(ValueError, match=r"largest group has 77 of the 80 rows.* 3 are left"):
        diagnose(X, y, groups=np.repeat(["a", "b"], [77, 3]))
    with pytest.raises(ValueError, match="one group for each of the 80 rows"):
        diagnose(X, y, groups=names[:5])
    with pytest.raises(ValueError, match="All rows are of one group, s"):
        diagnose(X, y, groups=np.full(80, "s"))
