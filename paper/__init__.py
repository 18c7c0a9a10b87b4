"""The paper's tables and figures as runs, records and pictures.

`catalogue` is what there is; `runner` does the runs of a study and keeps records; `views` are what
tables and figures show of them, and `tables` sets ours beside what the paper printed.
"""

from paper.catalogue import EXPERIMENTS, STUDIES, Experiment
from paper.records import Records, Run
from paper.runner import Study, expand, perform

__all__ = [
    "EXPERIMENTS",
    "STUDIES",
    "Experiment",
    "Records",
    "Run",
    "Study",
    "expand",
    "perform",
]
