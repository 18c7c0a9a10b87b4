from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.neural.conftest import initial_parameters
from twinned import NeuralTraining, TwinNeuralRegressor
from twinned.models.neural.inference import TrainedNetworks, row_outputs
from twinned.models.neural.inputs import NetworkInputs
from twinned.models.neural.network import Shape
from twinned.models.neural.parameters import SETTINGS, settings_of_wide_table
from twinned.models.neural.problem import build_problem
from twinned.models.neural.selection import (
    TrainedMembers,
    allocate_members,
    include_scale,
    select_settings,
)
from twinned.models.neural.training_run import NO_STOP, EnsembleMember

N_ROWS, N_CHECKS = 12, 4


@pytest.fixture
def problem(rng):
    folds = [np.arange(0, 4), np.arange(4, 8), np.arange(8, 12)]
    y = rng.normal(size=(N_ROWS, 1))
    return SimpleNamespace(
        options=SimpleNamespace(
            selection="greedy", effort=SimpleNamespace(n_members=10), fold_members=False
        ),
        folds=folds,
        y=y,
        row_weight=rng.uniform(0.5, 2, N_ROWS),
        is_censored=np.zeros(N_ROWS, dtype=bool),
        errors=lambda predicted, rows: predicted - y[rows],
    )


def trained(problem, errors):
    """Networks of one setting whose predictions are off by `errors`, (fold, check)."""
    predicted = np.stack(
        [problem.y[fold] + errors[f][:, None, None] for f, fold in enumerate(problem.folds)]
    )
    return TrainedMembers({}, np.abs(errors), predicted)


def stops(problem, errors):
    """The check at which the setting stops, and the check of the prediction of each fold."""
    errors = np.asarray(errors, dtype=float)
    selection = select_settings(problem, 1, trained(problem, errors))
    error = selection.predicted[0] - problem.y
    at_check = [
        int(np.argmin(np.abs(errors[f] - error[fold[0], 0])))
        for f, fold in enumerate(problem.folds)
    ]
    return selection.stops[0], at_check


def test_settings_stop_early_only_where_that_clearly_lowers_the_error(problem):
    falls = [[4.0, 3.0, 2.0, 1.0]] * 3
    assert stops(problem, falls) == (NO_STOP, [3, 3, 3])
    rises_a_little = [[4.0, 3.0, 1.0, 1.03]] * 3
    assert stops(problem, rises_a_little) == (NO_STOP, [3, 3, 3])
    rises = [[4.0, 1.0, 2.0, 3.0]] * 3
    assert stops(problem, rises) == (1, [1, 1, 1])


def test_a_network_does_not_stop_by_the_rows_that_it_predicts(problem):
    # only the first fold has its least error early, and by far
    errors = [[0.1, 9.0, 9.1, 9.2], [5.0, 4.0, 3.0, 2.0], [5.0, 4.0, 3.0, 2.0]]
    assert stops(problem, errors)[1][0] == 3


def test_weights_of_out_of_fold_predictions_are_selected_without_the_rows_they_predict(problem):
    # the first setting is right only in the first fold, the second only in the others
    first, second = [0.0, 3.0, 3.0], [3.0, 0.1, 0.1]
    predicted = np.stack(
        [
            (problem.y[fold] + own[f])[None]
            for own in (first, second)
            for f, fold in enumerate(problem.folds)
        ]
    )
    networks = TrainedMembers({}, np.ones((6, 1)), predicted)
    selection = select_settings(problem, 2, networks)
    assert selection.weights_without[0].tolist() == [0.0, 1.0]
    assert 0 < selection.weights_without[1][0] < 1


def test_relevance_is_learned_without_the_held_out_rows(rng):
    X = rng.uniform(-1, 1, (40, 2))
    y = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.normal(size=40)
    estimator = TwinNeuralRegressor(n_members=2, training=NeuralTraining(n_folds=2), random_state=0)
    before = build_problem(estimator, X, y)
    changed = y.copy()
    rows = np.flatnonzero(np.isin(before.merged_into, before.folds[0]))
    changed[rows] += 2 * np.sin(4 * X[rows, 0])
    # merged rows are ordered by their features, so the folds are the same
    after = build_problem(estimator, X, changed)
    np.testing.assert_array_equal(before.folds[0], after.folds[0])
    of_fold, of_all = (
        [problem.inputs[fold].relevance for problem in (before, after)] for fold in (0, -1)
    )
    assert np.abs(of_all[0] - of_all[1]).max() > 0.1
    np.testing.assert_allclose(*of_fold, rtol=1e-6)


@pytest.mark.parametrize("twin", [True, False])
def test_scaled_features_are_part_of_the_parameters(twin, rng):
    """A network of scaled features equals one of plain features whose parameters are scaled."""
    shape = Shape(4, 1, (8, 8), 2, "silu", twin)
    own = initial_parameters(shape, jnp.uint32(7), jnp.int32(3), jnp.float32(0.3))
    plain = {name: np.asarray(value)[None] for name, value in own.items()}
    scales = rng.uniform(0.1, 3, (1, 3))
    included = include_scale(plain, scales)
    padded = np.pad(rng.normal(size=(64, 3)), ((0, 0), (0, 1))).astype(np.float32)
    scaled = padded * np.append(scales, 1.0).astype(np.float32)

    def output(parameters, features):
        networks = TrainedNetworks(shape, parameters)
        return row_outputs(networks, features, features[::-1] if twin else None)

    np.testing.assert_allclose(output(included, padded), output(plain, scaled), atol=1e-5)
    assert np.abs(output(plain, padded) - output(plain, scaled)).max() > 0.01


def test_members_scale_features_by_relevance_or_not():
    used = np.ones((2, 2))
    problem = SimpleNamespace(
        inputs=[
            NetworkInputs(np.arange(2), used, np.array([factors] * 2))
            for factors in ([1.0, 2.0], [3.0, 4.0])
        ]
    )
    relevant = replace(SETTINGS[0], relevance=True)
    assert EnsembleMember(relevant, 0, 0).feature_scale(problem).tolist() == [1.0, 2.0]
    assert EnsembleMember(relevant, None, 0).feature_scale(problem).tolist() == [3.0, 4.0]
    plain = replace(relevant, relevance=False)
    assert EnsembleMember(plain, 0, 0).feature_scale(problem).tolist() == [1.0, 1.0]


def test_members_use_the_relevant_features_or_all():
    used, relevance = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[0.0, 2.0], [3.0, 4.0]])
    problem = SimpleNamespace(inputs=[NetworkInputs(np.arange(2), used, relevance)])
    settings = settings_of_wide_table(SETTINGS[:3])
    assert [own.all_features for own in settings] == [True, False, True, False]
    assert [own.relevance for own in settings] == [True, False, True, True]
    assert [own.dropout for own in settings] == [0.0, 0.0, 0.1, 0.1]
    members = [EnsembleMember(own, 0, 0) for own in settings]
    scales = [own.feature_scale(problem).tolist() for own in members]
    assert scales == [[3.0, 4.0], [0.0, 1.0], [3.0, 4.0], [0.0, 2.0]]
    assert [own.n_features(problem) for own in members] == [2, 1, 2, 1]


@pytest.mark.parametrize(("n_folds", "expected"), [(5, [12] * 5), (1, [6])])
def test_rows_are_held_out_once_and_equal_features_together(n_folds, expected, rng):
    X = np.repeat(rng.normal(size=(20, 2)), 3, axis=0)
    training = NeuralTraining(n_folds=n_folds)
    estimator = TwinNeuralRegressor(n_members=1, training=training, random_state=0)
    problem = build_problem(estimator, X, rng.normal(size=60))
    rows = np.concatenate(problem.folds)
    assert len(set(rows)) == len(rows)
    assert sorted(len(fold) for fold in problem.folds) == expected
    if n_folds > 1:
        distinct = [len(np.unique(problem.X[fold], axis=0)) for fold in problem.folds]
        assert sum(distinct) == 20


@given(n_members=st.integers(1, 40), n_settings=st.integers(1, 9), seed=st.integers(0, 99))
def test_members_are_allocated_in_proportion_to_the_weights(n_members, n_settings, seed):
    rng = np.random.RandomState(seed)
    weights = rng.dirichlet(np.ones(n_settings)) * rng.randint(0, 2, n_settings)
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(n_settings, 1 / n_settings)
    counts = np.bincount(allocate_members(weights, n_members), minlength=n_settings)
    assert counts.sum() == n_members
    assert (np.abs(counts - weights * n_members) < 1).all()
