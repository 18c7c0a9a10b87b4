import numpy as np
import pytest
from sklearn.model_selection import PredefinedSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

import twinned
from twinned.estimators.regressors import GPRegressor
from twinned.models.gaussian_process import fit_gaussian_process


@parametrize_with_checks([GPRegressor("rbf", max_rows=100, random_state=0)])
def test_sklearn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kernel", ["rbf", "matern"])
def test_predictions_are_those_of_the_process(kernel, rng):
    X = rng.normal(size=(40, 2))
    y = np.column_stack([X[:, 0], np.sin(X[:, 1])])
    weight = rng.uniform(0.5, 2.0, 40)
    model = GPRegressor(kernel, max_rows=30, random_state=1).fit(X, y, weight)
    process = fit_gaussian_process(
        X, y, kernel=kernel, sample_weight=weight, max_rows=30, random_state=1
    )
    assert len(model.process_.X) == 30
    expected = process.predict(X, return_std=True)
    np.testing.assert_array_equal(model.predict(X, return_std=True), expected)


def test_save_and_load(rng, tmp_path):
    X = rng.normal(size=(30, 2))
    model = GPRegressor().fit(X, X[:, 0])
    expected = model.predict(X, return_std=True)
    twinned.save(model, tmp_path / "process.twin")
    loaded = twinned.load(tmp_path / "process.twin")
    np.testing.assert_array_equal(loaded.predict(X, return_std=True), expected)


def test_out_of_fold_predictions_do_not_depend_on_the_rows_they_predict(rng, shipped_defaults):
    X = rng.uniform(-2, 2, (60, 2))
    y, fold = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60), np.arange(60) % 3
    folds = list(PredefinedSplit(fold).split())
    model = GPRegressor(random_state=0).fit_with_folds(X, y, None, folds)
    alone = GPRegressor(random_state=0).fit(X[fold != 0], y[fold != 0]).predict(X[fold == 0])
    # the searches start from different points and end close to each other
    np.testing.assert_allclose(model.out_of_fold_prediction_[fold == 0], alone, atol=0.02)
    assert np.corrcoef(model.out_of_fold_prediction_, y)[0, 1] > 0.9
    noise = rng.normal(size=60)
    model = GPRegressor(random_state=0).fit_with_folds(X, noise, np.ones(60), folds)
    assert np.corrcoef(model.out_of_fold_prediction_, noise)[0, 1] < 0.5
