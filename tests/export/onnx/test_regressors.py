import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, RobustScaler, StandardScaler
from sklearn.svm import SVR

from twinned.estimators.regressors import GPRegressor, PowerRegressor
from twinned.export.onnx.regressors import add_regressor

REGRESSORS = [
    LinearRegression(),
    RidgeCV(),
    GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2),
    MultiOutputRegressor(Ridge()),
    make_pipeline(StandardScaler(), MinMaxScaler(), Ridge()),
    make_pipeline(StandardScaler(with_mean=False), StandardScaler(with_std=False), Ridge()),
    GPRegressor("matern"),
    GPRegressor("rbf"),
]


@pytest.mark.parametrize("estimator", REGRESSORS, ids=str)
def test_predictions_are_the_same(evaluate, rows, estimator):
    X, y, new = rows
    is_multiple = isinstance(estimator, MultiOutputRegressor)
    estimator.fit(X, np.column_stack([y, -y]) if is_multiple else y)
    new = np.concatenate([new, X[:5]])  # at distance 0 from known rows
    found = evaluate(lambda X: add_regressor(estimator, X), new)
    expected = estimator.predict(new).reshape(found.shape)
    # the coefficients of a process almost without noise are large
    tolerance = 1e-6 if isinstance(estimator, GPRegressor) else 1e-9
    np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.parametrize("regressor", [RidgeCV(), GPRegressor("rbf")], ids=str)
def test_power_transformations(evaluate, rng, regressor):
    X = rng.lognormal(sigma=1.5, size=(60, 3)) - [0.0, 0.5, 0.0]
    model = PowerRegressor(regressor).fit(X[:50], (X[:, 0] ** 2 * X[:, 2] - 0.1)[:50])
    assert (model.model_.features.power != 1).any()
    assert model.model_.target.power[0] != 1
    new = np.concatenate([X, [[1e150, -1e150, 0.0], [0.0, 0.0, 1e9]]])
    found = evaluate(lambda X: add_regressor(model, X), new)
    np.testing.assert_allclose(found[:, 0], model.predict(new), rtol=1e-6)


def test_categories_of_boosting(evaluate, rng):
    X = np.column_stack([rng.normal(size=300), rng.randint(0, 40, 300), rng.randint(0, 3, 300)])
    X[rng.rand(300) < 0.2, 1] = np.nan
    y = X[:, 0] + np.isin(X[:, 1], [3, 7, 35]) * 5 + (X[:, 2] == 1)
    boosting = HistGradientBoostingRegressor(
        max_iter=20, min_samples_leaf=3, categorical_features=[1, 2]
    ).fit(X, y)
    X[:30, 1] = 41.0  # a new category
    found = evaluate(lambda X: add_regressor(boosting, X), X)
    np.testing.assert_allclose(found[:, 0], boosting.predict(X), rtol=1e-12)
    assert np.ptp(boosting.predict(X)) > 3


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [
        (SVR(), "SVR is not a kind of regressor that the exporter knows; use trees"),
        (make_pipeline(PolynomialFeatures(), Ridge()), "the pipeline step PolynomialFeatures"),
        (make_pipeline(RobustScaler(), Ridge()), "the pipeline step RobustScaler"),
        (KNeighborsRegressor(2), "KNeighborsRegressor is not a kind of regressor"),
        (
            HistGradientBoostingRegressor(loss="gamma", max_iter=2),
            "boosting with loss='gamma' has a link function",
        ),
    ],
    ids=["svr", "pipeline", "scaler", "neighbors", "loss"],
)
def test_unknown_regressors_are_refused(evaluate, rows, estimator, reason):
    X, y, _ = rows
    estimator.fit(X, y)
    with pytest.raises(TypeError, match=reason):
        evaluate(lambda X: add_regressor(estimator, X), X)
