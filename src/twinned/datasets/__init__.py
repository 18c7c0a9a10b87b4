"""The nine data sets of the paper: loaded, fetched, generated and split as the author did.

`load` gives any of them as a DataFrame and a Series; `make_tf`, `make_rcl` and `make_wsb`
draw the three that come from a formula at any size and noise; `paper_split` and
`forest_split` repeat the paper's 25 splits.
"""

from twinned.datasets.files import fetch, load
from twinned.datasets.formulas import (
    make_rcl,
    make_tf,
    make_wsb,
    rcl_truth,
    tf_truth,
    wsb_truth,
)
from twinned.datasets.registry import KEYS, Dataset, info
from twinned.datasets.splits import PAPER_SEEDS, forest_split, paper_split

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
