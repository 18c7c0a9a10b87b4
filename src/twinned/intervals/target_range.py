"""Possible values of a target, as far as its name and its known values show them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twinned.rows.formatting import split_unit
from twinned.rows.schema import Floats


class TargetRange(NamedTuple):
    """The least and the largest possible value of a target; infinite where there is none."""

    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def of(cls, name: str, known: Floats) -> TargetRange:
        """The range of a target by its name and its known values (n,).

        It begins at 0 if no known value is negative, and ends at 100 if the name has the unit %
        and all known values are between 0 and 100.

        >>> TargetRange.of("yield (%)", np.array([3.0, 98.0]))
        TargetRange(low=0.0, high=100.0)
        >>> TargetRange.of("growth (%)", np.array([-3.0, 98.0]))
        TargetRange(low=-inf, high=inf)
        """
        if known.min() < 0:
            return cls()
        is_share = split_unit(name)[1] == " %" and known.max() <= 100
        return cls(0.0, 100.0 if is_share else np.inf)

    def describe_beyond(self, low: Floats, high: Floats) -> str:
        """Return how many intervals (n,) have an end that is not possible; empty if none has."""
        below, above, n = int(np.sum(low < self.low)), int(np.sum(high > self.high)), len(low)
        parts = []
        if below:
            parts.append(f"{below:,} of {n:,} intervals begin below 0, but no known value does")
        if above:
            parts.append(f"{above:,} of {n:,} intervals end above 100, but no known value does")
        return "; ".join(parts)
