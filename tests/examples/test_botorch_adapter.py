"""The adapter for BoTorch, where BoTorch is installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from twinned import TwinRegressor, query
from twinned.datasets import make_tf

torch = pytest.importorskip("torch", reason="the BoTorch adapter needs torch: pip install botorch")
pytest.importorskip("botorch", reason="the BoTorch adapter needs BoTorch: pip install botorch")

X, y = (part.to_numpy() for part in make_tf(60, random_state=0))
KNOWN, POOL = slice(0, 25), slice(25, 60)


@pytest.fixture(scope="module")
def adapter():
    path = Path(__file__).resolve().parents[2] / "examples" / "botorch_adapter.py"
    spec = importlib.util.spec_from_file_location("botorch_adapter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def twin():
    trees = ExtraTreesRegressor(5, random_state=0)
    return TwinRegressor(trees, random_state=0).fit(X[KNOWN], y[KNOWN])


def test_posterior_is_made_of_joint_samples(adapter, twin):
    rows = torch.tensor(X[POOL][:12].reshape(4, 3, -1))
    model = adapter.TwinModel(twin, X[POOL], n_samples=50)
    posterior = model.posterior(rows)
    assert type(posterior).__name__ == "EnsemblePosterior"
    assert posterior.values.shape == (4, 50, 3, 1)
    pool = np.unique(X[POOL], axis=0)
    numbers = [int(np.flatnonzero((pool == row).all(axis=1))[0]) for row in X[POOL][:12]]
    expected = twin.sample(pool, 50, random_state=0)[:, numbers]
    found = posterior.values[..., 0].movedim(1, 0).reshape(50, 12)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(posterior.mean.ravel(), expected.mean(axis=0))
    smallest = adapter.TwinModel(twin, X[POOL], n_samples=50, maximize=False).posterior(rows)
    np.testing.assert_array_equal(smallest.values, -posterior.values)
    with pytest.raises(ValueError, match="not one of the candidates"):
        model.posterior(rows + 1)


def test_improvement_selects_as_query_does(adapter, twin):
    best = float(y[KNOWN].max())
    model = adapter.TwinModel(twin, X[POOL])
    function = model.expected_improvement(best)
    chosen, _ = adapter.optimize_acqf_discrete(function, q=3, choices=torch.tensor(X[POOL]))
    rows = [int(np.flatnonzero((X[POOL] == row).all(axis=1))[0]) for row in chosen.numpy()]
    assert len(set(rows)) == 3
    samples = twin.sample(X[POOL], 20_000, random_state=1)
    gains = [
        np.maximum(samples[:, own].max(axis=1) - best, 0).mean()
        for own in (rows, query(twin, X[POOL], 3, strategy="improvement", random_state=0))
    ]
    assert gains[0] == pytest.approx(gains[1], rel=0.1)


def test_the_example_runs(adapter, capsys):
    adapter.main()
    assert capsys.readouterr().out.count("\n") == 3
