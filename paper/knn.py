"""k-NN regression, the green line of figure B: a twin with a predicted difference of zero.

It is fitted on the 80 %, as it needs no validation rows, with X scaled as the networks of the
variant scale it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.data import rmse, training_and_test_rows
from paper.networks import NEIGHBORS
from paper.records import Trial
from twinned.rows.neighbors import distance_matrix


def knn_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    return [Trial("neighbors", variant, dataset, split, {"neighbors": list(NEIGHBORS)})]


def run_knn(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield test errors for each number of neighbors."""
    for trial in batch:
        (X, y), (X_test, y_test) = training_and_test_rows(trial.dataset, trial.split)
        center, scale = X.mean(axis=0), X.std(axis=0)
        if trial.variant != "modern":
            scale = (X - center).max(axis=0)  # the author's scaling: the signed maximum
        scale = np.where(scale > 0, scale, 1.0)
        distances = distance_matrix((X_test - center) / scale, (X - center) / scale)
        nearest = np.argsort(distances, axis=1, kind="stable")
        yield (
            trial,
            {
                str(k): rmse(y[nearest[:, :k]].mean(axis=1), y_test)
                for k in trial.settings["neighbors"]
                if k <= len(y)
            },
        )
