"""Two features of the package used together, one combination in each test.

Each test is the smallest one of its combination: `m` is a blend of ridge on 60 rows of three
batches, whose values have the offsets −3, 0 and 3.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import twinned
from tests.properties.exported import predict_by_c, predict_by_command
from twinned import (
    AutoTwinRegressor,
    PredictionIntervalDisplay,
    TransformedTargetTwin,
    TwinRegressor,
    conformal,
    cross_conformal,
    load,
    measure_applicability,
    query,
    save,
    solve,
)
from twinned.metrics import crps, log_likelihood

N = 60
OFFSETS = {"a": -3.0, "b": 0.0, "c": 3.0}
BATCH = np.array(list(OFFSETS))[np.arange(N) % 3]
ridge_twin = TwinRegressor(Ridge())


@cache
def rows(level=0.0):
    """Features, values without offsets, and values with those of their batches."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(N, 3))
    y = level + 2 * X[:, 0] + X[:, 1] + 0.1 * rng.normal(size=N)
    return X, y, y + np.array([OFFSETS[name] for name in BATCH])


def blend(**parameters):
    return AutoTwinRegressor(**{"members": ["ridge"], "random_state": 0, **parameters})


@cache
def m(level=0.0):
    X, _, shifted = rows(level)
    return blend().fit(X, shifted, batch=BATCH)


def measured(model, X, y):
    """The model after `measure_applicability`."""
    return measure_applicability(model, X, y, cv=3, random_state=0)


def twin_of_an_added_batch():
    """`m` with rows of a further batch, whose offset depends on a feature."""
    X, y, _ = rows()
    return m().add_anchors(X[:12], 4.0 + y[:12] + 3.0 * X[:12, 2], batch="d")


def widths(intervals):
    return intervals[..., 1] - intervals[..., 0]


# --- batches ------------------------------------------------------------------------------------


def test_calibrated_model_predicts_rows_of_batches():
    """`cross_conformal` with batches predicts rows of a known batch, and of an unknown one."""
    X, _, shifted = rows()
    crossed = cross_conformal(ridge_twin, X, shifted, batch=BATCH, cv=3, random_state=0)
    assert widths(crossed.predict_interval(X[:5])).min() > 5.0  # offsets differ by 6
    known = crossed.predict_interval(X[:5], batch="a")
    assert widths(known).max() < 2.0
    other = crossed.predict_interval(X[:5], batch="c")
    np.testing.assert_allclose(other - known, 6.0, atol=0.2)


def test_query_for_improvement_in_a_batch_that_was_added():
    """The best row of a pool is the one that `predict` and `rank` call best in this batch."""
    added, pool = twin_of_an_added_batch(), np.random.RandomState(1).normal(size=(60, 3))
    best = int(np.argmax(added.predict(pool, batch="d")))
    assert added.rank(pool, batch="d", random_state=0)["row"].iloc[0] == best
    # a value to improve on that is far below: the expected improvement is the predicted difference
    row = query(added, pool, strategy="improvement", batch="d", best=-100.0, random_state=0)
    assert row.tolist() == [best]


def test_query_for_improvement_depends_on_no_order_of_the_pool():
    """The value to improve on is the same for all rows, also in a batch that was added."""
    added = twin_of_an_added_batch()
    for seed in range(6):
        pool = np.random.RandomState(1 + seed).normal(size=(60, 3))
        options = {"strategy": "improvement", "batch": "d", "best": 15.0, "random_state": 0}
        chosen = set()
        for first in range(0, 60, 6):
            order = np.roll(np.arange(60), first)
            chosen.add(order[query(added, pool[order], **options)].item())
        assert len(chosen) == 1


def test_joint_samples_of_an_unknown_batch():
    """Rows of one unknown batch share its offset: `rank` and `sample` are sure of their order."""
    pair = np.array([[0.0, 0.0, 0.0], [0.6, 0.0, 0.0]])  # 1.2 apart, with errors of about 0.1
    ranked = m().rank(pair, random_state=0)
    assert ranked["probability_best"].loc[ranked["row"] == 1].item() > 0.99
    samples = m().sample(pair, 500, random_state=0)
    assert np.std(samples[:, 1] - samples[:, 0]) < 0.5


def test_measured_applicability_of_a_blend_with_batches():
    """Held-out rows are predicted as rows of their batches: the noise is 0.1, the offsets 3."""
    X, _, shifted = rows()
    model = blend().fit(X, shifted, batch=BATCH)
    table = measured(model, X, shifted).applicability(X)
    assert table.loc[table["label"] == "inside", "error"].iloc[0] < 0.5


def test_measured_applicability_of_a_twin_with_batches():
    """As of a blend, for a `TwinRegressor`."""
    X, _, shifted = rows()
    twin = TwinRegressor(Ridge(), cv=3, random_state=0).fit(X, shifted, batch=BATCH)
    table = measured(twin, X, shifted).applicability(X)
    assert table.loc[table["label"] == "inside", "error"].iloc[0] < 0.5


def test_fit_of_several_targets_after_a_fit_with_batches():
    """A model that is fitted again without batches and with several targets has no batches."""
    X, y, shifted = rows()
    model = blend().fit(X, shifted, batch=BATCH).fit(X, np.column_stack([y, -y]))
    with pytest.raises(ValueError, match="batch"):
        model.predict(X, batch="a")
    with pytest.raises((ValueError, AttributeError)):
        model.batch_offsets_  # noqa: B018


def test_command_that_predicts_with_a_model_of_batches_from_python():
    """`twinned predict` finds the column of batches by the name that it had in the fit."""
    X, _, shifted = rows()
    table = pd.DataFrame(X, columns=list("uvw"))
    model = blend().fit(table, shifted, batch=pd.Series(BATCH, name="laboratory"))
    assert predict_by_command(model, table[:4].assign(laboratory=BATCH[:4])) == (
        pytest.approx(model.predict(table[:4], batch=BATCH[:4]))
    )


def test_command_that_predicts_with_numbers_of_batches():
    """Batches that are numbers have the same labels in Python and in a table."""
    X, _, shifted = rows()
    table, numbers = pd.DataFrame(X, columns=list("uvw")), 1.0 + np.arange(N) % 3
    model = blend().fit(table, shifted, batch=numbers)
    assert predict_by_command(model, table[:4].assign(batch=numbers[:4])) == (
        pytest.approx(model.predict(table[:4], batch=numbers[:4]))
    )


def test_solve_with_a_calibrated_model_in_a_batch():
    """Inputs for a target in a batch are those for a target that is lower by its offset."""
    X, _, shifted = rows()
    crossed = cross_conformal(ridge_twin, X, shifted, batch=BATCH, cv=3, random_state=0)
    found = solve(crossed, -1.0, n=1, batch="a", random_state=0).iloc[[0], :3].to_numpy()
    predicted = crossed.predict(found, batch="a")
    np.testing.assert_allclose(predicted, -1.0, atol=0.1)


@pytest.mark.parametrize("kind", ["transformed", "pipeline"])
def test_calibration_of_a_wrapped_twin_with_batches(kind):
    """`cross_conformal` of a transformed target, or of a pipeline, whose rows have batches."""
    X, _, shifted = rows(level=20.0)
    if kind == "transformed":
        model = TransformedTargetTwin(ridge_twin, target_transform="log")
        shifted = np.exp(0.1 * shifted)
    else:
        model = make_pipeline(StandardScaler(), ridge_twin)
    crossed = cross_conformal(model, X, shifted, batch=BATCH, cv=3, random_state=0)
    ends = crossed.predict_interval(X, batch=BATCH)
    assert np.mean((ends[:, 0] <= shifted) & (shifted <= ends[:, 1])) > 0.8
    assert widths(ends).mean() < 0.5 * np.ptp(shifted[::3])


def test_pipeline_with_batches():
    """`twinned.predict_interval` and `twinned.explain` of a pipeline take the batch of the rows."""
    X, _, shifted = rows()
    pipeline = make_pipeline(StandardScaler(), blend())
    pipeline.fit(X, shifted, autotwinregressor__batch=BATCH)
    blended = pipeline[-1]
    scaled = pipeline[:-1].transform(X[:6])
    np.testing.assert_array_equal(
        twinned.predict_interval(pipeline, X[:6], 0.8, batch="c"),
        blended.predict_interval(scaled, 0.8, batch="c"),
    )
    table = twinned.explain(pipeline, X[:6], n=2, batch="c")
    np.testing.assert_allclose(
        table["estimate"], blended.explain(scaled, n=2, batch="c")["estimate"]
    )


# --- errors of measurement, widths and joint intervals ------------------------------------------


def test_interval_of_the_value_after_measuring_applicability():
    """A twin of a fit with `y_std` keeps intervals of the value in `measure_applicability`."""
    X, y, _ = rows()
    y_std = np.full(N, 0.3)
    fitted = TwinRegressor(Ridge(), cv=3, random_state=0).fit(X, y, y_std=y_std)
    crossed = cross_conformal(fitted, X, y, y_std=y_std, cv=3, random_state=0)
    twin = measured(crossed, X, y)
    value = widths(twin.predict_interval(X[:6], of="value"))
    assert (value < widths(twin.predict_interval(X[:6]))).all()


def test_constant_width_after_measuring_applicability():
    """Intervals of constant width have one after `measure_applicability`, too."""
    X, y, _ = rows()
    crossed = cross_conformal(ridge_twin, X, y, width="constant", cv=3, random_state=0)
    twin = measured(crossed, X, y)
    assert np.ptp(widths(twin.predict_interval(X[:20]))) < 1e-9


@pytest.mark.parametrize("wrong", [{"of": "nonsense"}, {"y_std": 5.0}])
def test_joint_intervals_check_their_arguments(wrong):
    """Joint intervals of several targets refuse a wrong `of`, and `y_std` without a fit with it."""
    X, y, _ = rows()
    model = blend().fit(X, np.column_stack([y, -y]))
    with pytest.raises(ValueError, match=next(iter(wrong))):
        model.predict_interval(X[:3], joint=True, **wrong)


def test_coverage_where_scores_are_tied():
    """Split-conformal intervals cover as often as they say, also where scores are equal."""
    rng, covered, n = np.random.RandomState(0), [], 100
    model = Ridge(alpha=1e12).fit(np.zeros((2, 1)), [1.0, 1.0])  # which predicts 1
    for _ in range(200):
        X, y = rng.normal(size=(2 * n, 1)), rng.choice(3, size=2 * n, p=[0.2, 0.6, 0.2]) * 1.0
        calibrated = conformal(model, X[:n], y[:n], width="constant")
        low, high = calibrated.predict_interval(X[n:], 0.68).T
        covered.append(np.mean((low <= y[n:]) & (y[n:] <= high)))
    assert np.mean(covered) >= 0.68


# --- several targets ----------------------------------------------------------------------------


def test_transformed_target_of_several_targets():
    """A transformed blend of several targets is refused in a line that says what to fit."""
    X, y, _ = rows()
    Y = np.exp(0.2 * np.column_stack([y, -y]))
    with pytest.raises(ValueError, match="targets"):
        TransformedTargetTwin(blend(), target_transform="log").fit(X, Y)


def test_metrics_of_several_targets():
    """`crps` and `log_likelihood` of several targets are the means of those of each target."""
    X, y, _ = rows()
    Y = np.column_stack([y, -2 * y])
    model = blend().fit(X, Y)
    for metric in (crps, log_likelihood):
        single = [metric(target, X[:9], Y[:9, j]) for j, target in enumerate(model.targets_)]
        assert metric(model, X[:9], Y[:9]) == pytest.approx(np.mean(single))


def test_displays_of_several_targets():
    """A display of several targets is refused in a line that says how to show one of them."""
    X, y, _ = rows()
    model = blend().fit(X, np.column_stack([y, -y]))
    with pytest.raises(ValueError, match="target"):
        PredictionIntervalDisplay.from_estimator(model, X, np.column_stack([y, -y]))


def test_saving_a_loaded_model_of_several_targets(tmp_path):
    """A model of several targets is saved, loaded, and saved and loaded once more."""
    X, y, _ = rows()
    model = blend().fit(X, np.column_stack([y, -y]))
    loaded = model
    for name in ("first.twin", "second.twin"):
        save(loaded, tmp_path / name)
        loaded = load(tmp_path / name)
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))


# --- Dask ---------------------------------------------------------------------------------------


def test_transformed_target_of_a_dask_frame():
    """Results for a transformed target are lazy, and equal to those of the frame in memory."""
    dd = pytest.importorskip("dask.dataframe")
    X, y, _ = rows()
    table = pd.DataFrame(X, columns=list("uvw"))
    model = TransformedTargetTwin(blend(), target_transform="log").fit(table, np.exp(0.2 * y))
    lazy = dd.from_pandas(table, npartitions=2)
    for method in (model.predict, model.predict_interval):
        result = method(lazy)
        assert hasattr(result, "compute")
        np.testing.assert_allclose(result.compute(), method(table))


def test_y_std_of_a_dask_frame():
    """`y_std` of each row is refused for a Dask frame, whose partitions do not know their rows."""
    dd = pytest.importorskip("dask.dataframe")
    X, y, _ = rows()
    table = pd.DataFrame(X, columns=list("uvw"))
    model = blend().fit(table, y, y_std=np.full(N, 0.2))
    lazy = dd.from_pandas(table[:40], npartitions=2)
    of_one = model.predict_interval(lazy, y_std=0.5).compute()
    np.testing.assert_allclose(of_one, model.predict_interval(table[:40], y_std=0.5))
    with pytest.raises(ValueError, match="y_std"):
        model.predict_interval(lazy, y_std=np.linspace(0.1, 2.0, 20)).compute()


# --- folds, exports -----------------------------------------------------------------------------


def test_measured_applicability_of_a_blend_with_given_folds():
    """`measure_applicability` of a blend whose `cv` is a list of folds of its rows."""
    X, y, _ = rows()
    folds = [(np.flatnonzero(np.arange(N) % 4 != k), np.arange(k, N, 4)) for k in range(4)]
    table = measured(blend(cv=folds).fit(X, y), X, y).applicability(X)
    assert np.isfinite(table.loc[table["label"] == "inside", "error"]).all()


def test_c_code_of_a_twin_with_added_anchors():
    """C code of a twin with out-of-fold errors predicts as Python, also after `add_anchors`."""
    X, y, _ = rows(level=100.0)
    tree = DecisionTreeRegressor(max_depth=4, random_state=0)
    twin = TwinRegressor(tree, cv=5, random_state=0).fit(X, y)
    added = twin.add_anchors(X[:20] + 0.1, y[:20] + 2.0)
    singles = (X[:10] + 0.01).astype(np.float32)
    np.testing.assert_allclose(predict_by_c(added, singles), added.predict(singles), rtol=1e-5)


def test_c_code_of_the_default_twin_of_a_smooth_function():
    """The default twin, which chooses local weights for a smooth function, is exported to C."""
    rng = np.random.RandomState(0)
    X = rng.uniform(-1, 1, size=(120, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * X[:, 2]
    twin = TwinRegressor(random_state=0).fit(X, y)
    assert twin.local_power_ > 0
    singles = rng.uniform(-1, 1, size=(9, 3)).astype(np.float32)
    np.testing.assert_allclose(predict_by_c(twin, singles), twin.predict(singles), rtol=1e-4)
