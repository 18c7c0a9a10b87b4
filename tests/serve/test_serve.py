"""The HTTP service returns the predictions of the model, and one sentence for a bad request."""

import asyncio
import copy
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor
from typer.testing import CliRunner

import twinned
from twinned import AutoTwinRegressor, NearestAnchors, TransformedTargetTwin, TwinRegressor, save
from twinned.app.cli import app
from twinned.app.serve import make_app
from twinned.app.serve.requests import rows_table
from twinned.app.serve.service import PredictionService
from twinned.datasets import make_wsb
from twinned.exceptions import UnknownCategoryWarning

testclient = pytest.importorskip("starlette.testclient")  # hides its deprecation of httpx
X, y = make_wsb(40, random_state=0)
X = X.iloc[:, :3].assign(material=pd.Categorical(["wood", "brick"] * 20))
ROW = {"U": 2.0, "R1": 1.5, "R2": 2.5, "material": "wood"}


@pytest.fixture(scope="module")
def twin():
    return TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0)).fit(X, y)


def client_of(model, name):
    return testclient.TestClient(make_app(model, name), base_url="http://localhost")


@pytest.fixture(scope="module")
def client(twin):
    return client_of(twin, "bridge.twin")


def json_of(response, status=200):
    assert response.status_code == status, response.text
    return response.json()


def test_about_names_the_target(twin):
    about = json_of(client_of(twin, "bridge.twin").get("/about"))
    assert (about["target"], about["calibrated_std"]) == ("y", False)
    named = copy.copy(twin)
    named.target_name_ = "voltage"
    assert json_of(client_of(named, "bridge.twin").get("/about"))["target"] == "voltage"


def test_the_page_names_the_target_and_needs_no_network(twin):
    named = copy.copy(twin)
    named.target_name_ = "price <€>"
    client = client_of(named, "bridge.twin")
    response = client.get("/")
    assert "<h1>Prediction of price &lt;€&gt;</h1>" in response.text
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert "{{" not in response.text
    assert not re.search(r"(src=|@import|url\()", response.text)


def test_the_form_starts_with_the_commonest_category(twin):
    rows = X.assign(material=pd.Categorical(["wood"] * 30 + ["brick"] * 9 + [None]))
    about = json_of(client_of(clone(twin).fit(rows, y), "bridge.twin").get("/about"))
    assert about["columns"][3]["choices"] == ["brick", "wood"]
    assert about["columns"][3]["middle"] == "wood"
    assert about["allow_missing"] is True


def test_the_form_starts_with_a_missing_value_where_most_rows_have_none():
    table = pd.DataFrame({
        "R1": [2.0] * 9 + [np.nan] * 11, "R2": [2.0] * 10 + [np.nan] * 10,
        "note": pd.Categorical(["check!", "ok?", *[None] * 18]),
        "sold (days)": [1.0, 2, 3, *[np.nan] * 17], "sold (weekday)": [5.0, 6, 7, *[np.nan] * 17],
    })  # fmt: skip
    model = TwinRegressor(HistGradientBoostingRegressor(max_iter=3)).fit(table, np.arange(20.0))
    client = client_of(model, "m")
    inputs = {each["name"]: each["middle"] for each in json_of(client.get("/about"))["inputs"]}
    assert inputs == {"R1": None, "R2": 2.0, "note": None, "sold": None}
    assert len(json_of(client.post("/predict", json={"rows": [inputs]}))["prediction"]) == 1


def post_concurrently(twin, requests):
    """Responses of an application to requests (url, rows) that are sent at the same time."""

    async def send():
        transport = httpx.ASGITransport(make_app(twin, "m"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.gather(
                *(client.post(url, json={"rows": rows}) for url, rows in requests)
            )

    return asyncio.run(send())


def parse_and_predict(model, rows):
    service = PredictionService(model, "m")
    return service.predict(service.read(rows_table(rows)), None)["prediction"]


def test_intervals_and_comparables_of_a_blend():
    members = ["ridge", ("twin", TwinRegressor(LinearRegression()))]
    blend = AutoTwinRegressor(members=members, random_state=0).fit(X, y)
    client = client_of(blend, "blend.twin")
    assert json_of(client.get("/about"))["calibrated_std"] is True
    response = json_of(client.post("/predict", json={"rows": [ROW], "confidence": 0.8}))
    (ends,) = blend.predict_interval(pd.DataFrame([ROW]).astype({"material": "category"}), 0.8)
    _, std = blend.predict(pd.DataFrame([ROW]).astype({"material": "category"}), return_std=True)
    assert [response["low"][0], response["high"][0]] == pytest.approx(list(ends), rel=1e-9)
    assert response["std"] == pytest.approx(list(std), rel=1e-9)
    (comparables,) = json_of(client.post("/explain", json={"rows": [ROW]}))["comparables"]
    assert len(comparables) == 8


def test_predictions_equal_those_of_the_model(client, twin):
    rows = [ROW, {**ROW, "material": "brick", "R1": "3.25"}]
    response = json_of(client.post("/predict", json={"rows": rows}))
    table = pd.DataFrame(rows).astype({"R1": float})
    table["material"] = pd.Categorical(table["material"], categories=["wood", "brick"])
    mean, std = twin.predict(table, return_std=True)
    np.testing.assert_array_equal(response["prediction"], mean)
    np.testing.assert_array_equal(response["std"], std)


@pytest.mark.filterwarnings("ignore::twinned.exceptions.UnknownCategoryWarning")
def test_new_categories_are_predicted_with_a_warning(client, twin):
    rows = [{**ROW, "material": " straw"}, ROW]
    table = pd.DataFrame([{**ROW, "material": "straw"}, ROW]).astype({"material": "category"})
    with pytest.warns(UnknownCategoryWarning) as caught:
        expected = twin.predict(table)
    message = str(caught[0].message)
    response = json_of(client.post("/predict", json={"rows": rows}))
    np.testing.assert_allclose(response["prediction"], expected, rtol=1e-12)
    assert response["warnings"] == [message]
    explained = json_of(client.post("/explain", json={"rows": rows}))
    assert explained["warnings"] == [message]
    assert explained["applicability"][0]["label"] == "outside"
    assert "warnings" not in json_of(client.post("/predict", json={"rows": [ROW]}))


def test_a_new_category_that_cannot_be_encoded_is_predicted_with_a_warning(client):
    body = json.dumps({"rows": [{**ROW, "material": "\ud800"}]}).encode()
    response = client.post("/predict", content=body)
    assert "'\\ud800' was not among the categories" in json_of(response)["warnings"][0]


def test_new_levels_of_an_ordered_category_are_refused():
    levels = pd.Categorical(["low", "high"] * 20, categories=["low", "high"], ordered=True)
    twin = TwinRegressor(LinearRegression()).fit(X.assign(material=levels), y)
    request = {"rows": [{**ROW, "material": "middle"}]}
    error = json_of(client_of(twin, "m").post("/predict", json=request), 422)["error"]
    assert "'material' has no level 'middle'; its levels are ['low', 'high']" in error


def test_intervals_of_a_model_that_stores_them(client):
    tree = DecisionTreeRegressor(max_depth=6, random_state=0)
    twin = twinned.cross_conformal(TwinRegressor(tree), X, y, cv=4)
    with_intervals = client_of(twin, "m")
    assert json_of(with_intervals.get("/about"))["intervals"]
    assert not json_of(client.get("/about"))["intervals"]
    request = {"rows": [ROW], "confidence": 0.8}
    response = json_of(with_intervals.post("/predict", json=request))
    table = pd.DataFrame([ROW])
    table["material"] = pd.Categorical(table["material"], categories=["brick", "wood"])
    low, high = twin.predict_interval(table, 0.8)[0]
    assert (response["low"][0], response["high"][0]) == pytest.approx((low, high))
    far = json_of(with_intervals.post("/predict", json={**request, "rows": [{**ROW, "U": 1e6}]}))
    assert (response["applicability"], far["applicability"]) == (["inside"], ["outside"])
    assert (
        "has no stored calibration" in json_of(client.post("/predict", json=request), 422)["error"]
    )
    for confidence, message in (
        (0.999, "needs at least 999 calibration rows"),
        (1, "'confidence' must be a number between 0 and 1, not 1"),
        ("x", "'confidence' must be a number between 0 and 1, not 'x'"),
    ):
        request = {"rows": [ROW], "confidence": confidence}
        error = json_of(with_intervals.post("/predict", json=request), 422)["error"]
        assert message in error


def test_concurrent_requests_get_their_own_predictions(twin):
    rows = [{**ROW, "U": float(u)} for u in np.linspace(1, 3, 40)]
    responses = post_concurrently(twin, [("/predict", [row, ROW]) for row in rows])
    table = pd.DataFrame([*rows, ROW])
    table["material"] = pd.Categorical(table["material"], categories=["brick", "wood"])
    expected = twin.predict(table)
    for response, own in zip(responses, expected[:-1], strict=True):
        first, last = response.json()["prediction"]
        assert first == pytest.approx(own, rel=1e-12)
        assert last == pytest.approx(expected[-1], rel=1e-12)


def test_comparables_add_up_and_have_feature_values(client, twin):
    rows = [ROW, {**ROW, "U": 1.25}]
    found = json_of(client.post("/explain", json={"rows": rows}))
    predicted = json_of(client.post("/predict", json={"rows": rows}))["prediction"]
    names = ("comparables", "others", "share", "comparables_estimate")
    for value, cases, others, share, alone in zip(predicted, *map(found.get, names), strict=True):
        weights = [case["weight"] for case in (*cases, others)]
        estimates = [case["estimate"] for case in (*cases, others)]
        assert sum(weights) == pytest.approx(1.0, rel=1e-12)
        assert np.dot(weights, estimates) == pytest.approx(value, rel=1e-9)
        assert np.dot(weights[:8], estimates[:8]) == pytest.approx(share * alone, rel=1e-9)
        assert sum(case["count"] for case in (*cases, others)) == len(twin.anchors_y_)
    comparables = found["comparables"][0]
    assert len(comparables) == 8
    for one in comparables:
        assert one["known"] == pytest.approx(twin.anchors_y_[one["anchor"]])
        assert one["estimate"] == pytest.approx(one["known"] + one["difference"])
        assert one["columns"]["material"] == X["material"].iloc[one["anchor"]]
        assert one["columns"]["U"] == X["U"].iloc[one["anchor"]]


@pytest.fixture(scope="module")
def dated():
    """A twin of a date's parts and of a feature with limits, as `twinned fit --date` names them."""
    dates = pd.date_range("2022-01-08", periods=40)
    days = (dates - pd.Timestamp(0)).days.to_numpy(float)
    table = pd.DataFrame({"lead": np.linspace(1, 9, 40), "lead (limit)": np.tile([0, -1.0], 20)})
    parts = {"sold (days)": days, "sold (weekday)": dates.dayofweek + 1.0}
    table = table.assign(**parts, kind=pd.Categorical(["1,5", "2,5"] * 20))
    return TwinRegressor(LinearRegression()).fit(table, days + table["lead"])


def test_a_row_has_a_date_and_limits_instead_of_features_made_from_them(dated):
    client = client_of(dated, "sales.twin")
    about = json_of(client.get("/about"))
    assert [own["name"] for own in about["inputs"]] == ["lead", "sold", "kind"]
    assert about["inputs"][1] == {"name": "sold", "kind": "date", "middle": "2022-01-27"}
    assert len(about["columns"]) == 5
    parts = {"lead": 2.5, "lead (limit)": -1, "sold (days)": 19_005, "sold (weekday)": 4}
    whole = {"lead": "<5", "sold": "2022-01-13"}  # a Thursday
    rows = [{**row, "kind": "1,5"} for row in (parts, whole)]
    results = [json_of(client.post("/predict", json={"rows": [row]})) for row in rows]
    assert results[0]["prediction"] == results[1]["prediction"]


def test_limits_are_read_as_in_training(dated):
    """A negative limit is not halved."""
    client = client_of(dated, "sales.twin")
    others = {"sold": "2022-01-13", "kind": "1,5"}
    rows = [{"lead": "<-5", **others}, {"lead": -5, "lead (limit)": -1, **others}]
    negative, same = (json_of(client.post("/predict", json={"rows": [row]})) for row in rows)
    assert negative["prediction"] == same["prediction"]


def test_columns_with_the_names_of_parts_are_features():
    """`age (days)` is no part of a date, and `load (limit)` marks no limits."""
    table = pd.DataFrame(np.random.RandomState(0).uniform(5, 50, (20, 4)).round())
    table.columns = ["age (days)", "age", "load", "load (limit)"]
    client = client_of(TwinRegressor(LinearRegression()).fit(table, table["load"]), "m")
    inputs = json_of(client.get("/about"))["inputs"]
    assert [own["name"] for own in inputs] == list(table)


def test_comparables_have_the_names_of_numeric_features(dated):
    row = {"lead": 2.0, "sold": "2022-01-13", "kind": "1,5"}
    (comparables,) = json_of(client_of(dated, "m").post("/explain", json={"rows": [row]}))[
        "comparables"
    ]
    for one in comparables:
        assert list(one["columns"]) == list(one["adjustments"]) == list(dated.feature_names_in_)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"lead": 1},
            "the request has no column 'sold', 'kind' (features of sales.twin); its columns are "
            "'lead'.",
        ),
        (
            {"lead": 1, "sold": "soon"},
            "the request, row 1, column 'sold': 'soon' is no date in the notation of the others, "
            "such as 2024-01-31.",
        ),
        (
            {"lead": 1, "sold": None},
            "the request, row 1, column 'sold' has no value, and sales.twin takes no missing "
            "values.",
        ),
        (
            {"lead": 1, "sold": "01/02/2024"},
            "the request, column 'sold': '01/02/2024' may have the day or the month first; "
            "write 2024-01-31.",
        ),
        (
            {"lead": "<x", "sold": "2024-01-31"},
            "the request, row 1, column 'lead': '<x' is text in a numeric column; write a number "
            "such as 1.5.",
        ),
    ],
)
def test_a_wrong_date_or_limit_is_named(dated, row, message):
    row = row if "sold" not in row else {**row, "kind": "1,5"}
    response = client_of(dated, "sales.twin").post("/predict", json={"rows": [row]})
    assert json_of(response, 422)["error"] == message


def test_dates_of_several_notations_are_refused(dated):
    rows = [{"lead": 1, "kind": "1,5", "sold": own} for own in ("26.08.2023", "2023-08-26")]
    response = client_of(dated, "sales.twin").post("/predict", json={"rows": rows})
    error = json_of(response, 422)["error"]
    assert "row 2, column 'sold': '2023-08-26' is no date in the notation of the others" in error


def test_a_missing_date_is_a_missing_value():
    days = [1.0, 2, 3, np.nan] * 5  # from a Friday
    dates = pd.DataFrame({"sold (days)": days, "sold (weekday)": [5.0, 6, 7, np.nan] * 5})
    model = TwinRegressor(HistGradientBoostingRegressor()).fit(dates, np.arange(20.0))
    rows = [{"sold": ""}, {"sold": None}, {"sold (days)": None, "sold (weekday)": None}]
    client = client_of(model, "m")
    results = [json_of(client.post("/predict", json={"rows": [row]})) for row in rows]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("x")])
def test_every_error_of_a_thread_becomes_an_answer(twin, monkeypatch, error):
    def fail(*arguments, **options):
        raise error

    for name in ("predict", "explain"):
        monkeypatch.setattr(PredictionService, name, fail)
    app = make_app(twin, "m")
    client = testclient.TestClient(app, "http://localhost", raise_server_exceptions=False)
    for url in ("/predict", "/explain"):
        answer = json_of(client.post(url, json={"rows": [ROW]}), 500)
        assert answer == {"error": "the service failed on this request; see its log."}


def test_log_target_is_returned_in_units_of_y():
    model = TransformedTargetTwin(
        TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0))
    ).fit(X, np.exp(y))
    service = PredictionService(model, "m")
    rows = service.read(rows_table([ROW]))
    assert service.predict(rows, None)["prediction"][0] > 0
    (comparables,) = service.explain(rows)["comparables"]
    assert comparables[0]["known"] == pytest.approx(np.exp(y.iloc[comparables[0]["anchor"]]))


def test_missing_values_only_where_the_model_supports_them():
    with pytest.raises(ValueError, match="row 1, column 'U' has no value"):
        parse_and_predict(TwinRegressor(LinearRegression()).fit(X, y), [{**ROW, "U": None}])
    boosted = TwinRegressor(HistGradientBoostingRegressor(max_iter=3), pairs=4)
    assert np.isfinite(parse_and_predict(boosted.fit(X, y), [{**ROW, "U": ""}])).all()
    nearest = TwinRegressor(HistGradientBoostingRegressor(max_iter=3), anchors=NearestAnchors(4))
    with pytest.raises(ValueError, match="has no value"):
        parse_and_predict(nearest.fit(X, y), [{**ROW, "U": None}])


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "JSON"),
        (b"\xff\xfe", 400, "JSON"),
        (b"[" * 5000, 400, "JSON"),
        (b"[]", 422, "rows"),
        (b'{"rows": 3}', 422, "rows"),
        (b'{"rows": []}', 422, "'rows' must be a list of rows, not []"),
        (b'{"rows": [3]}', 422, "'rows', item 1 must be an object, not 3"),
        (b'{"rows": [{"U": 1}]}', 422, "has no column 'R1', 'R2', 'material'"),
        (json.dumps({"rows": [ROW, {"U": 1}]}).encode(), 422, "row 2 lacks 'R1'"),
        (json.dumps({"rows": [{**ROW, "U": "high"}]}).encode(), 422, "'U': 'high' is text"),
        (json.dumps({"rows": [{**ROW, "U": [1]}]}).encode(), 422, "'U' must be a number or text"),
        (json.dumps({"rows": [{**ROW, "U": "1,5"}]}).encode(), 422, "write a number such as 1.5"),
        (json.dumps({"rows": [ROW, {**ROW, "U": 1e400}]}).encode(), 422, "row 2, column 'U'"),
        (json.dumps({"rows": [{**ROW, "U": "1_0"}]}).encode(), 422, "'U': '1_0' is text"),
        (json.dumps({"rows": [ROW], "confidence": "high"}).encode(), 422, "confidence"),
        (json.dumps({"rows": [{**ROW, "material": ["straw"]}]}).encode(), 422, "number or text"),
        (json.dumps({"rows": [ROW], "path": "/etc"}).encode(), 422, "'path'"),
        (json.dumps({"rows": [ROW] * 1001}).encode(), 413, "too many"),
        (b" " * 1_000_001, 413, "larger than"),
    ],
)
def test_a_bad_request_gets_one_sentence(client, body, status, message):
    for url in ("/predict", "/explain"):
        error = json_of(client.post(url, content=body), status)["error"]
        assert message in error
        assert "\n" not in error
        assert len(error) < 300


def test_a_value_too_large_for_the_model_fails_only_its_own_request(twin):
    rows = [{**ROW, "U": u} for u in (1.0, 1e200, 2.0)]
    requests = [("/predict", [row]) for row in rows] + [("/explain", [rows[1]])]
    responses = post_concurrently(twin, requests)
    assert [response.status_code for response in responses] == [200, 422, 200, 422]


def test_errors_of_the_model_are_logged_with_their_traceback(client, caplog):
    with caplog.at_level("DEBUG", "twinned"):
        response = client.post("/predict", json={"rows": [{**ROW, "U": 1e200}]})
    assert "is not a finite number" in json_of(response, 422)["error"]
    assert issubclass(caplog.records[-1].exc_info[0], ValueError)


@pytest.mark.parametrize("text", ["2", " 2.0 ", "+2.", "20e-1", ".2E1", "00200e-2"])
def test_numbers_as_text(client, text):
    expected = json_of(client.post("/predict", json={"rows": [ROW]}))
    assert json_of(client.post("/predict", json={"rows": [{**ROW, "U": text}]})) == expected


def test_a_prediction_that_overflows_is_an_error():
    frame = pd.DataFrame({"a": np.arange(20.0)})
    twin = TwinRegressor(LinearRegression())
    model = TransformedTargetTwin(twin)
    client = client_of(model.fit(frame, np.exp(30 * frame["a"])), "m")
    for url in ("/predict", "/explain"):
        error = json_of(client.post(url, json={"rows": [{"a": 1}, {"a": 90}]}), 422)["error"]
        assert error == "a prediction is not a finite number."


def test_category_named_none_and_booleans():
    frame = pd.DataFrame({"a": [True, False] * 10, "c": pd.Categorical(["none", "brick"] * 10)})
    values = np.tile([5.0, 1.0], 10)
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(frame, values)
    rows = [{"a": "true", "c": "none"}, {"a": False, "c": " brick"}]
    assert parse_and_predict(twin, rows) == pytest.approx([5.0, 1.0])


def test_models_that_cannot_be_served():
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    geometric = TransformedTargetRegressor(twin, func=np.log, inverse_func=np.exp).fit(X, np.exp(y))
    with pytest.raises(ValueError, match="a TransformedTargetRegressor, which is no twin"):
        PredictionService(geometric, "m")
    with pytest.raises(ValueError, match="single target"):
        PredictionService(twin.fit(X, np.column_stack([y, y])), "m")


def test_only_local_host_names_are_accepted(client):
    assert client.get("/about", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/about", headers={"Host": "127.0.0.1:8000"}).status_code == 200
    assert client.get("/../etc/passwd").status_code == 404
    assert client.get("/predict").status_code == 405


def test_features_may_be_called_like_results():
    """As `anchor` of comparables."""
    names = ["predicted", "distance", "anchor", "prediction", "reached"]
    table = pd.DataFrame(np.random.RandomState(0).uniform(1, 2, (30, 5)), columns=names)
    model = TwinRegressor(LinearRegression()).fit(table, table.sum(axis=1))
    client, row = client_of(model, "m"), dict.fromkeys(names, 1.5)
    predicted = json_of(client.post("/predict", json={"rows": [row]}))["prediction"]
    assert predicted == pytest.approx([7.5], abs=1e-6)
    (cases,) = json_of(client.post("/explain", json={"rows": [row]}))["comparables"]
    assert set(cases[0]["columns"]) == set(names)


def test_the_first_of_several_errors_is_reported(client):
    rows = [{**ROW, "U": "high", "R1": "low"}, ROW, 3]
    assert "column 'U'" in json_of(client.post("/predict", json={"rows": rows[:2]}), 422)["error"]
    assert "item 3" in json_of(client.post("/predict", json={"rows": rows}), 422)["error"]
    request = {"rows": rows[:2], "confidence": 7}
    assert "confidence" in json_of(client.post("/predict", json=request), 422)["error"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
cells = st.sampled_from([1.0, -2, "3", "wood", "", None, "1e999", 1e308]) | anything
plausible_rows = st.fixed_dictionaries(dict.fromkeys(ROW, cells))
requests = (
    st.fixed_dictionaries(
        {"rows": st.lists(plausible_rows | anything, max_size=3)},
        optional={"confidence": st.floats() | anything},
    )
    | anything
)


@pytest.mark.parametrize("url", ["/predict", "/explain"])
@given(request=requests)
def test_any_request_gets_a_result_or_an_error(client, url, request):
    response = client.post(url, content=json.dumps(request).encode())
    assert response.status_code in (200, 400, 413, 422)
    if response.status_code != 200:
        assert response.json()["error"]


@pytest.mark.slow
@given(request=requests, url=st.sampled_from(["/predict", "/explain"]))
@settings(max_examples=10_000)
def test_ten_thousand_requests(client, url, request):
    response = client.post(url, content=json.dumps(request).encode())
    assert response.status_code in (200, 400, 413, 422)


def test_the_command_serves_on_loopback(tmp_path):
    save(TwinRegressor(LinearRegression()).fit(X, y), tmp_path / "m.twin")
    source = str(Path(twinned.__file__).resolve().parents[1])
    command = [sys.executable, "-m", "twinned", "serve", "m.twin", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={
            "PYTHONPATH": source, "PYTHONUNBUFFERED": "1", "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
        },
    ) as process:  # fmt: skip
        try:
            url = process.stdout.readline().split()[0]
            for _ in range(100):
                try:
                    about = json.load(urllib.request.urlopen(f"{url}/about", timeout=5))
                    break
                except OSError:
                    time.sleep(0.1)
            assert about["anchors"] == 40
            assert [column["name"] for column in about["columns"]] == list(ROW)
            body = json.dumps({"rows": [{**ROW, "material": "straw"}]}).encode()
            assert (
                "'straw'"
                in json.load(urllib.request.urlopen(f"{url}/predict", body))["warnings"][0]
            )
        finally:
            process.terminate()
        assert "Warning" not in process.stderr.read()  # it is part of the response


def test_a_port_in_use_is_reported(twin, tmp_path):
    save(twin, tmp_path / "m.twin")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = CliRunner().invoke(app, ["serve", str(tmp_path / "m.twin"), "--port", port])
    assert result.exit_code == 2
    assert f"port {port} is taken" in result.stderr


def test_adjustments_add_up_and_labels_are_retained():
    labelled = X.set_axis([f"house {i}" for i in range(len(X))])
    tree = TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0))
    logarithm = TransformedTargetTwin(tree)
    for model, target in ((tree, y), (logarithm, np.exp(y))):
        service = PredictionService(model.fit(labelled, target), "m")
        (comparables,) = service.explain(service.read(rows_table([ROW])))["comparables"]
        for one in comparables:
            assert one["label"] == f"house {one['anchor']}"
            assert set(one["adjustments"]) == set(X.columns)
            total = sum(one["adjustments"].values())
            assert total == pytest.approx(one["difference"], abs=1e-9)
        many = service.explain(service.read(rows_table([ROW] * 21)))
        assert "adjustments" not in many["comparables"][20][0]


def test_rows_outside_are_marked(client, twin):
    rows = [ROW, {**ROW, "U": 1e6}]
    found = json_of(client.post("/explain", json={"rows": rows}))
    assert [own["label"] for own in found["applicability"]][1] == "outside"
    assert found["applicability"][0]["score"] < found["applicability"][1]["score"]
    assert found["share"] == pytest.approx([8 / len(twin.anchors_y_)] * 2)
