"""Labels of batches of rows, such as laboratories or instruments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from twinned.rows.schema import Floats

_WHOLE = re.compile(r"(-?\d+)\.0+")


def unknown_batches(
    labels: Sequence[str | None], remedy: str = "add_anchors(X, y, batch=…)"
) -> str:
    """Return the message of an `UnknownBatchWarning`; a remedy makes rows of a batch known.

    >>> unknown_batches(["lab 7", None])
    'Batches without known rows have the mean offset and wider intervals: lab 7, missing. A few...'
    """
    names = sorted({label or "missing" for label in labels})
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return (
        f"Batches without known rows have the mean offset and wider intervals: {shown}. A few "
        f"known rows of a batch suffice: {remedy}."
    )


def batch_labels(batch: ArrayLike, n_rows: int) -> list[str | None]:
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


def check_batch_labels(batch: ArrayLike, y: Floats) -> NDArray[np.str_]:
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
