"""Active learning: scores against slow versions, and batches."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NeuralTraining,
    SemiSupervisedTwinRegressor,
    TwinNeuralRegressor,
    TwinRegressor,
    query,
)
from twinned.datasets import make_tf
from twinned.search.query import STRATEGIES, select_batch

X, y = (part.to_numpy() for part in make_tf(60, random_state=0))
KNOWN, POOL = slice(0, 25), slice(25, 60)


def fitted(**changes):
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0), **changes)
    return twin.fit(X[KNOWN], y[KNOWN])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("diversity", [0.0, 1.0])
def test_each_strategy_selects_different_rows_reproducibly(strategy, diversity):
    twin = fitted()
    rows = query(twin, X[POOL], 8, strategy=strategy, diversity=diversity, random_state=3)
    assert len(set(rows)) == 8
    assert rows.min() >= 0
    assert rows.max() < 35
    again = query(twin, X[POOL], 8, strategy=strategy, diversity=diversity, random_state=3)
    np.testing.assert_array_equal(rows, again)
    # the first rows do not depend on n
    fewer = query(twin, X[POOL], 3, strategy=strategy, diversity=diversity, random_state=3)
    np.testing.assert_array_equal(rows[:3], fewer)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_selected_rows_do_not_depend_on_the_level_of_y(strategy):
    """A constant that is added to y is added to all predictions, and selects no other row."""
    twin = TwinRegressor(Ridge()).fit(X[KNOWN], y[KNOWN])
    shifted = TwinRegressor(Ridge()).fit(X[KNOWN], y[KNOWN] + 1000.0)
    rows, others = (
        query(model, X[POOL], 8, strategy=strategy, random_state=3) for model in (twin, shifted)
    )
    np.testing.assert_array_equal(rows, others)


def test_without_diversity_the_largest_scores_are_selected():
    twin = fitted()
    spread = twin.predict(X[POOL], return_std=True)[1]
    rows = query(twin, X[POOL], 5, diversity=0)
    np.testing.assert_array_equal(np.sort(spread[rows]), np.sort(spread)[-5:])


def test_a_batch_avoids_duplicates_of_a_selected_point():
    pool = np.array([[0.0], [0.0], [1.0], [5.0]])
    rows = select_batch(np.array([9.0, 9.0, 1.0, 1.0]), pool, np.array([[9.0]]), 3, 1.0)
    assert list(rows) == [0, 3, 2]  # the duplicate of the first has a gap of 0


def test_missing_values_and_constant_columns_have_a_distance():
    pool = np.array([[np.nan, 3.0], [1.0, 3.0], [7.0, 3.0]])
    assert select_batch(np.ones(3), pool, np.array([[0.0, 3.0]]), 3, 1.0)[0] == 2


def test_outputs_have_equal_weight():
    twin = TwinRegressor(KNeighborsRegressor(3))  # outputs are independent
    rows = [
        query(twin.fit(X[KNOWN], np.column_stack([y, scale * X[:, 0]])[KNOWN]), X[POOL], 6)
        for scale in (1.0, 1e6)
    ]
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize(
    "model",
    [
        TwinRegressor(Ridge(), anchors=NearestAnchors(5)),
        TwinNeuralRegressor(
            (8,), n_members=2, training=NeuralTraining(n_folds=1, max_steps=20), random_state=0
        ),
        SemiSupervisedTwinRegressor(TwinRegressor(DecisionTreeRegressor(max_depth=4))),
    ],
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_kind_of_twin_can_be_queried(model, strategy):
    frame = pd.DataFrame(X, columns=["a", "b"])
    model.fit(frame[KNOWN], y[KNOWN])
    assert len(query(model, frame[POOL], 4, strategy=strategy, random_state=0)) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 36}, "n=36 exceeds the 35 rows of the pool"),
        ({"n": 0}, "n must be"),
        ({"strategy": "difference"}, "'difference'"),
        ({"diversity": -1}, "diversity must not be negative, but is -1"),
        ({"model": Ridge().fit(X, y)}, r"model must be a twin, not a Ridge"),
        ({"X_pool": X[:, :1]}, "1 feature"),
    ],
)
def test_invalid_arguments_are_refused(change, message):
    arguments = {"model": fitted(), "X_pool": X[POOL], "n": 2, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        query(**arguments)


@pytest.mark.slow
def test_queries_are_better_than_random_on_a_formula():
    """From 15 labels in 5 batches: a smaller error than random selection, over several seeds."""
    X, y = (part.to_numpy() for part in make_tf(300, random_state=1))
    pool, test = np.arange(200), np.arange(200, 300)

    def error(how, seed):
        rng = np.random.RandomState(seed)
        order = rng.permutation(pool)
        known, rest = order[:15], order[15:]
        for _ in range(5):
            twin = TwinRegressor(RandomForestRegressor(10, random_state=0)).fit(X[known], y[known])
            rows = rng.permutation(len(rest))[:8]
            if how != "random":
                rows = query(twin, X[rest], 8, random_state=rng)
            known, rest = np.append(known, rest[rows]), np.delete(rest, rows)
        twin.fit(X[known], y[known])
        return np.sqrt(np.mean((twin.predict(X[test]) - y[test]) ** 2))

    ours, random = (np.mean([error(how, seed) for seed in range(4)]) for how in ("query", "random"))
    assert ours < random


def test_a_column_without_values_adds_no_distance():
    pool = np.array([[np.nan, 3.0], [np.nan, 9.0]])
    assert list(select_batch(np.ones(2), pool, np.array([[np.nan, 0.0]]), 2, 1.0)) == [1, 0]


def test_a_batch_equals_a_slow_greedy_selection(rng):
    pool, known = rng.normal(size=(30, 2)), rng.normal(size=(7, 2))
    score, scale = rng.uniform(1, 2, 30), np.concatenate([pool, known]).std(axis=0)
    expected = []
    for _ in range(9):
        used = np.concatenate([known, pool[expected]])
        gaps = [np.linalg.norm((row - used) / scale, axis=1).min() for row in pool]
        expected.append(int(np.argmax(score * np.array(gaps))))
    np.testing.assert_array_equal(select_batch(score, pool, known, 9, 1.0), expected)


def test_pending_rows_count_as_selected():
    twin = fitted()
    rows = query(twin, X[POOL], 3)
    after = query(twin, X[POOL], 1, pending=X[POOL][rows[:2]])
    assert after.tolist() == [rows[2]]


@pytest.mark.parametrize("strategy", ["improvement", "uncertainty"])
@pytest.mark.parametrize("kind", ["twin", "blend"])
def test_censored_rows_count_as_known(strategy, kind, tmp_path):
    X = np.linspace(0, 1, 30)[:, None]
    y = 3 * X[:, 0]
    y[25:] = np.nan  # above the limit
    lower = np.where(np.isnan(y), 2.4, np.nan)
    twin = TwinRegressor(Ridge()) if kind == "twin" else AutoTwinRegressor(members=["ridge"], cv=2)
    twin.fit(X, y, y_lower=lower)
    assert len(twin.anchors_y_) == 25
    twinned.save(twin, tmp_path / "model.twin")
    pool = np.append(X[25:], [[0.99]], axis=0)
    for model in (twin, twinned.load(tmp_path / "model.twin")):
        assert query(model, pool, 1, strategy=strategy, random_state=0).tolist() == [5]
        if strategy == "improvement":
            with pytest.raises(ValueError, match="exceeds the 1 different rows"):
                query(model, pool, 2, strategy=strategy)
    twin.fit(X[:25], y[:25])
    assert query(twin, pool, 1, strategy=strategy, random_state=0).tolist() == [4]
