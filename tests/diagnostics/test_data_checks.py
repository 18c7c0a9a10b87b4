"""Each data check on data with a known result, and the documentation of its code."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from twinned.diagnostics import check_data
from twinned.diagnostics.data_checks import (
    CODES,
    CheckedTable,
    check_replicates,
    check_time_order,
    compare_uses_of_batches,
    monotone_r2,
    quick_predictions,
)
from twinned.diagnostics.errors import summarize_errors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checks.md"


@pytest.fixture
def table(rng):
    X = pd.DataFrame(rng.rand(200, 4), columns=list("abcd"))
    return X, 3 * X["a"] + np.sin(4 * X["b"]) + 0.1 * rng.normal(size=200)


def findings(X, y, **options):
    return {finding.code: finding for finding in check_data(X, y, **options)}


def test_every_code_has_a_section():
    sections = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.M)[1:]
    by_code = {text.splitlines()[0]: text for text in sections if text.startswith("TW")}
    assert list(by_code) == list(CODES)
    for code, texts in CODES.items():
        assert f"**{texts['title']}** ({texts['level']})" in by_code[code]
        assert "*What to do:*" in by_code[code]


def test_warnings_come_first(table):
    X, y = table
    bounded = np.minimum(y, np.quantile(y, 0.9))
    found = check_data(X.assign(copy=bounded), bounded)
    assert [own.code for own in found] == ["TW201", "TW302"]
    assert [own.level for own in found] == ["warning", "note"]
    assert str(found[0]).startswith("TW201 Feature that nearly equals the target: The target is ")


# --- rows ---------------------------------------------------------------------------------------


def test_noise_of_replicates(table, rng):
    X, y = table
    rows = np.repeat(np.arange(60), 3)
    values = y.to_numpy()[rows] + 0.4 * rng.normal(size=180)
    found = findings(X.iloc[rows], values)["TW103"]
    pooled = pd.Series(values).groupby(rows).var().mean() ** 0.5
    assert found.numbers["noise"] == pytest.approx(pooled)
    low, high = found.numbers["interval"]
    assert low < 0.4 < high
    assert f"no model of these features can have an RMSE much below {pooled:.2g}" in found.message
    few = findings(pd.concat([X, X.iloc[:10]]), np.r_[y, y[:10] + 0.4 * rng.normal(size=10)])
    assert "on these rows no model can" in few["TW103"].message


def test_smooth_effect_of_whole_numbers_is_no_group(rng):
    X = pd.DataFrame({"year": rng.randint(1950, 2000, 300), "b": rng.rand(300)})
    assert not findings(X, np.sin(X["year"] / 4.0) + 0.2 * rng.normal(size=300))


def test_quick_predictions_are_out_of_fold(rng):
    X, y = rng.rand(60, 2), rng.normal(size=60)
    table = CheckedTable.encode(X, y)
    predicted = quick_predictions(table)
    y_changed = y.copy()
    y_changed[7] += 100
    changed = quick_predictions(CheckedTable.encode(X, y_changed))
    assert changed[7] == pytest.approx(predicted[7])
    assert np.abs(changed - predicted).max() > 1


# --- columns and target -------------------------------------------------------------------------


def test_monotone_r2_of_related_but_different_columns(rng):
    x = rng.rand(300)
    assert monotone_r2(x, x**3) > 0.999
    assert monotone_r2(x, -x + 0.03 * rng.normal(size=300)) < 0.995
    with_missing = np.where(np.arange(300) % 3 == 0, np.nan, x)
    assert monotone_r2(with_missing, x) > 0.999
    assert monotone_r2(np.full(300, np.nan), x) == -np.inf


def test_only_feature_is_no_leak(rng):
    x = rng.rand(100, 1)
    assert "TW201" not in findings(x, 2 * x[:, 0])


def test_bounded_target(table):
    X, y = table
    limit = np.quantile(y, 0.9)
    bounded = findings(X, np.minimum(y, limit))["TW302"]
    assert bounded.numbers == {"value": pytest.approx(limit), "rows": 20, "end": "highest"}
    assert findings(X, np.maximum(y, 0.5))["TW302"].numbers["end"] == "lowest"


# --- errors in words ----------------------------------------------------------------------------


def test_errors_in_words_have_the_unit_and_error_bars(rng):
    y = rng.normal(size=400)
    errors = summarize_errors(y, y + 0.3 * rng.normal(size=400) + 0.2)
    words = errors.describe("R [ohm]")
    assert words["half of the rows within"] == f"± {errors.median:.3g} ohm"
    assert words["mean error (bias)"] == f"{errors.bias:.3g} ± {errors.bias_se:.2g} ohm"
    assert words["mean absolute error (MAE)"] == f"{errors.mae:.3g} ± {errors.mae_se:.2g} ohm"
    assert words["root mean square error (RMSE)"].startswith(f"{errors.rmse:.3g} ± ")
    assert errors.describe("f(x)")["largest error"] == f"{errors.largest:.3g}"
    assert errors.describe("yield (%)")["largest error"].endswith(" percentage points")
    unbiased = summarize_errors(y, y + np.resize([0.3, -0.3], 400)).describe("y")
    assert unbiased["mean error (bias)"] == "no clear bias"
    # standard errors against many draws
    draws = [summarize_errors(y, y + 0.3 * rng.normal(size=400))
             for _ in range(100)]  # fmt: skip
    for name in ("rmse", "mae", "bias", "r2"):
        spread = np.std([getattr(own, name) for own in draws])
        assert getattr(errors, f"{name}_se") == pytest.approx(spread, rel=0.35)


def test_rows_in_the_order_of_time(table, rng):
    X, y = table
    years = 1990.0 + np.arange(200) // 8
    assert findings(X.assign(year=years), y)["TW105"].numbers == {"column": "year"}
    assert "TW105" not in findings(X.assign(year=years), y, groups=years)
    missing = np.where(np.arange(200) % 7, years, np.nan)
    for name in ("Year", "sold_date", "sold (days)", "time [s]"):
        for values in (years, years[::-1], missing):
            assert len(list(check_time_order({name: values}))) == 1
        assert not list(check_time_order({name: rng.permutation(years)}))
    for name in ("area", "timer", "overtime"):  # sorted, but not by a time
        assert not list(check_time_order({name: years}))
    assert len(list(check_time_order({"year": years, "date": years}))) == 1
    (found,) = check_time_order({"Day": np.arange(200.0) % 31, "sold (days)": years})
    assert found.numbers == {"column": "sold"}
    assert found.message.startswith("The rows are in the order of 'sold', but")
    assert not list(check_time_order({"year": np.r_[np.zeros(190), np.ones(10)]}))


def test_interval_of_the_noise_differs_from_the_noise(table):
    X, y = table
    rows = np.arange(len(y)).repeat(8)
    noise = 140 * np.resize([1.0, -1.0], len(rows))
    (found,) = check_replicates(CheckedTable.encode(X.iloc[rows], y.to_numpy()[rows] + noise))
    value, low, high = re.search(r"of (\S+) \((\S+) to (\S+)\)", found.message).groups()
    assert float(low) < float(value) < float(high)


def test_logarithm_is_suggested_where_it_helps(table, rng):
    X, y = table
    values = np.exp(3 * X["a"] + 2 * X["b"] - X["c"] + 0.1 * rng.normal(size=200))
    found = findings(X, values)["TW304"]
    sample = CheckedTable.encode(X, values.to_numpy())
    logarithm = CheckedTable.encode(X, np.log(values.to_numpy()))
    errors = [
        np.sqrt(np.mean((own - values) ** 2))
        for own in (np.exp(quick_predictions(logarithm)), quick_predictions(sample))
    ]
    assert found.numbers["ratio"] == pytest.approx(errors[0] / errors[1])
    assert "TW304" not in findings(X, values, log_target=True)
    skewed_noise = y - y.min() + 10 * rng.exponential(size=200)
    noise_alone = np.exp(2 * rng.normal(size=200))
    for other in (y, -values, skewed_noise, noise_alone):
        assert "TW304" not in findings(X, other)


def test_offsets_of_given_batches(table, rng):
    X, y = table
    batch = rng.choice(["a", "b", "c"], 200)
    gain = pd.Series(batch).map({"a": 1.0, "b": 2.0, "c": 1.2}).to_numpy()
    offset = findings(X, y + gain, batch=batch)
    assert offset["TW107"].numbers["difference"] == pytest.approx(1, abs=0.1)
    assert "The rows of 'batch' b are" in offset["TW107"].message


def test_a_single_batch_of_the_sampled_rows_has_no_finding(rng):
    X = rng.rand(1500, 2)
    batch = np.where(np.arange(1500) < 1, "a", "b")
    assert not list(compare_uses_of_batches(CheckedTable.encode(X, X[:, 0]), batch))
