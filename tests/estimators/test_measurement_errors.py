"""`y_std`, known errors of measurement, in `fit` and in prediction intervals."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import twinned
from twinned import (
    AutoTwinRegressor,
    NeuralTraining,
    TransformedTargetTwin,
    TwinNeuralRegressor,
    TwinRegressor,
    cross_conformal,
)
from twinned.models.measurement_errors import weigh_by_error
from twinned.rows.training import validate_training_rows

MEMBERS = ["ridge", "gp_matern:small"]


def make_table(n, seed, unit=1.0):
    rng = np.random.RandomState(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    value = np.sin(4 * X[:, 0]) * np.cos(4 * X[:, 1]) + X[:, 2]
    y_std = 0.15 * np.exp(rng.normal(size=n))
    return X, unit * value, unit * (value + y_std * rng.normal(size=n)), unit * y_std


def make_blend(**options):
    return AutoTwinRegressor(members=MEMBERS, cv=5, random_state=0, **options)


pytestmark = pytest.mark.filterwarnings("ignore::twinned.exceptions.ShiftWarning")


@pytest.fixture(scope="module")
def blend():
    X, _, y, y_std = make_table(200, 0)
    return make_blend().fit(X, y, y_std=y_std)


def coverage(ends, y):
    return float(np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])))


def test_known_errors_lower_the_error_and_intervals_cover(blend):
    X, value, y, y_std = make_table(3000, 1)
    train_X, _, train_y, _ = make_table(200, 0)
    ignoring = make_blend().fit(train_X, train_y)
    errors = [np.sqrt(np.mean((model.predict(X) - value) ** 2)) for model in (blend, ignoring)]
    assert errors[0] < 0.85 * errors[1]
    # of one draw of few rows with small errors, by which the remaining part is estimated
    assert 0.86 < coverage(blend.predict_interval(X, 0.9, of="value"), value) < 0.98
    assert coverage(blend.predict_interval(X, 0.9, y_std=y_std), y) == pytest.approx(0.9, abs=0.03)


def test_intervals_include_the_error_of_the_new_measurement(blend):
    X, _, _, y_std = make_table(10, 2)
    prediction = blend.predict_distribution(X, of="value")
    mean, scale = prediction.mean, prediction.scale
    low, high = blend.calibration_.distribution.quantile(np.array([0.05, 0.95]))
    given = blend.predict_interval(X, 0.9, y_std=y_std)
    total = np.sqrt(scale**2 + y_std**2)
    np.testing.assert_allclose(given, np.column_stack([mean + total * low, mean + total * high]))
    median = float(np.median(make_table(200, 0)[3]))
    for method in (blend.predict_interval, blend.predict_quantiles):
        np.testing.assert_allclose(method(X), method(X, y_std=median))
        np.testing.assert_allclose(method(X, of="value"), method(X, y_std=0.0))
    assert (np.ptp(blend.predict_interval(X, of="value"), axis=1) < np.ptp(given, axis=1)).all()
    np.testing.assert_allclose(
        blend.predict_quantiles(X, [0.05, 0.95], of="value"), blend.predict_interval(X, of="value")
    )


def test_scores_are_in_units_of_both_errors(blend):
    table, y_std = blend.out_of_fold(), make_table(200, 0)[3]
    scale = (table["y"] - table["prediction"]) / table["score"]
    assert (scale >= y_std).all()
    assert np.sqrt(np.mean(table["score"] ** 2)) == pytest.approx(1.0, abs=0.15)


def test_equal_errors_change_no_prediction():
    X, _, y, _ = make_table(60, 0)
    plain, known = make_blend().fit(X, y), make_blend().fit(X, y, y_std=0.1)
    np.testing.assert_array_equal(known.predict(X), plain.predict(X))
    exact = make_blend().fit(X, y, y_std=np.zeros(60))
    np.testing.assert_allclose(exact.predict_interval(X), plain.predict_interval(X), rtol=1e-9)
    np.testing.assert_array_equal(exact.predict_interval(X, of="value"), exact.predict_interval(X))


def test_units_of_y_and_its_errors_do_not_matter(blend):
    X, _, y, y_std = make_table(200, 0, unit=4.0)
    scaled, new = make_blend().fit(X, y, y_std=y_std), make_table(20, 3)[0]
    np.testing.assert_allclose(scaled.predict(new), 4 * blend.predict(new), rtol=1e-6)
    for of in ("value", "measurement"):
        ends = scaled.predict_interval(new, of=of)
        expected = 4 * blend.predict_interval(new, of=of)
        np.testing.assert_allclose(ends, expected, rtol=1e-4, atol=1e-3)


def test_wrong_arguments_are_refused(blend):
    X, _, y, _ = make_table(40, 0)
    plain = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0).fit(X, y)
    for options in ({"of": "value"}, {"y_std": 0.1}):
        with pytest.raises(ValueError, match="need a fit with y_std"):
            plain.predict_interval(X, **options)
    with pytest.raises(ValueError, match="of must be"):
        blend.predict_interval(X, of="mean")
    with pytest.raises(ValueError, match=r"y_std has the shape \(3,\), but X has 40 rows"):
        blend.predict_interval(X, y_std=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"y_std\[0\] = -1.0 is negative"):
        blend.predict_interval(X, y_std=-1.0)


def test_saved_blends_keep_the_errors(blend, tmp_path):
    X = make_table(10, 2)[0]
    twinned.save(blend, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    for of in ("value", "measurement"):
        expected = blend.predict_interval(X, of=of)
        np.testing.assert_array_equal(loaded.predict_interval(X, of=of), expected)


def test_a_twin_has_the_weights_and_stores_intervals(tmp_path):
    X, _, y, y_std = make_table(60, 0)
    twin = TwinRegressor(Ridge(), random_state=0).fit(X, y, y_std=y_std)
    rows = validate_training_rows(clone(twin), X, y, y_std=y_std, multi_output=False)
    weighted = clone(twin).fit(X, y, sample_weight=weigh_by_error(rows).weight)
    np.testing.assert_allclose(twin.predict(X), weighted.predict(X))
    own = cross_conformal(twin, X, y, y_std=y_std, cv=5, random_state=0)
    assert (
        np.ptp(own.predict_interval(X, of="value"), axis=1)
        < np.ptp(own.predict_interval(X), axis=1)
    ).all()
    np.testing.assert_allclose(own.predict(X), twin.predict(X))


def test_networks_have_the_weights():
    X, _, y, y_std = make_table(40, 0)
    short = NeuralTraining(max_steps=20)
    make = lambda: TwinNeuralRegressor((8,), n_members=1, training=short, random_state=0)  # noqa: E731
    twin = make().fit(X, y, y_std=y_std)
    rows = validate_training_rows(make(), X, y, y_std=y_std, multi_output=True)
    np.testing.assert_allclose(twin.anchor_weights_, weigh_by_error(rows).weight)


def test_the_logarithm_has_relative_errors():
    X, _, y, y_std = make_table(60, 0)
    y, y_std = np.exp(y), 0.2 * y_std * np.exp(y)
    model = TransformedTargetTwin(AutoTwinRegressor(members=["ridge"], cv=3, random_state=0))
    model.fit(X, y, y_std=y_std)
    inner = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0)
    inner.fit(X, np.log(y), y_std=y_std / y)
    np.testing.assert_allclose(
        model.predict_interval(X, of="value"), np.exp(inner.predict_interval(X, of="value"))
    )
    relative = y_std / model.predict(X)
    expected = np.exp(inner.predict_quantiles(X, [0.1, 0.9], y_std=relative))
    np.testing.assert_allclose(model.predict_quantiles(X, [0.1, 0.9], y_std=y_std), expected)


def test_errors_are_routed():
    X, _, y, y_std = make_table(40, 0)
    twin = TwinRegressor(Ridge(), random_state=0)
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        routed = make_pipeline(StandardScaler(), clone(twin).set_fit_request(y_std=True))
        fitted = cross_validate(routed, X, y, cv=2, params={"y_std": y_std}, return_estimator=True)[
            "estimator"
        ]
    assert fitted[0][-1].anchor_weights_ is not None


@pytest.mark.parametrize("kind", ["categories", "censored rows", "batches", "weights"])
def test_errors_go_with_other_arguments(kind):
    X, _, y, y_std = make_table(60, 0)
    new, options = {}, {}
    if kind == "categories":
        X = pd.DataFrame({"a": pd.Categorical(np.where(X[:, 0] > 0, "high", "low"))})
    elif kind == "censored rows":
        y, options["y_upper"] = np.where(y < -1, np.nan, y), np.where(y < -1, -1.0, np.nan)
    elif kind == "batches":
        options["batch"] = np.where(np.arange(60) % 3, "a", "b")
        y, new["batch"] = y + 3.0 * (options["batch"] == "a"), "a"
    else:
        options["sample_weight"] = np.arange(60) % 3
    model = make_blend().fit(X, y, y_std=y_std, **options)
    value, measurement = (
        np.ptp(model.predict_interval(X[:10], 0.8, of=of, **new), axis=1)
        for of in ("value", "measurement")
    )
    assert (value < measurement).all()
