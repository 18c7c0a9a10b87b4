"""Every method of a fitted model, for every estimator and wrapper, with every kind of rows.

Each method either works, with what must be true of its result, or is refused in one line that
names the parameter (`REFUSED`). A test has one fitted model, and calls all methods.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import twinned
from twinned import (
    AutoTwinRegressor,
    LogTargetRegressor,
    NearestAnchors,
    NeuralRegressor,
    NeuralTraining,
    PredictionIntervalDisplay,
    SemiSupervisedTwinRegressor,
    TransformedTargetTwin,
    TwinNeuralRegressor,
    TwinRegressor,
    conformal,
    cross_conformal,
    measure_applicability,
    metrics,
)

N, N_QUERIES, ALL = 60, 9, 500
LEVELS = np.array([0.05, 0.3, 0.5, 0.95])
BATCH = np.array(["a", "b", "c"])[np.arange(N) % 3]
TREES = ExtraTreesRegressor(4, max_depth=5, random_state=0)
SMALL = {"n_members": 2, "training": NeuralTraining(max_steps=20), "random_state": 0}
DISTANT = {"anchors": NearestAnchors(6), "weights": "distance"}

ESTIMATORS = {
    "twin": lambda: TwinRegressor(Ridge()),
    "folds": lambda: TwinRegressor(TREES, cv=3, random_state=0),
    "nearest": lambda: TwinRegressor(TREES, **DISTANT),
    "default": lambda: TwinRegressor(random_state=0),
    "semi": lambda: SemiSupervisedTwinRegressor(TwinRegressor(TREES), random_state=0),
    "blend": lambda: AutoTwinRegressor(members=["ridge"], cv=4, random_state=0),
    "neural twin": lambda: TwinNeuralRegressor((4,), **SMALL),
    "networks": lambda: NeuralRegressor((4,), **SMALL),
    "power": lambda: TransformedTargetTwin(ESTIMATORS["blend"](), target_transform="power"),
    "log": lambda: LogTargetRegressor(TwinRegressor(TREES)),
    "conformal": lambda: TwinRegressor(TREES),
    "crossed": lambda: TwinRegressor(Ridge()),
}
CONDITIONS = (
    "plain batch targets transformed censored y_std weights groups pipeline dask loaded added"
)
QUICK = [("blend", "plain"), ("blend", "batch"), ("blend", "targets"), ("twin", "y_std")]
QUICK += [("crossed", "plain"), ("nearest", "added"), ("folds", "loaded"), ("blend", "dask")]


class Case(NamedTuple):
    """A fitted model, rows to predict with their values, and arguments of predictions."""

    model: object
    X: pd.DataFrame
    y: np.ndarray
    options: dict
    fitted_rows: tuple = ()  # X and y of the fit
    reference: "Case | None" = None  # whose results are equal

    def call(self, method, X=None, **options):
        """The result of a method for rows, in memory."""
        import dask

        X = self.X if X is None else X
        of_pipeline = isinstance(self.model, Pipeline) and method in ("explain", "predict_interval")
        if of_pipeline:
            result = getattr(twinned, method)(self.model, X, **options, **self.options)
        else:
            result = getattr(self.model, method)(X, **options, **self.options)
        result = dask.compute(result)[0]
        is_table = method in ("explain", "rank") or not isinstance(result, pd.Series | pd.DataFrame)
        return result if is_table else result.to_numpy()


# --- fitted models ------------------------------------------------------------------------------


def table():
    """Rows to fit, of which the last are those to predict."""
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.normal(size=(N + N_QUERIES, 3)), columns=list("uvw"))
    y = 9.0 + 1.5 * X["u"] + X["v"] ** 2 + 0.3 * rng.normal(size=len(X))
    return X[:N], y[:N].to_numpy(), X[N:].reset_index(drop=True), y[N:].to_numpy()


def fit(name, condition):
    """The fitted model of an estimator and a kind of rows."""
    X, y, queries, true_y = table()
    estimator, given, options = ESTIMATORS[name](), {}, {}
    if condition == "batch":
        y, given, options = y + np.arange(N) % 3, {"batch": BATCH}, {"batch": "b"}
    elif condition == "targets":
        y, true_y = np.column_stack([y, 30.0 - y]), np.column_stack([true_y, 30.0 - true_y])
    elif condition == "transformed":
        estimator = TransformedTargetTwin(estimator, target_transform="power")
    elif condition == "censored":
        below = np.where(np.arange(N) % 8 == 1, y + 0.2, np.nan)
        y, given = np.where(np.isnan(below), y, np.nan), {"y_upper": below}
    elif condition == "y_std":
        given = {"y_std": np.linspace(0.1, 0.5, N)}
    elif condition == "weights":
        given = {"sample_weight": 0.5 + np.arange(N) % 3}
    elif condition == "groups":
        given = {"groups": np.arange(N) // 4}
    elif condition == "pipeline":
        estimator = make_pipeline(StandardScaler(), estimator)
    if name == "crossed":
        model = stored(cross_conformal(estimator, X, y, cv=3, random_state=0, **given))
    elif name == "conformal":
        training, held_out = slice(0, 36), slice(36, N)
        model = estimator.fit(X[training], y[training], **part(given, training))
        model = conformal(model, X[held_out], y[held_out], **part(given, held_out))
    else:
        model = estimator.fit(X, y, **given)
    case = Case(model, queries, true_y, options, (X, y))
    if condition == "dask":
        import dask.dataframe as dd

        return case._replace(X=dd.from_pandas(queries, npartitions=2), reference=case)
    if condition == "loaded":
        return case._replace(model=loaded(model), reference=case)
    if condition == "added":
        return case._replace(model=model.add_anchors(queries[:4], true_y[:4] + 1.0))
    return case


def part(given, rows):
    return {name: values[rows] for name, values in given.items()}


def stored(calibrated):
    return calibrated.store_in() if hasattr(calibrated, "store_in") else calibrated


def loaded(model):
    with TemporaryDirectory() as folder:
        twinned.save(model, Path(folder) / "model.twin")
        return twinned.load(Path(folder) / "model.twin")


# --- methods, each with what must be true of its result ------------------------------------------


def mean(case):
    """Predictions are the weighted means of all estimates of `explain`, whose weights sum to 1."""
    predicted = case.call("predict")
    assert predicted.shape == case.y.shape
    explained = case.call("explain", n=ALL)
    explained["share"] = explained["weight"] * explained["estimate"]
    keys = [name for name in ("target", "output") if name in explained] + ["query"]
    sums = explained.groupby(keys, sort=False)[["weight", "share"]].sum()
    np.testing.assert_allclose(sums["weight"], 1.0)
    close(sums["share"], predicted.T.ravel() if "target" in keys else predicted.ravel())
    return predicted, explained.drop(columns=["query"])


def std(case):
    predicted, std = case.call("predict", return_std=True)
    close(predicted, case.call("predict"))
    assert std.shape == predicted.shape
    assert (std > 0).all()
    return std


def interval(case):
    """Intervals end at quantiles, and contain those of less confidence."""
    ends = np.asarray(case.call("predict_interval", confidence=0.9))
    inner = np.asarray(case.call("predict_interval", confidence=0.4))
    assert ends.shape == (*case.y.shape, 2)
    assert (ends[..., 0] < inner[..., 0]).all()
    assert (inner[..., 1] < ends[..., 1]).all()
    if not isinstance(case.model, Pipeline):
        close(ends, case.call("predict_quantiles", quantiles=[0.05, 0.95]))
    return ends


def quantiles(case):
    """The distribution function at a quantile is its level."""
    values = np.asarray(case.call("predict_quantiles", quantiles=LEVELS))
    for j, level in enumerate(LEVELS):
        np.testing.assert_allclose(case.call("predict_cdf", y=values[..., j]), level, rtol=1e-6)
    return values


def density(case):
    """The density is the derivative of the distribution function, but at its knots."""
    step = 1e-5
    cdf = [case.call("predict_cdf", y=case.y + side * step) for side in (-1, 1)]
    log_density = case.call("log_density", y=case.y)
    ratio = (cdf[1] - cdf[0]) / (2 * step) / np.exp(log_density)
    assert np.median(np.abs(ratio - 1.0)) < 1e-3
    return log_density


def distribution(case):
    """`predict_distribution` has all that the methods of the model return."""
    whole = case.call("predict_distribution")
    close(whole.mean, case.call("predict"))
    close(whole.std, case.call("predict", return_std=True)[1])
    close(whole.interval(0.8), case.call("predict_interval", confidence=0.8))
    close(whole.quantiles(LEVELS), case.call("predict_quantiles", quantiles=LEVELS))
    close(whole.cdf(case.y), case.call("predict_cdf", y=case.y))
    close(whole.log_density(case.y), case.call("log_density", y=case.y))


def anchors(case):
    """Estimates of all anchors; those of the first are in `explain`."""
    indices, estimates = case.call("predict_anchors")
    assert estimates.shape[:2] == indices.shape
    first = case.call("explain", n=1).groupby("query", sort=False).first()
    if "output" not in first:
        row = np.argmax(indices == first["anchor"].to_numpy()[:, None], axis=1)
        close(first["estimate"], estimates[np.arange(len(row)), row])
    return estimates


def members(case):
    predicted = case.call("predict_members")
    assert predicted.shape[1:] == case.y.shape
    return predicted


def adjustments(case):
    """Adjustments of the features sum to the difference."""
    explained = case.call("explain", n=2, adjustments=True)
    anchors = explained[explained["anchor"] >= 0]
    parts = anchors.columns.intersection(["offset", *"uvw", "x0", "x1", "x2"])
    close(anchors[parts].sum(axis=1), anchors["difference"])
    return explained.drop(columns="query")


def difference(case):
    """Differences are antisymmetric."""
    forward = case.model.predict_difference(case.X, other_rows(case))
    close(forward, -case.model.predict_difference(other_rows(case), case.X))
    return forward


def other_rows(case):
    return table()[2][::-1].reset_index(drop=True)


def score(case):
    r2 = case.call("score", y=case.y)
    assert r2 == pytest.approx(r2_score(case.y, case.call("predict")))
    return r2


def sample(case):
    """Joint samples have the mean and the standard deviation of their table of ranks."""
    samples = case.call("sample", n_samples=600, random_state=0)
    ranked = case.call("rank", random_state=0).sort_values("row")
    assert samples.shape == (600, *case.y.shape)
    assert (np.abs(samples.mean(axis=0) - ranked["prediction"]) < 0.2 * ranked["std"]).all()
    np.testing.assert_allclose(samples.std(axis=0), ranked["std"], rtol=0.2)
    return samples


def rank(case):
    """Rows are in the order of their predictions."""
    ranked = case.call("rank", random_state=0)
    close(ranked["prediction"], np.sort(case.call("predict"))[::-1])
    assert ranked["probability_best"].sum() == pytest.approx(1.0)
    return ranked


def better(case):
    """About half of the measurements are better than the prediction of their row."""
    value = float(np.ravel(case.call("predict"))[2])
    larger = case.call("probability_better", than=value)
    smaller = case.call("probability_better", than=value, maximize=False)
    close(larger + smaller, 1.0)
    assert 0.3 < np.ravel(larger)[2] < 0.7
    return larger


def applicability(case):
    rated = case.model.applicability(case.X)
    assert rated["label"].isin(["inside", "edge", "outside"]).all()
    assert len(rated) % N_QUERIES == 0
    return rated["score"]


def loops(case):
    inconsistency = case.model.loop_inconsistency(case.X, n_loops=4, random_state=0)
    assert (np.asarray(inconsistency) >= 0).all()
    return inconsistency


def relevance(case):
    assert np.sum(case.model.feature_relevance_) == pytest.approx(1.0)
    return case.model.feature_relevance_


def added(case):
    """Further anchors leave the original as it is."""
    before, X = case.call("predict"), case.fitted_rows[0]
    known_y = np.ones((3, *case.y.shape[1:]))
    other = case._replace(model=case.model.add_anchors(X[:3] + 0.1, known_y, **case.options))
    assert np.isfinite(other.call("predict")).all()
    close(case.call("predict"), before)


def saved(case):
    """A loaded model predicts as the saved one."""
    other = case._replace(model=loaded(case.model))
    np.testing.assert_array_equal(other.call("predict"), case.call("predict"))


def measured(case):
    """Measured errors of the classes are a column of `applicability`."""
    result = measure_applicability(case.model, *case.fitted_rows, cv=3, random_state=0)
    model = case.model if isinstance(result, pd.DataFrame) else result
    assert "error" in model.applicability(case.X)


# --- functions of a model, exports and the application --------------------------------------------


def query(case):
    """More rows to measure begin with those of fewer."""
    options = {"strategy": "improvement", "random_state": 0, **case.options}
    rows = twinned.query(case.model, case.X, 3, **options)
    assert rows[:1].tolist() == twinned.query(case.model, case.X, 1, **options).tolist()


def solve(case):
    """The first inputs that are found have a prediction near to the wanted one."""
    wanted = float(np.mean(case.y)) if case.y.ndim == 1 else {"y0": 9.5}
    options = {"n": 1, "random_state": 0, **case.options}
    solution = twinned.solve(case.model, wanted, **options)[list("uvw")].astype(float)
    reached = case.call("predict", solution).reshape(-1)[0]
    assert abs(reached - (wanted if case.y.ndim == 1 else 9.5)) < 0.3


def scores(case):
    """Scores of the predictive distribution."""
    assert metrics.log_likelihood(case.model, case.X, case.y) == pytest.approx(
        np.mean(case.model.log_density(case.X, y=case.y))
    )
    assert 0 < metrics.crps(case.model, case.X, case.y) < np.ptp(case.y)


def display(case):
    """The display has the intervals of the model."""
    shown = PredictionIntervalDisplay.from_estimator(case.model, case.X, case.y, confidence=0.8)
    close(
        np.sort(shown.intervals[:, 0]),
        np.sort(plain(case, "predict_interval", confidence=0.8)[:, 0]),
    )


def plain(case, method, **options):
    return case._replace(options={}).call(method, **options)


def onnx(case):
    runtime = pytest.importorskip("onnxruntime")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        twinned.export.to_onnx(case.model, path, outputs=["mean"], dtype="float64")
        session = runtime.InferenceSession(str(path))
    rows = {session.get_inputs()[0].name: case.X.to_numpy()}
    np.testing.assert_allclose(session.run(None, rows)[0], plain(case, "predict"), rtol=1e-5)


PROGRAM = """#include <stdio.h>
#include "model.h"
int main(void) {
    float x[3];
    while (fread(x, sizeof x, 1, stdin) == 1) printf("%.9g\\n", model_predict(x));
    return model_self_test();
}
"""


def c_code(case):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    with TemporaryDirectory() as folder:
        twinned.export.to_c(case.model, Path(folder) / "model.h", name="model")
        Path(folder, "main.c").write_text(PROGRAM)
        subprocess.run(["gcc", "-o", "main", "main.c", "-lm"], cwd=folder, check=True)
        rows = case.X.to_numpy(dtype=np.float32)
        done = subprocess.run(Path(folder, "main"), input=rows.tobytes(), capture_output=True)
    assert done.returncode == 0
    compiled = np.array(done.stdout.split(), dtype=float)
    singles = pd.DataFrame(rows.astype(np.float64), columns=case.X.columns)
    np.testing.assert_allclose(compiled, plain(case._replace(X=singles), "predict"), rtol=1e-5)


def command(case):
    """`twinned predict` prints what the model predicts, as rows of their batch."""
    from twinned.app.cli import app

    with TemporaryDirectory() as folder:
        twinned.save(case.model, Path(folder) / "model.twin")
        case.X.assign(**case.options).to_csv(Path(folder) / "new.csv", index=False)
        arguments = ["predict", f"{folder}/model.twin", f"{folder}/new.csv", "--json"]
        result = CliRunner().invoke(app, arguments)
    if result.exit_code:
        raise ValueError(result.output.strip())
    printed = json.loads(result.stdout)
    columns = [values for name, values in printed.items() if name.startswith("prediction")]
    close(np.transpose(columns).reshape(case.y.shape), case.call("predict"))


def service(case):
    """The service responds with what the model predicts, as rows of their batch."""
    from starlette.testclient import TestClient

    from twinned.app.serve import make_app

    client = TestClient(make_app(case.model), base_url="http://localhost")
    rows = case.X.assign(**case.options).to_dict("records")
    response = client.post("/predict", json={"rows": rows}).json()
    close(response["prediction"], case.call("predict"))


METHODS = [mean, std, interval, quantiles, density, distribution, anchors, members, adjustments]
METHODS += [difference, score, sample, rank, better, applicability, loops, relevance, added, saved]
FUNCTIONS = [query, solve, scores, display, onnx, c_code, command, service, measured]


def close(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=2e-6, atol=1e-7)


# --- the test -----------------------------------------------------------------------------------

# Methods that are refused, by estimator/rows/method, and what the line says.
CALIBRATED = "(blend|power|conformal|crossed)/.*"
REFUSED = [
    ("semi/(batch|censored|y_std|groups)/fit", "unexpected keyword argument"),
]
# Methods that fail today.
FAILS = []


def error_of(call):
    """None where a call works, else its error."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def check(case, method):
    """What is true of the result, and that it is the one of the reference."""
    result = method(case)
    if case.reference is not None and result is not None:
        expected = method(case.reference)
        results = (result, expected) if isinstance(result, tuple) else ((result,), (expected,))
        for one, other in zip(*results, strict=True):
            if isinstance(one, pd.DataFrame):
                one, other = (table.reset_index(drop=True) for table in (one, other))
                pd.testing.assert_frame_equal(one, other)
            else:
                np.testing.assert_allclose(one, other, rtol=1e-12)


def describe_unexpected(cell, error):
    """None where a method does what the tables say, else what it does."""
    refusals = [message for pattern, message in REFUSED if re.fullmatch(pattern, cell)]
    if any(re.fullmatch(pattern, cell) for pattern in FAILS):
        return None if error else f"{cell} works: remove it from FAILS"
    if error is None:
        return f"{cell} works: remove it from REFUSED" if refusals else None
    is_line = "\n" not in error and not error.startswith("AssertionError")
    if is_line and any(re.search(message, error) for message in refusals):
        return None
    return f"{cell} {'is refused by' if refusals else 'raises'} {error}"


PAIRS = [(name, condition) for name in ESTIMATORS for condition in CONDITIONS.split()]


@pytest.mark.parametrize(
    ("name", "condition"),
    [pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow) for pair in PAIRS],
)
@pytest.mark.filterwarnings("ignore")
def test_every_method(name, condition):
    cases = []
    errors = {"fit": error_of(lambda: cases.append(fit(name, condition)))}
    for case in cases:
        for method in METHODS if condition == "dask" else METHODS + FUNCTIONS:
            errors[method.__name__] = error_of(lambda method=method: check(case, method))
    cells = {f"{name}/{condition}/{method}": error for method, error in errors.items()}
    unexpected = [describe_unexpected(cell, error) for cell, error in cells.items()]
    assert not any(unexpected), "\n".join(filter(None, unexpected))


def test_tables_have_no_other_cells():
    methods = ["fit", *(method.__name__ for method in METHODS + FUNCTIONS)]
    cells = [f"{name}/{condition}/{method}" for name, condition in PAIRS for method in methods]
    for pattern in [*FAILS, *(pattern for pattern, _ in REFUSED)]:
        assert any(re.fullmatch(pattern, cell) for cell in cells), pattern
