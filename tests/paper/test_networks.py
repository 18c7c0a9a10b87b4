"""Studies of networks and loops, against slow and obvious versions of the same computation."""

from dataclasses import replace

import numpy as np
import pytest

from paper import anchor_weights, loop_relabelling, member_predictions, networks, tables
from paper.bias_variance import bias_variance_covariance
from paper.decomposition import expected_error
from paper.experiments import STUDIES
from paper.member_predictions import FittedTwin
from paper.records import Trial
from twinned import NearestAnchors, SemiSupervisedTwinRegressor, TwinRegressor
from twinned.datasets import make_tf
from twinned.neural import NeuralTraining, TwinNeuralRegressor

pytestmark = pytest.mark.slow

X, y = (part.to_numpy() for part in make_tf(90, random_state=0))
PARTS = ((X[:50], y[:50]), (X[50:64], y[50:64]), (X[64:], y[64:]))


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(networks, "split_rows", lambda dataset, split: PARTS)


@pytest.fixture(scope="module")
def twins():
    short = NeuralTraining(max_steps=40, n_folds=1, selection="mean")
    twin = TwinNeuralRegressor(n_members=3, training=short, random_state=0)
    return twin.fit(*PARTS[0], X_val=PARTS[1][0], y_val=PARTS[1][1])


def rmse(predicted, known):
    return np.sqrt(np.mean((predicted - known) ** 2))


def test_the_mean_over_members_is_the_estimate_of_the_twin(twins):
    each = np.stack(list(FittedTwin(twins).estimates(PARTS[2][0])))
    assert each.shape == (3, 26, 50)
    _, estimates = twins.predict_anchors(PARTS[2][0])
    np.testing.assert_allclose(each.mean(axis=0), estimates, atol=1e-5)


def test_nearest_anchors_are_those_of_the_twin(twins):
    each = np.stack(list(FittedTwin(twins).estimates(PARTS[2][0])))
    near = FittedTwin(twins).nearest_anchors(PARTS[2][0], 7)
    predicted = np.take_along_axis(each.mean(axis=0), near, axis=1).mean(axis=1)
    of_twin = twins.with_strategies(anchors=NearestAnchors(7)).predict(PARTS[2][0])
    np.testing.assert_allclose(predicted, of_twin, atol=1e-5)


def test_predictions_of_members_are_means_of_their_estimates(twins):
    X, twin = PARTS[2][0], FittedTwin(twins)
    each = np.stack(list(twin.estimates(X)))
    np.testing.assert_allclose(twin.predictions(X), each.mean(axis=2), atol=1e-5)
    for k in (2, 16):
        near = twin.nearest_anchors(X, k)
        expected = [np.take_along_axis(own, near, axis=1).mean(axis=1) for own in each]
        np.testing.assert_allclose(twin.nearest_predictions(X, k, 64), expected, atol=1e-5)


def test_loop_inconsistency_equals_the_mean_over_single_loops(twins):
    X, anchors = PARTS[2][0], twins.anchors_X_
    trial = Trial("weighted-anchors", "modern", "TF", 3, {"members": 3, "loops": 5})
    _, estimates = twins.predict_anchors(X)
    found = anchor_weights.loop_inconsistency(twins, estimates - twins.anchors_y_, trial)
    thirds = np.random.RandomState(3).permutation(len(anchors))[:5]
    for query, anchor in ((0, 0), (3, 7), (25, thirds[0])):
        x, a = X[[query]], anchors[[anchor]]
        loops = [
            abs(sum(twins.predict_difference(*side)[0] for side in ((x, a), (a, b), (b, x))))
            for b in (anchors[[third]] for third in thirds if third != anchor)
        ]
        assert found[query, anchor] == pytest.approx(np.mean(loops), abs=1e-4)


def test_errors_of_groups_of_members():
    rng = np.random.RandomState(0)
    predicted, known = rng.normal(size=(6, 10)), rng.normal(size=10)
    found = member_predictions.errors_by_ensemble_size(predicted, known)
    assert list(found) == ["1", "2", "4"]
    pairs = [predicted[i : i + 2].mean(axis=0) for i in (0, 2, 4)]
    assert found["2"] == pytest.approx(np.mean([rmse(pair, known) for pair in pairs]))
    assert found["4"] == pytest.approx(rmse(predicted[:4].mean(axis=0), known))


def test_errors_with_a_subset_of_anchors():
    rng = np.random.RandomState(0)
    estimates, known, order = rng.normal(size=(10, 6)), rng.normal(size=10), rng.permutation(6)
    found = member_predictions.errors_by_n_anchors(estimates, known, order)
    assert list(found) == ["1", "2", "4", "6"]
    assert found["4"] == pytest.approx(rmse(estimates[:, order[:4]].mean(axis=1), known))
    near = np.argsort(rng.normal(size=(10, 6)), axis=1)
    found = member_predictions.errors_by_n_neighbors(estimates, known, near, [1, 3])
    nearest = np.array([estimates[i, near[i, :3]].mean() for i in range(10)])
    assert found["3"] == pytest.approx(rmse(nearest, known))


@pytest.mark.parametrize("variant", ["modern", "as_published"])
@pytest.mark.parametrize(
    "key", ["plain-networks", "twin-networks", "paired-networks", "weighted-anchors"]
)
def test_a_trial_has_the_same_result_in_a_batch_and_alone(key, variant, monkeypatch):
    study = STUDIES[key]
    short = {"max_epochs": 3, "patience": 3} if variant != "modern" else {"training__max_steps": 20}
    make = networks.make_estimator
    monkeypatch.setattr(
        networks, "make_estimator", lambda trial, kind: make(trial, kind).set_params(**short)
    )
    trials = [
        replace(trial, settings=trial.settings | {"members": 2})
        for split in (0, 1)
        for trial in study.trials(variant, "TF", split)
    ][:4]
    together = {trial.identity: result for trial, result in study.execute(trials)}
    ((_, alone),) = study.execute(trials[-1:])
    _assert_close(together[trials[-1].identity], alone)


def _assert_close(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            _assert_close(value, other[name])
        else:
            assert value == pytest.approx(other[name], rel=2e-3)


def test_the_formula_of_the_appendix_holds_for_any_numbers():
    rng = np.random.RandomState(1)
    estimates, truth = rng.normal(size=(12, 5, 7)) + rng.normal(size=(12, 1, 7)), rng.normal(size=7)
    parts = bias_variance_covariance(estimates, truth)
    off = estimates - estimates.mean(axis=0)
    pairs = [np.mean(off[:, i] * off[:, j]) for i in range(5) for j in range(5) if i != j]
    assert parts["variance"] == pytest.approx(np.mean(off**2))
    assert parts["covariance"] == pytest.approx(np.mean(pairs))
    error = np.mean((estimates.mean(axis=1) - truth) ** 2)
    assert error == pytest.approx(expected_error(parts, 5))


def test_shared_loops_give_the_same_result_as_the_estimator():
    """Several Λ from one fit and one draw of loops, against a fit for one Λ."""
    from sklearn.ensemble import RandomForestRegressor

    from twinned.datasets import forest_split, load

    settings = {"trees": 4, "forest": {"max_depth": 8}, "loop_weights": [0.1, 1.0]}
    trial = Trial("semi-supervised-forests", "modern", "TF", 2, settings)
    ((_, result),) = loop_relabelling.run_semi_supervised([trial])
    table, values = load("TF")
    labelled, test = forest_split(2)
    rows = np.concatenate([labelled, test])
    known = np.where(np.isin(np.arange(200), labelled), values.to_numpy()[:200], np.nan)
    forest = RandomForestRegressor(4, max_depth=8, random_state=2)
    twin = TwinRegressor(forest, pairs="all", symmetric=False, random_state=2)
    alone = SemiSupervisedTwinRegressor(twin, loop_weight=1.0, random_state=2)
    alone.fit(table.to_numpy()[rows], known[rows])
    predicted = alone.predict(table.to_numpy()[test])
    assert result["loops"]["1"] == pytest.approx(
        rmse(predicted, values.to_numpy()[test]), rel=1e-12
    )
    assert result["inconsistency"]["1"] == pytest.approx(alone.loop_inconsistency_, rel=1e-12)
    # the first of several rounds is that one round
    rounds = Trial("iterated-loops", "modern", "TF", 2, settings | {"rounds": 2})
    ((_, again),) = loop_relabelling.run_iterated([rounds])
    assert again["1"]["rmse"][:2] == pytest.approx([result["supervised"], result["loops"]["1"]])
    assert len(again["1"]["rmse"]) == 3


def record(study, split, settings, result, variant="modern"):
    config = {"study": study, "variant": variant, "dataset": "TF", "split": split}
    return {"config": config | {"settings": settings}, "result": result}


@pytest.mark.parametrize(("variant", "k"), [("modern", "4"), ("as_published", "2")])
def test_neighbors_are_chosen_by_validation_or_as_in_the_paper(variant, k):
    nearest = {"validation": {"2": 0.3, "4": 0.2}, "test": {"2": 0.1, "4": 0.5}}
    result = {"members": {"1": 0.4}, "nearest": nearest}
    paired = [
        record(
            "paired-networks",
            0,
            {"pairs": "nearest", "partners": n},
            {"validation": nearest["validation"][str(n)], "test": nearest["test"][str(n)]},
            variant,
        )
        for n in (2, 4)
    ]
    records = {
        "twin-networks": [record("twin-networks", 0, {}, result, variant)],
        "paired-networks": paired,
    }
    table = tables.table3(records).set_index("method")["rmse"]
    assert table["tnnr_all_anchors"] == 0.4
    assert table["nn_inference"] == table["nn_train_and_inference"] == nearest["test"][k]


def test_the_weight_of_loops_is_chosen_on_labelled_rows():
    test = {"supervised": 1.0, "loops": {"0": 0.9, "1": 0.5}, "inconsistency": {}}
    fold = {"supervised": 1.0, "loops": {"0": 0.7, "1": 0.8}, "inconsistency": {}}
    for variant, expected in (("modern", 0.9), ("as_published", 0.5)):  # the author: on test rows
        records = [record("s", 0, {}, test, variant), record("s", 0, {"fold": 0}, fold, variant)]
        chosen = tables.table4({"semi-supervised-forests": records}).set_index("method")["rmse"]
        assert chosen["twinned_rf_semi_supervised"] == expected
