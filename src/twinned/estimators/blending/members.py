"""Members of `AutoTwinRegressor`: their names, efforts and estimators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.utils.validation import has_fit_parameter

from twinned.estimators.blending.model import FeaturePreparation, FittedMember
from twinned.estimators.regressors import GPRegressor, PowerRegressor
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import UnsuitableDataError
from twinned.models.base_estimator import check_base_estimator, set_unset_seeds
from twinned.models.learned_metric import MetricCache
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TrainingRows
from twinned.rows.validation import check_choice

EFFORTS = ["fast", "balanced", "thorough"]
SMALL = "small"  # a further effort, for short budgets
GP_TANIMOTO = "gp_tanimoto"  # the member that compares counts of fragments
EXTRA_TREES = "extra_trees"  # the member that has some of them as features
POWER = "_power"  # suffix of the names of members with power-transformed features or target
SCREENED_FEATURES = 40  # the most important ones of a wide table, which small members have
_LEAVES, _MANY_ROWS = 31, 1500  # of a tree of boosting, and from which on it always has so many
# Trees of molecules have the fragments that most evenly divide the rows, half of the features at
# each split, and leaves of several rows: errors on three sets of molecules are lower so.
_TREE_FRAGMENTS, _TREE_FEATURES, _TREE_LEAF = 100, 0.5, 3
_MAX_BOOSTING_CATEGORIES = 255  # of a categorical feature of HistGradientBoostingRegressor


@dataclass(frozen=True, eq=False)
class FitSettings:
    """What the fits of all members share, besides the rows."""

    seed: int = 0
    memory_limit: int | str | None = None
    n_jobs: int | None = None
    tree_effort: str = "balanced"  # of the tree twin, instead of "balanced"
    learn: MetricCache = field(default_factory=MetricCache)  # relevance of features of networks
    # features of members with selected ones, by the fold that does not select them
    important: dict[int, Indices] = field(default_factory=dict)
    # columns with counts of the fragments of molecules, which most members do not have
    fragments: Indices = field(default_factory=lambda: np.arange(0))
    verbose: bool = False  # whether a line is printed for each member

    def other_columns(self, n_features: int) -> Indices:
        """The columns of members that do not compare fragments; all where there are no others."""
        others = np.setdiff1d(np.arange(n_features), self.fragments)
        return others if len(others) else self.fragments

    def columns_of(self, spec: MemberSpec, matrix: Floats) -> Indices:
        """The columns of encoded training rows that a member has, those of counts first."""
        others = self.other_columns(matrix.shape[1])
        if spec.name == EXTRA_TREES:
            present = np.mean(matrix[:, self.fragments] > 0, axis=0)
            most_even = np.argsort(np.abs(present - 0.5), kind="stable")[:_TREE_FRAGMENTS]
            return np.union1d(self.fragments[most_even], others)
        if spec.name != GP_TANIMOTO:
            return others
        if not len(self.fragments):
            raise UnsuitableDataError(
                "X has no columns of counts with the names 'fragment 0', 'fragment 1', …; "
                "MoleculeFeatures makes them"
            )
        return np.concatenate([self.fragments, np.setdiff1d(others, self.fragments)])


class Sizes(NamedTuple):
    """Sizes that an effort sets."""

    trees: int
    boosting_iterations: int
    learning_rate: float
    few_leaves: int  # of a tree of boosting for few rows: the error is no larger, in less time
    gp_rows: int

    def leaves(self, n_rows: int) -> int:
        return self.few_leaves if n_rows < _MANY_ROWS else _LEAVES


SIZES = {
    SMALL: Sizes(100, 100, 0.2, 8, 1000),
    "fast": Sizes(200, 300, 0.1, 8, 1000),
    "balanced": Sizes(300, 300, 0.05, 8, 2000),
    "thorough": Sizes(1000, 600, 0.03, _LEAVES, 2000),
}


# (effort, rows, settings) → estimator; the seed of the settings is that of the member
MakeEstimator = Callable[[str, TrainingRows, FitSettings], BaseEstimator]


@dataclass(frozen=True)
class MemberSpec:
    """A member that is not fitted."""

    label: str  # its name and, where it differs from that of the blend, its effort: "ridge:fast"
    effort: str
    features: str  # kind of features, see `FeaturePreparation`
    make: MakeEstimator
    entry: Any  # of the list `members` that gives this member again
    one_fit: bool  # one fit gives all out-of-fold predictions
    screened: bool = False  # it has the most important features of a wide table only
    is_optional: bool = False  # it is not fitted where it is far behind others

    @property
    def name(self) -> str:
        return self.label.partition(":")[0]

    @property
    def is_built_in(self) -> bool:
        return isinstance(self.entry, str)

    @property
    def plain_name(self) -> str:
        """The name of a built-in member without power transformations."""
        return self.name.removesuffix(POWER) if self.is_built_in else self.name

    @property
    def has_threads(self) -> bool:
        """Whether its fit uses all threads of `n_jobs` by itself."""
        return self.name in ("neural", "neural_twin")

    def for_table(self, n_features: int) -> MemberSpec:
        """The member as it is fitted to a table; selected features need a fit for each fold."""
        is_wide = n_features > SCREENED_FEATURES and self.is_built_in
        screened = is_wide and self.effort == SMALL and MEMBERS[self.name].is_screened
        return replace(self, screened=screened, one_fit=self.one_fit and not screened)

    def for_bounds(self) -> MemberSpec:
        """The member as it is fitted to censored rows.

        Only networks have out-of-fold predictions by one fit: the imputed values of others differ
        between folds.
        """
        estimator = None if self.is_built_in else self.entry[1]
        return replace(self, one_fit=self.has_threads or supports_bounds(estimator))

    def efforts(self, n_features: int) -> list[MemberSpec]:
        """A built-in member with its own effort and with each smaller one, largest first."""
        if not self.is_built_in or self.plain_name == "ridge":  # which has one effort
            return [self]
        efforts = efforts_of(self.name)
        smaller = efforts[: efforts.index(self.effort)]
        return [self, *(self.with_effort(effort).for_table(n_features) for effort in smaller[::-1])]

    def with_effort(self, effort: str) -> MemberSpec:
        """The same member with another effort, which its label then has."""
        label = f"{self.name}:{effort}"
        return replace(self, label=label, effort=effort, entry=label)


@dataclass(frozen=True, eq=False)
class CrossFittedMember(FittedMember):
    """A fitted member with its out-of-fold predictions, and the seconds that it took."""

    spec: MemberSpec
    out_of_fold: Floats  # (row,): known rows, then censored ones; NaN where no fold holds out a row
    fit_seconds: float  # of all folds and of the final fit
    predict_seconds: float  # of as many rows as were fitted
    # (anchor,): predictions by all rows, of the function that was fitted with deviations of batches
    in_sample: Floats | None = None


# --- estimators ---------------------------------------------------------------------------------


def _network_parameters(
    effort: str, rows: TrainingRows, settings: FitSettings, batch_share: float = 1.0
) -> dict[str, Any]:
    """Parameters of networks with or without pairs."""
    from twinned.models.neural.parameters import EFFORTS as NEURAL_EFFORTS
    from twinned.models.neural.parameters import NeuralTraining

    sizes = NEURAL_EFFORTS[effort]
    training = NeuralTraining(
        n_folds=min(rows.n_folds, sizes.blend_folds),
        batch_size=int(batch_share * sizes.batch_size),
        fold_steps=sizes.blend_steps,
        fold_members=True,
    )
    return {
        "effort": effort,
        "n_members": sizes.blend_members,
        "training": training,
        "categorical_features": rows.schema.categorical or None,
        "memory_limit": settings.memory_limit,
        "n_jobs": settings.n_jobs,
        "random_state": settings.seed,
    }


def _neural(effort: str, rows: TrainingRows, settings: FitSettings) -> BaseEstimator:
    from twinned.estimators.neural import NeuralRegressor

    return NeuralRegressor(**_network_parameters(effort, rows, settings, batch_share=0.5))


def _neural_twin(effort: str, rows: TrainingRows, settings: FitSettings) -> BaseEstimator:
    from twinned.estimators.twin_neural import TwinNeuralRegressor

    return TwinNeuralRegressor(**_network_parameters(effort, rows, settings))


def _tree_twin(effort: str, rows: TrainingRows, settings: FitSettings) -> TwinRegressor:
    return TwinRegressor(
        cv=0,
        effort=settings.tree_effort if effort == "balanced" else effort,
        categorical_features=rows.schema.categorical or None,
        memory_limit=settings.memory_limit,
        random_state=settings.seed,
    )


def choose_tree_effort(rows: TrainingRows, settings: FitSettings) -> str:
    """The effort of the tree twin by the noise of the rows, for all folds."""
    known = rows.take(rows.known)
    features = FeaturePreparation.fit("encoded", known.schema, known.matrix)
    twin = _tree_twin("balanced", known, settings)
    return twin.choose_effort(features.transform(known.matrix), known.y, known.weight)


def _extra_trees(effort: str, rows: TrainingRows, settings: FitSettings) -> ExtraTreesRegressor:
    has_fragments = len(settings.fragments) > 0
    return ExtraTreesRegressor(
        SIZES[effort].trees,
        max_features=_TREE_FEATURES if has_fragments else 1.0,
        min_samples_leaf=_TREE_LEAF if has_fragments else 1,
        random_state=settings.seed,
    )


def _boosting(
    effort: str, rows: TrainingRows, settings: FitSettings
) -> HistGradientBoostingRegressor:
    schema, sizes = rows.schema, SIZES[effort]
    few = [j for j in schema.categorical if len(schema.categories[j]) <= _MAX_BOOSTING_CATEGORIES]
    return HistGradientBoostingRegressor(
        max_iter=sizes.boosting_iterations,
        learning_rate=sizes.learning_rate,
        max_leaf_nodes=sizes.leaves(len(rows)),
        min_samples_leaf=max(2, min(10, len(rows) // 8)),
        early_stopping=False,
        categorical_features=few or None,
        random_state=settings.seed,
    )


def _gaussian_process(kernel: str, *, with_counts: bool = False) -> MakeEstimator:
    return lambda effort, rows, settings: GPRegressor(
        kernel=kernel,
        n_counts=with_counts * len(settings.fragments),
        max_rows=SIZES[effort].gp_rows,
        random_state=settings.seed,
    )


def _ridge(effort: str, rows: TrainingRows, settings: FitSettings) -> RidgeCV:
    return RidgeCV(np.logspace(-3, 4, 15))


def _power(make_plain: MakeEstimator) -> MakeEstimator:
    return lambda effort, rows, settings: PowerRegressor(make_plain(effort, rows, settings))


class MemberKind(NamedTuple):
    """A built-in member."""

    features: str  # see `FeaturePreparation`
    make: MakeEstimator
    one_fit: bool = False  # one fit gives all out-of-fold predictions
    has_small: bool = True  # whether it has the effort "small"
    is_screened: bool = False  # whether that has few features of a wide table


MEMBERS: dict[str, MemberKind] = {
    "ridge": MemberKind("dense", _ridge, has_small=False),
    "gp_matern": MemberKind("dense", _gaussian_process("matern"), one_fit=True, is_screened=True),
    "gp_rbf": MemberKind("dense", _gaussian_process("rbf"), one_fit=True, is_screened=True),
    GP_TANIMOTO: MemberKind(
        "counts", _gaussian_process("matern", with_counts=True), one_fit=True, has_small=False
    ),
    EXTRA_TREES: MemberKind("dense", _extra_trees, is_screened=True),
    "boosting": MemberKind("encoded", _boosting, is_screened=True),
    "tree_twin": MemberKind("encoded", _tree_twin),
    "neural": MemberKind("complete", _neural, one_fit=True),
    "neural_twin": MemberKind("complete", _neural_twin, one_fit=True),
}
for _name in ("ridge", "gp_matern", "gp_rbf"):
    MEMBERS[_name + POWER] = MemberKind(
        "unscaled", _power(MEMBERS[_name].make), one_fit=True, has_small=False
    )
AUTO = tuple(name for name in MEMBERS if name != GP_TANIMOTO)
# Of molecules, whose values are often noisy: few members, whose weights depend less on the noise.
AUTO_OF_MOLECULES = (GP_TANIMOTO, EXTRA_TREES, "neural_twin")


def resolve_members(
    members: object, effort: str, *, has_fragments: bool = False
) -> list[MemberSpec]:
    """The members of the parameter `members`: "auto", or a list of names and (name, estimator)."""
    check_choice("effort", effort, EFFORTS)
    if is_auto := isinstance(members, str):
        check_choice("members", members, ["auto"], ", or a list of members")
        members = AUTO_OF_MOLECULES if has_fragments else AUTO
    if not isinstance(members, Iterable):
        raise TypeError(f"members must be 'auto' or a list, not {members!r}.")
    specs = [replace(_resolve(entry, effort), is_optional=is_auto) for entry in members]
    names = [spec.name for spec in specs]
    if not names:
        raise ValueError("members must have at least one member, but is empty.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"members has {twice!r} twice; give each member another name.")
    return specs


def efforts_of(name: str) -> list[str]:
    """The efforts of a built-in member, the smallest first."""
    return [SMALL, *EFFORTS] if MEMBERS[name].has_small else EFFORTS


def _resolve(entry, effort):
    if isinstance(entry, str):
        name, _, member_effort = entry.partition(":")
        effort = member_effort or effort
        check_choice("a member", name, list(MEMBERS), " or a tuple (name, estimator)")
        check_choice(f"the effort of {name}", effort, efforts_of(name))
        kind = MEMBERS[name]
        return MemberSpec(entry, effort, kind.features, kind.make, entry, kind.one_fit)
    if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], str):
        raise TypeError(f"a member must be a name or a tuple (name, estimator), not {entry!r}.")
    name, estimator = entry
    if name in MEMBERS or not name or ":" in name:
        raise ValueError(f"{name!r} is not a valid name: it is built-in, empty, or has a colon.")
    check_base_estimator(estimator)

    def make_given(effort: str, rows: TrainingRows, settings: FitSettings) -> BaseEstimator:
        return set_unset_seeds(clone(estimator), lambda: settings.seed)

    one_fit = hasattr(estimator, "fit_with_folds")
    return MemberSpec(name, effort, "dense", make_given, entry, one_fit)


def supports_bounds(estimator: BaseEstimator) -> bool:
    """Whether an estimator is a network, which is trained with the bounds themselves."""
    return hasattr(estimator, "fit_with_folds") and has_fit_parameter(estimator, "y_lower")
