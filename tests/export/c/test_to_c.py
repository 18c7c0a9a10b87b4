"""Exported headers: compiled, they predict as the models do."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from tests.export.c.conftest import ADDRESS_SANITIZER, SANITIZERS, WARNINGS, make_rows
from tests.export.conftest import with_local_power
from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    TransformedTargetTwin,
    TwinRegressor,
    conformal,
)
from twinned.export.c import to_c
from twinned.export.thinning import thin

BASES = {
    "tree": DecisionTreeRegressor(max_depth=6, random_state=0),
    "forest": RandomForestRegressor(5, min_samples_leaf=3, random_state=0),
    "extra trees": ExtraTreesRegressor(5, min_samples_leaf=3, random_state=0),
    "gradient boosting": GradientBoostingRegressor(n_estimators=10, random_state=0),
    "boosting": HistGradientBoostingRegressor(max_iter=20),
}


@pytest.fixture(scope="module")
def boosted(training_rows):
    return TwinRegressor(BASES["boosting"], random_state=0).fit(*training_rows)


def assert_close(compiled, model, queries, tolerance=1e-5):
    mean, std = model.predict(queries, return_std=True)
    spread = np.std(mean)
    # a difference that is rounded may cross a threshold; that is rare
    apart = np.abs(compiled.mean - mean)
    assert np.quantile(apart, 0.995) < tolerance * spread, np.sort(apart)[-5:] / spread
    assert np.quantile(np.abs(compiled.std - std), 0.995) < 10 * tolerance * spread


# other tests have a single tree, and extra trees are exported as forests are
@pytest.mark.parametrize(
    "base",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("tree", "extra trees") else ())
        for name in BASES
    ],
)
def test_twins_over_scikit_learn_regressors(base, training_rows, queries, run_c):
    twin = TwinRegressor(BASES[base], pairs=20, random_state=0).fit(*training_rows)
    assert_close(run_c(twin, queries, flags=SANITIZERS), twin, queries)


@pytest.mark.parametrize("kind", ["concat", "difference"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_pair_features_and_orders(kind, symmetric, training_rows, queries, run_c):
    twin = TwinRegressor(
        BASES["tree"], pair_features=kind, symmetric=symmetric, random_state=0
    ).fit(*training_rows)
    assert_close(run_c(twin, queries), twin, queries)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_and_the_nearest_anchor(compiler, boosted, queries, run_c):
    compiled = run_c(boosted, queries, compiler, SANITIZERS if compiler == "gcc" else ())
    assert_close(compiled, boosted, queries)
    nearest = boosted.explain(queries, n=1)["anchor"].to_numpy()[::2]  # without all others
    np.testing.assert_array_equal(compiled.nearest, nearest)


def test_sample_weights(training_rows, queries, run_c):
    X, y = training_rows
    weight = np.random.RandomState(0).uniform(size=len(y))
    twin = TwinRegressor(BASES["tree"], random_state=0).fit(X, y, sample_weight=weight)
    assert_close(run_c(twin, queries), twin, queries)


@pytest.mark.parametrize(
    ("local_power", "weighted"),
    [
        (0.0, True),
        (1.0, False),
        (4.0, True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(0.0, False), (1.0, True), (4.0, False)]
        ),
    ],
)
def test_residuals_of_anchors(local_power, weighted, queries, run_c):
    """Of twins with out-of-fold residuals, also after new anchors, whose mean residual is not 0."""
    X, y = make_rows(60)
    X[:3, 1] = np.nan
    weight = np.random.RandomState(0).uniform(size=len(y)) if weighted else None
    base = HistGradientBoostingRegressor(max_iter=5)
    twin = TwinRegressor(base, pairs=10, cv=4, random_state=0).fit(X, y, sample_weight=weight)
    twin = with_local_power(twin, local_power).add_anchors(queries[:9], np.full(9, 34.0))
    rows = np.concatenate([queries, X])  # some equal an anchor
    compiled = run_c(twin, rows, flags=SANITIZERS)
    assert_close(compiled, twin, rows, tolerance=2e-4)  # weights of near anchors differ much
    metric = twin.fitted_.anchors.metric
    apart = metric.transform(rows)[:, None] - metric.transform(twin.anchors_X_)
    distances = np.linalg.norm(apart, axis=2)
    of_nearest = distances[np.arange(len(rows)), compiled.nearest.astype(int)]
    np.testing.assert_allclose(of_nearest, distances.min(axis=1), atol=1e-5)


def test_local_weights_of_categories(run_c):
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"size": make_rows(80)[0][:, 0], "kind": rng.choice(list("uvw"), 80)})
    y = X["size"] * (1.0 + (X["kind"] == "w"))
    base = HistGradientBoostingRegressor(max_iter=5)
    twin = TwinRegressor(base, pairs=10, cv=4, random_state=0).fit(X, y)
    twin = with_local_power(twin, 2.0)
    codes = np.column_stack([X["size"], X["kind"].map({"u": 0, "v": 1, "w": 2})])
    codes[40:, 0] += 0.25
    table = X.assign(size=codes[:, 0])
    assert_close(run_c(twin, codes, flags=SANITIZERS), twin, table)


def test_thinned_twin_and_its_comparables(boosted, queries, run_c):
    small = thin(boosted, 8)
    compiled = run_c(small, queries)
    assert compiled.report.n_anchors == 8
    assert_close(compiled, small, queries)
    anchors, metric = small.fitted_.anchors.features, small.fitted_.anchors.metric
    apart = metric.transform(queries)[:, None] - metric.transform(anchors)
    np.testing.assert_array_equal(compiled.nearest, (apart**2).sum(axis=2).argmin(axis=1))


def test_categories_missing_values_and_unknown_categories(run_c):
    rng = np.random.RandomState(0)
    kind = rng.choice(["brick", 'clay */ "?', "wood"], size=80)
    size = rng.uniform(1, 3, size=80).astype(np.float32)
    X = pd.DataFrame({"kind": pd.Categorical(kind), "size": size, 'odd "name" \\ ü': size**2})
    y = X["size"] * (1.0 + (X["kind"] == "wood"))
    X.loc[:15, "size"] = np.nan
    X.loc[16:20, "kind"] = None
    twin = TwinRegressor(HistGradientBoostingRegressor(max_iter=20), random_state=0).fit(X, y)
    codes = np.column_stack([rng.randint(4, size=200), rng.uniform(0, 4, size=(200, 2))])
    codes[:40, 1] = codes[20:60, 0] = np.nan
    codes = codes.astype(np.float32).astype(np.float64)
    names = np.array(["brick", 'clay */ "?', "wood", "straw"], dtype=object)
    known = pd.Categorical(
        [None if np.isnan(code) else names[int(code)] for code in codes[:, 0]], categories=names
    )
    table = pd.DataFrame({"kind": known, "size": codes[:, 1], 'odd "name" \\ ü': codes[:, 2]})
    with pytest.warns(UserWarning, match="straw"):
        expected = twin.predict(table)
    compiled = run_c(twin, codes, flags=SANITIZERS)
    assert np.quantile(np.abs(compiled.mean - expected), 0.99) < 1e-5 * np.std(expected)


def test_intervals_are_those_of_split_conformal_prediction(boosted, queries, run_c):
    X = queries[:150]
    y = boosted.predict(X) + np.sin(9 * X[:, 0])
    compiled = run_c(conformal(boosted, X, y), queries)
    assert (compiled.interval_status == 0).all()
    same = conformal(boosted, X, y).predict_interval(queries, 0.9)
    np.testing.assert_allclose(compiled.interval, same, rtol=1e-3, atol=1e-3)
    expected = conformal(boosted, X, y, width="constant").predict_interval(queries, 0.9)
    width = np.diff(compiled.interval, axis=1).mean()
    assert 0.3 < width / np.diff(expected, axis=1).mean() < 3
    inside = (compiled.interval[:150, 0] <= y) & (y <= compiled.interval[:150, 1])
    assert 0.9 <= inside.mean() < 0.93  # rows of the calibration: exact up to one rank


def test_interval_without_calibration(boosted, queries, run_c):
    assert (run_c(boosted, queries[:2]).interval_status == 1).all()


def test_report_and_defines(boosted, tmp_path):
    report = to_c(thin(boosted, 4), tmp_path / "a.h", name="pump")
    text = (tmp_path / "a.h").read_text()
    assert f"#define PUMP_FLASH_BYTES {report.flash_bytes}\n" in text
    assert f"#define PUMP_RAM_BYTES {report.ram_bytes}\n" in text
    assert report.max_difference < 1e-5
    every = to_c(boosted, tmp_path / "b.h")
    assert every.n_anchors == 40
    # three features, a value and a weight in float32
    assert every.flash_bytes - report.flash_bytes == 36 * 4 * 5


def test_names_are_written_as_they_are(tmp_path, rng):
    table = pd.DataFrame(rng.normal(size=(20, 2)), columns=["flow @25", "a@b"])
    twin = TwinRegressor(BASES["tree"]).fit(table, table["a@b"])
    text = to_c(twin, tmp_path / "a.h", name="m").path.read_text("utf-8")
    assert "x[0] flow @25\n" in text
    assert '"a@b"' in text


@pytest.mark.parametrize("early_stopping", [False, True])
def test_no_threshold_is_at_a_difference_of_rows(tmp_path, rng, early_stopping):
    """Or rounding to float32 would change predictions of features with few decimals."""
    X = np.repeat(np.round(rng.uniform(0, 10, (30, 2)), 1), 2, axis=0)  # with replicates
    boosting = HistGradientBoostingRegressor(max_iter=20, early_stopping=early_stopping)
    twin = TwinRegressor(boosting, random_state=0).fit(X, np.sin(X[:, 0]) + X[:, 1])
    assert to_c(twin, tmp_path / "a.h").max_difference < 1e-6


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_program_of_the_documentation(training_rows, tmp_path):
    page = Path(__file__).parents[3] / "docs" / "microcontrollers.md"
    (program,) = re.findall(r"^```c\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    X, y = training_rows
    twin = TwinRegressor(BASES["tree"]).fit(X[:, :2], y)
    small = conformal(thin(twin, 4), X[:, :2], y)
    to_c(small, tmp_path / "valve.h", name="valve")
    (tmp_path / "main.c").write_text(program)
    command = ["gcc", *WARNINGS, "-o", tmp_path / "main", tmp_path / "main.c", "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True)
    predicted = float(done.stdout.split(",")[0])
    assert predicted == pytest.approx(small.predict([[0.3, -1.2]])[0], abs=1e-5)
    assert "90 % interval" in done.stdout


@pytest.mark.parametrize("name", ["", "1a", "a b", "naïve"])
def test_name_must_be_an_identifier(name, boosted, tmp_path):
    with pytest.raises(ValueError, match="identifier"):
        to_c(boosted, tmp_path / "a.h", name=name)


def test_refusals_name_the_reason(training_rows, boosted, tmp_path):
    X, y = training_rows
    path = tmp_path / "a.h"
    with pytest.raises(TypeError, match="KNeighborsRegressor"):
        to_c(TwinRegressor(KNeighborsRegressor(), pairs=4).fit(X, y), path)
    with pytest.raises(TypeError, match=r"does not support AutoTwinRegressor; .* --model twin"):
        to_c(AutoTwinRegressor(members=["ridge"], cv=2).fit(X, y), path)
    with pytest.raises(TypeError, match="y has 2 outputs"):
        to_c(TwinRegressor(BASES["tree"]).fit(X, np.column_stack([y, y])), path)
    nearest = TwinRegressor(BASES["tree"], anchors=NearestAnchors(3)).fit(X, y)
    with pytest.raises(TypeError, match="NearestAnchors"):
        to_c(nearest, path)
    with pytest.raises(TypeError, match="Distance"):
        to_c(TwinRegressor(BASES["tree"], weights="distance").fit(X, y), path)
    with pytest.raises(TypeError, match="transformed target"):
        to_c(TransformedTargetTwin(TwinRegressor(BASES["tree"])).fit(X, y), path)
    assert not path.exists()
    assert to_c(thin(nearest, 5), path).n_anchors == 5


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_access_outside_of_arrays(boosted, compiler, queries, run_c):
    run_c(boosted, queries, compiler, ADDRESS_SANITIZER)


@pytest.mark.slow
def test_ten_thousand_rows(training_rows, run_c):
    twin = TwinRegressor(BASES["forest"], random_state=0).fit(*training_rows)
    rows = np.random.RandomState(2).uniform(-2.5, 2.5, size=(10_000, 3)).astype(np.float32)
    assert_close(run_c(twin, rows), twin, rows.astype(np.float64))
