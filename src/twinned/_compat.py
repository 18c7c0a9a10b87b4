"""Private names of other libraries, each with the versions it was tested with.

No other module uses a private name of another library, except `twinned.persistence`, whose job is
to set private attributes from what a file holds. Libraries are imported where they are used, but
for numpy.
"""

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

# --- scikit-learn has no types --------------------------------------------------------------------

# The constructor of a dataclass takes any argument where the type of a parent is unknown.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from pandas import DataFrame
    from sklearn.utils import Tags
    from sklearn.utils.metadata_routing import MetadataRouter

    class BaseEstimator:
        get_params: Callable[..., dict[str, object]]
        set_params: Callable[..., Self]
        get_metadata_routing: Callable[[], MetadataRouter]
        __sklearn_tags__: Callable[[], Tags]
        __getstate__: Callable[[], dict[str, object]]

    class RegressorMixin:
        score: Callable[..., float]
        __sklearn_tags__: Callable[[], Tags]

    class MetaEstimatorMixin:
        pass

    class MultiOutputMixin:
        __sklearn_tags__: Callable[[], Tags]

    class TransformerMixin:
        fit_transform: Callable[..., DataFrame]
        set_output: Callable[..., Self]
        __sklearn_tags__: Callable[[], Tags]
else:
    from sklearn.base import BaseEstimator as _SklearnEstimator
    from sklearn.base import MetaEstimatorMixin as MetaEstimatorMixin
    from sklearn.base import MultiOutputMixin as MultiOutputMixin
    from sklearn.base import RegressorMixin as RegressorMixin
    from sklearn.base import TransformerMixin as TransformerMixin

    class BaseEstimator(_SklearnEstimator):
        """Parent of estimators whose box in a notebook links to their page."""

        _doc_link_module = "twinned"  # scikit-learn 1.7 to 1.9

        @property
        def _doc_link_template(self) -> str:
            from twinned import __all__ as public

            name = type(self).__name__
            return f"https://twinned.readthedocs.io/api/{name}/" if name in public else ""

# --- scikit-learn 1.7 to 1.9 ----------------------------------------------------------------------

# Parameters that only some of these versions have, or with another default of the same meaning.
_CHANGED_PARAMETERS = {"alphas", "clip", "copy_X", "criterion", "n_alphas"}


def num_samples(X: object) -> int:
    """The number of rows of a table, an array, a sparse matrix or a list."""
    from sklearn.utils.validation import _num_samples

    return int(_num_samples(X))


def safe_indexing(X, rows):
    """Rows of a table, array or list."""
    from sklearn.utils import _safe_indexing

    return _safe_indexing(X, rows)


def column_indices(names: list[object], chosen: object) -> list[int]:
    """Indices of the columns that are chosen by a list of names or indices, or by a mask."""
    import pandas as pd
    from sklearn.utils._indexing import _get_column_indices

    return list(_get_column_indices(pd.DataFrame(columns=names), chosen))


def is_search(estimator: object) -> bool:
    """Whether an estimator is a grid, randomized or halving search, which have one parent class."""
    from sklearn.model_selection import GridSearchCV

    return isinstance(estimator, GridSearchCV.__mro__[1])


def unwrap_search(estimator):
    """The model that a fitted search such as `GridSearchCV` predicts with.

    Every other estimator is returned as it is, and so is a search with its own `predict`.
    """
    from sklearn.model_selection import GridSearchCV

    predict = inspect.getattr_static(type(estimator), "predict", None)
    if predict is inspect.getattr_static(GridSearchCV, "predict"):
        return getattr(estimator, "best_estimator_", estimator)
    return estimator


def set_folds(search, cv):
    """Set `cv` of a fitted search, and drop the folds that it was fitted with."""
    search.set_params(cv=cv)
    vars(search).pop("_checked_cv_orig", None)


def boosting_trees(estimator):
    """Node arrays of all trees of a `HistGradientBoostingRegressor`, and its baseline."""
    nodes = [predictor.nodes for iteration in estimator._predictors for predictor in iteration]
    return nodes, estimator._baseline_prediction


@contextmanager
def bins_without_weights(estimator):
    """Within it, a `HistGradientBoostingRegressor` chooses its bins without the weights of rows.

    1.7 does so anyway; 1.8 and 1.9 sort a column anew for each bin, which takes most of a fit.
    Other estimators are left as they are.
    """
    bin_data = getattr(estimator, "_bin_data", None)
    if bin_data is None:
        yield
        return

    def without_weights(*arguments, **options):
        bound = inspect.signature(bin_data).bind(*arguments, **options)
        bound.arguments.update(dict.fromkeys({"sample_weight"} & bound.arguments.keys()))
        return bin_data(*bound.args, **bound.kwargs)

    estimator._bin_data = without_weights
    try:
        yield
    finally:
        del estimator._bin_data


def boosting_bitsets(estimator):
    """Of each tree of a `HistGradientBoostingRegressor`, (split, 8): categories that go left."""
    return [tree.raw_left_cat_bitsets for iteration in estimator._predictors for tree in iteration]


def boosting_encoder(estimator):
    """The fitted encoder of the categories of a `HistGradientBoostingRegressor`, or None."""
    preprocessor = estimator._preprocessor
    return preprocessor and preprocessor.named_transformers_["encoder"]


def set_boosting_categories(estimator, table):
    """Fit the encoder of a `HistGradientBoostingRegressor` to a table with all categories.

    `table` is None without categorical features. Returns (feature of the trees,): whether it is
    categorical.
    """
    from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper

    categorical = np.zeros(estimator.n_features_in_, dtype=bool)
    thresholds = [np.empty(0)] * estimator.n_features_in_
    estimator.is_categorical_ = estimator._preprocessor = None
    estimator._is_categorical_remapped = None
    if table is not None:
        _, known = estimator._preprocess_X(table, reset=True)
        # thresholds of numeric features are used in `fit` only
        thresholds = [np.empty(0) if values is None else values for values in known]
        categorical = estimator._is_categorical_remapped
    bins = estimator._bin_mapper = _BinMapper(n_bins=estimator.max_bins + 1)
    bins.bin_thresholds_, bins.is_categorical_ = thresholds, categorical.astype(np.uint8)
    bins.missing_values_bin_idx_ = bins.n_bins - 1
    return categorical


def set_boosting_trees(estimator, predictors, baseline):
    """Give a `HistGradientBoostingRegressor` its trees and the value that it starts from."""
    estimator._predictors = [[predictor] for predictor in predictors]
    estimator._baseline_prediction = baseline
    set_boosting_loss(estimator)


def set_boosting_loss(estimator):
    """Set the loss of a gradient boosting regressor by its parameters."""
    estimator.n_trees_per_iteration_ = 1
    estimator._loss = estimator._get_loss(sample_weight=None)


def validate_parameters(estimator):
    """Raise where scikit-learn's own validation refuses a parameter."""
    if hasattr(estimator, "_parameter_constraints"):
        estimator._validate_params()


def portable_parameters(estimator: object) -> dict[str, object]:
    """The parameters of an estimator or splitter, without defaults that are new in some version."""
    values = vars(estimator)
    return {
        name: values[name]
        for name, parameter in inspect.signature(type(estimator)).parameters.items()
        if name not in _CHANGED_PARAMETERS or values[name] is not parameter.default
    }


def boosting_categories(estimator):
    """How a fitted `HistGradientBoostingRegressor` splits by categories.

    Returns (feature of the trees,) columns of X, as the trees see categorical features first; the
    categories of each such column, ordered by code; and `boosting_bitsets`.
    """
    is_categorical = np.zeros(estimator.n_features_in_, dtype=bool)
    categories = []
    if estimator.is_categorical_ is not None:
        is_categorical = np.asarray(estimator.is_categorical_)
        categories = boosting_encoder(estimator).categories_
    first, others = np.flatnonzero(is_categorical), np.flatnonzero(~is_categorical)
    without_missing = [column[column == column] for column in categories]
    by_column = dict(zip(first.tolist(), without_missing, strict=True))
    return np.concatenate([first, others]), by_column, boosting_bitsets(estimator)


# --- jax 0.5 to 0.10 ------------------------------------------------------------------------------


def make_cpu_client():
    """A new CPU client of XLA; its programs have finished when the call returns."""
    from jax._src.lib import xla_client

    return xla_client.make_cpu_client(asynchronous=False)


@contextmanager
def jax_cache_folder(folder, min_seconds):
    """Context in which this thread stores programs that compile at least as long in a folder."""
    from jax._src import config

    least = config.persistent_cache_min_compile_time_secs(min_seconds)
    with config.compilation_cache_dir(folder), least:
        yield


def jax_is_initialized() -> bool:
    """Whether JAX has started its devices, and their threads."""
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())


# --- numba 0.61 to 0.68 ---------------------------------------------------------------------------


def extend_cache_stamp(dispatcher, stamp):
    """Extend the stamp by which numba's cache detects stale code, which is that of one file."""
    cache_file = dispatcher._cache._cache_file
    cache_file._source_stamp = (cache_file._source_stamp, stamp)


# --- typer 0.20 to 0.29 ---------------------------------------------------------------------------


def usage_error_type() -> type[Exception]:
    """The class of typer's errors for a wrong call: `click.UsageError`, or typer's copy of it."""
    import typer

    return typer.BadParameter.__bases__[0]


# --- Dask 2025.5 to 2026.8 ------------------------------------------------------------------------


def dask_meta(frame):
    """An empty pandas DataFrame with the columns and types of a Dask DataFrame."""
    return frame._meta
