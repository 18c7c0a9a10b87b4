"""Proposals of changes by the HTTP service."""

import time
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from starlette import testclient

from twinned import AutoTwinRegressor, TwinRegressor, cross_conformal, solve
from twinned.app.serve import service as service_module
from twinned.app.serve.app import make_app
from twinned.app.tables.columns import EPOCH, PARTS

RNG = np.random.RandomState(0)
X = pd.DataFrame(RNG.uniform(1, 2, (40, 2)), columns=["heat", "time"])
X["metal"] = pd.Categorical(["iron", "copper"] * 20)
Y = 10 * X["heat"] + X["time"] + 2 * (X["metal"] == "iron") + RNG.normal(0, 0.1, 40)
ROW = {"heat": 1.2, "time": 1.5, "metal": "copper"}
pytestmark = pytest.mark.filterwarnings("ignore::twinned.exceptions.UnreachedTargetWarning")


def client_of(model):
    return testclient.TestClient(make_app(model, "alloy"), base_url="http://localhost")


@pytest.fixture(scope="module")
def model():
    return cross_conformal(TwinRegressor(Ridge(1e-3)), X, Y, cv=3, random_state=0)


@pytest.fixture(scope="module")
def client(model):
    return client_of(model)


def post(client, **request):
    response = client.post("/solve", json=request)
    assert response.status_code == 200, response.text
    return response.json()["proposals"], response.json().get("warnings", [])


def test_proposals_are_those_of_solve(client, model):
    bounds, options = {"heat": (1.1, None)}, {"fixed": ["metal"], "n": 3, "confidence": 0.8}
    options["constraints"] = ["heat + time <= 3"]
    proposals, warnings = post(client, target=">= 17", near=ROW, bounds=bounds, **options)
    table = solve(model, ">= 17", near=ROW, bounds=bounds, random_state=0, **options)
    assert not warnings
    assert len(proposals) == len(table)
    for one, (_, row) in zip(proposals, table.iterrows(), strict=True):
        assert list(one["columns"].values()) == list(row[["heat", "time", "metal"]])
        assert one["changes"]["heat"] == row["change of heat"]
        assert one["changes"]["metal"] == ""
        assert one["anchor"] == f"row {row['anchor'] + 1}"
        ends = one["prediction"], one["low"], one["high"], one["probability"]
        assert ends == tuple(row[["predicted", "lower", "upper", "probability"]])
        assert (one["applicability"], one["distance"]) == (row["applicable"], row["distance"])
        assert one["reached"] is True
        assert one["low"] >= 17 - 1e-6
        assert one["columns"]["heat"] + one["columns"]["time"] <= 3 + 1e-9


def test_a_known_case_can_be_changed(client):
    row = {name: X[name].tolist()[7] for name in X}
    proposals = post(client, target=15, near=7, n=2)[0]
    assert proposals == post(client, target="15", near=row, n=2)[0]
    assert all(one["prediction"] == pytest.approx(15, abs=0.05) for one in proposals)
    cases = client.get("/about").json()["cases"]
    assert cases[7] == ["row 8", pytest.approx(Y[7])]
    assert client.get("/about").json()["columns"][0]["range"] == [X.heat.min(), X.heat.max()]


def test_the_closest_rows_have_a_warning(client):
    proposals, warnings = post(client, target=">= 100", near=ROW, n=1)
    assert not proposals[0]["reached"]
    assert warnings == ["No row was found that reaches the target; these are the closest ones."]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target": "high"}, "target must be a number"),
        ({"target": None}, "'target': "),
        ({"near": 40}, "near: there are 40 known cases, from 0 on."),
        ({"near": {**ROW, "heat": "hot"}}, "row 1, column 'heat': 'hot' is text"),
        ({"near": {"heat": 1}}, "has no column 'time', 'metal'"),
        ({"fixed": ["pressure"]}, "'pressure'"),
        ({"fixed": list(X)}, "fixed: no column is left that may change."),
        ({"bounds": {"heat": [2, 1]}}, "2 is larger than 1"),
        ({"bounds": {"heat": [1]}}, "'bounds': field required, not [1]."),
        ({"bounds": {"heat": ["low", 1]}}, "'bounds': input should be a valid number"),
        ({"n": 21}, "'n': input should be less than or equal to 20, not 21."),
        ({"n": 0}, "'n': "),
        ({"constraints": ["heat > time + pressure"]}, "pressure"),
        ({"constraints": ["heat <= 0"]}, "No row satisfies the constraints"),
        ({"confidence": 0.999}, "confidence=0.999 needs at least 999 calibration rows"),
        ({"known": [ROW]}, "known rows need a model that was fitted with batches"),
        ({"rows": [ROW]}, "'rows' is unknown; use 'target', 'near', 'fixed',"),
    ],
)
def test_a_bad_request_gets_one_sentence(client, changed, message):
    response = client.post("/solve", json={"target": 15, "near": ROW, **changed})
    assert response.status_code == 422
    error = response.json()["error"]
    assert message in error
    assert "\n" not in error
    assert len(error) < 300
    assert client.post("/solve", json={}).json()["error"] == "'target' is needed."
    assert "must be a JSON object" in client.post("/solve", json=[]).json()["error"]
    assert client.post("/solve", content=b"{").status_code == 400


def test_searches_take_turns_within_the_time_limit(client, monkeypatch):
    calls = []

    def wait(*_, **__):
        calls.append(time.monotonic())
        time.sleep(0.3)
        raise ValueError("done")

    monkeypatch.setattr(service_module, "solve", wait)
    monkeypatch.setattr(service_module, "WORK_SECONDS", 0.05)
    for _ in range(3):
        response = client.post("/solve", json={"target": 15, "near": ROW})
        assert response.status_code == 503
        error = "the request takes more than 0.05 seconds; fix some columns."
        assert response.json()["error"] == error
    assert len(calls) == 1  # the others wait for it in vain
    time.sleep(0.3)


def test_dates_and_marks_of_limits_stay_as_they_are():
    days, marks = np.arange(40.0), np.where(np.arange(40) % 4 == 0, -1.0, 0.0)
    weekdays = [PARTS["weekday"](EPOCH + timedelta(days=day)) for day in days]
    table = X[["heat", "time"]].assign(lead=days + 0.5)
    table["lead (limit)"], table["day (days)"], table["day (weekday)"] = marks, days, weekdays
    client = client_of(TwinRegressor(Ridge(1e-3)).fit(table, Y))
    row = {"heat": 1.2, "time": 1.5, "lead": "<5", "day": "1970-01-11"}
    for one in post(client, target=18, near=row, fixed=["lead", "day"], n=3)[0]:
        values = one["columns"]
        assert [values[name] for name in list(table)[2:]] == [2.5, -1, 10, weekdays[10]]
        assert "low" not in one


def test_known_rows_of_a_new_batch_count():
    batch = np.array(["A", "B"] * 20)
    blend = AutoTwinRegressor(members=["ridge"], random_state=0)
    blend.fit(X[["heat", "time"]], 10 * X["heat"] + X["time"] + 5.0 * (batch == "B"), batch=batch)
    client = client_of(blend)
    known = [{"heat": 1.5, "time": 1.5, "batch": "C", "y": 116.5}] * 3
    near = {"heat": 1.2, "time": 1.5, "batch": "C"}
    (one,), warnings = post(client, target=115, near=near, fixed=["time"], n=1, known=known)
    assert not warnings
    assert one["columns"]["heat"] == pytest.approx(1.35, abs=0.02)
    (one,), _ = post(client, target=19.5, near={**near, "batch": "B"}, fixed=["time"], n=1)
    assert one["columns"]["heat"] == pytest.approx(1.3, abs=0.02)
    (one,), _ = post(client, target=19.5, near=1, fixed=["time"], n=1)  # a known case of B
    expected = (14.5 - X["time"][1]) / 10
    assert one["columns"]["heat"] == pytest.approx(expected, abs=0.02)
