"""`twinned.solve`: inputs whose predicted target is as wanted."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, linprog
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

from twinned import (
    AutoTwinRegressor,
    SemiSupervisedTwinRegressor,
    TransformedTargetTwin,
    TwinRegressor,
    cross_conformal,
    solve,
)
from twinned.exceptions import UnreachedTargetWarning
from twinned.search import optimization
from twinned.search.forward import ForwardModel
from twinned.search.optimization import (
    Goals,
    SearchSpace,
    parse_constraints,
    parse_range,
    select_different,
)
from twinned.search.solve import _order

PARTS = ["cement", "ash", "water"]


def make_table(n=80):
    rng = np.random.RandomState(0)
    return pd.DataFrame(
        {
            "heat": rng.uniform(0, 4, n),
            "passes": rng.randint(1, 9, n),
            "solvent": rng.choice(["water", "oil", "air"], n),
        },
        index=[f"run {i}" for i in range(n)],
    )


def true_value(X):
    return (
        3 * np.sin(1.5 * X["heat"])
        + X["passes"]
        + X["solvent"].map({"water": 2, "oil": 0, "air": -2})
    )


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def blend(table):
    model = AutoTwinRegressor(members=["gp_matern", "ridge"], cv=4, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twinned.models.marginal_likelihood._MOST_STEPS", 8)
        return model.fit(table, true_value(table))


@pytest.fixture(scope="module")
def linear():
    """A twin of a mixture, which predicts exactly cement + 2 ash."""
    X = pd.DataFrame(100 * np.random.RandomState(0).dirichlet([2, 2, 2], 60), columns=PARTS)
    return TwinRegressor(Ridge(1e-8), pairs=10, random_state=0).fit(X, X["cement"] + 2 * X["ash"])


def test_number_is_reached_on_several_branches(blend, table):
    found = solve(blend, 5.0, n=5, random_state=0)
    assert found["reached"].all()
    assert len(found) == 5
    np.testing.assert_allclose(found["predicted"], 5.0, atol=1e-5)
    np.testing.assert_allclose(true_value(found), 5.0, atol=0.5)
    assert found["passes"].dtype.kind == "i"
    assert found["passes"].between(1, 8).all()
    assert found["heat"].between(0, 4).all()
    assert set(found["solvent"]) <= {"water", "oil", "air"}
    assert set(found["anchor"]) <= set(table.index)
    kinds = found["heat"].round(1).astype(str) + found["solvent"] + found["passes"].astype(str)
    assert kinds.nunique() == 5
    assert (found["lower"] < 5).all()
    assert (found["upper"] > 5).all()


def test_solution_is_that_of_a_slow_search(blend):
    """With one free column, a root of the prediction is found exactly."""
    row = {"heat": 0.5, "passes": 3, "solvent": "oil"}

    def miss(heat):
        return blend.predict(pd.DataFrame([row | {"heat": heat}]))[0] - 5.0

    found = solve(blend, 5.0, near=row, fixed=["passes", "solvent"], n=2)
    assert found.loc[0, "heat"] == pytest.approx(brentq(miss, 0.0, 1.04), abs=1e-4)
    assert found.loc[1, "heat"] == pytest.approx(brentq(miss, 1.1, 2.5), abs=1e-4)
    assert found.loc[0, "change of heat"] == pytest.approx(found.loc[0, "heat"] - 0.5)


def test_a_row_may_be_an_array():
    X = np.random.RandomState(0).uniform(size=(40, 2))
    twin = TwinRegressor(Ridge(1e-6), pairs=10, random_state=0).fit(X, X[:, 0] + X[:, 1])
    for near in (X[0], X[:1], X[0].tolist()):
        found = solve(twin, 1.0, near=near, n=1)
        assert found["change of x0"][0] == pytest.approx(found["x0"][0] - X[0, 0])


def test_near_changes_little_and_keeps_fixed_columns(blend):
    row = {"heat": 1.0, "passes": 2, "solvent": "air"}
    found = solve(blend, ">= 5", near=row, fixed="heat", n=3)
    assert (found["heat"] == 1.0).all()
    assert (found["change of heat"] == 0).all()
    assert (found["predicted"] >= 5 - 1e-6).all()
    assert found["reached"].all()
    assert (found["distance"].diff()[1:] >= -1e-9).all()  # the nearest first
    changed = found["change of solvent"].iloc[found["solvent"].ne("air").to_numpy()]
    assert changed.str.startswith("air → ").all()


def test_a_missing_value_of_near_is_filled(blend):
    row = {"heat": np.nan, "passes": 2, "solvent": "air"}
    with pytest.raises(ValueError, match="fixed column 'heat' has no value"):
        solve(blend, 5.0, near=row, fixed=["heat"])
    assert solve(blend, 5.0, near=row, n=1)["reached"].all()


def test_fixed_values_and_bounds(blend):
    given = {"solvent": "oil", "passes": 4}
    found, same = (
        solve(blend, (5.5, 6.5), fixed=given, bounds={"heat": bounds}, n=2, random_state=0)
        for bounds in ((None, 2.5), "<= 2.5")
    )
    pd.testing.assert_frame_equal(found, same)
    assert (found["solvent"] == "oil").all()
    assert (found["passes"] == 4).all()
    assert (found["heat"] <= 2.5).all()
    assert found["predicted"].between(5.5, 6.5).all()


def test_confidence_moves_the_interval_to_the_target(blend):
    plain, sure = (solve(blend, ">= 8", confidence=level, n=3) for level in (None, 0.9))
    assert (sure["lower"] >= 8 - 1e-6).all()
    assert (sure["probability"] >= 0.94).all()
    assert plain["probability"].min() < 0.94
    within = solve(blend, (4.0, 8.0), confidence=0.9, n=2)
    assert (within["lower"] >= 4 - 1e-6).all()
    assert (within["upper"] <= 8 + 1e-6).all()


@pytest.mark.slow
def test_maximum_and_minimum(blend, table):
    grid = pd.concat([table.assign(heat=heat) for heat in np.linspace(0, 4, 41)])
    predicted = blend.predict(grid)
    assert solve(blend, "max", n=1)["predicted"][0] >= predicted.max() - 0.05
    assert solve(blend, "min", n=1)["predicted"][0] <= predicted.min() + 0.05


def test_a_goal_is_reached_also_if_only_far_from_the_given_row(blend):
    fixed = ["passes", "solvent"]
    row = {"heat": 3.0, "passes": 4, "solvent": "oil"}
    options = {"near": row, "fixed": fixed, "n": 1, "confidence": 0.9}
    best = solve(blend, "max", **options).iloc[0]
    found = solve(blend, f">= {best['lower'] - 1e-4}", **options)
    assert found["reached"].all()


def test_constraints_hold_exactly(linear):
    sums = ["cement + ash + water = 100", "2 ash - water <= -5"]
    found = solve(linear, 75.0, constraints=sums, n=5)
    np.testing.assert_allclose(found["predicted"], 75.0, atol=1e-4)
    assert np.abs(found[PARTS].sum(axis=1) - 100).max() <= 1e-9
    assert (2 * found["ash"] - found["water"] <= -5 + 1e-9).all()
    assert (found[PARTS].max() - found[PARTS].min()).max() > 2


def test_closest_rows_of_an_impossible_goal_with_equations(linear, monkeypatch):
    """They are those of a linear program, and no row needs an integer program."""
    monkeypatch.setattr(optimization, "milp", None)
    known, total = linear.anchors_X_, "cement + ash + water = 100"
    with pytest.warns(UnreachedTargetWarning):
        found = solve(linear, ">= 900", constraints=[total, total, "ash <= 50"], n=1)
    ranges = np.column_stack([known.min(axis=0), known.max(axis=0)])
    ranges[1, 1] = 50
    best = linprog([-1, -2, 0], A_eq=np.ones((1, 3)), b_eq=[100], bounds=ranges)
    np.testing.assert_allclose(found[PARTS].to_numpy()[0], best.x, atol=1e-3)
    assert abs(found[PARTS].to_numpy()[0].sum() - 100) <= 1e-9


def test_whole_numbers_with_an_equation_stay_whole():
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.multinomial(100, [0.5, 0.3, 0.2], 60), columns=PARTS)
    twin = TwinRegressor(Ridge(1e-8), pairs=10, random_state=0).fit(X, X["cement"] + 2 * X["ash"])
    found = solve(twin, 112, constraints="cement + ash + water = 100", n=3)
    assert (found[PARTS].sum(axis=1) == 100).all()
    assert found["reached"].all()
    assert all(found[name].dtype.kind == "i" for name in PARTS)


def test_known_values_and_approximation_have_the_offset_of_the_batch():
    X = np.random.RandomState(0).uniform(size=(60, 2))
    batch = np.where(np.arange(60) % 2, "new", "old")
    y = 3 * X[:, 0] + X[:, 1] + 50 * (batch == "new")
    twin = TwinRegressor(Ridge(1e-6), pairs=10, random_state=0).fit(X, y, batch=batch)
    for name in ("new", "old"):
        forward = ForwardModel(twin, name, {})
        predicted = twin.predict(X, batch=name)
        np.testing.assert_allclose(forward.known_y[0][:, 0], predicted, atol=0.1)
        np.testing.assert_allclose(forward.approximate(X)[:, 0, 0], predicted, atol=0.1)


@pytest.mark.slow
def test_several_targets(table):
    Y = pd.DataFrame({"y": true_value(table), "cost": table["passes"] + table["heat"]})
    model = AutoTwinRegressor(members=["gp_matern", "ridge"], cv=3, random_state=0).fit(table, Y)
    found = solve(model, {"y": 5.0, "cost": "<= 6"}, n=2)
    np.testing.assert_allclose(found["predicted_y"], 5.0, atol=0.03)
    assert (found["predicted_cost"] <= 6 + 1e-6).all()
    assert "probability_cost" in found
    with pytest.raises(ValueError, match="value for each of y, cost"):
        solve(model, 5.0)


@pytest.mark.slow
def test_other_kinds_of_models(linear):
    X = pd.DataFrame(linear.anchors_X_, columns=PARTS)
    y = X["cement"] + 2 * X["ash"]
    twin = TwinRegressor(Ridge(1e-8), pairs=10, random_state=0)
    calibrated = cross_conformal(twin, X, y + np.random.RandomState(0).normal(size=60), cv=3)
    found = solve(calibrated, ">= 90", confidence=0.8, n=2)
    assert (found["lower"] >= 90 - 1e-6).all()
    assert (found["probability"] > 0.85).all()
    log = TransformedTargetTwin(TwinRegressor(Ridge(1e-8), pairs=10, random_state=0)).fit(X, y)
    np.testing.assert_allclose(solve(log, 90.0, n=2)["predicted"], 90.0, rtol=1e-3)
    labels = y.where(np.arange(60) % 4 > 0)
    semi = SemiSupervisedTwinRegressor(twin, random_state=0).fit(X.to_numpy(), labels)
    np.testing.assert_allclose(solve(semi, 90.0, n=1)["predicted"], 90.0, rtol=1e-3)


def test_a_cross_calibrated_twin_has_the_offset_of_the_batch(linear):
    X = pd.DataFrame(linear.anchors_X_, columns=PARTS)
    batch = np.where(np.arange(60) % 2, "a", "b")
    y = X["cement"] + 2 * X["ash"] + 10 * (batch == "a") + np.random.RandomState(0).normal(size=60)
    twin = TwinRegressor(Ridge(1e-8), pairs=10, random_state=0)
    calibrated = cross_conformal(twin, X, y, cv=3, batch=batch, random_state=0)
    found = solve(calibrated, 101.0, batch="a", n=2, random_state=0)
    np.testing.assert_allclose(found["predicted"], 101.0, atol=0.3)
    np.testing.assert_allclose(calibrated.predict(found[PARTS], batch="a"), found["predicted"])
    np.testing.assert_allclose(found["cement"] + 2 * found["ash"], 91.0, atol=5.0)
    assert (found["lower"] < 101).all()
    assert (found["upper"] > 101).all()


@pytest.mark.parametrize("confidence", [None, 0.8])
def test_inputs_may_be_called_like_the_results(confidence):
    """The proposed rows are those whose prediction is shown."""
    rng = np.random.RandomState(0)
    names = ["predicted", "distance", "lower", "change of lower", "anchor"]
    X = pd.DataFrame(rng.uniform(size=(50, 5)), columns=names)
    y = X @ [1.0, 2.0, 3.0, 4.0, 5.0] + 0.01 * rng.normal(size=50)
    model = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0).fit(X, y)
    found = solve(model, 8.0, n=3, confidence=confidence, random_state=0)
    assert found.columns.is_unique
    np.testing.assert_allclose(model.predict(found[names]), 8.0, atol=0.05)
    np.testing.assert_allclose(found["predicted_"], model.predict(found[names]), rtol=1e-6)
    assert (found["lower_"] < found["predicted_"]).all()
    assert (found["change of lower"].between(0, 1)).all()


def test_unreachable_target_returns_the_closest_rows(blend):
    with pytest.warns(UnreachedTargetWarning, match="closest"):
        found = solve(blend, 99.0, n=3)
    assert not found["reached"].any()
    assert found["predicted"].max() > 11
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(blend, 5.0, n=1)


def test_rows_that_miss_the_target_are_in_the_order_of_their_distance_from_it():
    """Rows outside of the known ones are last only among those that reach the target."""
    goals = Goals(">= 5", ["y"], [np.array([0.0, 2.0])])
    forward = SimpleNamespace(rate=lambda rows: (np.zeros(4), np.array([0, 2, 2, 0])))
    ends = np.array([3.0, 4.0, 5.5, 6.0])[:, None, None]
    assert _order(forward, goals, None, np.zeros((4, 1)), ends).tolist() == [3, 2, 1, 0]


def test_closest_rows_are_as_close_with_a_row_that_is_far_from_the_target(blend):
    row = {"heat": 0.5, "passes": 3, "solvent": "oil"}
    with pytest.warns(UnreachedTargetWarning):
        found = [solve(blend, 99.0, near=near, n=3, random_state=0) for near in (None, row)]
    assert found[1]["predicted"][0] == pytest.approx(found[0]["predicted"][0], abs=0.01)
    assert (found[1]["predicted"].diff()[1:] <= 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "much"}, "target must be"),
        ({"target": (3, 1)}, "3 is larger than 1"),
        ({"target": 1e300}, "target: 1e[+]300 is over a million times the known values"),
        ({"target": ">= 1e400"}, "target must be finite"),
        ({"bounds": {"heat": (-1e300, 1e300)}}, "bounds of 'heat': -1e[+]300 is over a million"),
        ({"fixed": ["time"]}, "fixed names 'time'"),
        ({"near": {"heat": 1.0}}, "near has no value of 'passes'"),
        ({"near": {"heat": 1.0, "time": 2}}, "near names 'time'"),
        ({"fixed": {"solvent": "acid"}}, "no known row has; known are air, oil, water"),
        ({"bounds": {"solvent": (0, 1)}}, "'solvent' is not"),
        ({"bounds": {"heat": (3, 1)}}, "3 is larger than 1"),
        ({"bounds": {"heat": (9, None)}}, "No row satisfies the constraints within the bounds"),
        ({"bounds": {"passes": (2.2, 2.8)}}, "No row satisfies the constraints within the bounds"),
        ({"near": np.zeros((2, 3))}, "near must be one row, not 2"),
        ({"constraints": "heat + time = 3"}, "A constraint has the form"),
        ({"constraints": ["heat >= 2", "heat <= 1"]}, "No row satisfies the constraints"),
        ({"n": 0}, "n must be at least 1"),
        ({"fixed": {"heat": np.nan}}, "'heat' has no value"),
    ],
)
def test_errors_in_one_line(blend, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        solve(blend, **{"target": 5.0, **options})
    assert "\n" not in str(caught.value)


def test_models_that_cannot_be_used(linear):
    with pytest.raises(ValueError, match="calibrated"):
        solve(linear, 90.0, confidence=0.9)
    with pytest.raises(TypeError, match="must be a twin"):
        solve(Ridge(), 1.0)
    with pytest.raises(ValueError, match="not fitted"):
        solve(TwinRegressor(), 1.0)


def test_nearest_variables_are_those_of_a_quadratic_program():
    """Against a slow search: the nearest point of a plane within the unit cube."""
    none = np.zeros(3, dtype=bool)
    plane = parse_constraints(["a + b + c = 2"], list("abc"))
    space = SearchSpace(np.zeros(3), np.ones(3), ~none, none, plane)
    start = np.array([[0.1, 0.9, 0.3]])
    moved = space.nearest(start, np.ones((1, 3)), np.empty((1, 0, 3)), np.empty((1, 0)))
    grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 401)]), axis=-1).reshape(-1, 2)
    points = np.column_stack([grid, 2 - grid.sum(axis=1)])
    points = points[(points[:, 2] >= 0) & (points[:, 2] <= 1)]
    best = points[np.argmin(((points - start) ** 2).sum(axis=1))]
    np.testing.assert_allclose(moved[0], best, atol=0.01)
    assert abs(moved.sum() - 2) < 1e-12


@pytest.mark.parametrize(
    ("wanted", "ends"),
    [
        ("<=-5", (-np.inf, -5.0)),
        (">= .5", (0.5, np.inf)),
        ("40..60.5", (40.0, 60.5)),
        (" 1e3 ", (1000.0, 1000.0)),
        ("..8", (-np.inf, 8.0)),
        ((2, None), (2.0, np.inf)),
    ],
)
def test_ranges(wanted, ends):
    assert parse_range("target", wanted, np.array([1.0, 1000.0])) == ends


@pytest.mark.parametrize("wanted", ["", "..", ">=", "much", "nan", "1_0", "1..2..3", ">=3..5", [1]])
def test_what_is_no_range(wanted):
    with pytest.raises(ValueError, match="target must be a number"):
        parse_range("target", wanted, np.array([1.0, 1000.0]))


@pytest.fixture(scope="module")
def whole():
    """A twin that predicts 10 heat + time + 2 [iron] + passes."""
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(1, 2, (40, 2)), columns=["heat", "time"])
    X["metal"] = pd.Categorical(["iron", "copper"] * 20)
    X["passes"] = rng.randint(0, 5, 40)
    y = 10 * X["heat"] + X["time"] + 2 * (X["metal"] == "iron") + X["passes"]
    return TwinRegressor(Ridge(1e-3)).fit(X, y), X


NOW = {"heat": 1.2, "time": 1.5, "metal": "copper", "passes": 2}


def test_only_a_category_may_change(whole):
    found = solve(whole[0], ">= 17", near=NOW, fixed=["heat", "time", "passes"], n=2)
    assert found["metal"].tolist() == ["iron"]
    assert found["predicted"][0] == pytest.approx(17.5, abs=0.1)
    with pytest.raises(ValueError, match="No row satisfies the constraints"):
        solve(whole[0], 17, near=NOW, fixed=["heat", "time", "passes"], constraints="heat >= 2")


def test_equal_bounds_are_the_value(whole):
    found = solve(whole[0], 18.5, near=NOW, bounds={"heat": (1.5, 1.5)}, n=2)
    assert (found["heat"] == 1.5).all()
    assert found["reached"].all()


def test_a_fixed_value_of_a_whole_column_is_shown_as_it_is(whole):
    found = solve(whole[0], 17, near={**NOW, "passes": 2.5}, fixed=["passes"], n=1)
    assert found["passes"].tolist() == [2.5]


def test_only_a_number_has_a_tolerance():
    """A limit beside a number must hold, also where the number would allow a miss."""
    goals = Goals({"a": 5.0, "b": "<= 6"}, ["a", "b"], [np.array([0.0, 2.0])] * 2)
    predicted = np.array([[5.005, 6.0], [5.005, 6.005], [5.5, 6.0]])[..., None]
    assert goals.is_reached(predicted).tolist() == [True, False, False]


def test_maximum_with_whole_numbers_and_the_best_first(whole):
    model, X = whole
    best = X.max(numeric_only=True).to_dict() | {"metal": "iron"}
    possible = model.predict(pd.DataFrame([best])[list(X)])[0]
    for near in (NOW, None):
        found = solve(model, "max", near=near, n=5, random_state=0)
        assert found["predicted"][0] == pytest.approx(possible, abs=1e-6)
        assert (found["predicted"].diff()[1:] <= 0).all()


def test_different_rows_stay_in_order():
    """Rows that are only selected by a smaller gap do not come last."""
    rows = np.array([[0.0], [0.1], [0.9]])
    assert select_different(rows, np.arange(3), 3, 0.25).tolist() == [0, 1, 2]


@pytest.mark.parametrize("estimator", [Ridge(1e-3), ExtraTreesRegressor(20, random_state=0)])
def test_several_rows_where_the_given_one_reaches_the_goal(whole, estimator):
    X = whole[1]
    y = 10 * X["heat"] + X["time"] + X["passes"]
    twin = TwinRegressor(estimator, pairs=8, random_state=0).fit(X, y)
    found = solve(twin, ">= 14", near=NOW, random_state=0)
    assert len(found) == 5
    assert found["reached"].all()
    assert found["distance"][0] == pytest.approx(0, abs=1e-9)
    assert (found["distance"].diff()[1:] >= 0).all()


def test_intervals_at_a_maximum_are_extended_by_the_error_of_the_best_candidate(blend):
    options = {"n": 2, "random_state": 0}
    for goal, (worse, better) in {"max": (0, 1), "min": (1, 0)}.items():
        found = solve(blend, goal, **options)
        ends = found[["lower", "upper"]].to_numpy()
        plain = blend.predict_interval(found[blend.feature_names_in_])
        np.testing.assert_allclose(ends[:, better], plain[:, better], rtol=1e-6)
        extended = (plain - ends)[:, worse] * (1 if goal == "max" else -1)
        assert (extended > 0).all()
        np.testing.assert_allclose(extended, extended[0], rtol=0.01)


def test_function_has_its_exact_solutions():
    bounds = {"a": (-2.0, 2.0), "b": "0..1"}
    found = solve(lambda X: X["a"] ** 2 + X["b"], 1.0, bounds=bounds, fixed={"b": 0.19}, n=2)
    assert found["reached"].all()
    np.testing.assert_allclose(sorted(found["a"]), [-0.9, 0.9], atol=1e-4)
    np.testing.assert_allclose(found["predicted"], found["a"] ** 2 + found["b"])
    assert not {"lower", "upper"} & set(found)
    best = solve(
        lambda X: np.column_stack([X["a"], X["b"]]), {"y0": "max", "y1": "<= 0.5"}, bounds=bounds
    )
    assert best["a"][0] == pytest.approx(2.0)
    assert best["b"].max() <= 0.5


@pytest.mark.parametrize("bounds", [None, {"a": (0, None)}, {"a": ">= 2"}])
def test_function_needs_bounds(bounds):
    with pytest.raises(ValueError, match="bounds must have both ends of all columns of a function"):
        solve(lambda X: X["a"], 1.0, bounds=bounds)
