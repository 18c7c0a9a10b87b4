"""Report as one HTML page that loads nothing else, with charts drawn by matplotlib."""

import io
import json
import re
import warnings
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np

from twinned.app.report.collect import Content, collect
from twinned.diagnostics import Diagnosis
from twinned.diagnostics.curves import draw_curve
from twinned.diagnostics.errors import MEAN
from twinned.diagnostics.recommendation import describe_member
from twinned.displays.intervals import GUIDE, PredictionIntervalDisplay
from twinned.estimators.molecules import draw_molecules, is_fragment
from twinned.persistence.archive import write_atomically
from twinned.rows.formatting import format_number, format_significant, shorten

CURVES = ("learning",)
WIDTH, HEIGHT, BAR_HEIGHT = 400, 280, 30  # texts of 12 pixels are readable on a phone
_MAX_LETTERS = 22  # of a name beside a bar
_MAX_BARS, _MAX_BATCHES = 10, 20  # of the importance of features, and offsets
_REPLACEMENTS = [
    ("#808080", "var(--soft)"),
    (r' id="[A-Za-z0-9.]+_\d+"', ""),  # other charts have the same
    (r" font-family: [^;\"]*;", ""),  # the font is that of the page
    (r"\s*\n\s*", " "),
    ("xlink:href", "href"),
]
_COORDINATES, _DECIMALS = re.compile(r' [dxy]="[^"]*"'), re.compile(r"(\.\d)\d+")
_MARKER = re.compile(r"(?<=<use )([^>]*)/>")
_VARIABLE = r"(--\w+): (#[0-9a-f]{6})"  # of the style of the page


def write_report(
    diagnosis: Diagnosis,
    path: str | Path,
    *,
    title: str = "Report",
    target: str = "y",
    labels: list[str] | None = None,
) -> None:
    """Write the report of a diagnosis, the one of `twinned advise --report`.

    It is one HTML file that loads nothing else.

    Parameters
    ----------
    diagnosis : Diagnosis
        What `diagnose` returns.
    path : str or Path
        The file to write.
    title : str, default="Report"
        Heading of the page, such as the name of the table.
    target : str, default="y"
        Name of y; it may end with a unit, "R [ohm]".
    labels : list of str, default=None
        Names of the rows of the table; by default they are numbered.

    Examples
    --------
    >>> from twinned import AutoTwinRegressor, diagnose, write_report
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(60, random_state=0)
    >>> diagnosis = diagnose(X, y, estimator=AutoTwinRegressor(members=["ridge", "gp_matern"]))
    >>> write_report(diagnosis, "report.html", target="V")  # doctest: +SKIP
    """
    content = collect(diagnosis, title=title, target=target, labels=labels)
    write_atomically(Path(path), render(content).encode())


def render(report: Content) -> str:
    """Return the HTML page of what `collect` returns."""
    from jinja2 import Environment, select_autoescape

    environment = Environment(autoescape=select_autoescape(default=True), trim_blocks=True)
    environment.filters["number"] = format_number
    page = environment.from_string(_read("page.html.j2"))
    queries, pictures = report["comparables"], {}
    if any(map(is_fragment, report["columns"])):
        cases = (case["label"] for query in queries for case in query["comparables"])
        pictures = draw_molecules([*(query["name"] for query in queries), *cases])
    # "<" could end the script element that holds the data
    content = {"queries": queries, "pictures": pictures}
    data = json.dumps(content, ensure_ascii=False).replace("<", "\\u003c")
    return page.render(
        report=report,
        style=_read("page.css"),
        script=_read("elements.js") + _read("page.js"),
        data=data,
        charts=draw_charts(report),
        rows=leaderboard_rows(report["leaderboard"]),
        curves=[key for key in CURVES if key in report["checks"]],
    )


def _read(name: str) -> str:
    return files("twinned.app.report").joinpath(name).read_text("utf-8")


def leaderboard_rows(board: list[Content]) -> list[dict[str, str]]:
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
        for row in board
    ]


def draw_charts(report: Content) -> dict[str, str]:
    """Return the SVG charts by name."""
    board, importance = report["leaderboard"], report["importance"][:_MAX_BARS]
    checks, offsets = report["checks"], (report["batches"] or {}).get("offsets", [])[:_MAX_BATCHES]
    # the table has the error of the mean, whose bar would be much longer than the others
    compared = [row for row in board if row["model"] != MEAN]
    bars = [(row["batch"], row["offset"], row["std_error"]) for row in offsets]
    deviations = (report["batches"] or {}).get("deviations")
    return {
        **{key: _draw_curve(checks[key]) for key in CURVES if key in checks},
        "predictions": _draw_predictions(report, "actual_vs_predicted"),
        "residuals": _draw_predictions(report, "residual_vs_predicted"),
        "calibration": _draw_calibration(report["calibration"]),
        "comparison": draw_bars(
            [(row["model"], row["rmse"], row["rmse_se"]) for row in compared],
            "RMSE of held-out rows",
            marked=[row["recommended"] for row in compared].index(True),
        ),
        **({"batches": draw_bars(bars, "Offsets of batches", marked=-1)} if bars else {}),
        **({"deviations": draw_deviations(deviations)} if deviations else {}),
        "importance": draw_bars(
            [(row["name"], row["share"], 0.0) for row in importance], "Relevance of features"
        ),
    }


def _draw_svg(draw, description, height=HEIGHT):
    """Return a chart as an SVG element that adapts to the light and dark modes of the page.

    `draw` draws into axes, and returns a list of (artist, texts): a text for each marker of the
    artist, which is shown when the pointer is on it. `description` is the text for screen readers.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style = files("twinned.app.report").joinpath("charts.mplstyle")
    with rc_context(fname=str(style)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser may have the font
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        tooltips = draw(figure.subplots())
        for i, (artist, _) in enumerate(tooltips):
            artist.set_gid(f"tooltips-{i}")
        buffer = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    svg = buffer.getvalue().partition("</defs>")[2]  # after the style for all elements of the page
    light_mode = _read("page.css").partition("}")[0]
    variables = [(color, f"var({name})") for name, color in re.findall(_VARIABLE, light_mode)]
    for pattern, replacement in (*variables, *_REPLACEMENTS):
        svg = re.sub(pattern, replacement, svg)
    svg = _COORDINATES.sub(lambda attribute: _DECIMALS.sub(r"\1", attribute[0]), svg)
    for i, (_, texts) in enumerate(tooltips):
        svg = _add_titles(svg, f"tooltips-{i}", texts)
    label = escape(description)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{svg}'


def _add_titles(svg, group, texts):
    """Return a chart with a title in each marker of a group."""
    before, _, after = svg.partition(f'<g id="{group}">')
    titles = (f"><title>{escape(text)}</title></use>" for text in texts)
    return f"{before}<g>" + _MARKER.sub(lambda marker: marker[1] + next(titles, "/>"), after)


def draw_bars(bars: list[tuple[str, float, float]], title: str, marked: int = 0) -> str:
    """Return horizontal bars of (name, value, standard error), the first on top.

    `marked` is the index of the emphasized bar.
    """
    names, values, errors = zip(*bars, strict=True)
    numbers = [format_number(value).replace("-", "\N{MINUS SIGN}") for value in values]
    cut_names = [shorten(name, _MAX_LETTERS) for name in names]

    def draw(ax):
        position = np.arange(len(names))
        colors = np.where(position == marked, "C0", "C2")
        drawn = ax.barh(position, values, 0.66, xerr=errors, color=colors, ecolor="C4")
        ax.bar_label(drawn, numbers, padding=6)
        ax.set_yticks(position, cut_names, color="C4")
        ax.tick_params(left=False, bottom=False, labelbottom=False)
        ax.spines[:].set_visible(False)
        ax.grid(False)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.margins(x=0.15 if min(values) >= 0 else 0.3)
        return []

    listed = ", ".join(map(" ".join, zip(names, numbers, strict=True)))
    return _draw_svg(draw, f"{title}: {listed}", BAR_HEIGHT * len(names) + 8)


def _draw_curve(check: Content) -> str:
    """Draw RMSE against a number of rows, with bars of standard errors."""
    numbers = check["numbers"]
    pairs = zip(numbers["x"], numbers["rmse"], strict=True)
    texts = [f"{x}: {format_number(rmse)}" for x, rmse in pairs]
    return _draw_svg(lambda ax: [(draw_curve(ax, numbers)[0], texts)], check["summary"])


def draw_deviations(deviations: Content) -> str:
    """Draw deviations of batches against a feature, with bands of standard errors."""
    x, curves = np.array(deviations["x"]), deviations["curves"]

    def draw(ax):
        for curve in curves:
            mean, std = np.array(curve["deviation"]), np.array(curve["std_error"])
            (line,) = ax.plot(x, mean)
            ax.fill_between(x, mean - std, mean + std, color=line.get_color(), alpha=0.15)
            ax.annotate(str(curve["batch"]), (x[-1], mean[-1]), color=line.get_color())
        ax.set_xlabel(deviations["feature"])
        return []

    names = ", ".join(str(curve["batch"]) for curve in curves)
    return _draw_svg(draw, f"Deviations of batches against {deviations['feature']}: {names}")


def _draw_predictions(report: Content, kind: str) -> str:
    """Draw known values, or residuals, of held-out rows against their predictions."""
    shown = report["predictions"]
    display = PredictionIntervalDisplay(
        y_true=shown["truth"],
        y_pred=shown["predicted"],
        intervals=np.column_stack([shown["lower"], shown["upper"]]),
        confidence=shown["confidence"],
        target=report["target"],
    )
    columns = (shown[name] for name in ("name", "truth", "predicted", "lower", "upper"))
    rows = zip(*columns, strict=True)
    describe = "{}: known {}, predicted {} ({} to {})".format
    texts = [describe(name, *map(format_number, numbers)) for name, *numbers in rows]

    def draw(ax):
        display.plot(ax, kind=kind)
        ax.get_legend().remove()  # of a place among the points
        ax.figure.legend(loc="outside upper left", ncols=3, columnspacing=1.0, handlelength=1.0)
        points = (display.covered_, display.covered), (display.missed_, ~display.covered)
        return [(artist, np.array(texts)[rows]) for artist, rows in points]

    subject = "Known" if kind == "actual_vs_predicted" else "Known minus predicted"
    values = f"{subject} values of {len(texts)} held-out rows"
    return _draw_svg(draw, f"{values} against predictions, with intervals.")


def _draw_calibration(shown: Content) -> str:
    names = "confidence", "coverage", "standard_error"
    confidence, coverage, errors = (100 * np.array(shown[name]) for name in names)
    pairs = zip(confidence, coverage, strict=True)
    texts = [f"confidence {a:g} %, coverage {b:.0f} %" for a, b in pairs]

    def draw(ax):
        ax.plot([45, 100], [45, 100], **GUIDE)
        ax.set(xlabel="confidence, %", ylabel="coverage, %")
        return [(ax.errorbar(confidence, coverage, errors, marker="o", capsize=3)[0], texts)]

    return _draw_svg(draw, f"Coverage of prediction intervals: {'; '.join(texts)}")
