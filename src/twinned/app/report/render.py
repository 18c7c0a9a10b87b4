"""Report as one HTML page that loads nothing else."""

from __future__ import annotations

import json
from importlib.resources import files

from twinned.app.report import charts
from twinned.app.report.collect import Content
from twinned.diagnostics.recommendation import describe_member
from twinned.rows.formatting import format_number, format_significant

CURVES = ("learning", "multiplier", "anchors")


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
        rows=leaderboard_rows(report),
        curves=[key for key in CURVES if key in report["checks"]],
    )


def _read(name: str) -> str:
    return files("twinned.app.report").joinpath(name).read_text("utf-8")


def draw_charts(report: Content) -> dict[str, str]:
    """Return the SVG charts by name."""
    curves = {key: check for key, check in report["checks"].items() if key in CURVES}
    shares = [(feature["name"], feature["share"]) for feature in report["importance"][:10]]
    listed_shares = ", ".join(f"{name} {share:.2f}" for name, share in shares)
    return {
        **{key: charts.curve(each["numbers"], each["summary"]) for key, each in curves.items()},
        "predictions": _predictions(report),
        "residuals": _residuals(report),
        "calibration": _calibration(report["calibration"]),
        "comparison": _comparison(report["leaderboard"]),
        "importance": charts.bar_chart(
            [name for name, _ in shares],
            [share for _, share in shares],
            f"Share of the change of predictions: {listed_shares}",
            errors=[feature["standard_error"] for feature in report["importance"][:10]],
        ),
    }


def _comparison(board: list[Content]) -> str:
    listed = ", ".join(f"{row['model']} {format_number(row['rmse'])}" for row in board)
    return charts.bar_chart(
        [row["model"] for row in board],
        [row["rmse"] for row in board],
        f"RMSE of held-out rows: {listed}",
        errors=[row["rmse_se"] for row in board],
        marked=next(i for i, row in enumerate(board) if row["recommended"]),
    )


def _predictions(report: Content) -> str:
    shown, target = report["predictions"], report["target"]
    truth, predicted = shown["truth"], shown["predicted"]
    limits = min(*truth, *predicted), max(*truth, *predicted)
    chart = charts.Chart(limits, limits, f"known {target}", f"predicted {target}")
    chart.line(limits, limits, "guide")
    chart.intervals(truth, shown["lower"], shown["upper"])
    parts = zip(shown["name"], truth, predicted, shown["lower"], shown["upper"], strict=True)
    tips = [
        "{}: known {}, predicted {} ({} to {})".format(name, *map(format_number, numbers))
        for name, *numbers in parts
    ]
    chart.points(truth, predicted, tips)
    return chart.svg(
        f"Predictions of {len(truth)} held-out rows against their known values, with "
        f"{shown['confidence']:.0%} intervals."
    )


def _residuals(report: Content) -> str:
    shown, target = report["predictions"], report["target"]
    predicted = shown["predicted"]
    errors = [t - p for t, p in zip(shown["truth"], predicted, strict=True)]
    limits = min(predicted), max(predicted)
    chart = charts.Chart(limits, (min(errors), max(errors)), f"predicted {target}", "residual")
    chart.line(limits, (0.0, 0.0), "guide")
    chart.points(
        predicted,
        errors,
        [f"{n}: {format_number(e)}" for n, e in zip(shown["name"], errors, strict=True)],
    )
    return chart.svg(f"Known minus predicted values of {len(errors)} held-out rows.")


def _calibration(shown: Content) -> str:
    confidence = [100 * level for level in shown["confidence"]]
    coverage = [100 * share for share in shown["coverage"]]
    chart = charts.Chart((45, 100), (45, 100), "confidence, %", "coverage, %")
    chart.line((45, 100), (45, 100), "guide")
    errors = [100 * error for error in shown["standard_error"]]
    chart.intervals(
        confidence,
        [level - error for level, error in zip(coverage, errors, strict=True)],
        [level + error for level, error in zip(coverage, errors, strict=True)],
    )
    chart.line(confidence, coverage)
    tips = [
        f"confidence {a:g} %, coverage {b:.0f} %" for a, b in zip(confidence, coverage, strict=True)
    ]
    chart.points(confidence, coverage, tips)
    return chart.svg(f"Coverage of prediction intervals: {'; '.join(tips)}")


def leaderboard_rows(report: Content) -> list[dict[str, str]]:
    """Return a table row for each model: error, weight in the recommended model, and seconds."""
    return [
        {
            "name": row["model"],
            "description": describe_member(row["model"]) if row["weight"] is not None else "",
            "rmse": f"{format_number(row['rmse'])} ± {format_significant(row['rmse_se'], 2)}",
            "weight": "" if row["weight"] is None else f"{row['weight']:.2f}",
            "seconds": f"{row['fit_seconds']:.1f}",
            "mark": "recommended" if row["recommended"] else "",
        }
        for row in report["leaderboard"]
    ]
