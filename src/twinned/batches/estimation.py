"""First estimates of the deviations of batches, before models are fitted to y without them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from twinned.batches.effects import BatchEffects
from twinned.batches.joint import MAX_ROWS, CommonFunction, fit_joint
from twinned.batches.variances import estimate_effects, with_uncertainty
from twinned.rows.schema import Floats
from twinned.rows.training import TargetBounds, TrainingRows
from twinned.rows.validation import check_choice

KINDS = ["auto", "offset", "function"]

Rows = TypeVar("Rows", bound=TrainingRows)


def remove_deviations(rows: Rows, kind: str, *, shrinks: bool) -> Rows:
    """The rows with first estimates of the deviations of their batches, and y without them.

    They are those of a Gaussian process of the features and of the deviations, each as expected by
    the other rows. Without `shrinks`, a constant that is added to all y of one batch changes its
    deviation alone, by the constant.

    Parameters
    ----------
    rows : TrainingRows
        Those without batches are not changed.
    kind : {"auto", "offset", "function"}
        Whether deviations are constants, or functions of the features.
    shrinks : bool
        See `BatchEffects`.
    """
    check_choice("batch_effect", kind, KINDS)
    if rows.batch is None:
        return rows
    names, codes = np.unique(rows.batch, return_inverse=True)
    used = rows.known
    if rows.weight is not None:
        used = used[rows.weight[used] > 0]
    known = replace(rows, batch=codes).take(used)
    features, known_codes = known.rows.features, np.asarray(known.batch)
    weight = np.ones(len(known)) if known.weight is None else known.weight / known.weight.mean()
    means = np.full(len(names), np.average(known.y, weights=weight))
    if not shrinks:
        sums = np.bincount(known_codes, weight, len(names))
        products = np.bincount(known_codes, weight * known.y, len(names))
        np.divide(products, sums, out=means, where=sums > 0)
    y = _rounded(known.y - means[known_codes])
    joint = fit_joint(features, y, known_codes, weight, has_free_constants=not shrinks, kind=kind)
    parts = joint.deviation.scaled(features), y, known_codes, weight
    deviation, common = joint.held_out(*parts, np.arange(len(y)))
    shift = float(np.average(y - deviation, weights=weight))
    residual = y - common + shift + means[known_codes]
    effects = BatchEffects(
        names=names.tolist(),
        deviation=joint.deviation,
        features=features,
        codes=known_codes,
        residual=residual,
        weight=weight,
        noise_ratio=np.ones(len(names)),
        common_rows=np.full(len(names), np.inf),
        shrinks=shrinks,
        center=float(np.average(residual, weights=weight)),
        kind=kind,
    )
    # blends estimate the variances later, by their out-of-fold residuals
    effects = with_uncertainty(effects) if shrinks else estimate_effects(effects)
    removed = effects.of_rows(rows.rows.features, codes)[0]
    removed[used] = deviation + shift + means[known_codes]
    has_common = joint.deviation.differs and shrinks and len(y) <= MAX_ROWS
    return replace(
        rows,
        y=effects.rounded(rows.y - removed),
        bounds=rows.bounds
        and TargetBounds(*(effects.rounded(end - removed) for end in rows.bounds)),
        batch=codes,
        deviation=removed,
        effects=effects,
        common=CommonFunction(joint, *parts, shift) if has_common else None,
    )


def _rounded(y: Floats) -> Floats:
    """Y far below its spread, so that estimates do not depend on what was subtracted."""
    unit = 10.0 ** np.floor(np.log10(max(float(np.std(y)), 1e-290)) - 10)
    return np.round(y / unit) * unit
