"""SemiSupervisedTwinRegressor: loop consistency with unlabelled rows, algorithm 1 of the paper.

A twin is fitted to the labelled pairs. Around a loop of one labelled and two unlabelled rows its
predicted differences should sum to zero; they sum to some a. Each side of the loop gets the
pseudo-label of its predicted difference minus Λa, and the twin is fitted again, to the labelled
pairs and to these.

After that a loop sums to (1 − 3Λ)a: Λ = 1/3 closes it, and Λ = 1 overshoots to −2a.
"""

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from twinned._compat import BaseEstimator, MetaEstimatorMixin, safe_indexing
from twinned.estimators.base import TwinMethods
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import MemoryLimitError
from twinned.fitted.twin import FittedTwin
from twinned.pairing.differences import loop_sum
from twinned.rows.schema import Floats, Indices, Queries, Rows, TableSchema
from twinned.rows.validation import (
    check_integer,
    check_real,
    check_sample_weight,
    count_rows,
    draw_seed,
    restore_on_failure,
    validate_target,
)

# Row indices (n_loops,) of loops labelled → second → third → labelled.
Loops = tuple[Indices, Indices, Indices]


def draw_unlabelled_loops(
    n_labelled: int, n_unlabelled: int, n_loops: int, rng: np.random.RandomState
) -> Loops:
    """Draw one labelled and two unlabelled rows for each loop, all with replacement."""
    first, second, third = (
        rng.randint(0, n, n_loops) for n in (n_labelled, n_unlabelled, n_unlabelled)
    )
    return first, second, third


def relabel(sides: Sequence[Floats], loop_weight: float) -> list[Floats]:
    """Pseudo-labels of the three sides of loops, from their predicted differences.

    >>> sides = [np.array([side]) for side in (3.0, 1.0, -1.0)]
    >>> [float(side[0]) for side in relabel(sides, 1 / 3)]
    [2.0, 0.0, -2.0]
    """
    adjustment = loop_sum(*sides)
    return [side - loop_weight * adjustment for side in sides]


def loop_sides(labelled: Rows, unlabelled: Rows, loops: Loops) -> list[tuple[Rows, Rows]]:
    """The three sides of all loops, as pairs of rows."""
    first = labelled.take(loops[0])
    second, third = (unlabelled.take(rows) for rows in loops[1:])
    return [(first, second), (second, third), (third, first)]


@dataclass(eq=False, repr=False)
class SemiSupervisedTwinRegressor(MetaEstimatorMixin, TwinMethods, BaseEstimator):
    """Semi-supervised twin regression by loop consistency; unlabelled rows have y = NaN.

    Pass the rows to predict among the unlabelled rows (transductive), or others (inductive).

    Parameters
    ----------
    twin : TwinRegressor, TwinNeuralRegressor or None, default=None
        The twin that is fitted. None is `TwinRegressor()`. Networks are trained again with the
        settings that the first fit selected, on batches of labelled pairs and of pairs with
        pseudo-labels, weighted by their numbers.
    loop_weight : float, default=1.0
        The paper's Λ: the fraction of a loop's sum that is subtracted from each of its sides. The
        paper finds values near 1 best, 1/3 closes the loops; 0 fits the twin to its own
        predictions.
    n_loops : int or None, default=None
        Number of loops. None is a third of the labelled pairs, as the author ran it, or as many as
        fit into the memory limit of the twin; a third of the labelled *rows* is what the paper
        states.
    n_rounds : int, default=1
        Number of times that loops are relabelled and the twin is fitted again; the paper found more
        than one unstable for Λ above 1/3.
    n_jobs : int or None, default=None
        Number of threads of the twin, where it has none of its own.
    random_state : int, RandomState or None, default=None
        Seed of the loops, and of a twin without a seed.

    Attributes
    ----------
    twin_ : TwinRegressor or TwinNeuralRegressor
        The fitted twin; its anchors are the labelled rows.
    loop_inconsistency_ : ndarray of shape (n_rounds_ + 1,)
        Mean |a| over the loops, before relabelling and after each round; NaN without loops. Where
        it grows, use `n_rounds=1`, or a `loop_weight` of at most 1/3.
    n_rounds_ : int
        Number of rounds; 0 without unlabelled rows.
    n_unlabelled_ : int
        Number of unlabelled rows.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from twinned import SemiSupervisedTwinRegressor, TwinRegressor
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(60, random_state=0)
    >>> y_known = y.where(y.index < 40)  # the last 20 are unlabelled
    >>> forest = TwinRegressor(RandomForestRegressor(10), symmetric=False)
    >>> semi = SemiSupervisedTwinRegressor(forest, random_state=0).fit(X, y_known)
    >>> semi.n_unlabelled_, semi.predict(X[40:]).shape
    (20, (20,))
    """

    twin: Any = None
    _: KW_ONLY
    loop_weight: float = 1.0
    n_loops: int | None = None
    n_rounds: int = 1
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None

    def __sklearn_tags__(self) -> Tags:
        return get_tags(self._base_twin())

    def get_metadata_routing(self) -> MetadataRouter:
        """Metadata routing: this estimator uses `sample_weight` itself."""
        router = MetadataRouter(owner=self).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return router.add(twin=self._base_twin(), method_mapping=mapping)

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the labelled pairs, relabel loops, and fit again.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            Labelled and unlabelled rows.
        y : array of shape (n,) or (n, n_outputs)
            Target values, NaN for unlabelled rows.
        sample_weight : array of shape (n,), default=None
            Weights of the labelled rows, as in `TwinRegressor`; a pair with a pseudo-label has the
            mean weight.
        """
        with restore_on_failure(self):
            self.check_parameters()
            labelled, rows, X_unlabelled = self._split(X, y, sample_weight)
            seed = draw_seed(self.random_state)
            self.n_unlabelled_: int = count_rows(X) - len(labelled)
            self.n_rounds_: int = self.n_rounds if self.n_unlabelled_ else 0
            self.twin_: Any
            self.loop_inconsistency_: Floats
            self.twin_, self.loop_inconsistency_ = self._fit_rounds(rows, X_unlabelled, seed)
            # rows of the whole table, not of its labelled part
            fitted = self.twin_.fitted_
            table_rows = labelled[fitted.anchors.table_rows]
            anchors = replace(fitted.anchors, table_rows=table_rows)
            self.twin_ = self.twin_.with_fitted(replace(fitted, anchors=anchors))
            names = vars(self.twin_).keys() & {"n_features_in_", "feature_names_in_"}
            self.__dict__.update({name: vars(self.twin_)[name] for name in names})
        return self

    def _split(self, X, y, sample_weight):
        """Numbers of the labelled rows, arguments of their fit, and the unlabelled rows of X."""
        n = count_rows(X)
        multi_output = self.__sklearn_tags__().target_tags.multi_output
        target = validate_target(self, y, n, multi_output=multi_output, unlabelled=True)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, n)
        is_labelled = ~np.isnan(target.reshape(n, -1)).any(axis=1)
        labelled, unlabelled = np.flatnonzero(is_labelled), np.flatnonzero(~is_labelled)
        if len(labelled) < 2 and len(unlabelled):
            raise ValueError(f"y has {len(labelled)} labelled rows of {n}; a twin needs two.")
        if not len(unlabelled):
            return labelled, (X, target, sample_weight), None
        weight = None if sample_weight is None else sample_weight[labelled]
        rows = safe_indexing(X, labelled), target[labelled], weight
        return labelled, rows, safe_indexing(X, unlabelled)

    def check_parameters(self) -> None:
        """Raise for invalid parameters."""
        if check_real("loop_weight", self.loop_weight) < 0:
            raise ValueError(f"loop_weight must not be negative, but is {self.loop_weight!r}.")
        check_integer("n_rounds", self.n_rounds)
        if self.n_loops is not None:
            check_integer("n_loops", self.n_loops)

    def _base_twin(self):
        if self.twin is None:
            return TwinRegressor()
        if not hasattr(self.twin, "refit_with"):
            raise TypeError(f"twin must be a TwinRegressor or a neural twin, not {self.twin!r}.")
        return self.twin

    def _fit_rounds(self, labelled_rows, X_unlabelled, seed):
        """The twin, and the mean inconsistency of loops before the first round and after each."""
        rng = np.random.RandomState(seed)
        twin = clone(self._base_twin())
        if twin.random_state is None and self.random_state is not None:
            twin.set_params(random_state=draw_seed(rng))
        if twin.n_jobs is None:
            twin.set_params(n_jobs=self.n_jobs)
        if X_unlabelled is None:
            return twin.fit(*labelled_rows), np.array([np.nan])
        training = twin.fit_pairs(*labelled_rows)
        labelled = twin.fitted_.anchors.rows
        unlabelled = twin.validate_queries(X_unlabelled).encode()
        n_loops = self._count_loops(twin)
        loops = draw_unlabelled_loops(len(labelled), len(unlabelled), n_loops, rng)
        pairs = loop_sides(labelled, unlabelled, loops)
        sides: list[Floats] = []
        inconsistency: list[float] = []
        for number in range(self.n_rounds + 1):
            if number:
                twin.refit_with(training, pairs, relabel(sides, float(self.loop_weight)))
            fitted = twin.fitted_
            if isinstance(twin, TwinRegressor):  # F(a, b) itself, as in algorithm 1
                fitted = replace(fitted, model=replace(fitted.model, symmetric=False))
            sides = [fitted.predict_difference(*side)[0] for side in pairs]
            inconsistency.append(float(np.mean(np.abs(loop_sum(*sides)))))
        twin.n_pairs_ += 3 * n_loops
        return twin, np.array(inconsistency)

    def _count_loops(self, twin):
        """The number of loops; their pairs and the labelled ones must fit into the memory limit."""
        available = twin.max_pseudo_pairs() // 3
        n_loops = self.n_loops or max(1, min(twin.n_pairs_ // 3, available))
        if n_loops > available:
            raise MemoryLimitError(
                f"{n_loops:,} loops have {3 * n_loops:,} pairs, which with the {twin.n_pairs_:,} "
                f"labelled pairs do not fit into memory_limit={twin.memory_limit!r} of the twin "
                f"({max(0, available):,} loops do); use fewer loops, fewer pairs or a larger limit."
            )
        return n_loops

    # --- the fitted twin ----------------------------------------------------------------------

    @property
    def fitted_(self) -> FittedTwin:
        """That of `twin_`."""
        check_is_fitted(self)
        return self.twin_.fitted_

    def with_fitted(self, fitted: FittedTwin) -> Self:
        """A copy of the estimator with another fitted state."""
        other = copy.copy(self)
        other.twin_ = self.twin_.with_fitted(fitted)
        return other

    def validate_queries(
        self, X: ArrayLike, *, learn_categories: bool = False, schema: TableSchema | None = None
    ) -> Queries:
        """Validated rows without batches; with `learn_categories`, new ones are in their schema."""
        check_is_fitted(self)
        return self.twin_.validate_queries(X, learn_categories=learn_categories, schema=schema)
