"""Learning from loops through unlabelled points: algorithm 1 of the paper, around any twin.

A twin is fitted to the labelled pairs. Around a loop of one labelled and two unlabelled points its
differences should sum to zero; they sum to some a. Each side of the loop is labelled with what the
model said of it minus Λa, and the model is fitted again, to the labelled pairs and these.

After relabelling, a loop sums to (1 − 3Λ)a: Λ = 1/3 closes it, and Λ = 1 overshoots to −2a.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from twinned._neighbors import Indices
from twinned._table import Floats, Rows
from twinned._validation import (
    check_bool,
    check_integer,
    check_real,
    check_sample_weight,
    count_rows,
    restore_on_failure,
    validate_target,
)
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import GrowingInconsistencyWarning
from twinned.pairing.loops import loop_sum

_CHECK_SHARE = 0.2  # of the labelled points, which tell the best of several rounds


class Loops(NamedTuple):
    """Each labelled → unlabelled → unlabelled → back; (n_loops,) rows each."""

    labelled: Indices
    second: Indices
    third: Indices


def draw_unlabelled_loops(
    n_labelled: int, n_unlabelled: int, n_loops: int, rng: np.random.RandomState
) -> Loops:
    """One labelled and two unlabelled points for each loop, all with replacement."""
    return Loops(
        rng.randint(0, n_labelled, n_loops),
        rng.randint(0, n_unlabelled, n_loops),
        rng.randint(0, n_unlabelled, n_loops),
    )


def relabel(sides: tuple[Floats, Floats, Floats], loop_weight: float) -> tuple[Floats, ...]:
    """What each side of a loop should be, from what the model says of all three.

    >>> sides = tuple(np.array([side]) for side in (3.0, 1.0, -1.0))
    >>> [float(side[0]) for side in relabel(sides, 1 / 3)]
    [2.0, 0.0, -2.0]
    """
    adjustment = loop_sum(*sides)
    return tuple(side - loop_weight * adjustment for side in sides)


class SemiSupervisedTwinRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Loop consistency around any `TwinRegressor`; rows whose y is NaN are unlabelled.

    Give the points that you want to predict among the unlabelled rows (transductive), or others
    (inductive).

    Parameters
    ----------
    twin : TwinRegressor or None, default=None
        What learns. None is `TwinRegressor()`.
    loop_weight : float, default=1.0
        The paper's Λ: how much of a loop's sum is taken from each of its sides. The paper finds
        values near 1 best, 1/3 closes the loops; 0 teaches the model its own predictions.
    n_loops : int or None, default=None
        How many loops. None is a third of the labelled pairs, as the author ran it; a third of the
        labelled *points* is what the paper's text says.
    rounds : int, default=1
        How often to relabel and fit again. With several, the best is told by labelled points that
        are held out, in a trial run; the paper found more than one unstable for Λ above 1/3.
    symmetrised : bool, default=False
        Sum ½F(a, b) − ½F(b, a) around the loops, instead of the model's raw F as in algorithm 1.
    random_state : int, RandomState or None, default=None
        Draws loops, and seeds the twin where it has no seed of its own.

    Attributes
    ----------
    twin_ : TwinRegressor
        The fitted twin; its anchors are the labelled rows.
    loop_inconsistency_ : ndarray of shape (n_rounds_ + 1,)
        The mean |a| over the loops, before relabelling and after each round.
    n_rounds_ : int
        How many rounds were kept.
    n_unlabelled_ : int
        How many rows had no label.
    round_errors_ : ndarray of shape (rounds + 1,) or None
        The error of held-out labelled points after each round of the trial run.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from twinned import SemiSupervisedTwinRegressor, TwinRegressor
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(60, random_state=0)
    >>> known = y.where(y.index < 40)  # the last 20 have no label
    >>> forest = TwinRegressor(RandomForestRegressor(10), symmetric=False)
    >>> semi = SemiSupervisedTwinRegressor(forest, random_state=0).fit(X, known)
    >>> semi.n_unlabelled_, semi.predict(X[40:]).shape
    (20, (20,))
    """

    def __init__(
        self,
        twin: Any = None,
        *,
        loop_weight: float = 1.0,
        n_loops: int | None = None,
        rounds: int = 1,
        symmetrised: bool = False,
        random_state: Any = None,
    ) -> None:
        self.twin = twin
        self.loop_weight = loop_weight
        self.n_loops = n_loops
        self.rounds = rounds
        self.symmetrised = symmetrised
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._inner())
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.target_tags.multi_output = inner.target_tags.multi_output
        tags.non_deterministic = inner.non_deterministic
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SemiSupervisedTwinRegressor:
        """Fit to the labelled pairs, relabel loops, and fit again.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            Labelled and unlabelled points.
        y : array of shape (n,) or (n, n_outputs)
            Their values, NaN where they are not known.
        sample_weight : array of shape (n,), default=None
            Of the labelled rows, as in `TwinRegressor`; a relabelled pair weighs as the mean pair.
        """
        with restore_on_failure(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        weight = check_real("loop_weight", self.loop_weight)
        if not 0 <= weight < np.inf:
            raise ValueError(f"loop_weight must not be negative, but is {self.loop_weight!r}.")
        check_bool("symmetrised", self.symmetrised)
        rounds = check_integer("rounds", self.rounds)
        if self.n_loops is not None:
            check_integer("n_loops", self.n_loops)
        rng = check_random_state(self.random_state)
        n = count_rows(X)
        multi_output = self.__sklearn_tags__().target_tags.multi_output
        target = validate_target(self, y, n, multi_output=multi_output, unlabelled=True)
        row_weight = check_sample_weight(sample_weight, n)
        known = ~np.isnan(target.reshape(n, -1)).any(axis=1)
        labelled, without = np.flatnonzero(known), np.flatnonzero(~known)
        if len(labelled) < 2 and len(without):
            raise ValueError(f"y has {len(labelled)} known values in {n} rows; a twin needs two.")
        seeds = rng.randint(2**31 - 1, size=3)
        self.n_unlabelled_ = len(without)
        self.round_errors_ = None

        def run(rows: Indices, rounds: int, seed: int, watch: Any = None) -> TwinRegressor:
            of_rows = None if row_weight is None else row_weight[rows]
            return self._rounds(
                _safe_indexing(X, rows) if len(rows) < n else X,
                target[rows],
                of_rows,
                _safe_indexing(X, without) if len(without) else None,
                rounds,
                seed,
                watch,
            )

        if rounds > 1 and len(without) and len(labelled) >= 5:
            order = np.random.RandomState(seeds[2]).permutation(labelled)
            cut = max(1, round(_CHECK_SHARE * len(order)))
            held_out, rest = np.sort(order[:cut]), np.sort(order[cut:])
            errors: list[float] = []

            def watch(twin: TwinRegressor) -> None:
                off = twin.predict(_safe_indexing(X, held_out)) - target[held_out]
                errors.append(float(np.sqrt(np.mean(off**2))))

            run(rest, rounds, seeds[1], watch)
            self.round_errors_ = np.array(errors)
            rounds = int(np.argmin(errors))
        self.n_rounds_ = rounds if len(without) else 0
        self.twin_ = run(labelled, self.n_rounds_, seeds[0])
        # the rows of the whole table, not of its labelled part
        self.twin_.anchor_rows_ = labelled[self.twin_.anchor_rows_]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.twin_, name):
                setattr(self, name, getattr(self.twin_, name))

    def _inner(self) -> TwinRegressor:
        if self.twin is None:
            return TwinRegressor()
        if not isinstance(self.twin, TwinRegressor):
            raise TypeError(f"twin must be a TwinRegressor, not {self.twin!r}.")
        return self.twin

    def _rounds(
        self,
        X: Any,
        y: Floats,
        weight: Any,
        X_without: Any,
        rounds: int,
        seed: int,
        watch: Any,
    ) -> TwinRegressor:
        """A twin after that many rounds; `watch` sees it after each, and before the first."""
        twin = clone(self._inner())
        rng = np.random.RandomState(seed)
        if twin.random_state is None and self.random_state is not None:
            twin.set_params(random_state=int(rng.randint(2**31 - 1)))
        if X_without is None or not rounds:
            twin.fit(X, y, weight)
            self.loop_inconsistency_ = np.zeros(0)
            if watch is not None:
                watch(twin)
            return twin
        lesson = twin._fit(X, y, weight)
        points, others = twin._points, twin._open(X_without).take(slice(None))
        n_loops = self.n_loops or max(1, twin.n_pairs_ // 3)
        loops = draw_unlabelled_loops(len(points), len(others), n_loops, rng)
        sides = self._sides(twin, points, others, loops)
        inconsistency = [_mean_size(sides)]
        if watch is not None:
            watch(twin)
        for _ in range(rounds):
            labels = relabel(sides, float(self.loop_weight))
            twin._teach(lesson, pairs_of(points, others, loops), labels)
            sides = self._sides(twin, points, others, loops)
            inconsistency.append(_mean_size(sides))
            if watch is not None:
                watch(twin)
        twin.n_pairs_ += 3 * n_loops
        self.loop_inconsistency_ = np.array(inconsistency)
        if rounds > 1 and inconsistency[-1] > inconsistency[0]:
            warnings.warn(
                f"The inconsistency of loops grew from {inconsistency[0]:.3g} to "
                f"{inconsistency[-1]:.3g} in {rounds} rounds with loop_weight="
                f"{self.loop_weight:g}; take one round, or a loop_weight of at most 1/3.",
                GrowingInconsistencyWarning,
                stacklevel=5,
            )
        return twin

    def _sides(
        self, twin: TwinRegressor, points: Rows, others: Rows, loops: Loops
    ) -> tuple[Floats, Floats, Floats]:
        """(n_loops, n_outputs) for each side, what the twin says of it, in blocks of its memory."""
        ask = twin._differences if self.symmetrised else twin._raw_differences
        answers = []
        for first, second in pairs_of(points, others, loops):
            blocks = [
                ask(first.take(rows), second.take(rows))
                for rows in twin._row_blocks(len(loops.labelled))
            ]
            answers.append(np.concatenate(blocks))
        return answers[0], answers[1], answers[2]

    # --- what every fitted twin has -----------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """As `TwinRegressor.predict`."""
        return self._fitted().predict(X, return_std=return_std)

    def predict_difference(self, A: Any, B: Any, return_std: bool = False) -> Any:
        """As `TwinRegressor.predict_difference`."""
        return self._fitted().predict_difference(A, B, return_std=return_std)

    def predict_anchors(self, X: Any) -> tuple[Indices, Floats]:
        """As `TwinRegressor.predict_anchors`."""
        return self._fitted().predict_anchors(X)

    def loop_inconsistency(self, X: Any, n_loops: int = 32, random_state: Any = None) -> Floats:
        """As `TwinRegressor.loop_inconsistency`."""
        return self._fitted().loop_inconsistency(X, n_loops=n_loops, random_state=random_state)

    def explain(self, X: Any, n: int = 5) -> Any:
        """As `TwinRegressor.explain`."""
        return self._fitted().explain(X, n=n)

    def add_anchors(self, X: Any, y: Any) -> Any:
        """A new fitted estimator that knows more points; the original is unchanged."""
        richer = copy.copy(self)
        richer.twin_ = self._fitted().add_anchors(X, y)
        return richer

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the prediction; rows whose y is NaN are left out."""
        return self._fitted().score(X, y, sample_weight)

    def _fitted(self) -> TwinRegressor:
        check_is_fitted(self)
        return self.twin_


def pairs_of(points: Rows, others: Rows, loops: Loops) -> list[tuple[Rows, Rows]]:
    """The three sides of all loops: labelled → second → third → labelled."""
    labelled = points.take(loops.labelled)
    second, third = others.take(loops.second), others.take(loops.third)
    return [(labelled, second), (second, third), (third, labelled)]


def _mean_size(sides: tuple[Floats, Floats, Floats]) -> float:
    return float(np.mean(np.abs(loop_sum(*sides))))
