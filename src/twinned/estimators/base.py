"""What every twin shares: the methods of a fitted twin.

A subclass learns differences and answers `_raw_differences`; everything that a fitted twin has
follows from that here, and from how a block of queries is done in `working`.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned._neighbors import Indices
from twinned._table import Floats, Rows
from twinned._validation import (
    check_bool,
    check_integer,
    validate_table,
    validate_target,
)
from twinned.estimators.blocks import Selection
from twinned.estimators.explain import comparables
from twinned.estimators.working import AnchoredModel
from twinned.intervals.stored import StoredIntervals
from twinned.pairing.loops import draw_loops, loop_sum, mean_inconsistency
from twinned.pairing.pairs import antisymmetric, asymmetry

# Loops are drawn for this many queries at once: always the same, so that memory moves no draw.
_LOOP_ROWS = 4_096


class BaseTwin(RegressorMixin, AnchoredModel):
    """A regressor that predicts from differences to anchors.

    Subclasses have the parameters `anchors`, `weights`, `symmetric`, `memory_limit`, `n_jobs` and
    `random_state`, set `_pair_dtype` and, by `_remember`, the other fitted attributes, and answer
    `_raw_differences` and `_pair_bytes`.
    """

    # --- what a fitted twin has ---------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict by the weighted mean over anchors of difference + known value.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            The points to predict.
        return_std : bool, default=False
            Also return a raw standard deviation: the spread of the anchors' estimates, where
            `symmetric` of those that both orders of each pair give.

        Returns
        -------
        y : ndarray of shape (n_queries,) or (n_queries, n_outputs)
        std : ndarray of the same shape, only where `return_std`
        """
        queries = self._open(X)
        check_bool("return_std", return_std)
        shortcut = self._shortcut(queries)
        only_mean = shortcut is not None and not return_std and self._is_plain_mean(shortcut)

        def one_block(rows: slice, selection: Selection) -> tuple[Floats, Floats]:
            block = queries.take(rows)
            if only_mean:
                mean, _ = shortcut.moments(block, None, variance=False, n_jobs=self.n_jobs)
                return mean, mean
            return self._combine(block, selection, shortcut)

        blocks = self._over_blocks(one_block, queries, shortcut, only_mean=only_mean)
        means, spreads = zip(*blocks, strict=True)
        mean = self._shaped(np.concatenate(means))
        return (mean, self._shaped(np.concatenate(spreads))) if return_std else mean

    def predict_interval(self, X: Any, confidence: float = 0.9) -> Floats:
        """(n_queries, 2): lower and upper ends, which cover with about this probability.

        Of a twin that keeps the scores of points that were left out:
        `twinned.cross_conformal(twin, X, y).store_in()`.
        """
        check_is_fitted(self)
        if not hasattr(self, "intervals_"):
            raise AttributeError(
                "This twin keeps no scores of points that were left out, which intervals need; "
                "twinned.cross_conformal(twin, X, y).store_in() gives a twin that does."
            )
        kept = StoredIntervals(self)
        mean, raw = self.predict(X, return_std=True)
        return kept.ends(mean, kept.sigma(X, mean, raw), confidence)

    def predict_difference(self, A: Any, B: Any, return_std: bool = False) -> Any:
        """F(a, b), the predicted y(a) − y(b), row by row.

        Exactly antisymmetric where `symmetric`. With `return_std`, also half the distance between
        F(a, b) and −F(b, a), which a consistent model would not have.
        """
        check_is_fitted(self)
        check_bool("return_std", return_std)
        first, second = self._open_both(A, B)
        both = self.symmetric or return_std
        values, spreads = [], []
        for rows in self._row_blocks(len(first)):
            a, b = first.take(rows), second.take(rows)
            forward = self._raw_differences(a, b)
            backward = self._raw_differences(b, a) if both else None
            values.append(antisymmetric(forward, backward) if self.symmetric else forward)
            if return_std:
                spreads.append(asymmetry(forward, backward))
        value = self._shaped(np.concatenate(values))
        return (value, self._shaped(np.concatenate(spreads))) if return_std else value

    def predict_anchors(self, X: Any) -> tuple[Indices, Floats]:
        """Each anchor's own estimate.

        Returns
        -------
        indices : ndarray of shape (n_queries, n_anchors_used)
            Rows of `anchors_X_`.
        estimates : ndarray of shape (n_queries, n_anchors_used) or (…, n_outputs)
        """
        queries = self._open(X)
        shortcut = self._shortcut(queries)

        def one_block(rows: slice, selection: Selection) -> tuple[Indices, Floats]:
            estimates = self._estimates(queries.take(rows), selection, shortcut)
            return self._indices(selection, len(estimates)), estimates

        indices, estimates = zip(*self._over_blocks(one_block, queries, shortcut), strict=True)
        return np.concatenate(indices), self._shaped(np.concatenate(estimates))

    def loop_inconsistency(self, X: Any, n_loops: int = 32, random_state: Any = None) -> Floats:
        """How far predicted differences around closed loops through the query are from zero.

        Each of `n_loops` loops goes from the query over two random anchors and back; the mean of
        |F(x, i) + F(i, j) + F(j, x)| is returned, (n_queries,) or (n_queries, n_outputs). Loops
        are drawn by `random_state`, or by the estimator's own where that is None.
        """
        queries = self._open(X)
        check_integer("n_loops", n_loops)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        results = []
        for start in range(0, len(queries), _LOOP_ROWS):
            block = queries.take(slice(start, start + _LOOP_ROWS))
            i, j = draw_loops(len(block), len(self._points), n_loops, rng)
            results.append(mean_inconsistency(self._loop_sums(block, i, j)))
        return self._shaped(np.concatenate(results))

    def _loop_sums(self, queries: Rows, i: Indices, j: Indices) -> Floats:
        """(n_queries, n_loops, n_outputs) around the loops query → anchor i → anchor j → query."""
        second, third = i.ravel(), j.ravel()
        sums = np.empty((i.size, self._anchors_y().shape[1]))
        for loops in self._row_blocks(len(sums)):
            query = queries.take(np.arange(len(sums))[loops] // i.shape[1])
            a, b = self._points.take(second[loops]), self._points.take(third[loops])
            sums[loops] = loop_sum(
                self._differences(query, a), self._differences(a, b), self._differences(b, query)
            )
        return sums.reshape(*i.shape, -1)

    def explain(self, X: Any, n: int = 5) -> pd.DataFrame:
        """The anchors that say most about each query: its comparables.

        Returns
        -------
        DataFrame with the columns `query, anchor, anchor_y, difference, estimate, weight,
        distance`: for each query the `n` anchors of largest weight, nearest first among equals.
        `query` counts the rows of X, `anchor` those of `anchors_X_`; the weights of all anchors of
        a query sum to one. With several outputs, each has rows of its own, told by `output`.
        """
        queries = self._open(X)
        check_integer("n", n)
        anchors_y = self._anchors_y()
        shortcut = self._shortcut(queries)

        def one_block(rows: slice, selection: Selection) -> pd.DataFrame:
            block = queries.take(rows)
            estimates = self._estimates(block, selection, shortcut)
            indices = self._indices(selection, len(block))
            distances = self._distances(block, selection)
            weights = self._weights(block, selection, estimates)
            if weights is None:
                weights = np.ones(indices.shape)
            table = comparables(indices, anchors_y[indices], estimates, weights, distances, n)
            return table.assign(query=table["query"] + rows.start)

        return pd.concat(self._over_blocks(one_block, queries, shortcut), ignore_index=True)

    def add_anchors(self, X: Any, y: Any) -> Any:
        """A new fitted twin that shares the trained model and knows more points.

        The original is unchanged. The new points weigh 1 where the fit had sample weights.
        """
        check_is_fitted(self)
        new_X, columns = validate_table(
            self,
            X,
            self._schema,
            allow_nan=self._allow_nan(),
            pair_dtype=self._pair_dtype,
            learn_categories=True,
        )
        new_y = validate_target(self, y, len(new_X), multi_output=self.anchors_y_.ndim == 2)
        if new_y.shape[1:] != self.anchors_y_.shape[1:]:
            raise ValueError(
                f"y has shape {new_y.shape}, but the twin was fitted on {self.anchors_y_.shape}."
            )
        richer = copy.copy(self)
        weight = self._anchor_weight
        richer._remember(
            np.concatenate([self.anchors_X_, new_X]),
            np.concatenate([self.anchors_y_, new_y]),
            None if weight is None else np.concatenate([weight, np.ones(len(new_y))]),
            columns,
            np.concatenate([self.anchor_rows_, np.full(len(new_y), -1)]),
        )
        return richer

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the prediction; rows whose y is NaN are left out."""
        y = np.asarray(y)
        if y.dtype.kind == "f" and np.isnan(y).any():
            known = ~np.isnan(y) if y.ndim == 1 else ~np.isnan(y).any(axis=1)
            if not known.any():
                raise ValueError(f"y has no known value to score against: all {len(y)} are NaN.")
            X, y = _safe_indexing(X, np.flatnonzero(known)), y[known]
            sample_weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return super().score(X, y, sample_weight)
