"""Pairs that a learner bins block by block: LightGBM never sees them all at once.

LightGBM keeps one byte for each feature of a pair, where the pair itself takes eight. Given as a
`lightgbm.Sequence`, pairs are built a block at a time, binned, and forgotten, so that all pairs of
2,000 points fit where their matrix does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from twinned._table import Floats, Rows
from twinned.pairing.pairs import PairFeatures

_BLOCK = 8_000_000  # bytes of pairs that exist at once
_FIRST_PAIRS = 1_000  # enough for LightGBM to settle its parameters
# Other names of `n_estimators`, which would have their way in LightGBM's own `fit`.
_ROUNDS = {"num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees"}
_ROUNDS |= {"num_round", "num_rounds", "nrounds", "num_boost_round", "max_iter"}


class LazyPairMatrix:
    """The rows of a pair matrix, each built when it is asked for."""

    def __init__(
        self, features: PairFeatures, left: Rows, right: Rows, first: Any, second: Any
    ) -> None:
        self._features, self._left, self._right = features, left, right
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self._features.width

    @property
    def at_once(self) -> int:
        """How many rows a block has."""
        return max(1, _BLOCK // (self._features.width * self._features.dtype.itemsize))

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """One row, or those of a slice or a list."""
        return self._features.build(
            self._left.take(self._first[rows]), self._right.take(self._second[rows])
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The whole matrix, filled in blocks, so that nothing of its size is made beside it."""
        pairs = np.empty(self.shape, dtype=dtype or self._features.dtype)
        for start in range(0, len(self), self.at_once):
            rows = slice(start, start + self.at_once)
            self._features.build(
                self._left.take(self._first[rows]),
                self._right.take(self._second[rows]),
                pairs[rows],
            )
        return pairs


def supports_blocks(base: Any) -> bool:
    """Whether this learner is one that `fit_in_blocks` can fit."""
    if type(base).__module__.partition(".")[0] != "lightgbm":
        return False
    import lightgbm

    return (
        type(base) is lightgbm.LGBMRegressor
        and not _ROUNDS & set(base.get_params())
        and not callable(base.objective)
        and not base.get_params().get("linear_tree", False)  # which needs the numbers themselves
    )


def bytes_per_binned_pair(width: int) -> int:
    """What LightGBM takes for a pair of so many features: bins, their copy, gradients, scores.

    Measured with 1,000 to 2,000 points, and rounded up.
    """
    return 32 + 3 * width


def fit_in_blocks(
    base: Any, pairs: LazyPairMatrix, target: Floats, sample_weight: Any = None
) -> Any:
    """An `LGBMRegressor` fitted to pairs that are never all there: the same as by its own `fit`.

    Its `fit` takes no `Sequence`. So it is fitted to a few pairs first, which settles its
    parameters as it would settle them itself, and is then given the booster of all pairs.
    """
    import lightgbm

    class Blocks(lightgbm.Sequence):  # type: ignore[misc, unused-ignore]
        batch_size = pairs.at_once

        def __len__(self) -> int:
            return len(pairs)

        def __getitem__(self, rows: Any) -> Any:
            return pairs[rows]

    few = slice(0, min(_FIRST_PAIRS, len(pairs)))
    fitted = clone(base).set_params(n_estimators=1).fit(pairs[few], target[few])
    settings = fitted.booster_.params | {"num_iterations": base.n_estimators}
    rows = lightgbm.Dataset(Blocks(), label=target, weight=sample_weight, params=settings)
    fitted.set_params(n_estimators=base.n_estimators)
    fitted._Booster = lightgbm.train(settings, rows)
    fitted._Booster.free_dataset()
    return fitted
