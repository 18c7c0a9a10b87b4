"""The adapter for BoTorch, where BoTorch is installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from twinned import TwinRegressor
from twinned.datasets import make_tf
from twinned.estimators.acquisition import log_expected_improvement

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


def test_posterior_is_made_of_joint_samples(adapter, twin, monkeypatch):
    rows = torch.tensor(X[POOL][:12].reshape(4, 3, -1))
    model = adapter.TwinModel(twin, n_samples=2000)
    posterior = model.posterior(rows)
    assert type(posterior).__name__ == "EnsemblePosterior"
    assert posterior.mean.shape == (4, 3, 1)
    mean, std = twin._predict_error(X[POOL][:12])
    np.testing.assert_allclose(posterior.mean.ravel(), mean, atol=0.1 * std.max())
    np.testing.assert_allclose(posterior.variance.sqrt().ravel(), std, rtol=0.1)
    monkeypatch.setattr(adapter, "MAX_ROWS", 3)  # one batch at a time
    again = model.posterior(rows).mean
    np.testing.assert_allclose(again.ravel(), mean, atol=0.1 * std.max())
    smallest = adapter.TwinModel(twin, n_samples=2000, maximize=False).posterior(rows)
    np.testing.assert_allclose(smallest.mean.ravel(), -mean, atol=0.1 * std.max())


def test_improvement_selects_different_candidates(adapter, twin):
    model = adapter.TwinModel(twin, n_samples=1000)
    best = float(y[KNOWN].max())
    function = adapter.qLogExpectedImprovement(model, best_f=best)
    choices = torch.tensor(X[POOL])
    chosen, _ = adapter.optimize_acqf_discrete(function, q=3, choices=choices)
    rows = [int(np.flatnonzero((X[POOL] == row).all(axis=1))[0]) for row in chosen.numpy()]
    assert len(set(rows)) == 3
    score = log_expected_improvement(*twin._predict_error(X[POOL]), best)
    assert rows[0] in np.argsort(-score)[:3]


def test_the_example_runs(adapter, capsys):
    adapter.main()
    assert capsys.readouterr().out.count("\n") == 3
