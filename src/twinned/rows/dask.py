"""Lazy predictions of Dask DataFrames and Arrays, partition by partition.

The fitted model is pickled when the method is called and is one task of the graph, on which the
tasks of all partitions depend: it is sent to each worker once, and it is computed again where the
worker that held it dies. Dask is imported only where an argument is one of its collections.
"""

import pickle
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import validate_data

from twinned._compat import dask_meta


def predict_lazily(
    model: Any, X: Any, return_std: bool, n_outputs: int | None, **options: Any
) -> Any:
    """`model.predict` of a Dask collection; `n_outputs` is None where y is one-dimensional.

    Of a DataFrame, a Series `prediction`, or a DataFrame `prediction_0`, … with several outputs; of
    an Array, an Array. With `return_std`, a tuple of two, which are computed together.
    """
    suffixes = [""] if n_outputs is None else [f"_{output}" for output in range(n_outputs)]
    parts = ["prediction", "std"] if return_std else ["prediction"]
    names = [f"{part}{suffix}" for part in parts for suffix in suffixes]
    table = map_rows(model, "predict", X, names, return_std=return_std, **options)

    def select(start):
        if _is_array(table):
            return table[:, start] if n_outputs is None else table[:, start : start + n_outputs]
        chosen = names[start : start + len(suffixes)]
        return table[chosen[0] if n_outputs is None else chosen]

    return (select(0), select(len(suffixes))) if return_std else select(0)


def map_rows(model: Any, method: str, X: Any, names: list[str], **options: Any) -> Any:
    """Columns of numbers, one row for each row of a Dask collection.

    `model.method(rows, **options)` of each partition is an array, or a tuple of arrays, with as
    many columns as there are names. Returns a DataFrame with the index and divisions of X, or an
    Array of shape (n_queries, n_columns) with its chunks of rows.
    """
    _check_features(model, X)
    call = _delay_call(model, method, options)
    if not _is_array(X):
        meta = pd.DataFrame({name: np.empty(0) for name in names}, index=dask_meta(X).index[:0])
        return X.map_partitions(_rows_of_frame, call, meta, meta=meta)
    X = X.rechunk({1: X.shape[1]})
    return X.map_blocks(
        _rows_of_block,
        call=call,
        n_columns=len(names),
        chunks=(X.chunks[0], (len(names),)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
    )


def explain_lazily(model: Any, X: Any, meta: pd.DataFrame, **options: Any) -> Any:
    """`model.explain` of a Dask collection; `meta` is a table of comparables without rows.

    The DataFrame has the index of X, in which the label of a query is repeated for its anchors, and
    so its divisions; rows of an Array are numbered.
    """
    import dask.dataframe as dd

    _check_features(model, X)
    as_array = _is_array(X)
    if as_array:
        if np.isnan(X.shape[0]):
            raise ValueError("X has chunks of unknown size; call X.compute_chunk_sizes() first.")
        X = dd.from_dask_array(X.rechunk({1: X.shape[1]}))
    index = dask_meta(X).index[:0]
    meta = meta.assign(query=_query_labels(index)).set_index(index)
    call = _delay_call(model, "explain", options)
    return X.map_partitions(_explain_frame, call, meta, as_array, meta=meta)


# --- tasks ------------------------------------------------------------------------------------


def _delay_call(model, method, options):
    """A task whose result is the method of the model with these options."""
    import cloudpickle
    from dask.base import tokenize
    from dask.delayed import delayed

    for name in ("batch", "y_std"):
        if np.ndim(options.get(name)):
            raise ValueError(f"{name} of a Dask collection must be one value for all rows.")
    content = cloudpickle.dumps(partial(getattr(model, method), **options))
    name = f"{type(model).__name__}-{method}-{tokenize(content)}"
    return delayed(pickle.loads, pure=True)(content, dask_key_name=name)


def _stack(result: np.ndarray | tuple[np.ndarray, ...]) -> np.ndarray:
    """(row, column) float64: an array or a tuple of arrays, side by side."""
    parts = result if isinstance(result, tuple) else (result,)
    return np.column_stack(parts).astype(np.float64, copy=False)


def _rows_of_frame(frame, call, meta):
    if len(frame) == 0:
        return meta.set_index(frame.index)
    return pd.DataFrame(_stack(call(frame)), columns=meta.columns, index=frame.index)


def _rows_of_block(block, call, n_columns):
    if len(block) == 0:
        return np.empty((0, n_columns))
    return _stack(call(block))


def _explain_frame(frame, call, meta, as_array):
    if len(frame) == 0:
        return meta
    table = call(frame.to_numpy() if as_array else frame.reset_index(drop=True))
    index = frame.index.take(table["query"].to_numpy())
    table = table.assign(query=_query_labels(index)).set_index(index)
    return table.astype(meta.dtypes.to_dict())


def _query_labels(index: pd.Index) -> np.ndarray | pd.Index:
    """Labels of queries: integers as they are, others as text."""
    if index.dtype.kind in "iu":
        return index.to_numpy()
    return pd.Index([str(value) for value in index]).astype(str)


# --- validation -------------------------------------------------------------------------------


def _check_features(model, X):
    """Raise for columns that are not those of the model, before any partition is computed."""
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got a Dask Array of shape {X.shape} instead.")
    example = np.empty((1, X.shape[1])) if _is_array(X) else dask_meta(X)
    validate_data(model, example, reset=False, skip_check_array=True)


def _is_array(X):
    """Whether a Dask collection is an Array."""
    return hasattr(X, "rechunk")
