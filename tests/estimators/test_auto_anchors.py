"""`anchors="auto"`: all anchors or the nearest, chosen by out-of-fold errors."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold

from twinned import (
    NearestAnchors,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
    cross_conformal,
    load,
    save,
)
from twinned.estimators import conformal as conformal_module
from twinned.estimators.conformal import cross_errors
from twinned.export import thin, to_c, to_onnx
from twinned.models.neural import fitting, selection
from twinned.models.neural.inference import TrainedNetworks, anchor_differences
from twinned.models.neural.network import pad_to
from twinned.models.neural.problem import build_problem
from twinned.models.neural.training_run import EnsembleMember
from twinned.pairing.anchors import N_NEAREST, clearly_lowest

FOLDS = KFold(4, shuffle=True, random_state=0)
AUTO = TwinRegressor(Ridge(), anchors="auto", cv=FOLDS)


@pytest.fixture(scope="module")
def curved():
    """A target that is linear only in the neighborhood of a row."""
    X = np.random.RandomState(0).uniform(-2, 2, size=(150, 2))
    return X, np.sin(1.5 * X[:, 0]) + 0.1 * X[:, 1]


def test_the_number_of_nearest_anchors_is_chosen_by_the_errors_of_fold_models(curved):
    X, y = curved
    near, errors = clone(AUTO).fit(X, y), {}
    for anchors in ("all", *(NearestAnchors(n, "learned") for n in N_NEAREST)):
        twin, predicted = TwinRegressor(Ridge(), anchors=anchors), np.empty(150)
        for training, held_out in FOLDS.split(X):
            predicted[held_out] = twin.fit(X[training], y[training]).predict(X[held_out])
        errors[getattr(anchors, "k", None)] = np.mean((y - predicted) ** 2)
    assert near.n_nearest_anchors_ == min(errors, key=errors.get) in N_NEAREST
    fixed = TwinRegressor(Ridge(), anchors=NearestAnchors(near.n_nearest_anchors_, "learned"))
    np.testing.assert_array_equal(near.predict(X), fixed.fit(X, y).predict(X))
    assert near.predict_anchors(X[:3])[0].shape == (3, near.n_nearest_anchors_)
    assert near.local_power_ == 0


def test_all_anchors_are_used_where_the_nearest_are_not_clearly_better(curved):
    X, y = curved
    linear = X @ [1.0, 2.0] + np.random.RandomState(1).normal(size=150)
    twin, every = (TwinRegressor(Ridge(), anchors=a, cv=FOLDS) for a in ("auto", "all"))
    assert twin.fit(X, linear).n_nearest_anchors_ is None
    np.testing.assert_array_equal(twin.predict(X), every.fit(X, linear).predict(X))
    # without folds there are no errors to compare, and few rows show too little
    assert clone(twin).set_params(cv=0).fit(X, y).n_nearest_anchors_ is None
    assert clone(twin).fit(X[:30], y[:30]).n_nearest_anchors_ is None
    # what an earlier fit has chosen is forgotten
    again = clone(AUTO).fit(X, y).set_params(cv=0).fit(X, y)
    assert again.n_nearest_anchors_ is None


def test_the_choice_is_kept_by_copies_files_exports_and_further_anchors(curved, tmp_path):
    X, y = curved
    near = clone(AUTO).set_params(cv=4).fit(X, y)
    save(near, tmp_path / "twin.twn")
    for copied in (load(tmp_path / "twin.twn"), pickle.loads(pickle.dumps(near))):
        assert copied.n_nearest_anchors_ == near.n_nearest_anchors_
        np.testing.assert_array_equal(copied.predict(X), near.predict(X))
    extended = near.add_anchors(X[:2] + 0.1, y[:2])
    assert extended.predict_anchors(X[:1])[0].shape == (1, near.n_nearest_anchors_)
    table = near.explain(X[:1], n=100)
    assert len(table) == near.n_nearest_anchors_
    np.testing.assert_allclose(table["weight"] @ table["estimate"], near.predict(X[:1])[0])
    to_onnx(near, tmp_path / "twin.onnx")
    with pytest.raises(TypeError, match=r"NearestAnchors\(k="):
        to_c(near, tmp_path / "twin.h")
    assert len(thin(near, 3).anchors_X_) == 3


def test_models_of_calibration_folds_choose_their_own_anchors(curved, monkeypatch):
    models = []

    def record(models_of_folds, *arguments, **options):
        models.extend(models_of_folds)
        return cross_errors(models_of_folds, *arguments, **options)

    monkeypatch.setattr(conformal_module, "cross_errors", record)
    crossed = cross_conformal(TwinRegressor(Ridge(), anchors="auto", cv=3), *curved, cv=3)
    assert crossed.n_nearest_anchors_ in N_NEAREST
    assert any(model.n_nearest_anchors_ in N_NEAREST for model in models)


def test_few_large_errors_do_not_decide():
    rows, ones = np.arange(100.0)[:, None], np.ones(100)
    outlier = np.where(np.arange(100) == 0, 30.0, 1.0)
    assert clearly_lowest([ones, 0.9 * ones, 0.8 * ones], rows) == 2
    assert clearly_lowest([ones, 0.99 * ones], rows) == 0
    assert clearly_lowest([outlier, ones], rows) == 0
    assert clearly_lowest([ones, 0.5 * ones], rows[:1] * ones[:, None]) == 0
    # a row of weight 2 is the row twice
    errors, weight = [ones, np.linspace(0.2, 1.3, 100)], np.resize([1.0, 2.0], 100)
    twice = np.repeat(np.arange(100), weight.astype(int))
    repeated = clearly_lowest([own[twice] for own in errors], rows[twice])
    assert clearly_lowest(errors, rows, weight) == repeated == 1


SMALL = {
    "hidden_sizes": (16, 16),
    "n_members": 2,
    "training": NeuralTraining(n_folds=2, max_steps=60),
    "random_state": 0,
}


def test_networks_of_folds_predict_from_the_nearest_anchors(curved):
    problem = build_problem(TwinNeuralRegressor(**SMALL, anchors="auto"), *curved)
    settings = list(problem.options.settings)
    config = fitting.training_config([problem], settings)
    member = EnsembleMember(settings[0], 1, 0)
    (trained,) = fitting._train_members(config, [problem], [[member]], 20)
    fold = problem.folds[1]
    anchors = np.setdiff1d(np.arange(150), fold)
    scale = member.feature_scale(problem)
    networks = TrainedNetworks(
        config.shape,
        selection.include_scale(trained.parameters, scale[None]),
        np.array([settings[0].frequency_scale > 0], np.float32),
    )
    X = pad_to(problem.X, 150, config.shape.n_features)
    estimates = anchor_differences(networks, X[fold], X[anchors])[0] + problem.y[anchors]
    metric = problem.X * np.sqrt(problem.inputs[1].relevance[1])
    distances = np.linalg.norm(metric[fold][:, None] - metric[anchors], axis=2)
    order = np.argsort(distances, axis=1)
    predicted = trained.predicted[0, trained.errors[0].argmin(), : len(fold)]
    for number, n in enumerate(N_NEAREST, start=1):
        slow = np.take_along_axis(estimates[..., 0], order[:, :n], axis=1).mean(axis=1)
        np.testing.assert_allclose(predicted[:, number, 0], slow, atol=1e-4)


def test_a_neural_twin_chooses_its_anchors(curved):
    X, y = curved
    auto = TwinNeuralRegressor(**SMALL, anchors="auto").fit(X, y)
    every = TwinNeuralRegressor(**SMALL).fit(X, y)
    assert auto.n_nearest_anchors_ in N_NEAREST
    error, error_of_all = (
        np.sqrt(np.mean((twin.out_of_fold_prediction_ - y) ** 2)) for twin in (auto, every)
    )
    assert error < 0.98 * error_of_all
    assert auto.predict_anchors(X[:2])[0].shape == (2, auto.n_nearest_anchors_)
    assert auto.anchor_residuals_ is None
    noise = np.random.RandomState(2).normal(size=150)
    assert clone(auto).fit(X, noise).n_nearest_anchors_ is None
