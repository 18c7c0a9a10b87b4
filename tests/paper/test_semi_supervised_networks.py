"""Study S: semi-supervised twin networks and co-training, its table and its conclusions."""

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paper import semi_supervised_networks as study
from paper.conclusions import CONCLUSIONS, semi_supervised
from paper.conclusions.measured import Measured, Status
from paper.data import load_arrays, rmse, training_and_test_rows
from paper.experiments import EXPERIMENTS, STUDIES, table_text
from paper.published import PublishedNetwork, PublishedTwin
from paper.records import Trial
from paper.semi_supervised_table import method_errors, table_s
from twinned.datasets import KEYS
from twinned.neural import NeuralTraining

RESULTS = Path(__file__).resolve().parents[2] / "paper" / "results"


def trials(variant="modern"):
    return STUDIES[study.STUDY].trials(variant, "TF", 3)


def short_trial(variant):
    """A trial of one loop weight and one round of co-training."""
    trial = trials(variant)[0]
    return replace(trial, settings=trial.settings | {"loop_weights": [1.0], "rounds": 1})


@pytest.mark.parametrize("trial", trials(), ids=lambda trial: f"{trial.settings['share']:g}")
def test_labelled_and_unlabelled_rows_are_the_80_percent_without_test_rows(trial):
    problem = study.make_problem(trial)
    (X, y), (X_test, y_test) = training_and_test_rows("TF", 3)
    assert len(problem.y) == round(trial.settings["share"] * len(y))
    both = np.concatenate([problem.X, problem.X_unlabelled])
    assert np.array_equal(np.sort(both, axis=0), np.sort(X, axis=0))
    assert np.array_equal(problem.X_test, X_test)
    assert np.array_equal(problem.y_test, y_test)
    known = {tuple(row): value for row, value in zip(X, y, strict=True)}
    assert all(known[tuple(row)] == v for row, v in zip(problem.X, problem.y, strict=True))


def test_a_larger_share_labels_the_same_rows_and_more():
    few, more, most = (study.make_problem(trial) for trial in trials())
    assert np.array_equal(few.X, most.X[: len(few.X)])
    assert np.array_equal(more.X, most.X[: len(more.X)])


def test_rows_as_published_are_30_10_50_and_10_percent():
    (trial,) = STUDIES[study.STUDY].trials("as_published", "TF", 3)
    problem = study.make_problem(trial)
    X, y = load_arrays("TF")
    order = np.random.RandomState(3).permutation(1000)
    for found, rows in (
        (problem.X, order[:300]),
        (problem.validation[0], order[300:400]),
        (problem.X_unlabelled, order[400:900]),
        (problem.X_test, order[900:]),
    ):
        assert np.array_equal(found, X[rows])
    assert np.array_equal(problem.y_test, y[order[900:]])


@pytest.mark.slow
def test_a_trial_as_published_trains_all_methods(monkeypatch):
    for kind in (PublishedNetwork, PublishedTwin):
        monkeypatch.setattr(study, kind.__name__, partial(kind, max_epochs=8))
    ((_, result),) = study.run_semi_supervised_networks([short_trial("as_published")])
    assert set(result) == {"supervised", "loops", "plain", "co-training"}
    errors = [result["supervised"], result["plain"], *result["loops"].values()]
    assert all(own["test"] > 0 and own["out_of_fold"] > 0 for own in errors)


class NearestValue:
    """A "network": the value of the nearest labelled row; certain where that is near."""

    def __init__(self, scale):
        self.scale = scale

    def fit(self, X, y):
        fitted = NearestValue(self.scale)
        fitted.X, fitted.y = X[~np.isnan(y)], y[~np.isnan(y)]
        fitted.out_of_fold_prediction_ = np.where(np.isnan(y), np.nan, 0.0)
        fitted.n_rows = len(y)
        return fitted

    def predict(self, X, return_std=False):
        apart = np.abs(X[:, None] - self.X[None]).sum(axis=2)
        value = self.scale * self.y[apart.argmin(axis=1)]
        return (value, apart.min(axis=1)) if return_std else value


@pytest.fixture
def toy(monkeypatch):
    """Networks of scale 1 (silu, or none named) and 0.9 (relu); returns the training sets."""
    seen = []

    def network(training, **options):
        return NearestValue(0.9 if training.activation == "relu" else 1.0)

    def fit_many(estimator, sets):
        seen.extend(sets)
        return [estimator.fit(*own) for own in sets]

    monkeypatch.setattr(study, "TwinNeuralRegressor", network)
    monkeypatch.setattr(study, "NeuralRegressor", network)
    monkeypatch.setattr(study, "fit_many", fit_many)
    return seen


def co_training_slowly(problem, n_rounds):
    """Two networks that label points for each other, point by point."""
    scales, labelled = (1.0, 0.9), [list(zip(problem.X, problem.y, strict=True)) for _ in range(2)]
    left = [list(problem.X_unlabelled) for _ in range(2)]

    def fit(i):
        X, y = zip(*labelled[i], strict=True)
        return NearestValue(scales[i]).fit(np.array(X), np.array(y))

    for _ in range(n_rounds):
        models = fit(0), fit(1)
        for source in (0, 1):
            other = 1 - source
            rated = []
            for number, point in enumerate(left[other]):
                (value,), (spread,) = models[source].predict(point[None], return_std=True)
                rated.append((spread, number, point, value))
            rated.sort(key=lambda item: item[:2])
            labelled[other] += [(point, value) for _, _, point, value in rated[: len(problem.y)]]
            left[other] = [item[2] for item in sorted(rated[len(problem.y) :], key=lambda i: i[1])]
    predicted = (fit(0).predict(problem.X_test) + fit(1).predict(problem.X_test)) / 2
    return rmse(predicted, problem.y_test)


def test_results_equal_a_slow_version(toy):
    batch = trials()
    results = {
        trial.settings["share"]: result
        for trial, result in study.run_semi_supervised_networks(batch[::-1])
    }
    assert set(results) == set(study.SHARES)
    for trial in batch:
        problem, result = study.make_problem(trial), results[trial.settings["share"]]
        supervised = NearestValue(1.0).fit(problem.X, problem.y)
        assert result["supervised"] == {
            "test": pytest.approx(rmse(supervised.predict(problem.X_test), problem.y_test)),
            "out_of_fold": pytest.approx(rmse(np.zeros(len(problem.y)), problem.y)),
        }
        assert result["co-training"]["test"] == pytest.approx(co_training_slowly(problem, 2))
        assert set(result["loops"]) == {"0.1", "1", "10"}


def test_only_the_loop_loss_gets_unlabelled_rows(toy):
    (trial, *_) = trials()
    list(study.run_semi_supervised_networks([trial]))
    problem = study.make_problem(trial)
    n, n_all = len(problem.y), len(problem.y) + len(problem.X_unlabelled)
    with_missing = [len(y) for _, y in toy if np.isnan(y).any()]
    assert with_missing == [n_all] * len(study.LOOP_WEIGHTS)
    sizes = [len(y) for _, y in toy if not np.isnan(y).any()]
    assert sizes == [n, n, *[n] * 2, *[2 * n] * 2, *[3 * n] * 2]


@pytest.mark.slow
def test_a_trial_trains_all_methods(monkeypatch):
    monkeypatch.setattr(study, "NeuralTraining", partial(NeuralTraining, max_steps=50))
    ((_, result),) = study.run_semi_supervised_networks([short_trial("modern")])
    table = method_errors({study.STUDY: [record(result, "TF", 3, 0.1)]})
    assert table.notna().all(axis=None)
    assert (table > 0).all(axis=None)


# --- table and conclusions ------------------------------------------------------------------------


def record(result, dataset, split, share):
    trial = Trial(study.STUDY, "modern", dataset, split, {"share": share})
    return {"config": trial.__dict__, "result": result}


def result(supervised=1.0, loops=0.9, plain=1.1, co_training=1.0):
    """Out of fold loops of weight 1 are best, on test rows those of weight 10."""

    def errors(test, out_of_fold=1.0):
        return {"test": test, "out_of_fold": out_of_fold}

    return {
        "supervised": errors(supervised),
        "loops": {"0.1": errors(2.0), "1": errors(loops, 0.5), "10": errors(0.1, 0.8)},
        "plain": errors(plain),
        "co-training": {"test": co_training},
    }


def test_the_loop_weight_is_not_chosen_by_test_rows():
    table = method_errors({study.STUDY: [record(result(), "TF", s, 0.1) for s in range(2)]})
    assert (table["loops, chosen"] == 0.9).all()


def test_one_loop_weight_is_chosen_for_all_splits_of_a_set_and_share():
    other = result()
    other["loops"]["10"]["out_of_fold"] = 0.4  # the lowest of its own split only
    records = [record(own, "TF", i, 0.1) for i, own in enumerate([result(), result(), other])]
    records.append(record(other, "TF", 0, 0.3))
    table = method_errors({study.STUDY: records})["loops, chosen"]
    assert (table.loc[0.1] == 0.9).all()
    assert (table.loc[0.3] == 0.1).all()


def raw_records():
    with gzip.open(RESULTS / f"{study.STUDY}-modern.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def test_the_committed_table_by_a_slow_version():
    records, errors = raw_records(), {}
    for own in records:
        config = own["config"]
        cell = errors.setdefault((config["settings"]["share"], config["dataset"]), [])
        cell.append(own["result"])
    text = table_text(EXPERIMENTS["S"], {study.STUDY: records}, "modern")
    assert text == (RESULTS / "S-modern.md").read_text("utf-8")
    for share in study.SHARES:
        section = text.split(f"{100 * share:g} % of the rows")[1].split(" labelled:")[1]
        for key in KEYS:
            own = errors[share, key]
            assert len(own) == 25
            base, plain = (np.mean([r[m]["test"] for r in own]) for m in ("supervised", "plain"))
            line = next(line for line in section.splitlines() if line.startswith(f"| {key} "))
            assert line.startswith(f"| {key} | {base:.4g} |")
            assert line.split("|")[-3].startswith(f" {plain / base:.3f} (")
    assert len(table_s({study.STUDY: records})) == len(records) * 7


def measured(networks, forest_gain=0.01, datasets=KEYS):
    """Records of networks of 25 splits, and forests of one gain on all sets."""
    forest = {"supervised": 1.0, "loops": {"0": 1.0, "1": 1.0 - forest_gain}}

    def read(name):
        if name == study.STUDY:
            cells = [
                (key, s, share) for key in datasets for s in range(25) for share in study.SHARES
            ]
            return [record(networks, *cell) for cell in cells]
        return [
            {"config": {"dataset": key, "split": split, "settings": own, "variant": "modern"},
             "result": forest}
            for key in KEYS for split in range(25) for own in ({}, {"fold": 0})
        ]  # fmt: skip

    return Measured("modern", read)


CASES = [
    (semi_supervised.twins_help_with_few_rows, result(plain=1.1), Status.HOLDS),
    (semi_supervised.twins_help_with_few_rows, result(plain=0.9), Status.FAILS),
    (semi_supervised.loops_help_twins, result(loops=0.9), Status.HOLDS),
    (semi_supervised.loops_help_twins, result(loops=1.1), Status.FAILS),
    (semi_supervised.twins_gain_more, result(loops=0.9), Status.HOLDS),
    (semi_supervised.twins_gain_more, result(loops=0.995), Status.FAILS),
    (semi_supervised.co_training_gains_more, result(co_training=1.0), Status.HOLDS),
    (semi_supervised.co_training_gains_more, result(co_training=1.095), Status.FAILS),
]


@pytest.mark.parametrize(("check", "networks", "status"), CASES)
def test_conclusions_follow_the_records(check, networks, status):
    (conclusion,) = (c for c in CONCLUSIONS if c.check is check)
    assert conclusion.evaluate(measured(networks)).status == status


@pytest.mark.parametrize(
    ("check", "networks", "status"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])],
)
def test_conclusions_name_the_missing_sets(check, networks, status):
    (conclusion,) = (c for c in CONCLUSIONS if c.check is check)
    part = conclusion.evaluate(measured(networks, datasets=KEYS[:6]))
    assert (part.status, part.n_datasets) == (status, 6)
    assert part.details.endswith(f"missing: {study.STUDY} on WN, WSB and YH")
