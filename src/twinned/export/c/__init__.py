"""Export of fitted models as one self-contained C99 header."""

from __future__ import annotations

import copy
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor
from twinned.export.c.header import IntervalTable, write_header
from twinned.export.c.models import NetworkCore, PairCore, check_single_output, used_columns
from twinned.export.exported_twin import ExportedTwin, read_feature_names, read_schema, refuse
from twinned.export.members import describe_alternatives
from twinned.export.thinning import thin
from twinned.fitted.calibration import positive_scale, std_floor
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.persistence.archive import write_atomically
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.schema import CATEGORICAL, Floats
from twinned.rows.validation import validate_target

__all__ = ["CExport", "to_c"]

_N_TEST_ROWS = 10
_N_COMPARED_ROWS = 100  # anchors, and other rows, on which `predict` is compared
_TOLERANCE = 1e-4  # of the self-test, in standard deviations of y
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
    n_anchors, n_members : int
        The stored anchors (0 for a model without) and networks (0 for others).
    flash_bytes : int
        Bytes of the tables that a prediction uses; code takes 1 to 4 kB more.
    ram_bytes : int
        Bytes of the arrays on the stack.
    has_intervals : bool
        Whether `NAME_interval` gives intervals.
    max_difference, rms_difference : float
        Largest and root mean square difference to `predict`, in units of y, where features,
        anchors and their differences are rounded to float32: on the stored anchors and rows
        between them. Sums of floats add about 1e-7 of the spread of y.
    text : str
        The header.
    """

    path: Path
    n_anchors: int
    n_members: int
    flash_bytes: int
    ram_bytes: int
    has_intervals: bool
    max_difference: float
    rms_difference: float
    text: str = field(repr=False)


def to_c(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    n_anchors: int | None = None,
    name: str = "twin",
    X_cal: object = None,
    y_cal: object = None,
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
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in _KEYWORDS:
        raise ValueError(f"name must be an identifier of C such as 'twin', not {name!r}.")
    model = _exportable(model, n_anchors)
    twin = ExportedTwin.read(model) if isinstance(model, BaseTwin) else None
    core = read_core(model if twin is None else twin)
    rows = _example_rows(model)
    rounded_rows = rows.astype(np.float32).astype(np.float64)
    predicted = _predict(model, rounded_rows, rounded=True)
    apart = np.abs(predicted - _predict(model, rows))
    spread = max(np.std(predicted), np.std(core.anchor_estimates) * core.unit)
    intervals = _intervals(model, twin, X_cal, y_cal)
    text, flash_bytes = write_header(
        name,
        core,
        read_schema(model),
        read_feature_names(model, "x"),
        model_name=type(model).__name__,
        apart=apart,
        twin=twin,
        metric=None if twin is None else _metric(twin),
        intervals=intervals,
        test_rows=rounded_rows[-_N_TEST_ROWS:],
        test_values=predicted[-_N_TEST_ROWS:],
        tolerance=_TOLERANCE * max(float(spread), 1e-6 * float(np.abs(predicted).max())),
    )
    write_atomically(path, text.encode())
    return CExport(
        path=Path(path),
        n_anchors=0 if twin is None else len(twin.anchors),
        n_members=len(core.member_weights) if isinstance(core, NetworkCore) else 0,
        flash_bytes=flash_bytes,
        ram_bytes=core.ram_bytes,
        has_intervals=intervals is not None,
        max_difference=float(apart.max()),
        rms_difference=float(np.sqrt(np.mean(apart**2))),
        text=text,
    )


def _exportable(model: BaseEstimator, n_anchors: int | None) -> BaseEstimator:
    """The model that is written, with fewer anchors where a number is given."""
    check_is_fitted(model)
    if isinstance(model, SemiSupervisedTwinRegressor):
        model = model.twin_
    if isinstance(model, AutoTwinRegressor):
        refuse("C code does not support blends", describe_alternatives(model).removesuffix("."))
    if n_anchors is not None:
        if not isinstance(model, BaseTwin):
            raise ValueError(f"n_anchors is for twins; {type(model).__name__} has no anchors.")
        model = thin(model, n_anchors)
    return model


def read_core(model: ExportedTwin | BaseEstimator) -> PairCore | NetworkCore:
    """The parts of a twin, of networks, or of trees or a linear model that predict y itself."""
    if isinstance(model, ExportedTwin):
        model.require_equal_use_of_anchors()
        check_single_output(model.anchors.targets.shape[1])
        of_pairs = isinstance(model.model, SklearnDifferenceModel)
        return PairCore.of_twin(model) if of_pairs else NetworkCore.of_twin(model)
    if isinstance(model, NeuralRegressor):
        networks = model.plain_networks()
        check_single_output(networks.shape.n_outputs)
        return NetworkCore.of_networks(networks, read_schema(model))
    return PairCore.of_regressor(model)


def _metric(twin: ExportedTwin) -> LearnedMetric:
    """The learned metric of the columns that the model uses."""
    metric, used = twin.anchors.metric, used_columns(twin.model, twin.anchors.schema)
    return metric._replace(
        center=metric.center[used],
        scale=metric.scale[used],
        length_scales=metric.length_scales[used],
    )


def _example_rows(model: BaseEstimator) -> Floats:
    """Rows for comparisons: some anchors, and other rows, which come last.

    The others are near rows between two anchors or, without anchors, normally distributed, with
    mean and spread of the training rows of networks. Categories and levels are drawn at random,
    unknown categories, too.
    """
    rng, schema = np.random.RandomState(0), read_schema(model)
    rows: Floats = rng.normal(size=(_N_COMPARED_ROWS, schema.n_features))
    anchors = rows[:0]
    if isinstance(model, BaseTwin):
        first, second = model.anchors_X_[rng.randint(len(model.anchors_X_), size=(2, len(rows)))]
        between = first + rng.uniform(size=(len(rows), 1)) * (second - first)
        rows = between * (1.0 + 0.05 * rows)
        anchors = rng.permutation(model.anchors_X_)[: len(rows)]
    elif isinstance(model, NeuralRegressor):
        scale = model.plain_networks().scale
        rows[:, schema.numeric] = scale.X_mean + scale.X_spread * rows[:, schema.numeric]
    for j, categories in enumerate(schema.categories):
        if categories:
            n_codes = len(categories) + (schema.kinds[j] == CATEGORICAL)
            rows[:, j] = rng.randint(n_codes, size=len(rows))
    return np.concatenate([anchors, rows])


def _predict(model: BaseEstimator, rows: Floats, *, rounded: bool = False) -> Floats:
    """(row,) predictions of encoded rows; with anchors and differences rounded to float32."""
    if isinstance(model, NeuralRegressor):
        return model.predict_encoded(rows)[:, 0]
    if not isinstance(model, BaseTwin):
        return np.ravel(model.predict(rows))
    fitted = model.fitted_
    if rounded:
        anchors_X = fitted.anchors.X.astype(np.float32).astype(np.float64)
        fitted = replace(fitted, anchors=replace(fitted.anchors, X=anchors_X))
    if rounded and isinstance(fitted.model, SklearnDifferenceModel):
        features = copy.copy(fitted.model.features)
        features.dtype = np.dtype(np.float32)
        fitted = replace(fitted, model=replace(fitted.model, features=features))
    return fitted.predict(fitted.queries(rows))[0][:, 0]


def _intervals(
    model: BaseEstimator, twin: ExportedTwin | None, X_cal: object, y_cal: object
) -> IntervalTable | None:
    """Intervals by the scores of held-out rows, or by those that the twin stores."""
    if (X_cal is None) != (y_cal is None):
        raise ValueError("X_cal and y_cal belong together, but one of them is None.")
    if X_cal is not None:
        if twin is None:
            raise ValueError(f"X_cal is for twins, not for {type(model).__name__}.")
        mean, std = model.predict_raw(X_cal)
        y = validate_target(model, y_cal, len(mean), multi_output=False)
        floor = std_floor(model, std)
        scores: Floats = np.sort((y - mean) / positive_scale(std, floor))
        return IntervalTable.of_scores(scores, floor, is_constant=floor == 0)
    stored = None if twin is None else twin.calibration
    if stored is None or stored.scale.width == "learned" or stored.scale.y_std is not None:
        return None
    is_constant = stored.scale.width == "constant" or stored.scale.floor == 0
    return IntervalTable.of_scores(stored.scores, stored.scale.floor, is_constant)
