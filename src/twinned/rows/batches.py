"""Batches of rows, such as laboratories or instruments, whose values of y have unknown offsets."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from twinned.exceptions import UnknownBatchWarning
from twinned.rows.schema import Floats, Indices

_WHOLE = re.compile(r"(-?\d+)\.0+")
_DIGITS = 8  # of the standard deviation of the errors, in y without offsets


@dataclass(frozen=True, eq=False)
class BatchOffsets:
    """Offsets of batches, from the residuals of their known rows.

    A residual is the offset of its batch plus an error. With `shrinks`, the offsets are the
    expected ones, given their variance between batches: a batch with few known rows has an offset
    near the mean of all batches.
    """

    names: list[str]
    means: Floats  # (batch,): mean residuals
    counts: Floats  # (batch,): sums of the weights of known rows
    between: float  # standard deviation of the offsets
    within: float  # standard deviation of the errors
    shrinks: bool

    @classmethod
    def of_means(
        cls, names: list[str], means: Floats, counts: Floats, within: float, shrinks: bool
    ) -> BatchOffsets:
        """With the variance between batches by the method of DerSimonian and Laird."""
        used = counts > 0
        weight, own = counts[used] / max(within**2, 1e-300), means[used]
        excess = np.sum(weight * (own - np.average(own, weights=weight)) ** 2) - (len(own) - 1)
        divisor = weight.sum() - np.sum(weight**2) / weight.sum()
        between = float(np.sqrt(max(0.0, excess / divisor))) if divisor > 0 else 0.0
        return cls(names, means, counts, between, within, shrinks)

    @classmethod
    def estimate(
        cls,
        names: list[str],
        residual: Floats,
        batch: Indices,
        weight: Floats | None,
        shrinks: bool,
    ) -> BatchOffsets:
        """From residuals (row,), codes of batches and sample weights.

        >>> codes, residual = np.array([0, 0, 1, 1]), np.array([1.0, 1.2, -1.2, -1.0])
        >>> BatchOffsets.estimate(["a", "b"], residual, codes, None, False).offsets
        array([ 1.1, -1.1])
        """
        weight = np.ones(len(batch)) if weight is None else weight
        counts = np.bincount(batch, weight, len(names)).astype(np.float64)
        means = np.bincount(batch, weight * residual, len(names)) / np.maximum(counts, 1e-300)
        squares = float(np.sum(weight * (residual - means[batch]) ** 2))
        n_errors = max(1.0, float(weight.sum()) - np.count_nonzero(counts))
        return cls.of_means(names, means, counts, float(np.sqrt(squares / n_errors)), shrinks)

    def _share(self, counts: Floats) -> Floats:
        """The share of a mean residual that is its offset, by the number of its rows."""
        if not self.shrinks:
            return (counts > 0).astype(np.float64)
        total = counts * self.between**2 + self.within**2
        return np.divide(counts * self.between**2, total, out=np.zeros_like(total), where=total > 0)

    def _variance(self, counts: Floats) -> Floats:
        """The variance of an estimated offset, by the number of known rows."""
        known = self._share(counts) * self.within**2 / np.maximum(counts, 1e-300)
        return np.where(counts > 0, known, self.between**2)

    @property
    def center(self) -> float:
        """The mean of the offsets, which is that of a batch without known rows."""
        used = self.counts > 0
        variance = self.between**2 + self.within**2 / self.counts[used]
        return float(np.average(self.means[used], weights=1 / np.maximum(variance, 1e-300)))

    @property
    def offsets(self) -> Floats:
        """(batch,): the estimated offsets."""
        return self.center + self._share(self.counts) * (self.means - self.center)

    def remove(self, y: Floats, codes: Indices) -> Floats:
        """(row,): y without the offsets.

        It is rounded, far below the errors, so that models that are fitted to it do not depend on
        the size of the offsets.
        """
        unit = 10.0 ** np.floor(np.log10(max(self.within, 1e-290)) - _DIGITS)
        return np.round((y - self.offsets[codes]) / unit) * unit

    def table(self, n_rows: Indices) -> pd.DataFrame:
        """Offsets relative to their mean, with standard errors and numbers of known rows."""
        error = np.sqrt(self._variance(self.counts))
        columns = {"offset": self.offsets - self.center, "std_error": error, "n_rows": n_rows}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="batch"))

    def codes(self, batch: Any, n_rows: int) -> Indices:
        """(row,): the number of the batch of each row; −1 for one without known rows."""
        labels = batch_labels(batch, n_rows)
        number = {name: code for code, name in enumerate(self.names) if self.counts[code] > 0}
        codes = np.array([-1 if label is None else number.get(label, -1) for label in labels])
        unknown = sorted({labels[row] or "missing" for row in np.flatnonzero(codes < 0)})
        if unknown:
            warnings.warn(unknown_batches("Batches", unknown), UnknownBatchWarning, stacklevel=4)
        return codes.astype(np.intp)

    def of_rows(self, codes: Indices) -> tuple[Floats, Floats]:
        """(row,): offsets and their standard errors; −1 is a batch without known rows."""
        variance = np.append(self._variance(self.counts), self.between**2)
        return np.append(self.offsets, self.center)[codes], np.sqrt(variance)[codes]

    def widening(self, std_error: Floats) -> Floats:
        """Factors of the error scale, by which the error of an offset widens intervals."""
        return np.hypot(1.0, std_error / self.within) if self.within else np.ones_like(std_error)

    def without_own(
        self, residual: Floats, codes: Indices, weight: Floats | None
    ) -> tuple[Floats, Floats]:
        """(row,): offsets from the residuals of the other rows, and factors of the error scale."""
        weight = np.ones(len(codes)) if weight is None else weight
        counts = np.maximum(self.counts[codes] - weight, 0.0)
        counts[counts < 1e-9 * self.counts[codes]] = 0.0
        total = self.counts[codes] * self.means[codes] - weight * residual
        mean = np.where(counts > 0, total / np.maximum(counts, 1e-300), self.center)
        offsets = self.center + self._share(counts) * (mean - self.center)
        return offsets, self.widening(np.sqrt(self._variance(counts)))

    def add(
        self, labels: list[str], residual: Floats, variance: Floats
    ) -> tuple[BatchOffsets, Indices]:
        """The offsets with further known rows, and the codes of their batches (row,).

        `variance` (row,) is that of the errors of the residuals.
        """
        names = [*self.names, *(name for name in dict.fromkeys(labels) if name not in self.names)]
        number = {name: code for code, name in enumerate(names)}
        codes = np.array([number[label] for label in labels], dtype=np.intp)
        weight = max(self.within**2, 1e-280) / variance
        before = np.pad(self.counts, (0, len(names) - len(self.counts)))
        sums = before * np.pad(self.means, (0, len(names) - len(self.means)))
        counts = before + np.bincount(codes, weight, len(names))
        sums += np.bincount(codes, weight * residual, len(names))
        means = sums / np.maximum(counts, 1e-300)
        return replace(self, names=names, means=means, counts=counts), codes


def unknown_batches(name: str, values: Sequence[str]) -> str:
    """Return the message of an `UnknownBatchWarning`.

    >>> unknown_batches("Batches", ["lab 7"])
    'Batches without known rows have the mean offset and wider intervals: lab 7. A few known...'
    """
    shown = ", ".join(values[:5]) + (", …" if len(values) > 5 else "")
    return (
        f"{name} without known rows have the mean offset and wider intervals: {shown}. A few known "
        "rows suffice: add_anchors(X, y, batch=…), or twinned predict --known."
    )


def batch_labels(batch: Any, n_rows: int) -> list[str | None]:
    """(row,): labels of batches as text, None where missing; a single label is that of all rows.

    Whole numbers have no decimals, also as the text of a table.

    >>> batch_labels(np.array([1.0, 2.0, np.nan]), 3), batch_labels("lab A", 2)
    (['1', '2', None], ['lab A', 'lab A'])
    >>> batch_labels(["1.0", "01"], 2)
    ['1', '01']
    """
    values = [batch] * n_rows if np.ndim(batch) == 0 else list(np.asarray(batch, dtype=object))
    if len(values) != n_rows or np.ndim(batch) > 1:
        raise ValueError(f"batch must be one label, or one for each of the {n_rows} rows.")

    def text(value: Any) -> str | None:
        if pd.isna(value):
            return None
        is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
        if is_whole:
            return str(int(value))
        whole = _WHOLE.fullmatch(str(value))
        return whole[1] if whole else str(value)

    return [text(value) for value in values]


def check_batch_labels(batch: Any, y: Floats) -> NDArray[np.str_]:
    """(row,): labels of the batches of training rows; values of `y` (row, …) may be NaN."""
    labels = batch_labels(batch, len(y))
    if None in labels:
        raise ValueError(f"Row {labels.index(None)} has no batch.")
    n_batches = len({*labels})
    if n_batches < 2:
        raise ValueError(f"All rows are of one batch, {labels[0]}; offsets need at least two.")
    if n_batches == len(y):
        raise ValueError("Each row has a batch of its own; offsets need batches of several rows.")
    if any(labels == batch_labels(own, len(y)) for own in y.reshape(len(y), -1).T):
        raise ValueError(
            "batch has the values of y; give the laboratory or instrument of each row."
        )
    return np.array(labels, dtype=str)
