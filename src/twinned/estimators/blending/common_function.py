"""The common function of batches as a member of a blend."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from twinned.batches.joint import CommonFunction
from twinned.estimators.blending.members import CrossFittedMember
from twinned.estimators.blending.rows import BlendRows
from twinned.models.gaussian_process import GaussianProcess
from twinned.rows.schema import Floats

MEMBER = "gp_matern"


def with_common_function(
    members: list[CrossFittedMember], rows: BlendRows
) -> list[CrossFittedMember]:
    """The members, of which `gp_matern` becomes the common function of all batches.

    The common function was fitted together with the deviations of batches, and allows for their
    errors, which rows of a batch have in common.
    """
    common, table = rows.anchors.common, rows.rows
    if common is None or table.bounds is not None or table.fold_training is not None:
        return members
    return [
        _common_function(member, rows, common) if member.spec.name == MEMBER else member
        for member in members
    ]


def _common_function(
    member: CrossFittedMember, rows: BlendRows, common: CommonFunction
) -> CrossFittedMember:
    anchors = rows.anchors
    length_scales = _length_scales(member, rows, common)
    if length_scales is None:
        return member
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
    return replace(member, estimator=estimator, out_of_fold=out_of_fold, in_sample=in_sample)


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
