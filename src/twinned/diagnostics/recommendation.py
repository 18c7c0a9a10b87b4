"""Recommended model of a diagnosis: a blend or a single member, the reason, and Python code."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn import config_context
from sklearn.base import BaseEstimator

from twinned.diagnostics.errors import Numbers, Ratio, fold_means, format_percent, rmse_ratio
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.members import POWER
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.rows.folds import ForwardFolds
from twinned.rows.schema import Floats

HELPS, HURTS, UNCLEAR, UNKNOWN = "helps", "does not help", "no clear difference", "unknown"
NO_PREDICTION = "no prediction"
# By which the error of a single member must be lower than that of the blend: the best of several
# members, chosen by the same rows, is less accurate on new ones. Ridge regression may be as much
# higher. Before a look at the test error of one split of YH, any member within 1 % was preferred.
_LEAST_GAIN = 0.01
_LEAST_WEIGHT = 0.02  # of a member of a recommended blend
# Of predictions that are better than the mean: their rank correlation with y, in standard errors;
# and the ratio of errors below which they may be better, although few rows do not show it clearly.
_CLEAR, _PERHAPS = 3.0, 0.95

DESCRIPTIONS = {
    "ridge": "ridge regression",
    "gp_matern": "a Gaussian process (Matérn 5/2)",
    "gp_rbf": "a Gaussian process (squared exponential)",
    "gp_tanimoto": "a Gaussian process (fragments and descriptors)",
    "extra_trees": "extra trees",
    "boosting": "gradient boosting",
    "tree_twin": "twinned gradient boosting",
    "neural": "neural networks",
    "neural_twin": "twin neural networks",
}
DESCRIPTIONS |= {
    name + POWER: f"{DESCRIPTIONS[name]} of power-transformed columns"
    for name in ("ridge", "gp_matern", "gp_rbf")
}


class Recommendation(NamedTuple):
    """Names of the recommended members, whether twinning helps, and the reason in words."""

    members: list[str]
    conclusion: str
    reason: str
    twins: str

    @property
    def summary(self) -> str:
        """The recommendation and whether twinning helps."""
        return f"{self.reason} {self.twins}".rstrip()


def choose_model(
    blend: AutoTwinRegressor, transform: TargetTransform = IDENTITY
) -> tuple[Recommendation, AutoTwinRegressor]:
    """Return the recommendation for a fitted blend, and the model of the recommended members.

    It is calibrated. Where it is no better than the mean, the recommendation states only that. The
    errors are those of the fitted target, which is transformed.
    """
    kind = "error of the logarithm" if transform.is_log else "error"
    members, conclusion, reason, twins = recommend(blend, kind)
    twin = blend.select_members(members)
    # their weights are fitted anew, and may be those of a single member
    if len(members) > 1 and twin.member_weights_.max() > 1 - _LEAST_WEIGHT:
        heaviest = twin.member_names_[int(np.argmax(twin.member_weights_))]
        members, conclusion, reason, twins = recommend(blend, kind, [heaviest])
        twin = blend.select_members(members)
    twin.set_params(verbose=0)
    predicted, y = twin.out_of_fold()[["prediction", "y"]].to_numpy().T
    if failure := describe_failure(predicted, y, fold_means(twin, twin.fitted_.known_y)):
        return Recommendation(members, NO_PREDICTION, failure, ""), twin
    if twin.local_power_:
        reason += " Near known cases have more weight, as their errors are alike."
    return Recommendation(members, conclusion, reason, twins), twin


def describe_failure(predicted: Floats, y: Floats, mean: Floats) -> str:
    """Return that (n,) out-of-fold predictions are no better than the mean; "" where they are.

    Their error must be clearly lower, by 1 % or more. A few large errors may dominate the mean
    square although most predictions are better; the rank correlation with y then shows it.
    """
    ratio = rmse_ratio(predicted, mean, y)
    is_lower = ratio.high < 1 and ratio.value < 1 - _LEAST_GAIN
    is_constant = np.ptp(predicted) == 0 or np.ptp(y) == 0
    correlation = 0.0 if is_constant else spearmanr(predicted, y)[0]
    if is_lower or correlation * math.sqrt(len(y)) > _CLEAR:
        return ""
    error = f"the error of the best model is {ratio} times that of always predicting its mean"
    clearly = "clearly " if ratio.value < _PERHAPS else ""
    return f"These features do not {clearly}predict y: {error}."


def recommend(
    blend: AutoTwinRegressor, kind: str = "error", used: list[str] | None = None
) -> Recommendation:
    """Return the members of the blend to use, from its out-of-fold errors, of this kind.

    Twins are used where the blend with them, or a single one, has the lowest error. Ridge
    regression, which is the simplest, is used where its error is at most 1 % higher than that of
    the blend, and another single member where its error is more than 1 % lower. `used` are the
    members with a weight, if they are known.
    """
    board = blend.leaderboard_.set_index("member")
    twins = [name for name, model in blend.members_.items() if isinstance(model, BaseTwin)]
    contribution, weights = blend.contribution_, blend.member_weights_
    error = float(blend.blend_["rmse"])
    best_is_twin = board.index[0] in twins and board["rmse"].iloc[0] < error
    if contribution is not None and contribution["ratio"] >= 1 and not best_is_twin:
        weights, error = contribution["baseline_weights"], contribution["baseline_rmse"]
    by_name = dict(zip(blend.member_names_, weights, strict=True))
    used = used or [name for name in board.index if by_name[name] >= _LEAST_WEIGHT]
    candidates = [name for name in board.index if name in used or name not in twins]
    ratio = board["rmse"] / error if error > 0 else board["rmse"] * 0.0 + 1.0
    simple = [name for name in candidates if _is_ridge(name) and ratio[name] <= 1 + _LEAST_GAIN]
    better = [name for name in candidates if ratio[name] < 1 - _LEAST_GAIN]
    members = simple[:1] or better[:1] or used
    conclusion = _conclude(contribution, any(name in twins for name in members))
    twinning = describe_contribution(contribution, conclusion, kind, "only" if twins else "no")
    reason = _reason(members, used, board, error, kind)
    return Recommendation(members, conclusion, reason, twinning)


def _is_ridge(label: str) -> bool:
    return label.partition(":")[0] == "ridge"


def _conclude(contribution: Numbers | None, with_twins: bool) -> str:
    if contribution is None:
        return UNKNOWN
    if not with_twins and contribution["ratio"] >= 1:
        return HURTS
    return HELPS if with_twins and contribution["upper"] < 1 else UNCLEAR


def _reason(
    members: list[str], used: list[str], board: pd.DataFrame, error: float, kind: str
) -> str:
    names = [describe_member(name) for name in members]
    if len(board) == 1:
        return f"Use {names[0]}, the only model that was fitted."
    if len(members) == 1 and members == used:
        return f"Use {names[0]}: it has all the weight in the blend of lowest {kind}."
    if len(members) == 1:
        reason = "is the simplest model" if _is_ridge(members[0]) else f"has the lowest {kind}"
        return f"Use {names[0]}: it {reason}, and no blend has an {kind} more than 1 % lower."
    gain, best = 1 - error / board["rmse"].iloc[0], board.index[0]
    error_is = f"is {format_percent(gain)} lower than" if gain > 0 else "is about"
    blend = f"Use a blend of {', '.join(names[:-1])} and {names[-1]}"
    return f"{blend}: its {kind} (RMSE) {error_is} that of the best single model, {best}."


def describe_member(label: str) -> str:
    """Return the description of a member in words.

    >>> describe_member("ridge_power:fast"), describe_member("svr")
    ('ridge regression of power-transformed columns', 'svr')
    """
    name = label.partition(":")[0]
    return DESCRIPTIONS.get(name, name)


def describe_contribution(
    contribution: Numbers | None, conclusion: str, kind: str = "error", fitted: str = "no"
) -> str:
    """Return what twins add to a blend; `fitted` are "no" or "only" twins, without a contribution.

    >>> describe_contribution({"ratio": 0.8, "lower": 0.7, "upper": 0.9}, HELPS)
    'Twinning helps: the error of the blend with twins is 0.80 (0.70 to 0.90) times that without.'
    """
    if contribution is None:
        return f"Whether twinning helps is unknown: {fitted} twins were fitted."
    ratio = Ratio(contribution["ratio"], contribution["lower"], contribution["upper"])
    if not all(value is not None and math.isfinite(value) for value in ratio):
        return "The blend without twins has no error."
    if ratio == (1, 1, 1):
        return "Twinning does not help: twins have no weight in the blend."
    effect = f"makes {conclusion}" if conclusion == UNCLEAR else conclusion
    return f"Twinning {effect}: the {kind} of the blend with twins is {ratio} times that without."


def python_code(model: AutoTwinRegressor, transform: TargetTransform, **arguments: object) -> str:
    """Return lines of Python that make the model and fit it to X, y and further arguments.

    Those that are not None are used: groups, y_lower, y_upper and y_std.
    """
    names, made = ["AutoTwinRegressor"], describe_estimator(model)
    names += ["ForwardFolds"] if isinstance(model.cv, ForwardFolds) else []
    if transform.is_log:
        names, made = [*names, "TransformedTargetTwin"], f"TransformedTargetTwin({made})"
    used = [f"{name}={name}" for name, value in arguments.items() if value is not None]
    return "\n".join(
        [
            f"from twinned import {', '.join(names)}",
            f"model = {made}",
            f"model.fit({', '.join(['X', 'y', *used])})",
        ]
    )


def describe_estimator(estimator: BaseEstimator) -> str:
    """Return an estimator on one line, with all settings that are not defaults.

    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> describe_estimator(KNeighborsRegressor(n_neighbors=3))
    'KNeighborsRegressor(n_neighbors=3)'
    """
    with config_context(print_changed_only=True):
        return " ".join(estimator.__repr__(N_CHAR_MAX=10**6).split())
