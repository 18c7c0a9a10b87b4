"""Figure C: whole trainings and predictions are timed, without the first, which compiles."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from paper import origins, timing
from paper.conclusions import costs
from paper.conclusions.measured import Measured, Status
from paper.experiments import EXPERIMENTS
from paper.networks import make_estimator
from paper.records import Trial
from twinned import NearestAnchors, NearestPairs
from twinned.datasets import KEYS, make_tf
from twinned.neural import NeuralRegressor, TwinNeuralRegressor

X, y = (part.to_numpy() for part in make_tf(60, random_state=0))
PARTS = ((X[:30], y[:30]), (X[30:40], y[30:40]), (X[40:], y[40:]))


class FakeNetwork:
    """An estimator that advances a clock: by 7 in the first training of all, which compiles."""

    random_state = 0

    def __init__(self, clock):
        self.clock, self.anchors, self.max_epochs = clock, "all", 100

    def set_params(self, **options):
        self.__dict__.update(options)
        return self

    with_strategies = set_params

    def fit(self, X, y, *, X_val, y_val):
        self.clock.now += 1.0 + self.random_state + 7.0 * (not self.clock.fits)
        self.clock.fits.append((self.random_state, self.max_epochs))

    def predict(self, queries):
        assert len(queries) == 20
        self.clock.now += 0.5 if self.anchors == "all" else 0.01 * self.anchors.k


@pytest.mark.parametrize(("variant", "first"), [("modern", (0, 100)), ("as_published", (0, 1))])
@pytest.mark.parametrize(
    ("pairs", "partners", "expected"),
    [
        ("plain", 0, {"all": 0.5}),
        ("all", 0, {"all": 0.5, "1": 0.01, "4": 0.04, "16": 0.16, "64": 0.64}),
        ("nearest", 8, {"8": 0.08}),
    ],
)
def test_the_first_training_is_not_counted(pairs, partners, expected, variant, first, monkeypatch):
    clock = SimpleNamespace(now=0.0, fits=[])
    monkeypatch.setattr(timing, "split_rows", lambda dataset, split: PARTS)
    monkeypatch.setattr(timing, "make_estimator", lambda trial, kind: FakeNetwork(clock))
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    settings = {"pairs": pairs, "partners": partners, "repetitions": 3}
    ((_, result),) = timing.run_timing([Trial("timing", variant, "TF", 0, settings)])
    assert result["training"] == [1.0, 2.0, 3.0]
    assert clock.fits == [first, (0, 100), (1, 100), (2, 100)]
    assert {name: np.mean(own) for name, own in result["prediction"].items()} == pytest.approx(
        expected
    )
    assert all(len(own) == 3 for own in result["prediction"].values())


def test_networks_are_those_of_the_other_studies():
    assert not timing.timing_trials("modern", "TF", 1)  # one split
    for variant in timing.VARIANTS:
        trials = timing.timing_trials(variant, "TF", 0)
        kinds = [(t.settings["pairs"], t.settings["partners"]) for t in trials]
        assert kinds == [("plain", 0), ("all", 0), *(("nearest", k) for k in (2, 8, 32, 128))]
        for trial in trials:
            is_plain = trial.settings["pairs"] == "plain"
            own = make_estimator(trial, NeuralRegressor if is_plain else TwinNeuralRegressor)
            assert own.n_members == 1
            assert getattr(own, "variant", "modern") == variant
            if trial.settings["pairs"] == "nearest":
                assert isinstance(own.pairs, NearestPairs)
                assert own.pairs.k == trial.settings["partners"]


@pytest.mark.slow
def test_a_trial_trains_and_predicts(monkeypatch):
    monkeypatch.setattr(timing, "split_rows", lambda dataset, split: PARTS)
    monkeypatch.setattr(timing, "ANCHORS", (1, 4))  # of the few rows of this test
    trials = [
        replace(trial, settings=trial.settings | {"effort": "fast", "repetitions": 2})
        for trial in timing.timing_trials("modern", "TF", 0)
        if trial.settings["partners"] in (0, 8)
    ]
    for trial, result in timing.run_timing(trials):
        assert len(result["training"]) == trial.settings["repetitions"] == 2
        assert min(result["training"]) > 0
        for own in result["prediction"].values():
            assert 0 < min(own) < min(result["training"])


def records(seconds, variant="as_published"):
    """Records of all data sets, where `seconds(pairs, partners)` is that of a training."""
    return [
        {
            "config": {"dataset": key, "split": 0, "variant": variant, "settings": trial.settings},
            "result": {
                "training": [seconds(trial.settings["pairs"], trial.settings["partners"])] * 2,
                "prediction": {name: [0.004, 0.006] for name in timing._anchors(trial)},
            },
            "device": "a device",
        }
        for key in KEYS
        for trial in timing.timing_trials(variant, key, 0)
    ]


@pytest.mark.parametrize(("factor", "status"), [(0.5, Status.HOLDS), (2.0, Status.FAILS)])
def test_measured_seconds_decide_the_conclusion(factor, status):
    found = records(lambda pairs, k: 10.0 * factor if pairs == "nearest" else 10.0)
    for variant in timing.VARIANTS:
        measured = Measured(variant, lambda study: found if study == "timing" else [])
        outcome = costs.neighbors_train_faster(measured)
        assert outcome.status == status
        assert (
            f"seconds with 8 neighbors, as a share of those with all pairs, {factor:.0%}"[:-1]
            in outcome.details
        )
        assert "with 128 neighbors" in outcome.details


def test_the_page_states_the_seconds_and_the_device():
    text = origins.one_training(
        records(lambda pairs, k: 0.25 if pairs == "all" else 0.125, "modern")
    )
    assert "alone on one a device, takes 0.25 to 0.25 seconds for a twin" in text
    assert "0.12 to 0.12 for a plain network" in text
    assert "5 to 5 milliseconds" in text


def test_the_figure_names_device_and_repetitions():
    panels = EXPERIMENTS["C"].draw({"timing": records(lambda pairs, k: 1.0)})
    assert "on one a device; bands: ± one standard deviation over 2 repetitions" in panels._note
    axis = panels.axes["TF"]
    (training,) = (
        line for line in axis.lines if list(line.get_xdata()) == list(timing.NEAREST_PAIRS)
        and line.get_linestyle() == "--"
    )  # fmt: skip
    assert list(training.get_ydata()) == [1.0] * 4
    assert isinstance(timing._anchors(Trial("timing", "modern", "TF", 0, {"pairs": "all"}))["4"],
                      NearestAnchors)  # fmt: skip
