"""Parameters of neural estimators: efforts, settings of members, and the options of a training."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twinned._compat import BaseEstimator
from twinned.models.resources import parse_memory_limit
from twinned.pairing.anchors import as_weight_strategy
from twinned.rows.validation import (
    check_bool,
    check_choice,
    check_integer,
    check_n_jobs,
    check_real,
)

_MAX_FREQUENCIES = 16  # per feature
_FEW_FREQUENCIES = 8  # in a blend: a step takes little more than half the time
_NARROW_FEATURES = 24  # padded; beyond, there is less work for each
_MAX_EMBEDDING = 96  # frequencies of all features together
# Whether features are scaled by their relevance; None differs between members.
_SCALINGS = {"auto": None, "standard": False, "relevance": True}


@dataclass(frozen=True)
class Effort:
    """The sizes that the parameter `effort` sets together."""

    n_members: int  # trained on all rows
    max_steps: int
    batch_size: int  # pairs per step, both orders of each
    n_folds: int
    fold_steps: int  # of the networks that hold out a fold
    n_settings: int
    n_checks: int  # number of times that the held-out rows are predicted
    # anchors for these predictions: few are enough, and each costs as much as a training pair
    check_anchors: int
    # Of a blend: settings, the better half of which is trained on all folds; networks that are
    # trained on all rows, beside those that hold out a fold; steps of all of them where errors are
    # mostly noise, and else `max_steps`; and the maximum number of folds.
    blend_settings: int
    blend_members: int
    blend_steps: int
    blend_folds: int
    # of the steps, where features are many: such networks need fewer to fit their rows
    wide_share: float = 1.0
    wide_fold_share: float = 1.0


EFFORTS = {
    "small": Effort(2, 500, 96, 2, 250, 2, 5, 32, 2, 1, 400, 5, 0.6, 0.6),
    "fast": Effort(3, 1000, 96, 2, 400, 3, 5, 32, 3, 1, 400, 5, 0.6, 0.6),
    "balanced": Effort(7, 3200, 96, 5, 800, 6, 5, 48, 6, 3, 600, 5),
    # the division of steps between folds and members: `benchmarks/results/neural_folds.md`
    "thorough": Effort(14, 6000, 192, 5, 4500, 8, 10, 96, 8, 8, 3000, 10),
}


@dataclass(frozen=True)
class Setting:
    """The hyperparameters of a member."""

    learning_rate: float
    dropout: float
    weight_decay: float
    frequency_scale: float  # of the periodic embedding; 0 without embedding
    relevance: bool = False  # whether each feature is divided by its learned length scale
    all_features: bool = False  # of a wide table; else the most relevant ones


# Smooth and noisy targets need different networks, and no single setting is best on all. These
# were ordered by forward selection among 22, on rows held out of the training rows of the paper's
# splits 0 and 1 and on eleven other data sets: the first n are a good set of n.
SETTINGS = (
    Setting(2e-2, 0.0, 0.0, 0.1, relevance=True),
    Setting(8e-3, 0.0, 0.0, 0.3),
    Setting(8e-3, 0.1, 0.1, 0.0, relevance=True),
    Setting(3e-3, 0.0, 0.1, 0.1, relevance=True),
    Setting(8e-3, 0.0, 0.0, 0.3, relevance=True),
    Setting(8e-3, 0.05, 0.03, 0.6),
    Setting(2e-2, 0.0, 0.0, 0.1),
    Setting(8e-3, 0.05, 0.03, 0.6, relevance=True),
)


@dataclass(eq=False, repr=False, kw_only=True)
class NeuralTraining(BaseEstimator):
    """Details of the training of `TwinNeuralRegressor` and `NeuralRegressor`.

    It is the parameter `training` of both, so that `training__learning_rate` and the others can be
    searched. What is None here is set by the parameter `effort` of the estimator, or differs
    between the members.

    Parameters
    ----------
    max_steps : int or None, default=None
        Number of training steps of each member. None is 1,000, 3,200 or 6,000, by `effort`; with
        `effort="fast"` and more than 24 encoded features, 600.
    batch_size : int or None, default=None
        Number of pairs per step, each in both orders; for plain networks, of rows. None is 96, 96
        or 192.
    n_folds : int or None, default=None
        Number of folds of the rows. For each setting and fold, a network that holds out the fold
        is trained; by the out-of-fold predictions the settings of the members are selected. With
        1, the members themselves hold out the same `validation_fraction`. None is 2, 5 or 5; at
        most `n_members`.
    fold_steps : int or None, default=None
        Number of training steps of the networks that hold out a fold. As many as `max_steps` make
        `out_of_fold_prediction_` as accurate as the members; fewer are enough to select settings.
        None is 400, 800 or 4,500; at most `max_steps`.
    fold_members : bool, default=False
        Whether the networks that hold out a fold are members, too, as in a blend. The better half
        of the settings is then trained on all folds. Where errors are mostly noise, it is chosen
        after a fifth of `fold_steps`, which the networks and the members take, and the former have
        half of the weight; else after all of `max_steps` on the first fold, and they have a fifth.
    activation : {"silu", "relu", "tanh"}, default="silu"
        The activation function of the hidden layers.
    embedding : "auto", float or None, default="auto"
        Scale of the random frequencies of the periodic embedding sin(2πfx), cos(2πfx) of the
        features; `"auto"` differs between members, None is no embedding. Each feature has 16
        frequencies, or 8 with `fold_members`, for up to 24 encoded features; for more, 96 divided
        by their number, and so none for more than 96.
    max_features : int or None, default=240
        Maximum number of features that the networks use. Of a table of more than 60, constant
        features and copies of others are dropped, and the least relevant ones beyond this number,
        by the importances of a small forest of extremely randomized trees on the training rows.
        Settings are then tried with the 60 most relevant features, and with all that remain. None
        uses all features, without any selection.
    learning_rate : float or None, default=None
        Initial learning rate of all members; None differs between members.
    dropout : float or None, default=None
        Dropout rate of all members; None differs between members.
    weight_decay : float or None, default=None
        Weight decay of all members; None differs between members.
    scaling : {"auto", "standard", "relevance"}, default="auto"
        `"standard"` scales X and y to mean 0 and standard deviation 1; `"relevance"` then divides
        each feature by its length scale in a Gaussian process; `"auto"` differs between members.
    selection : {"greedy", "mean"}, default="greedy"
        Weights of the settings: by greedy selection on their out-of-fold predictions, or equal.
    validation_fraction : float, default=0.1
        Share of the rows to hold out where `n_folds` is 1 and `fit` gets no validation set; by
        their error training stops early.

    Examples
    --------
    >>> from twinned import NeuralTraining, TwinNeuralRegressor
    >>> twin = TwinNeuralRegressor(training=NeuralTraining(max_steps=500))
    >>> twin.set_params(training__learning_rate=1e-3).training
    NeuralTraining(learning_rate=0.001, max_steps=500)
    """

    max_steps: int | None = None
    batch_size: int | None = None
    n_folds: int | None = None
    fold_steps: int | None = None
    fold_members: bool = False
    activation: str = "silu"
    embedding: str | float | None = "auto"
    max_features: int | None = 240
    learning_rate: float | None = None
    dropout: float | None = None
    weight_decay: float | None = None
    scaling: str = "auto"
    selection: str = "greedy"
    validation_fraction: float = 0.1


@dataclass(frozen=True)
class NetworkOptions:
    """The checked parameters of an estimator; problems with equal options can be trained at once.

    `n_jobs` and `verbose` are those of the estimator, as are others of the same name.
    """

    twin: bool
    hidden_sizes: tuple[int, ...]
    effort: Effort
    settings: tuple[Setting, ...]  # to select from
    fold_members: bool
    activation: str
    max_features: int | None
    selection: str
    validation_fraction: float
    loop_weight: float  # 0 of plain networks
    device: str
    n_jobs: int | None
    verbose: int

    @property
    def uses_relevance(self) -> bool:
        """Whether any setting scales features by their relevance."""
        return any(setting.relevance for setting in self.settings)

    def steps(self, n_features: int) -> tuple[int, int]:
        """(steps of the networks that hold out a fold, of the members); `n_features` is padded.

        Fewer where there are many features, unless they are given.
        """
        effort, fold_share, share = self.effort, 1.0, 1.0
        if n_features > _NARROW_FEATURES:
            fold_share, share = effort.wide_fold_share, effort.wide_share
        return round(fold_share * effort.fold_steps), round(share * effort.max_steps)

    def frequencies_per_feature(self, n_features: int) -> int:
        """Return the number of frequencies: fewer or none where there are many features.

        `n_features` is padded. The first layer has two inputs for each frequency of each feature,
        and takes most of the time of a step where the table is wide.
        """
        most = _FEW_FREQUENCIES if self.fold_members else _MAX_FREQUENCIES
        return most if n_features <= _NARROW_FEATURES else _MAX_EMBEDDING // n_features


def resolve_options(estimator: Any) -> NetworkOptions:
    """Return the `NetworkOptions` of an estimator, with the values that None stands for.

    An error names the parameter whose value is not allowed.
    """
    training = NeuralTraining() if estimator.training is None else estimator.training
    if not isinstance(training, NeuralTraining):
        raise TypeError(f"training must be a NeuralTraining or None, not {training!r}.")
    check_choice("selection", training.selection, ["greedy", "mean"])
    check_choice("activation", training.activation, ["relu", "silu", "tanh"])
    check_choice("device", estimator.device, ["auto", "cpu", "gpu"])
    check_n_jobs(estimator.n_jobs)
    parse_memory_limit(estimator.memory_limit)
    loop_weight = 0.0
    if estimator.is_twin:
        as_weight_strategy(estimator.weights)
        loop_weight = _check_number("loop_weight", estimator.loop_weight)
    effort = _resolve_effort(estimator, training)
    most = training.max_features
    return NetworkOptions(
        twin=estimator.is_twin,
        hidden_sizes=_check_hidden_sizes(estimator.hidden_sizes),
        effort=effort,
        settings=_resolve_settings(training, effort.n_settings),
        fold_members=check_bool("fold_members", training.fold_members),
        activation=training.activation,
        max_features=None if most is None else check_integer("max_features", most),
        selection=training.selection,
        validation_fraction=_check_number("validation_fraction", training.validation_fraction, 1),
        loop_weight=loop_weight,
        device=estimator.device,
        n_jobs=estimator.n_jobs,
        verbose=estimator.verbose,
    )


def _resolve_effort(estimator, training):
    """Return the sizes that `effort` sets, replaced by those that are given."""
    check_choice("effort", estimator.effort, list(EFFORTS))
    sizes = {"n_members": estimator.n_members, **training.get_params()}
    names = ("n_members", "max_steps", "batch_size", "n_folds", "fold_steps")
    given_sizes = {
        name: check_integer(name, sizes[name]) for name in names if sizes[name] is not None
    }
    effort = replace(EFFORTS[estimator.effort], **given_sizes)
    n_settings = min(effort.n_settings, effort.n_members)
    if training.fold_members:
        n_settings = effort.blend_settings
    return replace(
        effort,
        n_folds=given_sizes.get("n_folds", min(effort.n_folds, effort.n_members)),
        fold_steps=given_sizes.get("fold_steps", min(effort.fold_steps, effort.max_steps)),
        n_settings=n_settings,
        wide_share=1.0 if "max_steps" in given_sizes else effort.wide_share,
        wide_fold_share=1.0 if "fold_steps" in given_sizes else effort.wide_fold_share,
    )


def _resolve_settings(training, n_settings):
    """Return the settings to select from; parameters that are given replace those of all."""
    check_choice("scaling", training.scaling, list(_SCALINGS))
    values = training.get_params()
    limits = {"learning_rate": np.inf, "dropout": 1, "weight_decay": np.inf}
    values_of_all = {
        name: _check_number(name, values[name], below)
        for name, below in limits.items()
        if values[name] is not None
    }
    if values_of_all.get("learning_rate") == 0:
        raise ValueError(f"learning_rate must be positive, not {training.learning_rate!r}.")
    if isinstance(embedding := training.embedding, str):
        check_choice("embedding", embedding, ["auto"], ", a number or None")
    else:
        scale = 0.0 if embedding is None else embedding
        values_of_all["frequency_scale"] = _check_number("embedding", scale)
    if (relevance := _SCALINGS[training.scaling]) is not None:
        values_of_all["relevance"] = relevance
    return tuple(replace(setting, **values_of_all) for setting in SETTINGS[:n_settings])


def settings_of_wide_table(settings: Iterable[Setting]) -> list[Setting]:
    """Return settings of a wide table: with its most relevant features, and with all of them.

    Where many features have a small effect, all are needed; where most have none, networks of few
    features are much better. Settings that scale features by relevance use all; those with dropout,
    which is best on most tables, are tried with few features, too.
    """
    few = [setting for setting in settings if setting.relevance and setting.dropout > 0]
    return [replace(setting, all_features=setting.relevance) for setting in settings] + few


def _check_number(name, value, below=np.inf):
    """Validate a number that is not negative, and below a limit."""
    number = check_real(name, value)
    if not 0 <= number < below:
        raise ValueError(f"{name} must be in [0, {below}), not {value!r}.")
    return number


def _check_hidden_sizes(hidden_sizes):
    """Return the widths of one or more hidden layers."""
    try:
        sizes = tuple(check_integer("hidden_sizes", size) for size in hidden_sizes)
    except TypeError:
        raise TypeError(f"hidden_sizes must be like (128, 128), not {hidden_sizes!r}.") from None
    if not sizes:
        raise ValueError("hidden_sizes must have at least one layer, not ().")
    return sizes
