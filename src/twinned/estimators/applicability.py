"""Applicability of a fitted twin to new rows: inside, at the edge, or outside of the anchors."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from twinned._neighbors import LearnedMetric
from twinned.exceptions import ShiftWarning
from twinned.intervals.applicability import LABELS, OUTSIDE, ApplicabilityDomain, ClassStatistics
from twinned.intervals.shift import expected_share, is_unlikely, rows_outside

if TYPE_CHECKING:
    from twinned._table import Floats, Rows, TableSchema


class ApplicabilityMixin:
    """The methods of a fitted twin that know where it applies."""

    if TYPE_CHECKING:
        anchors_X_: Floats
        _anchors: Rows
        _schema: TableSchema
        _cache: Any

        def _validate_queries(self, X: Any) -> Any: ...
        def _metric(self) -> LearnedMetric: ...

    def applicability(self, X: Any) -> pd.DataFrame:
        """Whether each row is inside, at the edge, or outside of the anchors.

        A Gaussian process with the learned length scales and noise gives the uncertainty of y at a
        row, and at each anchor without itself. Rows up to the uncertainty of 90 % of the anchors
        are `"inside"`, those beyond that of 97.5 % are `"outside"`, and others are at the `"edge"`,
        as are rows inside with a feature beyond the range of the anchors or with a new category.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to classify.

        Returns
        -------
        DataFrame with the index of X and the columns `score`, the uncertainty in units of that of
        the median anchor, and `label`. After `measure_applicability`, also `error` and `coverage`
        of held-out rows of that class: their root mean square error, and the share of them within
        their prediction interval.
        """
        queries = self._validate_queries(X)
        domain = self._applicability_domain()
        score = domain.score(queries.take(slice(None)).features)
        classes = domain.classify(queries.matrix, score)
        columns: dict[str, Any] = {"score": score, "label": np.array(LABELS, dtype=object)[classes]}
        if hasattr(self, "applicability_"):
            columns["error"] = self.applicability_["error"][classes]
            columns["coverage"] = self.applicability_["coverage"][classes]
        index = getattr(X, "index", None)
        return pd.DataFrame(columns, index=index if isinstance(index, pd.Index) else None)

    def outside_training_rows(self, X: Any) -> NDArray[np.bool_]:
        """(n_queries,) whether each row is `"outside"` by `applicability`."""
        outside: NDArray[np.bool_] = (self.applicability(X)["label"] == OUTSIDE).to_numpy()
        return outside

    def _applicability_domain(self) -> ApplicabilityDomain:
        """The domain of the anchors, made when it is first needed."""
        if self._cache.domain is None:
            features = self._anchors.features
            self._cache.domain = ApplicabilityDomain(self.anchors_X_, features, self._metric())
        domain: ApplicabilityDomain = self._cache.domain
        return domain

    def _set_applicability(self, statistics: ClassStatistics, confidence: float) -> None:
        """Store the errors and the coverage of the classes."""
        self.applicability_ = {**statistics._asdict(), "confidence": confidence}

    def _warn_of_shift(self, X: Any) -> None:
        """Warn where more rows lie outside of the anchors than exchangeable rows would.

        Distances are by the metric of the stored intervals, as another one would have to be learned
        first; without one, by that of standardized features.
        """
        matrix, known = self._validate_queries(X).matrix, self.anchors_X_
        stored = getattr(self, "intervals_", {})
        columns = stored.get("columns", self._schema.numeric)
        metric = stored.get("metric")
        transform = None if metric is None else LearnedMetric(*metric).transform
        outside, beyond = rows_outside(matrix, known, columns, transform)
        n_outside, n_rows = int(outside.sum()), len(matrix)
        if not is_unlikely(n_outside, n_rows, expected_share(known)):
            return
        names = list(getattr(self, "feature_names_in_", range(known.shape[1])))
        features = [names[j] for j in np.argsort(-beyond.sum(axis=0))[:3] if beyond[:, j].any()]
        where = f" (in {', '.join(map(repr, features))})" if features else ""
        warnings.warn(
            f"{n_outside} of {n_rows} rows lie outside of the training rows{where}, where "
            "prediction intervals may cover less than their confidence; "
            "applicability(X) classifies them.",
            ShiftWarning,
            stacklevel=3,
        )
