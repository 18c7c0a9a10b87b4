"""Gains of loops in table 4 as published, with the best Λ, beside the printed gains."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frame import markdown_table
from paper.comparison import published_gains
from paper.records import Record
from paper.tables import chosen_loop_weights, table4
from twinned.datasets import KEYS

SUPERVISED, RETRAINED, CHOSEN = (
    f"twinned_rf_{name}" for name in ("supervised", "weight_0", "semi_supervised")
)


def loop_gain_values(found: list[Record]) -> dict[str, str]:
    """Return the table of gains and best Λ, and the number of data sets where the error falls."""
    records = {"semi-supervised-forests": found}
    chosen = chosen_loop_weights(records)
    errors: Any = table4(records).pivot_table(
        index=["dataset", "split"], columns="method", values="rmse"
    )
    rows, n_lower = [], 0
    for key in KEYS:
        of_splits = errors.loc[key]
        means = of_splits.mean()
        gain = 1 - means[CHOSEN] / means[SUPERVISED]
        differences = (of_splits[SUPERVISED] - of_splits[CHOSEN]) / means[SUPERVISED]
        error = differences.std(ddof=0) / np.sqrt(len(differences))
        over_retrained = 1 - means[CHOSEN] / means[RETRAINED]
        printed = published_gains()["T4", key, CHOSEN]
        row = [key, f"{float(chosen[key]):.2g}", f"{_percent(gain)} ± {100 * error:.1f}"]
        rows.append([*row, _percent(over_retrained), f"{printed:g}"])
        n_lower += int(gain > 0)
    header = ["", "Λ", "gain, %", "over Λ = 0, %", "printed gain, %"]
    return {"loop_gains": "\n".join(markdown_table(header, rows)), "loop_gain_sets": str(n_lower)}


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}".replace("-", "−")
