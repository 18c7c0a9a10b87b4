"""Metrics and scorers of models with batches, and the warning of models that are given none."""

import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

from twinned import (
    AutoTwinRegressor,
    TransformedTargetTwin,
    TwinRegressor,
    cross_conformal,
    query,
    solve,
)
from twinned.exceptions import MissingBatchWarning
from twinned.metrics import crps, log_likelihood, make_scorer, neg_crps

N = 60
BATCH = np.array(["a", "b", "c"])[np.arange(N) % 3]
RNG = np.random.RandomState(0)
X = RNG.normal(size=(N, 2))
Y = X[:, 0] + np.array([-3.0, 0.0, 3.0])[np.arange(N) % 3] + 0.1 * RNG.normal(size=N)
WEIGHT = RNG.uniform(size=N)


@pytest.fixture(scope="module")
def model():
    return cross_conformal(TwinRegressor(Ridge()), X, Y, batch=BATCH, cv=3, random_state=0)


@pytest.mark.parametrize("metric", [log_likelihood, crps, neg_crps])
def test_metrics_have_batches_and_weights(model, metric):
    rows = [metric(model, X[[i]], Y[[i]], batch=BATCH[i]) for i in range(8)]
    expected = np.average(rows, weights=WEIGHT[:8])
    assert metric(model, X[:8], Y[:8], WEIGHT[:8], batch=BATCH[:8]) == pytest.approx(expected)


def test_metrics_have_errors_of_measurement():
    blend = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X, Y, y_std=0.1)
    assert crps(blend, X, Y, y_std=5.0) > crps(blend, X, Y, y_std=0.1)


def test_each_call_warns_once(model):
    """The warning is that of the line of the user."""
    transformed = TransformedTargetTwin(TwinRegressor(Ridge()), "log").fit(
        X, np.exp(Y), batch=BATCH
    )
    calls = [
        lambda: model.predict(X),
        lambda: model.predict_interval(X),
        lambda: model.score(X, Y),
        lambda: log_likelihood(model, X, Y),
        lambda: model.explain(X[:2]),
        lambda: model.sample(X[:2]),
        lambda: query(model, X, 2),
        lambda: transformed.score(X, np.exp(Y)),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            call()
            call()
        found = [w for w in caught if w.category is MissingBatchWarning]
        assert [warning.filename for warning in found] == [__file__], call.__code__.co_firstlineno


def test_searches_and_cross_validation_warn_of_the_line_of_the_user(model):
    with pytest.warns(MissingBatchWarning) as caught:
        cross_val_predict(TwinRegressor(Ridge()), X, Y, cv=2, params={"batch": BATCH})
    with pytest.warns(MissingBatchWarning) as of_solve:
        solve(model, 0.0, n=1)
    assert [warning.filename for warning in [*caught, *of_solve]] == [__file__] * 2


def test_no_warning_where_the_batch_is_given_or_not_needed(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingBatchWarning)
        model.predict_interval(X, batch=BATCH)
        model.applicability(X)
        model.loop_inconsistency(X)
        model.probability_better(X, than=X[:1], batch="a")
        solve(model, 0.0, n=1, batch="a")
        TwinRegressor(Ridge()).fit(X, Y).predict(X)


@pytest.mark.parametrize("kind", ["twin", "blend", "log"])
def test_batches_are_routed(kind):
    """With metadata routing, searches and cross-validation pass the batch of each row."""
    y, twin = Y, TwinRegressor(Ridge())
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error", MissingBatchWarning)
        if kind == "blend":
            twin = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0)
        estimator = twin = twin.set_fit_request(batch=True)
        if kind == "log":
            y, estimator = np.exp(0.1 * Y), TransformedTargetTwin(twin)
        estimator.set_score_request(batch=True)
        assert cross_val_score(estimator, X, y, cv=3, params={"batch": BATCH}).min() > 0.9
        if kind == "blend":
            scorer = make_scorer(neg_crps, "batch")
            search = GridSearchCV(estimator, {"effort": ["fast"]}, cv=3, scoring=scorer)
            assert search.fit(X, y, batch=BATCH).best_score_ > -0.3
