"""Parameters of the neural estimators: checked, and with the values that `None` stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned.models.neural.ensemble import (
    EFFORTS,
    SETTINGS,
    Effort,
    Setting,
    settings_of_wide_table,
)
from twinned.models.neural.network import ACTIVATIONS
from twinned.models.neural.published import RECIPES
from twinned.models.resources import parse_memory_limit
from twinned.pairing.weights import as_weight_strategy
from twinned.rows.validation import (
    check_choice,
    check_integer,
    check_n_jobs,
    check_real,
)

# Whether features are scaled by their relevance; None differs between members.
_SCALINGS = {"auto": None, "standard": False, "relevance": True, "signed_max": False}
_MAX_FREQUENCIES = 16  # per feature
_NARROW_FEATURES = 24  # padded; beyond, there is less work for each (`benchmarks/wide.py`)
_MAX_EMBEDDING = 96  # frequencies of all features together

MAX_RELEVANT_FEATURES = 60
"""Number of features of a wide table that the settings without `all_features` use."""


def check_parameters(estimator: Any, twin: bool) -> None:
    """Raise an error that names the parameter where a value is not allowed."""
    check_choice("recipe", estimator.recipe, list(RECIPES))
    check_choice("scaling", estimator.scaling, list(_SCALINGS))
    check_choice("selection", estimator.selection, ["greedy", "mean"])
    check_choice("activation", estimator.activation, list(ACTIVATIONS))
    check_choice("optimizer", estimator.optimizer, ["adamw", "adadelta"])
    check_choice("device", estimator.device, ["auto", "cpu", "gpu"])
    if estimator.n_frequencies is not None:
        check_integer("n_frequencies", estimator.n_frequencies, 0)
    if estimator.max_features is not None:
        check_integer("max_features", estimator.max_features)
    check_hidden_sizes(estimator.hidden_sizes)
    check_n_jobs(estimator.n_jobs)
    parse_memory_limit(estimator.memory_limit)
    fraction = check_real("validation_fraction", estimator.validation_fraction)
    if not 0 <= fraction < 1:
        raise ValueError(f"validation_fraction must be in [0, 1), not {fraction!r}.")
    resolve_effort(estimator)
    member_settings(estimator)
    loop_weight(estimator, twin)
    if twin:
        as_weight_strategy(estimator.weights)


def resolve_effort(estimator: Any) -> Effort:
    """Return the sizes that `effort` sets, replaced by those that are given."""
    check_choice("effort", estimator.effort, list(EFFORTS))
    effort = EFFORTS[estimator.effort]
    given = {
        name: check_integer(name, getattr(estimator, name))
        for name in ("n_members", "max_steps", "batch_size", "n_folds", "fold_steps")
        if getattr(estimator, name) is not None
    }
    effort = effort._replace(**given)
    if estimator.n_folds is None:
        effort = effort._replace(n_folds=min(effort.n_folds, effort.n_members))
    if estimator.fold_steps is None:
        effort = effort._replace(fold_steps=min(effort.fold_steps, effort.max_steps))
    return effort._replace(n_settings=min(effort.n_settings, effort.n_members))


def training_steps(estimator: Any, n_features: int) -> tuple[int, int]:
    """(steps of the networks that hold out a fold, of the members); `n_features` is padded.

    Fewer where there are many features, unless they are given.
    """
    effort = resolve_effort(estimator)
    share = 1.0 if n_features <= _NARROW_FEATURES else effort.wide_share
    max_steps, fold_steps = effort.max_steps, effort.fold_steps
    if estimator.max_steps is None:
        max_steps = round(share * max_steps)
    if estimator.fold_steps is None:
        fold_steps = min(round(share * fold_steps), max_steps)
    return fold_steps, max_steps


def refits_members(estimator: Any, n_folds: int) -> bool:
    """Whether members are trained on all rows, not the networks that hold out a fold."""
    return estimator.recipe == "modern" and n_folds > 1


def member_settings(estimator: Any, is_wide: bool = False) -> list[Setting]:
    """Return the settings to select from; parameters that are given replace those of all."""
    given: dict[str, Any] = {
        name: check_real(name, getattr(estimator, name))
        for name in ("learning_rate", "dropout", "weight_decay")
        if getattr(estimator, name) is not None
    }
    if isinstance(estimator.embedding, str):
        check_choice("embedding", estimator.embedding, ["auto"], ", a number or None")
    else:
        none = estimator.embedding is None
        given["frequency_scale"] = 0.0 if none else check_real("embedding", estimator.embedding)
    if (relevance := _SCALINGS[estimator.scaling]) is not None:
        given["relevance"] = relevance
    n_settings = resolve_effort(estimator).n_settings
    settings = [setting._replace(**given) for setting in SETTINGS[:n_settings]]
    for setting in settings:
        if not (setting.learning_rate > 0 and 0 <= setting.dropout < 1):
            raise ValueError(
                f"learning_rate must be positive and dropout in [0, 1), not {setting[:2]}."
            )
        if not (setting.weight_decay >= 0 and setting.frequency_scale >= 0):
            raise ValueError(
                f"weight_decay and embedding must not be negative, but are {setting[2:4]}."
            )
    return settings_of_wide_table(settings) if is_wide else settings


def resolve_n_frequencies(estimator: Any, n_features: int) -> int:
    """Return the number of frequencies per feature: fewer or none where there are many features.

    `n_features` is padded. The first layer has two inputs for each frequency of each feature, and
    takes most of the time of a step where the table is wide.
    """
    if estimator.n_frequencies is not None:
        return int(estimator.n_frequencies)
    if n_features <= _NARROW_FEATURES:
        return _MAX_FREQUENCIES
    return _MAX_EMBEDDING // n_features


def loop_weight(estimator: Any, twin: bool) -> float:
    """Return the weight of the loop loss; plain networks have none."""
    if not twin:
        return 0.0
    weight = check_real("loop_weight", estimator.loop_weight)
    if not 0 <= weight < np.inf:
        raise ValueError(f"loop_weight must not be negative, but is {estimator.loop_weight!r}.")
    return weight


def check_hidden_sizes(hidden_sizes: Any) -> tuple[int, ...]:
    """Return the widths of one or more hidden layers."""
    try:
        sizes = tuple(check_integer("hidden_sizes", size) for size in hidden_sizes)
    except TypeError:
        raise TypeError(
            f"hidden_sizes must be widths such as (128, 128), not {hidden_sizes!r}."
        ) from None
    if not sizes:
        raise ValueError("hidden_sizes must have at least one layer, not ().")
    return sizes
