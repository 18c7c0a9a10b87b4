"""Data checks with codes: leaks, replicates, the order of rows, the target and batches.

`check_data` runs them all. They fit ridge regression with the residuals of the nearest rows at
most; that of batches fits blends of quick members. docs/checks.md describes each code.
"""

import re
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import islice
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import chi2, rankdata, skew
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from twinned.diagnostics.errors import Numbers, format_percent, rmse_ratio
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import TableWarning
from twinned.fitted.target import TargetTransform
from twinned.rows.folds import distinct_rows, row_folds
from twinned.rows.formatting import format_interval, format_significant
from twinned.rows.schema import Floats, Indices, TableSchema, column_list, is_table
from twinned.rows.validation import batch_labels, count_rows, validate_table, validate_target

WARNING = "warning"  # the other level is "note"
MIN_ROWS = 20
_MAX_ROWS = 1000  # of the checks that compare all pairs of rows
_N_FOLDS, _N_NEIGHBORS = 5, 5  # of quick models
_PENALTY = 1e-2  # per row
# Of the paper's data sets, the largest R² of one feature is 0.988 (YH, the Froude number).
_LEAK_R2 = 0.995
_LEAST_RANK = 0.9  # absolute rank correlation of a feature whose R² is computed
_PERFECT_RANK = 0.9995  # of a monotone function, also where outliers lower the R²
_LEAST_KNOWN = 20
_MAX_NAMES = 3
_BOUND_SHARE, _BOUND_ROWS = 0.02, 5  # rows at the lowest or highest value
_BOUND_EXCESS = 3.0  # times as many as at the most frequent other value
_LEAST_SKEWNESS, _LEAST_SPAN = 1.0, 10.0  # the largest value divided by the smallest
_LEAST_GAIN = 0.05  # by the logarithm, of the error
_LEAST_DEGREES = 5  # of freedom of a noise floor
_COMMON_SHARE = 0.3  # of replicates whose noise is that of all rows
_LEAST_STEPS = 5  # of a sorted column
_CLEARLY_LOWER, _HARDLY_LOWER = 0.95, 0.99  # of errors with batches
_LEAST_NOISE = 2.0  # of a batch, in units of the median
_QUICK = ["ridge", "gp_matern", "extra_trees:small"]  # members that compare uses of batches
_MAX_BATCH_ROWS = 200  # for the comparison
_TIME_NAME = re.compile(r"(.*[\W_])?(year|date|time|timestamp|month|week|days?)([\W_].*)?", re.I)

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
    def encode(cls, X: ArrayLike, y: Floats) -> Self:
        with (
            warnings.catch_warnings(action="ignore", category=TableWarning),
            np.errstate(invalid="ignore"),
        ):
            matrix, schema = validate_table(TwinRegressor(), X, None, np.dtype(np.float64))
            features = StandardScaler().fit_transform(schema.to_rows(matrix).features)
        return cls(feature_names(X), schema, matrix, np.nan_to_num(features), y)

    @property
    def n_rows(self) -> int:
        return len(self.y)

    def take(self, rows: Indices) -> Self:
        parts = {name: vars(self)[name][rows] for name in ("matrix", "features", "y")}
        return replace(self, **parts)

    def sample(self) -> Self:
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


def check_data(
    X: ArrayLike,
    y: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    batch: ArrayLike | None = None,
    log_target: bool = False,
) -> list[Finding]:
    """Check a table for what makes errors or predictions misleading.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All labelled rows; at least twenty.
    y : array of shape (n,)
        Their values.
    groups : array of shape (n,), default=None
        Groups of rows. With them or with `batch`, the order of the rows is not checked.
    batch : array of shape (n,), default=None
        Batches of rows, of which the uses are compared.
    log_target : bool, default=False
        Whether the logarithm of y will be fitted, so that it is not suggested.

    Returns
    -------
    list of Finding
        Warnings first; each has a `code`, a `message`, an `advice` and `numbers`.

    Examples
    --------
    >>> from twinned.datasets import make_wsb
    >>> from twinned.diagnostics import check_data
    >>> X, y = make_wsb(80, random_state=0)
    >>> check_data(X, y)
    []
    >>> [finding.code for finding in check_data(X.assign(copy=2 * y + 1), y)]
    ['TW201']
    """
    table = CheckedTable.encode(X, check_diagnosable(y, count_rows(X)))
    fitted_table = replace(table, y=np.log(table.y)) if log_target else table
    sample = table.sample()
    distinct = table.matrix[np.sort(distinct_rows(table.matrix)[0])]
    columns = dict(zip(table.names, distinct.T, strict=True))
    findings = [
        *check_leaks(sample),
        *(check_time_order(columns) if groups is None and batch is None else ()),
        *(() if batch is None else compare_uses_of_batches(fitted_table, batch)),
        *check_replicates(table),
        *check_bounds(table),
        *(() if log_target else check_skewness(sample)),
    ]
    return sorted(findings, key=lambda finding: finding.level != WARNING)


# --- features -------------------------------------------------------------------------------------


def check_leaks(sample: CheckedTable) -> Iterator[Finding]:
    """Find numeric features of which a monotone function nearly equals the target."""
    numeric = sample.schema.numeric
    r2 = {sample.names[j]: monotone_r2(sample.matrix[:, j], sample.y) for j in numeric}
    leaks = {name: value for name, value in r2.items() if value > _LEAK_R2}
    if not leaks or sample.matrix.shape[1] < 2:
        return
    names = sorted(leaks, key=lambda name: -leaks[name])
    more = " …" * (len(names) > _MAX_NAMES)
    options = " ".join(f"--drop {name!r}" for name in names[:_MAX_NAMES])
    yield Finding(
        "TW201",
        "The target is almost a monotone function of "
        f"{', '.join(map(repr, names[:_MAX_NAMES]))}{more} alone (out-of-fold R² "
        f"{leaks[names[0]]:.4f}).",
        f"Exclude what is computed from the target, or known only after it ({options}{more}); "
        "else ignore this.",
        {"r2": leaks},
    )


def monotone_r2(x: Floats, y: Floats) -> float:
    """Return the out-of-fold R² of a monotone function of one feature, −inf where it is low.

    >>> x = np.linspace(1, 2, 50)
    >>> monotone_r2(x, np.exp(5 * x)) > 0.99, monotone_r2(np.sin(99 * x), x)
    (True, -inf)
    """
    is_known = ~np.isnan(x)
    x, y = x[is_known], y[is_known]
    if len(x) < max(_LEAST_KNOWN, 0.5 * len(is_known)) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return -np.inf
    correlation = np.corrcoef(rankdata(x), rankdata(y))[0, 1]
    if abs(correlation) < _LEAST_RANK:
        return -np.inf
    if abs(correlation) > _PERFECT_RANK:
        return float(correlation**2)
    # a line extrapolates, a monotone function does not
    monotone = IsotonicRegression(increasing=bool(correlation > 0), out_of_bounds="clip")
    models, folds = (LinearRegression(), monotone), row_folds(len(x), 5, 0)
    return max(r2_score(y, cross_val_predict(model, x[:, None], y, cv=folds)) for model in models)


# --- the target -----------------------------------------------------------------------------------


def check_bounds(table: CheckedTable) -> Iterator[Finding]:
    """Find a target with many rows at its lowest or highest value."""
    values, counts = np.unique(table.y, return_counts=True)
    if len(values) < 10:
        return
    others = counts[1:-1]
    least = max(_BOUND_ROWS, _BOUND_SHARE * table.n_rows, _BOUND_EXCESS * others.mean())
    for end, word, sign in ((0, "lowest", "<"), (-1, "highest", ">")):
        count = int(counts[end])
        if count < least or count <= others.max():
            continue
        value = format_significant(float(values[end]), 4)
        yield Finding(
            "TW302",
            f"{count:,} rows ({format_percent(count / table.n_rows)}) have the {word} value, "
            f"{value}, as if the target were cut there.",
            f"If these are limits of detection, the true values are {sign} {value}: such rows "
            "are censored, not exact. If the target cannot exceed it, cut predictions there.",
            {"value": float(values[end]), "rows": count, "end": word},
        )


def check_skewness(table: CheckedTable) -> Iterator[Finding]:
    """Find a positive, skewed target whose logarithm a quick model predicts better.

    Both errors are in units of the target, by cross-validation on the same folds.
    """
    y = table.y
    if y.min() <= 0 or y.max() < _LEAST_SPAN * y.min() or skew(y) < _LEAST_SKEWNESS:
        return
    log = TargetTransform(is_log=True)
    by_logarithm = log.invert(quick_predictions(replace(table, y=log.apply(y))))
    if not np.isfinite(by_logarithm).all():
        return
    others = quick_predictions(table), np.full_like(y, y.mean())
    ratio, to_mean = (rmse_ratio(by_logarithm, other, y) for other in others)
    # a model that is not better than the mean may gain by any change of its target
    if ratio.high >= 1 or ratio.value > 1 - _LEAST_GAIN or to_mean.high >= 1:
        return
    yield Finding(
        "TW304",
        f"The largest value is {format_significant(float(y.max() / y.min()))} times the smallest. "
        f"The error of a quick model of the logarithm is {ratio} times that of one of y.",
        "Run it again with --log-target (log_target=True in Python) and compare the errors. "
        "Predictions and intervals are then positive.",
        {"ratio": ratio.value, "interval": ratio.interval, "skewness": float(skew(y))},
    )


# --- replicates --------------------------------------------------------------------------------


def check_replicates(table: CheckedTable) -> Iterator[Finding]:
    """Find rows with equal features and different values, and the noise that they imply."""
    codes = distinct_rows(table.matrix)[1]
    counts = np.bincount(codes)
    degrees = table.n_rows - len(counts)
    means = np.bincount(codes, weights=table.y) / counts
    within = float(np.sum((table.y - means[codes]) ** 2))
    if degrees < _LEAST_DEGREES or within <= 1e-24 * float(np.sum(table.y**2)):
        return
    noise = float(np.sqrt(within / degrees))
    low, high = (float(np.sqrt(within / chi2.ppf(q, degrees))) for q in (0.95, 0.05))
    if noise < 0.02 * table.y.std():
        return
    n_rows = int(counts[counts > 1].sum())
    shown, interval = format_significant(noise, 2), format_interval(noise, low, high)
    is_common = n_rows >= _COMMON_SHARE * table.n_rows
    scope = "no model of these features can" if is_common else "on these rows no model can"
    yield Finding(
        "TW103",
        f"{n_rows:,} rows have the features of another, with a standard deviation of the target "
        f"of {interval}: {scope} have an RMSE much below {shown}.",
        "To go lower, measure more precisely, average replicates, or add a feature.",
        {"noise": noise, "interval": [low, high], "rows": n_rows},
    )


# --- time ----------------------------------------------------------------------------------------


def check_time_order(columns: Mapping[str, Floats]) -> Iterator[Finding]:
    """Find columns, (row,) by name, that are times and in whose order the rows are; at most one.

    Days of a date, such as 'sold (days)', have the name of the column, 'sold'.
    """
    times = (name for name in columns if _TIME_NAME.fullmatch(name) and is_sorted(columns[name]))
    for name in islice((time.removesuffix(" (days)") for time in times), 1):
        yield Finding(
            "TW105",
            f"The rows are in the order of {name!r}, but are held out at random, so that training "
            "rows are before and after each of them.",
            f"To predict later rows, use --time-column {name!r} (groups and cv=ForwardFolds() in "
            "Python); else errors may be too low.",
            {"column": name},
        )


def is_sorted(values: Floats) -> bool:
    """Whether the values that are not NaN only increase or only decrease, in at least 5 steps."""
    steps = np.diff(values[~np.isnan(values)])
    increases = steps[steps != 0] > 0
    return len(increases) >= _LEAST_STEPS and bool(increases.all() or not increases.any())


# --- the quick model ------------------------------------------------------------------------------


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


# --- batches --------------------------------------------------------------------------------------


def compare_uses_of_batches(table: CheckedTable, batch: ArrayLike) -> Iterator[Finding]:
    """Describe what batches (row,) differ by at equal other features.

    Quick members ignore them, have them as a feature, and remove constants or functions of each.
    """
    name = str((batch.name if isinstance(batch, pd.Series) else None) or "batch")
    rows = np.sort(np.random.RandomState(0).permutation(table.n_rows)[:_MAX_BATCH_ROWS])
    features, y = table.features[rows], table.y[rows]
    texts = np.array(batch_labels(np.asarray(batch)[rows], len(rows)), dtype=str)
    names, codes = np.unique(texts, return_inverse=True)
    if not 1 < len(names) < len(rows):
        return
    blends = _fit_uses_of_batches(features, y, codes)
    errors = [float(blend.blend_["rmse"]) for blend in blends]
    offset_table = blends[3].batch_offsets_.set_axis(names).sort_values("offset")
    precise = offset_table[offset_table["std_error"] <= 2 * offset_table["std_error"].median()]
    low, high = precise.iloc[0], precise.iloc[-1]
    size = high["offset"] - low["offset"]
    error = np.hypot(high["std_error"], low["std_error"])
    difference = f"{format_significant(size, 2)} ± {format_significant(error, 2)}"
    ignored, feature, functions, offsets = map(format_significant, errors)
    kind = "Batches differ by constants."
    if errors[2] < _CLEARLY_LOWER * errors[3]:
        kind = "Batches differ in shape: a function of the features describes each of them."
    elif errors[3] > _HARDLY_LOWER * errors[0]:
        kind = "Batches hardly differ."
    noise = blends[2].batch_effects_["noise_std"].set_axis(names)
    ratio = noise.max() / noise.median()
    if ratio > _LEAST_NOISE:
        kind += f" The noise of {noise.idxmax()} is {format_significant(ratio, 2)} times the usual."
    yield Finding(
        "TW107",
        f"The rows of {name!r} {high.name} are {difference} higher than those of {low.name} at "
        f"equal features. The error of quick models is {ignored} without {name!r}, {feature} with "
        f"it as a feature, {offsets} with its offsets, and {functions} with its functions, for "
        f"rows of known batches. {kind}",
        "The model has these offsets; a few known rows of a new batch suffice.",
        {
            "column": name,
            "difference": float(size),
            "std_error": float(error),
            "rmse": [*errors[:2], errors[3], errors[2]],
        },
    )


def _fit_uses_of_batches(features: Floats, y: Floats, codes: Indices) -> list[AutoTwinRegressor]:
    """Fit quick members without batches, and with these as a feature, functions and offsets."""
    labels = [f"b{code:05}" for code in codes]  # in the order of the codes
    with_indicators = np.hstack([features, np.eye(codes.max() + 1)[codes]])
    uses = ((features, None), (with_indicators, None), (features, "function"), (features, "offset"))
    blends = []
    for X, kind in uses:
        blend = AutoTwinRegressor(members=_QUICK, cv=5, batch_effect=kind or "auto", random_state=0)
        blends.append(blend.fit_blend(X, y, batch=kind and labels, calibrate=False))
    return blends
