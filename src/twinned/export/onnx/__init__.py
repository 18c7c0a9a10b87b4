"""Export of fitted models to ONNX.

The graph is written directly: the table is encoded, the anchors are stored as a matrix, and each
query is predicted in a loop over rows, so that memory does not grow with the batch. Each module
adds one part to the graph: `inputs`, `regressors`, `twins`, `models`.
"""

from collections.abc import Sequence
from os import PathLike

from twinned.exceptions import install_extra, require_extra
from twinned.rows.validation import check_choice

with require_extra(f"to_onnx needs onnx: {install_extra('onnx')}."):
    import onnx  # noqa: F401

__all__ = ["to_onnx"]

OUTPUTS = ("mean", "std")
DTYPES = ("float64", "float32")


def to_onnx(
    model: object,
    path: str | PathLike[str],
    *,
    outputs: Sequence[str] = OUTPUTS,
    confidence: float | None = None,
    dtype: str = "float64",
) -> None:
    """Export a fitted model to an ONNX file.

    Parameters
    ----------
    model : fitted estimator
        A `TwinRegressor` over trees, forests, boosting or linear models, a `TwinNeuralRegressor`, a
        `NeuralRegressor`, a `SemiSupervisedTwinRegressor` or an `AutoTwinRegressor` of such
        members; also as the last step of a pipeline after scalers, or with the logarithm of the
        target (`TransformedTargetTwin`).
        What cannot be exported is refused with a `TypeError`.
    path : str or PathLike
        The file; its name usually ends in `.onnx`. It is written completely or not at all.
    outputs : sequence of {"mean", "std"}, default=("mean", "std")
        The outputs of the exported model, in this order.
    confidence : float, default=None
        Adds the outputs `lower` and `upper`: the ends of the prediction interval with this
        confidence, for a model that stores its calibration.
    dtype : {"float64", "float32"}, default="float64"
        The type of numbers in the inputs. Some runtimes take float32 only, which has seven digits:
        features whose spread is small beside their values, such as times in seconds, lose some that
        matter, and differences of features with few decimals may cross thresholds of trees.

    Notes
    -----
    A table whose columns are all numbers is one input `X`, (batch, n_features). A table with text
    has one input for each column, named as the column, (batch, 1): numbers of type `dtype`, or
    string; an empty text is a missing value. Outputs are double, (batch,), or (batch, n_outputs)
    where y has several. The file needs the operators of opset 21 and ai.onnx.ml 5
    (onnxruntime 1.21).

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TwinRegressor
    >>> from twinned.datasets import make_tf
    >>> from twinned.export import to_onnx
    >>> twin = TwinRegressor(Ridge()).fit(*make_tf(30, random_state=0))
    >>> with TemporaryDirectory() as folder:
    ...     to_onnx(twin, Path(folder) / "twin.onnx", outputs=["mean"])
    ...     (Path(folder) / "twin.onnx").stat().st_size < 10_000
    True
    """
    from twinned.export.onnx.models import assemble
    from twinned.persistence.archive import write_atomically

    names = tuple([outputs] if isinstance(outputs, str) else outputs)
    for name in names:
        check_choice("outputs", name, OUTPUTS)
    check_choice("dtype", dtype, DTYPES)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"outputs must be one or both of {OUTPUTS}, each once, not {outputs!r}.")
    proto = assemble(model, names, confidence, dtype)
    write_atomically(path, proto.SerializeToString())
