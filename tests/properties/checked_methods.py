"""Methods of a fitted model, and functions of one, each with what must be true of its result.

Each function here calls one method for a `Case`, checks the result, and returns it.
"""

import dask
import numpy as np
import pytest
from sklearn.metrics import r2_score
from sklearn.pipeline import Pipeline

import twinned
from tests.properties.exported import (
    predict_by_c,
    predict_by_command,
    predict_by_onnx,
    predict_by_service,
)
from tests.properties.fitted_models import N_QUERIES, save_and_load

ALL = 500  # more cases than a model has
LEVELS = np.array([0.05, 0.3, 0.5, 0.95])


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
        rows = dask.compute(case.X)[0]  # quantiles are not lazy
        close(ends, case.model.predict_quantiles(rows, [0.05, 0.95], **case.options))
    return ends


def value(case):
    """Intervals of the value itself are narrower than those of a measurement."""
    measurement, value = (case.call("predict_interval", of=of) for of in ("measurement", "value"))
    assert (np.diff(value) < np.diff(measurement)).all()
    return value


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
    assert whole.sample(3, random_state=0).shape == (3, *case.y.shape)


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
    other = case.fitted_rows[0][:N_QUERIES]
    forward = case.model.predict_difference(case.X, other)
    close(forward, -case.model.predict_difference(other, case.X))
    return forward


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
    other = case._replace(model=save_and_load(case.model))
    np.testing.assert_array_equal(other.call("predict"), case.call("predict"))


def measured(case):
    """Measured errors of the classes are a column of `applicability`."""
    X, y = case.fitted_rows
    model = twinned.measure_applicability(case.model, X, y, cv=3, random_state=0)
    rated = model.applicability(case.X)
    assert (rated["error"] < 2 * np.std(y)).all()


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
    reached = case.call("predict", X=solution).reshape(-1)[0]
    assert abs(reached - (wanted if case.y.ndim == 1 else 9.5)) < 0.3


def scores(case):
    """Scores of the predictive distribution."""
    assert twinned.metrics.log_likelihood(case.model, case.X, case.y) == pytest.approx(
        np.mean(case.model.log_density(case.X, y=case.y))
    )
    assert 0 < twinned.metrics.crps(case.model, case.X, case.y) < np.ptp(case.y)


def display(case):
    """The display has the intervals of the model."""
    shown = twinned.PredictionIntervalDisplay.from_estimator(case.model, case.X, case.y)
    ends = without_batch(case, "predict_interval")
    close(np.sort(shown.intervals[:, 0]), np.sort(ends[:, 0]))


def without_batch(case, method, **arguments):
    return case._replace(options={}).call(method, **arguments)


def onnx(case):
    close(predict_by_onnx(case.model, case.X), without_batch(case, "predict"), rtol=1e-5)


def c_code(case):
    singles = case.X.astype(np.float32).astype(np.float64)
    expected = without_batch(case, "predict", X=singles)
    close(predict_by_c(case.model, singles), expected, rtol=1e-5)


def command(case):
    """`twinned predict` prints what the model predicts, as rows of their batch."""
    close(predict_by_command(case.model, case.X.assign(**case.options)), case.call("predict"))


def service(case):
    """The service responds with what the model predicts, as rows of their batch."""
    close(predict_by_service(case.model, case.X.assign(**case.options)), case.call("predict"))


METHODS = [mean, std, interval, value, quantiles, density, distribution, anchors, members]
METHODS += [
    adjustments,
    difference,
    score,
    sample,
    rank,
    better,
    applicability,
    loops,
    relevance,
    added,
    saved,
]
FUNCTIONS = [query, solve, scores, display, onnx, c_code, command, service, measured]


def close(actual, expected, rtol=5e-6):  # networks have single precision
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=rtol, atol=1e-7)
