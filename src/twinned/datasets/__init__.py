"""Data sets of the paper: loading, generators and the author's splits.

`load` returns any of the nine as a DataFrame and a Series; `make_tf`, `make_rcl` and `make_wsb`
generate the three that follow a formula, of any size and noise; `paper_split` and `forest_split`
return the paper's 25 splits.
"""

from twinned.datasets.files import fetch
from twinned.datasets.files import load_dataset as load
from twinned.datasets.formulas import make_rcl, make_tf, make_wsb, rcl_truth, tf_truth, wsb_truth
from twinned.datasets.registry import KEYS, PAPER_SEEDS, Dataset, forest_split, info, paper_split

__all__ = [
    "KEYS",
    "PAPER_SEEDS",
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
    "tf_truth",
    "wsb_truth",
]
