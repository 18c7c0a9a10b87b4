"""`to_c`: a fitted model as one self-contained C99 header."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from twinned._version import __version__
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import NeuralRegressor
from twinned.export.c.columns import VALUE, Singles
from twinned.export.c.core import Core, predict_as_c
from twinned.export.c.fixed_point import FixedPointCore
from twinned.export.c.header import (
    FIRST_PERCENT,
    LAST_PERCENT,
    Comparables,
    HeaderParts,
    IntervalTable,
    write_header,
)
from twinned.export.c.networks import NetworkCore
from twinned.export.c.pairs import PairCore
from twinned.export.c.reader import read_core, schema_of
from twinned.export.members import describe_alternatives
from twinned.export.thinning import thin
from twinned.fitted.anchors import Queries
from twinned.fitted.calibration import stored_calibration
from twinned.fitted.error_scale import RELATIVE_FLOOR, positive_scale
from twinned.fitted.explanation import feature_labels
from twinned.fitted.quantiles import quantile_rank
from twinned.models.neural.difference_model import PlainNetworks
from twinned.persistence.archive import write_atomically
from twinned.rows.schema import CATEGORICAL, Floats, TableSchema
from twinned.rows.validation import check_choice, validate_target

_N_TEST_ROWS = 10
# Rows on which the exported model is compared with `predict`; fewer where there are many anchors.
_N_COMPARED_ROWS, _N_COMPARED_ESTIMATES = 200, 40_000
_TOLERANCE = {"float32": 1e-4, "int16": 1e-3}  # of the self-test, in standard deviations of y
_KEYWORDS = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
    "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict",
    "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union",
    "unsigned", "void", "volatile", "while",
}  # fmt: skip


@dataclass(frozen=True)
class CExport:
    """An exported C header.

    Attributes
    ----------
    path : Path
        The file.
    dtype : str
        The type of the weights.
    n_anchors, n_members : int
        The stored anchors (0 for a model without) and networks (0 for others).
    flash_bytes : int
        Bytes of the tables that a prediction uses; code takes 1 to 4 kB more.
    ram_bytes : int
        Bytes of the arrays on the stack.
    has_intervals : bool
        Whether `NAME_interval` gives intervals.
    max_difference, rms_difference : float
        Largest and root mean square difference to `predict`, in units of y, on the stored anchors
        and rows between them.
    text : str
        The header.
    """

    path: Path
    dtype: str
    n_anchors: int
    n_members: int
    flash_bytes: int
    ram_bytes: int
    has_intervals: bool
    max_difference: float
    rms_difference: float
    text: str = field(repr=False)


def to_c(
    model: Any,
    path: str | os.PathLike[str],
    *,
    n_anchors: int | None = None,
    dtype: str = "float32",
    name: str = "twin",
    X_cal: Any = None,
    y_cal: Any = None,
) -> CExport:
    """Write a fitted model as one self-contained C99 header.

    The header needs `math.h` and `stdint.h` only; it allocates no memory and calls nothing
    recursively. Its functions are `static inline`, so that unused ones take no memory:

    - `float NAME_predict(const float *x)` and `float NAME_predict_std(const float *x)`;
    - `int NAME_interval(const float *x, int percent, float *lower, float *upper)`;
    - `int NAME_nearest_anchor(const float *x)`, the known row that is most like `x`;
    - `int NAME_self_test(void)`, which is 0 where ten stored rows are predicted as expected.

    Parameters
    ----------
    model : estimator
        A fitted `TwinRegressor` over trees, their ensembles (scikit-learn, LightGBM, XGBoost) or a
        linear model, a `TwinNeuralRegressor` or `NeuralRegressor`, of a single output. Tree
        regressors and linear models without pairs can be exported, too.
    path : str or path
        The file to write.
    n_anchors : int or None, default=None
        Number of anchors, chosen by `twinned.export.thin`; None stores all of the twin.
    dtype : {"float32", "int16"}, default="float32"
        Type of the weights. `"int16"` is for networks: half the memory, and integer arithmetic.
    name : str, default="twin"
        Prefix of all names.
    X_cal, y_cal : table or array, default=None
        Held-out rows that calibrate the intervals of the exported model. Without them, intervals
        are those that the twin stores, where these have a constant width or one in proportion to
        the standard deviation and no anchors are dropped.

    Returns
    -------
    CExport
        Sizes, and the difference to `predict`.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from twinned import TwinRegressor
    >>> from twinned.datasets import make_tf
    >>> from twinned.export import to_c
    >>> X, y = make_tf(60, random_state=0)
    >>> twin = TwinRegressor(DecisionTreeRegressor(max_depth=4)).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = to_c(twin, f"{folder}/twin.h", n_anchors=8)
    >>> report.n_anchors, report.flash_bytes < 1000, report.max_difference < 1e-5
    (8, True, True)
    """
    check_choice("dtype", dtype, ["float32", "int16"])
    _check_name(name)
    check_is_fitted(model)
    model = getattr(model, "twin_", model)  # of SemiSupervisedTwinRegressor
    if isinstance(model, AutoTwinRegressor):
        raise TypeError(f"C export does not support blends; {describe_alternatives(model)}")
    if n_anchors is not None:
        if not isinstance(model, BaseTwin):
            raise ValueError(f"n_anchors is for twins; {type(model).__name__} has no anchors.")
        model = thin(model, n_anchors)
    read = read_core(model)
    rows = example_rows(model, read)
    core: Core = read
    if dtype == "int16":
        if not isinstance(read, NetworkCore):
            raise ValueError("dtype='int16' is for networks; use dtype='float32' for this model.")
        core = FixedPointCore(read, rows)
    predicted, _ = predict_as_c(core, rows)
    apart = np.abs(predicted - _predict(model, rows))
    schema = schema_of(model)
    members = getattr(core, "members", [])
    test_rows = rows[-_N_TEST_ROWS:]
    expected = predicted[-_N_TEST_ROWS:]
    of_anchors = np.std(model.anchors_y_) if isinstance(model, BaseTwin) else 0.0
    spread = max(float(np.std(predicted)), float(of_anchors), 1e-6 * float(np.abs(expected).max()))
    parts = HeaderParts(
        description=_describe(model, dtype, apart),
        schema=schema,
        feature_names=[str(label) for label in feature_labels(model, schema.n_features)],
        comparables=_comparables(model, core),
        intervals=_intervals(model, core, X_cal, y_cal),
        test_rows=test_rows,
        expected=expected,
        tolerance=_TOLERANCE[dtype] * spread,
    )
    text, flash_bytes = write_header(core, name, parts)
    write_atomically(Path(path), text.encode())
    return CExport(
        path=Path(path),
        dtype=dtype,
        n_anchors=0 if parts.comparables is None else len(parts.comparables.rows),
        n_members=len(members),
        flash_bytes=flash_bytes,
        ram_bytes=core.ram_bytes,
        has_intervals=parts.intervals is not None,
        max_difference=float(apart.max()),
        rms_difference=float(np.sqrt(np.mean(apart**2))),
        text=text,
    )


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in _KEYWORDS:
        raise ValueError(f"name must be an identifier of C such as 'twin', not {name!r}.")


def _describe(model: Any, dtype: str, apart: Floats) -> list[str]:
    return [
        f"{type(model).__name__}, exported by twinned {__version__} as {dtype}.",
        f"Largest difference to predict on {len(apart)} rows: {apart.max():.3g}; root mean square "
        f"{np.sqrt(np.mean(apart**2)):.3g}.",
        "FLASH_BYTES are the bytes of the tables of predict, RAM_BYTES those of its arrays on the "
        "stack.",
    ]


def example_rows(model: Any, core: PairCore | NetworkCore) -> Singles:
    """Rows for comparisons: some anchors, and other rows, which come last.

    The others are normally distributed, with mean and spread of the training rows of networks; of
    other twins, they are near rows between two anchors, as a single anchor would else be the only
    row.
    """
    rng = np.random.RandomState(0)
    schema = schema_of(model)
    n_rows = min(_N_COMPARED_ROWS, max(_N_COMPARED_ESTIMATES // len(core.weights), 20)) // 2
    rows: Floats = rng.normal(size=(n_rows, schema.n_features))
    known = None
    if isinstance(model, BaseTwin) and core.anchors is not None:
        known = core.anchors.astype(np.float64)
    if isinstance(core, NetworkCore):
        columns = core.columns
        assert columns.mean is not None
        assert columns.spread is not None
        own = columns.code == VALUE
        values = rows[:, columns.feature[own]]
        rows[:, columns.feature[own]] = columns.mean[own] + columns.spread[own] * values
    elif known is not None:
        a, b = known[rng.randint(len(known), size=(2, n_rows))]
        rows = (a + rng.uniform(size=(n_rows, 1)) * (b - a)) * (1.0 + 0.05 * rows)
    rows = _with_codes(rows, schema, rng)
    if known is not None:
        rows = np.concatenate([known[rng.permutation(len(known))[:n_rows]], rows])
    return rows.astype(np.float32)


def _with_codes(rows: Floats, schema: TableSchema, rng: np.random.RandomState) -> Floats:
    """Rows with random codes in place of the values of categorical and ordinal features."""
    for j, known in enumerate(schema.categories):
        if known:
            n_codes = len(known) + (schema.kinds[j] == CATEGORICAL)  # an unknown one, too
            rows[:, j] = rng.randint(n_codes, size=len(rows))
    return rows


def _predict(model: Any, rows: Singles) -> Floats:
    """(row,) predictions of encoded rows by the model itself."""
    matrix = rows.astype(np.float64)
    if isinstance(model, BaseTwin):
        queries = Queries(model._to_rows, model._schema, matrix)
        return np.asarray(model._predictor().predict(queries, return_std=False)[0][:, 0])
    if isinstance(model, NeuralRegressor):
        networks = model._networks(PlainNetworks)
        members = networks.predict(networks.scale.transform(model._schema.to_rows(matrix)))
        return np.asarray(model.member_weights_ @ members[..., 0])
    return np.ravel(model.predict(matrix))


def _comparables(model: Any, core: Core) -> Comparables | None:
    """The nearest anchor by the learned metric, on the columns that the model uses."""
    if not isinstance(model, BaseTwin):
        return None
    metric = model._metric()
    selected = getattr(model._make_model(), "columns", None)
    used = np.arange(len(metric.center)) if selected is None else selected
    return Comparables(
        np.asarray(model.anchor_rows_),
        metric.center[used].astype(np.float32),
        metric.scale[used].astype(np.float32),
    )


def _intervals(model: Any, core: Core, X_cal: Any, y_cal: Any) -> IntervalTable | None:
    """Half-widths by the scores of held-out rows, or by those that the twin stores."""
    if (X_cal is None) != (y_cal is None):
        raise ValueError("X_cal and y_cal belong together, but one of them is None.")
    if X_cal is not None:
        if not isinstance(model, BaseTwin):
            raise ValueError(f"X_cal is for twins, not for {type(model).__name__}.")
        matrix = model._validate_queries(X_cal).matrix.astype(np.float32)
        y = validate_target(model, y_cal, len(matrix), multi_output=False)
        mean, std = predict_as_c(core, matrix)
        floor = RELATIVE_FLOOR * float(np.mean(std))
        scores = np.sort(np.abs(y - mean) / positive_scale(std, floor))
        return IntervalTable(_factors(scores), floor, is_constant=floor == 0)
    stored = getattr(model, "intervals_", None)
    if stored is None or stored["width"] == "learned":
        return None
    floor = float(stored["floor"])
    is_constant = stored["width"] == "constant" or floor == 0
    return IntervalTable(_factors(stored_calibration(model).scores), floor, is_constant)


def _factors(scores: Floats) -> NDArray[np.float64]:
    """Conformal quantiles of sorted scores for 50 to 99 %; infinite where these are too few."""
    factors = []
    for percent in range(FIRST_PERCENT, LAST_PERCENT + 1):
        is_known = (100 - percent) * (len(scores) + 1) >= 100
        rank = quantile_rank(percent / 100, len(scores))
        factors.append(scores[-rank] if is_known else np.inf)
    return np.array(factors)
