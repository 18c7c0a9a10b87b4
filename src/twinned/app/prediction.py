"""A fitted twin applied to the rows of a table, for the commands and the service."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from twinned._compat import safe_indexing
from twinned.app.report.grid import find_pairs
from twinned.app.tables import frames
from twinned.app.tables.columns import target_column
from twinned.app.tables.numbers import is_missing
from twinned.app.tables.table import Table
from twinned.estimators.base import TwinMethods
from twinned.estimators.molecules import fragment_columns, is_fragment
from twinned.estimators.target import split_target
from twinned.exceptions import TableWarning
from twinned.fitted.applicability import KnownValues
from twinned.fitted.explanation import ComparableCases, find_comparables
from twinned.fitted.prediction import Prediction
from twinned.fitted.twin import FittedTwin
from twinned.rows.formatting import number_text
from twinned.rows.schema import NUMERIC, Floats
from twinned.rows.validation import unknown_batches

Columns = dict[str, np.ndarray]  # of a result, by name
_MAX_ADJUSTED_ROWS = 20


@dataclass(frozen=True)
class FeatureRows:
    """The features of the rows of a table as a model takes them, and the batches of the rows.

    `batch` (row,) is None in rows without one; it is None for a table without a column of batches.
    `molecules` (row,) are SMILES, None for a model without a column of them.
    """

    X: pd.DataFrame | np.ndarray
    batch: np.ndarray | None
    notes: list[str] = field(default_factory=list)
    molecules: list[str] | None = None

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: slice) -> Self:
        """These rows only, without notes."""
        batch = None if self.batch is None else self.batch[rows]
        molecules = None if self.molecules is None else self.molecules[rows]
        return type(self)(safe_indexing(self.X, rows), batch, molecules=molecules)


@dataclass(frozen=True)
class TablePredictor:
    """A twin, or the regressor with a transformed target around one, that predicts tables.

    `name` is that of the model in messages. `batch` is the column of batches where that is not the
    one of the fit.
    """

    model: TwinMethods
    name: str
    batch: str | None = None

    @classmethod
    def of(cls, model: BaseEstimator, name: str) -> Self:
        """The predictor of a fitted model; a ValueError for one that is no twin."""
        if not isinstance(model, TwinMethods):
            raise ValueError(f"{name} holds a {type(model).__name__}, which is no twin.")
        return cls(model, name)

    @cached_property
    def twin(self) -> BaseEstimator:
        """The twin in a regressor with a transformed target, else the model itself."""
        return split_target(self.model)[0]

    @property
    def names(self) -> list[str]:
        """The names of the features; x0, x1, … of a model that was fitted to an array."""
        return self.model.feature_labels()

    @property
    def target(self) -> str:
        """The name of the target."""
        return str(vars(self.twin).get("target_name_", "y"))

    @property
    def of_targets(self) -> dict[str, Self]:
        """The predictor of each target, by the suffix of the names of its columns."""
        targets = self.twin.targets_
        return {f"_{twin.target_name_}": replace(self, model=twin) for twin in targets} or {
            "": self
        }

    @cached_property
    def fitted(self) -> FittedTwin:
        """The fitted state; of several targets, that of the first, whose features all have."""
        return (self.twin.targets_ or [self.model])[0].fitted_

    @cached_property
    def categories(self) -> list[Sequence[object] | None]:
        """The known categories of each feature, None for a numeric one."""
        schema = self.fitted.schema
        kinds = zip(schema.kinds, schema.categories, strict=True)
        return [None if kind == NUMERIC else list(categories) for kind, categories in kinds]

    @cached_property
    def allow_nan(self) -> bool:
        """Whether the model, and the metric that selects its anchors, take missing values."""
        nearest = self.fitted.nearest
        is_metric_nan = nearest is None or nearest[1] in ("nan_euclidean", "learned")
        return is_metric_nan and bool(get_tags(self.twin).input_tags.allow_nan)

    @property
    def batch_column(self) -> str | None:
        """The column of batches, None for a model without batches."""
        if self.batch is not None or self.fitted.batches is None:
            return self.batch
        first = (self.twin.targets_ or [self.twin])[0]
        return vars(first).get("batch_name_") or vars(self.twin).get("batch_name_") or "batch"

    def require_single_target(self, command: str) -> None:
        """Raise a ValueError for a model of several targets."""
        if self.model.n_outputs_ is not None:
            raise ValueError(f"{command} needs a model of a single target.")

    def source_columns(self, table: Table) -> list[str]:
        """The columns of a table that the features are computed from, and that of the batches."""
        sources = frames.source_columns(table, self.names)
        empty = " The model takes missing values, so that an absent column may be added empty."
        table.require(sources, f"features of {self.name}", empty if self.allow_nan else "")
        if self.batch is not None:
            table.require([self.batch], "--batch")
        return [*sources, *(name for name in table.names if name == self.batch_column)]

    def read(self, table: Table) -> FeatureRows:
        """Return the features of the rows of a table, with notes on what was read how."""
        self.source_columns(table)
        X, notes = frames.prediction_frame(table, self.names, self.categories)
        if not self.allow_nan and (missing := frames.first_missing(table, X)):
            raise ValueError(f"{missing} has no value, and {self.name} takes no missing values.")
        batch = None
        if self.batch_column in table.names:
            cells = table.column(str(self.batch_column))
            batch = np.array([None if is_missing(cell) else cell for cell in cells], dtype=object)
        sources = {frames.derived_from(name)[0] for name in self.names if is_fragment(name)}
        columns = [table.column(name) for name in table.names if name in sources]
        is_named = "feature_names_in_" in vars(self.twin)
        return FeatureRows(X if is_named else X.to_numpy(), batch, notes, next(iter(columns), None))

    def find_comparables(self, rows: FeatureRows, n: int) -> list[ComparableCases]:
        """Return the `n` comparable cases of each row, and matched pairs of molecules.

        Few rows also have `adjustments`: what each feature adds to the difference.
        """
        adjustments = len(rows) <= _MAX_ADJUSTED_ROWS
        found = find_comparables(self.model, rows.X, n, batch=rows.batch, adjustments=adjustments)
        if rows.molecules is None:
            return found
        return [find_pairs(*pair) for pair in zip(found, rows.molecules, strict=True)]

    def describe_unlike_known(self, X: pd.DataFrame | np.ndarray) -> list[str]:
        """A sentence for each feature with values that no known row is like."""
        with warnings.catch_warnings(action="ignore", category=TableWarning):
            matrix = (self.twin.targets_ or [self.model])[0].validate_queries(X).matrix
        schema, known = self.fitted.schema, self.fitted.anchors.matrix
        values = KnownValues(known, schema.categorical)
        # by half of the range, such as degrees Fahrenheit among degrees Celsius
        is_beyond, is_missing = values.beyond(matrix, margin=0.5), values.newly_missing(matrix)
        # categories have a warning of their own, and fragments say nothing to a reader
        fragments = list(fragment_columns(self.names, known))
        is_beyond[:, [*schema.categorical, *fragments]] = False
        notes = []
        for j, name in enumerate(self.names):
            if is_beyond[:, j].any():
                first = number_text(matrix[is_beyond[:, j], j][0])
                ends = float(np.nanmin(known[:, j])), float(np.nanmax(known[:, j]))
                low, high = map(number_text, ends)
                where = f"in {is_beyond[:, j].sum():,} of {len(matrix):,} rows, such as {first}"
                notes.append(f"{name} is far beyond the known ones, {low} to {high}, {where}.")
            if is_missing[:, j].any():
                absent = f"{is_missing[:, j].sum():,} of {len(matrix):,} rows have no value of"
                source, _ = frames.derived_from(name)  # a molecule or a date, once
                notes.append(f"{absent} {source}, but all known rows have one.")
        return list(dict.fromkeys(notes))

    def describe_unknown_batch(self, batch: Any, if_missing: str, if_new: str) -> list[str]:
        """A warning where batches are missing or have no known rows, with the remedy for each."""
        effects = self.fitted.batches
        if effects is None:
            return []
        if batch is None:
            fitted = f"{self.name} was fitted with batches, and none is given"
            return [f"{fitted}: predictions are those of the mean of all batches; {if_missing}."]
        unknown = effects.unknown_labels(batch, 1 if np.ndim(batch) == 0 else len(batch))
        return [unknown_batches(unknown, if_new)] if unknown else []

    def with_known_rows(self, table: Table, option: str) -> Self:
        """With further known rows, the features and the target of which are in a table."""
        columns = [self.target, *filter(None, [self.batch_column])]
        table.require(columns, option)
        rows, y = self.read(table), target_column(table, self.target)
        if y.censored.any():
            raise ValueError(f"{option}: {table.path} has limits of {self.target!r}, not values.")
        if not np.isfinite(self.fitted.target.apply(y.lower)).all():
            needed = "positive numbers" if self.fitted.target.is_log else "numbers"
            raise ValueError(f"{option}: {table.path}: values of {self.target!r} must be {needed}.")
        model = self.model.add_anchors(rows.X, y.lower, batch=rows.batch)
        return replace(self, model=model)

    def predict(
        self,
        rows: FeatureRows,
        *,
        std: bool = False,
        confidence: float | None = None,
        of: str = "measurement",
        levels: Mapping[str, float] | None = None,
        bounds: tuple[float, float] | None = None,
        applicability: bool = False,
    ) -> Columns:
        """Return the columns `prediction`, `std`, `low`, `high`, quantiles and `applicability`.

        Those after the first as far as they are wanted; `levels` are the probabilities of quantiles
        by the names of their columns, and `bounds` those of the target. Of several targets, the
        names of the columns end with those of the targets; of several outputs, with their numbers.
        """
        prediction = self.model.predict_distribution(rows.X, batch=rows.batch, of=of)
        predictions: Sequence[Prediction] = (
            [prediction] if isinstance(prediction, Prediction) else prediction.predictions
        )
        columns: Columns = {}
        for (suffix, predictor), target in zip(self.of_targets.items(), predictions, strict=True):
            if (confidence is not None or levels) and target.calibration is None:
                needed = "which intervals and quantiles need; fit it with its check"
                raise ValueError(f"{self.name} has no stored calibration, {needed}.")
            results = _name_outputs("prediction", target.mean)
            if std:
                results |= _name_outputs("std", target.std)
            if confidence is not None:
                ends = target.interval(confidence)
                results |= {"low": ends[:, 0], "high": ends[:, 1]}
            if levels:
                quantiles = target.quantiles(list(levels.values()))
                results |= dict(zip(levels, quantiles.T, strict=True))
            if bounds is not None:
                numbers = [name for name in results if not name.startswith("std")]
                results |= {name: results[name].clip(*bounds) for name in numbers}
            if applicability:
                labels = predictor.model.applicability(rows.X)["label"]
                results["applicability"] = labels.to_numpy()
            columns |= {f"{name}{suffix}": values for name, values in results.items()}
        return columns


def _name_outputs(name: str, values: Floats) -> Columns:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{output}": column for output, column in enumerate(values.T)}
