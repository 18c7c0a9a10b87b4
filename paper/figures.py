"""The paper's figures, drawn from records: nine panels, one a data set, as the paper has them.

Solid lines are what does not depend on the horizontal axis. Bands are standard errors over splits.
Diamonds and dotted lines are what the paper's tables print, where they print it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paper.decomposition import expected_error
from paper.semi import LOOP_WEIGHTS, ROUND_WEIGHTS
from paper.tables import published
from paper.views import Found, neighbour_curves
from paper.weighted import WAYS

BLUE, ORANGE, GREEN, RED, GREY = "#1f6fb4", "#e07b1a", "#2a8f4f", "#c4373b", "#6b6b6b"
SIZE, DPI = (9.6, 8.4), 130  # inches: a page's width, legible there


class Panels:
    """A grid of panels, one for each data set."""

    def __init__(self, datasets: list[str], title: str, across: str, up: str) -> None:
        from matplotlib.figure import Figure

        n_rows = -(-len(datasets) // 3)
        height = SIZE[1] * (n_rows / 3 if len(datasets) > 1 else 0.6) + 0.5
        self.figure = Figure(figsize=(SIZE[0], height), layout="constrained", dpi=DPI)
        grid = self.figure.subplots(n_rows, min(3, len(datasets)), squeeze=False)
        self.axes: dict[Any, Any] = dict(zip(datasets, grid.ravel(), strict=False))
        for axis in grid.ravel()[len(datasets) :]:
            axis.set_visible(False)
        for place, (dataset, axis) in enumerate(self.axes.items()):
            if len(datasets) > 1:
                axis.set_title(dataset, fontsize=11, loc="left", fontweight="bold")
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
            axis.tick_params(which="both", labelsize=8)
            axis.grid(True, color="#dddddd", linewidth=0.5)
            axis.set_axisbelow(True)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
            if place % 3 == 0:
                axis.set_ylabel(up, fontsize=9)
            if place >= len(datasets) - 3:
                axis.set_xlabel(across, fontsize=9)
        self.figure.suptitle(title, fontsize=12)
        self._named: dict[str, Any] = {}

    def by_ratio(self) -> None:
        """Logarithmic upwards, with plain numbers at the ticks."""
        from matplotlib.ticker import LogFormatter

        class Plain(LogFormatter):
            """Writes 0.02 where the other writes 2e-2, and nothing where it writes nothing."""

            def __call__(self, x: float, pos: Any = None) -> str:
                return f"{x:.3g}" if super().__call__(x, pos) else ""

        for axis in self.axes.values():
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(Plain())
            axis.yaxis.set_minor_formatter(Plain(minor_thresholds=(2, 0.4)))

    def line(self, rows: pd.DataFrame, name: str, **style: Any) -> None:
        """A curve a panel: `rows` has dataset, x and value, and is averaged over the rest."""
        for dataset, own in rows.groupby("dataset"):
            grouped = own.groupby("x")["value"]
            mean: Any = grouped.mean()
            error: Any = grouped.std(ddof=0) / np.sqrt(grouped.count())
            (drawn,) = self.axes[dataset].plot(
                mean.index, mean, markersize=3, marker="o", linewidth=1.4, **style
            )
            self.axes[dataset].fill_between(
                mean.index, mean - error, mean + error, color=drawn.get_color(), alpha=0.15, lw=0
            )
            self.name(name, drawn)

    def level(self, rows: pd.DataFrame, name: str, **style: Any) -> None:
        """A level a panel: `rows` has dataset and value."""
        for dataset, value in rows.groupby("dataset")["value"].mean().items():
            if dataset not in self.axes:
                continue
            drawn = self.axes[dataset].axhline(value, **{"linewidth": 1.4, **style})
            self._named.setdefault(name, drawn)

    def printed(self, table: str, method: str, color: str, x: float | None = None) -> None:
        """What the paper prints: a diamond at x, or a dotted level."""
        from matplotlib.lines import Line2D

        mark = {"linestyle": ":"} if x is None else {"marker": "D", "linestyle": ""}
        grey = Line2D([], [], color=GREY, markerfacecolor="white", **mark)  # type: ignore[arg-type]
        self.name("printed in the paper", grey)
        for row in published().query("table == @table and method == @method").itertuples():
            axis = self.axes.get(row.dataset)
            if axis is None:
                continue
            if x is None:
                axis.axhline(row.rmse, color=color, linestyle=":", linewidth=1.1)
            else:
                style = {"markerfacecolor": "white", "markeredgecolor": color}
                axis.plot([x], [row.rmse], "D", markersize=5, zorder=5, **style)

    def name(self, name: str, drawn: Any) -> None:
        """Into the legend, once."""
        self._named.setdefault(name, drawn)

    def save(self, folder: Path, name: str) -> list[Path]:
        """As SVG and PNG."""
        from matplotlib import rc_context

        self.figure.legend(
            self._named.values(),
            self._named.keys(),
            loc="outside lower center",
            ncols=min(3, len(self._named)),
            fontsize=9,
            frameon=False,
        )
        folder.mkdir(parents=True, exist_ok=True)
        places = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
        for place in places:
            # without a date or random marks in it: the same figures are the same file
            metadata = {"Date": None} if place.suffix == ".svg" else {}
            with rc_context({"svg.hashsalt": "twinned"}):
                self.figure.savefig(place, metadata=metadata)
        return places


def curve(records: list[dict[str, Any]], pick: Callable[[dict[str, Any]], Any]) -> pd.DataFrame:
    """dataset, split, x, value of what `pick` finds in each result: {x: value}, or a value."""
    rows = []
    for record in records:
        config, found = record["config"], pick(record["result"])
        for x, value in found.items() if isinstance(found, dict) else [(0, found)]:
            rows.append((config["dataset"], config["split"], float(x), value))
    return pd.DataFrame(rows, columns=["dataset", "split", "x", "value"])


def _datasets(found: Found, study: str | None = None) -> list[str]:
    """Those with records of any study, or of this one."""
    from twinned.datasets import KEYS

    studies = found.values() if study is None else [found[study]]
    there = {record["config"]["dataset"] for own in studies for record in own}
    return [key for key in KEYS if key in there]


def figure_a(found: Found, flavour: str) -> Panels:
    """Four kinds of ensemble."""
    twins, plain = found["twin-networks"], found["plain-networks"]
    panels = Panels(
        _datasets(found), f"A · Ensembles, {flavour}", "anchors or networks", "test RMSE"
    )
    panels.level(curve(twins, lambda r: r["members"]["1"]), "one twin, all anchors", color=BLUE)
    panels.line(
        curve(twins, lambda r: r["anchors"]), "one twin, some anchors", color=BLUE, linestyle="--"
    )
    panels.line(
        curve(plain, lambda r: r["members"]), "plain networks", color=ORANGE, linestyle="--"
    )
    panels.line(
        curve(twins, lambda r: r["members"]), "twins, all anchors", color=GREEN, linestyle="--"
    )
    panels.line(
        curve(twins, lambda r: r["members_one_anchor"]),
        "twins, one anchor each",
        color=RED,
        linestyle="--",
    )
    for table, method, colour, x in (
        ("T1", "ann_single", ORANGE, 1),
        ("T1", "ann_ensemble_32", ORANGE, 32),
        ("T2", "tnnr_1_anchor", BLUE, 1),
        ("T2", "tnnr_ensemble_32", GREEN, 32),
    ):
        panels.printed(table, method, colour, x)
    return panels


def _neighbour_lines(panels: Panels, found: Found) -> None:
    twins = curve(found["twin-networks"], lambda r: r["members"]["1"])
    panels.level(twins, "all pairs, all anchors", color=BLUE)
    curves = neighbour_curves(found).rename(columns={"neighbours": "x", "rmse": "value"})
    for method, name, colour in (
        ("nn_inference", "all pairs, nearest anchors", BLUE),
        ("nn_train_and_inference", "nearest pairs, nearest anchors", ORANGE),
    ):
        panels.line(curves[curves["method"] == method], name, color=colour, linestyle="--")


def figure_b(found: Found, flavour: str) -> Panels:
    """Twins beside k-NN."""
    panels = Panels(_datasets(found), f"B · Twins and k-NN, {flavour}", "neighbours", "test RMSE")
    _neighbour_lines(panels, found)
    neighbours = curve(found["neighbours"], lambda r: r)
    panels.line(neighbours, "k-NN", color=GREEN, linestyle="--")
    panels.by_ratio()
    return panels


def figure_c(found: Found, flavour: str) -> Panels:
    """Seconds of training and predicting, one network alone."""
    panels = Panels(
        _datasets(found), f"C · Training and predicting time, {flavour}", "neighbours", "seconds"
    )
    unit = {record["config"]["dataset"]: record["result"] for record in found["timing"]}
    for name, study, colour in (
        ("plain network", "plain-networks", ORANGE),
        ("twin network", "twin-networks", BLUE),
    ):
        rows = curve(found[study], lambda r: r["epochs"])
        rows = rows[rows["dataset"].isin(unit)].copy()
        kind = name.split()[0]
        rows["value"] = [
            _units(flavour, epochs) * unit[dataset][f"{kind}_unit"]
            + unit[dataset][f"{kind}_predict"]
            for dataset, epochs in zip(rows["dataset"], rows["value"], strict=True)
        ]
        panels.level(rows, name, color=colour)
    nearest = []
    for record in found["paired-networks"]:
        settings, dataset = record["config"]["settings"], record["config"]["dataset"]
        if settings["pairs"] == "nearest" and dataset in unit:
            own, k = unit[dataset], settings["partners"]
            seconds = predicting_seconds(own["nearest_predict"], k)
            seconds += _units(flavour, record["result"]["epochs"]) * own["twin_unit"]
            nearest.append((dataset, record["config"]["split"], k, seconds))
    rows = pd.DataFrame(nearest, columns=["dataset", "split", "x", "value"])
    panels.line(rows, "nearest pairs and anchors", color=BLUE, linestyle=":")
    for axis in panels.axes.values():
        if np.isfinite(axis.dataLim.y1):  # or nothing has run yet
            axis.set_ylim(0, 1.06 * axis.dataLim.y1)
    return panels


def predicting_seconds(measured: dict[str, float], k: int) -> float:
    """With k anchors, between the numbers of them that were measured.

    >>> predicting_seconds({"1": 1.0, "16": 16.0, "4": 4.0}, 10)  # in the order of texts
    10.0
    """
    sizes = sorted(measured, key=int)
    return float(np.interp(k, [int(size) for size in sizes], [measured[size] for size in sizes]))


def _units(flavour: str, epochs: float) -> float:
    """How many times the unit of the timing study: an epoch as published, a step of ours."""
    from twinned.models.neural.ensemble import EFFORTS

    return EFFORTS["balanced"].max_steps if flavour == "modern" else epochs


def figure_d(found: Found, flavour: str) -> Panels:
    """Nearest neighbours as anchors, and as pairs too."""
    panels = Panels(
        _datasets(found), f"D · Nearest-neighbour pairing, {flavour}", "neighbours", "test RMSE"
    )
    _neighbour_lines(panels, found)
    panels.printed("T3", "nn_inference", BLUE)
    panels.printed("T3", "nn_train_and_inference", ORANGE)
    return panels


def figure_e(found: Found, flavour: str) -> Panels:
    """The training-set multiplier."""
    panels = Panels(
        _datasets(found, "paired-networks"),
        f"E · Training-set multiplier, {flavour}",
        "random partners of each point",
        "test RMSE",
    )
    twins = curve(found["twin-networks"], lambda r: r["members"]["1"])
    panels.level(twins, "all pairs", color=BLUE)
    some = [r for r in found["paired-networks"] if r["config"]["settings"]["pairs"] == "random"]
    rows = pd.DataFrame(
        [
            (
                record["config"]["dataset"],
                record["config"]["split"],
                record["config"]["settings"]["partners"],
                record["result"]["test"],
            )
            for record in some
        ],
        columns=["dataset", "split", "x", "value"],
    )
    panels.line(rows, "some pairs, fixed", color=BLUE, linestyle="--")
    panels.printed("T2", "tnnr_all_anchors", BLUE)
    return panels


def figure_f(found: Found, flavour: str) -> Panels:
    """Numbers stored, by the size of the ensemble, for several numbers of features."""
    (record,) = found["storage"]
    settings, result = record["config"]["settings"], record["result"]
    panels = Panels(["F"], f"F · Numbers stored, {flavour}", "anchors or networks", "numbers")
    axis = panels.axes["F"]
    axis.set_yscale("log")
    for features, colour in zip(settings["features"], (BLUE, ORANGE, GREEN, RED), strict=False):
        plain, twin = np.transpose(result["numbers"][str(features)])
        (drawn,) = axis.plot(settings["sizes"], plain, color=colour)
        panels.name(f"plain networks, {features} features", drawn)
        (drawn,) = axis.plot(settings["sizes"], twin, "--", color=colour)
        panels.name(f"one twin and anchors, {features} features", drawn)
    f = settings["measured_features"]
    plain, twin = np.transpose(result["bytes"]) / 4  # numbers of four bytes
    for values, kind, marker in ((plain, "plain networks", "s"), (twin, "a twin", "o")):
        (drawn,) = axis.plot(settings["measured"], values, marker, color=GREY, markersize=5)
        panels.name(f"saved file / 4 bytes: {kind}, {f} features", drawn)
    return panels


def figure_g(found: Found, flavour: str) -> Panels:
    """Loops through unlabelled points, by their weight Λ."""
    records = found["semi-supervised-forests"]
    tests = [record for record in records if "fold" not in record["config"]["settings"]]
    panels = Panels(
        _datasets(found), f"G · Loops through unlabelled points, {flavour}", "Λ", "test RMSE"
    )
    panels.level(curve(tests, lambda r: r["supervised"]), "no loops", color=BLUE)
    few = {f"{weight:.6g}" for weight in LOOP_WEIGHTS}

    def some(result: dict[str, Any]) -> dict[float, float]:
        return {max(float(n), 3e-2): v for n, v in result["loops"].items() if n in few}

    panels.line(curve(tests, some), "loops (at the left Λ = 0)", color=ORANGE, linestyle="--")
    for axis in panels.axes.values():
        axis.set_xscale("log", base=10)
    panels.printed("T4", "twinned_rf_supervised", BLUE)
    panels.printed("T4", "twinned_rf_semi_supervised", ORANGE)
    return panels


def figure_v(found: Found, flavour: str) -> Panels:
    """Bias, variance and covariance of three kinds of ensemble, by the formula."""
    records = found["decomposition"]
    panels = Panels(
        _datasets(found), f"V · Expected square error, {flavour}", "size", "mean square error"
    )
    kinds = {
        "anchors": ("anchors of one twin", BLUE),
        "twins": ("twins", GREEN),
        "networks": ("plain networks", ORANGE),
    }
    sizes = [2**i for i in range(6)]
    for record in records:
        axis = panels.axes[record["config"]["dataset"]]
        for kind, (name, colour) in kinds.items():
            parts = record["result"][kind]
            expected = [expected_error(parts, n) for n in sizes]
            (drawn,) = axis.plot(sizes, expected, color=colour)
            panels.name(name, drawn)
            axis.plot([parts["size"]], [parts["error"]], "o", color=colour, markersize=4)
            drawn = axis.axhline(parts["bias"], color=colour, linestyle=":", linewidth=1)
            panels.name("bias² alone", drawn)
        axis.set_ylim(bottom=0)
    return panels


def figure_i(found: Found, flavour: str) -> Panels:
    """Relabelling again and again: test error of each round, as a ratio to that before."""
    records = found["iterated-loops"]
    panels = Panels(
        _datasets(found), f"I · Relabelling loops again and again, {flavour}", "round", "ratio"
    )
    tried = set().union(*(record["result"] for record in records))
    for weight, colour in zip(ROUND_WEIGHTS, (GREEN, BLUE, RED), strict=True):
        if f"{weight:.6g}" not in tried:  # a quick look has fewer
            continue
        for what, style in (("rmse", "-"), ("inconsistency", ":")):

            def ratio(result: Any, weight: float = weight, what: str = what) -> dict[int, float]:
                told = result[f"{weight:.6g}"][what]
                return {number: value / told[0] for number, value in enumerate(told)}

            word = "test RMSE" if what == "rmse" else "loop inconsistency"
            name = f"Λ = {weight:.3g}: {word}"
            panels.line(curve(records, ratio), name, color=colour, linestyle=style)
    for axis in panels.axes.values():
        axis.set_xscale("linear")
        axis.set_yscale("log", base=2)
    return panels


def figure_w(found: Found, flavour: str) -> Panels:
    """Weights of anchors: test error as a ratio to that of equal weights."""
    label = "test RMSE / that of equal weights, ± 2 standard errors"
    panels = Panels(["W"], f"W · Weighted anchors, {flavour}", "", label)
    axis, datasets = panels.axes["W"], _datasets(found)
    names = {"members": "members' variance", "loops": "loop inconsistency", "distance": "distance"}
    places: Any = np.arange(len(datasets))
    for shift, way, colour in zip((-0.2, 0.0, 0.2), WAYS, (BLUE, RED, GREEN), strict=True):

        def beside_equal(result: dict[str, float], way: str = way) -> float:
            return result[way] / result["equal"]

        rows = curve(found["weighted-anchors"], beside_equal)
        ratio = rows.groupby("dataset")["value"]
        error: Any = 2 * ratio.std(ddof=0) / np.sqrt(ratio.count())
        drawn = axis.errorbar(
            places + shift,
            ratio.mean()[datasets],
            error[datasets],
            fmt="o",
            color=colour,
            capsize=3,
            markersize=5,
        )
        panels.name(f"weights by {names[way]}", drawn)
    axis.axhline(1.0, color=GREY, linewidth=1)
    axis.set_xscale("linear")
    axis.set_xticks(places, datasets)
    return panels
