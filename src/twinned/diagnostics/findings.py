"""Findings of the data checks, their codes, and the table and quick models that checks share.

Ridge regression with the residuals of the nearest rows uses rows with similar features, as twins,
trees and Gaussian processes do, so that nearly equal rows lower its error where random folds
separate them. Few extra trees also use rows that agree in a part of the features.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from twinned.diagnostics.errors import Numbers, Ratio, rmse, rmse_ratio
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import ignore_table_warnings
from twinned.rows.folds import distinct_rows, row_folds
from twinned.rows.neighbors import Indices, distance_matrix
from twinned.rows.schema import Floats, TableSchema, column_list, is_table
from twinned.rows.validation import validate_target, validate_training_table

PAGE = "docs/checks.md"
WARNING, NOTE = "warning", "note"
MIN_ROWS = 20
_MAX_NAMES = 5
_MAX_ROWS = 1000  # of the checks that compare all pairs of rows
_N_FOLDS = 5  # of quick models
_N_NEIGHBORS = 5
_PENALTY = 1e-2  # per row
_N_TREES, _MAX_FEATURES = 40, 15


class Code(NamedTuple):
    """Level and title of all findings with one code, and why they matter."""

    level: str
    title: str
    about: str


_TEXT = files("twinned.diagnostics").joinpath("codes.toml").read_text("utf-8")
CODES = {name: Code(**entry) for name, entry in tomllib.loads(_TEXT).items()}


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
    numbers: Numbers = field(default_factory=dict)

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
    def encode(cls, X: ArrayLike, y: Floats) -> CheckedTable:
        with ignore_table_warnings(), np.errstate(invalid="ignore"):
            matrix, schema = validate_training_table(
                TwinRegressor(), X, "from_dtype", allow_nan=True, pair_dtype=np.dtype(np.float64)
            )
            features = StandardScaler().fit_transform(schema.to_rows(matrix).features)
        return cls(feature_names(X), schema, matrix, np.nan_to_num(features), y)

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @cached_property
    def distances(self) -> Floats:
        """(row, row) Euclidean distances of the standardized features."""
        return distance_matrix(self.features, self.features)

    def take(self, rows: Indices) -> CheckedTable:
        taken = (values[rows] for values in (self.matrix, self.features, self.y))
        return CheckedTable(self.names, self.schema, *taken)

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


def check_diagnosable(y: ArrayLike, n: int) -> Floats:
    """Return y as (n,) numbers; too few rows and a constant y are refused."""
    values = validate_target(None, y, n, multi_output=False)
    if n < MIN_ROWS:
        raise ValueError(f"A diagnosis needs at least {MIN_ROWS} rows; there are {n}.")
    if np.ptp(values) == 0:
        raise ValueError(f"All values of y are {values[0]:g}; a diagnosis needs different values.")
    return values


def feature_names(X: ArrayLike) -> list[str]:
    """Return the names of the features of a table, or x0, x1, … of an array."""
    if is_table(X):
        return [str(name) for name in column_list(X)[1]]
    return [f"x{i}" for i in range(np.shape(X)[1])]


def list_names(names: list[str]) -> str:
    """Return quoted names, at most five of them.

    >>> list_names(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(map(repr, names[:_MAX_NAMES]))
    more = len(names) - _MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def quick_predictions(
    table: CheckedTable, groups: Indices | None = None, *, trees: bool = False
) -> Floats:
    """(row,) out-of-fold predictions of a quick model; rows of one group are held out together.

    The model is ridge regression with the residuals of the nearest rows, or extra trees.
    """
    fit_and_predict = _predict_by_trees if trees else _predict_by_ridge
    predicted = np.empty(table.n_rows)
    for train, held_out in row_folds(table.n_rows, _N_FOLDS, 0, groups, min_rows=2):
        predicted[held_out] = fit_and_predict(table, train, held_out)
    return predicted


def _predict_by_ridge(table: CheckedTable, train: Indices, held_out: Indices) -> Floats:
    ridge = Ridge(_PENALTY * len(train)).fit(table.features[train], table.y[train])
    residual = table.y[train] - ridge.predict(table.features[train])
    nearest = KNeighborsRegressor(min(_N_NEIGHBORS, len(train)), weights="distance")
    nearest.fit(table.features[train], residual)
    return ridge.predict(table.features[held_out]) + nearest.predict(table.features[held_out])


def _predict_by_trees(table: CheckedTable, train: Indices, held_out: Indices) -> Floats:
    most = min(_MAX_FEATURES, table.features.shape[1])
    trees = ExtraTreesRegressor(_N_TREES, max_features=most, random_state=0)
    return trees.fit(table.features[train], table.y[train]).predict(table.features[held_out])


def held_out_together(
    table: CheckedTable, groups: Indices, *, trees: bool = False
) -> tuple[float, float, Ratio]:
    """Errors with random folds and with groups held out together, and the ratio of the second.

    The ratio has a 95 % interval.
    """
    random, together = (quick_predictions(table, kept, trees=trees) for kept in (None, groups))
    ratio = rmse_ratio(together, random, table.y, groups)
    return rmse(random, table.y), rmse(together, table.y), ratio
