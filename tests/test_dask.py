"""Lazy predictions of Dask collections, against the predictions of the same rows in memory."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal, assert_index_equal
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from twinned import (
    AutoTwinRegressor,
    NeuralRegressor,
    NeuralTraining,
    SemiSupervisedTwinRegressor,
    TransformedTargetTwin,
    TwinNeuralRegressor,
    TwinRegressor,
    conformal,
    cross_conformal,
)

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
dask = pytest.importorskip("dask")

pytestmark = pytest.mark.filterwarnings("ignore::twinned.exceptions.ShiftWarning")


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


def table(n_rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical(rng.choice(["red", "blue"], n_rows))
    return frame


def target(frame: pd.DataFrame) -> np.ndarray:
    return (frame["a"] * 2 + frame["b"] ** 2 + (frame["kind"] == "red")).to_numpy()


def fitted(twin: Any, numeric: bool = False) -> Any:
    frame = table(30)
    return twin.fit(frame[["a", "b", "c"]] if numeric else frame, target(frame))


@pytest.fixture(scope="module")
def forest() -> Any:
    return fitted(TwinRegressor(RandomForestRegressor(3, random_state=0), random_state=0))


@pytest.fixture(scope="module")
def calibrated() -> Any:
    frame = table(40)
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0), random_state=0)
    return cross_conformal(twin, frame, target(frame), cv=3, random_state=0)


def partitioned(frame: pd.DataFrame) -> Any:
    """Partitions of different sizes, one of them empty, with known divisions."""
    return dd.from_pandas(frame, npartitions=4, sort=True)


TWINS = {
    "forest": TwinRegressor(RandomForestRegressor(3, random_state=0), random_state=0),
    "default": TwinRegressor(random_state=0),
    "semi-supervised": SemiSupervisedTwinRegressor(
        TwinRegressor(ExtraTreesRegressor(3, random_state=0)), random_state=0
    ),
    "neural": NeuralRegressor(
        (4,), n_members=2, training=NeuralTraining(n_folds=1, max_steps=3), random_state=0
    ),
    "neural twin": TwinNeuralRegressor(
        (4,), n_members=2, training=NeuralTraining(n_folds=1, max_steps=3), random_state=0
    ),
    "blend": AutoTwinRegressor(members=["ridge", "extra_trees:fast"], cv=3, random_state=0),
}


@pytest.mark.parametrize("name", TWINS)
def test_frames_and_arrays_equal_predict(name: str) -> None:
    twin = fitted(TWINS[name], numeric=True)
    frame = table(20, seed=1)[["a", "b", "c"]].set_index(np.arange(100, 120))
    mean, std = twin.predict(frame, return_std=True)
    lazy = partitioned(frame)
    lazy_mean, lazy_std = twin.predict(lazy, return_std=True)
    assert lazy_mean.divisions == lazy_std.divisions == lazy.divisions
    assert (lazy_mean.name, lazy_std.name) == ("prediction", "std")
    both = dask.compute(lazy_mean, lazy_std)
    assert_index_equal(both[0].index, frame.index)
    np.testing.assert_allclose(both, (mean, std), rtol=1e-6, atol=1e-9)
    array = da.from_array(frame.to_numpy(), chunks=(6, 2))
    del twin.feature_names_in_
    if hasattr(twin, "twin_"):
        del twin.twin_.feature_names_in_
    blocks = twin.predict(array, return_std=True)
    assert blocks[0].chunks == ((6, 6, 6, 2),)
    np.testing.assert_allclose(dask.compute(*blocks), (mean, std), rtol=1e-6, atol=1e-9)


def test_predictions_are_identical_and_lazy(forest: Any) -> None:
    frame = table(25, seed=2)
    lazy = forest.predict(partitioned(frame))
    assert isinstance(lazy, dd.Series)
    assert lazy.dtype == np.float64
    assert_array_equal(lazy.compute(), forest.predict(frame))


def test_empty_partitions(forest: Any) -> None:
    frame = table(12, seed=3)
    lazy = partitioned(frame)
    subset = lazy[lazy["a"] > 0.2]
    lengths = subset.map_partitions(len).compute().tolist()
    none = lazy[lazy["a"] > 1e9]
    assert 0 in none.map_partitions(len).compute().tolist(), lengths
    expected = forest.predict(frame[frame["a"] > 0.2])
    assert_array_equal(forest.predict(subset).compute(), expected)
    assert len(forest.predict(none).compute()) == 0
    explained = forest.explain(none, n=2).compute()
    assert list(explained.columns) == list(forest.explain(frame, n=2).columns)
    assert len(explained) == 0


def test_empty_chunks_of_arrays() -> None:
    twin = TwinRegressor(DecisionTreeRegressor()).fit(np.arange(12.0).reshape(6, 2), np.arange(6.0))
    rows = np.arange(8.0).reshape(4, 2)
    lazy = da.from_array(rows, chunks=(2, 2))
    unknown = lazy[lazy[:, 0] > 3]
    assert_array_equal(twin.predict(unknown).compute(), twin.predict(rows[rows[:, 0] > 3]))
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        twin.explain(unknown)


def test_several_outputs() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(
        X, np.column_stack([X[:, 0]] * 2)
    )
    mean, std = twin.predict(X, return_std=True)
    blocks = twin.predict(da.from_array(X, chunks=(7, 2)), return_std=True)
    assert_array_equal(dask.compute(*blocks), (mean, std))
    lazy = dd.from_pandas(pd.DataFrame(X), npartitions=2)
    frame = twin.predict(lazy).compute()
    assert list(frame.columns) == ["prediction_0", "prediction_1"]
    assert_array_equal(frame, mean)


def test_intervals(calibrated: Any) -> None:
    frame = table(15, seed=4)
    lazy = calibrated.predict_interval(partitioned(frame), confidence=0.8)
    assert list(lazy.columns) == ["low", "high"]
    assert_array_equal(lazy.compute(), calibrated.predict_interval(frame, confidence=0.8))


@pytest.mark.parametrize("adjustments", [False, True])
@pytest.mark.parametrize("labels", ["numbers", "text"])
def test_explanations(forest: Any, adjustments: bool, labels: str) -> None:
    frame = table(11, seed=5)
    if labels == "text":
        frame.index = pd.Index([f"row {i:02}" for i in range(11)])
    lazy = forest.explain(partitioned(frame), n=2, adjustments=adjustments)
    assert lazy.divisions == partitioned(frame).divisions
    found = lazy.compute()
    assert list(found.index) == list(frame.index.repeat(3))  # with all other cases
    expected = pd.DataFrame(forest.explain(frame, n=2, adjustments=adjustments))
    assert_frame_equal(found.reset_index(drop=True), expected)
    assert_frame_equal(lazy._meta, found.iloc[:0])


def test_explanations_of_arrays() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(X, X[:, 0])
    found = twin.explain(da.from_array(X, chunks=(6, 1)), n=3).compute()
    assert_frame_equal(found.reset_index(drop=True), pd.DataFrame(twin.explain(X, n=3)))


def test_batch_of_all_rows() -> None:
    frame, batch = table(30), ["lab 1", "lab 2", "lab 3"] * 10
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0), random_state=0)
    twin.fit(frame, target(frame) + np.tile([0.0, 5.0, 9.0], 10), batch=batch)
    new = table(8, seed=1)
    lazy = dd.from_pandas(new, npartitions=2)
    assert_array_equal(twin.predict(lazy, batch="lab 2"), twin.predict(new, batch="lab 2"))
    explained = twin.explain(lazy, n=2, batch="lab 3").compute()
    expected = twin.explain(new, n=2, batch="lab 3")
    assert_array_equal(explained["estimate"], expected["estimate"])
    with pytest.raises(ValueError, match="one value for all rows"):
        twin.predict(lazy, batch=["lab 1"] * 8)


def test_columns_are_checked_before_any_work(forest: Any) -> None:
    lazy = partitioned(table(8))
    with pytest.raises(ValueError, match="feature names should match"):
        forest.predict(lazy.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature names"):
        forest.predict(lazy[["a", "b"]])
    with pytest.raises(ValueError, match="Expected 2D"):
        forest.predict(da.ones(4))


@pytest.mark.parametrize("fit", ["fit", "cross_conformal"])
def test_fits_need_rows_in_memory(fit: str) -> None:
    """A fit to a Dask frame would lose the names of its columns."""
    X = table(20)
    y = target(X)
    lazy, twin = dd.from_pandas(X, npartitions=2), TwinRegressor(DecisionTreeRegressor())
    with pytest.raises(TypeError, match=r"lazy .*call \.compute\(\)"):
        twin.fit(lazy, y) if fit == "fit" else cross_conformal(twin, lazy, y)


def test_columns_in_another_order_are_refused(calibrated: Any) -> None:
    """No method takes the columns of a Dask frame in their order."""
    X = table(20)
    y = target(X)
    lazy = dd.from_pandas(X[X.columns[::-1]], npartitions=2)
    model = TransformedTargetTwin(TwinRegressor(DecisionTreeRegressor())).fit(X, np.exp(y))
    calls = [
        model.predict,
        calibrated.predict_interval,
        *(getattr(calibrated, name) for name in ("sample", "rank", "applicability")),
        *(getattr(calibrated, name) for name in ("predict_members", "predict_anchors")),
        lambda X: calibrated.predict_difference(X, X),
        lambda X: calibrated.add_anchors(X, y),
        lambda X: calibrated.predict_cdf(X, y),
        lambda X: calibrated.log_density(X, y),
        lambda X: calibrated.probability_better(X, than=0.0),
        lambda X: conformal(calibrated, X, y),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=r"in memory|lazy|in the same order"):
            call(lazy)


def test_model_is_in_the_graph_once(forest: Any) -> None:
    lazy = forest.predict(dd.from_pandas(table(40), npartitions=20))
    pickled = [key for key in lazy.optimize().dask if "TwinRegressor-predict" in str(key)]
    assert len(pickled) == 1
    array = fitted(TwinRegressor(DecisionTreeRegressor()), numeric=True)
    with pytest.warns(UserWarning, match="feature names"):
        blocks = array.predict(da.ones((40, 3), chunks=(2, 3)))
    names = [key for key in dask.optimize(blocks)[0].dask if "TwinRegressor-predict" in str(key)]
    assert len(names) == 1


def test_later_changes_do_not_change_a_lazy_result() -> None:
    frame = table(10)
    twin = fitted(TwinRegressor(DecisionTreeRegressor(random_state=0), random_state=0))
    expected = twin.predict(frame)
    lazy = twin.predict(partitioned(frame))
    twin.fit(frame, -target(frame))
    assert_array_equal(lazy.compute(), expected)
