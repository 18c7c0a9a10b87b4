from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.neural.conftest import initial_parameters
from twinned import TwinNeuralRegressor
from twinned.models.neural.batch import Member
from twinned.models.neural.ensemble import NO_STOP, SETTINGS, settings_of_wide_table
from twinned.models.neural.fitting import _include_scale
from twinned.models.neural.inference import plain_outputs, row_differences
from twinned.models.neural.inputs import FeatureFactors, NetworkInputs
from twinned.models.neural.network import Shape
from twinned.models.neural.problem import build_problem
from twinned.models.neural.selection import TrainedMembers, select

N_ROWS, N_CHECKS = 12, 4


@pytest.fixture
def problem(rng):
    folds = [np.arange(0, 4), np.arange(4, 8), np.arange(8, 12)]
    y = rng.normal(size=(N_ROWS, 1))
    return SimpleNamespace(
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
    selection = select(problem, 1, trained(problem, errors), "greedy", stop_together=True)
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
    selection = select(problem, 2, networks, "greedy", stop_together=True)
    assert selection.weights_without[0].tolist() == [0.0, 1.0]
    assert 0 < selection.weights_without[1][0] < 1


def test_relevance_is_learned_without_the_held_out_rows(rng):
    X, y = rng.uniform(-1, 1, (40, 2)), rng.normal(size=40)
    estimator = TwinNeuralRegressor(n_members=2, n_folds=2, random_state=0)
    before = build_problem(estimator, X, y, twin=True)
    changed = y.copy()
    rows = np.flatnonzero(np.isin(before.merged_into, before.folds[0]))
    changed[rows] += 0.5 * X[rows, 0]
    # merged rows are ordered by their features, so the folds are the same
    after = build_problem(estimator, X, changed, twin=True)
    np.testing.assert_array_equal(before.folds[0], after.folds[0])
    of_fold, of_all = (
        [problem.inputs[fold].every.relevance for problem in (before, after)] for fold in (0, -1)
    )
    assert np.abs(of_all[0] - of_all[1]).max() > 1e-3
    np.testing.assert_allclose(*of_fold, rtol=0.05)


@pytest.mark.parametrize("twin", [True, False])
def test_scaled_features_are_part_of_the_parameters(twin, rng):
    """A network of scaled features equals one of plain features whose parameters are scaled."""
    shape = Shape(4, 1, (8, 8), 2, "silu", twin)
    own = initial_parameters(shape, jnp.uint32(7), jnp.int32(3), jnp.float32(0.3))
    plain = {name: np.asarray(value)[None] for name, value in own.items()}
    scales = rng.uniform(0.1, 3, (1, 3))
    included = _include_scale(plain, scales)
    padded = np.pad(rng.normal(size=(64, 3)), ((0, 0), (0, 1))).astype(np.float32)
    scaled = padded * np.append(scales, 1.0).astype(np.float32)

    def output(parameters, features):
        networks = (shape, parameters, np.ones(1, dtype=np.float32))
        if twin:
            return row_differences(*networks, features, features[::-1])
        return plain_outputs(*networks, features)

    np.testing.assert_allclose(output(included, padded), output(plain, scaled), atol=1e-5)
    assert np.abs(output(plain, padded) - output(plain, scaled)).max() > 0.01


def test_members_scale_features_by_relevance_or_not():
    factors = [FeatureFactors(np.ones(2), np.array(own)) for own in ([1.0, 2.0], [3.0, 4.0])]
    problem = SimpleNamespace(inputs=[NetworkInputs(np.arange(2), own, own) for own in factors])
    relevant = SETTINGS[0]._replace(relevance=True)
    assert Member(relevant, 0, 0).feature_scale(problem).tolist() == [1.0, 2.0]
    assert Member(relevant, None, 0).feature_scale(problem).tolist() == [3.0, 4.0]
    plain = relevant._replace(relevance=False)
    assert Member(plain, 0, 0).feature_scale(problem).tolist() == [1.0, 1.0]


def test_members_use_the_relevant_features_or_all():
    few = FeatureFactors(np.array([0.0, 1.0]), np.array([0.0, 2.0]))
    every = FeatureFactors(np.ones(2), np.array([3.0, 4.0]))
    problem = SimpleNamespace(inputs=[NetworkInputs(np.arange(2), few, every)])
    settings = settings_of_wide_table(list(SETTINGS[:3]))
    assert [own.all_features for own in settings] == [True, False, True, False]
    assert [own.relevance for own in settings] == [True, False, True, True]
    assert [own.dropout for own in settings] == [0.0, 0.0, 0.1, 0.1]
    members = [Member(own, 0, 0) for own in settings]
    scales = [own.feature_scale(problem).tolist() for own in members]
    assert scales == [[3.0, 4.0], [0.0, 1.0], [3.0, 4.0], [0.0, 2.0]]
    assert [own.n_features(problem) for own in members] == [2, 1, 2, 1]
