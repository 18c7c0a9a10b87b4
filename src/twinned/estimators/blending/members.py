"""Members of `AutoTwinRegressor`: their estimators, fits and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.utils.validation import has_fit_parameter

from twinned.estimators.blending.preparation import FeaturePreparation
from twinned.estimators.gaussian_process import GPRegressor
from twinned.estimators.methods import BaseTwin
from twinned.estimators.power import PowerRegressor
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import UnsuitableDataError
from twinned.fitted.anchors import Queries
from twinned.models.base_estimator import check_base_estimator, set_unset_seeds
from twinned.models.learned_metric import MetricCache
from twinned.models.protocol import DifferenceModel
from twinned.models.wide_tables import important_features
from twinned.pairing.differences import difference
from twinned.rows.scaling import round_for_sums
from twinned.rows.schema import Floats, Indices, Rows, TableSchema
from twinned.rows.training import TrainingRows
from twinned.rows.validation import check_choice

EFFORTS = ["fast", "balanced", "thorough"]
SMALL = "small"  # a further effort, for short budgets
GP_TANIMOTO = "gp_tanimoto"  # the member that compares counts of fragments
EXTRA_TREES = "extra_trees"  # the member that has some of them as features
POWER = "_power"  # suffix of the names of members with power-transformed features or target
_SCREENED = ("gp_matern", "gp_rbf", EXTRA_TREES, "boosting")
_SMALL_MEMBERS = ("tree_twin", "neural", "neural_twin", *_SCREENED)
SCREENED_FEATURES = 40  # the most important ones of a wide table, which small members have
_LEAVES, _MANY_ROWS = 31, 1500  # of a tree of boosting, and from which on it always has so many
NETWORK_ANCHORS = 32  # of a neural twin
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

    @cached_property
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
        is_wide = n_features > SCREENED_FEATURES
        screened = is_wide and self.effort == SMALL and self.name in _SCREENED
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
class FittedMember:
    """A fitted estimator and the preparation of its features."""

    label: str
    estimator: BaseEstimator
    preparation: FeaturePreparation

    @property
    def is_twin(self) -> bool:
        return isinstance(self.estimator, BaseTwin)

    @property
    def difference_model(self) -> DifferenceModel | None:
        """The model of antisymmetric differences of a twin that uses all anchors equally."""
        if not self.is_twin or self.estimator.is_blend or not self.estimator.symmetric:
            return None
        fitted = self.estimator.fitted_
        return fitted.model if fitted.uses_all_anchors_equally else None

    def predict(self, matrix: Floats) -> Floats:
        """(row,): predictions of encoded rows."""
        predicted = self.estimator.predict(self.preparation.transform(matrix))
        return np.asarray(predicted, dtype=np.float64).reshape(len(matrix))

    def encode(self, matrix: Floats, schema: TableSchema | None = None) -> Queries:
        """Encoded rows (row, feature) as queries of a twin."""
        prepared = self.preparation.transform(matrix)
        return self.estimator.validate_queries(prepared, learn_categories=True, schema=schema)

    def differences(self, first: Floats, second: Floats) -> Floats:
        """(...,): F(first, second) of encoded rows (..., feature) whose leading axes broadcast."""
        model = self.difference_model
        sides: list[Any] = []
        schema = None if model is None else self.estimator.fitted_.anchors.schema
        for side in (first, second):
            matrix, shape = side.reshape(-1, side.shape[-1]), side.shape[:-1]
            if model is None:
                sides.append(self.predict(matrix).reshape(shape))
                continue
            queries = self.encode(matrix, schema)
            schema = queries.schema  # a new category has the same code on both sides
            sides.append(Rows(*(columns.reshape(*shape, -1) for columns in queries.encode())))
        if model is None:
            return difference(*sides)
        return self.estimator.fitted_.mean_of_members(model.differences(*sides))[..., 0]


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


def _networks(class_name: str, module: str, batch_share: float) -> MakeEstimator:
    def make(effort: str, rows: TrainingRows, settings: FitSettings) -> BaseEstimator:
        from twinned.models.neural.parameters import EFFORTS as NEURAL_EFFORTS
        from twinned.models.neural.parameters import NeuralTraining

        sizes = NEURAL_EFFORTS[effort]
        estimator = getattr(import_module(f"twinned.estimators.{module}"), class_name)
        return estimator(
            effort=effort,
            n_members=sizes.blend_members,
            training=NeuralTraining(
                n_folds=min(rows.n_folds, sizes.blend_folds),
                batch_size=int(batch_share * sizes.batch_size),
                fold_steps=sizes.blend_steps,
                fold_members=True,
            ),
            categorical_features=rows.schema.categorical or None,
            memory_limit=settings.memory_limit,
            n_jobs=settings.n_jobs,
            random_state=settings.seed,
        )

    return make


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


# name → (kind of features, estimator)
MEMBERS: dict[str, tuple[str, MakeEstimator]] = {
    "ridge": ("dense", _ridge),
    "gp_matern": ("dense", _gaussian_process("matern")),
    "gp_rbf": ("dense", _gaussian_process("rbf")),
    GP_TANIMOTO: ("counts", _gaussian_process("matern", with_counts=True)),
    EXTRA_TREES: ("dense", _extra_trees),
    "boosting": ("encoded", _boosting),
    "tree_twin": ("encoded", _tree_twin),
    "neural": ("complete", _networks("NeuralRegressor", "neural", 0.5)),
    "neural_twin": ("complete", _networks("TwinNeuralRegressor", "twin_neural", 1.0)),
}
for _name in ("ridge", "gp_matern", "gp_rbf"):
    MEMBERS[_name + POWER] = "unscaled", _power(MEMBERS[_name][1])
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
    return [SMALL, *EFFORTS] if name in _SMALL_MEMBERS else EFFORTS


def _resolve(entry, effort):
    if isinstance(entry, str):
        name, _, member_effort = entry.partition(":")
        effort = member_effort or effort
        check_choice("a member", name, list(MEMBERS), " or a tuple (name, estimator)")
        check_choice(f"the effort of {name}", effort, efforts_of(name))
        one_fit = name.startswith(("neural", "gp_")) or name.endswith(POWER)
        features, make = MEMBERS[name]
        return MemberSpec(entry, effort, features, make, entry, one_fit)
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


# --- fitting ------------------------------------------------------------------------------------


def fit_member(
    spec: MemberSpec,
    settings: FitSettings,
    rows: TrainingRows,
    fold: int = -1,
    imputed: Floats | None = None,
) -> FittedMember:
    """Fit a member to the training rows of a fold; to all rows where it is −1.

    Networks are fitted to the bounds of censored rows, and others to `imputed` values of the
    training rows. The anchors of a twin are known rows.
    """
    rows = rows.without(fold)
    columns, table = settings.columns_of(spec, rows.matrix), rows.matrix
    if has_some := not np.array_equal(columns, np.arange(table.shape[1])):
        rows = replace(rows, schema=rows.schema.take(columns), matrix=table[:, columns])
    used = None
    if spec.screened:
        if fold not in settings.important:
            settings.important[fold] = important_features(
                rows.matrix, rows.y, SCREENED_FEATURES, rows.weight
            )
        used = settings.important[fold]
    n_counts = len(settings.fragments) if spec.name == GP_TANIMOTO else 0
    preparation = FeaturePreparation.fit(spec.features, rows.schema, rows.matrix, used, n_counts)
    if has_some:
        preparation = replace(preparation, columns=columns.tolist())
    # the seed depends on the name, not on the other members
    seed = (settings.seed + crc32(spec.name.encode())) % 2**31
    estimator = spec.make(spec.effort, rows, replace(settings, seed=seed))
    features = preparation.transform(table)
    bounds = rows.bounds
    weight = rows.process_weight if spec.name.startswith("gp_") else rows.weight
    y = rows.y if imputed is None else imputed
    options: dict[str, object] = {"learn": settings.learn} if spec.has_threads else {}
    if spec.name in (EXTRA_TREES, "boosting"):
        y = round_for_sums(y)
    if bounds is not None and supports_bounds(estimator):
        y = np.where(bounds.censored, np.nan, bounds.lower)
        options |= {"y_lower": bounds.lower, "y_upper": bounds.upper}
        estimator.fit_with_folds(features, y, weight, rows.folds, **options)
    elif bounds is not None and isinstance(estimator, TwinRegressor):
        estimator.fit_pairs(features, y, weight, imputed=bounds.censored)
    elif bounds is None and spec.one_fit:
        estimator.fit_with_folds(features, y, weight, rows.folds, **options)
    elif weight is not None and has_fit_parameter(estimator, "sample_weight"):
        estimator.fit(features, y, sample_weight=weight)
    else:
        estimator.fit(features, y)
    if spec.name == "neural_twin":  # pairs with all anchors would take most of a prediction's time
        estimator.condense_anchors(NETWORK_ANCHORS)
    return FittedMember(spec.label, estimator, preparation)


def supports_bounds(estimator: BaseEstimator) -> bool:
    """Whether an estimator is a network, which is trained with the bounds themselves."""
    return hasattr(estimator, "fit_with_folds") and has_fit_parameter(estimator, "y_lower")
