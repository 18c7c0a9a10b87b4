"""The facts as one HTML file: no network, no second file."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from twinned.report import charts

CURVES = ("anchors", "neighbors", "multiplier", "learning")
WORDS = {
    "twin": "twin",
    "base": "its plain base",
    "k-NN": "k-NN",
    "linear": "linear (ridge)",
    "twin network": "twin network",
    "network": "plain network",
    "always the mean": "always the mean",
}


def render(facts: dict[str, Any]) -> str:
    """The page."""
    from jinja2 import Environment, select_autoescape

    environment = Environment(autoescape=select_autoescape(default=True), trim_blocks=True)
    environment.filters["number"] = charts.number
    page = environment.from_string(_file("page.html.j2"))
    # "<" could end the script that holds the data
    data = json.dumps(facts["comparables"], ensure_ascii=False).replace("<", "\\u003c")
    return page.render(
        facts=facts,
        style=_file("page.css"),
        script=_file("page.js"),
        data=data,
        pictures=pictures(facts),
        rows=comparison_rows(facts),
        curves=[key for key in CURVES if key in facts["findings"]],
    )


def _file(name: str) -> str:
    return files("twinned.report").joinpath(name).read_text("utf-8")


def pictures(facts: dict[str, Any]) -> dict[str, str]:
    """SVG by name."""
    found = {
        key: charts.curve(facts["findings"][key]["numbers"], facts["findings"][key]["verdict"])
        for key in CURVES
        if key in facts["findings"]
    }
    found["predictions"] = _predictions(facts)
    found["calibration"] = _calibration(facts["calibration"])
    errors = facts["findings"]["comparison"]["numbers"]["rmse"]
    names = sorted(errors, key=errors.get)
    found["comparison"] = charts.bar_chart(
        [WORDS.get(name, name) for name in names],
        [errors[name] for name in names],
        "RMSE of left-out points: "
        + ", ".join(f"{WORDS.get(name, name)} {charts.number(errors[name])}" for name in names),
    )
    most = facts["importance"][:10]
    found["importance"] = charts.bar_chart(
        [one["name"] for one in most],
        [one["share"] for one in most],
        "Share of the change of predicted differences: "
        + ", ".join(f"{one['name']} {one['share']:.2f}" for one in most),
    )
    return found


def _predictions(facts: dict[str, Any]) -> str:
    shown = facts["predictions"]
    truth, predicted = shown["truth"], shown["predicted"]
    span = min(*truth, *predicted), max(*truth, *predicted)
    chart = charts.Chart(span, span, f"known {facts['target']}", f"predicted {facts['target']}")
    chart.line(span, span, "guide")
    chart.bars(truth, predicted, shown["reach"])
    tips = [
        f"row {row}: known {charts.number(t)}, predicted {charts.number(p)} ± {charts.number(r)}"
        for row, t, p, r in zip(shown["row"], truth, predicted, shown["reach"], strict=True)
    ]
    chart.points(truth, predicted, tips)
    return chart.svg(
        f"Predictions of {len(truth)} left-out rows against their known values, with "
        f"{shown['level']:.0%} intervals."
    )


def _calibration(shown: dict[str, Any]) -> str:
    levels = [100 * level for level in shown["level"]]
    covered = [100 * share for share in shown["covered"]]
    chart = charts.Chart((45, 100), (45, 100), "stated confidence, %", "covered, %")
    chart.line((45, 100), (45, 100), "guide")
    chart.line(levels, covered)
    tips = [f"{a:g} % stated, {b:.0f} % found" for a, b in zip(levels, covered, strict=True)]
    chart.points(levels, covered, tips)
    return chart.svg(f"Coverage: {', '.join(tips)}")


def comparison_rows(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each model: error, and the twin's by it with an interval."""
    numbers = facts["findings"]["comparison"]["numbers"]
    rows = []
    for name, error in sorted(numbers["rmse"].items(), key=lambda item: item[1]):
        ratio = ""
        if name in numbers["against"]:
            middle, low, high = numbers["against"][name]
            ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        rows.append({"name": WORDS.get(name, name), "rmse": charts.number(error), "ratio": ratio})
    return rows
