"""Tables and the picture of `benchmarks.export.microcontroller`."""

import numpy as np
import pandas as pd

from benchmarks import frame

WITHIN = 1.05  # of the error of the ensemble of plain networks
TWINS = ("twin", "small twin", "trees")
LEGEND = {
    "twin": ("neural twin", "C0", "o"),
    "small twin": ("small neural twin", "C4", "D"),
    "plain": ("plain networks", "C3", "o"),
    "small plain": ("small plain networks", "C6", "D"),
    "trees": ("tree twin", "C2", "^"),
    "forest": ("forest (emlearn)", "C7", "v"),
    "lightgbm": ("LightGBM", "C5", "x"),
}


def select(runs, **values):
    """The runs with these values."""
    for column, value in values.items():
        runs = runs[runs[column] == value]
    return runs


def exported_runs(runs):
    return runs[runs["dtype"] != "random anchors"]


def largest_ensemble(runs):
    """The ensemble of the most plain networks."""
    return select(runs, model="plain").sort_values("members").iloc[-1]


def smallest_twin(runs, models=TWINS):
    """The twin of the smallest flash within 5 % of the ensemble, and its share; None, NaN: none."""
    plain = largest_ensemble(runs)
    twins = runs[runs["model"].isin(models) & (runs["rmse"] <= WITHIN * plain["rmse"])]
    if not len(twins):
        return None, np.nan
    twin = twins.sort_values("flash_m4", kind="stable").iloc[0]
    return twin, twin["flash_m4"] / plain["flash_m4"]


def describe(twin):
    """Members × anchors of a twin."""
    members = "trees" if twin["model"] == "trees" else f"{twin['members']:.0f}"
    kind = "small, " if twin["model"] == "small twin" else ""
    return f"{kind}{members} × {twin['anchors']:.0f}"


def flash_rows(runs):
    """For each data set: the smallest twin within 5 % of the ensemble, and its share of flash."""
    rows, shares = [], []
    for key, own in runs.groupby("dataset"):
        own = exported_runs(own)
        if not {"plain", "twin"} <= set(own["model"]):
            continue
        plain, single = largest_ensemble(own), select(own, model="plain", members=1).iloc[0]
        twin, share = smallest_twin(own)
        cells = [
            f"{run['rmse']:.4g}, {run['flash_m4'] / 1000:.0f} kB"
            for run in (plain, single, twin)
            if run is not None
        ]
        if twin is None:
            rows.append([key, *cells, "none", "—"])
            continue
        shares.append(share)
        rows.append([key, *cells[:2], f"{cells[2]} ({describe(twin)})", f"{share:.3f}"])
    count = f"{sum(share <= 0.1 for share in shares)} of {len(rows)}"
    return [*rows, ["at most a tenth", "", "", "", f"**{count}**"]]


def split_rows(runs):
    """The share of the smallest of the small twins on each split, and its members × anchors."""
    seeds = sorted(
        set(select(runs, model="small twin")["seed"]) & set(select(runs, model="plain")["seed"])
    )
    rows, counts = [], dict.fromkeys(seeds, 0)
    for key, own in exported_runs(runs).groupby("dataset"):
        cells = [key]
        for seed in seeds:
            twin, share = smallest_twin(select(own, seed=seed), ["small twin"])
            cells.append("none" if twin is None else f"{share:.3f} ({describe(twin)})")
            counts[seed] += share <= 0.1
        rows.append(cells)
    total = [f"**{count} of {len(rows)}**" for count in counts.values()]
    return [*rows, ["at most a tenth", *total]]


def thinning_rows(runs, model):
    """RMSE of 32 chosen and of 32 random anchors, as a ratio to that of all anchors."""
    rows = []
    for key, own in select(runs, model=model).groupby("dataset"):
        # the largest ensemble that was run
        own = select(own, members=own["members"].max())
        own = select(own, choice=own["choice"].iloc[0])
        every = select(own, dtype="float32").sort_values("anchors").iloc[-1]
        chosen = select(own, dtype="float32", anchors=32)["rmse"].iloc[0] / every["rmse"]
        random = select(own, dtype="random anchors")["rmse"].iloc[0] / every["rmse"]
        single = select(own, dtype="float32", anchors=1)["rmse"].iloc[0] / every["rmse"]
        ratios = [f"{value:.4f}" for value in (chosen, random, single)]
        rows.append([key, f"{every['members']:.0f}", f"{every['rmse']:.4g}", *ratios])
    if rows:
        chosen, random = (np.array([float(row[i]) for row in rows]) for i in (3, 4))
        counts = f"{(chosen <= 1.01).sum()} of {len(rows)}", f"{(chosen < random).sum()}"
        text = f"**{counts[0]}; {counts[1]}**"
        rows.append(["within 1 %; better than random", "", "", text, "", ""])
    return rows


def instruction_rows(runs):
    """Instructions of one prediction, of one network or of the whole tree twin."""
    rows = []
    known = exported_runs(runs).dropna(subset=["instructions_m4"])
    known = known[~known["choice"].astype(str).isin(["size"])]
    known = known[known["model"].isin(["twin", "plain", "trees"]) & (known["members"] <= 1)]
    for (model, anchors), own in known.groupby(["model", "anchors"]):
        medians = [own[f"instructions_{name}"].median() / 1e6 for name in ("m0", "m4")]
        rows.append([model, f"{anchors}", *(f"{value:.3g}" for value in medians)])
    return rows


def summary(runs):
    flash = "the smallest twin within 5 %", "share"
    header = ["", "32 plain", "1 plain", *flash]
    by_split = split_rows(runs)
    splits = ["", *(f"split {i}" for i in range(len(by_split[0]) - 1))]
    runs = select(runs, seed=0)
    lines = [
        "# Twins on microcontrollers",
        "",
        "Test RMSE and flash of a Cortex-M4F, split 0, `python -m "
        "benchmarks.export.microcontroller`. "
        "Twins: members × anchors. *Small*: hidden layers of 64, half of the frequencies, and "
        '`effort="balanced"`; the others have layers of 128 and `effort="fast"`.',
        "",
        *frame.markdown_table(header, flash_rows(runs)),
        "",
        "## The smallest of the small twins within 5 %, share of the flash of 32 plain",
        "",
        *frame.markdown_table(splits, by_split),
    ]
    titles = {"twin": "Neural twins", "small twin": "Small neural twins", "trees": "Tree twins"}
    for model, title in titles.items():
        rows = thinning_rows(runs, model)
        if rows:
            lines += ["", f"## {title}: anchors, RMSE as a ratio to all anchors", ""]
            lines += frame.markdown_table(
                ["", "members", "RMSE of all", "32 chosen", "32 random", "1 chosen"], rows
            )
    lines += ["", "## Millions of instructions of one prediction, one member, medians", ""]
    lines += frame.markdown_table(
        ["", "anchors", "Cortex-M0+", "Cortex-M4F"], instruction_rows(runs)
    )
    return lines


def draw(runs):
    """Return a picture of RMSE against flash, one panel for each data set."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 8}):
        figure = Figure(figsize=(9, 8.2), layout="constrained")
        keys = list(dict.fromkeys(runs["dataset"]))
        shown = {}  # one line of each kind, for the legend
        panels = figure.subplots(3, 3, squeeze=False).ravel()
        for panel, key in zip(panels, keys, strict=False):
            own = exported_runs(select(runs, dataset=key, seed=0))
            for model, (label, color, marker) in LEGEND.items():
                part = select(own, model=model)
                if not len(part):
                    continue
                flash = pd.to_numeric(part["flash_m4"]) / 1000
                (shown[label],) = panel.plot(
                    flash, part["rmse"], marker, color=color, ms=4, alpha=0.8, label=label
                )
            if len(select(own, model="plain")):
                level = WITHIN * largest_ensemble(own)["rmse"]
                panel.axhline(level, color="0.6", lw=0.8, ls="--", zorder=0)
            panel.set(xscale="log", yscale="log", title=key)
            panel.minorticks_off()
            low, high = own["rmse"].min(), own["rmse"].max()
            panel.set_yticks([low, high], [f"{low:.3g}", f"{high:.3g}"])
        for panel in panels[len(keys) :]:
            panel.remove()
        for panel in panels[: len(keys)]:
            panel.set_xlabel("flash, kB")
        panels[0].set_ylabel("test RMSE")
        order = [label for label, _, _ in LEGEND.values() if label in shown]
        handles = [shown[label] for label in order]
        figure.legend(handles, order, loc="outside lower center", ncols=4, frameon=False)
    return figure
