"""Members of `AutoTwinRegressor`: their features, estimators, fits and predictions.

Features are made from one encoded table, of the kind that a member can take. `"encoded"` are those
of the table with codes of categories and missing values as NaN. `"complete"` has no missing values:
numeric ones are replaced by the median and marked by indicator columns, and missing categories are
a category of their own. `"dense"` has one indicator for each category instead of codes, too, and
all columns are standardized; `"unscaled"` is the same without the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.utils.validation import has_fit_parameter

from twinned.estimators.base import BaseTwin
from twinned.estimators.gaussian_process import GPRegressor
from twinned.estimators.power import PowerRegressor
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import MissingExtraError
from twinned.fitted.twin import Queries
from twinned.models.base_estimator import (
    DEFAULT_PAIRS,
    check_base_estimator,
    default_estimator,
    set_unset_seeds,
)
from twinned.models.protocol import DifferenceModel
from twinned.models.wide_tables import important_features
from twinned.pairing.differences import difference
from twinned.pairing.pairs import HalfPairs
from twinned.rows.schema import Floats, Indices, Rows, TableSchema, known_medians
from twinned.rows.training import TrainingRows
from twinned.rows.validation import check_choice

EFFORTS = ["fast", "balanced", "thorough"]
SMALL = "small"  # a further effort, for short budgets
POWER = "_power"  # suffix of the names of members with power-transformed features or target
_SCREENED = ("gp_matern", "gp_rbf", "extra_trees", "boosting")
_SMALL_MEMBERS = ("tree_twin", "neural", "neural_twin", *_SCREENED)
SCREENED_FEATURES = 40  # the most important ones of a wide table, which small members have
_LEAVES, _MANY_ROWS = 31, 1500  # of a tree of boosting, and from which on it always has so many
_MAX_BOOSTING_CATEGORIES = 255  # of a categorical feature of HistGradientBoostingRegressor


@dataclass(frozen=True, eq=False)
class FeaturePreparation:
    """Imputation, indicators and scaling, fitted to the training rows of a member."""

    kind: str
    n_features: int
    categorical: list[int]  # columns of codes in the encoded table
    n_categories: list[int]  # of each of them; a missing value has this code, a new one the next
    empty: list[int]  # numeric features without any known value, or that are not used
    medians: Floats  # (feature,): of the numeric features
    marked: list[int]  # numeric features with an indicator of missing values
    center: Floats  # (column,) of the dense features
    spread: Floats

    @classmethod
    def fit(cls, kind: str, schema: TableSchema, rows: Floats, used: Indices | None = None) -> Self:
        """Fit to encoded training rows (n, n_features); only `used` features count, if given."""
        missing = np.isnan(rows)
        known: NDArray[np.bool_] = np.asarray(~missing.all(axis=0))
        if used is not None:
            known &= np.isin(np.arange(rows.shape[1]), used)
        is_dense = kind in ("dense", "unscaled")
        prepared = cls(
            kind="dense" if is_dense else kind,
            n_features=rows.shape[1],
            categorical=schema.categorical,
            n_categories=[schema.n_indicators[j] for j in schema.categorical],
            empty=[j for j in schema.numeric if not known[j]],
            medians=known_medians(rows),
            marked=[j for j in schema.numeric if missing[:, j].any() and known[j]],
            center=np.zeros(int(is_dense)),
            spread=np.ones(int(is_dense)),
        )
        if not is_dense:
            return prepared
        dense = prepared.transform(rows)
        center, spread = dense.mean(axis=0), dense.std(axis=0)
        constant = spread <= 1e-12 * np.abs(center)
        if kind == "unscaled":
            center, constant = np.zeros_like(center), np.ones_like(constant)
        return replace(prepared, center=center, spread=np.where(constant, 1.0, spread))

    @property
    def categorical_columns(self) -> list[int] | None:
        """The columns of codes after `transform`; None where there are none."""
        return None if self.kind == "dense" or not self.categorical else self.categorical

    @property
    def n_columns(self) -> int:
        """The number of columns after `transform`."""
        marked = len(self.marked) if self.kind == "complete" else 0
        return len(self.center) if self.kind == "dense" else self.n_features + marked

    def transform(self, matrix: Floats) -> Floats:
        """(n, n_features) encoded rows → (n, column) features of the member."""
        missing, filled = np.isnan(matrix), matrix
        if self.empty:  # zeros in the features that had no known value or are not used
            filled = matrix.copy()
            filled[:, self.empty] = 0.0
        if self.kind == "encoded":
            return filled
        fill = self.medians.copy()
        fill[self.categorical] = self.n_categories
        filled = np.where(missing, fill, filled)
        categories = list(zip(self.categorical, self.n_categories, strict=True))
        for j, n in categories:
            filled[~missing[:, j] & (filled[:, j] >= n), j] = n + 1
        complete = np.column_stack([filled, missing[:, self.marked].astype(float)])
        if self.kind == "complete":
            return complete
        indicators = [(complete[:, [j]] == np.arange(n + 1)).astype(float) for j, n in categories]
        dense = np.column_stack([np.delete(complete, self.categorical, axis=1), *indicators])
        return (dense - self.center) / self.spread


class MemberSettings(NamedTuple):
    """What the estimator of a member depends on."""

    effort: str
    seed: int
    n_folds: int
    memory_limit: int | str | None
    n_jobs: int | None  # of members that have threads of their own
    schema: TableSchema
    preparation: FeaturePreparation
    n_rows: int


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
    "balanced": Sizes(500, 300, 0.05, _LEAVES, 2000),
    "thorough": Sizes(1000, 600, 0.03, _LEAVES, 2000),
}


class TwinSizes(NamedTuple):
    """Iterations and pairs of a tree twin that is smaller than `TwinRegressor()`."""

    iterations: int
    pairs: int
    max_features: float  # of the table; with more, the tree twin is `TwinRegressor()`


TWIN_SIZES = {SMALL: TwinSizes(100, 10_000, np.inf), "fast": TwinSizes(250, 40_000, 20)}

MakeEstimator = Callable[[MemberSettings], Any]


class MemberSpec(NamedTuple):
    """A member that is not fitted."""

    label: str  # its name and, where it differs from that of the blend, its effort: "ridge:fast"
    effort: str
    inputs: str  # kind of features, see `FeaturePreparation`
    make: MakeEstimator
    entry: Any  # of the list `members` that gives this member again
    one_fit: bool  # one fit gives all out-of-fold predictions
    screened: bool = False  # it has the most important features of a wide table only

    @property
    def name(self) -> str:
        return self.label.partition(":")[0]

    @property
    def plain(self) -> MemberSpec:
        """A built-in member without power transformations; other members are plain themselves."""
        is_built_in = isinstance(self.entry, str)
        return self._replace(label=self.name.removesuffix(POWER)) if is_built_in else self

    @property
    def has_threads(self) -> bool:
        """Whether its fit uses all threads of `n_jobs` by itself."""
        return self.name in ("neural", "neural_twin")

    def for_table(self, n_features: int) -> MemberSpec:
        """The member as it is fitted to a table; selected features need a fit for each fold."""
        is_wide = n_features > SCREENED_FEATURES
        screened = is_wide and self.effort == SMALL and self.name in _SCREENED
        return self._replace(screened=screened, one_fit=self.one_fit and not screened)

    def for_bounds(self) -> MemberSpec:
        """The member as it is fitted to censored rows.

        Only networks have out-of-fold predictions by one fit: the imputed values of others differ
        between folds.
        """
        given = self.entry[1] if isinstance(self.entry, tuple) else None
        return self._replace(one_fit=self.has_threads or supports_bounds(given))

    def with_effort(self, effort: str) -> MemberSpec:
        """The same member with another effort, which its label then has."""
        label = f"{self.name}:{effort}"
        return self._replace(label=label, effort=effort, entry=label)


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A fitted estimator and the preparation of its features."""

    label: str
    estimator: Any
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
        return self.estimator.encode(self.preparation.transform(matrix), schema)

    def differences(self, first: Floats, second: Floats) -> Floats:
        """(...,): F(first, second) of encoded rows (..., feature) whose leading axes broadcast."""
        sides = [(side.reshape(-1, side.shape[-1]), side.shape[:-1]) for side in (first, second)]
        model = self.difference_model
        if model is None:
            return difference(*(self.predict(matrix).reshape(shape) for matrix, shape in sides))
        fitted, rows = self.estimator.fitted_, []
        schema = fitted.anchors.schema
        for matrix, shape in sides:
            queries = self.encode(matrix, schema)
            schema = queries.schema  # a new category has the same code on both sides
            rows.append(Rows(*(part.reshape(*shape, -1) for part in queries.encode())))
        return fitted.mean_of_members(model.differences(*rows))[..., 0]


# --- estimators ---------------------------------------------------------------------------------


def _networks(class_name: str, module: str) -> MakeEstimator:
    def make(settings: MemberSettings) -> Any:
        from twinned.models.neural.parameters import EFFORTS as NEURAL_EFFORTS
        from twinned.models.neural.parameters import NeuralTraining

        sizes = NEURAL_EFFORTS[settings.effort]
        fold_steps = int(sizes.blend_fold_share * sizes.max_steps)
        estimator = getattr(import_module(f"twinned.estimators.{module}"), class_name)
        return estimator(
            effort=settings.effort,
            n_members=sizes.blend_members,
            training=NeuralTraining(
                n_folds=settings.n_folds,
                fold_steps=fold_steps,
                refit_folds=settings.n_folds <= sizes.blend_refit_folds,
            ),
            categorical_features=settings.preparation.categorical_columns,
            memory_limit=settings.memory_limit,
            n_jobs=settings.n_jobs,
            random_state=settings.seed,
        )

    return make


def _tree_twin(settings: MemberSettings) -> TwinRegressor:
    twin = TwinRegressor(
        cv=0,
        categorical_features=settings.preparation.categorical_columns,
        memory_limit=settings.memory_limit,
        random_state=settings.seed,
    )
    n_rows, sizes = settings.n_rows, TWIN_SIZES.get(settings.effort)
    if sizes is None or settings.schema.n_features > sizes.max_features:
        return twin
    base = default_estimator(n_rows, 1)
    # as many leaves as with all pairs of the default
    share = min(1.0, sizes.pairs / min(max(1, n_rows * (n_rows - 1) // 2), DEFAULT_PAIRS))
    leaf = max(1, int(base.min_samples_leaf * share))
    base.set_params(max_iter=sizes.iterations, min_samples_leaf=leaf)
    return twin.set_params(estimator=base, pairs=HalfPairs(sizes.pairs))


def _extra_trees(settings: MemberSettings) -> ExtraTreesRegressor:
    return ExtraTreesRegressor(SIZES[settings.effort].trees, random_state=settings.seed)


def _boosting(settings: MemberSettings) -> HistGradientBoostingRegressor:
    schema, sizes = settings.schema, SIZES[settings.effort]
    few = [j for j in schema.categorical if len(schema.categories[j]) <= _MAX_BOOSTING_CATEGORIES]
    return HistGradientBoostingRegressor(
        max_iter=sizes.boosting_iterations,
        learning_rate=sizes.learning_rate,
        max_leaf_nodes=sizes.leaves(settings.n_rows),
        min_samples_leaf=max(2, min(10, settings.n_rows // 8)),
        early_stopping=False,
        categorical_features=few or None,
        random_state=settings.seed,
    )


def _gaussian_process(kernel: str) -> MakeEstimator:
    return lambda settings: GPRegressor(
        kernel=kernel, max_rows=SIZES[settings.effort].gp_rows, random_state=settings.seed
    )


def _power(make_plain: MakeEstimator) -> MakeEstimator:
    return lambda settings: PowerRegressor(make_plain(settings))


def _optional(module: str, class_name: str, **parameters: Any) -> MakeEstimator:
    """A regressor of a library that is not a core dependency."""

    def make(settings: MemberSettings) -> Any:
        try:
            library = import_module(module)
        except ImportError as error:
            raise MissingExtraError(
                f"The member {module!r} needs the library {module}: pip install {module}."
            ) from error
        return getattr(library, class_name)(random_state=settings.seed, **parameters)

    return make


_CATBOOST = {"verbose": False, "allow_writing_files": False, "thread_count": 1}
# name → (kind of features, estimator)
MEMBERS: dict[str, tuple[str, MakeEstimator]] = {
    "ridge": ("dense", lambda settings: RidgeCV(np.logspace(-3, 4, 15))),
    "gp_matern": ("dense", _gaussian_process("matern")),
    "gp_rbf": ("dense", _gaussian_process("rbf")),
    "extra_trees": ("dense", _extra_trees),
    "boosting": ("encoded", _boosting),
    "tree_twin": ("encoded", _tree_twin),
    "neural": ("complete", _networks("NeuralRegressor", "neural")),
    "neural_twin": ("complete", _networks("TwinNeuralRegressor", "twin_neural")),
    "catboost": ("dense", _optional("catboost", "CatBoostRegressor", **_CATBOOST)),
    "lightgbm": ("dense", _optional("lightgbm", "LGBMRegressor", verbosity=-1, n_jobs=1)),
}
for _name in ("ridge", "gp_matern", "gp_rbf"):
    MEMBERS[_name + POWER] = "unscaled", _power(MEMBERS[_name][1])
AUTO = tuple(name for name in MEMBERS if name not in ("catboost", "lightgbm"))


def resolve_members(members: Any, effort: str) -> list[MemberSpec]:
    """The members of the parameter `members`: "auto", or a list of names and (name, estimator)."""
    check_choice("effort", effort, EFFORTS)
    if isinstance(members, str):
        check_choice("members", members, ["auto"], ", or a list of members")
        members = AUTO
    if not isinstance(members, Iterable):
        raise TypeError(f"members must be 'auto' or a list, not {members!r}.")
    specs = [_resolve(entry, effort) for entry in members]
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


def _resolve(entry: Any, effort: str) -> MemberSpec:
    if isinstance(entry, str):
        name, _, member_effort = entry.partition(":")
        effort = member_effort or effort
        check_choice("a member", name, list(MEMBERS), " or a tuple (name, estimator)")
        check_choice(f"the effort of {name}", effort, efforts_of(name))
        one_fit = name.startswith(("neural", "gp_")) or name.endswith(POWER)
        return MemberSpec(entry, effort, *MEMBERS[name], entry, one_fit)
    if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], str):
        raise TypeError(f"a member must be a name or a tuple (name, estimator), not {entry!r}.")
    name, estimator = entry
    if name in MEMBERS or not name or ":" in name:
        raise ValueError(f"{name!r} is not a valid name: it is built-in, empty, or has a colon.")
    check_base_estimator(estimator)

    def make(settings: MemberSettings) -> Any:
        return set_unset_seeds(clone(estimator), lambda: settings.seed)

    one_fit = hasattr(estimator, "fit_with_folds")
    return MemberSpec(name, effort, "dense", make, entry, one_fit)


# --- fitting ------------------------------------------------------------------------------------


class FitContext(NamedTuple):
    """What the fits of all members share, besides the rows."""

    seed: int
    memory_limit: int | str | None
    n_jobs: int | None
    important: dict[int, Indices]  # features for screened members, by a hash of the rows


def fit_member(
    spec: MemberSpec,
    context: FitContext,
    rows: TrainingRows,
    n_folds: int,
    imputed: Floats | None = None,
) -> FittedMember:
    """Fit a member to rows; `imputed` are their values, where some are censored.

    Networks are fitted to the bounds of censored rows, and others to imputed values. The anchors of
    a twin are known rows.
    """
    used, key = None, hash(rows.matrix.tobytes()) if spec.screened else 0
    if spec.screened and (used := context.important.get(key)) is None:
        used = important_features(rows.matrix, rows.y, SCREENED_FEATURES, rows.weight)
        context.important[key] = used
    preparation = FeaturePreparation.fit(spec.inputs, rows.schema, rows.matrix, used)
    # the seed depends on the name, not on the other members
    seed = (context.seed + crc32(spec.name.encode())) % 2**31
    shared = n_folds, context.memory_limit, context.n_jobs, rows.schema, preparation, len(rows)
    estimator = spec.make(MemberSettings(spec.effort, seed, *shared))
    features = preparation.transform(rows.matrix)
    weight, bounds = rows.weight, rows.bounds
    if spec.name.startswith("gp_"):
        weight = rows.process_weight
    y = rows.y if imputed is None else imputed
    if bounds is not None and supports_bounds(estimator):
        y = np.where(bounds.censored, np.nan, bounds.lower)
        limits = {"y_lower": bounds.lower, "y_upper": bounds.upper}
        estimator.fit_with_folds(features, y, weight, rows.folds, **limits)
    elif bounds is not None and isinstance(estimator, TwinRegressor):
        estimator.fit_pairs(features, y, weight, imputed=bounds.censored)
    elif bounds is None and spec.one_fit:
        estimator.fit_with_folds(features, y, weight, rows.folds)
    elif weight is not None and has_fit_parameter(estimator, "sample_weight"):
        estimator.fit(features, y, sample_weight=weight)
    else:
        estimator.fit(features, y)
    return FittedMember(spec.label, estimator, preparation)


def supports_bounds(estimator: Any) -> bool:
    """Whether an estimator is a network, which is trained with the bounds themselves."""
    return hasattr(estimator, "fit_with_folds") and has_fit_parameter(estimator, "y_lower")
