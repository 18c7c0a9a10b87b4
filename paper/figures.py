"""The paper's figures, drawn from records: nine panels, one a data set, as the paper has them.

Solid lines do not depend on the horizontal axis. Bands are standard errors over splits. Diamonds
and dotted lines are the values that the paper's tables print, where they print them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from paper.anchor_weights import KINDS
from paper.decomposition import expected_error
from paper.loop_relabelling import LOOP_WEIGHTS, ROUND_WEIGHTS, weight_name
from paper.panels import GREY, Panels
from paper.records import Record
from paper.tables import RecordsByStudy, neighbor_curves
from twinned.datasets import KEYS
from twinned.models.neural.ensemble import EFFORTS

BLUE, ORANGE, GREEN, RED = "#1f6fb4", "#e07b1a", "#2a8f4f", "#c4373b"


def curve(records: list[Record], pick: Callable[[dict[str, Any]], Any]) -> pd.DataFrame:
    """Return dataset, split, x, value, where `pick(result)` is {x: value} or a single value."""
    rows = []
    for record in records:
        config, picked = record["config"], pick(record["result"])
        for x, value in picked.items() if isinstance(picked, dict) else [(0, picked)]:
            rows.append((config["dataset"], config["split"], float(x), value))
    return _curve_frame(rows)


def _curve_frame(rows: list[tuple[str, int, float, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["dataset", "split", "x", "value"])


def _datasets(records: RecordsByStudy, study: str | None = None) -> list[str]:
    """Return the data sets with records of any study, or of this one."""
    studies = records.values() if study is None else [records[study]]
    present = {record["config"]["dataset"] for own in studies for record in own}
    return [key for key in KEYS if key in present]


def figure_a(records: RecordsByStudy, variant: str) -> Panels:
    """Four kinds of ensemble."""
    twins, plain = records["twin-networks"], records["plain-networks"]
    panels = Panels(
        _datasets(records), f"A · Ensembles, {variant}", "anchors or networks", "test RMSE"
    )
    panels.draw_level(
        curve(twins, lambda r: r["members"]["1"]), "one twin, all anchors", color=BLUE
    )
    panels.draw_curve(
        curve(twins, lambda r: r["anchors"]), "one twin, random anchors", color=BLUE, linestyle="--"
    )
    panels.draw_curve(
        curve(plain, lambda r: r["members"]), "plain networks", color=ORANGE, linestyle="--"
    )
    panels.draw_curve(
        curve(twins, lambda r: r["members"]), "twins, all anchors", color=GREEN, linestyle="--"
    )
    panels.draw_curve(
        curve(twins, lambda r: r["members_one_anchor"]),
        "twins, one anchor each",
        color=RED,
        linestyle="--",
    )
    for table, method, color, x in (
        ("T1", "ann_single", ORANGE, 1),
        ("T1", "ann_ensemble_32", ORANGE, 32),
        ("T2", "tnnr_1_anchor", BLUE, 1),
        ("T2", "tnnr_ensemble_32", GREEN, 32),
    ):
        panels.draw_published(table, method, color, x)
    return panels


def _draw_neighbor_curves(panels: Panels, records: RecordsByStudy) -> None:
    twins = curve(records["twin-networks"], lambda r: r["members"]["1"])
    panels.draw_level(twins, "all pairs, all anchors", color=BLUE)
    curves = neighbor_curves(records).rename(columns={"neighbors": "x", "rmse": "value"})
    for method, name, color in (
        ("nn_inference", "all pairs, nearest anchors", BLUE),
        ("nn_train_and_inference", "nearest pairs, nearest anchors", ORANGE),
    ):
        panels.draw_curve(curves[curves["method"] == method], name, color=color, linestyle="--")


def figure_b(records: RecordsByStudy, variant: str) -> Panels:
    """Twins and k-NN."""
    panels = Panels(_datasets(records), f"B · Twins and k-NN, {variant}", "neighbors", "test RMSE")
    _draw_neighbor_curves(panels, records)
    neighbors = curve(records["neighbors"], lambda r: r)
    panels.draw_curve(neighbors, "k-NN", color=GREEN, linestyle="--")
    panels.set_log_y()
    return panels


def figure_c(records: RecordsByStudy, variant: str) -> Panels:
    """Seconds of training and prediction of one network."""
    panels = Panels(
        _datasets(records), f"C · Training and prediction time, {variant}", "neighbors", "seconds"
    )
    unit = {record["config"]["dataset"]: record["result"] for record in records["timing"]}
    for name, study, color in (
        ("plain network", "plain-networks", ORANGE),
        ("twin network", "twin-networks", BLUE),
    ):
        rows = curve(records[study], lambda r: r["epochs"])
        rows = rows[rows["dataset"].isin(unit)].copy()
        kind = name.split()[0]
        rows["value"] = [
            _training_length(variant, epochs) * unit[dataset][f"{kind}_unit"]
            + unit[dataset][f"{kind}_predict"]
            for dataset, epochs in zip(rows["dataset"], rows["value"], strict=True)
        ]
        panels.draw_level(rows, name, color=color)
    nearest = []
    for record in records["paired-networks"]:
        settings, dataset = record["config"]["settings"], record["config"]["dataset"]
        if settings["pairs"] == "nearest" and dataset in unit:
            own, k = unit[dataset], settings["partners"]
            seconds = prediction_seconds(own["nearest_predict"], k)
            seconds += _training_length(variant, record["result"]["epochs"]) * own["twin_unit"]
            nearest.append((dataset, record["config"]["split"], k, seconds))
    panels.draw_curve(_curve_frame(nearest), "nearest pairs and anchors", color=BLUE, linestyle=":")
    for axis in panels.axes.values():
        if np.isfinite(axis.dataLim.y1):  # not finite: no records yet
            axis.set_ylim(0, 1.06 * axis.dataLim.y1)
    return panels


def prediction_seconds(measured: dict[str, float], k: int) -> float:
    """Return the seconds with k anchors, interpolated between the measured numbers of anchors.

    >>> prediction_seconds({"1": 1.0, "16": 16.0, "4": 4.0}, 10)  # sorted as text
    10.0
    """
    sizes = sorted(measured, key=int)
    return float(np.interp(k, [int(size) for size in sizes], [measured[size] for size in sizes]))


def _training_length(variant: str, epochs: float) -> float:
    """Return the length of a training in units of the timing study: epochs, or steps of ours."""
    return EFFORTS["balanced"].max_steps if variant == "modern" else epochs


def figure_d(records: RecordsByStudy, variant: str) -> Panels:
    """Nearest neighbors as anchors, and as pairs too."""
    panels = Panels(
        _datasets(records), f"D · Nearest-neighbor pairing, {variant}", "neighbors", "test RMSE"
    )
    _draw_neighbor_curves(panels, records)
    panels.draw_published("T3", "nn_inference", BLUE)
    panels.draw_published("T3", "nn_train_and_inference", ORANGE)
    return panels


def figure_e(records: RecordsByStudy, variant: str) -> Panels:
    """The training-set multiplier."""
    panels = Panels(
        _datasets(records, "paired-networks"),
        f"E · Training-set multiplier, {variant}",
        "random partners of each point",
        "test RMSE",
    )
    twins = curve(records["twin-networks"], lambda r: r["members"]["1"])
    panels.draw_level(twins, "all pairs", color=BLUE)
    rows = []
    for record in records["paired-networks"]:
        config = record["config"]
        if config["settings"]["pairs"] == "random":
            partners, error = config["settings"]["partners"], record["result"]["test"]
            rows.append((config["dataset"], config["split"], partners, error))
    panels.draw_curve(_curve_frame(rows), "fixed random pairs", color=BLUE, linestyle="--")
    panels.draw_published("T2", "tnnr_all_anchors", BLUE)
    return panels


def figure_f(records: RecordsByStudy, variant: str) -> Panels:
    """Numbers stored, by the size of the ensemble, for several numbers of features."""
    (record,) = records["storage"]
    settings, result = record["config"]["settings"], record["result"]
    panels = Panels(["F"], f"F · Numbers stored, {variant}", "anchors or networks", "numbers")
    axis = panels.axes["F"]
    axis.set_yscale("log")
    for features, color in zip(settings["features"], (BLUE, ORANGE, GREEN, RED), strict=False):
        plain, twin = np.transpose(result["numbers"][str(features)])
        (drawn,) = axis.plot(settings["sizes"], plain, color=color)
        panels.add_to_legend(f"plain networks, {features} features", drawn)
        (drawn,) = axis.plot(settings["sizes"], twin, "--", color=color)
        panels.add_to_legend(f"one twin and anchors, {features} features", drawn)
    f = settings["measured_features"]
    plain, twin = np.transpose(result["bytes"]) / 4  # numbers of four bytes
    for values, kind, marker in ((plain, "plain networks", "s"), (twin, "a twin", "o")):
        (drawn,) = axis.plot(settings["measured"], values, marker, color=GREY, markersize=5)
        panels.add_to_legend(f"saved file / 4 bytes: {kind}, {f} features", drawn)
    return panels


def figure_g(records: RecordsByStudy, variant: str) -> Panels:
    """Loops through unlabelled points, by their weight Λ."""
    tests = [
        record
        for record in records["semi-supervised-forests"]
        if "fold" not in record["config"]["settings"]
    ]
    panels = Panels(
        _datasets(records), f"G · Loops through unlabelled points, {variant}", "Λ", "test RMSE"
    )
    panels.draw_level(curve(tests, lambda r: r["supervised"]), "no loops", color=BLUE)
    names = {weight_name(weight) for weight in LOOP_WEIGHTS}

    def by_weight(result: dict[str, Any]) -> dict[float, float]:
        # Λ = 0 is drawn at the left end of the logarithmic axis
        return {max(float(n), 3e-2): v for n, v in result["loops"].items() if n in names}

    panels.draw_curve(
        curve(tests, by_weight), "loops (at the left Λ = 0)", color=ORANGE, linestyle="--"
    )
    for axis in panels.axes.values():
        axis.set_xscale("log", base=10)
    panels.draw_published("T4", "twinned_rf_supervised", BLUE)
    panels.draw_published("T4", "twinned_rf_semi_supervised", ORANGE)
    return panels


def figure_v(records: RecordsByStudy, variant: str) -> Panels:
    """Bias, variance and covariance of three kinds of ensemble, by the formula."""
    panels = Panels(
        _datasets(records), f"V · Expected square error, {variant}", "size", "mean square error"
    )
    kinds = {
        "anchors": ("anchors of one twin", BLUE),
        "twins": ("twins", GREEN),
        "networks": ("plain networks", ORANGE),
    }
    sizes = [2**i for i in range(6)]
    for record in records["decomposition"]:
        axis = panels.axes[record["config"]["dataset"]]
        for kind, (name, color) in kinds.items():
            parts = record["result"][kind]
            expected = [expected_error(parts, n) for n in sizes]
            (drawn,) = axis.plot(sizes, expected, color=color)
            panels.add_to_legend(name, drawn)
            axis.plot([parts["size"]], [parts["error"]], "o", color=color, markersize=4)
            drawn = axis.axhline(parts["bias"], color=color, linestyle=":", linewidth=1)
            panels.add_to_legend("bias² alone", drawn)
        axis.set_ylim(bottom=0)
    return panels


def figure_i(records: RecordsByStudy, variant: str) -> Panels:
    """Repeated relabelling: error and inconsistency of each round, as a ratio to round 0."""
    trials = records["iterated-loops"]
    panels = Panels(
        _datasets(records), f"I · Repeated relabelling of loops, {variant}", "round", "ratio"
    )
    present = set().union(*(record["result"] for record in trials))
    for weight, color in zip(ROUND_WEIGHTS, (GREEN, BLUE, RED), strict=True):
        key = weight_name(weight)
        if key not in present:  # a quick run has fewer
            continue
        for field, label, style in (
            ("rmse", "test RMSE", "-"),
            ("inconsistency", "loop inconsistency", ":"),
        ):

            def ratio(result: Any, key: str = key, field: str = field) -> dict[int, float]:
                values = result[key][field]
                return {number: value / values[0] for number, value in enumerate(values)}

            name = f"Λ = {weight:.3g}: {label}"
            panels.draw_curve(curve(trials, ratio), name, color=color, linestyle=style)
    for axis in panels.axes.values():
        axis.set_xscale("linear")
        axis.set_yscale("log", base=2)
    return panels


def figure_w(records: RecordsByStudy, variant: str) -> Panels:
    """Weights of anchors: test error as a ratio to that of equal weights."""
    label = "test RMSE / that of equal weights, ± 2 standard errors"
    panels = Panels(["W"], f"W · Weighted anchors, {variant}", "", label)
    axis, datasets = panels.axes["W"], _datasets(records)
    names = {"members": "members' variance", "loops": "loop inconsistency", "distance": "distance"}
    positions: Any = np.arange(len(datasets))
    for shift, kind, color in zip((-0.2, 0.0, 0.2), KINDS, (BLUE, RED, GREEN), strict=True):

        def ratio_to_equal(result: dict[str, float], kind: str = kind) -> float:
            return result[kind] / result["equal"]

        rows = curve(records["weighted-anchors"], ratio_to_equal)
        ratio = rows.groupby("dataset")["value"]
        error: Any = 2 * ratio.std(ddof=0) / np.sqrt(ratio.count())
        drawn = axis.errorbar(
            positions + shift,
            ratio.mean()[datasets],
            error[datasets],
            fmt="o",
            color=color,
            capsize=3,
            markersize=5,
        )
        panels.add_to_legend(f"weights by {names[kind]}", drawn)
    axis.axhline(1.0, color=GREY, linewidth=1)
    axis.set_xscale("linear")
    axis.set_xticks(positions, datasets)
    return panels
