"""Twins of a transformed target: fitted to the logarithm or a power of y, with results for y."""

import copy
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from twinned import _compat
from twinned.estimators.base import TwinMethods
from twinned.estimators.pipelines import replace_last_step, unwrap
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.fitted.twin import FittedTwin
from twinned.rows.scaling import PowerScaling
from twinned.rows.schema import Floats, Queries, TableSchema
from twinned.rows.training import TargetBounds, validate_bounds
from twinned.rows.validation import check_choice, check_numbers, check_row_numbers, count_rows


class TransformedTargetTwin(TwinMethods, TransformedTargetRegressor, _compat.BaseEstimator):
    """A twin that is fitted to the logarithm or another function of y, and predicts y.

    A prediction is the weighted arithmetic mean of the estimates from the anchors in units of y:
    for equal weights the mean over the out-of-fold errors, Duan's smearing estimate. Quantiles,
    intervals and densities are those of the twin, transformed exactly.

    Parameters
    ----------
    regressor : estimator
        The twin, or a pipeline that ends with one. Its own methods are on the scale of the
        transformed target.
    target_transform : {"log", "power"} or None, default="log"
        `"log"` is the logarithm of y, which must be positive; so are predictions and intervals.
        `"power"` is the transformation of Yeo and Johnson, fitted to y and followed by standard
        scaling, for a skewed y of any sign. None is y itself, to compare it in a search.

    Attributes
    ----------
    regressor_ : estimator
        The fitted twin.
    scaling_ : PowerScaling or None
        That of `"power"`.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TransformedTargetTwin, TwinRegressor
    >>> model = TransformedTargetTwin(TwinRegressor(Ridge())).fit([[0], [1], [2]], [1.0, 2.0, 4.0])
    >>> model.predict([[3]]).round(1)
    array([7.4])
    >>> X, y = [[0], [1], [2], [3]], [1.0, 2.0, 4.0, 100.0]
    >>> model = TransformedTargetTwin(TwinRegressor(Ridge()), target_transform="power").fit(X, y)
    >>> model.predict([[0]]) > 0
    array([ True])
    """

    scaling_: PowerScaling | None = None

    def __init__(self, regressor: object, target_transform: str | None = "log") -> None:
        super().__init__(regressor)
        self.target_transform = target_transform

    @classmethod
    def around(cls, twin: BaseEstimator) -> Self:
        """The fitted model of y around a twin that is fitted to log y."""
        model = cls(clone(twin))
        model.regressor_ = twin
        if "feature_names_in_" in vars(twin):
            model.feature_names_in_ = twin.feature_names_in_
        return model

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        y_lower: ArrayLike | None = None,
        y_upper: ArrayLike | None = None,
        y_std: ArrayLike | None = None,
        **fit_params: ArrayLike | None,
    ) -> Self:
        """Fit the twin to the transformed y; bounds are those of y, `fit_params` of the twin.

        `y_std`, the standard deviations of the errors of y, are transformed by the delta method.
        """
        n_rows = count_rows(y)
        if (name := self.target_transform) is not None:
            check_choice("target_transform", name, ["log", "power"], " or None")
        if y_lower is None and y_upper is None:
            values = check_numbers("y", y, finite=True)
            bounds = TargetBounds(values, values)
        else:
            bounds = validate_bounds(None, y, y_lower, y_upper, n_rows, None)
        rows = np.flatnonzero(~bounds.censored.reshape(n_rows, -1).any(axis=1))
        target = TargetTransform.fit(name, bounds.lower[rows])
        fitted_y, ends = bound_arguments(target.apply_bounds(bounds))
        if y_std is not None:
            y_std = check_row_numbers("y_std", y_std, n_rows)
            ends["y_std"] = y_std / target.slope(bounds.limits())
        if sample_weight is not None:
            fit_params["sample_weight"] = sample_weight
        TransformedTargetRegressor.fit(self, X, fitted_y, **ends, **fit_params)
        if not isinstance(unwrap(self.regressor_)[0], TwinMethods):
            kind = type(self.regressor).__name__
            raise TypeError(f"regressor must be a twin, or end with one, not a {kind}.")
        if n_targets := len(unwrap(self.regressor_)[0].targets_):
            raise ValueError(
                f"y has {n_targets} targets, but a blend of a transformed target has one; fit a "
                f"{type(self).__name__} to each of them."
            )
        self.scaling_ = target.scaling
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Metadata routing: of `fit` to the twin, and of `predict` and `score` to this model."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(regressor=self.regressor, method_mapping=mapping)

    @property
    def target_(self) -> TargetTransform:
        """The fitted transformation."""
        return TargetTransform(self.target_transform == "log", self.scaling_)

    @property
    def fitted_(self) -> FittedTwin:
        """The fitted state of the twin, with the transformation of its target."""
        check_is_fitted(self, "regressor_")
        return replace(unwrap(self.regressor_)[0].fitted_, target=self.target_)

    def with_fitted(self, fitted: FittedTwin) -> Self:
        """A copy of the estimator with another fitted state, on the scale of the fitted target."""
        other = copy.copy(self)
        twin = unwrap(self.regressor_)[0].with_fitted(replace(fitted, target=IDENTITY))
        other.regressor_ = replace_last_step(self.regressor_, twin)
        return other

    def validate_queries(
        self, X: ArrayLike, *, learn_categories: bool = False, schema: TableSchema | None = None
    ) -> Queries:
        """Validated rows without batches; with `learn_categories`, new ones are in their schema."""
        check_is_fitted(self, "regressor_")
        twin, transform = unwrap(self.regressor_)
        return twin.validate_queries(transform(X), learn_categories=learn_categories, schema=schema)

    def feature_labels(self) -> list[str]:
        """Names of the features of the twin."""
        return unwrap(self.regressor_)[0].feature_labels()

    @property
    def n_jobs(self) -> int | None:  # type: ignore[override]
        """The number of threads of the twin."""
        return unwrap(self.regressor_)[0].n_jobs

    @property
    def random_state(self) -> int | np.random.RandomState | None:  # type: ignore[override]
        """The seed of the twin."""
        return unwrap(self.regressor_)[0].random_state


def bound_arguments(bounds: TargetBounds) -> tuple[Floats, dict[str, Floats]]:
    """(row,) values that are known or within their bounds, and the bounds as arguments of `fit`.

    A `TransformedTargetRegressor` takes no NaN. So the bounds are NaN where y is known, and y is a
    number within the bounds where it is not.
    """
    ends = zip(("y_lower", "y_upper"), bounds, strict=True) if bounds.censored.any() else ()
    return bounds.limits(), {name: np.where(bounds.censored, end, np.nan) for name, end in ends}


def split_target(model: BaseEstimator) -> tuple[BaseEstimator, TargetTransform]:
    """The twin in a `TransformedTargetTwin`, and its transformation; or another model itself."""
    is_transformed = isinstance(model, TransformedTargetTwin)
    return (model.regressor_, model.target_) if is_transformed else (model, IDENTITY)
