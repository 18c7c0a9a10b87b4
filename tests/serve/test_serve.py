"""The service answers what the model says, and refuses the rest in one sentence."""

import csv
import io
import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned import NearestAnchors, TwinRegressor, save
from twinned.datasets import make_wsb
from twinned.serve.requests import Wrong
from twinned.serve.service import Answers

pytest.importorskip("httpx", reason="httpx is in the extra `test`")
testclient = pytest.importorskip("starlette.testclient", reason="starlette is in the extra `serve`")

X, y = make_wsb(40, random_state=0)
X = X.iloc[:, :3].assign(material=pd.Categorical(["wood", "brick"] * 20))
ROW = {"U": 2.0, "R1": 1.5, "R2": 2.5, "material": "wood"}


def fitted():
    return TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0)).fit(X, y)


@pytest.fixture(scope="module")
def twin():
    return fitted()


@pytest.fixture(scope="module")
def client(twin):
    from twinned.serve import make_app

    return testclient.TestClient(make_app(twin, "bridge.twin"), base_url="http://localhost")


def told(response, status=200):
    assert response.status_code == status, response.text
    return response.json()


def test_predictions_are_those_of_the_model(client, twin):
    rows = [ROW, {**ROW, "material": "brick", "R1": "3.25"}]
    answer = told(client.post("/predict", json={"rows": rows}))
    table = pd.DataFrame(rows).astype({"R1": float})
    table["material"] = pd.Categorical(table["material"], categories=["wood", "brick"])
    mean, std = twin.predict(table, return_std=True)
    np.testing.assert_array_equal(answer["prediction"], mean)
    np.testing.assert_array_equal(answer["std"], std)


def test_intervals_where_the_model_keeps_scores(client):
    from twinned.serve import make_app

    tree = DecisionTreeRegressor(max_depth=6, random_state=0)
    twin = twinned.cross_conformal(TwinRegressor(tree), X, y, cv=4).store_in()
    asked = testclient.TestClient(make_app(twin, "m"), base_url="http://localhost")
    assert told(asked.get("/about"))["intervals"]
    assert not told(client.get("/about"))["intervals"]
    answer = told(asked.post("/predict", json={"rows": [ROW], "confidence": 0.8}))
    table = pd.DataFrame([ROW])
    table["material"] = pd.Categorical(table["material"], categories=["brick", "wood"])
    low, high = twin.predict_interval(table, 0.8)[0]
    assert (answer["low"][0], answer["high"][0]) == (low, high)
    text = asked.post("/batch?confidence=0.8", content=table.to_csv(index=False)).text
    (row,) = csv.DictReader(io.StringIO(text))
    assert (float(row["low"]), float(row["high"])) == (low, high)
    for confidence, words in ((0.999, "needs 999 calibration points"), (1, "between 0 and 1")):
        question = {"rows": [ROW], "confidence": confidence}
        assert words in told(asked.post("/predict", json=question), 422)["error"]
    question = {"rows": [ROW], "confidence": 0.8}
    assert "keeps no scores" in told(client.post("/predict", json=question), 422)["error"]
    assert "between" in told(asked.post("/batch?confidence=x", content="U"), 422)["error"]


def test_requests_at_the_same_time_get_their_own_answers(twin):
    import asyncio

    import httpx

    from twinned.serve import make_app

    rows = [{**ROW, "U": float(u)} for u in np.linspace(1, 3, 40)]

    async def ask():
        transport = httpx.ASGITransport(make_app(twin, "m"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [client.post("/predict", json={"rows": [row, ROW]}) for row in rows]
            return [response.json()["prediction"] for response in await asyncio.gather(*asked)]

    table = pd.DataFrame([*rows, ROW])
    table["material"] = pd.Categorical(table["material"], categories=["brick", "wood"])
    expected = twin.predict(table)
    for (mine, shared), own in zip(asyncio.run(ask()), expected[:-1], strict=True):
        assert mine == pytest.approx(own, rel=1e-12)
        assert shared == pytest.approx(expected[-1], rel=1e-12)


def test_comparables_add_up_and_carry_names(client, twin):
    (near,) = told(client.post("/explain", json={"rows": [ROW]}))["comparables"]
    assert len(near) == 8
    for one in near:
        assert one["known"] == pytest.approx(twin.anchors_y_[one["anchor"]])
        assert one["estimate"] == pytest.approx(one["known"] + one["difference"])
        assert one["columns"]["material"] == X["material"].iloc[one["anchor"]]
        assert one["columns"]["U"] == X["U"].iloc[one["anchor"]]


def test_a_table_comes_back_with_two_more_columns(client):
    text = X.to_csv(index=False)
    response = client.post("/batch", content=text, headers={"Content-Type": "text/csv"})
    assert response.status_code == 200
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert len(rows) == 40
    direct = told(client.post("/predict", json={"rows": json.loads(X.to_json(orient="records"))}))
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], direct["prediction"])


def test_a_logarithm_is_told_in_units_of_the_target():
    model = TransformedTargetRegressor(
        TwinRegressor(DecisionTreeRegressor(max_depth=6, random_state=0)),
        func=np.log,
        inverse_func=np.exp,
    ).fit(X, np.exp(y))
    answers = Answers(model, "m")
    values = answers.checked([ROW])
    assert answers.shown(answers.predict(values), None)["prediction"][0] > 0
    (near,) = answers.explain([ROW])["comparables"]
    assert near[0]["known"] == pytest.approx(np.exp(y.iloc[near[0]["anchor"]]))


def test_missing_values_where_the_model_takes_them():
    linear = Answers(TwinRegressor(LinearRegression()).fit(X, y), "m")
    with pytest.raises(Wrong, match="row 1: 'U' has no value"):
        linear.checked([{**ROW, "U": None}])
    boosted = TwinRegressor(HistGradientBoostingRegressor(max_iter=3), pairs=4).fit(X, y)
    answers = Answers(boosted, "m")
    assert np.isfinite(answers.predict(answers.checked([{**ROW, "U": ""}])).mean).all()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "JSON"),
        (b"\xff\xfe", 400, "JSON"),
        (b"[" * 5000, 400, "JSON"),
        (b"[]", 422, "rows"),
        (b'{"rows": 3}', 422, "rows"),
        (b'{"rows": []}', 422, "no rows"),
        (b'{"rows": [3]}', 422, "row 1 must be an object"),
        (b'{"rows": [{"U": 1}]}', 422, "lacks"),
        (json.dumps({"rows": [{**ROW, "U": "high"}]}).encode(), 422, "'U' must be a number"),
        (json.dumps({"rows": [{**ROW, "U": [1]}]}).encode(), 422, "'U' must be a number"),
        (json.dumps({"rows": [{**ROW, "U": 1e400}]}).encode(), 400, "JSON"),
        (json.dumps({"rows": [{**ROW, "material": "straw"}]}).encode(), 422, "brick, wood"),
        (json.dumps({"rows": [ROW], "path": "/etc"}).encode(), 422, "'path'"),
        (json.dumps({"rows": [ROW] * 1001}).encode(), 413, "too many"),
        (b" " * 1_000_001, 413, "larger than"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(client, body, status, words):
    for where in ("/predict", "/explain"):
        error = told(client.post(where, content=body), status)["error"]
        assert words in error
        assert "\n" not in error
        assert len(error) < 300


def test_a_value_too_large_for_the_model_hurts_nobody_else(twin):
    import asyncio

    import httpx

    from twinned.serve import make_app

    async def ask():
        transport = httpx.ASGITransport(make_app(twin, "m"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            rows = [{**ROW, "U": u} for u in (1.0, 1e200, 2.0)]
            asked = [client.post("/predict", json={"rows": [row]}) for row in rows]
            asked.append(client.post("/explain", json={"rows": [rows[1]]}))
            return [response.status_code for response in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == [200, 422, 200, 422]


def test_names_that_look_missing_and_truths():
    frame = pd.DataFrame({"a": [True, False] * 10, "c": pd.Categorical(["none", "brick"] * 10)})
    values = np.tile([5.0, 1.0], 10)
    answers = Answers(TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(frame, values), "m")
    rows = [{"a": "true", "c": "none"}, {"a": False, "c": " brick"}]
    assert answers.predict(answers.checked(rows))[0] == pytest.approx([5.0, 1.0])


def test_what_cannot_be_served_is_told():
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0))
    squared = TransformedTargetRegressor(twin, func=np.sqrt, inverse_func=np.square).fit(X, y**2)
    with pytest.raises(ValueError, match="otherwise than by log"):
        Answers(squared, "m")
    near = TwinRegressor(HistGradientBoostingRegressor(max_iter=3), anchors=NearestAnchors(4))
    with pytest.raises(Wrong, match="has no value"):
        Answers(near.fit(X, y), "m").checked([{**ROW, "U": None}])


@pytest.mark.parametrize(
    "body", [b"", b"U,U\n1,2\n", b"a,b\n1", b'"U', b"\xff", b"U,R1,R2,material\n1,2,x,wood\n"]
)
def test_a_bad_table_is_told(client, body):
    response = client.post("/batch", content=body)
    assert response.status_code in (400, 422)
    assert response.json()["error"]


def test_only_local_names_are_answered(client):
    assert client.get("/about", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/about", headers={"Host": "127.0.0.1:8000"}).status_code == 200
    assert client.get("/../etc/passwd").status_code == 404
    assert client.get("/predict").status_code == 405


def test_the_description_names_the_columns(client):
    described = told(client.get("/openapi.json"))
    assert set(described["paths"]) == {"/about", "/predict", "/explain", "/batch"}
    content = described["paths"]["/predict"]["post"]["requestBody"]["content"]
    row = content["application/json"]["schema"]["properties"]["rows"]["items"]
    assert row["required"] == list(ROW)
    assert row["properties"]["material"]["enum"] == ["brick", "wood"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
cells = st.sampled_from([1.0, -2, "3", "wood", "", None, "1e999", 1e308]) | anything
nearly = st.fixed_dictionaries(dict.fromkeys(ROW, cells))
requests = (
    st.fixed_dictionaries(
        {"rows": st.lists(nearly | anything, max_size=3)},
        optional={"confidence": st.floats() | anything},
    )
    | anything
)
quickly = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@pytest.mark.parametrize("where", ["/predict", "/explain", "/batch"])
@given(request=requests)
@settings(max_examples=60, **quickly)
def test_no_request_breaks_it(client, where, request):
    response = client.post(where, content=json.dumps(request).encode())
    assert response.status_code in (200, 400, 413, 422)
    if response.status_code != 200:
        assert response.json()["error"]


@pytest.mark.slow
@given(request=requests, where=st.sampled_from(["/predict", "/explain", "/batch"]))
@settings(max_examples=10_000, **quickly)
def test_ten_thousand_requests(client, where, request):
    response = client.post(where, content=json.dumps(request).encode())
    assert response.status_code in (200, 400, 413, 422)


def test_the_command_serves_on_loopback(tmp_path):
    save(fitted(), tmp_path / "m.twin")
    home = str(Path(twinned.__file__).resolve().parents[1])
    command = [sys.executable, "-m", "twinned.cli", "serve", "m.twin", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env={"PYTHONPATH": home, "PYTHONUNBUFFERED": "1", "PATH": "/usr/bin:/bin"},
    ) as process:  # fmt: skip
        try:
            place = process.stdout.readline().split()[0]
            for _ in range(100):
                try:
                    about = json.load(urllib.request.urlopen(f"{place}/about", timeout=5))
                    break
                except OSError:
                    time.sleep(0.1)
            assert about["anchors"] == 40
            assert [column["name"] for column in about["columns"]] == list(ROW)
        finally:
            process.terminate()


def test_a_port_that_is_taken_is_told(tmp_path):
    from typer.testing import CliRunner

    from twinned.cli import app

    save(fitted(), tmp_path / "m.twin")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = CliRunner().invoke(app, ["serve", str(tmp_path / "m.twin"), "--port", port])
    assert result.exit_code == 2
    assert f"port {port} is taken" in result.stderr
