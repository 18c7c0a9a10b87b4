"""Parents of estimators as mypy sees them, see `_compat`: scikit-learn has no types."""

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
