"""Semi-supervised twins, compared with a slow version of algorithm 1."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import twinned
from twinned import NeuralTraining, SemiSupervisedTwinRegressor, TwinNeuralRegressor, TwinRegressor
from twinned.datasets import make_tf
from twinned.estimators.semi_supervised import draw_unlabelled_loops
from twinned.exceptions import MemoryLimitError
from twinned.models.neural.fitting import training_config
from twinned.models.neural.network import pad_to
from twinned.models.neural.trainable_network import fold_in, integers
from twinned.models.neural.training import MemberTask
from twinned.models.neural.training_run import stack_problems

X, y = (part.to_numpy() for part in make_tf(50, random_state=0))
KNOWN = y.copy()
KNOWN[[3, *range(21, 50)]] = np.nan
LABELLED, WITHOUT = np.flatnonzero(~np.isnan(KNOWN)), np.flatnonzero(np.isnan(KNOWN))


def tree(**changes):
    base = DecisionTreeRegressor(max_depth=5, random_state=0)
    return TwinRegressor(base, **{"symmetric": False, "random_state": 7, **changes})


def by_the_book(base, loop_weight, loops):
    """Algorithm 1 of the paper, loop by loop."""
    X_L, Y_L, X_U = X[LABELLED], y[LABELLED], X[WITHOUT]
    pairs, labels = [], []
    for i in range(len(X_L)):
        for j in range(len(X_L)):
            pairs.append(np.concatenate([X_L[i], X_L[j], X_L[i] - X_L[j]]))
            labels.append(Y_L[i] - Y_L[j])
    dtype = np.float32 if isinstance(base, DecisionTreeRegressor) else np.float64
    M = clone(base).fit(np.array(pairs, dtype), labels)

    def pair(a, b):
        return np.concatenate([a, b, a - b])

    for i, j, k in zip(*loops, strict=True):
        x_i, x_j, x_k = X_L[i], X_U[j], X_U[k]
        sides = [pair(x_i, x_j), pair(x_j, x_k), pair(x_k, x_i)]
        predicted = [float(M.predict(np.array([side], dtype))[0]) for side in sides]
        # not `sum`, which rounds once only from Python 3.12 on and so may break ties of splits
        a = predicted[0] + predicted[1] + predicted[2]
        pairs += sides
        labels += [side - loop_weight * a for side in predicted]
    M = clone(base).fit(np.array(pairs, dtype), labels)
    rows = [[pair(x, anchor) for anchor in X_L] for x in X_U]
    return np.array([np.mean(M.predict(np.array(row, dtype)) + Y_L) for row in rows])


@pytest.mark.parametrize("loop_weight", [0.0, 1 / 3, 1.0, 10 / 3])
@pytest.mark.parametrize("base", [DecisionTreeRegressor(max_depth=5, random_state=0), Ridge()])
def test_equals_algorithm_1_loop_by_loop(base, loop_weight):
    twin = TwinRegressor(base, pairs="all", symmetric=False, random_state=7)
    semi = SemiSupervisedTwinRegressor(twin, loop_weight=loop_weight, n_loops=40, random_state=1)
    fast = semi.fit(X, KNOWN).predict(X[WITHOUT])
    seed = np.random.RandomState(1).randint(2**31 - 1, size=3)[0]
    loops = draw_unlabelled_loops(len(LABELLED), len(WITHOUT), 40, np.random.RandomState(seed))
    np.testing.assert_allclose(fast, by_the_book(base, loop_weight, loops), atol=1e-12)


def test_without_unlabelled_rows_it_equals_the_twin():
    semi = SemiSupervisedTwinRegressor(tree(), random_state=0).fit(X, y)
    np.testing.assert_array_equal(semi.predict(X), tree().fit(X, y).predict(X))
    assert (semi.n_unlabelled_, semi.n_rounds_) == (0, 0)
    assert semi.loop_inconsistency_.shape == (1,)


def test_the_default_number_of_loops_is_a_third_of_the_pairs():
    semi = SemiSupervisedTwinRegressor(tree(pairs="all"), random_state=0).fit(X, KNOWN)
    assert semi.twin_.n_pairs_ == 400 + 3 * (400 // 3)
    np.testing.assert_array_equal(semi.twin_.anchor_rows_, LABELLED)


def test_closed_loops_become_consistent():
    """Λ = 1/3 closes each loop, so a flexible model that fits it is consistent afterwards."""
    flexible = TwinRegressor(DecisionTreeRegressor(random_state=0), symmetric=False, pairs="all")
    semi = SemiSupervisedTwinRegressor(flexible, loop_weight=1 / 3, n_loops=8, random_state=0)
    before, after = semi.fit(X, KNOWN).loop_inconsistency_
    assert before > 0.05
    assert after < 1e-9
    overshooting = clone(semi).set_params(loop_weight=1.0).fit(X, KNOWN).loop_inconsistency_
    np.testing.assert_allclose(overshooting[1], 2 * overshooting[0], rtol=1e-6)


def test_the_inconsistency_grows_in_several_rounds():
    flexible = TwinRegressor(DecisionTreeRegressor(random_state=0), symmetric=False, pairs="all")
    semi = SemiSupervisedTwinRegressor(
        flexible, loop_weight=1.0, n_loops=60, n_rounds=4, random_state=0
    )
    semi.fit(X, KNOWN)
    assert (semi.n_rounds_, semi.loop_inconsistency_.shape) == (4, (5,))
    assert semi.loop_inconsistency_[-1] > semi.loop_inconsistency_[0]


def test_all_methods_of_a_twin_are_available():
    semi = SemiSupervisedTwinRegressor(tree(), n_loops=30, random_state=0).fit(X, KNOWN)
    mean, std = semi.predict(X[WITHOUT], return_std=True)
    _, estimates = semi.predict_anchors(X[WITHOUT])
    np.testing.assert_allclose(estimates.mean(axis=1), mean)
    assert std.shape == mean.shape
    assert semi.loop_inconsistency(X[:4]).shape == (4,)
    assert len(semi.explain(X[:4], n=2)) == 12
    assert semi.predict_difference(X[:4], X[4:8]).shape == (4,)
    richer = semi.add_anchors(X[WITHOUT], y[WITHOUT])
    assert len(richer.twin_.anchors_X_) == 50
    assert len(semi.twin_.anchors_X_) == 20
    assert semi.score(X, KNOWN) == semi.score(X[LABELLED], y[LABELLED])


def test_tables_categories_weights_and_several_outputs():
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    weights = np.linspace(1, 2, 50)
    semi = SemiSupervisedTwinRegressor(tree(), n_loops=30, random_state=0)
    semi.fit(table, pd.Series(KNOWN), sample_weight=weights)
    assert list(semi.feature_names_in_) == ["a", "b"]
    both = SemiSupervisedTwinRegressor(tree(), n_loops=30, random_state=0)
    assert both.fit(X, np.column_stack([KNOWN, -KNOWN])).predict(X).shape == (50, 2)


def test_grid_search_over_loop_weight_with_unlabelled_rows():
    semi = SemiSupervisedTwinRegressor(tree(), n_loops=30, random_state=0)
    search = GridSearchCV(semi, {"loop_weight": [0.1, 1.0]}, cv=KFold(3, shuffle=True)).fit(
        X, KNOWN
    )
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_refits_use_the_parameters_found_by_a_search():
    grid = GridSearchCV(RandomForestRegressor(3, random_state=0), {"max_depth": [2, 6]}, cv=2)
    twin = TwinRegressor(grid, pairs="all", random_state=0)
    semi = SemiSupervisedTwinRegressor(twin, n_loops=20, random_state=0).fit(X, KNOWN)
    first = twin.fit(X[LABELLED], y[LABELLED]).estimator_.best_params_["max_depth"]
    assert semi.twin_.estimator_.max_depth == first


@pytest.mark.parametrize("kind", ["tree", "networks"])
def test_saving(tmp_path, kind):
    twin = tree() if kind == "tree" else networks()
    semi = SemiSupervisedTwinRegressor(twin, n_loops=30, random_state=0).fit(X, KNOWN)
    twinned.save(semi, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    np.testing.assert_array_equal(loaded.predict(X), semi.predict(X))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loop_weight": -1.0}, "loop_weight must not be negative, but is -1.0"),
        ({"n_loops": 0}, "n_loops"),
        ({"n_rounds": 0}, "n_rounds must be"),
        ({"twin": Ridge()}, "twin must be a TwinRegressor or a neural twin, not Ridge"),
    ],
)
def test_invalid_parameters_raise(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SemiSupervisedTwinRegressor(**changes).fit(X, KNOWN)


def test_fewer_than_two_labelled_rows_raise():
    with pytest.raises(ValueError, match="y has 1 labelled rows of 50"):
        SemiSupervisedTwinRegressor().fit(X, np.where(np.arange(50) == 4, y, np.nan))


@parametrize_with_checks([SemiSupervisedTwinRegressor(tree(memory_limit="2MB"), n_loops=5)])
def test_sklearn_check(estimator, check):
    check(estimator)


# --- networks -------------------------------------------------------------------------------------


def networks(**changes):
    """Small networks without dropout, of a single setting."""
    training = {"max_steps": 40, "n_folds": 2, "learning_rate": 0.02, "dropout": 0.0}
    training |= changes.pop("training", {})
    options = {"n_members": 1, "training": NeuralTraining(**training), "random_state": 0}
    return TwinNeuralRegressor((8,), **{**options, **changes})


def test_loss_of_networks_is_of_labelled_and_pseudo_labelled_pairs():
    """The loss is that of the labelled pairs and, by their numbers, of the drawn other pairs."""
    twin = networks()
    problem, ensemble = twin.fit_pairs(X[LABELLED], y[LABELLED])
    rows = twin.validate_queries(X[WITHOUT]).encode()
    first, second = rows.take(np.arange(9)), rows.take(np.arange(9, 18))
    labels = np.linspace(-1.0, 1.0, 9)[:, None]
    extended = problem.with_pseudo_labels([(first, second)], [labels])
    config = training_config([problem], [member.setting for member in ensemble.members])
    tasks = []
    for own in (problem, extended):
        arrays = stack_problems([own], [list(ensemble.members)], config.shape.n_features)
        tasks.append(MemberTask(config, *arrays))
    pick = partial(jax.tree.map, lambda values: jnp.asarray(values)[0])
    without, with_labels = (
        MemberTask(config, pick(t.problem), pick(pick(t.member))) for t in tasks
    )
    parameters = {name: values[0] for name, values in ensemble.networks.parameters.items()}
    key = fold_in(jnp.uint32(3), 1)
    drawn = np.asarray(integers(fold_in(key, 6), jnp.int32(9), config.batch_points))
    scale, network = with_labels.member.feature_scale, with_labels.network(parameters)

    @jax.jit  # one program instead of one for each operation
    def differences(*sides):
        return network.differences(*map(network.first_layer, sides))

    errors = np.zeros(9)
    for pair in range(9):  # one at a time
        sides = (pad_to(side.features[[pair]], 1, 4) * scale for side in (first, second))
        predicted = differences(*sides)
        errors[pair] = float(predicted[0, 0]) - float(labels[pair, 0] / problem.scale.y_spread[0])
    loss, with_pseudo_labels = (jax.jit(task.loss) for task in (without, with_labels))
    expected = loss(parameters, key) + 9 / 20**2 * np.mean(np.square(errors[drawn]))
    np.testing.assert_allclose(with_pseudo_labels(parameters, key), expected, rtol=1e-5)


def test_networks_learn_the_pseudo_labels():
    """With the true differences as pseudo-labels, the error of the unlabelled rows decreases."""
    twin = networks(training={"max_steps": 400})
    training = twin.fit_pairs(X[LABELLED], y[LABELLED])
    before = twin.score(X[WITHOUT], y[WITHOUT])
    rows, anchors = twin.validate_queries(X[WITHOUT]).encode(), twin.fitted_.anchors.rows
    i, j = np.repeat(np.arange(30), 20), np.tile(np.arange(20), 30)
    labels = (y[WITHOUT][i] - y[LABELLED][j])[:, None]
    twin.refit_with(training, [(rows.take(i), anchors.take(j))], [labels])
    assert 1.0 - twin.score(X[WITHOUT], y[WITHOUT]) < 0.5 * (1.0 - before)


def test_networks_keep_their_settings_and_out_of_fold_predictions():
    semi = SemiSupervisedTwinRegressor(networks(), n_loops=30, random_state=0).fit(X, KNOWN)
    first = networks().fit(X[LABELLED], y[LABELLED])
    out_of_fold = semi.twin_.out_of_fold_prediction_
    np.testing.assert_array_equal(out_of_fold, first.out_of_fold_prediction_)
    assert not np.array_equal(semi.predict(X), first.predict(X))
    assert semi.twin_.n_pairs_ == 400 + 90
    again = SemiSupervisedTwinRegressor(networks(), n_loops=30, random_state=0).fit(X, KNOWN)
    np.testing.assert_array_equal(semi.predict(X), again.predict(X))


def test_the_memory_limit_bounds_the_loops_of_networks():
    semi = SemiSupervisedTwinRegressor(networks(memory_limit="3KB"), random_state=0)
    bytes_per_pair = 12 * (2 * 2 + 1)
    n_loops = 3_000 // bytes_per_pair // 3
    assert semi.fit(X, KNOWN).twin_.n_pairs_ == 400 + 3 * n_loops
    with pytest.raises(MemoryLimitError, match=rf"\({n_loops} loops do\)"):
        semi.set_params(n_loops=n_loops + 1).fit(X, KNOWN)


@pytest.mark.slow
@parametrize_with_checks(
    [SemiSupervisedTwinRegressor(networks(), n_loops=5)],
    expected_failed_checks=lambda _: {
        "check_methods_subset_invariance": "blocks of rows are rounded differently, in float32"
    },
)
def test_sklearn_check_of_networks(estimator, check):
    check(estimator)


def test_the_memory_limit_bounds_the_pairs_of_loops():
    twin = tree(pairs="all", memory_limit="30KB")
    semi = SemiSupervisedTwinRegressor(twin, random_state=0).fit(X, KNOWN)
    bytes_per_pair = 6 * 4 + 8 + 3 * 8
    assert 400 < semi.twin_.n_pairs_ <= 30_000 // bytes_per_pair
    with pytest.raises(MemoryLimitError, match="do not fit into memory_limit='30KB'"):
        SemiSupervisedTwinRegressor(twin, n_loops=133, random_state=0).fit(X, KNOWN)
