"""LightGBM on pairs that are built and binned in blocks.

LightGBM stores one byte per feature of a pair, where the pair itself takes eight. Given as a
`lightgbm.Sequence`, pairs are built block by block, binned and discarded, so that all pairs of
2,000 rows fit into memory where their matrix does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from twinned._compat import set_booster
from twinned.models.memory import row_blocks
from twinned.pairing.features import PairFeatures
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, Rows

_BLOCK_BYTES = 8_000_000  # of pairs in memory at once
_FIRST_PAIRS = 1_000  # enough for LightGBM to resolve its parameters
# Aliases of `n_estimators`, which take precedence in LightGBM's own `fit`.
_N_ESTIMATORS_ALIASES = {"num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees"}
_N_ESTIMATORS_ALIASES |= {"num_round", "num_rounds", "nrounds", "num_boost_round", "max_iter"}


@dataclass(frozen=True, eq=False)
class LazyPairMatrix:
    """A pair matrix whose rows are built when they are accessed.

    Its pairs are rows `first` of `left` with rows `second` of `right`.
    """

    features: PairFeatures
    left: Rows
    right: Rows
    first: Indices
    second: Indices

    def __len__(self) -> int:
        return len(self.first)

    @property
    def nbytes(self) -> int:
        return len(self) * self.features.bytes_per_pair

    @property
    def block_rows(self) -> int:
        """Number of rows of a block."""
        return max(1, _BLOCK_BYTES // self.features.bytes_per_pair)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """One row, or those of a slice or a list."""
        return self._build(rows)

    def _build(self, rows: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        left, right = self.left.take(self.first[rows]), self.right.take(self.second[rows])
        return self.features.build(left, right, out)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The whole matrix, filled in blocks, so that no second array of its size is allocated."""
        pairs = np.empty((len(self), self.features.width), dtype=dtype or self.features.dtype)
        for rows in row_blocks(len(self), self.block_rows):
            self._build(rows, pairs[rows])
        return pairs


def supports_blocks(base: Any) -> bool:
    """Whether `fit_in_blocks` can fit this estimator."""
    if type(base).__module__.partition(".")[0] != "lightgbm":
        return False
    import lightgbm

    return (
        type(base) is lightgbm.LGBMRegressor
        and not _N_ESTIMATORS_ALIASES & set(base.get_params())
        and not callable(base.objective)
        and not base.get_params().get("linear_tree", False)  # needs the raw values
    )


def bytes_per_binned_pair(width: int) -> int:
    """Memory of LightGBM per pair: bins, their copy, gradients and scores.

    Measured with 1,000 to 2,000 rows, and rounded up.
    """
    return 32 + 3 * width


def fit_in_blocks(
    base: Any, pairs: LazyPairMatrix, target: Floats, sample_weight: Any = None
) -> Any:
    """Fit an `LGBMRegressor` to pairs built in blocks, with the same result as its own `fit`.

    Its `fit` does not support `lightgbm.Sequence`. So it is fitted to a few pairs, which resolves
    its parameters, and then gets the booster that is trained on all pairs.
    """
    import lightgbm

    class Blocks(lightgbm.Sequence):  # type: ignore[misc, unused-ignore]
        batch_size = pairs.block_rows

        def __len__(self) -> int:
            return len(pairs)

        def __getitem__(self, rows: Any) -> Any:
            return pairs[rows]

    first_pairs = slice(0, min(_FIRST_PAIRS, len(pairs)))
    fitted = clone(base).set_params(n_estimators=1).fit(pairs[first_pairs], target[first_pairs])
    settings = fitted.booster_.params | {"num_iterations": base.n_estimators}
    rows = lightgbm.Dataset(Blocks(), label=target, weight=sample_weight, params=settings)
    fitted.set_params(n_estimators=base.n_estimators)
    booster = lightgbm.train(settings, rows)
    booster.free_dataset()
    set_booster(fitted, booster)
    return fitted
