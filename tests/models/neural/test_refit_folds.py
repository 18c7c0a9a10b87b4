"""Networks that hold out a fold with as many steps as the members."""

import numpy as np
import pytest

from twinned import NeuralRegressor, NeuralTraining, TwinNeuralRegressor


@pytest.mark.parametrize("kind", [NeuralRegressor, TwinNeuralRegressor])
def test_refitted_folds_have_lower_errors_and_leave_the_members_as_they_are(kind):
    X = np.random.RandomState(0).uniform(-1, 1, (40, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    models = [
        kind(
            effort="small",
            training=NeuralTraining(
                n_folds=2, fold_steps=10, max_steps=200, refit_folds=refit_folds
            ),
            random_state=0,
        ).fit(X, y)
        for refit_folds in (False, True)
    ]
    np.testing.assert_allclose(models[0].predict(X), models[1].predict(X), rtol=1e-5)
    errors = [np.sqrt(np.mean((model.out_of_fold_prediction_ - y) ** 2)) for model in models]
    assert errors[1] < 0.9 * errors[0]


def test_refit_folds_is_a_bool():
    training = NeuralTraining(refit_folds=2)
    with pytest.raises(TypeError, match="refit_folds must be True or False"):
        NeuralRegressor(training=training).fit(np.eye(6), np.arange(6.0))
