"""The paper's tables and figures as runs, records and pictures.

`EXPERIMENTS` are what there is; `runner` does their runs and keeps records; `tables` sets ours
beside what the paper printed.
"""

from twinned.experiments.forests import execute_table5, expand_table5
from twinned.experiments.records import Records, Run
from twinned.experiments.runner import Experiment, expand, perform
from twinned.experiments.storage import execute_figure_f, expand_figure_f

__all__ = ["EXPERIMENTS", "Experiment", "Records", "Run", "expand", "perform"]

EXPERIMENTS = {
    one.key: one
    for one in (
        Experiment(
            "T5",
            "table",
            "a random forest and its twin, 100 of the first 200 rows",
            ("as_published", "modern"),
            expand_table5,
            execute_table5,
        ),
        Experiment(
            "F",
            "figure",
            "numbers stored by an ensemble, against its size",
            ("modern",),
            expand_figure_f,
            execute_figure_f,
            of_data=False,
        ),
    )
}
