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
from paper.comparison import published
from paper.decomposition import expected_error
from paper.loop_relabelling import ROUND_WEIGHTS, weight_name
from paper.panels import GREY, Panels, full_name
from paper.records import Record, origin
from paper.tables import RecordsByStudy, all_pair_results, neighbor_curves
from twinned.datasets import KEYS

BLUE, ORANGE, GREEN, RED = "#1f6fb4", "#e07b1a", "#2a8f4f", "#c4373b"

LOOP_TICKS = (0.001, 0.01, 0.1, 1, 10)
LARGE_WEIGHT = 3.4  # Λ above this make all errors much larger


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


def figure_a(records: RecordsByStudy) -> Panels:
    """Four kinds of ensemble."""
    twins, plain = records["twin-networks"], records["plain-networks"]
    panels = Panels(_datasets(records), "Ensembles", "anchors or networks", "test RMSE")
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


def _all_pairs(records: RecordsByStudy) -> pd.DataFrame:
    """Rows of the twins of all pairs with all anchors."""
    return _curve_frame(
        [
            (record["config"]["dataset"], record["config"]["split"], 0.0, error)
            for record, error, _ in all_pair_results(records)
        ]
    )


def _draw_neighbor_curves(panels: Panels, records: RecordsByStudy) -> None:
    panels.draw_level(_all_pairs(records), "all pairs, all anchors", color=BLUE)
    curves = neighbor_curves(records).rename(columns={"neighbors": "x", "rmse": "value"})
    for method, name, color in (
        ("nn_inference", "all pairs, nearest anchors", BLUE),
        ("nn_train_and_inference", "nearest pairs, nearest anchors", ORANGE),
    ):
        panels.draw_curve(curves[curves["method"] == method], name, color=color, linestyle="--")


def figure_b(records: RecordsByStudy) -> Panels:
    """Twins and k-NN."""
    panels = Panels(_datasets(records), "Twins and k-NN", "neighbors", "test RMSE")
    _draw_neighbor_curves(panels, records)
    neighbors = curve(records["neighbors"], lambda r: r)
    panels.draw_curve(neighbors, "k-NN", color=GREEN, linestyle="--")
    panels.draw_published("T3", "nn_inference", BLUE)
    panels.draw_published("T3", "nn_train_and_inference", ORANGE)
    panels.set_log_y()
    return panels


def figure_c(records: RecordsByStudy) -> Panels:
    """Seconds of whole trainings and of predictions of one network."""
    devices = {origin(record)["device"] for record in records["timing"]}
    n = max(len(record["result"]["training"]) for record in records["timing"])
    panels = Panels(
        _datasets(records),
        "Training and prediction time",
        "neighbors",
        "seconds",
        note=f"whole trainings of one network alone, and predictions of the test rows, on one "
        f"{', '.join(sorted(devices))}; bands: ± one standard deviation over {n} repetitions",
    )
    for kind, color, name in (
        ("plain", ORANGE, "plain network"),
        ("all", BLUE, "twin of all pairs"),
    ):
        rows = _training_rows(records, kind)
        panels.draw_level(rows, f"{name}: training", band=True, color=color)
        rows = _prediction_rows(records, kind, "all")
        panels.draw_level(rows, f"{name}: prediction", band=True, color=color, linestyle="-.")
    curves = {
        "twins of nearest pairs: training": (_training_rows(records, "nearest"), GREEN, "--"),
        "twins of nearest pairs: prediction": (_prediction_rows(records, "nearest"), GREEN, ":"),
        "twin of all pairs: prediction, nearest anchors": (
            _prediction_rows(records, "all"), BLUE, ":",
        ),
    }  # fmt: skip
    for name, (rows, color, style) in curves.items():
        panels.draw_curve(rows, name, standard_error=False, color=color, linestyle=style)
    panels.set_log_y()
    return panels


def _training_rows(records: RecordsByStudy, kind: str) -> pd.DataFrame:
    """Seconds of the trainings of a kind of network, by the number of nearest pairs."""
    return _curve_frame(
        [
            (record["config"]["dataset"], i, record["config"]["settings"]["partners"], seconds)
            for record in records["timing"]
            if record["config"]["settings"]["pairs"] == kind
            for i, seconds in enumerate(record["result"]["training"])
        ]
    )


def _prediction_rows(records: RecordsByStudy, kind: str, name: str | None = None) -> pd.DataFrame:
    """Seconds of predictions of a kind of network: with all anchors, or by their number."""
    return _curve_frame(
        [
            (record["config"]["dataset"], i, float(n) if name is None else 0.0, seconds)
            for record in records["timing"]
            if record["config"]["settings"]["pairs"] == kind
            for n, own in record["result"]["prediction"].items()
            if (n == name if name is not None else n != "all")
            for i, seconds in enumerate(own)
        ]
    )


def figure_d(records: RecordsByStudy) -> Panels:
    """Nearest neighbors as anchors, and as pairs too."""
    panels = Panels(_datasets(records), "Nearest-neighbor pairing", "neighbors", "test RMSE")
    _draw_neighbor_curves(panels, records)
    panels.draw_published("T3", "nn_inference", BLUE)
    panels.draw_published("T3", "nn_train_and_inference", ORANGE)
    panels.clip_above(_limits_without_few_pairs(records))
    return panels


def _limits_without_few_pairs(records: RecordsByStudy) -> dict[str, float]:
    """Upper limits of the axes, so that training on few nearest pairs does not flatten the rest."""
    curves = neighbor_curves(records)
    few = (curves["method"] == "nn_train_and_inference") & (curves["neighbors"] < 8)
    shown = curves[~few].groupby(["dataset", "method", "neighbors"])["rmse"].mean()
    printed = published().query("table == 'T3'").groupby("dataset")["rmse"].max()
    highest = shown.groupby("dataset").max()
    return {str(key): 1.04 * max(value, printed.get(key, value)) for key, value in highest.items()}


def figure_e(records: RecordsByStudy) -> Panels:
    """The training-set multiplier."""
    panels = Panels(
        _datasets(records, "paired-networks"),
        "Training-set multiplier",
        "training-set multiplier",
        "test RMSE",
    )
    panels.draw_level(_all_pairs(records), "all pairs", color=BLUE)
    rows = []
    for record in records["paired-networks"]:
        config = record["config"]
        if config["settings"]["pairs"] == "random":
            partners, error = config["settings"]["partners"], record["result"]["test"]
            rows.append((config["dataset"], config["split"], partners, error))
    partners = _curve_frame(rows)
    panels.draw_curve(partners, "fixed random pairs", color=BLUE, linestyle="--")
    panels.draw_published("T2", "tnnr_all_anchors", BLUE)
    return panels


def figure_f(records: RecordsByStudy) -> Panels:
    """Numbers stored, by the size of the ensemble, for several numbers of features."""
    (record,) = records["storage"]
    settings, result = record["config"]["settings"], record["result"]
    panels = Panels(
        ["F"],
        "Numbers stored",
        "anchors or networks",
        "numbers",
        note="counted, without bands; squares and circles: measured files",
    )
    axis = panels.axes["F"]
    axis.set_yscale("log")
    for features, color in zip(settings["features"], (BLUE, ORANGE, GREEN, RED), strict=False):
        plain, twin = np.transpose(result["numbers"][str(features)])
        (drawn,) = axis.plot(settings["sizes"], plain, color=color)
        count = f"{features} feature{'s' * (features != 1)}"
        panels.add_to_legend(f"plain networks, {count}", drawn)
        (drawn,) = axis.plot(settings["sizes"], twin, "--", color=color)
        panels.add_to_legend(f"one twin and anchors, {count}", drawn)
    f = settings["measured_features"]
    plain, twin = np.transpose(result["bytes"]) / 4  # numbers of four bytes
    for values, kind, marker in ((plain, "plain networks", "s"), (twin, "a twin", "o")):
        (drawn,) = axis.plot(settings["measured"], values, marker, color=GREY, markersize=5)
        panels.add_to_legend(f"saved file / 4 bytes: {kind}, {f} features", drawn)
    return panels


def figure_g(records: RecordsByStudy) -> Panels:
    """Loops through unlabelled points, by their weight Λ."""
    tests = [
        record
        for record in records["semi-supervised-forests"]
        if "fold" not in record["config"]["settings"]
    ]
    panels = Panels(
        _datasets(records),
        "Loops through unlabelled points",
        "Λ",
        "test RMSE",
        note="bands: ± one standard error, over splits, of the difference to no loops",
    )
    first = [record for record in tests if "1" in record["result"]["loops"]]
    panels.draw_level(curve(first, lambda r: r["supervised"]), "no loops", color=BLUE)
    rows = _loop_rows(tests)
    lowest = rows.loc[rows["x"] > 0, "x"].min()
    zero = 0.3 * lowest  # where Λ = 0 is drawn on the logarithmic axis, left of the break
    for own in (rows[rows["x"] == 0].assign(x=zero), rows[rows["x"] > 0]):
        panels.draw_curve(own, "loops (left of the break: Λ = 0)", color=ORANGE, linestyle="--")
    panels.draw_published("T4", "twinned_rf_supervised", BLUE)
    panels.draw_published("T4", "twinned_rf_semi_supervised", ORANGE)
    ticks = [tick for tick in LOOP_TICKS if lowest <= tick <= rows["x"].max()]
    limits = _limits_of_small_weights(rows)
    panels.clip_above({dataset: top for dataset, (_, top) in limits.items()})
    for dataset, (low, _) in limits.items():
        panels.axes[dataset].set_ylim(bottom=low)
    for axis in panels.axes.values():
        axis.set_xscale("log", base=10)
        axis.set_xticks([zero, *ticks], ["0", *(f"{tick:g}" for tick in ticks)])
        axis.set_xlim(left=0.7 * zero)
        for position in (0.5 * lowest, 0.57 * lowest):  # two strokes across the axis
            axis.plot(
                [0.96 * position, 1.04 * position],
                [-0.025, 0.025],
                color="k",
                linewidth=1,
                clip_on=False,
                transform=axis.get_xaxis_transform(),
            )
    return panels


def _limits_of_small_weights(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Data set → limits of its axis that show Λ up to `LARGE_WEIGHT`, and the printed errors.

    The errors of a larger Λ are several times as large; with them the others look equal.
    """
    small = rows[rows["x"] <= LARGE_WEIGHT]
    limits = {}
    for dataset, own in small.groupby("dataset"):
        shown = [
            *own.groupby("x")["value"].mean(),
            (own["value"] - own["difference"]).mean(),  # without loops
            *published().query("table == 'T4' and dataset == @dataset")["rmse"],
        ]
        margin = 0.25 * (max(shown) - min(shown))
        limits[str(dataset)] = (min(shown) - margin, max(shown) + margin)
    return limits


def _loop_rows(tests: list[Record]) -> pd.DataFrame:
    """dataset, split, x (Λ), value (error), difference to no loops; Λ of all splits of a set."""
    rows = [
        (record["config"]["dataset"], record["config"]["split"], float(name), error,
         error - record["result"]["supervised"])
        for record in tests
        for name, error in record["result"]["loops"].items()
    ]  # fmt: skip
    found = pd.DataFrame(rows, columns=["dataset", "split", "x", "value", "difference"])
    splits = found.groupby(["dataset", "x"])["split"].transform("nunique")
    return found[splits == found.groupby("dataset")["split"].transform("nunique")]


def figure_v(records: RecordsByStudy) -> Panels:
    """Bias, variance and covariance of three kinds of ensemble, by the formula."""
    panels = Panels(
        _datasets(records),
        "Expected squared error",
        "size M of the ensemble",
        "squared error, (units of y)²",
        note="lines: bias² + variance / M + (1 − 1/M) covariance; circles: measured error of the "
        "ensemble against the truth without noise",
    )
    kinds = {
        "anchors": ("anchors of one twin", BLUE, (0, (1, 1))),
        "twins": ("twins with all anchors", GREEN, (0, (1, 3))),
        "networks": ("plain networks", ORANGE, (0, (1, 1))),
    }
    sizes = [2**i for i in range(6)]
    for record in records["decomposition"]:
        axis = panels.axes[record["config"]["dataset"]]
        for kind, (name, color, dots) in kinds.items():
            parts = record["result"][kind]
            expected = [expected_error(parts, n) for n in sizes]
            (drawn,) = axis.plot(sizes, expected, color=color)
            panels.add_to_legend(name, drawn)
            axis.plot([parts["size"]], [parts["error"]], "o", color=color, markersize=4)
            drawn = axis.axhline(parts["bias"], color=color, linestyle=dots, linewidth=1.4)
            panels.add_to_legend(f"bias² of {name}", drawn)
        axis.set_ylim(bottom=0)
        axis.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        axis.yaxis.get_offset_text().set_fontsize(8)
    return panels


def figure_i(records: RecordsByStudy) -> Panels:
    """Repeated relabelling: error and inconsistency of each round, as a ratio to round 0."""
    trials = records["iterated-loops"]
    fields = {"rmse": "test RMSE", "inconsistency": "loop inconsistency"}
    datasets, keys = _datasets(records), []
    for start in range(0, len(datasets), 3):  # a row of errors above a row of inconsistencies
        keys += [f"{key} {field}" for field in fields for key in datasets[start : start + 3]]
    titles = {
        f"{d} {f}": f"{full_name(d)}:\n{text}" for d in datasets for f, text in fields.items()
    }
    panels = Panels(
        keys, "Repeated relabelling of loops", "round", "ratio to round 0",
        titles=titles,
    )  # fmt: skip
    present = set().union(*(record["result"] for record in trials))
    for weight, color in zip(ROUND_WEIGHTS, (GREEN, BLUE, RED), strict=True):
        key = weight_name(weight)
        if key not in present:
            continue
        for field in fields:

            def ratio(result: Any, key: str = key, field: str = field) -> dict[int, float]:
                values = result[key][field]
                return {number: value / values[0] for number, value in enumerate(values)}

            rows = curve(trials, ratio)
            rows["dataset"] += f" {field}"
            panels.draw_curve(rows, f"Λ = {weight:.3g}", color=color)
    for name, axis in panels.axes.items():
        axis.set_xscale("linear")
        if name.endswith("inconsistency"):
            axis.set_yscale("log", base=2)
            axis.yaxis.set_major_formatter("{x:g}")
    return panels


def figure_w(records: RecordsByStudy) -> Panels:
    """Weights of anchors: test error as a ratio to that of equal weights."""
    label = "test RMSE / that of equal weights, ± 2 standard errors"
    panels = Panels(
        ["W"],
        "Weighted anchors",
        "",
        label,
        note="bars: ± two standard errors, over the 25 splits, of the ratio",
    )
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
    names_of_sets = [full_name(key).replace(" ", "\n") for key in datasets]
    axis.set_xticks(positions, names_of_sets, fontsize=7)
    return panels
