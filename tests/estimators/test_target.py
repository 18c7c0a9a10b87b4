"""Twins of a transformed target: predictions, distributions, bounds, messages."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import (
    AutoTwinRegressor,
    RandomAnchors,
    TransformedTargetTwin,
    TwinRegressor,
    load,
    save,
)
from twinned.fitted.explanation import find_comparables
from twinned.fitted.target import TargetTransform

rng = np.random.RandomState(0)
X = rng.normal(size=(70, 2))
LOG_Y = X[:, 0] + 0.3 * X[:, 1] + 0.2 * rng.normal(size=70)
Y = np.round(1e5 * np.exp(LOG_Y))
NEW = rng.normal(size=(5, 2))
BLEND = AutoTwinRegressor(members=["ridge"], cv=4, random_state=0)


@pytest.fixture(scope="module", params=["log", "power", None])
def model(request):
    return TransformedTargetTwin(BLEND, request.param).fit(X, Y)


def test_a_prediction_is_the_mean_of_the_estimates_in_units_of_y(model):
    twin, target = model.regressor_, model.target_
    mean, std = model.predict(NEW, return_std=True)
    table = twin.explain(NEW, n=70)
    table["mean"] = table["weight"] * target.invert(table["estimate"].to_numpy())
    np.testing.assert_allclose(mean, table.groupby("query")["mean"].sum(), rtol=1e-9)
    step = 1e-6 * twin.anchors_y_.std()
    z = target.apply(mean)
    slope = (target.invert(z + step) - target.invert(z - step)) / (2 * step)
    np.testing.assert_allclose(std, slope * twin.predict(NEW, return_std=True)[1], rtol=1e-5)
    np.testing.assert_array_equal(clone(model).fit(X, Y).predict(NEW), mean)


def test_distributions_are_transformed_exactly(model):
    levels = [0.05, 0.4, 0.95]
    quantiles = model.predict_quantiles(NEW, levels)
    np.testing.assert_allclose(model.predict_interval(NEW, 0.9), quantiles[:, [0, 2]])
    for level, values in zip(levels, quantiles.T, strict=True):
        np.testing.assert_allclose(model.predict_cdf(NEW, values), level)
    low, high = model.predict_quantiles(NEW[:1], [1e-6, 1 - 1e-6])[0]
    grid = model.target_.invert(np.linspace(*model.target_.apply(np.array([low, high])), 4001))
    densities = np.exp(model.log_density(np.repeat(NEW[:1], len(grid), axis=0), grid))
    assert trapezoid(densities, grid) == pytest.approx(1, abs=0.01)
    one_value = model.log_density(NEW, 1e5), model.predict_cdf(NEW, 1e5)
    np.testing.assert_array_equal(one_value[0], model.log_density(NEW, np.full(5, 1e5)))
    np.testing.assert_array_equal(one_value[1], model.predict_cdf(NEW, np.full(5, 1e5)))


def test_comparables_are_in_units_of_y(model):
    for row, cases in zip(NEW, find_comparables(model, NEW, 3), strict=True):
        total = sum(case.weight * case.estimate for case in cases.with_others)
        assert total == pytest.approx(model.predict(row[None])[0], rel=1e-9)
        for case in cases.cases:
            assert case.known == Y[case.anchor]  # without rounding
            assert sum(case.adjustments.values()) == pytest.approx(case.difference, rel=1e-6)


def test_a_saved_model(model, tmp_path):
    save(model, tmp_path / "model.twin")
    loaded = load(tmp_path / "model.twin")
    assert loaded.target_ == model.target_
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    np.testing.assert_array_equal(loaded.log_density(NEW, Y[:5]), model.log_density(NEW, Y[:5]))


def test_nothing_is_below_zero_with_the_logarithm():
    model = TransformedTargetTwin(BLEND).fit(X, Y)
    assert (model.predict_interval(NEW, 0.95) > 0).all()
    np.testing.assert_allclose(model.predict_cdf(NEW, [-1.0, -5.0, 0.0, -0.1, 0.0]), 0, atol=1e-30)
    assert (model.log_density(NEW, [-1.0, -5.0, 0.0, -0.1, 0.0]) == -np.inf).all()
    with pytest.raises(ValueError, match="y must be one number"):
        model.predict_cdf(NEW, np.nan)


def test_a_new_anchor_has_a_positive_value_with_the_logarithm():
    X = np.linspace(0.0, 1.0, 30)[:, None]
    model = TransformedTargetTwin(TwinRegressor(Ridge())).fit(X, np.exp(X[:, 0]))
    with pytest.raises(ValueError, match="needs positive y, but the smallest is -1"):
        model.add_anchors(X[:2], [2.0, -1.0])


def test_a_transformation_is_chosen_by_a_search():
    choices = {"target_transform": [None, "log"]}
    search = GridSearchCV(
        TransformedTargetTwin(TwinRegressor(Ridge())), choices, scoring="neg_mean_squared_error"
    )
    assert search.fit(X, Y).best_params_ == {"target_transform": "log"}
    assert search.fit(X, LOG_Y + 5).best_params_ == {"target_transform": None}


@pytest.mark.parametrize("name", ["log", "power"])
def test_bounds_are_those_of_y(name):
    below = np.quantile(Y, 0.2) > Y
    y = np.where(below, np.nan, Y)
    bounds = {"y_lower": np.zeros(70), "y_upper": np.full(70, Y[below].max())}
    bounds = {key: np.where(below, bound, np.nan) for key, bound in bounds.items()}
    model = TransformedTargetTwin(TwinRegressor(Ridge()), name).fit(X, y, **bounds)
    target = TargetTransform.fit(name, Y[~below])
    with np.errstate(divide="ignore"):
        ends = {key: target.apply(bound) for key, bound in bounds.items()}
    ends["y_lower"] = np.where(below, target.apply(np.zeros(70)), np.nan)
    twin = TwinRegressor(Ridge()).fit(X, target.apply(y), **ends)
    np.testing.assert_allclose(model.regressor_.predict(NEW), twin.predict(NEW))
    assert len(model.regressor_.anchors_y_) == (~below).sum()


def test_a_pipeline_that_ends_with_a_twin():
    whole = TransformedTargetTwin(make_pipeline(StandardScaler(), BLEND)).fit(X, Y)
    scaled = StandardScaler().fit(X)
    inner = TransformedTargetTwin(BLEND).fit(scaled.transform(X), Y)
    rows = scaled.transform(NEW)
    np.testing.assert_allclose(whole.predict(NEW), inner.predict(rows))
    for method in ("predict_interval", "predict_quantiles"):
        np.testing.assert_allclose(getattr(whole, method)(NEW), getattr(inner, method)(rows))


def test_several_outputs():
    y = np.column_stack([Y, Y**0.5])
    for name in ("log", "power"):
        both = TransformedTargetTwin(TwinRegressor(Ridge()), name).fit(X, y)
        single = TransformedTargetTwin(TwinRegressor(Ridge()), name).fit(X, y[:, 1])
        np.testing.assert_allclose(both.predict(NEW)[:, 1], single.predict(NEW), rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "y", "error", "message"),
    [
        (
            TransformedTargetTwin(BLEND),
            Y - Y.min(),
            ValueError,
            "positive y, but the smallest is 0",
        ),
        (
            TransformedTargetTwin(Ridge()),
            Y,
            TypeError,
            "must be a twin, or end with one, not a Ridge",
        ),
        (TransformedTargetTwin(BLEND, "sqrt"), Y, ValueError, "'log', 'power' or None"),
        (TransformedTargetTwin(BLEND), np.where(Y > 1e5, Y, np.nan), ValueError, "NaN"),
        (
            TransformedTargetTwin(BLEND),
            np.tile(Y[:, None], 2),
            ValueError,
            "y has 2 targets, but a blend",
        ),
    ],
)
def test_what_cannot_be_fitted_is_refused(model, y, error, message):
    with pytest.raises(error, match=message):
        model.fit(X, y)


def test_folds_of_a_splitter_need_all_anchors():
    twin = TwinRegressor(Ridge(), anchors=RandomAnchors(7), cv=KFold(3), random_state=0)
    with pytest.raises(ValueError, match="cv needs anchors='all' and"):
        twin.fit(X, Y)


def test_the_slope_is_that_of_the_inverse():
    y = np.array([-200.0, -1.0, 0.5, 3.0, 40.0, 900.0])
    target = TargetTransform.fit("power", y)
    z, step = target.apply(y), 1e-6
    slope = (target.invert(z + step) - target.invert(z - step)) / (2 * step)
    np.testing.assert_allclose(target.slope(y), slope, rtol=1e-5)
    np.testing.assert_array_equal(target.invert_known(z), y)


def test_scikit_learn_sees_a_transformed_target():
    assert isinstance(TransformedTargetTwin(BLEND), TransformedTargetRegressor)
    parameters = TransformedTargetTwin(BLEND).get_params(deep=False)
    assert list(parameters) == ["regressor", "target_transform"]
