"""Do the files of TF, RCL and WSB follow the printed formulas, with the printed noise?

Standard deviations of the targets around the formula as printed, and around the one of the file:
`benchmarks/results/formulas.csv`.

    python -m paper.formulas    # a second
"""

from benchmarks import frame
from paper.data import load_arrays
from twinned.datasets import rcl_truth, tf_truth, wsb_truth
from twinned.datasets.formulas import PRINTED_NOISE

COLUMNS = ["dataset", "printed_noise", "around_printed:.4g", "around_own:.4g"]


def describe_noise(dataset):
    X, y = load_arrays(dataset)
    own = {"TF": tf_truth, "RCL": rcl_truth, "WSB": wsb_truth}[dataset](X)
    printed = rcl_truth(X, as_printed=True) if dataset == "RCL" else own
    deviations = {"around_printed": (y - printed).std(), "around_own": (y - own).std()}
    return deviations | {"printed_noise": 0.0 if dataset == "TF" else PRINTED_NOISE}


BENCHMARK = frame.Benchmark(
    "formulas",
    __doc__,
    COLUMNS,
    run=describe_noise,
    trial=("dataset",),
    axes={"dataset": ["TF", "RCL", "WSB"]},
)

if __name__ == "__main__":
    BENCHMARK.main()
