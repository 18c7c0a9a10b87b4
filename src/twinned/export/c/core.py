"""The contract of models that can be written as C, and the moments of their estimates."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.columns import ColumnEncoding, Singles
from twinned.export.c.source import CSource


class Core(Protocol):
    """A model as a list of weighted estimates of y, in its own units.

    A prediction is `center + unit · (weighted mean of the estimates)`.
    """

    @property
    def columns(self) -> ColumnEncoding:
        """The columns that are computed from the features of a row."""

    @property
    def center(self) -> float:
        """The value of y that an estimate of 0 stands for."""

    @property
    def unit(self) -> float:
        """The factor of the estimates."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """(estimate,): weights that sum to one."""

    @property
    def ram_bytes(self) -> int:
        """The bytes of the arrays on the stack while a row is predicted."""

    def estimates(self, X: Singles) -> Singles:
        """(row, estimate) of rows (row, feature), computed as the C code does."""

    def write(self, source: CSource) -> None:
        """Add the tables, and `static inline void @_moments(const float *x, @_sum *sum)`."""


def predict_as_c(core: Core, X: Singles) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(row,): mean and standard deviation as the C code computes them, but for rounding."""
    estimates = core.estimates(X).astype(np.float64)
    mean = estimates @ core.weights
    variance = (estimates - mean[:, None]) ** 2 @ core.weights
    return core.center + core.unit * mean, core.unit * np.sqrt(variance)


SUM = """
/* The weighted mean of estimates and the weighted sum of their squared deviations. */
typedef struct { float weight; float mean; float squares; } @_sum;

static inline void @_add(@_sum *sum, float weight, float value)
{
    const float apart = value - sum->mean;
    sum->weight += weight;
    if (sum->weight > 0.0f) {
        sum->mean += weight / sum->weight * apart;
        sum->squares += weight * apart * (value - sum->mean);
    }
}
"""


def write_anchors(source: CSource, X: Singles, estimates: Singles, weights: Singles) -> None:
    """Add the tables of anchors: features as given, values in units of the core, and weights."""
    source.table("@_anchors", "float", X)
    source.table("@_anchor_estimates", "float", estimates)
    source.table("@_anchor_weights", "float", weights)
