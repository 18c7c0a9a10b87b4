"""When and where the records were made, and the time that they took."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarks.frame import markdown_table
from paper.conclusions import VARIANTS
from paper.experiments import EXPERIMENTS, STUDIES, current_records
from paper.networks import N_MEMBERS
from paper.records import LABELS, NOT_RECORDED, ON_PROCESSOR, Record, Records, origin
from twinned.models.neural.parameters import EFFORTS

# Of branches that are not part of the history of this repository.
OTHER_COMMITS = ("12c6b3d7c106", "4ea6d67f07aa", "74b108157912")
STUDY_NAMES = {
    "plain-networks": f"plain networks, {N_MEMBERS} a split",
    "twin-networks": f"twin networks, {N_MEMBERS} a split",
    "paired-networks": "twins trained on a subset of pairs",
    "neighbors": "k-NN",
    "timing": "one network alone, timed",
    "decomposition": "new training sets of TF, RCL and WSB",
    "weighted-anchors": "twins with weighted anchors",
    "semi-supervised-networks": "semi-supervised twin networks, and co-training",
    "semi-supervised-forests": "twinned forests with loops",
    "iterated-loops": "repeated relabelling",
    "forests": "forests and twinned forests",
    "storage": "numbers stored",
}


def study_seconds(records: Records) -> pd.DataFrame:
    """Return study × variant: the seconds of all trials; NaN where a study lacks the variant."""
    seconds = {
        variant: {
            key: sum(r["seconds"] for r in current_records(records, key, variant))
            for key, study in STUDIES.items()
            if variant in study.variants
        }
        for variant in VARIANTS
    }
    return pd.DataFrame(seconds).reindex(list(STUDIES))


def total_time(seconds: pd.DataFrame) -> str:
    """Return how long all studies take, by the seconds of their records."""
    on_processor = seconds.index.isin(ON_PROCESSOR)
    gpu, cores = (seconds[own].sum().sum() / 3600 for own in (~on_processor, on_processor))
    return f"{gpu:.1f} hours of a GPU and {cores:.1f} hours of one processor core"


def time_values(records: Records) -> dict[str, str]:
    """Return the seconds of each study, epochs, and seconds of one training."""
    seconds, rows = study_seconds(records), []
    for key, own in zip(STUDIES, seconds.to_numpy(), strict=True):
        shown = ", ".join(e.key for e in EXPERIMENTS.values() if key in e.studies)
        device = "CPU core" if key in ON_PROCESSOR else "GPU"
        cells = ["" if pd.isna(value) else f"{value:.0f}" for value in own]
        rows.append([STUDY_NAMES[key], shown, device, *cells])
    header = ["study", "for", "on", *(f"{LABELS[variant]}, s" for variant in VARIANTS)]
    return {
        "time_table": "\n".join(markdown_table(header, rows)),
        "total_time": total_time(seconds),
        "one_training": one_training(current_records(records, "timing", "modern")),
    } | _epoch_values(records)


def one_training(timing: list[Record]) -> str:
    """Return the seconds of one training and of predictions, over the data sets."""

    def range_of(kind: str, values: Callable[[Record], list[float]], unit: float = 1.0) -> str:
        means = [
            unit * float(np.mean(values(record["result"])))
            for record in timing
            if record["config"]["settings"]["pairs"] == kind
        ]
        return f"{min(means):.2g} to {max(means):.2g}"

    devices = ", ".join(sorted({origin(record)["device"] for record in timing}))
    return (
        f"One training of {EFFORTS['balanced'].max_steps:,} steps, alone on one {devices}, takes "
        f"{range_of('all', lambda r: r['training'])} seconds for a twin and "
        f"{range_of('plain', lambda r: r['training'])} for a plain network, and predicting the "
        "test rows of a data set with all anchors "
        f"{range_of('all', lambda r: r['prediction']['all'], 1000.0)} milliseconds."
    )


def _epoch_values(records: Records) -> dict[str, str]:
    """Mean epochs on EE: all pairs, and the nearest pairs of table 3."""
    twins = current_records(records, "twin-networks", "as_published")
    every = pd.Series([r["result"]["epochs"] for r in twins if r["config"]["dataset"] == "EE"])
    paired = [
        r
        for r in current_records(records, "paired-networks", "as_published")
        if r["config"]["dataset"] == "EE" and r["config"]["settings"]["pairs"] == "nearest"
    ]
    frame = pd.DataFrame(
        [(r["config"]["settings"]["partners"], r["result"]["test"], r["result"]["epochs"])
         for r in paired],
        columns=["k", "error", "epochs"],
    ).groupby("k").mean()  # fmt: skip
    return {
        "EE_epochs_all": f"{every.mean():.0f}",
        "EE_epochs_nearest": f"{frame.sort_values('error')['epochs'].iloc[0]:.0f}",
    }


def origin_values(records: Records) -> dict[str, str]:
    """Return where and when the records of each study were made, and how many name no commit."""
    rows, commits, dates = [], [], []
    for key, study in STUDIES.items():
        for variant in study.variants:
            own = current_records(records, key, variant)
            if not own:
                rows.append([key, LABELS[variant], "0", "", "", "", ""])
                continue
            origins = pd.DataFrame([origin(r) for r in own])
            commits += list(origins["commit"])
            dates += list(origins["date"])
            cells = [_counts(origins[name]) for name in origins]
            versions = sorted({_versions(r["versions"]) for r in own})
            rows.append([key, LABELS[variant], str(len(own)), *cells, "; ".join(versions)])
    header = ["study", "variant", "records", "device", "date", "commit", "versions"]
    return {
        "origins": "\n".join(markdown_table(header, rows)),
        "records": f"{len(commits):,}",
        "n_commits": str(len(set(commits) - {NOT_RECORDED})),
        "first_date": min(dates),  # a text such as "not recorded" is after all dates
        "last_date": max(own for own in dates if own != NOT_RECORDED),
        "records_of_other_commits": f"{sum(own in OTHER_COMMITS for own in commits):,}",
        "records_without_commit": f"{commits.count(NOT_RECORDED):,}",
        "other_commits": ", ".join(f"`{own}`" for own in OTHER_COMMITS if own in commits),
    }


def _counts(values: pd.Series) -> str:
    """The distinct values, each with its number where there are several.

    >>> _counts(pd.Series(["a", "b", "a"])), _counts(pd.Series(["a", "a"]))
    ('a (2), b (1)', 'a')
    """
    counts = values.value_counts().sort_index()
    if len(counts) == 1:
        return str(counts.index[0])
    return ", ".join(f"{value} ({n})" for value, n in counts.items())


def _versions(versions: dict[str, str]) -> str:
    if "imported_from" in versions:
        return f"converted from `{versions['imported_from']}`"
    return ", ".join(f"{name} {versions[name]}" for name in ("python", "jax", "scikit-learn"))
