"""Members of `AutoTwinRegressor`: their estimators, and how each is fitted and predicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.utils.validation import has_fit_parameter

from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.censored import (
    AllRows,
    CensoredRows,
    fit_to_all_rows,
    supports_bounds,
)
from twinned.estimators.blending.features import FeaturePreparation
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import MissingExtraError
from twinned.models.base_estimator import (
    DEFAULT_PAIRS,
    check_base_estimator,
    default_estimator,
    set_unset_seeds,
)
from twinned.pairing.pairs import HalfPairs
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, Rows, TableSchema
from twinned.rows.validation import check_choice

EFFORTS = ["fast", "balanced", "thorough"]
SMALL = "small"  # a further effort of the members that are compared first, for short budgets
_SMALL_MEMBERS = ("boosting", "tree_twin")
_MAX_BOOSTING_CATEGORIES = 255  # of a categorical feature of HistGradientBoostingRegressor


class MemberContext(NamedTuple):
    """What the settings of a member depend on, besides its effort."""

    seed: int
    n_folds: int
    memory_limit: Any
    schema: TableSchema
    n_jobs: int | None = None  # of members that have threads of their own


class Sizes(NamedTuple):
    """Sizes that an effort sets."""

    trees: int
    boosting_iterations: int
    learning_rate: float
    gp_rows: int


SIZES = {
    SMALL: Sizes(200, 60, 0.2, 1000),
    "fast": Sizes(200, 150, 0.1, 1000),
    "balanced": Sizes(500, 300, 0.05, 2000),
    "thorough": Sizes(1000, 600, 0.03, 2000),
}


class TwinSizes(NamedTuple):
    """Iterations and pairs of a tree twin that is smaller than `TwinRegressor()`."""

    iterations: int
    pairs: int
    max_features: float  # of the table; with more, the tree twin is `TwinRegressor()`


TWIN_SIZES = {SMALL: TwinSizes(100, 10_000, np.inf), "fast": TwinSizes(250, 40_000, 20)}

MakeEstimator = Callable[[str, MemberContext, FeaturePreparation, int], Any]


class MemberSpec(NamedTuple):
    """A member that is not fitted."""

    label: str  # its name and, where it differs from that of the blend, its effort: "ridge:fast"
    effort: str
    inputs: str  # kind of features, see `FeaturePreparation`
    make: MakeEstimator  # (effort, context, preparation, n_rows) → estimator
    entry: Any  # of the list `members` that gives this member again
    one_fit: bool  # one fit gives all out-of-fold predictions

    @property
    def name(self) -> str:
        return self.label.partition(":")[0]

    @property
    def has_threads(self) -> bool:
        """Whether its fit uses all threads of `n_jobs` by itself."""
        return self.name in ("neural", "neural_twin")

    def for_rows(self, rows: TrainingRows) -> MemberSpec:
        """The member as it is fitted to these rows.

        With censored rows, only networks have out-of-fold predictions by one fit: the imputed
        values of others differ between folds.
        """
        is_network = self.has_threads or supports_bounds(self._estimator)
        return self if rows.censored is None else self._replace(one_fit=is_network)

    @property
    def _estimator(self) -> Any:
        """The estimator of a tuple (name, estimator)."""
        return self.entry[1] if isinstance(self.entry, tuple) else None

    def with_effort(self, effort: str) -> MemberSpec:
        """The same member with another effort, which its label then has."""
        label = f"{self.name}:{effort}"
        return self._replace(label=label, effort=effort, entry=label)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Encoded rows to fit members to; equal rows are merged."""

    matrix: Floats  # (row, feature)
    y: Floats  # (row,)
    weight: Floats | None  # (row,), of mean 1
    fold: Indices  # (row,): the fold that holds out each row
    censored: CensoredRows | None = None

    @property
    def n_folds(self) -> int:
        return int(self.fold.max()) + 1

    def without(self, fold: int) -> TrainingRows:
        """The rows that a fold does not hold out; all where it is −1."""
        if fold < 0:
            return self
        rows, censored = self.fold != fold, self.censored
        return TrainingRows(
            self.matrix[rows],
            self.y[rows],
            None if self.weight is None else self.weight[rows],
            self.fold[rows],
            None if censored is None else censored.take(censored.fold != fold),
        )

    def with_censored(self) -> AllRows:
        """Known rows and, after them, censored rows."""
        assert self.censored is not None, "there are censored rows"
        return AllRows.join(self.matrix, self.y, self.weight, self.fold, self.censored)


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A fitted estimator and the preparation of its features."""

    label: str
    estimator: Any
    preparation: FeaturePreparation

    @property
    def is_twin(self) -> bool:
        return isinstance(self.estimator, BaseTwin)

    def predict(self, matrix: Floats) -> Floats:
        """(row,): predictions of encoded rows."""
        predicted = self.estimator.predict(self.preparation.transform(matrix))
        return np.asarray(predicted, dtype=np.float64).reshape(len(matrix))

    def differences(self, first: Floats, second: Floats) -> Floats:
        """(...,): F(first, second) of encoded rows (..., feature) whose leading axes broadcast."""
        if self.is_twin:
            return self._twin_differences(first, second)

        def predict(matrix: Floats) -> Floats:
            flat = matrix.reshape(-1, matrix.shape[-1])
            return self.predict(flat).reshape(matrix.shape[:-1])

        return predict(first) - predict(second)

    def _twin_differences(self, first: Floats, second: Floats) -> Floats:
        twin, schema = self.estimator, self.estimator._schema
        sides = []
        for matrix in (first, second):
            flat = self.preparation.transform(matrix.reshape(-1, matrix.shape[-1]))
            # a new category has the same code on both sides
            encoded, schema = twin._validate_table(flat, schema, learn_categories=True)
            parts = twin._to_rows(schema, encoded)
            sides.append(Rows(*(part.reshape(*matrix.shape[:-1], -1) for part in parts)))
        model = twin._difference_model()
        differences: Floats = np.tensordot(model.member_weights, model.differences(*sides), axes=1)
        return differences[..., 0]

    def add_anchors(self, matrix: Floats, y: Floats) -> FittedMember:
        """The member with further anchors; itself where it has none."""
        if not self.is_twin:
            return self
        return replace(
            self, estimator=self.estimator.add_anchors(self.preparation.transform(matrix), y)
        )


# --- estimators ---------------------------------------------------------------------------------


def _neural(class_name: str, module: str) -> MakeEstimator:
    def make(
        effort: str, context: MemberContext, preparation: FeaturePreparation, n_rows: int
    ) -> Any:
        from twinned.models.neural.parameters import EFFORTS as NEURAL_EFFORTS
        from twinned.models.neural.parameters import NeuralTraining

        sizes = NEURAL_EFFORTS[effort]
        fold_steps = int(sizes.blend_fold_share * sizes.max_steps)
        estimator = getattr(import_module(f"twinned.estimators.{module}"), class_name)
        return estimator(
            effort=effort,
            n_members=sizes.blend_members,
            training=NeuralTraining(n_folds=context.n_folds, fold_steps=fold_steps),
            categorical_features=preparation.categorical_columns,
            memory_limit=context.memory_limit,
            n_jobs=context.n_jobs,
            random_state=context.seed,
        )

    return make


def _tree_twin(
    effort: str, context: MemberContext, preparation: FeaturePreparation, n_rows: int
) -> TwinRegressor:
    smaller: dict[str, Any] = {}
    sizes = TWIN_SIZES.get(effort)
    if sizes is not None and context.schema.n_features <= sizes.max_features:
        base = default_estimator(n_rows, 1)
        # as many leaves as with all pairs of the default
        share = min(1.0, sizes.pairs / min(max(1, n_rows * (n_rows - 1) // 2), DEFAULT_PAIRS))
        leaf = max(1, int(base.min_samples_leaf * share))
        base.set_params(max_iter=sizes.iterations, min_samples_leaf=leaf)
        smaller = {"estimator": base, "pairs": HalfPairs(sizes.pairs)}
    return TwinRegressor(
        **smaller,
        categorical_features=preparation.categorical_columns,
        memory_limit=context.memory_limit,
        random_state=context.seed,
    )


def _extra_trees(
    effort: str, context: MemberContext, preparation: FeaturePreparation, n_rows: int
) -> ExtraTreesRegressor:
    return ExtraTreesRegressor(SIZES[effort].trees, random_state=context.seed)


def _boosting(
    effort: str, context: MemberContext, preparation: FeaturePreparation, n_rows: int
) -> HistGradientBoostingRegressor:
    schema = context.schema
    few = [j for j in schema.categorical if len(schema.categories[j]) <= _MAX_BOOSTING_CATEGORIES]
    return HistGradientBoostingRegressor(
        max_iter=SIZES[effort].boosting_iterations,
        learning_rate=SIZES[effort].learning_rate,
        min_samples_leaf=max(2, min(10, n_rows // 8)),
        early_stopping=False,
        categorical_features=few or None,
        random_state=context.seed,
    )


def _gaussian_process(kernel: str) -> MakeEstimator:
    def make(
        effort: str, context: MemberContext, preparation: FeaturePreparation, n_rows: int
    ) -> Any:
        from twinned.estimators.gaussian_process import GPRegressor

        return GPRegressor(kernel=kernel, max_rows=SIZES[effort].gp_rows, random_state=context.seed)

    return make


def _ridge(
    effort: str, context: MemberContext, preparation: FeaturePreparation, n_rows: int
) -> RidgeCV:
    return RidgeCV(np.logspace(-3, 4, 15))


def _optional(module: str, class_name: str, **parameters: Any) -> MakeEstimator:
    """A regressor of a library that is not a core dependency."""

    def make(
        effort: str, context: MemberContext, preparation: FeaturePreparation, n_rows: int
    ) -> Any:
        try:
            library = import_module(module)
        except ImportError as error:
            raise MissingExtraError(
                f"The member {module!r} needs the library {module}: pip install {module}."
            ) from error
        return getattr(library, class_name)(random_state=context.seed, **parameters)

    return make


# name → (kind of features, estimator)
MEMBERS: dict[str, tuple[str, MakeEstimator]] = {
    "ridge": ("dense", _ridge),
    "gp_matern": ("dense", _gaussian_process("matern")),
    "gp_rbf": ("dense", _gaussian_process("rbf")),
    "extra_trees": ("dense", _extra_trees),
    "boosting": ("encoded", _boosting),
    "tree_twin": ("encoded", _tree_twin),
    "neural": ("complete", _neural("NeuralRegressor", "neural")),
    "neural_twin": ("complete", _neural("TwinNeuralRegressor", "twin_neural")),
    "catboost": (
        "dense",
        _optional(
            "catboost",
            "CatBoostRegressor",
            verbose=False,
            allow_writing_files=False,
            thread_count=1,
        ),
    ),
    "lightgbm": ("dense", _optional("lightgbm", "LGBMRegressor", verbosity=-1, n_jobs=1)),
}
_OPTIONAL = ("catboost", "lightgbm")
AUTO = tuple(name for name in MEMBERS if name not in _OPTIONAL)


def resolve_members(members: Any, effort: str) -> list[MemberSpec]:
    """The members of the parameter `members`: "auto", or a list of names and (name, estimator)."""
    check_choice("effort", effort, EFFORTS)
    if isinstance(members, str):
        check_choice("members", members, ["auto"], ", or a list of members")
        members = AUTO
    try:
        specs = [_resolve(entry, effort) for entry in members]
    except TypeError as error:
        if "iterable" not in str(error):
            raise
        raise TypeError(f"members must be 'auto' or a list, not {members!r}.") from None
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
        name, _, own_effort = entry.partition(":")
        check_choice("a member", name, list(MEMBERS), " or a tuple (name, estimator)")
        check_choice(f"the effort of {name}", own_effort or effort, efforts_of(name))
        one_fit = name in ("neural", "neural_twin", "gp_matern", "gp_rbf")
        return MemberSpec(entry, own_effort or effort, *MEMBERS[name], entry, one_fit)
    if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], str):
        raise TypeError(f"a member must be a name or a tuple (name, estimator), not {entry!r}.")
    name, estimator = entry
    if name in MEMBERS or not name or ":" in name:
        raise ValueError(
            f"{name!r} is not a valid name of a member with an estimator: it is the name of a "
            "built-in member, or empty, or has a colon."
        )
    check_base_estimator(estimator)

    def make(
        effort: str, context: MemberContext, preparation: FeaturePreparation, n_rows: int
    ) -> Any:
        return set_unset_seeds(clone(estimator), lambda: context.seed)

    one_fit = hasattr(estimator, "_fit_with_folds")
    return MemberSpec(name, effort, "dense", make, entry, one_fit)


# --- fitting ------------------------------------------------------------------------------------


def member_context(
    spec: MemberSpec,
    seed: int,
    rows: TrainingRows,
    memory_limit: Any,
    schema: TableSchema,
    n_jobs: int | None = None,
) -> MemberContext:
    """The context of a member; its seed depends on its name, not on the other members."""
    own_seed = (seed + crc32(spec.name.encode())) % 2**31
    return MemberContext(own_seed, rows.n_folds, memory_limit, schema, n_jobs)


def fit_member(
    spec: MemberSpec, context: MemberContext, rows: TrainingRows, imputed: Floats | None = None
) -> FittedMember:
    """Fit a member to rows; `imputed` are values of known and censored rows."""
    if rows.censored is not None:
        every = rows.with_censored()
        preparation = FeaturePreparation.fit(spec.inputs, context.schema, every.matrix)
        estimator = spec.make(spec.effort, context, preparation, len(every.matrix))
        fit_to_all_rows(estimator, preparation.transform(every.matrix), every, imputed)
        return FittedMember(spec.label, estimator, preparation)
    preparation = FeaturePreparation.fit(spec.inputs, context.schema, rows.matrix)
    estimator = spec.make(spec.effort, context, preparation, len(rows.y))
    features = preparation.transform(rows.matrix)
    if spec.one_fit:
        estimator._fit_with_folds(features, rows.y, rows.weight, rows.fold)
    elif rows.weight is not None and has_fit_parameter(estimator, "sample_weight"):
        estimator.fit(features, rows.y, sample_weight=rows.weight)
    else:
        estimator.fit(features, rows.y)
    return FittedMember(spec.label, estimator, preparation)
