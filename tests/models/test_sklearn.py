"""Fits of base estimators to pairs."""

import numpy as np
import pytest
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPRegressor
from threadpoolctl import threadpool_info

from twinned import HalfPairs, TwinRegressor
from twinned._compat import bins_without_weights
from twinned.datasets import make_tf
from twinned.exceptions import LeakingValidationWarning
from twinned.models.base_estimator import FAST, THOROUGH, early_stopping_fraction

X, y = (part.to_numpy() for part in make_tf(120, random_state=0))


class Recorder(HistGradientBoostingRegressor):
    """Boosting that stores the arguments and the number of threads of its fit."""

    def fit(self, pairs, target, sample_weight=None, *, X_val=None, y_val=None):
        options = {"sample_weight": sample_weight, "X_val": X_val, "y_val": y_val}
        self.arguments_ = pairs, target, options
        self.threads_ = {
            info["num_threads"] for info in threadpool_info() if info["user_api"] == "openmp"
        }
        return super().fit(pairs, target, **options)


def test_bins_do_not_depend_on_the_weights_of_rows():
    weight = np.random.RandomState(0).lognormal(sigma=3.0, size=len(y))
    weighted, plain = (HistGradientBoostingRegressor(max_bins=8, max_iter=2) for _ in range(2))
    with bins_without_weights(weighted):
        weighted.fit(X, y, sample_weight=weight)
    plain.fit(X, y)
    for found, expected in zip(
        weighted._bin_mapper.bin_thresholds_, plain._bin_mapper.bin_thresholds_, strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    assert (weighted.predict(X) != plain.predict(X)).any()  # the trees do
    assert "_bin_data" not in vars(weighted)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(("X", "weights"), {}), (("X",), {"sample_weight": "weights"})],
    ids=["positional", "keyword"],
)
def test_weights_of_bins_may_be_positional_or_named(arguments, options):
    class Boosting:
        def _bin_data(self, X, sample_weight, is_training_data):
            return X, sample_weight, is_training_data

    class BoostingOf17:
        def _bin_data(self, X, is_training_data):
            return X, is_training_data

    model, before = Boosting(), BoostingOf17()
    with bins_without_weights(model), bins_without_weights(before):
        found = model._bin_data(*arguments, **options, is_training_data=True)
        assert found == ("X", None, True)
        assert before._bin_data("X", is_training_data=False) == ("X", False)


def test_early_stopping_holds_out_rows():
    twin = TwinRegressor(Recorder(early_stopping=True, max_iter=300), pairs="all", random_state=0)
    twin.fit(X, y)
    pairs, _, options = twin.estimator_.arguments_
    training = {tuple(row) for row in pairs[:, :2]} | {tuple(row) for row in pairs[:, 2:4]}
    held_out = {tuple(row) for row in options["X_val"][:, :2]}
    assert len(held_out) == 12
    assert not training & held_out
    assert {tuple(row) for row in options["X_val"][:, 2:4]} == training
    assert twin.n_pairs_ == len(pairs) == 108**2
    assert len(twin.anchors_X_) == 120  # held-out rows are anchors, too


def test_early_stopping_by_held_out_pairs_stops_later():
    rng = np.random.RandomState(0)
    noise = rng.normal(size=120)
    boosting = HistGradientBoostingRegressor(early_stopping=True, max_iter=200, random_state=0)
    twin = TwinRegressor(boosting, pairs="all", random_state=0).fit(X, noise)
    rows = np.arange(120)
    first, second = np.repeat(rows, 120), np.tile(rows, 120)
    pairs = np.column_stack([X[first], X[second], X[first] - X[second]])
    leaking = boosting.fit(pairs, noise[first] - noise[second])
    assert twin.estimator_.n_iter_ < 0.5 * leaking.n_iter_


@pytest.mark.parametrize(
    ("early_stopping", "n_pairs", "share"),
    [(True, 100, 0.2), ("auto", 100, None), ("auto", 20_000, 0.2), (False, 20_000, None)],
)
def test_early_stopping_fraction(early_stopping, n_pairs, share):
    base = HistGradientBoostingRegressor(early_stopping=early_stopping, validation_fraction=0.2)
    assert early_stopping_fraction(base, n_pairs) == share


@pytest.mark.parametrize(
    "base",
    [
        MLPRegressor(hidden_layer_sizes=(4,), early_stopping=True, max_iter=2),
        GradientBoostingRegressor(n_iter_no_change=2),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_early_stopping_by_pairs_warns(base):
    with pytest.warns(LeakingValidationWarning, match=type(base).__name__):
        TwinRegressor(base, pairs=2, random_state=0).fit(X, y)


def test_training_pairs_keep_their_weights_with_early_stopping():
    weight = np.linspace(1, 2, 120)
    twin = TwinRegressor(Recorder(early_stopping=True), pairs="all", random_state=0)
    twin.fit(X, y, sample_weight=weight)
    pairs, _, options = twin.estimator_.arguments_
    of = {tuple(row.round(6)): value for row, value in zip(X, weight, strict=True)}
    pairs = pairs[:50].round(6)  # pairs of boosting are rounded
    expected = [of[tuple(row[:2])] * of[tuple(row[2:4])] for row in pairs]
    np.testing.assert_allclose(options["sample_weight"][:50], expected)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_n_jobs_limits_the_threads_of_the_base_estimator(n_jobs):
    twin = TwinRegressor(Recorder(max_iter=2), pairs=2, n_jobs=n_jobs).fit(X, y)
    assert max(twin.estimator_.threads_) <= n_jobs


def test_the_default_estimator_is_fitted_to_each_pair_once():
    twin = TwinRegressor(effort="thorough", random_state=0).fit(X, y)
    assert twin.n_pairs_ == 120 * 119 // 2
    assert twin.estimator_.min_samples_leaf == 30
    error = np.sqrt(np.mean((twin.predict(X[::7] + 0.01) - y[::7]) ** 2))
    assert error < 0.2 * y.std()


def test_the_default_estimator_has_fewer_trees_for_few_rows(shipped_defaults):
    n_rows = (10, 350, 420, 500, 9000)
    assert [THOROUGH.n_trees(n) for n in n_rows] == [350, 350, 420, 500, 500]
    assert [FAST.n_trees(n) for n in n_rows] == [100, 140, 168, 200, 500]


def test_the_default_estimator_supports_several_outputs():
    assert isinstance(THOROUGH.make_estimator(40, 2), MultiOutputRegressor)
    twin = TwinRegressor(random_state=0).fit(X[:40], np.column_stack([y, -y])[:40])
    assert twin.predict(X[:3]).shape == (3, 2)


def test_bins_of_boosting_do_not_depend_on_weights(rng):
    X = rng.uniform(size=(60, 2))
    weight = rng.uniform(0.1, 2.0, size=60)
    bins, other = (
        TwinRegressor(HistGradientBoostingRegressor(max_iter=2), random_state=0)
        .fit(X, X[:, 0], sample_weight=given)
        .estimator_._bin_mapper.bin_thresholds_
        for given in (None, weight)
    )
    for one, same in zip(bins, other, strict=True):
        np.testing.assert_array_equal(one, same)


def test_half_pairs_are_half_of_all():
    rng = np.random.RandomState(0)
    first, second = HalfPairs().draw(30, None, rng)
    assert len(first) == HalfPairs().count(30) == 30 * 29 // 2
    assert len({frozenset(pair) for pair in zip(first, second, strict=True)}) == len(first)
    assert 0.3 < np.mean(first < second) < 0.7
    # successive pairs seldom share a row
    assert np.mean((first[1:] == first[:-1]) | (second[1:] == second[:-1])) < 0.2
    few = HalfPairs(100)
    first, second = few.draw(30, None, rng)
    assert len(first) == few.count(30) == 90
    assert not (first == second).any()


def test_half_pairs_are_not_mirrored():
    forest = RandomForestRegressor(2, random_state=0)
    assert TwinRegressor(forest, pairs=HalfPairs()).fit(X[:20], y[:20]).n_pairs_ == 190
