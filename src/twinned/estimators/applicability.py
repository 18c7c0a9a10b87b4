"""Applicability of a fitted twin to new rows: inside, at the edge, or outside of the anchors."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from twinned.exceptions import ShiftWarning
from twinned.fitted.applicability import (
    LABELS,
    OUTSIDE,
    ROWS_PER_BLOCK,
    ApplicabilityDomain,
    ClassStatistics,
    count_outside,
)
from twinned.fitted.known_values import is_unlikely

if TYPE_CHECKING:
    from twinned.estimators.blocks import Queries
    from twinned.rows.neighbors import Indices, LearnedMetric
    from twinned.rows.schema import Floats, Rows, TableSchema


class ApplicabilityMixin:
    """The methods of a fitted twin that know where it applies."""

    if TYPE_CHECKING:
        anchors_X_: Floats
        anchors_y_: Floats
        _anchors: Rows
        _schema: TableSchema
        _cache: Any

        def _validate_queries(self, X: Any) -> Queries: ...
        def _metric(self) -> LearnedMetric: ...
        def __getstate__(self) -> dict[str, Any]: ...

    def applicability(self, X: Any) -> pd.DataFrame:
        """Whether each row is inside, at the edge, or outside of the anchors.

        The expected error of a row is the standard deviation of a Gaussian process with the learned
        length scales and noise, times the size of the errors of known rows near it; that of each
        anchor is computed without itself. Rows up to the expected error of 70 % of the anchors are
        `"inside"`, those beyond that of 97.5 % are `"outside"`, and others are at the `"edge"`. A
        row with a feature beyond the range of the anchors, or that is missing where all anchors
        have a value, is at least at the edge; one with a category that no anchor has, beyond the
        range by more than its width, or without any feature that all anchors have, is outside.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to classify.

        Returns
        -------
        DataFrame with the index of X and the columns `score`, the expected error in units of that
        of the median anchor, and `label`. After `measure_applicability`, also `error` and
        `coverage` of held-out rows of that class: their root mean square error, and the share of
        them within their prediction interval. Both are NaN for a row with a new category, which no
        held-out row has.
        """
        queries, domain = self._validate_queries(X), self._applicability_domain()
        score, classes = self._classify(queries)
        columns: dict[str, Any] = {"score": score, "label": np.array(LABELS, dtype=object)[classes]}
        if hasattr(self, "applicability_"):
            new = domain.has_new_category(queries.matrix)
            for name in ("error", "coverage"):
                columns[name] = np.where(new, np.nan, self.applicability_[name][classes])
        index = getattr(X, "index", None)
        return pd.DataFrame(columns, index=index if isinstance(index, pd.Index) else None)

    def outside_training_rows(self, X: Any) -> NDArray[np.bool_]:
        """(n_queries,) whether each row is `"outside"` by `applicability`."""
        outside: NDArray[np.bool_] = (self.applicability(X)["label"] == OUTSIDE).to_numpy()
        return outside

    def _classify(self, queries: Queries) -> tuple[Floats, Indices]:
        """(query,): scores and classes; rows are encoded in blocks, as indicators take memory."""
        domain, score = self._applicability_domain(), np.empty(len(queries))
        for rows in gen_batches(len(queries), ROWS_PER_BLOCK):
            score[rows] = domain.score(queries.take(rows).features)
        return score, domain.classify(queries.matrix, score)

    def _applicability_domain(self) -> ApplicabilityDomain:
        """The domain of the anchors, made when it is first needed."""
        if self._cache.domain is None:
            self._cache.domain = ApplicabilityDomain(
                self.anchors_X_,
                self._anchors.features,
                self._metric(),
                self.anchors_y_,
                self._schema.categorical,
            )
        domain: ApplicabilityDomain = self._cache.domain
        return domain

    def _state_to_save(self) -> dict[str, Any]:
        """The attributes, with the learned metric where it is known or intervals need it."""
        if hasattr(self, "intervals_"):
            self._metric()
        return self.__getstate__()

    def _set_applicability(self, statistics: ClassStatistics, confidence: float) -> None:
        """Store the errors and the coverage of the classes."""
        self.applicability_ = {**statistics._asdict(), "confidence": confidence}

    def _warn_of_shift(self, X: Any) -> None:
        """Warn where more rows are outside than exchangeable rows would, or have a new category."""
        queries, domain = self._validate_queries(X), self._applicability_domain()
        classes = self._classify(queries)[1]
        n_outside, n_rows = count_outside(classes), len(classes)
        n_new = int(domain.has_new_category(queries.matrix).sum())
        if not n_new and not is_unlikely(n_outside, n_rows, domain.expected_share()):
            return
        known, matrix = domain.known_values, queries.matrix
        beyond = known.beyond(matrix) | known.newly_missing(matrix)
        names = list(getattr(self, "feature_names_in_", range(beyond.shape[1])))
        features = [names[j] for j in np.argsort(-beyond.sum(axis=0))[:3] if beyond[:, j].any()]
        where = f" (in {', '.join(map(repr, features))})" if features else ""
        new = f"; {n_new} of them have a category that no training row has" if n_new else ""
        warnings.warn(
            f"{n_outside} of {n_rows} rows lie outside of the training rows{where}{new}. There, "
            "prediction intervals may cover less than their confidence; "
            "applicability(X) classifies the rows.",
            ShiftWarning,
            stacklevel=3,
        )
