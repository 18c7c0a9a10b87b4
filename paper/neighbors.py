"""k-NN regression, the green line of figure B: a twin whose predicted difference is always zero.

It has the 80 %, as it needs no validation rows, and X as the networks of the flavour see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.forests import rmse
from paper.networks import rows_of
from paper.records import Run
from twinned._neighbors import distance_matrix

NEIGHBOURS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def expand_neighbours(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    return [Run("neighbours", flavour, dataset, split, {"neighbours": list(NEIGHBOURS)})]


def execute_neighbours(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Test error for each number of neighbours."""
    for run in batch:
        learn, validation, test = rows_of(run.dataset, run.split)
        X, y = (np.concatenate(parts) for parts in zip(learn, validation, strict=True))
        middle, spread = X.mean(axis=0), X.std(axis=0)
        if run.flavour != "modern":
            spread = (X - middle).max(axis=0)  # the author's: the signed maximum
        spread = np.where(spread > 0, spread, 1.0)
        distances = distance_matrix((test[0] - middle) / spread, (X - middle) / spread)
        nearest = np.argsort(distances, axis=1, kind="stable")
        yield (
            run,
            {
                str(k): rmse(y[nearest[:, :k]].mean(axis=1), test[1])
                for k in run.settings["neighbours"]
                if k <= len(y)
            },
        )
