"""The features that each row of a request must have, and rows parsed by them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from twinned.app.serve.errors import BadRequest, short_repr, value_error_as_bad_request
from twinned.app.serve.inputs import InputDate, InputFeature
from twinned.app.tables import (
    EPOCH,
    LIMIT,
    PARTS,
    Table,
    copied_columns,
    derived_from,
    parse_limit,
    prediction_frame,
    source_columns,
)
from twinned.rows.schema import NUMERIC, ORDINAL, Floats, unknown_categories

MAX_ROWS = 1_000
_MAX_DAYS = 80_000  # from 1970, of a date


@dataclass(frozen=True)
class RequestSchema:
    """The features that each row of a request must have, in the order of the model.

    A row may have a date instead of its parts; and a feature of limits follows from its column,
    where a value may be a limit such as <5.
    """

    features: list[InputFeature]
    named: bool  # whether the model was fitted with feature names
    allow_missing: bool
    dates: list[InputDate]
    limits: dict[str, str]  # the feature that marks the limits of another one

    @classmethod
    def from_twin(cls, twin: BaseEstimator) -> RequestSchema:
        """Return the schema of a fitted twin."""
        table = twin.fitted_.anchors.schema
        names = getattr(twin, "feature_names_in_", [f"x{i}" for i in range(table.n_features)])
        # the neighbors of a row with a missing value need a metric that supports it
        metric = getattr(twin.anchors, "metric", "nan_euclidean")
        known = dict(zip(map(str, names), np.asarray(twin.anchors_X_, dtype=float).T, strict=True))
        dates, limits = _derived_features(known)
        return cls(
            features=[
                InputFeature(str(name), None if kind == NUMERIC else list(known), kind == ORDINAL)
                for name, kind, known in zip(names, table.kinds, table.categories, strict=True)
            ],
            named=hasattr(twin, "feature_names_in_"),
            allow_missing=metric in ("nan_euclidean", "learned")
            and bool(get_tags(twin).input_tags.allow_nan),
            dates=dates,
            limits=limits,
        )

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        return [feature.name for feature in self.features]

    @property
    def inputs(self) -> list[InputFeature | InputDate]:
        """What a row must have: dates instead of their parts, and no features of limits."""
        of_date = {feature: date for date in self.dates for feature in date.feature_names}
        others = (f for f in self.features if f.name not in self.limits.values())
        found = (of_date.get(feature.name, feature) for feature in others)
        return list({own.name: own for own in found}.values())

    @property
    def is_all_numeric(self) -> bool:
        """Whether there is no categorical feature."""
        return all(feature.categories is None for feature in self.features)

    def parse_rows(self, rows: list[Any]) -> list[list[Any]]:
        """Return the values of each row, a dict from the client, in the order of the features."""
        if not rows:
            raise BadRequest("there are no rows.")
        if len(rows) > MAX_ROWS:
            raise BadRequest(f"{len(rows):,} rows are too many; send at most {MAX_ROWS:,}.", 413)
        names = [f"row {number}" for number in range(1, len(rows) + 1)]
        for row_name, row in zip(names, rows, strict=True):
            if not isinstance(row, dict):
                raise BadRequest(f"{row_name} must be an object, not {short_repr(row)}.")
        rows = [self._split_limits(row) for row in rows]
        for date in self.dates:
            date.add_parts(rows, names, self.allow_missing)
        for row_name, row in zip(names, rows, strict=True):
            if not row.keys() >= set(self.names):
                raise BadRequest(self._describe_absent(row_name, row))
        return [
            [f.parse_value(row[f.name], row_name, self.allow_missing) for f in self.features]
            for row_name, row in zip(names, rows, strict=True)
        ]

    def _describe_absent(self, row_name: str, row: dict[str, Any]) -> str:
        """Return a sentence on the first input that a row lacks."""
        names = {own.name: own.feature_names for own in self.inputs}
        absent = next(name for name, own in names.items() if not row.keys() >= set(own))
        return f"{row_name} lacks {absent!r}; it must have {short_repr(list(names))}."

    def _split_limits(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with numbers in place of limits, and with the features that mark them."""
        row = dict(row)
        for name, marker in self.limits.items():
            if name in row and marker not in row:
                row[marker] = 0.0
                if (limit := parse_limit(str(row[name]).strip())) is not None:
                    row[name], row[marker] = limit
        return row

    def parse_table(self, table: Table) -> tuple[list[list[Any]], list[str]]:
        """Return the values of each row of a file, as `parse_rows`, and notes on its notation."""
        if len(table) > MAX_ROWS:
            raise BadRequest(f"{len(table):,} rows are too many; send at most {MAX_ROWS:,}.", 413)
        categories = [own.categories for own in self.features]
        with value_error_as_bad_request():
            table.require(source_columns(table, self.names), "features of the model")
            X, notes = prediction_frame(table, self.names, categories)
        if table.detected:
            notes = [f"the table is read with {', '.join(table.detected)}.", *notes]
        values = X.astype(object).where(X.notna(), None).to_numpy()
        parsed = [
            [
                feature.parse_value(value, table.row_name(row), self.allow_missing)
                for feature, value in zip(self.features, own, strict=True)
            ]
            for row, own in enumerate(values)
        ]
        return parsed, notes

    def copied_columns(self, table: Table) -> dict[str, list[str]]:
        """Return the columns of a file, those of numeric features with decimal points."""
        return copied_columns(table, self.names, [own.categories for own in self.features])

    def warnings(self, rows: list[list[Any]]) -> list[str]:
        """Return one line for each feature of parsed rows with a category that is not known.

        The lines are those that `twinned predict` prints.
        """
        columns = zip(self.features, zip(*rows, strict=True), strict=True)
        unknown = ((feature.name, feature.unknown(values)) for feature, values in columns)
        return [unknown_categories(name, values) for name, values in unknown if values]

    def to_table(
        self, rows: list[list[Any]], *, with_names: bool = False
    ) -> np.ndarray | pd.DataFrame:
        """Return parsed rows as the input of `predict`; a missing value becomes NaN.

        Rows of numbers are an array, unless they are wanted with the names of the features.
        """
        if self.is_all_numeric and not (with_names and self.named):
            return np.array(rows, dtype=float)
        table = pd.DataFrame(
            {
                feature.name: np.array(values, dtype=float)
                if feature.categories is None
                else pd.Categorical(values, [*feature.categories, *feature.unknown(values)])
                for feature, values in zip(self.features, zip(*rows, strict=True), strict=True)
            }
        )
        return table if self.named else table.to_numpy()


def _derived_features(known: dict[str, Floats]) -> tuple[list[InputDate], dict[str, str]]:
    """Return the dates and limits that features are made from.

    `known` has the values of each feature: a column of the user may have such a name, too.
    """
    dates: dict[str, dict[str, str]] = {}
    limits: dict[str, str] = {}
    for name, values in known.items():
        source, part = derived_from(name)
        if part == LIMIT and source in known and np.isin(values, [-1, 0, 1]).all():
            limits[source] = name
        elif part in PARTS and source not in known:
            dates.setdefault(source, {})[part] = name
    found = [InputDate(*own) for own in dates.items()]
    return [
        own for own in found if _are_parts({p: known[n] for p, n in own.features.items()})
    ], limits


def _are_parts(values: dict[str, Floats]) -> bool:
    """Whether columns are the days and other parts of the same dates."""
    if not {"days"} < values.keys():
        return False
    days = values["days"]
    present = ~np.isnan(days)
    if not (present.any() and np.all(np.abs(days[present]) < _MAX_DAYS)):
        return False
    dates = [EPOCH + timedelta(days=float(day)) for day in days[present]]
    return all(
        np.allclose([PARTS[part](date) for date in dates], own[present], atol=0.02)
        for part, own in values.items()
    )
