"""Acquisition functions, against slow versions."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import TransformedTargetTwin, TwinRegressor, query
from twinned.datasets import make_tf
from twinned.search.query import STRATEGIES, improve_in_turn, log_expected_improvement

X, y = (part.to_numpy() for part in make_tf(60, random_state=0))
TO_FIND_THE_BEST = STRATEGIES[1:]
KNOWN, POOL = slice(0, 25), slice(25, 60)


@pytest.fixture(scope="module")
def twin():
    trees = ExtraTreesRegressor(5, random_state=0)
    return TwinRegressor(trees, random_state=0).fit(X[KNOWN], y[KNOWN])


@given(st.floats(-5, 8), st.floats(0.1, 10), st.floats(-3, 3))
def test_expected_improvement_is_the_integral(z, std, best):
    mean = best + z * std
    expected, _ = quad(
        lambda value: (value - best) * norm.pdf(value, mean, std),
        best,
        max(best, mean) + 12 * std,
        points=[mean] if mean > best else None,
    )
    found = np.exp(log_expected_improvement(np.array([mean]), np.array([std]), best))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_small_improvements_are_ordered():
    mean = np.array([-1e5, -100.0, -40.0, -39.9, 0.0, 0.1, 1e8])
    found = log_expected_improvement(mean, np.ones(7), 0.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) > 0).all()
    assert log_expected_improvement(np.array([-1.0]), np.zeros(1), 0.0) < -1e6


@given(st.integers(0, 10_000))
def test_a_batch_is_the_greedy_choice(seed):
    rng = np.random.RandomState(seed)
    samples, reached = rng.normal(size=(6, 5)), rng.normal(size=6)
    expected = []
    for _ in range(3):

        def value(row, expected=tuple(expected)):
            best = [max(samples[s, [*expected, row]]) for s in range(6)]
            return sum(max(best[s] - reached[s], 0.0) for s in range(6))

        others = [row for row in range(5) if row not in expected]
        expected.append(max(others, key=value))
    gains = improve_in_turn(samples, reached, 3)
    # rows of equal value may be exchanged
    total = [np.maximum(samples[:, rows].max(axis=1), reached).sum() for rows in (gains, expected)]
    assert total[0] == pytest.approx(total[1])
    assert len(set(gains)) == 3


@pytest.mark.parametrize("maximize", [True, False])
def test_one_row_has_the_largest_expected_improvement(twin, maximize):
    sign = 1 if maximize else -1
    prediction = twin.predict_distribution(X[POOL])
    mean, std = prediction.mean, prediction.error_std
    best = sign * (sign * y[KNOWN]).max()
    score = log_expected_improvement(sign * mean, std, sign * best)
    found = query(twin, X[POOL], strategy="improvement", maximize=maximize)
    assert found.tolist() == [np.argmax(score)]
    easier = query(twin, X[POOL], strategy="improvement", maximize=maximize, best=-sign * 1e9)
    assert easier.tolist() == [np.argmax(sign * mean)]  # any row improves: the best prediction


@pytest.mark.parametrize("strategy", TO_FIND_THE_BEST)
@pytest.mark.parametrize("maximize", [True, False])
def test_batches_are_reproducible_and_new(twin, strategy, maximize):
    options = {"strategy": strategy, "maximize": maximize, "random_state": 3}
    rows = query(twin, X[POOL], 8, **options)
    assert len(set(rows)) == 8
    np.testing.assert_array_equal(query(twin, X[POOL], 8, **options), rows)
    # neither known rows, nor pending ones, nor copies are selected
    pool = np.concatenate([X[POOL], X[KNOWN], X[POOL]])
    others = query(twin, pool, 8, pending=X[POOL][rows], **options)
    assert others.max() < 35
    assert not set(others) & set(rows)


def test_the_first_rows_of_a_batch_do_not_depend_on_n(twin):
    batch = query(twin, X[POOL], 5, strategy="improvement", random_state=0)
    fewer = query(twin, X[POOL], 3, strategy="improvement", random_state=0)
    np.testing.assert_array_equal(fewer, batch[:3])
    assert query(twin, X[POOL], strategy="improvement") == batch[0]


@pytest.mark.parametrize("strategy", TO_FIND_THE_BEST)
def test_categories_and_missing_values(strategy):
    rng = np.random.RandomState(0)
    table = pd.DataFrame({"a": rng.uniform(size=40), "kind": rng.choice(["x", "y", "z"], 40)})
    target = table["a"] + (table["kind"] == "x")
    table.loc[::7, "a"] = np.nan
    table = table.astype({"kind": "category"})
    base = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=3, random_state=0)
    twin = TwinRegressor(base, random_state=0).fit(table[:25], target[:25])
    pool = pd.concat([table[:5], table[25:]])  # known rows with missing values, too
    rows = query(twin, pool, 6, strategy=strategy, pending=table[35:], random_state=0)
    assert rows.min() >= 5
    assert rows.max() < 15


def test_pending_rows_change_the_next_one():
    """Of two near and good rows, the second is not selected while the first is pending."""
    grid = np.linspace(0, 1, 12)[:, None]
    twin = TwinRegressor(ExtraTreesRegressor(5, random_state=0), random_state=0)
    twin.fit(grid, np.sin(6 * grid[:, 0]))
    pool = np.array([[0.26], [0.2601], [0.95]])
    first, second = query(twin, pool, 2, strategy="improvement", random_state=0)
    after = query(twin, pool, 1, strategy="improvement", pending=pool[[first]], random_state=0)
    assert after.tolist() == [second]


def test_pipelines_are_transformed(twin):
    trees = ExtraTreesRegressor(5, random_state=0)
    pipeline = make_pipeline(StandardScaler(), TwinRegressor(trees, random_state=0))
    pipeline.fit(X[KNOWN], y[KNOWN])
    scaled = pipeline[0].transform(X[POOL])
    for strategy in ("improvement", "uncertainty"):
        found = query(pipeline, X[POOL], 3, strategy=strategy, pending=X[POOL][:1], random_state=0)
        expected = query(
            pipeline[-1], scaled, 3, strategy=strategy, pending=scaled[:1], random_state=0
        )
        np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module")
def twin_of_batches():
    """A twin of rows of two laboratories, and three known rows of a new one."""
    rng = np.random.RandomState(4)
    rows = rng.uniform(size=(60, 2))
    values = np.sin(5 * rows[:, 0]) + rows[:, 1] + 0.1 * rng.normal(size=60)
    batch = np.where(np.arange(60) % 2, "a", "b")
    twin = TwinRegressor(ExtraTreesRegressor(8, random_state=0), random_state=0)
    twin = twin.fit(rows, values + 3.0 * (batch == "a"), batch=batch)
    added = np.array([[0.25, 0.4], [0.3, 0.9], [0.35, 0.6]])
    return twin.add_anchors(added, np.array([50.5, 52.4, 50.6]), batch="d")


@pytest.mark.parametrize("maximize", [True, False])
def test_rows_of_a_batch_have_its_predictions_and_known_values(twin_of_batches, maximize):
    """Predictions near the added rows are corrected, and the best known value is in the batch."""
    sign = 1 if maximize else -1
    pool = np.random.RandomState(1).uniform(size=(200, 2))
    prediction = twin_of_batches.predict_distribution(pool, batch="d")
    mean, std = prediction.mean, prediction.error_std
    offset = 50.5 - twin_of_batches.anchors_y_[-3]  # of the first row that was added
    best = sign * (sign * (twin_of_batches.anchors_y_ + offset)).max()
    score = log_expected_improvement(sign * mean, std, sign * best)
    options = {"strategy": "improvement", "maximize": maximize, "batch": "d"}
    assert query(twin_of_batches, pool, **options).tolist() == [np.argmax(score)]
    easy = query(twin_of_batches, pool, best=-sign * 1e6, **options)
    assert easy.tolist() == [np.argmax(sign * mean)]
    ranked = twin_of_batches.rank(pool, maximize=maximize, batch="d")
    assert easy.tolist() == [ranked["row"].iloc[0]]


def test_the_selected_row_does_not_depend_on_the_order_of_the_pool(twin_of_batches):
    pool = np.random.RandomState(1).uniform(size=(40, 2))
    pool[0] = [0.301, 0.901]  # near known rows of the batch, where predictions are corrected
    for best in np.arange(52.0, 54.5, 0.1):
        options = {"strategy": "improvement", "best": best, "batch": "d"}
        (first,) = query(twin_of_batches, pool, **options)
        (moved,) = query(twin_of_batches, np.roll(pool, -1, axis=0), **options)
        assert moved == (first - 1) % 40


def test_a_transformed_target_selects_the_rows_of_its_twin():
    """The improvement of a logarithm is that of the fitted values."""
    trees = ExtraTreesRegressor(5, random_state=0)
    model = TransformedTargetTwin(TwinRegressor(trees, random_state=0))
    model.fit(X[KNOWN], np.exp(y[KNOWN]))
    for best in (None, 1.5):
        options = {"strategy": "improvement", "random_state": 0}
        found = query(model, X[POOL], 3, best=best and np.exp(best), **options)
        expected = query(model.regressor_, X[POOL], 3, best=best, **options)
        np.testing.assert_array_equal(found, expected)


def test_too_many_rows_are_refused(twin):
    with pytest.raises(ValueError, match="n=3 exceeds the 2 different rows of the pool"):
        query(twin, np.concatenate([X[POOL][:2], X[KNOWN]]), 3, strategy="improvement")
