"""Members of a blend that can be exported alone."""

from __future__ import annotations

import copy

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.members import POWER, FittedMember
from twinned.estimators.methods import BaseTwin
from twinned.export.model_parts import refuse_batches
from twinned.rows.schema import ORDINAL


def select_member(blend: AutoTwinRegressor, name: str) -> BaseEstimator:
    """Return a fitted member of a blend that predicts rows of the table by itself.

    Parameters
    ----------
    blend : AutoTwinRegressor
        A fitted blend.
    name : str
        One of `blend.member_names_`, or the part before its colon.

    Returns
    -------
    estimator
        A twin, networks or a regressor of scikit-learn, with the feature names of the blend. Its
        predictions are those of the member, not of the blend.

    Examples
    --------
    >>> import numpy as np
    >>> from twinned import AutoTwinRegressor
    >>> from twinned.export import select_member
    >>> X = np.random.RandomState(0).uniform(size=(30, 2))
    >>> blend = AutoTwinRegressor(members=["ridge", "boosting:fast"], cv=3).fit(X, X[:, 0])
    >>> type(select_member(blend, "boosting:fast")).__name__
    'HistGradientBoostingRegressor'
    """
    check_is_fitted(blend)
    if not isinstance(blend, AutoTwinRegressor):
        raise TypeError(
            f"select_member needs an AutoTwinRegressor, not {type(blend).__name__}; export the "
            "model itself, and fit blends without a transformed target."
        )
    refuse_batches(blend)
    members = {member.label: member for member in blend.fitted_members_}
    matches = [label for label in members if name in (label, label.partition(":")[0])]
    if len(matches) != 1:
        raise ValueError(f"the blend has no member {name!r}; it has {', '.join(members)}.")
    name = matches[0]
    if reason := _reason_not_separable(blend, members[name]):
        other = describe_alternatives(blend, except_for=name)
        raise ValueError(f"the member {name!r} cannot be used alone: {reason}; {other}")
    estimator = copy.copy(members[name].estimator)
    names = vars(blend).get("feature_names_in_")
    if names is not None:
        estimator.feature_names_in_ = names
    return estimator


def separable_members(blend: AutoTwinRegressor) -> list[str]:
    """Names of the members that `select_member` returns, the most accurate first."""
    members = {member.label: member for member in blend.fitted_members_}
    ranked = blend.leaderboard_.sort_values("rmse")["member"]
    return [name for name in ranked if not _reason_not_separable(blend, members[name])]


def describe_alternatives(blend: AutoTwinRegressor, except_for: str = "") -> str:
    """Twins to export instead, as a part of a message."""
    others = [name for name in separable_members(blend) if name != except_for]
    names = [name for name in others if isinstance(blend.members_[name], BaseTwin)]
    alone = "fit a single twin (twinned fit --model twin)"
    if not names:
        return f"{alone}."
    function = f"twinned.export.select_member(model, {names[0]!r})"
    calls = f"{function}, or twinned export --member {names[0]}"
    return f"use one of its twins, {' or '.join(map(repr, names))}: {calls}; or {alone}."


def _reason_not_separable(blend: AutoTwinRegressor, member: FittedMember) -> str:
    """How the features of a member are not those of the table; empty where they are the same."""
    preparation = member.preparation
    if ORDINAL in blend.schema_.kinds:
        return "its ordered categories are encoded by the blend"
    if preparation.columns is not None:
        return "it has some of the columns only"
    if preparation.kind == "dense":
        change = "power-transformed" if POWER in member.label else "standardized by the blend"
        return f"its features are {change}"
    if preparation.categorical:
        return "its categories are encoded by the blend"
    if preparation.empty or (preparation.marked and preparation.kind == "complete"):
        return "its missing values are imputed by the blend"
    return ""
