"""Blends of several targets as ONNX files: outputs (batch, n_targets), those of each target."""

import numpy as np
import pandas as pd

from twinned import AutoTwinRegressor


def test_outputs_are_those_of_each_target(check):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.normal(size=(120, 3)).astype(np.float32).astype(float)).add_prefix("x")
    X["kind"] = rng.choice(["wood", "clay"], 120)
    Y = pd.DataFrame({"a": X["x0"], "b": X["x1"] * X["x2"] + (X["kind"] == "wood")})
    Y += 0.1 * rng.normal(size=Y.shape)
    Y.loc[:29, "b"] = np.nan
    members = ["ridge", "gp_matern:fast", "boosting:fast"]
    model = AutoTwinRegressor(members=members, cv=3, random_state=0).fit(X[:100], Y[:100])
    found = check(model, X[100:], mean=1e-5, std=1e-4, confidence=0.9)
    intervals = np.stack([found["lower"], found["upper"]], axis=2)
    expected = model.predict_interval(X[100:], 0.9)
    assert intervals.shape == (20, 2, 2)
    np.testing.assert_allclose(intervals, expected, rtol=0, atol=1e-4)
