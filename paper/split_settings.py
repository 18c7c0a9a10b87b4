"""Table 4 by the author's procedure: forests with the settings that were found on each split.

The records that the table, the figure and the conclusions show are those of the splits that have
been run on all data sets; the supervised twins are those of table 5, on all splits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frame import markdown_table
from paper.comparison import NEAR, published_gains, published_rmse
from paper.loop_relabelling import LOOP_WEIGHTS, weight_name
from paper.records import Record, Records
from paper.tables import chosen_loop_weights
from twinned.datasets import KEYS

PROCEDURE = ("semi-supervised-forests", "as_published")
TWIN = "twinned_rf"
FEW = tuple(weight_name(weight) for weight in LOOP_WEIGHTS)


def of_complete_splits(found: list[Record]) -> list[Record]:
    """Return the records of the splits that all data sets have with the Λ of `LOOP_WEIGHTS`.

    Other Λ are shown where all of these splits have them.
    """
    run = {_split(r) for r in found if set(FEW) <= {*r["result"]["loops"]}}
    complete = set.intersection(*({split for key, split in run if key == own} for own in KEYS))
    return [record for record in found if _split(record)[1] in complete]


def _split(record: Record) -> tuple[str, int]:
    return record["config"]["dataset"], record["config"]["split"]


def split_setting_values(records: Records) -> dict[str, str]:
    """Return gains and best Λ of table 4 as published, beside print, and the number of splits."""
    found = of_complete_splits(records.read(*PROCEDURE))
    chosen = chosen_loop_weights({PROCEDURE[0]: found})
    cells: dict[tuple[str, int], dict[str, float]] = {}
    for r in found:
        own = {"supervised": r["result"]["supervised"]} | r["result"]["loops"]
        cells.setdefault(_split(r), {}).update(own)
    errors = pd.DataFrame(cells).T.sort_index()
    twins: Any = pd.Series(
        {
            _split(r): r["result"][TWIN]
            for r in records.read("forests", "as_published")
            if TWIN in r["result"]
        }
    )
    all_splits, printed = twins.groupby(level=0).mean(), published_rmse("T4")
    ratios = all_splits / printed[f"{TWIN}_supervised"]
    rows, gains = [], {}
    for name, own in errors.groupby(level=0):
        key, means = str(name), own.mean()
        best = chosen[key]
        gain = 1 - means[best] / means["supervised"]
        apart = (own["supervised"] - own[best]) / means["supervised"]
        error = apart.std(ddof=0) / np.sqrt(len(own))
        estimate = all_splits[key] * (1 - gain) / printed[f"{TWIN}_semi_supervised"][key]
        gains[key] = (gain, estimate)
        row = [key, f"{ratios[key]:.3f}", f"{estimate:.3f}", f"{float(best):.2g}"]
        row += [f"{_percent(gain)} ± {100 * error:.1f}", _percent(1 - means[best] / means["0"])]
        rows.append([*row, f"{published_gains()['T4', key, f'{TWIN}_semi_supervised']:g}"])
    header = ["", "supervised", "semi-supervised", "Λ", "gain, %", "over Λ = 0, %"]
    of_all: Any = pd.DataFrame(gains, index=["gain", "estimate"]).T
    return {
        "split_settings": "\n".join(markdown_table([*header, "printed gain, %"], rows)),
        "split_settings_splits": str(len({split for _, split in errors.index})),
        "split_settings_supervised": str(int(((ratios - 1).abs() <= NEAR).sum())),
        "split_settings_estimates": str(int(((of_all["estimate"] - 1).abs() <= NEAR).sum())),
        "split_settings_gain": str(int((of_all["gain"] > 0).sum())),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")
