"""Attributes of a fitted blend, and its fitted state from cross-fitted members."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from joblib import parallel_config
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length

from twinned._compat import safe_indexing
from twinned.batches.joint import CommonFunction
from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.members import CrossFittedMember
from twinned.estimators.blending.model import BlendModel, FittedMember, spread_around
from twinned.estimators.blending.rows import BlendRows
from twinned.estimators.blending.weights import (
    BlendWeights,
    blend,
    leaderboard,
    rmse_and_error,
    spread_weights,
    twin_contribution,
)
from twinned.estimators.methods import per_target
from twinned.exceptions import TableWarning
from twinned.fitted.anchors import Anchors
from twinned.fitted.calibration import Calibration
from twinned.fitted.held_out import HeldOutErrors, LocalResiduals, with_residuals
from twinned.fitted.prediction import target_columns
from twinned.fitted.quantiles import check_confidence
from twinned.fitted.twin import FittedTwin
from twinned.fitted.updating import BatchErrors, errors_of_batches, update_effects
from twinned.models.gaussian_process import GaussianProcess
from twinned.models.learned_metric import learn_metric
from twinned.models.resources import MemoryBudget, limit_threads
from twinned.pairing.anchors import replicate_correlation
from twinned.rows.folds import Folds, complete_predictions
from twinned.rows.formatting import ResultTable
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

_LEAST_LEVEL = 1e-9  # of joint intervals, and of its complement
_COMMON_FUNCTION = "gp_matern"  # the member that becomes that of all batches


@dataclass(frozen=True, eq=False)
class FitRecord:
    """Results of the fit of a blend that a saved blend does not have."""

    members: list[CrossFittedMember]
    rows: BlendRows
    seed: int
    batches: BatchErrors | None  # of a fit with batches


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
    def members_(self) -> dict[str, Any]:
        """The fitted estimators by name."""
        return {member.label: member.estimator for member in self.blend_model_.members}

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
        DataFrame
            With the columns `y`, `prediction`, `score`, which is the error divided by the error
            scale of the intervals, `fold`, and one for each member. The index has the numbers of
            the anchors; those that no fold holds out are not there. With batches, predictions are
            those of rows of known batches, in which the offset is estimated from the other rows.
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
        calibration, scores = self.calibration_, np.full(len(held_out), np.nan)
        if calibration is not None and calibration.rows is not None:
            scores = calibration.scores[np.argsort(calibration.rows)]
        columns = {
            "y": self.fitted_.fitted_y[held_out],
            "prediction": self.out_of_fold_prediction_[held_out] + of_blend,
            "score": scores,
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
            with (
                warnings.catch_warnings(action="ignore", category=TableWarning),
                limit_threads(self.n_jobs),
            ):
                extended = super().add_anchors(X, y, batch=batch)
            vars(extended).pop("_record", None)
            return extended
        check_consistent_length(X, y)
        extended = copy.copy(self)
        extended.targets_ = []
        columns = target_columns(y, len(self.targets_))
        for target, target_y in zip(self.targets_, columns, strict=True):
            if len(rows := np.flatnonzero(~np.isnan(target_y))):
                labels = batch
                if batch is not None and np.ndim(batch) > 0:
                    labels = safe_indexing(batch, rows)
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


def combine_members(
    members: list[CrossFittedMember],
    rows: BlendRows,
    seed: int,
    budget: MemoryBudget,
    *,
    calibrate: bool,
) -> dict[str, Any]:
    """The fitted attributes of a blend: the state, and what out-of-fold predictions show."""
    anchors, known_rows = rows.anchors, rows.known
    held_out = anchors.take(anchors.held_out)
    predictions = np.column_stack([member.out_of_fold[rows.rows.held_out] for member in members])
    weights = blend(predictions, rows, seed % 2**16)
    predictions, rmse = predictions[: len(known_rows)], weights.nested_rmse[weights.method]
    nested = rows.of_anchors(weights.nested_prediction)
    fitted = _fitted_state(members, rows, weights, predictions, budget)
    if fitted.local_weights is not None:
        residuals = fitted.squeeze(np.asarray(fitted.residuals))
        local = LocalResiduals(fitted.anchors, residuals, anchors.folds)
        nested = nested + local.predict(fitted.local_weights.power)
        rmse, _ = rmse_and_error(nested[anchors.held_out], held_out.y, held_out.weight)
    attributes: dict[str, Any] = {}
    batches = None
    if anchors.effects is not None:
        excess = excess_of_in_sample(members, rows, weights.weights)
        fitted = update_effects(fitted, anchors.effects, nested, excess)
        batches = errors_of_batches(fitted, nested, anchors.held_out)
        nested, rmse = batches.prediction, batches.rmse["known"]
        attributes["batch_errors_"] = batches.rmse
        # y without the deviations of batches
        known_y = known_rows.y.copy()
        known_y[rows.known_of_anchors[anchors.held_out]] = batches.known_y[anchors.held_out]
        known_rows = replace(known_rows, y=known_y)
    if calibrate:
        with parallel_config("threading", n_jobs=budget.n_jobs):
            calibration = _calibrate(fitted, anchors, nested, batches, seed)
        fitted = replace(fitted, calibration=calibration)
    return {
        **attributes,
        "blend_": {"method": weights.method, "rmse": rmse, "nested_rmse": weights.nested_rmse},
        "plan_": [member.spec.entry for member in members],
        "out_of_fold_prediction_": nested,
        "_leaderboard": leaderboard(members, predictions, known_rows, weights.weights),
        "contribution_": twin_contribution(members, predictions, known_rows, weights, seed % 2**16),
        "_fitted": fitted,
        "_record": FitRecord(members, rows, seed, batches),
    }


def _fitted_state(
    members: list[CrossFittedMember],
    rows: BlendRows,
    weights: BlendWeights,
    predictions: Floats,
    budget: MemoryBudget,
) -> FittedTwin:
    """The state without final deviations and calibration.

    `predictions` (known row, member) are out of fold.
    """
    anchors = rows.anchors
    held_out = anchors.take(anchors.held_out)
    state = Anchors.of_rows(anchors, censored_X=rows.rows.censored_matrix, n_jobs=budget.n_jobs)
    if anchors.common is not None:  # it was fitted by the same likelihood
        similar = anchors.common.metric
        metric = learn_metric(state.features, state.y, state.weight, similar=similar)
        state = replace(state, learned_metric=metric)
    model = BlendModel(
        members=[
            FittedMember(member.label, member.estimator, member.preparation) for member in members
        ],
        weights=weights.weights,
        spread_weights=spread_weights(predictions, rows.known, weights.weights),
        out_of_fold=complete_predictions(rows.of_anchors(predictions), anchors.y, anchors.weight),
        schema=rows.rows.schema,
    )
    fitted = FittedTwin(
        model=model,
        anchors=state,
        budget=budget,
        replicate_correlation=replicate_correlation(
            np.column_stack([held_out.matrix, np.asarray(held_out.fold, float)]),
            held_out.y - rows.of_anchors(weights.nested_prediction)[anchors.held_out],
            held_out.weight,
        ),
    )
    return with_residuals(fitted, model.out_of_fold @ model.weights, anchors.folds)


def _calibrate(
    fitted: FittedTwin,
    anchors: TrainingRows,
    nested: Floats,
    batches: BatchErrors | None,
    seed: int,
) -> Calibration:
    """The calibration by the out-of-fold errors of the blend."""
    model, mean = fitted.model, nested
    assert isinstance(model, BlendModel), "the model of a blend"
    if batches is not None:  # as of rows of large batches
        mean = fitted.anchors.y - (fitted.anchors.y - nested) / batches.widening
    errors = HeldOutErrors.of_folds(
        fitted.anchors.matrix,
        fitted.anchors.y,
        mean,
        spread_around(model.out_of_fold @ model.weights, model.out_of_fold, model.spread_weights),
        anchors.folds,
        y_std=fitted.anchors.y_std,
        fitted=fitted,
        encoded=fitted.anchors.features,
    )
    return errors.calibrate("learned", seed, np.arange(len(fitted.anchors)))


# --- the common function of batches as a member -------------------------------------------------


def with_common_function(
    members: list[CrossFittedMember], rows: BlendRows
) -> list[CrossFittedMember]:
    """The members, of which `gp_matern` becomes the common function of all batches.

    The common function was fitted together with the deviations of batches, and allows for their
    errors, which rows of a batch have in common.
    """
    anchors, table = rows.anchors, rows.rows
    labels = [member.spec.name for member in members]
    if anchors.common is None or table.bounds is not None or table.fold_training is not None:
        return members
    if not anchors.common.joint.deviation.differs or _COMMON_FUNCTION not in labels:
        return members
    common, number = anchors.common, labels.index(_COMMON_FUNCTION)
    member = members[number]
    length_scales = _length_scales(member, rows, common)
    if length_scales is None:
        return members
    # deviations are those expected by all other rows, too
    fold = np.arange(len(anchors)) if anchors.groups is None else np.asarray(anchors.fold)
    held_out = common.held_out(fold)
    sums = np.bincount(rows.merged_into, held_out)
    out_of_fold = np.where(rows.rows.held_out, sums / np.bincount(rows.merged_into), np.nan)
    dual, mean = common.coefficients()
    amplitude = common.joint.amplitude
    estimator = copy.copy(member.estimator)
    estimator.process_ = GaussianProcess(
        kernel="matern",
        length_scales=length_scales,
        amplitude=amplitude,
        noise=common.joint.deviation.noise / amplitude,
        X=member.preparation.transform(anchors.matrix),
        weight=common.weight,
        target=(anchors.y - mean)[:, None],
        dual=dual[:, None],
        mean=np.array([mean]),
        scale=np.ones(1),
        log_marginal_likelihood_=0.0,
        single_output=True,
    )
    in_sample = replace(member, estimator=estimator).predict(anchors.matrix)
    member = replace(member, estimator=estimator, out_of_fold=out_of_fold, in_sample=in_sample)
    return [*members[:number], member, *members[number + 1 :]]


def excess_of_in_sample(
    members: list[CrossFittedMember], rows: BlendRows, weights: Floats
) -> Floats:
    """(anchor,): predictions of a blend by all rows less those out of fold, of common functions.

    Given the process that was fitted with them, deviations are as expected by y less the common
    function of all rows, and not by y less values that other rows predict.
    """
    excess = np.zeros(len(rows.anchors))
    for member, weight in zip(members, weights, strict=True):
        if member.in_sample is not None:
            out_of_fold = member.out_of_fold[rows.merged_into]
            excess += weight * np.nan_to_num(member.in_sample - out_of_fold)
    return excess


def _length_scales(
    member: CrossFittedMember, rows: BlendRows, common: CommonFunction
) -> Floats | None:
    """Of the features of the member; None where they are not those of the deviations."""
    schema, prepared = rows.rows.schema, member.preparation
    if prepared.columns is not None or prepared.marked != schema.marked or prepared.empty:
        return None
    counts = [len(schema.numeric), *(schema.n_indicators[j] for j in schema.categorical)]
    numeric, *indicators = np.split(common.joint.deviation.length_scales, np.cumsum(counts))
    marked = indicators.pop()
    parts = [np.append(part, np.inf) for part in indicators]
    return np.concatenate([numeric, marked, *parts]) / prepared.spread
