"""Parents of estimators as mypy sees them, see `_compat`: scikit-learn has no types."""

from typing import Any


class BaseEstimator:
    get_params: Any
    set_params: Any
    get_metadata_routing: Any
    __sklearn_tags__: Any
    __getstate__: Any


class RegressorMixin:
    score: Any
    __sklearn_tags__: Any


class MetaEstimatorMixin:
    pass


class MultiOutputMixin:
    __sklearn_tags__: Any


class TransformerMixin:
    fit_transform: Any
    set_output: Any
    __sklearn_tags__: Any
