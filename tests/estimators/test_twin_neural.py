import warnings
from copy import copy

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator

import twinned
from twinned import (
    NearestAnchors,
    NearestPairs,
    NeuralRegressor,
    NeuralTraining,
    RandomAnchors,
    TwinNeuralRegressor,
)
from twinned.datasets import make_tf
from twinned.models.learned_metric import learn_metric
from twinned.models.neural.inputs import Scale
from twinned.models.neural.parameters import SETTINGS, Setting
from twinned.neural import fit_many
from twinned.rows.schema import TableSchema, mark_missing

# 2 settings × 2 folds, then 2 members on all rows
SMALL = {
    "hidden_sizes": (16, 16),
    "n_members": 2,
    "training": NeuralTraining(n_folds=2, max_steps=60),
    "random_state": 0,
}
BOTH = [TwinNeuralRegressor, NeuralRegressor]
# where the two kinds share the code that is tested
TWIN_QUICKLY = [TwinNeuralRegressor, pytest.param(NeuralRegressor, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def data():
    X, y = make_tf(90, random_state=1)
    return X.to_numpy(), y.to_numpy()


@pytest.fixture(scope="module")
def fitted(data):
    """Estimators of both kinds by class, which have not learned much."""
    return {cls: cls(**SMALL).fit(*data) for cls in BOTH}


@pytest.fixture(scope="module")
def twin(fitted):
    return fitted[TwinNeuralRegressor]


@pytest.fixture(scope="module")
def trained(data):
    """Estimators of both kinds by class, with as many steps as learning takes."""
    return {cls: clone(cls(**SMALL)).set_params(training__max_steps=400).fit(*data) for cls in BOTH}


def sklearn_checks():
    """Each fit of a new shape compiles, so the checks that fit run in `make test-slow` only."""
    for estimator in (cls(n_members=2, training=NeuralTraining(max_steps=100)) for cls in BOTH):
        for one, check in estimator_checks_generator(estimator):
            name = check.func.__name__
            if name == "check_methods_subset_invariance":
                continue  # its tolerance of 1e-7 is less than the rounding of float32, see below
            quick = name == "check_no_attributes_set_in_init"
            marks = [] if quick else pytest.mark.slow
            yield pytest.param(one, check, id=f"{type(one).__name__}-{name}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(sklearn_checks()))
def test_sklearn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", BOTH)
def test_predictions_of_single_rows_equal_those_of_all(data, fitted, estimator):
    """As scikit-learn's `check_methods_subset_invariance`, to the rounding of float32."""
    X, y = data
    single = np.concatenate([fitted[estimator].predict(row[None]) for row in X[:20]])
    np.testing.assert_allclose(single, fitted[estimator].predict(X)[:20], atol=1e-6 * y.std())


@pytest.mark.parametrize("estimator", BOTH)
def test_fit_sets_n_features_in_and_predict_sets_nothing(data, trained, estimator):
    """As scikit-learn's `check_n_features_in` and `check_dict_unchanged`, of one fitted model."""
    assert not hasattr(estimator(**SMALL), "n_features_in_")
    model = trained[estimator]
    assert model.n_features_in_ == 2
    before = dict(vars(model))
    model.predict(data[0])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


@pytest.mark.parametrize("estimator", BOTH)
def test_learns_the_test_function(trained, estimator):
    model = trained[estimator]
    X, y = make_tf(20, random_state=2)
    error = np.sqrt(np.mean((model.predict(X.to_numpy()) - y.to_numpy()) ** 2))
    assert error < 0.1 * y.std()
    assert model.learning_curve_.shape == (4, 5)
    # the error of held-out rows falls
    assert (model.learning_curve_.min(axis=1) < 0.95 * model.learning_curve_[:, 0]).all()


@pytest.mark.parametrize("estimator", TWIN_QUICKLY)
def test_fit_many_equals_fit(data, estimator):
    """Sizes differ, so the smaller ones are padded: that changes nothing but the last bits."""
    X, y = data
    problems = [(X[:90], y[:90]), (X[:40], y[:40])]
    many = fit_many(estimator(**SMALL), problems)
    for (own_X, own_y), model in zip(problems, many, strict=True):
        alone = estimator(**SMALL).fit(own_X, own_y)
        np.testing.assert_allclose(model.predict(own_X), alone.predict(own_X), atol=1e-4)
        np.testing.assert_allclose(model.learning_curve_, alone.learning_curve_, atol=1e-4)


@pytest.mark.parametrize("estimator", TWIN_QUICKLY)
def test_same_seed_same_bits(data, fitted, estimator):
    first = fitted[estimator].predict(data[0])
    second = estimator(**SMALL).fit(*data).predict(data[0])
    np.testing.assert_array_equal(first, second)
    other = estimator(**SMALL).set_params(random_state=1).fit(*data).predict(data[0])
    assert np.abs(first - other).max() > 1e-6


def test_differences_are_antisymmetric_to_the_last_bit(data, twin):
    X, _ = data
    for rows in (1, 7, 40):
        forward = twin.predict_difference(X[:rows], X[-rows:])
        assert np.array_equal(forward, -twin.predict_difference(X[-rows:], X[:rows]))
        assert np.array_equal(twin.predict_difference(X[:rows], X[:rows]), np.zeros(rows))


def test_prediction_is_the_mean_over_anchors_and_members(data, twin):
    X, y = data
    mean, std = twin.predict(X[:6], return_std=True)
    indices, estimates = twin.predict_anchors(X[:6])
    np.testing.assert_allclose(estimates.mean(axis=1), mean, atol=1e-6)
    assert indices.shape == (6, 90)
    # slowly: one difference for each anchor
    slow = [np.mean(twin.predict_difference(np.tile(x, (90, 1)), X) + y) for x in X[:6]]
    np.testing.assert_allclose(slow, mean, atol=1e-5)
    # an anchor that equals the query has its own value
    np.testing.assert_allclose(np.diag(estimates), y[:6], rtol=1e-6)
    # the estimates differ by the out-of-fold errors, whatever the query
    (mean,), (estimates,) = twin.predict(X[:1] + 0.01), twin.predict_anchors(X[:1] + 0.01)[1]
    errors = y - twin.out_of_fold_prediction_
    np.testing.assert_allclose(estimates - mean, errors - errors.mean())
    assert (std > 0).all()


def test_block_size_does_not_matter(data, twin):
    X, _ = data
    whole = twin.predict(X, return_std=True)
    small = copy(twin).set_params(memory_limit="40KB")
    for a, b in zip(whole, small.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("estimator", TWIN_QUICKLY)
def test_repeating_a_row_equals_doubling_its_weight(data, estimator, rng):
    X, y = data[0][:40], data[1][:40]
    weight = rng.randint(0, 3, 40)
    weighted = estimator(**SMALL).fit(X, y, sample_weight=weight)
    repeated = estimator(**SMALL).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-6)


@pytest.mark.parametrize("estimator", TWIN_QUICKLY)
def test_out_of_fold_predictions_do_not_leak(data, trained, estimator, rng):
    """Shuffled targets cannot be predicted out of fold, even if they are memorized."""
    X, y = data[0], rng.permutation(data[1])
    model = clone(estimator(**SMALL)).set_params(training__max_steps=400).fit(X, y)
    correlation = np.corrcoef(model.out_of_fold_prediction_, y)[0, 1]
    assert correlation < 0.35
    learnable = trained[estimator].out_of_fold_prediction_
    assert np.corrcoef(learnable, data[1])[0, 1] > 0.9


@pytest.mark.slow
def test_nearest_pairs_and_anchors(data):
    """The paper's NNTNNR: the same number of neighbors for training and for inference."""
    X, y = data
    model = TwinNeuralRegressor(**SMALL).set_params(
        pairs=NearestPairs(8), anchors=NearestAnchors(8)
    )
    indices, _ = model.fit(X, y).predict_anchors(X[:5])
    assert indices.shape == (5, 8)
    assert model.score(X, y) > 0.5
    random = TwinNeuralRegressor(**SMALL).set_params(pairs=4, anchors=RandomAnchors(10)).fit(X, y)
    assert random.anchors_X_.shape == (10, 2)


def test_nearest_anchors_are_nearest_in_scaled_features(data):
    X, y = data
    stretched = X * [1.0, 1000.0]
    model = TwinNeuralRegressor(**SMALL).set_params(anchors=NearestAnchors(5)).fit(stretched, y)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    distances = np.linalg.norm(scaled[:4, None] - scaled[None], axis=2)
    indices, _ = model.predict_anchors(stretched[:4])
    np.testing.assert_array_equal(np.sort(indices), np.sort(np.argsort(distances)[:, :5]))


def test_categories_and_several_outputs(data):
    X, y = data
    table = pd.DataFrame(X, columns=["a", "b"]).assign(kind=pd.Categorical(["x", "y", "z"] * 30))
    model = TwinNeuralRegressor(**SMALL).fit(table, np.column_stack([y, -y]))
    assert model.predict(table).shape == (90, 2)
    assert model.explain(table[:1], n=2).shape == (6, 9)
    assert model.loop_inconsistency(table[:3], n_loops=4).max() < 1e-4 + 10 * y.std()


def test_validation_set_given_to_fit(data):
    X, y = data
    model = TwinNeuralRegressor(**SMALL).fit(X[:60], y[:60], X_val=X[60:], y_val=y[60:])
    assert len(model.anchors_X_) == 60
    assert model.out_of_fold_prediction_ is None
    with pytest.raises(ValueError, match="y_val is None"):
        TwinNeuralRegressor(**SMALL).fit(X, y, X_val=X)


@pytest.mark.parametrize("kind", TWIN_QUICKLY)
def test_missing_values_are_imputed_and_marked(kind, tmp_path):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    X["kind"] = pd.Categorical(rng.choice(["u", "v"], 80))
    y = X["a"] + 3.0 * (np.arange(80) % 4 == 0)  # where b is missing
    X.loc[np.arange(80) % 4 == 0, "b"] = np.nan
    X.loc[5, "kind"] = None
    model = kind(
        (16,), n_members=2, training=NeuralTraining(n_folds=2, max_steps=200), random_state=0
    ).fit(X, y)
    rows = pd.DataFrame({"a": [0.0, 0.0], "b": [np.nan, 0.1], "kind": ["u", None]})
    marked, known = model.predict(rows)
    assert marked - known > 2
    # a feature without missing values in training has no indicator: the model has the median
    median = rows.assign(a=[np.nan, X["a"].median()], b=0.1, kind="u")
    if kind is TwinNeuralRegressor:  # which completes the rows that it predicts
        apart = model.predict_difference(median[:1], median[1:])
    else:
        apart = np.diff(model.predict(median))
    np.testing.assert_allclose(apart, 0.0, atol=1e-9)
    twinned.save(model, tmp_path / "model.twin")
    np.testing.assert_array_equal(
        twinned.load(tmp_path / "model.twin").predict(rows), [marked, known]
    )


def test_scale_fills_missing_values():
    rng = np.random.RandomState(0)
    matrix = np.column_stack([rng.normal(size=(9, 2)), np.arange(9) % 2, np.full(9, np.nan)])
    matrix[3, 0] = matrix[4, 2] = np.nan
    plain = TableSchema(
        ["numeric", "numeric", "categorical", "numeric"], [[], [], ["u", "v"], []], [0, 0, 2, 0]
    )
    schema = mark_missing(plain, matrix)
    assert schema.marked == [0, 3]
    assert schema.n_encoded == 3 + 2 + 2
    assert schema.encoded_columns(np.array([0])).tolist() == [0, 5]
    rows = schema.to_rows(matrix)
    scale = Scale.fit(rows, np.arange(9.0)[:, None], np.ones(9))
    features = scale.transform(rows).features
    filled = matrix.copy()
    filled[3, 0], filled[:, 3] = np.nanmedian(matrix[:, 0]), 0.0
    for column, j in enumerate([0, 1]):
        expected = (filled[:, j] - filled[:, j].mean()) / filled[:, j].std()
        np.testing.assert_allclose(features[:, column], expected)
    np.testing.assert_array_equal(features[:, 2], np.zeros(9))
    np.testing.assert_array_equal(features[4, 3:5], [0, 0])  # a missing category
    np.testing.assert_array_equal(features[:, 5], np.arange(9) == 3)
    np.testing.assert_array_equal(features[:, 6], np.ones(9))


def test_grid_search_over_anchors(data):
    every = np.arange(90)  # as many rows as in other tests, so that nothing is compiled
    search = GridSearchCV(
        TwinNeuralRegressor(**SMALL).set_params(anchors=NearestAnchors(3)),
        {"anchors__k": [2, 20]},
        cv=[(every, every)],
        refit=False,
    ).fit(*data)
    assert search.best_params_["anchors__k"] in (2, 20)
    assert len(set(search.cv_results_["mean_test_score"])) == 2


def test_grid_search_over_training(data):
    every = np.arange(90)
    search = GridSearchCV(
        TwinNeuralRegressor(**SMALL), {"training__learning_rate": [1e-4, 1e-2]}, cv=[(every, every)]
    ).fit(*data)
    assert search.best_params_ == {"training__learning_rate": 1e-2}
    assert search.best_estimator_.training.max_steps == 60


def test_training_must_be_of_its_class(data):
    with pytest.raises(TypeError, match=r"training must be a NeuralTraining or None, not \{'max"):
        NeuralRegressor(training={"max_steps": 5}).fit(*data)


@pytest.mark.parametrize("estimator", BOTH)
def test_saved_models_predict_the_same(data, fitted, estimator, tmp_path):
    model = fitted[estimator]
    twinned.save(model, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    np.testing.assert_array_equal(loaded.predict(data[0]), model.predict(data[0]))


def test_added_anchors_share_the_networks(data, twin):
    X, y = data
    richer = twin.add_anchors(X[:5] + 0.01, y[:5])
    assert richer._parameters is twin._parameters
    assert richer.predict_anchors(X[:2])[1].shape == (2, 95)


def test_fit_many_refuses_other_estimators(data):
    with pytest.raises(TypeError, match="TwinRegressor"):
        fit_many(twinned.TwinRegressor(), [data])
    with pytest.raises(ValueError, match="1 estimators do not fit 2 problems"):
        fit_many([TwinNeuralRegressor()], [data, data])
    assert fit_many(TwinNeuralRegressor(), []) == []


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_relevance_of_equal_rows_is_learned_once(data, n_jobs, monkeypatch):
    (X, y), learned = data, []

    def count(features, *arguments, **options):
        learned.append(len(features))
        return learn_metric(features, *arguments, **options)

    monkeypatch.setattr("twinned.models.learned_metric.learn_metric", count)
    each = [clone(TwinNeuralRegressor(**SMALL, n_jobs=n_jobs)) for _ in range(3)]
    for one, k in zip(each, (3, 5, 9), strict=True):
        one.set_params(pairs=NearestPairs(k), training__max_steps=1)
    problems = [(X, y), (X[:60], y[:60]), (X.copy(order="K"), y.copy())]
    with parallel_config(backend="threading"):
        fitted = fit_many(each, problems)
    # of all rows, and without each fold
    assert sorted(learned) == [30, 30, 45, 45, 60, 90]
    assert [model.pairs.k for model in fitted] == [3, 5, 9]
    alone = clone(each[2]).fit(X, y)
    np.testing.assert_array_equal(fitted[2].feature_relevance_, alone.feature_relevance_)


@pytest.mark.slow
def test_fit_many_with_different_parameters(data):
    """Tables of different widths are padded: that changes nothing but the last bits."""
    X, y = data
    each = [TwinNeuralRegressor(**SMALL, pairs=NearestPairs(k)) for k in (3, 9)]
    each[1] = clone(each[1]).set_params(training__max_steps=50)
    for own, model in zip(each, fit_many(each, [data, data]), strict=True):
        alone = own.fit(X, y)
        np.testing.assert_allclose(model.predict(X), alone.predict(X), atol=1e-4)
        assert model.n_pairs_ == alone.n_pairs_


# --- unfitted estimators, members, divergence -----------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda twin, X: twin.predict(X),
        lambda twin, X: twin.predict_difference(X, X),
        lambda twin, X: twin.predict_anchors(X),
        lambda twin, X: twin.loop_inconsistency(X),
        lambda twin, X: twin.explain(X),
        lambda twin, X: twin.predict_interval(X),
        lambda twin, X: twin.add_anchors(X, X[:, 0]),
        lambda twin, X: twin.score(X, X[:, 0]),
    ],
)
def test_an_unfitted_twin_raises_not_fitted_error(data, call):
    with pytest.raises(NotFittedError):
        call(TwinNeuralRegressor(), data[0])


@pytest.mark.parametrize("method", ["predict", "predict_members"])
def test_unfitted_plain_networks_raise_not_fitted_error(data, method):
    with pytest.raises(NotFittedError):
        getattr(NeuralRegressor(), method)(data[0])


@pytest.mark.parametrize("outputs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_mean_over_plain_members_is_the_prediction(data, outputs):
    X, y = data
    y = y if outputs == 1 else np.column_stack([y, -y])
    model = clone(NeuralRegressor(**SMALL)).set_params(training__selection="mean").fit(X, y)
    members = model.predict_members(X)
    assert members.shape == (2, *y.shape)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(np.tensordot(model.member_weights_, members, axes=1), mean)
    np.testing.assert_allclose(members.std(axis=0), std)


def test_memory_limit_and_n_jobs_do_not_change_plain_predictions(data, fitted):
    X, _ = data
    model = copy(fitted[NeuralRegressor])
    whole = model.predict(X, return_std=True)
    model.set_params(memory_limit="40KB", n_jobs=2)
    for a, b in zip(whole, model.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    with pytest.raises(twinned.exceptions.MemoryLimitError, match="memory_limit=100 bytes"):
        model.set_params(memory_limit=100).predict(X)


@pytest.mark.parametrize("estimator", BOTH)
def test_verbose_shows_a_progress_bar(data, estimator, capsys):
    X, y = data
    clone(estimator(**SMALL)).set_params(training__max_steps=2).fit(X, y)
    assert capsys.readouterr().out == ""
    clone(estimator(**SMALL)).set_params(training__max_steps=2, verbose=1).fit(X, y)
    output = capsys.readouterr().out
    assert "training 4 networks" in output
    assert "training 2 networks" in output


@pytest.fixture
def one_setting_diverges(monkeypatch):
    diverging = Setting(1e30, 0.0, 0.0, 0.1)
    monkeypatch.setattr("twinned.models.neural.parameters.SETTINGS", (SETTINGS[0], diverging))


@pytest.mark.parametrize(
    ("estimator", "selection"),
    [
        (TwinNeuralRegressor, "greedy"),
        (NeuralRegressor, "mean"),
        pytest.param(TwinNeuralRegressor, "mean", marks=pytest.mark.slow),
        pytest.param(NeuralRegressor, "greedy", marks=pytest.mark.slow),
    ],
)
def test_diverged_members_are_excluded_with_a_warning(
    data, one_setting_diverges, estimator, selection, monkeypatch
):
    X, y = data
    model = clone(estimator(**SMALL)).set_params(training__selection=selection)
    with pytest.warns(ConvergenceWarning, match="2 of 4 networks diverged"):
        model.fit(X, y)
    assert model.n_members_ == 2
    np.testing.assert_allclose(model.member_weights_, [0.5, 0.5])
    assert np.isfinite(model.predict(X)).all()
    assert not np.isfinite(model.learning_curve_[2:]).any()
    # as if the diverged setting had not been trained
    monkeypatch.setattr("twinned.models.neural.parameters.SETTINGS", SETTINGS[:1])
    alone = estimator(**SMALL).fit(X, y)
    np.testing.assert_allclose(
        model.out_of_fold_prediction_, alone.out_of_fold_prediction_, atol=1e-5
    )


@pytest.mark.parametrize("estimator", BOTH)
def test_an_ensemble_of_diverged_members_is_refused(data, estimator):
    model = clone(estimator(**SMALL)).set_params(training__learning_rate=1e30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"networks diverged.*smaller learning_rate"):
            model.fit(*data)
    assert not hasattr(model, "member_weights_")


def test_missing_values_of_rows_of_weight_zero_are_ignored(data):
    X, y = data
    with_missing, weight = X.copy(), np.ones(len(y))
    with_missing[:5, 0], weight[:5] = np.nan, 0.0
    model = NeuralRegressor(**SMALL).fit(with_missing, y, sample_weight=weight)
    expected = NeuralRegressor(**SMALL).fit(X[5:], y[5:])
    assert model._schema.marked == []
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=1e-4, atol=1e-4)


def test_a_failed_fit_does_not_change_the_estimator(data, fitted):
    X, y = data
    model = copy(fitted[NeuralRegressor])
    before = model.predict(X)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(X[:, :1] + np.inf, y)
    np.testing.assert_array_equal(model.predict(X), before)
