"""Do the answers that the paper finds for twin networks hold for twins of other base models?

Section 5 assumes so. On the rows of the forests (100 to train, 100 to test; five splits), each base
model is fitted to the rows themselves (*base*), and as a twin: of all pairs with all anchors (*all
anchors*), with one random anchor for each test row (*one anchor*) and with the 16 nearest ones
(*nearest anchors*); and of one random partner for each row, with all anchors (*one partner*).
Settings of the base models are fixed, and nothing is chosen by the results. What counts as an
answer that holds is in `paper.conclusions.others`, and was written before the results.

    python -m paper.other_models --jobs 4    # a quarter of an hour of one core in all

Results: `benchmarks/results/other_models.csv`.
"""

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from benchmarks import frame
from paper.data import forest_rows, rmse
from twinned import NearestAnchors, RandomPairs, TwinRegressor
from twinned.datasets import KEYS

BASES = ["extra trees", "boosting", "support vectors", "nearest neighbors"]
N_NEAREST, N_SPLITS = 16, 5
METHODS = ["base", "one_anchor", "all_anchors", "nearest_anchors", "one_partner"]
COLUMNS = ["base_model", "dataset", "seed", *(f"{name}:.6g" for name in METHODS), "seconds:.3g"]


def make_base(name, seed):
    if name == "extra trees":
        return ExtraTreesRegressor(random_state=seed)
    if name == "boosting":
        return HistGradientBoostingRegressor(random_state=seed)
    model = SVR(C=10.0) if name == "support vectors" else KNeighborsRegressor()
    scaled = TransformedTargetRegressor(model, transformer=StandardScaler())
    return make_pipeline(StandardScaler(), scaled)


def run_split(base_model, dataset, seed):
    train, (X, y) = forest_rows(dataset, seed)
    base = make_base(base_model, seed)
    twin = TwinRegressor(base, pairs="all", random_state=seed).fit(*train)
    few = TwinRegressor(base, pairs=RandomPairs(1), random_state=seed).fit(*train)
    _, estimates = twin.predict_anchors(X)
    rows = np.arange(len(y))
    one = estimates[rows, np.random.RandomState(seed).randint(estimates.shape[1], size=len(y))]
    nearest = twin.with_strategies(anchors=NearestAnchors(N_NEAREST))
    predicted = [base.fit(*train).predict(X), one, estimates.mean(axis=1)]
    predicted += [nearest.predict(X), few.predict(X)]
    return {name: rmse(own, y) for name, own in zip(METHODS, predicted, strict=True)}


BENCHMARK = frame.Benchmark(
    "other_models",
    __doc__,
    COLUMNS,
    run=run_split,
    trial=("base_model", "dataset", "seed"),
    axes={"seed": N_SPLITS, "dataset": list(KEYS), "base_model": BASES},
)

if __name__ == "__main__":
    BENCHMARK.main()
