"""What a row of a request must have: the inputs that the features of a model are made from."""

from __future__ import annotations

from collections.abc import Mapping
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
    """A column of a request: a feature of the model, or the batch.

    `categories` are their names, None of a numeric feature, and `values` (anchor,) those of the
    known rows, categories as codes.
    """

    name: str
    values: Floats
    categories: list[str] | None = None
    is_ordered: bool = False

    def describe(self, allow_missing: bool) -> Json:
        """The description for the form, with the median or commonest value to start with.

        It is None where most known rows have no value, if it may be missing.
        """
        content: Json = {"name": self.name, "choices": self.categories, "ordered": self.is_ordered}
        present, middle = _present(self.values, allow_missing)
        if self.categories is None:
            content["range"] = (
                [float(present.min()), float(present.max())] if len(present) else None
            )
            return content | {"middle": None if middle is None else float(middle)}
        if middle is not None:
            counts = np.bincount(present.astype(np.intp))
            return content | {"middle": self.categories[int(np.argmax(counts))]}
        return content | {"middle": None}


@dataclass(frozen=True)
class DateInput:
    """A date of the request, whose parts are features of the model."""

    name: str
    features: dict[str, str]  # the feature of each part
    days: Floats  # (anchor,)

    @property
    def has_time(self) -> bool:
        """Whether the hour is a feature."""
        return "hour" in self.features

    def describe(self, allow_missing: bool) -> Json:
        """The description for the form, with the median day."""
        _, days = _present(self.days, allow_missing)
        middle = None
        if days is not None:
            date = EPOCH + timedelta(days=float(days))
            middle = date.isoformat(timespec="minutes") if self.has_time else str(date.date())
        kind = "datetime" if self.has_time else "date"
        return {"name": self.name, "kind": kind, "middle": middle}


@dataclass(frozen=True)
class MoleculeInput:
    """A SMILES of the request, whose descriptors and fragments are features of the model."""

    name: str
    features: list[str]

    def describe(self, allow_missing: bool) -> Json:
        """The description for the form, which starts without a molecule."""
        return {"name": self.name, "kind": "smiles", "middle": None}


def _present(values: Floats, allow_missing: bool) -> tuple[Floats, float | None]:
    """Return the known values and one in their middle, None where too few rows have a value."""
    present = values[~np.isnan(values)]
    is_known = len(present) >= (len(values) / 2 if allow_missing else 1)
    return present, float(np.quantile(present, 0.5, method="lower")) if is_known else None


@dataclass(frozen=True)
class RowInputs:
    """The inputs of a row.

    Attributes
    ----------
    features : list of Input
        The features of the model.
    inputs : list of Input, DateInput and MoleculeInput
        What a row must have: dates instead of their parts, SMILES instead of descriptors, and no
        marks of limits; and the batch of a model with batches, which may be missing.
    batch : Input or None
        The batch, of a model with batches.
    """

    features: list[Input]
    inputs: list[Input | DateInput | MoleculeInput]
    batch: Input | None

    @classmethod
    def of(cls, predictor: TablePredictor) -> RowInputs:
        """The inputs of the rows that a model predicts."""
        anchors, batches = predictor.fitted.anchors, predictor.fitted.batches
        names = predictor.model.feature_labels()
        values = dict(zip(names, anchors.matrix.T, strict=True))
        dates, molecules, limits = _find_sources(values)
        sources = {marker: name for name, marker in limits.items()}
        for date in dates:
            sources |= dict.fromkeys(date.features.values(), date.name)
        for molecule in molecules:
            sources |= dict.fromkeys(molecule.features, molecule.name)
        features = [
            Input(
                name=name,
                values=values[name],
                categories=None if categories is None else list(map(str, categories)),
                is_ordered=kind == ORDINAL,
            )
            for name, categories, kind in zip(
                names, predictor.categories, anchors.schema.kinds, strict=True
            )
        ]
        columns: list[Input | DateInput | MoleculeInput] = [*features, *dates, *molecules]
        by_name = {column.name: column for column in columns}
        inputs = [by_name[name] for name in dict.fromkeys(sources.get(n, n) for n in names)]
        batch = None
        if batches is not None and anchors.batch is not None:
            codes = anchors.batch.astype(np.float64)
            batch = Input(str(predictor.batch_column), codes, batches.names)
            inputs.append(batch)
        return cls(features, inputs, batch)


def _find_sources(
    columns: Mapping[str, Floats],
) -> tuple[list[DateInput], list[MoleculeInput], dict[str, str]]:
    """Return the dates and molecules of features, and the features that mark limits of others.

    `columns` has the values of each feature: a column of the user may have such a name, too.
    """
    parts_of: dict[str, dict[str, str]] = {}
    of_molecules: dict[str, list[str]] = {}
    limits: dict[str, str] = {}
    for name, values in columns.items():
        source, part = derived_from(name)
        if part == LIMIT and source in columns and np.isin(values, [-1, 0, 1]).all():
            limits[source] = name
        elif part in PARTS and source not in columns:
            parts_of.setdefault(source, {})[part] = name
        elif part not in (None, LIMIT, *PARTS) and source not in columns:
            of_molecules.setdefault(source, []).append(name)
    dates = [
        DateInput(name, features, columns[features["days"]])
        for name, features in parts_of.items()
        if {"days"} < features.keys()
    ]
    molecules = [MoleculeInput(*of_name) for of_name in of_molecules.items() if len(of_name[1]) > 1]
    return dates, molecules, limits
