"""Active learning and optimization: selection of the points to label next.

To learn a function, a score rates the use of a label at each point of a pool. A batch is selected
greedily: the next point has the largest score × gap ** diversity, where the gap is the distance to
the nearest point that is labelled or already selected. This avoids batches of nearly identical
points. To find the best point, `twinned.estimators.acquisition` selects by joint samples instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned._compat import safe_indexing
from twinned.estimators.acquisition import ACQUISITIONS, select_best
from twinned.estimators.base import BaseTwin
from twinned.estimators.pipelines import Transform, unwrap
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor
from twinned.models.resources import limit_threads
from twinned.rows.neighbors import LEARNED, Indices, LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats
from twinned.rows.validation import check_bool, check_choice, check_integer, check_real, count_rows

_N_REFERENCES = 64  # points of the pool at which the effect of a label is computed
_N_LABELS = 32  # possible values of that label
_BLOCK_ROWS = 256  # candidates at once against all references
_BLOCK_ESTIMATES = 65_536  # estimates at once, of all anchors of a block of candidates

_TWINS = (BaseTwin, SemiSupervisedTwinRegressor)


def query(
    model: Any,
    X_pool: Any,
    n: int = 1,
    *,
    strategy: str = "uncertainty",
    diversity: float = 1.0,
    metric: str = "euclidean",
    maximize: bool = True,
    pending: Any = None,
    best: float | None = None,
    random_state: Any = None,
) -> Indices:
    """Return the rows of a pool to label next, the most useful first.

    Parameters
    ----------
    model : a fitted twin
        `TwinRegressor`, `TwinNeuralRegressor`, `AutoTwinRegressor` or
        `SemiSupervisedTwinRegressor`, or a pipeline that ends with one.
    X_pool : table or array of shape (n_pool, n_features)
        Rows without a label.
    n : int, default=1
        Number of rows to select.
    strategy : str, default="uncertainty"
        To learn y everywhere, the score of a point: `"uncertainty"`, the standard deviation of its
        anchors' estimates (also called `"spread"`); `"inconsistency"` of loops through it;
        `"change"`, the expected change of other predictions if it were labelled; or
        `"difference"`, the distance of its predicted value from every known one. To find the best
        y: `"improvement"`, the rows whose best value has the largest expected improvement on the
        best known one, one after the other; or `"thompson"`, the best row of each of n joint
        samples. Both select no row that is an anchor or pending.
    diversity : float, default=1.0
        Power of the distance to labelled, pending and selected points; 0 selects the n largest
        scores. Only for strategies to learn y.
    metric : {"euclidean", "learned"}, default="euclidean"
        Metric of these distances: Euclidean on standardized features, or the learned metric of the
        twin, in which irrelevant features count little.
    maximize : bool, default=True
        Whether the largest y is the best, or the smallest. Only for strategies to find it.
    pending : table or array of shape (n_pending, n_features), default=None
        Rows that are being measured: batches avoid them as if they were selected already.
    best : float, default=None
        The value to improve on; None is the best of the anchors.
    random_state : int, RandomState or None, default=None
        For the strategies that draw loops, reference points or samples.

    Returns
    -------
    rows : ndarray of shape (n,)

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TwinRegressor, query
    >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
    >>> query(twin, [[0.9], [5.0], [5.1], [-4.0]], 2, strategy="difference")
    array([3, 2])
    >>> query(twin, [[0.9], [5.0], [5.1], [-4.0]], strategy="improvement", random_state=0)
    array([2])
    """
    twin, transform = _unwrap(model)
    X_pool, pending = transform(X_pool), None if pending is None else transform(pending)
    check_choice("strategy", strategy, [*SCORES, *ACQUISITIONS, *_ALIASES])
    n = check_integer("n", n)
    if n > (n_pool := count_rows(X_pool)):
        raise ValueError(f"n={n} exceeds the {n_pool} rows of the pool.")
    check_bool("maximize", maximize)
    if strategy in ACQUISITIONS:
        rng = check_random_state(random_state)
        with limit_threads(twin.n_jobs):
            return select_best(twin, X_pool, n, strategy, maximize, pending, best, rng)
    power = check_real("diversity", diversity)
    if power < 0:
        raise ValueError(f"diversity must not be negative, but is {diversity!r}.")
    check_choice("metric", metric, ["euclidean", LEARNED])
    pool, known = _encoded(twin, X_pool), twin.fitted_.anchors.measured_features
    if pending is not None:
        known = np.concatenate([known, _encoded(twin, pending)])
    compute_score = SCORES[_ALIASES.get(strategy, strategy)]
    score = compute_score(twin, X_pool, check_random_state(random_state))
    if score.ndim == 2:  # the mean over outputs, each divided by the standard deviation of its y
        std = twin.anchors_y_.std(axis=0)
        score = (score / np.where(std > 0, std, 1.0)).mean(axis=1)
    learned = twin.fitted_.anchors.metric if metric == LEARNED and power else None
    return select_batch(score, pool, known, n, power, learned)


def _unwrap(model: Any) -> tuple[BaseTwin, Transform]:
    """The fitted twin inside a model, and the transformation of the rows for it."""
    twin, transform = unwrap(model)
    if not isinstance(twin, _TWINS):
        raise TypeError(f"model must be a twin, not {twin!r}.")
    check_is_fitted(twin)
    return twin.twin_ if isinstance(twin, SemiSupervisedTwinRegressor) else twin, transform


def _encoded(twin: BaseTwin, X: Any) -> Floats:
    """(row, encoded feature): rows in the space in which the twin measures distances."""
    return twin.encode(X).encode().features


def select_batch(
    score: Floats,
    pool: Floats,
    known: Floats,
    n: int,
    diversity: float,
    learned: LearnedMetric | None = None,
) -> Indices:
    """Return n rows of `pool`, greedily by score × gap ** diversity.

    Features are standardized, unless a learned metric scales them; a missing value counts as the
    mean.

    >>> pool, known = np.array([[0.0], [0.1], [9.0]]), np.array([[4.0]])
    >>> select_batch(np.array([1.0, 1.1, 0.9]), pool, known, 2, diversity=0.0)
    array([1, 0])
    >>> select_batch(np.array([1.0, 1.1, 0.9]), pool, known, 2, diversity=1.0)
    array([2, 1])
    """
    transform = _standardizer(pool, known) if learned is None else learned.transform
    pool, known = transform(pool), transform(known)
    gap = NeighborIndex(known).kneighbors(pool, 1)[1][:, 0] if diversity else np.ones(len(pool))
    available = np.ones(len(pool), dtype=bool)
    selected = np.empty(n, dtype=np.intp)
    for i in range(n):
        row = int(np.argmax(np.where(available, score * gap**diversity, -np.inf)))
        selected[i] = row
        available[row] = False
        if diversity:
            gap = np.minimum(gap, cdist(pool, pool[[row]])[:, 0])
    return selected


def _standardizer(pool: Floats, known: Floats) -> Callable[[Floats], Floats]:
    with np.errstate(invalid="ignore"):  # a feature without values
        scaler = StandardScaler().fit(np.concatenate([pool, known]))
    return lambda rows: np.nan_to_num(scaler.transform(rows))


def _uncertainty(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    std: Floats = twin.predict(X, return_std=True)[1]
    return std


def _inconsistency(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    return twin.loop_inconsistency(X, random_state=rng)


def _change(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    """E|F(q, x) + y_x − ŷ(q)| over references q of the pool, with y_x from the anchors of x.

    The twin is not refitted: with one anchor more, its mean changes by this over n + 1.
    """
    n_pool = count_rows(X)
    references = np.sort(rng.choice(n_pool, min(_N_REFERENCES, n_pool), replace=False))
    predicted = twin.predict(safe_indexing(X, references))
    out = np.empty((n_pool, *predicted.shape[1:]))
    for rows in _blocks(n_pool, _BLOCK_ROWS):
        labels = twin.predict_anchors(safe_indexing(X, rows))[1]
        labels = labels[:, rng.choice(labels.shape[1], min(_N_LABELS, labels.shape[1]))]
        differences = twin.predict_difference(
            safe_indexing(X, np.tile(references, len(rows))),
            safe_indexing(X, np.repeat(rows, len(references))),
        ).reshape(len(rows), len(references), *predicted.shape[1:])
        changes = (differences - predicted)[:, :, None] + labels[:, None]
        out[rows] = np.abs(changes).mean(axis=(1, 2))
    return out


def _difference(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    """Smallest |F(x, a)| over all anchors a: the distance of x from every known value."""
    scores = []
    for rows in _blocks(count_rows(X), max(1, _BLOCK_ESTIMATES // len(twin.anchors_y_))):
        indices, estimates = twin.predict_anchors(safe_indexing(X, rows))
        scores.append(np.abs(estimates - twin.anchors_y_[indices]).min(axis=1))
    return np.concatenate(scores)


def _blocks(n_rows: int, rows_per_block: int) -> list[Indices]:
    return np.split(np.arange(n_rows), range(rows_per_block, n_rows, rows_per_block))


# Each returns scores of shape (n_pool,) or (n_pool, n_outputs).
SCORES: dict[str, Callable[[BaseTwin, Any, np.random.RandomState], Floats]] = {
    "uncertainty": _uncertainty,
    "inconsistency": _inconsistency,
    "change": _change,
    "difference": _difference,
}
_ALIASES = {"spread": "uncertainty"}


class TwinQuery(BaseEstimator):
    """Query strategy with the interface of scikit-activeml, for its active-learning loops.

    Parameters
    ----------
    strategy, diversity, metric, maximize, random_state
        As in `query`.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TwinQuery, TwinRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, float("nan"), float("nan")]
    >>> TwinQuery(random_state=0).query(X, y, TwinRegressor(Ridge()))
    array([3])
    """

    def __init__(
        self,
        strategy: str = "uncertainty",
        *,
        diversity: float = 1.0,
        metric: str = "euclidean",
        maximize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.strategy = strategy
        self.diversity = diversity
        self.metric = metric
        self.maximize = maximize
        self.random_state = random_state

    def query(
        self,
        X: Any,
        y: Any,
        reg: Any,
        fit_reg: bool = True,
        sample_weight: Any = None,
        candidates: Any = None,
        batch_size: int = 1,
    ) -> Indices:
        """Return the rows of X to label next.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            Labelled and unlabelled points.
        y : array of shape (n,)
            Target, NaN in unlabelled rows.
        reg : estimator
            A twin, or scikit-activeml's `SklearnRegressor` around one.
        fit_reg : bool, default=True
            Fit a clone of `reg` to the labelled rows first.
        sample_weight : array of shape (n,), default=None
            Sample weights of that fit.
        candidates : array of int, default=None
            Rows of X that may be selected; None is all unlabelled rows.
        batch_size : int, default=1
            Number of rows to select.

        Returns
        -------
        rows : ndarray of shape (batch_size,)
        """
        values = np.asarray(y, dtype=float)
        unlabelled = np.isnan(values.reshape(len(values), -1)).any(axis=1)
        rows = np.flatnonzero(unlabelled) if candidates is None else np.asarray(candidates)
        if not len(rows):
            raise ValueError("There is no candidate: every row has a label.")
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise ValueError("candidates must be rows of X, as a list of integers.")
        if len(np.unique(rows)) < len(rows) or rows.min() < 0 or rows.max() >= len(values):
            raise ValueError(f"candidates must be different rows of X, 0 to {len(values) - 1}.")
        held_as = "estimator" if fit_reg else "estimator_"
        model = reg if isinstance(reg, _TWINS) else getattr(reg, held_as, None)
        if not isinstance(model, _TWINS):
            raise TypeError(f"reg must be a twin, or hold one as {held_as}, but is {reg!r}.")
        if fit_reg:
            # a semi-supervised twin is also fitted to the unlabelled rows
            semi_supervised = getattr(model, "loop_weight", 0) > 0
            train = np.arange(len(values)) if semi_supervised else np.flatnonzero(~unlabelled)
            weight = None if sample_weight is None else np.asarray(sample_weight)[train]
            model = clone(model).fit(safe_indexing(X, train), values[train], weight)
        selected = query(
            model,
            safe_indexing(X, rows),
            batch_size,
            strategy=self.strategy,
            diversity=self.diversity,
            metric=self.metric,
            maximize=self.maximize,
            random_state=self.random_state,
        )
        return np.asarray(rows[selected], dtype=np.intp)
