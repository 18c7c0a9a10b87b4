"""Report as one HTML page that loads nothing else."""

from __future__ import annotations

import json
from importlib.resources import files

from twinned.report import charts
from twinned.report.charts import format_number
from twinned.report.collect import Content

CURVES = ("anchors", "neighbors", "multiplier", "learning")


def render(report: Content) -> str:
    """Return the HTML page of what `collect` returns."""
    from jinja2 import Environment, select_autoescape

    environment = Environment(autoescape=select_autoescape(default=True), trim_blocks=True)
    environment.filters["number"] = format_number
    page = environment.from_string(_read("page.html.j2"))
    # "<" could end the script element that holds the data
    data = json.dumps(report["comparables"], ensure_ascii=False).replace("<", "\\u003c")
    return page.render(
        report=report,
        style=_read("page.css"),
        script=_read("page.js"),
        data=data,
        charts=draw_charts(report),
        rows=comparison_rows(report),
        curves=[key for key in CURVES if key in report["checks"]],
    )


def _read(name: str) -> str:
    return files("twinned.report").joinpath(name).read_text("utf-8")


def draw_charts(report: Content) -> dict[str, str]:
    """Return the SVG charts by name."""
    curves = {key: check for key, check in report["checks"].items() if key in CURVES}
    errors = report["checks"]["comparison"]["numbers"]["rmse"]
    errors = dict(sorted(errors.items(), key=lambda item: item[1]))
    listed = ", ".join(f"{name} {format_number(error)}" for name, error in errors.items())
    shares = [(feature["name"], feature["share"]) for feature in report["importance"][:10]]
    listed_shares = ", ".join(f"{name} {share:.2f}" for name, share in shares)
    return {
        **{key: charts.curve(each["numbers"], each["summary"]) for key, each in curves.items()},
        "predictions": _predictions(report),
        "calibration": _calibration(report["calibration"]),
        "comparison": charts.bar_chart(
            list(errors), list(errors.values()), f"RMSE of held-out rows: {listed}"
        ),
        "importance": charts.bar_chart(
            [name for name, _ in shares],
            [share for _, share in shares],
            f"Share of the change of predicted differences: {listed_shares}",
        ),
    }


def _predictions(report: Content) -> str:
    shown, target = report["predictions"], report["target"]
    truth, predicted, half_widths = shown["truth"], shown["predicted"], shown["half_width"]
    limits = min(*truth, *predicted), max(*truth, *predicted)
    chart = charts.Chart(limits, limits, f"known {target}", f"predicted {target}")
    chart.line(limits, limits, "guide")
    chart.intervals(truth, predicted, half_widths)
    tips = [
        f"row {row}: known {format_number(t)}, predicted {format_number(p)} ± {format_number(h)}"
        for row, t, p, h in zip(shown["row"], truth, predicted, half_widths, strict=True)
    ]
    chart.points(truth, predicted, tips)
    return chart.svg(
        f"Predictions of {len(truth)} held-out rows against their known values, with "
        f"{shown['confidence']:.0%} intervals."
    )


def _calibration(shown: Content) -> str:
    confidence = [100 * level for level in shown["confidence"]]
    coverage = [100 * share for share in shown["coverage"]]
    chart = charts.Chart((45, 100), (45, 100), "confidence, %", "coverage, %")
    chart.line((45, 100), (45, 100), "guide")
    chart.line(confidence, coverage)
    tips = [
        f"confidence {a:g} %, coverage {b:.0f} %" for a, b in zip(confidence, coverage, strict=True)
    ]
    chart.points(confidence, coverage, tips)
    return chart.svg(f"Coverage of prediction intervals: {'; '.join(tips)}")


def comparison_rows(report: Content) -> list[dict[str, str]]:
    """Return a table row for each model: error, ratio with its interval, and settings."""
    numbers = report["checks"]["comparison"]["numbers"]
    ratios = {
        name: f"{ratio:.2f} ({low:.2f} to {high:.2f})"
        for name, (ratio, low, high) in numbers["ratios"].items()
    }
    return [
        {
            "name": name,
            "rmse": format_number(error),
            "ratio": ratios.get(name, ""),
            "estimator": numbers["estimators"].get(name, ""),
        }
        for name, error in sorted(numbers["rmse"].items(), key=lambda item: item[1])
    ]
