"""Data sets of the paper and of the UCI standard splits: loading, generators and splits.

`load` returns any of them as a DataFrame and a Series; `make_tf`, `make_rcl` and `make_wsb`
generate the three that follow a formula, of any size and noise; `paper_split` and `forest_split`
return the paper's 25 splits, `standard_split` one of the 20 UCI standard splits.
"""

from twinned.datasets.files import fetch
from twinned.datasets.files import load_dataset as load
from twinned.datasets.formulas import make_rcl, make_tf, make_wsb, rcl_truth, tf_truth, wsb_truth
from twinned.datasets.registry import (
    KEYS,
    PAPER_SEEDS,
    STANDARD_KEYS,
    STANDARD_SPLITS,
    Dataset,
    forest_split,
    info,
    paper_split,
    standard_split,
)

__all__ = [
    "KEYS",
    "PAPER_SEEDS",
    "STANDARD_KEYS",
    "STANDARD_SPLITS",
    "Dataset",
    "fetch",
    "forest_split",
    "info",
    "load",
    "make_rcl",
    "make_tf",
    "make_wsb",
    "paper_split",
    "rcl_truth",
    "standard_split",
    "tf_truth",
    "wsb_truth",
]
