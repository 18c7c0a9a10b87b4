"""An exported twin as a surrogate model of `baybe`."""

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor
from twinned.export.onnx import to_onnx

pytest.importorskip("baybe", reason="baybe is not installed; it needs torch")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_twin_is_a_surrogate_of_baybe(tmp_path, rng):
    from baybe.objectives import SingleTargetObjective
    from baybe.parameters import NumericalContinuousParameter
    from baybe.searchspace import SearchSpace
    from baybe.surrogates import CustomONNXSurrogate
    from baybe.targets import NumericalTarget

    X = pd.DataFrame(rng.uniform(size=(40, 2)), columns=["a", "b"])
    y = 50 + 3 * X["a"] + X["b"] ** 2
    # baybe scales parameters to their bounds, which are 0 and 1 here, and standardizes the target
    center, spread = y.mean(), y.std(ddof=1)
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=4), pairs=10, random_state=0)
    twin.fit(X, (y - center) / spread)
    to_onnx(twin, tmp_path / "model.onnx", dtype="float32")  # the type that baybe passes
    surrogate = CustomONNXSurrogate(
        onnx_str=(tmp_path / "model.onnx").read_bytes(), onnx_input_name="X"
    )
    parameters = [NumericalContinuousParameter(name, (0.0, 1.0)) for name in X]
    objective = SingleTargetObjective(NumericalTarget("y"))
    surrogate.fit(SearchSpace.from_product(parameters), objective, X.assign(y=y))
    new = pd.DataFrame(rng.uniform(size=(5, 2)).astype(np.float32), columns=["a", "b"])
    found = surrogate.posterior_stats(new)
    mean, std = twin.predict(new, return_std=True)
    np.testing.assert_allclose(found["y_mean"], mean * spread + center, rtol=1e-5)
    np.testing.assert_allclose(found["y_std"], std * spread, rtol=1e-4)
