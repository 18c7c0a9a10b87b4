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
from twinned.export.c.header import PERCENTS, Comparables, IntervalTable, write_header
from twinned.export.c.models import NetworkCore, PairCore, check_single_output
from twinned.export.members import describe_alternatives
from twinned.export.model_parts import read_feature_names, read_schema, refuse_batches
from twinned.export.thinning import thin
from twinned.fitted.calibration import positive_scale, std_floor
from twinned.fitted.quantiles import ScoreDistribution, suffices, tails
from twinned.fitted.twin import FittedTwin
from twinned.models.neural.difference_model import NeuralDifferenceModel
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.persistence.archive import write_atomically
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
    core = read_core(model)
    rows = _example_rows(model)
    singles = rows.astype(np.float32).astype(np.float64)
    predicted = _predict(model, singles, rounded=True)
    apart = np.abs(predicted - _predict(model, rows))
    spread = max(np.std(predicted), np.std(core.anchor_estimates) * core.unit)
    comparables, intervals = _comparables(model), _intervals(model, X_cal, y_cal)
    text, flash_bytes = write_header(
        name,
        core,
        read_schema(model),
        read_feature_names(model, "x"),
        model_name=type(model).__name__,
        apart=apart,
        comparables=comparables,
        intervals=intervals,
        test_rows=singles[-_N_TEST_ROWS:],
        test_values=predicted[-_N_TEST_ROWS:],
        tolerance=_TOLERANCE * max(float(spread), 1e-6 * float(np.abs(predicted).max())),
    )
    write_atomically(path, text.encode())
    return CExport(
        path=Path(path),
        n_anchors=0 if comparables is None else len(comparables.rows),
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
    refuse_batches(model)
    if isinstance(model, AutoTwinRegressor):
        raise TypeError(f"C export does not support blends; {describe_alternatives(model)}")
    if n_anchors is not None:
        if not isinstance(model, BaseTwin):
            raise ValueError(f"n_anchors is for twins; {type(model).__name__} has no anchors.")
        model = thin(model, n_anchors)
    return model


def read_core(model: BaseEstimator) -> PairCore | NetworkCore:
    """The parts of a twin, of networks, or of trees or a linear model that predict y itself."""
    if isinstance(model, BaseTwin):
        state = model.fitted_
        check_single_output(state.anchors.targets.shape[1])
        weights = _anchor_weights(model, state)
        of_pairs = isinstance(state.model, SklearnDifferenceModel)
        return (PairCore if of_pairs else NetworkCore).of_twin(state, weights)
    if isinstance(model, NeuralRegressor):
        networks = model.plain_networks()
        check_single_output(networks.shape.n_outputs)
        return NetworkCore.of_networks(networks, read_schema(model))
    return PairCore.of_regressor(model)


def _anchor_weights(twin: BaseTwin, state: FittedTwin) -> Floats:
    """(anchor,) weights that sum to one; raises where they depend on the query."""
    if not state.uses_all_anchors_equally or state.local_weights is not None:
        local = f" and local_power_={twin.local_power_}" if twin.local_power_ else ""
        raise ValueError(
            "C export needs the same anchors and weights for all queries, not "
            f"anchors={state.anchor_strategy!r} with weights={twin.weights!r}{local}; use "
            "n_anchors=32 to replace them by 32 chosen anchors."
        )
    given = state.anchors.weights
    weights = np.ones(len(state.anchors.X)) if given is None else given
    return weights / weights.sum()


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
        a, b = model.anchors_X_[rng.randint(len(model.anchors_X_), size=(2, len(rows)))]
        rows = (a + rng.uniform(size=(len(rows), 1)) * (b - a)) * (1.0 + 0.05 * rows)
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
    if isinstance(model, BaseTwin):
        fitted = model.fitted_
        if rounded:
            singles = fitted.anchors.X.astype(np.float32).astype(np.float64)
            fitted = replace(fitted, anchors=replace(fitted.anchors, X=singles))
            if isinstance(fitted.model, SklearnDifferenceModel):
                features = copy.copy(fitted.model.features)
                features.dtype = np.dtype(np.float32)
                fitted = replace(fitted, model=replace(fitted.model, features=features))
        return fitted.predict(fitted.queries(rows))[0][:, 0]
    if isinstance(model, NeuralRegressor):
        return model.predict_encoded(rows)[:, 0]
    return np.ravel(model.predict(rows))


def _comparables(model: BaseEstimator) -> Comparables | None:
    """The nearest anchor by the learned metric, on the columns that the model uses."""
    if not isinstance(model, BaseTwin):
        return None
    metric, fitted = model.fitted_.anchors.metric, model.fitted_.model
    selected = fitted.columns if isinstance(fitted, NeuralDifferenceModel) else None
    used = np.arange(len(metric.center)) if selected is None else selected
    return Comparables(np.asarray(model.anchor_rows_), metric.center[used], metric.scale[used])


def _intervals(model: BaseEstimator, X_cal: object, y_cal: object) -> IntervalTable | None:
    """Intervals by the scores of held-out rows, or by those that the twin stores."""
    if (X_cal is None) != (y_cal is None):
        raise ValueError("X_cal and y_cal belong together, but one of them is None.")
    if X_cal is not None:
        if not isinstance(model, BaseTwin):
            raise ValueError(f"X_cal is for twins, not for {type(model).__name__}.")
        mean, std = model.predict_raw(X_cal)
        y = validate_target(model, y_cal, len(mean), multi_output=False)
        floor, is_constant = std_floor(model, std), False
        scores: Floats = np.sort((y - mean) / positive_scale(std, floor))
        n_rows = len(y)
    else:
        stored = model.calibration_ if isinstance(model, BaseTwin) else None
        if stored is None or stored.scale.width == "learned" or stored.scale.y_std is not None:
            return None
        scores, floor, is_constant = stored.scores, stored.scale.floor, stored.scale.width != "std"
        n_rows = stored.n_rows
    confidences = [percent / 100 for percent in PERCENTS]
    distribution = ScoreDistribution.of(scores)
    ends = np.array([distribution.quantile(tails(level)) for level in confidences])
    ends[[not suffices(level, n_rows) for level in confidences]] = -np.inf, np.inf
    return IntervalTable(ends[:, 0], ends[:, 1], float(floor), is_constant or floor == 0)
