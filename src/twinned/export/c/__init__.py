"""Export of fitted models as one self-contained C99 header."""

import copy
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.base import BaseTwin, TwinMethods
from twinned.export.c.header import Core, IntervalTable, check_single_output, write_header
from twinned.export.model_parts import mean_residual, read_feature_names, read_fitted, refuse
from twinned.export.thinning import crossed_rows, thin
from twinned.fitted.target import IDENTITY
from twinned.fitted.twin import FittedTwin
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.persistence.archive import write_atomically
from twinned.rows.schema import Floats

__all__ = ["CExport", "to_c"]

_N_TEST_ROWS = 10
_N_COMPARED_ROWS = 100  # anchors, and other rows, on which `predict` is compared
_TOLERANCE = 1e-4  # of the self-test, in standard deviations of y


@dataclass(frozen=True)
class CExport:
    """An exported C header.

    Attributes
    ----------
    path : Path
        The file.
    n_anchors : int
        The stored anchors.
    flash_bytes : int
        Bytes of the tables that a prediction uses; code takes 1 to 4 kB more.
    ram_bytes : int
        Bytes of the arrays on the stack.
    has_intervals : bool
        Whether `NAME_interval` gives intervals.
    max_difference : float
        Largest difference to `predict`, in units of y, where features, anchors and their
        differences are rounded to float32: on the stored anchors and rows that have features of
        two of them. Sums of floats add about 1e-7 of the spread of y.
    """

    path: Path
    n_anchors: int
    flash_bytes: int
    ram_bytes: int
    has_intervals: bool
    max_difference: float


def to_c(
    model: BaseTwin,
    path: str | os.PathLike[str],
    *,
    n_anchors: int | None = None,
    name: str = "twin",
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
        A fitted `TwinRegressor` over trees or their ensembles (scikit-learn, LightGBM), of
        a single output.
    path : str or path
        The file to write.
    n_anchors : int or None, default=None
        Number of anchors, chosen by `twinned.thin`, which stores no intervals; None stores all.
    name : str, default="twin"
        Prefix of all names.

    Returns
    -------
    CExport
        Sizes, and the difference to `predict`.

    Notes
    -----
    Intervals are those of the calibration of the twin, where these have a constant width or one in
    proportion to the standard deviation. `twinned.thin` chooses the anchors worth storing, and
    `twinned.conformal` calibrates what remains by held-out rows.

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
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be an identifier of C such as 'twin', not {name!r}.")
    check_is_fitted(model)
    if n_anchors is not None:
        model = thin(model, n_anchors)
    fitted = _read_twin(model)
    core = Core.of_twin(fitted)
    rows = _example_rows(model)
    rounded_rows = rows.astype(np.float32).astype(np.float64)
    predicted = _predict(_rounded(fitted), rounded_rows)
    differences = np.abs(predicted - _predict(fitted, rows))
    spread = max(np.std(predicted), np.std(core.anchor_estimates))
    intervals = IntervalTable.of(fitted.calibration)
    text, flash_bytes = write_header(
        name,
        core,
        fitted.schema,
        read_feature_names(model, fitted.schema.n_features),
        model_name=type(model).__name__,
        differences=differences,
        fitted=fitted,
        mean_residual=float(mean_residual(fitted)[0]),
        metric=fitted.anchors.metric,
        intervals=intervals,
        test_rows=rounded_rows[-_N_TEST_ROWS:],
        test_values=predicted[-_N_TEST_ROWS:],
        tolerance=_TOLERANCE * max(float(spread), 1e-6 * float(np.abs(predicted).max())),
    )
    write_atomically(path, text.encode())
    return CExport(
        path=Path(path),
        n_anchors=len(fitted.anchors),
        flash_bytes=flash_bytes,
        ram_bytes=core.ram_bytes,
        has_intervals=intervals is not None,
        max_difference=float(differences.max()),
    )


def _read_twin(model: BaseEstimator) -> FittedTwin:
    """The fitted state of a twin; raise where C code cannot predict it."""
    if not isinstance(model, TwinMethods):
        refuse(f"{type(model).__name__} is no twin", "use to_onnx, skl2onnx or emlearn")
    check_single_output(len(model.targets_) or 1)
    fitted = read_fitted(model)
    if fitted.target != IDENTITY:
        refuse("C code does not support a transformed target", "use to_onnx")
    if not isinstance(fitted.model, SklearnDifferenceModel):
        way_out = "fit a TwinRegressor (twinned fit --model twin), or use to_onnx"
        refuse(f"C code does not support {type(model).__name__}", way_out)
    check_single_output(fitted.anchors.outputs.shape[1])
    return fitted


def _example_rows(twin: TwinMethods) -> Floats:
    """Rows for comparisons: some anchors, then rows with the features of two anchors at random."""
    rng, matrix = np.random.RandomState(0), twin.fitted_.anchors.matrix
    rows = rng.randint(len(matrix), size=_N_COMPARED_ROWS)
    return np.concatenate([matrix[rows], crossed_rows(matrix, rows, rng)])


def _predict(fitted: FittedTwin, rows: Floats) -> Floats:
    """(row,) predictions of encoded rows."""
    return fitted.moments(fitted.queries(rows))[0][:, 0]


def _rounded(fitted: FittedTwin) -> FittedTwin:
    """The twin with anchors and their differences to queries rounded to float32."""
    matrix = fitted.anchors.matrix.astype(np.float32).astype(np.float64)
    assert isinstance(fitted.model, SklearnDifferenceModel)
    features = copy.copy(fitted.model.features)
    features.dtype = np.dtype(np.float32)
    model = replace(fitted.model, features=features)
    return replace(fitted, anchors=replace(fitted.anchors, matrix=matrix), model=model)
