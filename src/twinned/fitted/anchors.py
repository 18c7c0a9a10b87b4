"""Anchors of a fitted twin, and rows to predict from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from twinned.fitted.applicability import ApplicabilityDomain
from twinned.models.learned_metric import learn_metric
from twinned.models.protocol import DifferenceModel
from twinned.rows.neighbors import LEARNED, Indices, LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats, Rows, TableSchema


class RowScale(Protocol):
    """Scale of encoded rows, for a model that is fitted to scaled features."""

    def transform(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True, eq=False)
class Queries:
    """Validated rows to predict, encoded block by block, as indicators take much memory."""

    schema: TableSchema
    scale: RowScale | None
    matrix: Floats  # (query, feature), with categories as codes

    def take(self, rows: slice | Indices) -> Rows:
        """Encoded rows, as the model sees them."""
        encoded = self.schema.to_rows(self.matrix[rows])
        return encoded if self.scale is None else self.scale.transform(encoded)

    def encode(self) -> Rows:
        """All rows, encoded."""
        return self.take(slice(None))

    def __len__(self) -> int:
        return len(self.matrix)


@dataclass(frozen=True, eq=False)
class Anchors:
    """Known rows from which queries are predicted; what is derived from them is made once."""

    schema: TableSchema
    X: Floats  # (anchor, feature), with categories as codes
    y: Floats  # (anchor,) or (anchor, output)
    weights: Floats | None = None  # (anchor,)
    labels: list[str | int] | None = None  # of the rows in the training table
    scale: RowScale | None = None
    censored_X: Floats | None = None  # (row, feature): rows of the fit whose value is not known
    fitted_metric: LearnedMetric | None = None  # learned in the fit, where a strategy needed it
    n_jobs: int | None = None  # of neighbor searches
    indices: dict[str, NeighborIndex] = field(default_factory=dict)  # by metric, as needed
    models: list[DifferenceModel] = field(default_factory=list)  # the last one bound to them

    def __len__(self) -> int:
        return len(self.X)

    @property
    def targets(self) -> Floats:
        """(anchor, output)."""
        return self.y.reshape(len(self.y), -1)

    def as_queries(self, rows: slice | Indices = slice(None)) -> Queries:
        """Anchors as rows to predict."""
        return Queries(self.schema, self.scale, self.X[rows])

    @cached_property
    def rows(self) -> Rows:
        """Encoded anchors, as the model sees them."""
        return self.as_queries().encode()

    @cached_property
    def features(self) -> Floats:
        """(anchor, encoded feature)."""
        return self.rows.features

    @property
    def measured_features(self) -> Floats:
        """(row, encoded feature): the anchors and, after them, censored rows of the fit."""
        if self.censored_X is None:
            return self.features
        censored = Queries(self.schema, self.scale, self.censored_X).encode()
        return np.concatenate([self.features, censored.features])

    @cached_property
    def metric(self) -> LearnedMetric:
        """The learned metric, of the fit or else of the anchors."""
        return self.fitted_metric or learn_metric(self.features, self.y, self.weights)

    @property
    def derived_metric(self) -> LearnedMetric | None:
        """The metric that was learned from the anchors, if it has been."""
        return None if self.fitted_metric is not None else vars(self).get("metric")

    def set_metric(self, metric: LearnedMetric) -> None:
        """Set the metric that was learned from these anchors before they were saved."""
        vars(self)["metric"] = metric

    @cached_property
    def domain(self) -> ApplicabilityDomain:
        """The applicability domain."""
        categorical = self.schema.categorical
        return ApplicabilityDomain(self.X, self.features, self.metric, self.y, categorical)

    def index(self, metric: str) -> NeighborIndex:
        """The neighbor index for a metric."""
        if metric not in self.indices:
            learned = self.metric if metric == LEARNED else None
            self.indices[metric] = NeighborIndex(self.features, metric, self.n_jobs, learned)
        return self.indices[metric]
