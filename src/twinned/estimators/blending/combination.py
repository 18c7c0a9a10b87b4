"""The fitted state of a blend, from its cross-fitted members."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import parallel_config

from twinned.batches.joint import CommonFunction
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
from twinned.fitted.anchors import Anchors
from twinned.fitted.calibration import Calibration
from twinned.fitted.held_out import HeldOutErrors, LocalResiduals, with_residuals
from twinned.fitted.twin import FittedTwin
from twinned.fitted.updating import BatchErrors, errors_of_batches, update_effects
from twinned.models.gaussian_process import GaussianProcess
from twinned.models.resources import MemoryBudget
from twinned.pairing.anchors import replicate_correlation
from twinned.rows.folds import complete_predictions
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

_COMMON_FUNCTION = "gp_matern"  # the member that becomes that of all batches


@dataclass(frozen=True, eq=False)
class FitRecord:
    """Results of the fit of a blend that a saved blend does not have."""

    members: list[CrossFittedMember]
    rows: BlendRows
    seed: int
    batches: BatchErrors | None  # of a fit with batches
    scores: Floats | None  # (row of positive weight,): of the intervals


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
    scores = None
    if calibrate:
        with parallel_config("threading", n_jobs=budget.n_jobs):
            calibration = _calibrate(fitted, anchors, nested, batches, seed)
        scores = calibration.scores[np.argsort(np.asarray(calibration.rows))]
        fitted = replace(fitted, calibration=calibration)
    return {
        **attributes,
        "blend_": {"method": weights.method, "rmse": rmse, "nested_rmse": weights.nested_rmse},
        "plan_": [member.spec.entry for member in members],
        "out_of_fold_prediction_": nested,
        "_leaderboard": leaderboard(members, predictions, known_rows, weights.weights),
        "contribution_": twin_contribution(members, predictions, known_rows, weights, seed % 2**16),
        "_fitted": fitted,
        "_record": FitRecord(members, rows, seed, batches, scores),
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
        anchors=Anchors.of_rows(
            anchors, censored_X=rows.rows.censored_matrix, n_jobs=budget.n_jobs
        ),
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
    if _COMMON_FUNCTION not in labels:
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
