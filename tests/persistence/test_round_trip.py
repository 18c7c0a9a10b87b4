"""Models are equal after saving and loading, or are refused when they are saved."""

import functools
import operator

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoLars,
    LinearRegression,
    OrthogonalMatchingPursuit,
    QuantileRegressor,
    Ridge,
    RidgeCV,
    SGDRegressor,
    TheilSenRegressor,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVR, LinearSVR
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

import twinned
from twinned import AutoTwinRegressor, TwinRegressor
from twinned.estimators.regressors import GPRegressor, PowerRegressor
from twinned.persistence.archive import MODEL


def forest():
    return RandomForestRegressor(3, max_depth=4, random_state=0)


def histogram():
    return HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=5)


REGRESSORS = [
    DecisionTreeRegressor(random_state=0),
    DecisionTreeRegressor(max_leaf_nodes=6, criterion="absolute_error", random_state=0),
    DecisionTreeRegressor(ccp_alpha=0.01, random_state=0),
    ExtraTreeRegressor(random_state=0),
    forest(),
    ExtraTreesRegressor(3, random_state=0),
    GradientBoostingRegressor(n_estimators=4, random_state=0),
    GradientBoostingRegressor(n_estimators=3, loss="huber", init="zero"),
    GradientBoostingRegressor(n_estimators=3, loss="quantile", alpha=0.3),
    histogram(),
    HistGradientBoostingRegressor(max_iter=3, loss="quantile", quantile=0.3, max_features=0.5),
    HistGradientBoostingRegressor(max_iter=3, loss="poisson", early_stopping=True),
    KNeighborsRegressor(algorithm="kd_tree", weights="distance"),
    KNeighborsRegressor(algorithm="ball_tree", metric="minkowski", p=3),
    KNeighborsRegressor(algorithm="brute"),
    LinearRegression(),
    Ridge(),
    RidgeCV(np.logspace(-3, 3, 7)),
    Lasso(0.01),
    ElasticNetCV(cv=2),
    HuberRegressor(),
    LassoLars(0.01, eps=1e-15),
    OrthogonalMatchingPursuit(),
    QuantileRegressor(alpha=0.01),
    SGDRegressor(random_state=0),
    TheilSenRegressor(random_state=0),
    LinearSVR(random_state=0),
    MLPRegressor(hidden_layer_sizes=(5,), max_iter=20, random_state=0),
    MLPRegressor(hidden_layer_sizes=(5, 4), activation="tanh", solver="lbfgs", max_iter=20),
    DummyRegressor(strategy="median"),
    make_pipeline(StandardScaler(), Ridge()),
    make_pipeline(MinMaxScaler(), RobustScaler(), MaxAbsScaler(), KNeighborsRegressor()),
    make_pipeline(SimpleImputer(strategy="median"), StandardScaler(with_mean=False), forest()),
    GPRegressor(random_state=0),
    PowerRegressor(RidgeCV(np.logspace(-3, 3, 7))),
    PowerRegressor(GPRegressor(random_state=0)),
]

TWINS = [
    TwinRegressor(DecisionTreeRegressor(random_state=0)),
    TwinRegressor(forest()),
    TwinRegressor(ExtraTreesRegressor(3, random_state=0)),
    TwinRegressor(histogram()),
    TwinRegressor(GradientBoostingRegressor(n_estimators=3)),
    TwinRegressor(Ridge(), pair_features="difference"),
    TwinRegressor(KNeighborsRegressor()),
    TwinRegressor(make_pipeline(StandardScaler(), Ridge())),
    TwinRegressor(MLPRegressor(hidden_layer_sizes=(4,), max_iter=5, random_state=0)),
    TwinRegressor(DummyRegressor()),
    TwinRegressor(HistGradientBoostingRegressor(max_iter=3), pair_features="concat"),
    TwinRegressor(RidgeCV(), weights=twinned.GPWeights()),
    TwinRegressor(Ridge(), anchors=twinned.NearestAnchors(5, metric="learned"), n_jobs=2),
    TwinRegressor(Ridge(), anchors=twinned.NearestAnchors(k=5)),
    TwinRegressor(Ridge(), anchors=twinned.NearestAnchors(k=5), weights="distance"),
    TwinRegressor(Ridge(), anchors=twinned.RandomAnchors(7), random_state=0),
    TwinRegressor(Ridge(), pairs=twinned.NearestPairs(4)),
    TwinRegressor(Ridge(), pairs=twinned.RandomPairs(3), random_state=0),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model",
    [
        ElasticNetCV(cv=2),
        GradientBoostingRegressor(n_estimators=2),
        TheilSenRegressor(random_state=0),
        make_pipeline(MaxAbsScaler(), Ridge()),
    ],
)
def test_files_hold_no_defaults_that_only_some_versions_of_scikit_learn_know(model, data, saved):
    description = saved(model.fit(*data)).members()[MODEL].decode()
    for name in ("alphas", "n_alphas", "criterion", "copy_X", "clip"):
        assert f'"{name}"' not in description


def test_parameters_that_are_not_defaults_are_stored(data, saved):
    model = make_pipeline(MinMaxScaler(clip=True), ElasticNetCV(alphas=[0.1, 0.2], cv=2))
    loaded = twinned.load(saved(model.fit(*data)).path)
    assert loaded[0].clip is True
    assert loaded[1].alphas == [0.1, 0.2]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", REGRESSORS + TWINS, ids=lambda model: str(model)[:60])
def test_predictions_are_equal_after_loading(model, data, saved):
    X, y = data
    model = clone(model).fit(X, y)
    loaded = twinned.load(saved(model).path)
    assert type(loaded) is type(model)
    # also between the training points, where a wrong threshold would show
    queries = np.concatenate([X, X + 0.1])
    assert np.array_equal(loaded.predict(queries), model.predict(queries))
    assert str(loaded) == str(model)


@pytest.mark.parametrize(
    "model",
    [
        forest(),
        MultiOutputRegressor(histogram()),
        TwinRegressor(forest()),
        TwinRegressor(MultiOutputRegressor(histogram())),
    ],
    ids=lambda model: str(model)[:60],
)
def test_several_outputs(model, data, saved):
    X, y = data
    model = clone(model).fit(X, np.column_stack([y, -y]))
    file = saved(model)
    assert np.array_equal(twinned.load(file.path).predict(X), model.predict(X))


def table(X):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical(rng.choice(["red", "green", "blue"], len(X)))
    return frame


@pytest.mark.parametrize(
    "model",
    [TwinRegressor(histogram()), TwinRegressor(forest()), TwinRegressor(KNeighborsRegressor())],
    ids=lambda model: str(model)[:60],
)
def test_table_with_categories(model, data, saved):
    X, y = data
    frame = table(X)
    model = clone(model).fit(frame, y)
    file = saved(model)
    loaded = twinned.load(file.path)
    assert np.array_equal(loaded.predict(frame), model.predict(frame))
    names = twinned.persistence.read_header(file.path)["schema"]["feature_names_in_"]
    assert names == ["a", "b", "c", "kind"]


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_categories(data, saved, missing):
    X, y = data
    frame = table(X).astype({"kind": object})
    frame.loc[::7, "kind"] = missing
    codes = np.column_stack([X, np.where(np.arange(len(X)) % 7, np.arange(len(X)) % 3, np.nan)])
    coded = HistGradientBoostingRegressor(max_iter=2, categorical_features=[3])
    for model, rows in (
        (TwinRegressor(histogram()), frame.astype({"kind": "category"})),
        (coded, codes),
        (clone(coded).set_params(categorical_features=[0]), codes[:, 3:]),
    ):
        model.fit(rows, y)
        assert np.array_equal(twinned.load(saved(model).path).predict(rows), model.predict(rows))


def test_categorical_splits(data, saved):
    X, _ = data
    codes = np.resize([4.0, 5.0, 9.0], len(X))
    rows = np.column_stack([X, codes])
    model = HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=5, categorical_features=[3])
    model.fit(rows, codes == 5)
    assert model._predictors[0][0].nodes["is_categorical"].any()
    assert np.array_equal(twinned.load(saved(model).path).predict(rows), model.predict(rows))


def test_histogram_boosting_with_categories_of_a_table_is_refused(data, saved):
    X, y = data
    with pytest.raises(TypeError, match=r"categories that are not floats is not stored.*skops"):
        saved(histogram().fit(table(X), y))


def test_other_methods_of_a_loaded_twin(data, saved):
    X, y = data
    twin = TwinRegressor(forest(), anchors=twinned.NearestAnchors(k=5)).fit(X, y)
    loaded = twinned.load(saved(twin).path)
    for expected, actual in zip(
        twin.predict(X[:5], return_std=True), loaded.predict(X[:5], return_std=True), strict=True
    ):
        assert np.array_equal(actual, expected)
    assert np.array_equal(
        loaded.predict_difference(X[:5], X[5:10]), twin.predict_difference(X[:5], X[5:10])
    )
    assert np.array_equal(loaded.anchors_X_, twin.anchors_X_)


@pytest.mark.parametrize("kind", ["offset", "function"])
def test_deviations_of_batches_are_compared_after_loading_as_before(data, saved, kind):
    X, y = data
    batch = np.arange(len(y)) % 4
    y = y + batch * X[:, 0]
    blend = AutoTwinRegressor(members=["ridge"], cv=2, batch_effect=kind, random_state=0)
    model = blend.fit(X, y, batch=batch)
    loaded = twinned.load(saved(model).path)
    assert loaded.fitted_.batches.kind == model.fitted_.batches.kind == kind
    assert loaded.batch_errors_ == model.batch_errors_
    added, expected = (each.add_anchors(X[:3], y[:3] + 1, batch="new") for each in (loaded, model))
    np.testing.assert_array_equal(added.predict(X, batch="new"), expected.predict(X, batch="new"))


def test_saving_does_not_change_the_model(data, saved):
    X, y = data
    model = KNeighborsRegressor(algorithm="kd_tree").fit(X, y)
    tree = model._tree
    saved(model)
    assert model._tree is tree


@pytest.mark.parametrize("model", [forest(), TwinRegressor(forest()), histogram()])
def test_equal_models_give_equal_bytes(model, data, saved):
    X, y = data
    file = saved(clone(model).fit(X, y))
    first = file.path.read_bytes()
    twinned.save(twinned.load(file.path), file.path)
    assert file.path.read_bytes() == first


def subtract(first, second):
    return first - second


class Callable:
    def __call__(self, X):
        return X


@pytest.mark.parametrize(
    "function",
    [
        subtract,
        lambda X: X,
        functools.partial(np.add, 1.0),
        StandardScaler().fit([[1.0]]).transform,
        np.atleast_2d,
        np.asarray,
        np.frompyfunc(float, 1, 1),
        Callable(),
    ],
    ids=["function", "lambda", "partial", "method", "numpy", "builtin", "frompyfunc", "instance"],
)
def test_callable_parameter_is_refused_by_name(function, data, saved):
    X, y = data
    model = make_pipeline(SimpleImputer(), Ridge()).fit(X, y)
    model.steps[0][1].fill_value = function
    with pytest.raises(
        TypeError, match=r"Pipeline cannot be saved: steps\.simpleimputer\.fill_value=.* is code"
    ):
        saved(model)


def test_callable_pair_features_are_refused_by_name(data, saved):
    X, y = data
    twin = TwinRegressor(Ridge(), pair_features=subtract).fit(X, y)
    with pytest.raises(TypeError, match=r"saved: pair_features=<function subtract.*joblib"):
        saved(twin)


def test_operators_are_refused_by_name(data, saved):
    X, y = data
    model = Ridge().fit(X, y)
    model.solver = operator.methodcaller("upper")
    with pytest.raises(TypeError, match=r"solver=operator\.methodcaller.* is code"):
        saved(model)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_other_libraries_are_refused_by_type(library, data, saved):
    X, y = data
    module = pytest.importorskip(library)
    base = module.LGBMRegressor(verbose=-1) if library == "lightgbm" else module.XGBRegressor()
    base.set_params(n_estimators=2)
    with pytest.raises(TypeError, match=rf"estimator_=<class '{library}\.sklearn\..*skops"):
        saved(TwinRegressor(base).fit(X, y))


@pytest.mark.parametrize("model", [Ridge(), TwinRegressor(), make_pipeline(Ridge())])
def test_unfitted_model_is_refused(model, saved, tmp_path):
    with pytest.raises(NotFittedError, match=f"{type(model).__name__} .*not fitted yet"):
        saved(model)
    assert list(tmp_path.iterdir()) == []


def test_object_that_is_not_an_estimator_is_refused(saved):
    with pytest.raises(TypeError, match="not an estimator"):
        saved({"a": 1})


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (SVR(), r"model=<class 'sklearn.svm._classes.SVR'> is of a type.*skops"),
        (TwinRegressor(SVR()), r"estimator_=<class 'sklearn.svm._classes.SVR'> is of a type"),
        (VotingRegressor([("ridge", Ridge())]), "VotingRegressor'> is of a type.*skops"),
        (make_pipeline(PCA(), Ridge()), r"steps\.pca=<.*PCA'> is of a type"),
        (GradientBoostingRegressor(n_estimators=2, init=Ridge()), "init_ is no DummyRegressor"),
        (make_pipeline(SimpleImputer(add_indicator=True), Ridge()), "add_indicator"),
        (KNeighborsRegressor(metric="canberra"), "metric='canberra'"),
        (RandomForestRegressor(2, warm_start=True), "warm_start"),
        (RandomForestRegressor(2, random_state=np.random.RandomState(0)), "random_state.*integer"),
        (make_pipeline(StandardScaler().set_output(transform="pandas"), Ridge()), "set_output"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_saved_is_refused_by_name(model, reason, data, saved):
    X, y = data
    with pytest.raises((TypeError, ValueError), match=reason) as caught:
        saved(clone(model).fit(X, y))
    assert "\n" not in str(caught.value)


def test_failed_save_preserves_the_old_file_and_removes_the_temporary_one(
    data, saved, tmp_path, monkeypatch
):
    X, y = data
    file = saved(Ridge().fit(X, y))
    before = file.path.read_bytes()

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="the disk is full"):
        saved(Ridge(alpha=5.0).fit(X, y))
    assert file.path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file.path]


def test_missing_folder_is_named(data, tmp_path):
    model = Ridge().fit(*data)
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere; create it"):
        twinned.save(model, tmp_path / "nowhere" / "model.twin")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        twinned.save(model, tmp_path)


def test_path_as_string(data, tmp_path):
    path = str(tmp_path / "model.twin")
    twinned.save(Ridge().fit(*data), path)
    assert isinstance(twinned.load(path), Ridge)


def test_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        twinned.load(tmp_path / "none.twin")


def test_a_model_of_long_labels_can_be_saved(tmp_path):
    X = pd.DataFrame({"a": np.arange(400.0)}, index=[f"{i} " + "ü" * 20_000 for i in range(400)])
    y = np.arange(400.0)
    for rows in (10, 400):
        twin = TwinRegressor(Ridge(), pairs=1).fit(X[:rows], y[:rows])
        twinned.save(twin, tmp_path / "m.twin")
        assert (
            twinned.load(tmp_path / "m.twin").fitted_.anchors.labels == twin.fitted_.anchors.labels
        )
        if rows == 10:
            assert twin.fitted_.anchors.labels == [name[:10_000] for name in X.index[:10]]
            extended = twin.add_anchors(X, y)
            twinned.save(extended, tmp_path / "m.twin")
    assert twin.fitted_.anchors.labels is None
    assert extended.fitted_.anchors.labels is None
