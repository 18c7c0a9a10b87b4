"""Pairs that are binned block by block give the model of the whole matrix."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned import TwinRegressor
from twinned.exceptions import MemoryLimitError
from twinned.models.sklearn import supports_blocks

lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")


def boosting(**options):
    return lightgbm.LGBMRegressor(n_estimators=20, n_jobs=1, verbose=-1, **options)


@pytest.fixture
def table():
    rng = np.random.RandomState(0)
    X = rng.randn(60, 3)
    X[::7, 1] = np.nan
    return X, X[:, 0] * X[:, 2] + 0.1 * rng.randn(60), rng.uniform(0.5, 2.0, 60)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subsample": 0.7, "subsample_freq": 1, "colsample_bytree": 0.6, "random_state": 3},
        {"objective": "huber", "max_bin": 31, "reg_alpha": 0.1},
        {"boosting_type": "dart", "random_state": 1},
    ],
)
def test_pairs_in_blocks_give_the_model_of_the_whole_matrix(options, weighted, table, monkeypatch):
    X, y, weight = table
    weight = weight if weighted else None
    whole = TwinRegressor(boosting(**options), pairs="all").fit(X, y, weight).estimator_
    monkeypatch.setattr("twinned.estimators.training_pairs._MAX_MATRIX_BYTES", 0)
    monkeypatch.setattr("twinned.models.sklearn._BLOCK_BYTES", 1_000)  # many blocks
    blocks = TwinRegressor(boosting(**options), pairs="all").fit(X, y, weight).estimator_
    assert blocks.booster_.model_to_string() == whole.booster_.model_to_string()
    assert blocks.get_params() == whole.get_params()
    assert blocks.n_estimators_ == whole.n_estimators_ == 20


def test_all_pairs_where_their_matrix_does_not_fit(table):
    X, y, _ = table
    limit = 60 * 60 * 100  # bytes; a pair of nine float64 and its rows takes 104
    with pytest.raises(MemoryLimitError):
        TwinRegressor(HistGradientBoostingRegressor(), pairs="all", memory_limit=limit).fit(X, y)
    twin = TwinRegressor(boosting(), pairs="all", memory_limit=limit).fit(X, y)
    assert twin.n_pairs_ == 60 * 60


def test_estimators_that_need_the_matrix_are_not_fitted_in_blocks():
    assert supports_blocks(boosting())
    assert not supports_blocks(boosting(objective=lambda y, mean: (mean - y, np.ones_like(y))))
    assert not supports_blocks(boosting(linear_tree=True))
    assert not supports_blocks(boosting(num_iterations=3))
    assert not supports_blocks(HistGradientBoostingRegressor())
