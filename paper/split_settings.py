"""Table 4 by the author's procedure: forests with the settings that were found on each split.

As many splits as have been run; the supervised twins are those of table 5, on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frame import markdown_table
from paper.comparison import NEAR, published_gains, published_rmse
from paper.forests import tuned_parameters
from paper.loop_relabelling import (
    ALL_LOOP_WEIGHTS,
    LOOP_WEIGHTS,
    searched_on_splits,
    weight_name,
)
from paper.records import Record, Records
from twinned.datasets import KEYS, PAPER_SEEDS

PROCEDURE = ("semi-supervised-forests", "as_published")
N_RESULTS = len(ALL_LOOP_WEIGHTS) * len(KEYS) * len(PAPER_SEEDS)
TWIN = "twinned_rf"
FEW = tuple(weight_name(weight) for weight in LOOP_WEIGHTS)


def of_procedure(found: list[Record]) -> list[Record]:
    """Return the records with the settings of each split, where all splits have all Λ.

    Else those with the settings of split 0, of an earlier version.
    """
    own = [r for r in found if _forest(r) == searched_on_splits().get(_split(r))]
    if sum(len(r["result"]["loops"]) for r in own) >= N_RESULTS:
        return own
    return [r for r in found if _forest(r) == tuned_parameters()[_split(r)[0]]["leaking"]]


def _forest(record: Record) -> Any:
    return record["config"]["settings"]["forest"]


def _split(record: Record) -> tuple[str, int]:
    return record["config"]["dataset"], record["config"]["split"]


def split_setting_values(records: Records) -> dict[str, str]:
    """Return the table of the splits that have been run, and their number."""
    found = [r for r in records.read(*PROCEDURE) if set(FEW) <= {*r["result"]["loops"]}]
    errors = _errors(r for r in found if _forest(r) == searched_on_splits()[_split(r)])
    before = _errors(r for r in found if _forest(r) == tuned_parameters()[_split(r)[0]]["leaking"])
    twins: Any = pd.Series(
        {
            _split(r): r["result"][TWIN]
            for r in records.read("forests", "as_published")
            if TWIN in r["result"]
        }
    )
    all_splits, printed = twins.groupby(level=0).mean(), published_rmse("T4")
    ratios = all_splits / printed[f"{TWIN}_supervised"]
    rows = []
    for name, own in errors.groupby(level=0):
        key = str(name)
        means, earlier = own.mean(), before.loc[own.index].mean()
        best = str(means[list(FEW)].idxmin())
        gain = 1 - means[best] / means["supervised"]
        lowest = 1 - earlier[list(FEW)].min() / earlier["supervised"]
        apart = (own["supervised"] - own[best]) / means["supervised"]
        error = apart.std(ddof=0) / np.sqrt(len(own))
        semi_supervised = all_splits[key] * (1 - gain) / printed[f"{TWIN}_semi_supervised"][key]
        of_print = published_gains()["T4", key, f"{TWIN}_semi_supervised"]
        cells = [key, str(len(own)), f"{ratios[key]:.3f}", f"{semi_supervised:.3f}"]
        cells += [f"{float(best):.2g}", f"{_percent(gain)} ± {100 * error:.1f}"]
        if len(own) == 1:
            cells[-1] = _percent(gain)
        cells += [_percent(1 - means[best] / means["0"]), _percent(lowest), f"{of_print:g}"]
        rows.append(cells)
    header = ["", "splits", "supervised", "semi-supervised", "Λ", "gain, %", "over Λ = 0, %"]
    header += ["gain by the settings of the first split, %", "printed gain, %"]
    return {
        "split_settings": "\n".join(markdown_table(header, rows)),
        "split_settings_splits": str(len(errors)),
        "split_settings_all": str(len(KEYS) * len(PAPER_SEEDS)),
        "split_settings_supervised": str(int(((ratios - 1).abs() <= NEAR).sum())),
    }


def _errors(records: Iterable[Record]) -> pd.DataFrame:
    """(data set, split) × supervised and Λ: test errors."""
    rows = {
        _split(r): {"supervised": r["result"]["supervised"]} | r["result"]["loops"] for r in records
    }
    return pd.DataFrame(rows).T.sort_index()


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")
