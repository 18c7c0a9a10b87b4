"""Attributes and methods of a fitted blend that show its members."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length

from twinned._compat import safe_indexing
from twinned.estimators.blending.combination import FitRecord
from twinned.estimators.blending.members import FittedMember
from twinned.estimators.blending.model import BlendModel
from twinned.estimators.fitted_attributes import per_target
from twinned.estimators.methods import BaseTwin
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.prediction import target_columns
from twinned.fitted.quantiles import check_confidence
from twinned.models.resources import limit_threads
from twinned.rows.folds import Folds
from twinned.rows.formatting import ResultTable
from twinned.rows.schema import Floats

_LEAST_LEVEL = 1e-9  # of joint intervals, and of its complement


class BlendAttributes(BaseTwin):
    """Members of a fitted blend, their weights and their out-of-fold predictions."""

    _record: FitRecord | None = None
    _leaderboard: dict[str, Any]
    out_of_fold_prediction_: Floats
    blend_: dict[str, Any]
    contribution_: dict[str, Any] | None
    batch_errors_: dict[str, float]
    plan_: list[object]
    skipped_: dict[str, str]
    joint_scores_: Floats

    @property
    def blend_model_(self) -> BlendModel:
        """The difference model of the blend."""
        model = self.fitted_.model
        assert isinstance(model, BlendModel), "the model of a blend"
        return model

    @property
    def fitted_members_(self) -> list[FittedMember]:
        """The fitted members, with the preparation of their features."""
        return self.blend_model_.members

    @property
    def members_(self) -> dict[str, Any]:
        """The fitted estimators by name."""
        return {member.label: member.estimator for member in self.fitted_members_}

    @property
    def member_weights_(self) -> Floats:
        """(n_members,): weights of the blend, which sum to one."""
        return self.blend_model_.weights

    @property
    def replicate_correlation_(self) -> float:
        """The correlation of the out-of-fold errors of rows with equal features."""
        return self.fitted_.replicate_correlation

    @property
    def member_names_(self) -> list[str]:
        """Names of the fitted members."""
        return list(self.members_)

    @property
    @per_target
    def leaderboard_(self) -> pd.DataFrame:
        """Errors, weight, seconds and size of each member, the best first."""
        return ResultTable(self._leaderboard)

    @per_target
    def out_of_fold(self) -> pd.DataFrame:
        """Out-of-fold predictions of the blend and of each member; a saved model has none.

        Returns
        -------
        DataFrame with the columns `y`, `prediction`, `score`, which is the error divided by the
        error scale of the intervals, `fold`, and one for each member. The index has the numbers of
        the anchors; those that no fold holds out are not there. With batches, predictions are those
        of rows of known batches, in which the offset is estimated from the other rows.
        """
        record = self._fit_record()
        rows = record.rows
        held_out = np.flatnonzero(rows.anchors.held_out)
        merged_into = rows.merged_into[held_out]
        of_blend: Floats = np.zeros(len(held_out))
        of_members = of_blend
        if record.batches is not None:
            of_blend, of_members = (
                offset[held_out] for offset in record.batches.missing_deviations
            )
        columns = {
            "y": self.fitted_.fitted_y[held_out],
            "prediction": self.out_of_fold_prediction_[held_out] + of_blend,
            "score": np.nan if record.scores is None else record.scores,
            "fold": np.asarray(rows.anchors.fold)[held_out],
        }
        members = {
            member.label: member.out_of_fold[merged_into] + of_members for member in record.members
        }
        return pd.DataFrame(columns | members, index=held_out)

    @property
    def folds_(self) -> Folds:
        """(training rows, held-out rows) of each fold, numbers of anchors; as `out_of_fold`."""
        return self._fit_record().rows.anchors.folds

    def predict_members(self, X: ArrayLike, *, batch: ArrayLike | None = None) -> Floats:
        """Predict by each member.

        Returns
        -------
        y : ndarray of shape (n_members, n_queries)
            In the order of `member_names_`, those without weight included.
        """
        queries = self.encode(X, batch=batch)
        with limit_threads(self.n_jobs):
            predicted = self.blend_model_.predict_members(queries.matrix).T
        return predicted if queries.offset is None else predicted + queries.offset

    def add_anchors(self, X: ArrayLike, y: ArrayLike, *, batch: ArrayLike | None = None) -> Self:
        """A new fitted blend with the same members and further anchors.

        As of `TwinRegressor`. Of several targets, each has the rows with a value of it.
        """
        if not self.targets_:
            with ignore_table_warnings(), limit_threads(self.n_jobs):
                extended = super().add_anchors(X, y, batch=batch)
            extended._record = None
            return extended
        check_consistent_length(X, y)
        extended = copy.copy(self)
        extended.targets_ = []
        columns = target_columns(y, len(self.targets_))
        for target, target_y in zip(self.targets_, columns, strict=True):
            if len(rows := np.flatnonzero(~np.isnan(target_y))):
                labels = batch if np.ndim(batch) == 0 else safe_indexing(batch, rows)
                target = target.add_anchors(safe_indexing(X, rows), target_y[rows], batch=labels)
            extended.targets_.append(target)
        return extended

    def _joint_level(self, confidence: float) -> float:
        if not self.targets_:
            return confidence
        n = len(self.joint_scores_)
        wanted = check_confidence(confidence, n, "calibration rows with all targets")
        level = np.interp(wanted, np.arange(1, n + 1) / (n + 1), self.joint_scores_)
        return float(np.clip(level, _LEAST_LEVEL, 1 - _LEAST_LEVEL))

    def _fit_record(self) -> FitRecord:
        self.require_single_target()
        if self._record is None:
            raise AttributeError("The model was loaded or has new anchors; fit it again.")
        return self._record

    @property
    def target_names_(self) -> list[str]:
        """Names of several targets."""
        return [target.target_name_ for target in self.targets_]


def joint_scores(targets: Sequence[Any], n_rows: int) -> Floats:
    """(score,): least confidences at which the intervals of all targets contain a held-out row.

    They are sorted, and those of the training rows that have all targets.
    """
    scores = np.full((n_rows, len(targets)), np.nan)
    for j, target in enumerate(targets):
        own = target.out_of_fold()["score"]
        level = target.calibration_.distribution.cdf(own.to_numpy())
        scores[target.anchor_rows_[own.index], j] = np.abs(2.0 * level - 1.0)
    largest = scores.max(axis=1)
    return np.sort(largest[~np.isnan(largest)])
