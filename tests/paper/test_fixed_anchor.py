"""With the anchor fixed, a twin is an ordinary network (the paper's equation 3)."""

import numpy as np
import pytest

from paper.member_predictions import FittedTwin
from twinned.datasets import make_tf
from twinned.neural import NeuralTraining, TwinNeuralRegressor
from twinned.rows.schema import Rows


@pytest.mark.parametrize("hidden_sizes", [(16,), (16, 16)])
def test_a_fixed_anchor_gives_a_plain_network(hidden_sizes, rng):
    X, y = (part.to_numpy() for part in make_tf(40, random_state=1))
    training = NeuralTraining(max_steps=40, n_folds=1)
    model = TwinNeuralRegressor(hidden_sizes, n_members=2, training=training, random_state=0)
    twin = FittedTwin(model.fit(X, y))
    queries = rng.uniform(-1.5, 1.5, (7, 2))
    _, estimates = model.predict_anchors(queries)
    rows = Rows(twin.scaled(queries), np.empty((7, 0)), np.empty((7, 0)))
    for anchor in (0, 17, 39):
        plain = twin.substitute_anchor(anchor)
        members = plain.predict(rows)
        mean = np.tensordot(plain.member_weights, members, axes=1)[:, 0]
        np.testing.assert_allclose(mean, estimates[:, anchor], atol=2e-5)
