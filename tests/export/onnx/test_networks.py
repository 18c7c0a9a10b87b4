import numpy as np
import pytest
from sklearn.base import clone

from twinned import NeuralRegressor, NeuralTraining, TwinNeuralRegressor
from twinned.export.onnx.graph import DOUBLE, FLOAT
from twinned.export.onnx.twins import add_activation
from twinned.models.neural.network import ACTIVATIONS

SMALL = {
    "hidden_sizes": (8, 6),
    "n_members": 2,
    "training": NeuralTraining(n_folds=1, max_steps=20),
    "random_state": 0,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(evaluate, rng, activation):
    values = np.concatenate([rng.normal(size=50) * 10, [0.0]]).astype(np.float32)

    def add(X):
        return add_activation(activation, X.cast(FLOAT)).cast(DOUBLE)

    expected = ACTIVATIONS[activation](values)
    np.testing.assert_allclose(evaluate(add, values), expected, rtol=1e-5, atol=5e-6)


def with_missing_values(rows):
    X, y, new = (values.copy() for values in rows)
    X[::5, 1], X[::7, 0], new[::3, 1], new[::4, 0] = np.nan, np.nan, np.nan, np.nan
    return X, y, new


def test_plain_networks_of_two_outputs_and_missing_values(check, rows):
    X, y, new = with_missing_values(rows)
    model = (
        clone(NeuralRegressor(**SMALL))
        .set_params(training__embedding=1.0)
        .fit(X, np.column_stack([y, np.nan_to_num(X[:, 0])]))
    )
    check(model, new, 5e-6, 5e-6)


def test_twins_of_selected_features_and_missing_values(check, rows):
    X, y, new = with_missing_values(rows)
    twin = clone(TwinNeuralRegressor(**SMALL)).set_params(training__max_features=2).fit(X, y + 1e4)
    assert twin._parameters["frequency"].any()
    check(twin, new, 5e-6, 5e-6)
