"""Anchors: the known rows from which queries are predicted, and the queries."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from twinned.fitted.applicability import ApplicabilityDomain
from twinned.fitted.known_values import Mask
from twinned.fitted.missing_values import NeighborImputer
from twinned.fitted.sampling import MetricProcess
from twinned.models.learned_metric import learn_metric
from twinned.pairing.anchors import EqualRows
from twinned.rows.neighbors import LEARNED, LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats, Indices, Rows, TableSchema
from twinned.rows.training import TrainingRows


class RowScale(Protocol):
    """Scale of encoded rows, for a model that is fitted to scaled features."""

    def transform(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True, eq=False)
class Queries:
    """Validated rows to predict, encoded block by block, as indicators take much memory."""

    schema: TableSchema
    scale: RowScale | None
    matrix: Floats  # (query, feature), with categories as codes
    # (query,): deviation of the batch, its standard error, the factor of the other errors, and a
    # number of the batch that equals that of other queries of the same batch; None without batches
    offset: Floats | None = None
    offset_std: Floats | None = None
    error_ratio: Floats | None = None
    batch: Indices | None = None

    def take(self, rows: slice | Indices) -> Rows:
        """Encoded rows, as the model sees them."""
        encoded = self.schema.to_rows(self.matrix[rows])
        return encoded if self.scale is None else self.scale.transform(encoded)

    def encode(self) -> Rows:
        """All rows, encoded."""
        return self.take(slice(None))

    @property
    def encoded_features(self) -> Floats:
        """(query, encoded feature), not scaled."""
        return self.schema.to_rows(self.matrix).features

    def __len__(self) -> int:
        return len(self.matrix)


@dataclass(frozen=True, eq=False)
class Anchors(TrainingRows):
    """Known rows from which queries are predicted; what is derived from them is made once.

    `y` is without the deviations of batches, `groups` are codes of groups that are held out
    together, and `batch` are codes of batches. Anchors that were added are row −1 of the table.
    """

    scale: RowScale | None = None
    censored_X: Floats | None = None  # (row, feature): rows of the fit whose value is not known
    learned_metric: LearnedMetric | None = None  # where it has been learned already
    n_jobs: int | None = None  # of neighbor searches
    # neighbor indices by metric, as needed
    indices: dict[str, NeighborIndex] = field(default_factory=dict, init=False)

    @classmethod
    def of_rows(cls, rows: TrainingRows, **details: Any) -> Self:
        """Of known rows of a fit, with details of the anchors."""
        of_fit = ("bounds", "fold", "fold_training", "unlabelled", "effects", "common")
        return cls(**values_of(rows) | dict.fromkeys(of_fit) | details)

    def to_rows(self, y: Floats, batch: np.ndarray | None) -> TrainingRows:
        """The anchors as rows of a fit, with these values and labels of batches."""
        return replace(
            TrainingRows(**values_of(self)),
            y=y,
            batch=batch,
            deviation=None,
            table_rows=np.arange(len(self)),
            n_table_rows=len(self),
        )

    def __getstate__(self) -> dict[str, object]:
        # without what is derived, except the metric, whose fit takes time
        return vars(replace(self, learned_metric=self.known_metric)) | {"indices": {}}

    @cached_property
    def rows(self) -> Rows:
        """Encoded anchors, as the model sees them."""
        return Queries(self.schema, self.scale, self.matrix).encode()

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
        """The learned metric, of the fit or else of the anchors, when it is first needed."""
        return self.learned_metric or learn_metric(self.features, self.y, self.weight)

    @property
    def known_metric(self) -> LearnedMetric | None:
        """The learned metric, if it has been learned."""
        return vars(self).get("metric", self.learned_metric)

    @cached_property
    def process(self) -> MetricProcess:
        """The Gaussian process of the learned metric, given the anchors."""
        return MetricProcess(self.features, self.metric, self.schema)

    @cached_property
    def domain(self) -> ApplicabilityDomain:
        """The applicability domain."""
        return ApplicabilityDomain(
            self.matrix, self.features, self.metric, self.y, self.schema.categorical, self.groups
        )

    @cached_property
    def always_known(self) -> Mask:
        """(feature,): whether every anchor has a value."""
        return np.all(~np.isnan(self.matrix), axis=0)

    @cached_property
    def imputer(self) -> NeighborImputer:
        """Values for rows that miss those of features that every anchor has."""
        return NeighborImputer(self.matrix, self.features, self.metric, self.schema)

    @cached_property
    def equal_rows(self) -> EqualRows:
        """The anchors that equal rows to predict."""
        return EqualRows(self.matrix)

    def index(self, metric: str) -> NeighborIndex:
        """The neighbor index for a metric."""
        if metric not in self.indices:
            learned = self.metric if metric == LEARNED else None
            self.indices[metric] = NeighborIndex(self.features, metric, self.n_jobs, learned)
        return self.indices[metric]


def values_of(rows: TrainingRows) -> dict[str, Any]:
    """The values of the fields of `TrainingRows`."""
    return {of.name: vars(rows)[of.name] for of in fields(TrainingRows)}
