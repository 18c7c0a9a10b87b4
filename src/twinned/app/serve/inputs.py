"""What a row of a request must have: the inputs that the features of a model are made from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from twinned.app.prediction import TablePredictor
from twinned.app.tables.columns import EPOCH, PARTS
from twinned.app.tables.frames import LIMIT, derived_from
from twinned.rows.schema import ORDINAL, Floats

Json = dict[str, Any]


@dataclass(frozen=True)
class Input:
    """A column of a request: a feature of the model, a date, a molecule, or the batch.

    `values` (anchor,) are those of the known rows: codes of `categories`, days of a date, and none
    of a molecule. `kind` is date, datetime or smiles, None for a feature and the batch.
    """

    name: str
    values: Floats
    categories: list[str] | None = None
    is_ordered: bool = False
    kind: str | None = None

    def describe(self, allow_missing: bool) -> Json:
        """The description for the form, with the median or commonest value to start with.

        It is None where most known rows have no value, if it may be missing.
        """
        present = self.values[~np.isnan(self.values)]
        is_known = len(present) >= max(1, len(self.values) / 2 if allow_missing else 1)
        middle = self._middle(present) if is_known else None
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
        inputs, batch = _find_sources(features), None
        if batches is not None and anchors.batch is not None:
            codes = anchors.batch.astype(np.float64)
            batch = Input(str(predictor.batch_column), codes, batches.names)
            inputs.append(batch)
        return cls(features, inputs, batch)


def _find_sources(features: list[Input]) -> list[Input]:
    """Return the columns that features are made from, in the order of the features.

    A column of the user may be named like a part of a date or the mark of a limit, too.
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
            sources[source] = Input(source, np.array([]), kind="smiles")
        else:
            sources[feature.name] = feature
    return list(sources.values())
