"""Findings with codes, and the table and the quick model that data checks share.

The quick model is ridge regression with the residuals of the nearest rows.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from importlib.resources import files

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from twinned.diagnostics.errors import Numbers
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import ignore_table_warnings
from twinned.rows.folds import row_folds
from twinned.rows.schema import Floats, Indices, TableSchema, column_list, is_table
from twinned.rows.validation import validate_table, validate_target

WARNING = "warning"  # the other level is "note"
MIN_ROWS = 20
_MAX_ROWS = 1000  # of the checks that compare all pairs of rows
_N_FOLDS, _N_NEIGHBORS = 5, 5  # of quick models
_PENALTY = 1e-2  # per row


# The level and the title of all findings with one code, and why they matter (`about`).
CODES = tomllib.loads(files("twinned.diagnostics").joinpath("codes.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Finding:
    """A finding of a data check.

    Parameters
    ----------
    code : str
        Such as "TW201"; docs/checks.md has a section for each code.
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
        return str(CODES[self.code]["level"])

    @property
    def title(self) -> str:
        """The title of the code."""
        return str(CODES[self.code]["title"])

    @property
    def about(self) -> str:
        """Why findings with this code matter."""
        return str(CODES[self.code]["about"])

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
            matrix, schema = validate_table(TwinRegressor(), X, None, np.dtype(np.float64))
            features = StandardScaler().fit_transform(schema.to_rows(matrix).features)
        return cls(feature_names(X), schema, matrix, np.nan_to_num(features), y)

    @property
    def n_rows(self) -> int:
        return len(self.y)

    def take(self, rows: Indices) -> CheckedTable:
        parts = {name: vars(self)[name][rows] for name in ("matrix", "features", "y")}
        return replace(self, **parts)

    def sample(self) -> CheckedTable:
        """Return the table, or random rows of a large one in their order."""
        if self.n_rows <= _MAX_ROWS:
            return self
        return self.take(np.sort(np.random.RandomState(0).permutation(self.n_rows)[:_MAX_ROWS]))


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


def quick_predictions(table: CheckedTable) -> Floats:
    """(row,) out-of-fold predictions of ridge regression with the residuals of the nearest rows."""
    predicted, X, y = np.full(table.n_rows, np.nan), table.features, table.y
    for training, held_out in row_folds(table.n_rows, _N_FOLDS, 0, min_rows=2):
        known_X, known_y = X[training], y[training]
        ridge = Ridge(_PENALTY * len(known_y)).fit(known_X, known_y)
        nearest = KNeighborsRegressor(min(_N_NEIGHBORS, len(known_y)), weights="distance")
        nearest.fit(known_X, known_y - ridge.predict(known_X))
        predicted[held_out] = ridge.predict(X[held_out]) + nearest.predict(X[held_out])
    return predicted
