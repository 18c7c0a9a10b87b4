"""InverseTwinRegressor: inputs for wanted targets, branches, and errors."""

import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import twinned
from twinned import InverseTwinRegressor, NearestPairs, NeuralRegressor, NeuralTraining
from twinned.estimators.inverse import scale_targets

TREES = ExtraTreesRegressor(20, min_samples_leaf=2, random_state=0)
SHORT = NeuralTraining(n_folds=1, max_steps=100)


def cubic(x):
    return x**3 - x


def arm(X):
    a, b = X.T
    return np.column_stack([np.cos(a) + np.cos(a + b), np.sin(a) + np.sin(a + b)])


@pytest.fixture(scope="module")
def inverse_cubic():
    rng = np.random.RandomState(0)
    x = rng.uniform(-2, 2, 100)
    y = cubic(x) * rng.normal(1, 0.01, 100)
    return InverseTwinRegressor(TREES, random_state=0).fit(pd.DataFrame({"speed": x}), y)


@pytest.fixture(scope="module")
def inverse_arm():
    X = np.random.RandomState(0).uniform(-np.pi / 2, np.pi / 2, (150, 2))
    Y = pd.DataFrame(arm(X), columns=["right", "up"])
    polynomial = make_pipeline(StandardScaler(), PolynomialFeatures(3), Ridge(1e-3))
    return InverseTwinRegressor(polynomial, random_state=0).fit(X, Y)


def test_inputs_reach_the_wanted_target(inverse_cubic):
    wanted = np.linspace(-4, 4, 41)
    x = inverse_cubic.predict(wanted)
    assert x.shape == (41, 1)
    np.testing.assert_allclose(cubic(x[:, 0]), wanted, atol=0.05)


def test_near_chooses_the_branch(inverse_cubic):
    branches = np.sort(np.roots([1, 0, -1, -0.2]).real)  # x³ − x = 0.2
    for near in branches:
        x = inverse_cubic.predict([0.2], near=pd.DataFrame({"speed": [near]}))
        assert x[0, 0] == pytest.approx(near, abs=0.02)
    each = inverse_cubic.predict([0.2] * 3, near=pd.DataFrame({"speed": branches}))
    np.testing.assert_allclose(each[:, 0], branches, atol=0.02)
    x = inverse_cubic.predict([3.0], near=pd.DataFrame({"speed": [-1.0]}))
    assert cubic(x[0, 0]) == pytest.approx(3.0, abs=0.05)  # on another branch than `near`


def test_branches_differ_and_map_back(inverse_cubic):
    table = inverse_cubic.predict_branches([0.2, 3.0])
    assert list(table) == ["query", "anchor", "speed", "predicted"]
    assert table["query"].tolist() == [0, 0, 0, 1]  # three branches, and one
    roots = np.sort(np.roots([1, 0, -1, -0.2]).real)
    np.testing.assert_allclose(np.sort(table["speed"][:3]), roots, atol=0.02)
    np.testing.assert_allclose(table["predicted"], [0.2] * 3 + [3.0], atol=0.05)
    np.testing.assert_allclose(cubic(table["speed"]), table["predicted"], atol=0.05)
    anchors = inverse_cubic.anchors_X_[table["anchor"], 0]
    turns = [-(3**-0.5), 3**-0.5]  # each input is on the branch of its anchor
    np.testing.assert_array_equal(np.digitize(anchors, turns), np.digitize(table["speed"], turns))
    assert len(inverse_cubic.predict_branches([0.2], n=2)) == 2


def test_several_targets(inverse_arm):
    angles = np.random.RandomState(1).uniform(-1, 1, (30, 2))
    wanted = arm(angles)
    np.testing.assert_allclose(arm(inverse_arm.predict(wanted)), wanted, atol=0.05)
    table = inverse_arm.predict_branches(wanted[:1])
    assert list(table) == ["query", "anchor", "x0", "x1", "predicted right", "predicted up"]
    # the elbow of the arm is on either side
    assert (table["x1"] > 0).any()
    assert (table["x1"] < 0).any()
    np.testing.assert_allclose(
        arm(table[["x0", "x1"]].to_numpy()), wanted[[0] * len(table)], atol=0.1
    )


def test_prediction_is_that_of_the_nearest_candidates_one_by_one(inverse_cubic):
    """Against a slow version: every anchor alone, and the smallest error of the forward model."""
    model, scale = inverse_cubic, inverse_cubic.scaling_
    (wanted,) = scale.transform(np.array([[0.3]]))
    known = scale.transform(model.anchors_y_)[:, 0]
    best, least = None, np.inf
    for anchor in np.argsort(np.abs(known - wanted))[: model.n_anchors]:
        x, y = model.anchors_X_[anchor], model.forward_.predict(model.anchors_X_[[anchor]])[0]
        for _ in range(model.n_steps):
            change, none = model.estimator_.predict([[wanted[0] - y, y, x[0]], [0.0, y, x[0]]])
            moved = np.clip(x + change - none, model.anchors_X_.min(), model.anchors_X_.max())
            reached = model.forward_.predict(moved[None])[0]
            if abs(reached - wanted[0]) < abs(y - wanted[0]):
                x, y = moved, reached
        if abs(y - wanted[0]) < least:
            best, least = x, abs(y - wanted[0])
    np.testing.assert_allclose(model.predict([0.3])[0], best)


def test_more_steps_are_more_accurate(inverse_arm):
    wanted = arm(np.random.RandomState(2).uniform(-1, 1, (30, 2)))
    one_step = copy.copy(inverse_arm).set_params(n_steps=1)
    errors = [np.mean((arm(m.predict(wanted)) - wanted) ** 2) for m in (one_step, inverse_arm)]
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingRegressor(max_iter=20),  # predicts one output
        KNeighborsRegressor(),
        pytest.param(NeuralRegressor((16,), training=SHORT), marks=pytest.mark.slow),
    ],
)
def test_any_difference_model(estimator, tmp_path):
    X = np.random.RandomState(0).uniform(-1, 1, (30, 2))
    model = InverseTwinRegressor(estimator, forward=KNeighborsRegressor(3), random_state=0)
    model.fit(X, arm(X))
    inputs = model.predict(arm(X[:5]), near=X[:5])
    assert inputs.shape == (5, 2)
    twinned.save(model, tmp_path / "model.twin")
    np.testing.assert_array_equal(
        twinned.load(tmp_path / "model.twin").predict(arm(X[:5]), near=X[:5]), inputs
    )


def test_equal_seeds_give_equal_inputs():
    X = np.random.RandomState(0).uniform(-1, 1, (20, 2))
    forward = ExtraTreesRegressor(5)
    model = InverseTwinRegressor(ExtraTreesRegressor(5), forward=forward, pairs=3, random_state=4)
    first, second = (clone(model).fit(X, arm(X)).predict(arm(X)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_saved_model_returns_the_same(inverse_cubic, tmp_path):
    twinned.save(inverse_cubic, tmp_path / "model.twin")
    loaded = twinned.load(tmp_path / "model.twin")
    for options in ({}, {"near": pd.DataFrame({"speed": [0.0]})}):
        expected = inverse_cubic.predict([0.2, 1.0], **options)
        np.testing.assert_array_equal(loaded.predict([0.2, 1.0], **options), expected)
    expected = inverse_cubic.predict_branches([0.2, 1.0])
    pd.testing.assert_frame_equal(loaded.predict_branches([0.2, 1.0]), expected)


def test_a_file_with_other_parts_is_refused(inverse_cubic, tmp_path):
    wrong = copy.copy(inverse_cubic)
    wrong.forward_ = LinearRegression().fit(np.eye(2), [0.0, 1.0])
    with pytest.raises(ValueError, match="forward_ of other features"):
        twinned.save(wrong, tmp_path / "model.twin")


def test_power_of_a_positive_target():
    X = np.random.RandomState(0).uniform(-0.7, 0.7, (60, 2))
    circle = np.sqrt(1 - np.sum(X**2, axis=1))
    assert scale_targets(X, circle[:, None]).power == pytest.approx(1.999)
    values = np.column_stack([np.exp(5 * X[:, 0]), X[:, 0]])
    np.testing.assert_allclose(scale_targets(X, values).power, [0.001, 1.0])


def test_inputs_stay_within_the_known_ones(inverse_cubic):
    x = inverse_cubic.predict([-100.0, 100.0])
    assert x.min() >= inverse_cubic.anchors_X_.min()
    assert x.max() <= inverse_cubic.anchors_X_.max()


def test_a_constant_target_and_few_rows():
    model = InverseTwinRegressor(LinearRegression(), pairs=NearestPairs(50)).fit(
        [[1.0], [2.0], [4.0]], [[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]]
    )
    assert model.predict([[3.0, 5.0]])[0, 0] == pytest.approx(3.0, abs=0.2)


def test_errors_are_one_line(inverse_cubic, inverse_arm):
    X = np.arange(12.0).reshape(6, 2)
    cases = [
        (lambda: inverse_cubic.predict([[1.0, 2.0]]), r"shape \(n_queries, 1\), as in fit"),
        (lambda: inverse_arm.predict([1.0, 2.0]), r"shape \(n_queries, 2\), as in fit"),
        (lambda: inverse_arm.predict([[np.nan, 1.0]]), "y contains NaN"),
        (lambda: inverse_arm.predict([[0.0, 1.0]], near=np.ones((3, 2))), "near has 3 rows"),
        (lambda: inverse_arm.predict([[0.0, 1.0]], near=[1.0]), "1 features"),
        (lambda: inverse_arm.predict_branches([[0.0, 1.0]], n=0), "n must be at least 1"),
        (lambda: InverseTwinRegressor().predict([1.0]), "not fitted"),
        (lambda: InverseTwinRegressor(n_anchors=0).fit(X, X), "n_anchors must be at least 1"),
        (lambda: InverseTwinRegressor(n_steps=0.5).fit(X, X), "n_steps must be an integer"),
        (lambda: InverseTwinRegressor(pairs="near").fit(X, X), "pairs must be one of"),
        (lambda: InverseTwinRegressor("trees").fit(X, X), "must be a scikit-learn regressor"),
        (lambda: InverseTwinRegressor().fit(X, X[:4]), "Each row needs a value"),
        (
            lambda: InverseTwinRegressor().fit(pd.DataFrame({"a": ["x", "y", "z"]}), [1, 2, 3]),
            "could not convert string to float",
        ),
    ]
    for call, match in cases:
        with pytest.raises((ValueError, TypeError), match=match) as caught:
            call()
        assert "\n" not in str(caught.value)


# Checks that call `predict` with the features of `fit`: here it gets targets.
GETS_TARGETS = {
    "check_n_features_in_after_fitting",
    "check_estimators_dtypes",
    "check_dtype_object",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_fit2d_predict1d",
}


@parametrize_with_checks(
    [InverseTwinRegressor(LinearRegression(), forward=LinearRegression())],
    expected_failed_checks=lambda _: dict.fromkeys(GETS_TARGETS, "predict gets targets"),
)
def test_sklearn_check(estimator, check):
    check(estimator)
