"""Private attributes of other libraries, each with the versions it was tested with.

No other module uses a name of another library that starts with an underscore, except
`twinned.persistence`, whose job is to check what such attributes hold in a file.
"""

from __future__ import annotations

import inspect
from typing import Any

from sklearn.model_selection import GridSearchCV
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import _raise_for_params, _routing_enabled
from sklearn.utils.validation import _num_samples

# scikit-learn 1.7 to 1.9: imported by scikit-learn's own meta-estimators and by third parties.
num_samples = _num_samples
safe_indexing = _safe_indexing
raise_for_params = _raise_for_params
routing_enabled = _routing_enabled

# scikit-learn 1.7 to 1.9: grid, randomized and halving searches have one common parent class.
BaseSearchCV: Any = GridSearchCV.__mro__[1]


def unwrap_search(estimator: Any) -> Any:
    """The model that a fitted search such as `GridSearchCV` predicts with.

    Any other estimator is returned as it is, and so is a search with its own `predict`.
    """
    predict = inspect.getattr_static(type(estimator), "predict", None)
    if predict is inspect.getattr_static(GridSearchCV, "predict"):
        return getattr(estimator, "best_estimator_", estimator)
    return estimator


def set_booster(estimator: Any, booster: Any) -> None:
    """Give a fitted `LGBMRegressor` another booster (LightGBM 4.5 to 4.7)."""
    estimator._Booster = booster


class DocumentationLink:
    """Mixin that links the HTML diagram of an estimator to our documentation.

    The attributes are those of scikit-learn 1.7 to 1.9.
    """

    _doc_link_module = "twinned"
    _doc_link_template = "https://twinned.readthedocs.io/en/latest/api/#twinned.{estimator_name}"
