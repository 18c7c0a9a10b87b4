"""Requests: what a row must have, its reading as the row of a table, and errors in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from twinned.app.prediction import TablePredictor
from twinned.app.tables.columns import EPOCH, PARTS
from twinned.app.tables.frames import LIMIT, derived_from
from twinned.app.tables.table import Table, cell_text
from twinned.estimators.molecules import read_molecules
from twinned.rows.schema import ORDINAL, Floats

MAX_ROWS = 1_000
Json = dict[str, Any]


class BadRequest(ValueError):
    """A request that cannot be processed: an HTTP status and one sentence."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


def short_repr(value: object) -> str:
    """Return the repr of a value, cut to 80 characters."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def parse_rows(body: bytes) -> tuple[list[Json], float | None]:
    """Return the rows and the confidence of the body of a request."""
    try:
        content = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        message = 'the body must be JSON: {"rows": [{name: value, …}, …]}.'
        raise BadRequest(message, 400) from None
    if not isinstance(content, dict):
        raise BadRequest("the body must be a JSON object with 'rows', 'confidence'.")
    if unknown := [name for name in content if name not in ("rows", "confidence")]:
        raise BadRequest(f"{short_repr(unknown[0])} is unknown; use 'rows', 'confidence'.")
    rows = content.get("rows")
    if not isinstance(rows, list) or not rows:
        raise BadRequest(f"'rows' must be a list of rows, not {short_repr(rows)}.")
    if len(rows) > MAX_ROWS:
        raise BadRequest(f"there are too many rows; send at most {MAX_ROWS:,}.", 413)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise BadRequest(f"'rows', item {number} must be an object, not {short_repr(row)}.")
    value = content.get("confidence")
    if value is None or (isinstance(value, float) and 0 < value < 1):
        return rows, value
    raise BadRequest(f"'confidence' must be a number between 0 and 1, not {short_repr(value)}.")


def rows_table(rows: list[Json]) -> Table:
    """Return rows of JSON as the table that the commands read from a file of the same cells.

    Numbers have a decimal point, and null is a missing value. All rows must have the same names.
    """
    columns: dict[str, list[str]] = {name: [] for row in rows for name in row}
    for number, row in enumerate(rows, start=1):
        location = f"the request, row {number}"
        for name, cells in columns.items():
            if name not in row:
                raise BadRequest(f"{location} lacks {name!r}, which another row has.")
            value = row[name]
            if value is not None and not isinstance(value, str | int | float):
                wrong = f"must be a number or text, not {short_repr(value)}"
                raise BadRequest(f"{location}, column {name!r} {wrong}.")
            cells.append(cell_text(value))
    return Table(
        path=Path("the request"),
        names=list(columns),
        columns=list(columns.values()),
        lines=list(range(1, len(rows) + 1)),
        line_word="row",
        is_file=False,
    )


# --- inputs: the columns that the features of a model are made from -------------------------------


@dataclass(frozen=True)
class Input:
    """A column of a request: a feature of the model, a date, a molecule, or the batch.

    `values` (anchor,) are those of the known rows: codes of `categories`, days of a date, and none
    of a molecule. `kind` is date, datetime or smiles, None for a feature and the batch. `example`
    is a known molecule, where the known rows are named by their SMILES.
    """

    name: str
    values: Floats
    categories: list[str] | None = None
    is_ordered: bool = False
    kind: str | None = None
    example: str | None = None

    def describe(self, allow_missing: bool) -> Json:
        """The description for the form, with the median or commonest value to start with.

        It is None where most known rows have no value, if it may be missing.
        """
        present = self.values[~np.isnan(self.values)]
        is_known = len(present) >= max(1, len(self.values) / 2 if allow_missing else 1)
        middle = self._middle(present) if is_known else self.example
        if self.kind is not None:
            return {"name": self.name, "kind": self.kind, "middle": middle}
        content: Json = {"name": self.name, "choices": self.categories, "ordered": self.is_ordered}
        if self.categories is None:
            ends = [float(present.min()), float(present.max())] if len(present) else None
            content["range"] = ends
        return content | {"middle": middle}

    def _middle(self, present: Floats) -> float | str:
        if self.categories is not None:
            return self.categories[int(np.argmax(np.bincount(present.astype(np.intp))))]
        median = float(np.quantile(present, 0.5, method="lower"))
        if self.kind is None:
            return median
        date = EPOCH + timedelta(days=median)
        return str(date.date()) if self.kind == "date" else date.isoformat(timespec="minutes")


@dataclass(frozen=True)
class RowInputs:
    """The inputs of a row.

    Attributes
    ----------
    features : list of Input
        The features of the model.
    inputs : list of Input
        What a row must have: dates instead of their parts, SMILES instead of descriptors, and no
        marks of limits; and the batch of a model with batches, which may be missing.
    batch : Input or None
        The batch, of a model with batches.
    """

    features: list[Input]
    inputs: list[Input]
    batch: Input | None

    @classmethod
    def of(cls, predictor: TablePredictor) -> RowInputs:
        """The inputs of the rows that a model predicts."""
        anchors, batches = predictor.fitted.anchors, predictor.fitted.batches
        names = predictor.model.feature_labels()
        features = [
            Input(
                name=name,
                values=values,
                categories=None if categories is None else list(map(str, categories)),
                is_ordered=kind == ORDINAL,
            )
            for name, values, categories, kind in zip(
                names, anchors.matrix.T, predictor.categories, anchors.schema.kinds, strict=True
            )
        ]
        inputs, batch = _find_sources(features, map(str, anchors.labels or [])), None
        if batches is not None and anchors.batch is not None:
            codes = anchors.batch.astype(np.float64)
            batch = Input(str(predictor.batch_column), codes, batches.names)
            inputs.append(batch)
        return cls(features, inputs, batch)


def _find_sources(features: list[Input], labels: Iterable[str]) -> list[Input]:
    """Return the columns that features are made from, in the order of the features.

    Labels of known rows may be SMILES, of which one is an example. A column of the user may be
    named like a part of a date or the mark of a limit, too.
    """
    by_source: dict[str, dict[str | None, Input]] = {}
    for feature in features:
        source, part = derived_from(feature.name)
        by_source.setdefault(source, {})[part] = feature
    sources: dict[str, Input] = {}
    for feature in features:
        source, part = derived_from(feature.name)
        parts = by_source[source]
        if part == LIMIT and None in parts and np.isin(feature.values, [-1, 0, 1]).all():
            continue
        is_part = part is not None and None not in parts
        if is_part and part in PARTS and "days" in parts:
            kind = "datetime" if "hour" in parts else "date"
            sources[source] = Input(source, parts["days"].values, kind=kind)
        elif is_part and part not in (LIMIT, *PARTS) and len(parts.keys() - {LIMIT, *PARTS}) > 1:
            if source not in sources:
                example = next((text for text in labels if read_molecules([text])[0]), None)
                sources[source] = Input(source, np.array([]), kind="smiles", example=example)
        else:
            sources[feature.name] = feature
    return list(sources.values())
