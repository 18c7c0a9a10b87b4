import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, yeojohnson
from sklearn.base import clone
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import PredefinedSplit

from twinned.estimators.regressors import GPRegressor, PowerRegressor
from twinned.rows.scaling import PowerScaling, skewed_columns


@pytest.fixture
def rows(rng):
    X = rng.lognormal(sigma=1.5, size=(60, 3))
    X[:, 2] = rng.uniform(size=60)
    return X, X[:, 0] ** 1.5 / X[:, 1] * (1 + 0.05 * rng.normal(size=60))


def test_scaling_is_that_of_yeo_and_johnson(rng):
    values = rng.lognormal(size=(200, 2)) - [0.0, 0.8]
    scaling = PowerScaling.fit(values, powers=True)
    for j, (likeliest, unit) in enumerate(zip(scaling.power, scaling.unit, strict=True)):
        expected, exponent = yeojohnson(values[:, j] / unit)
        assert likeliest == pytest.approx(np.clip(exponent, 0.001, 1.999), abs=0.026)
        expected = yeojohnson(values[:, j] / unit, likeliest)
        expected = (expected - expected.mean()) / expected.std()
        np.testing.assert_allclose(scaling.transform(values)[:, j], expected, rtol=1e-9)
    np.testing.assert_allclose(scaling.invert(scaling.transform(values)), values, rtol=1e-9)


def test_scaling_does_not_depend_on_units(rng):
    values = rng.lognormal(size=(50, 1))
    scaled = PowerScaling.fit(values, powers=True).transform(values)
    for unit in (1e-100, 1e-5, 1e6):
        other = PowerScaling.fit(unit * values, powers=True).transform(unit * values)
        np.testing.assert_allclose(other, scaled, rtol=1e-6)


def test_scaling_of_constant_and_extreme_values():
    values = np.column_stack([np.zeros(5), np.ones(5), [0, 0, 0, 1e-300, 1.0]])
    scaling = PowerScaling.fit(values, powers=True)
    extreme = scaling.transform(np.array([[0.0, 1.0, 1e150], [1e150, -1e150, -1e150]]))
    assert np.isfinite(extreme**2).all()
    assert np.isfinite(scaling.invert(extreme)).all()


def test_skewness_of_columns(rng):
    normal, ones = rng.normal(size=400), np.ones(400)
    flags = (np.arange(400) < 10).astype(float)  # of two values, which no power changes
    columns = [normal, np.exp(normal), -np.exp(normal), ones, flags]
    assert skewed_columns(np.column_stack(columns)).tolist() == [False, True, True, False, False]


def test_prediction_is_the_mean(rows):
    X, y = rows
    model = PowerRegressor(RidgeCV()).fit(X, y).model_
    assert model.error > 0.03
    for scaled in (-1.0, 0.0, 0.5):
        mean = model.mean(np.array([scaled]))[0]
        expected, _ = quad(
            lambda t, at=scaled: (
                norm.pdf(t)
                * np.clip(model.target.invert(np.array([at + model.error * t])), *limits(y))[0]
            ),
            -8,
            8,
            epsabs=1e-10,
        )
        assert mean == pytest.approx(expected, rel=1e-6)
        assert mean > model.target.invert(np.array([scaled]))[0]  # the median


def limits(y):
    return y.min() - np.ptp(y), y.max() + np.ptp(y)


def test_predictions_are_bounded(rows):
    X, y = rows
    model = PowerRegressor(RidgeCV()).fit(X, y)
    far = model.predict(np.array([[1e9, 1e-9, 0.5], [1e-9, 1e9, 0.5]]))
    assert far == pytest.approx([limits(y)[1], 0.0], abs=0.1)


def transformed(model):
    """What has a power other than 1: the features, the target, both or none."""
    of_features, of_target = (
        (scaling.power != 1).any() for scaling in (model.model_.features, model.model_.target)
    )
    if of_features and of_target:
        return "both"
    return "features" if of_features else "target" if of_target else "none"


def folds_of(fold):
    return list(PredefinedSplit(fold).split())


def test_folds_are_fitted_without_their_rows(rows):
    X, y = rows
    fold, ridge = np.arange(60) % 4, RidgeCV(np.logspace(-3, 4, 5))
    model = PowerRegressor(ridge).fit_with_folds(X, y, None, folds_of(fold))
    assert transformed(model) == "both"
    predictions, errors = [], np.empty(60)
    for number in range(4):
        out = fold == number
        features = PowerScaling.fit(X[~out], powers=True)
        target = PowerScaling.fit(y[~out, None], powers=True)
        fitted = clone(ridge).fit(features.transform(X[~out]), target.transform(y[~out, None]))
        predicted = fitted.predict(features.transform(X[out])).ravel()
        errors[out] = target.transform(y[out, None])[:, 0] - predicted
        predictions.append((out, target, predicted))
    normal = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    for out, target, predicted in predictions:
        error = np.sqrt(np.mean(errors[~out] ** 2))
        values = target.invert(predicted[:, None] + error * normal)
        expected = values.clip(*limits(y[~out])).mean(axis=1)
        np.testing.assert_allclose(model.out_of_fold_prediction_[out], expected, rtol=1e-3)


@pytest.mark.parametrize("name", ["features", "target", "both"])
def test_skewed_columns_are_transformed(rng, name):
    X, y = rng.uniform(size=(2, 60))
    X = np.exp(3 * X)[:, None] if name in ("features", "both") else X[:, None]
    y = np.exp(3 * y) if name in ("target", "both") else y
    assert transformed(PowerRegressor(RidgeCV()).fit(X, y)) == name


def test_without_skewed_columns_it_is_the_plain_model(rng):
    X = rng.uniform(size=(50, 2))
    y = X @ [1.0, 2.0] + 0.1 * rng.uniform(size=50)
    process = GPRegressor(random_state=0)
    model = PowerRegressor(process).fit(X, y)
    assert transformed(model) == "none"
    np.testing.assert_allclose(model.predict(X), process.fit(X, y).predict(X), rtol=1e-4)


def test_one_row_is_refused():
    with pytest.raises(ValueError, match="needs at least 2 rows, not 1"):
        PowerRegressor(RidgeCV()).fit([[1.0]], [1.0])
