"""Applicability of a fitted twin to new rows: inside, at the edge, or outside of the anchors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from twinned.exceptions import ShiftWarning
from twinned.fitted.applicability import LABELS, ROWS_PER_BLOCK, count_outside
from twinned.fitted.known_values import is_unlikely
from twinned.fitted.twin import Anchors, Queries
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats


def classify(anchors: Anchors, queries: Queries) -> tuple[Floats, Indices]:
    """(query,): scores and classes; rows are encoded in blocks, as indicators take memory."""
    domain, score = anchors.domain, np.empty(len(queries))
    for rows in gen_batches(len(queries), ROWS_PER_BLOCK):
        score[rows] = domain.score(queries.take(rows).features)
    return score, domain.classify(queries.matrix, score)


def applicability_columns(
    anchors: Anchors, queries: Queries, measured: dict[str, Any] | None
) -> dict[str, Any]:
    """Columns of the table of `applicability`.

    `measured` are the error and the coverage of the classes, where they have been measured.
    """
    score, classes = classify(anchors, queries)
    columns: dict[str, Any] = {"score": score, "label": np.array(LABELS, dtype=object)[classes]}
    if measured is not None:
        is_new = anchors.domain.has_new_category(queries.matrix)
        for name in ("error", "coverage"):
            columns[name] = np.where(is_new, np.nan, measured[name][classes])
    return columns


def warn_of_shift(anchors: Anchors, queries: Queries, names: list[Any], stacklevel: int) -> None:
    """Warn where more rows are outside than exchangeable rows would, or have a new category."""
    domain, matrix = anchors.domain, queries.matrix
    classes = classify(anchors, queries)[1]
    n_outside, n_rows = count_outside(classes), len(classes)
    n_new = int(domain.has_new_category(matrix).sum())
    if not n_new and not is_unlikely(n_outside, n_rows, domain.expected_share()):
        return
    known_values = domain.known_values
    beyond = known_values.beyond(matrix) | known_values.newly_missing(matrix)
    features = [names[j] for j in np.argsort(-beyond.sum(axis=0))[:3] if beyond[:, j].any()]
    where = f" (in {', '.join(map(repr, features))})" if features else ""
    new = f"; {n_new} of them have a category that no training row has" if n_new else ""
    warnings.warn(
        f"{n_outside} of {n_rows} rows lie outside of the training rows{where}{new}. There, "
        "prediction intervals may cover less than their confidence; "
        "applicability(X) classifies the rows.",
        ShiftWarning,
        stacklevel=stacklevel + 1,
    )
