"""Findings of the data checks, their codes, and the table that they share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import ignore_table_warnings
from twinned.rows.folds import distinct_rows
from twinned.rows.neighbors import Indices, distance_matrix
from twinned.rows.schema import CATEGORICAL, Floats, TableSchema, column_list, is_table
from twinned.rows.validation import validate_training_table

PAGE = "docs/checks.md"
WARNING, NOTE = "warning", "note"
_MAX_NAMES = 5
_MAX_ROWS = 1000  # of the checks that compare all pairs of rows


class Code(NamedTuple):
    """Level and title of all findings with one code, and why they matter."""

    level: str
    title: str
    about: str


CODES = {
    "TW101": Code(
        WARNING,
        "Duplicate rows",
        "If a copy of a held-out row is in the training rows, its error does not hold for new "
        "rows.",
    ),
    "TW102": Code(
        WARNING,
        "Nearly equal rows",
        "If a nearly equal row of a held-out row is in the training rows, its error is too low for "
        "new rows, which have no such copy.",
    ),
    "TW103": Code(
        NOTE,
        "Replicates and the noise floor",
        "A model predicts the same value for rows with equal features, so their differences remain "
        "in its error.",
    ),
    "TW104": Code(
        WARNING,
        "Suspected groups of rows",
        "Rows of one sample, batch or day resemble each other. If folds separate them, errors hold "
        "for new rows of known groups, not for new groups.",
    ),
    "TW201": Code(
        WARNING,
        "Feature that nearly equals the target",
        "A feature computed from the target makes all errors small, and is not known for new rows.",
    ),
    "TW202": Code(
        WARNING,
        "Row counter among the features",
        "A row number has no meaning for new rows, but a model may use it.",
    ),
    "TW203": Code(
        WARNING,
        "Two features that give the target",
        "A price per area and an area, for example, give the price. Errors are then small, but one "
        "of them is not known for new rows.",
    ),
    "TW301": Code(
        NOTE,
        "Rounded target",
        "Rounding to steps of width s adds an error of s / √12, whatever the model.",
    ),
    "TW302": Code(
        NOTE,
        "Bounded target",
        "Values at a limit are often not exact: the true ones lie beyond it.",
    ),
    "TW303": Code(
        WARNING,
        "Few rows",
        "With few rows, chance decides between models of similar errors.",
    ),
    "TW304": Code(
        NOTE,
        "Skewed target",
        "Errors of a target that spans orders of magnitude grow with its values; those of its "
        "logarithm, whose differences are ratios, often do not.",
    ),
    "TW305": Code(
        WARNING,
        "Row that dominates the error",
        "One wrong value can decide which model is recommended, and hides how accurate it is for "
        "the other rows.",
    ),
    "TW401": Code(
        WARNING,
        "New rows outside of the training rows",
        "Errors and intervals are those of rows like the training rows.",
    ),
}


@dataclass(frozen=True)
class Finding:
    """A finding of a data check.

    Parameters
    ----------
    code : str
        Such as "TW101"; docs/checks.md has a section for each code.
    message : str
        What was found, with its figures, in one sentence.
    advice : str
        What to do.
    numbers : dict
        The figures of the message; they can be written as JSON.
    """

    code: str
    message: str
    advice: str
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> str:
        """A warning where errors or predictions may mislead, else a note."""
        return CODES[self.code].level

    @property
    def title(self) -> str:
        """The title of the code."""
        return CODES[self.code].title

    @property
    def about(self) -> str:
        """Why findings with this code matter."""
        return CODES[self.code].about

    @property
    def link(self) -> str:
        """The section of the documentation."""
        return f"{PAGE}#{self.code.lower()}"

    def __str__(self) -> str:
        return f"{self.code} {self.title}: {self.message} {self.advice}"


@dataclass
class CheckedTable:
    """Encoded rows of a table and their values."""

    names: list[str]
    schema: TableSchema
    matrix: Floats  # (row, feature), categories as codes, missing values NaN
    features: Floats  # (row, encoded feature), standardized, categories as indicators
    y: Floats  # (row,)

    @classmethod
    def encode(cls, X: Any, y: Floats) -> CheckedTable:
        with ignore_table_warnings():
            matrix, schema = validate_training_table(
                TwinRegressor(), X, "from_dtype", allow_nan=True, pair_dtype=np.dtype(np.float64)
            )
        return cls(feature_names(X), schema, matrix, standardize(schema, matrix), y)

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @cached_property
    def distances(self) -> Floats:
        """(row, row) Euclidean distances of the standardized features."""
        return distance_matrix(self.features, self.features)

    def is_categorical(self, feature: int) -> bool:
        return self.schema.kinds[feature] == CATEGORICAL

    def take(self, rows: Indices) -> CheckedTable:
        return CheckedTable(
            self.names, self.schema, self.matrix[rows], self.features[rows], self.y[rows]
        )

    def merged(self) -> CheckedTable:
        """Return the first of rows with equal features, with the mean of their values.

        Such rows are held out together, so that they are no further concern of group checks.
        """
        first, codes = distinct_rows(self.matrix)
        if len(first) == self.n_rows:
            return self
        means = np.bincount(codes, weights=self.y) / np.bincount(codes)
        order = np.argsort(first)
        return replace(self.take(first[order]), y=means[order])

    def sample(self) -> CheckedTable:
        """Return the table, or random rows of a large one in their order."""
        if self.n_rows <= _MAX_ROWS:
            return self
        rows = np.random.RandomState(0).permutation(self.n_rows)[:_MAX_ROWS]
        return self.take(np.sort(rows))


def feature_names(X: Any) -> list[str]:
    """Return the names of the features of a table, or x0, x1, … of an array."""
    if is_table(X):
        return [str(name) for name in column_list(X)[1]]
    return [f"x{i}" for i in range(np.shape(X)[1])]


def standardize(schema: TableSchema, matrix: Floats) -> Floats:
    """Return (n, column) numbers with mean 0 and standard deviation 1, missing values as 0.

    Categories are indicators.
    """
    features = schema.to_rows(matrix).features
    missing = np.isnan(features)
    known = np.where(missing, 0.0, features)
    mean = known.sum(axis=0) / np.maximum(1, (~missing).sum(axis=0))
    centered = np.where(missing, 0.0, features - mean)
    std = centered.std(axis=0)
    return centered / np.where(std > 1e-12 * np.abs(mean), std, np.inf)


def list_names(names: list[str]) -> str:
    """Return quoted names, at most five of them.

    >>> list_names(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(map(repr, names[:_MAX_NAMES]))
    more = len(names) - _MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
