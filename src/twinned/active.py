"""Active learning and optimization: selection of the points to label next.

To learn a function, a score rates the use of a label at each point of a pool. A batch is selected
greedily: the next point has the largest score × gap ** diversity, where the gap is the distance to
the nearest point that is labelled or already selected. This avoids batches of nearly identical
points.

To find the best point, expected improvement is computed exactly for a single row. A batch is
selected greedily by joint samples: the next row is the one that improves most on the best value of
each sample, which is the best known one or that of a row that is pending or already selected.
Thompson sampling selects the best row of each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from scipy.special import erfcx, ndtr
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned._compat import safe_indexing
from twinned.estimators.base import BaseTwin
from twinned.estimators.pipelines import Transform, unwrap
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor
from twinned.fitted.sampling import JointPrediction, predict_error, predict_jointly
from twinned.fitted.twin import FittedTwin
from twinned.models.resources import limit_threads, row_blocks
from twinned.rows.folds import distinct_rows
from twinned.rows.neighbors import LEARNED, Indices, LearnedMetric, NeighborIndex
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats
from twinned.rows.validation import check_bool, check_choice, check_integer, check_real, count_rows

_N_REFERENCES = 64  # points of the pool at which the effect of a label is computed
_N_LABELS = 32  # possible values of that label
_BLOCK_ROWS = 256  # candidates at once against all references
_BLOCK_ESTIMATES = 65_536  # estimates at once, of all anchors of a block of candidates
_N_SAMPLES = 2000  # by which the improvement of a batch is computed
_MAX_CANDIDATES = 2000  # of which joint samples are drawn: those of the largest improvement

IMPROVEMENT, THOMPSON = ACQUISITIONS = ("improvement", "thompson")


def query(
    model: BaseEstimator,
    X_pool: ArrayLike,
    n: int = 1,
    *,
    strategy: str = "uncertainty",
    diversity: float = 1.0,
    metric: str = "euclidean",
    maximize: bool = True,
    pending: ArrayLike | None = None,
    best: float | None = None,
    batch: str | None = None,
    random_state: int | np.random.RandomState | None = None,
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
        anchors' estimates; `"inconsistency"` of loops through it; `"change"`, the expected change
        of other predictions if it were labelled; or `"difference"`, the distance of its predicted
        value from every known one. To find the best y: `"improvement"`, the rows whose best value
        has the largest expected improvement on the best known one, one after the other; or
        `"thompson"`, the best row of each of n joint samples. Both select no row that is an anchor
        or pending.
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
    batch : str, default=None
        Batch in which the rows will be measured, for a model with batches and a value of `best`.
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
    check_choice("strategy", strategy, [*SCORES, *ACQUISITIONS])
    n = check_integer("n", n)
    if n > (n_pool := count_rows(X_pool)):
        raise ValueError(f"n={n} exceeds the {n_pool} rows of the pool.")
    check_bool("maximize", maximize)
    rng = check_random_state(random_state)
    queries = twin.encode(X_pool, batch=batch)
    waiting = queries.matrix[:0] if pending is None else twin.encode(pending).matrix
    if strategy in ACQUISITIONS:
        with limit_threads(twin.n_jobs):
            return _select_best(twin, queries, waiting, n, strategy, maximize, best, rng)
    power = check_real("diversity", diversity)
    if power < 0:
        raise ValueError(f"diversity must not be negative, but is {diversity!r}.")
    check_choice("metric", metric, ["euclidean", LEARNED])
    score = SCORES[strategy](twin, X_pool, rng)
    if score.ndim == 2:  # the mean over outputs, each divided by the standard deviation of its y
        std = twin.anchors_y_.std(axis=0)
        score = (score / np.where(std > 0, std, 1.0)).mean(axis=1)
    learned = twin.fitted_.anchors.metric if metric == LEARNED and power else None
    measured = _measured_features(twin.fitted_, waiting)
    return select_batch(score, queries.encode().features, measured, n, power, learned)


def _unwrap(model: BaseEstimator) -> tuple[BaseTwin, Transform]:
    """The fitted twin inside a model, and the transformation of the rows for it."""
    twin, transform = unwrap(model)
    if not isinstance(twin, BaseTwin | SemiSupervisedTwinRegressor):
        raise TypeError(f"model must be a twin, not {twin!r}.")
    check_is_fitted(twin)
    return twin.twin_ if isinstance(twin, SemiSupervisedTwinRegressor) else twin, transform


def _measured_features(fitted: FittedTwin, waiting: Floats) -> Floats:
    """(row, encoded feature): measured rows and, after them, those that are being measured."""
    features = fitted.queries(waiting).encode().features
    return np.concatenate([fitted.anchors.measured_features, features])


def select_batch(
    score: Floats,
    pool: Floats,
    measured: Floats,
    n: int,
    diversity: float,
    learned: LearnedMetric | None = None,
) -> Indices:
    """Return n rows of `pool`, greedily by score × gap ** diversity.

    Features are standardized, unless a learned metric scales them; a missing value counts as the
    mean.

    >>> pool, measured = np.array([[0.0], [0.1], [9.0]]), np.array([[4.0]])
    >>> select_batch(np.array([1.0, 1.1, 0.9]), pool, measured, 2, diversity=0.0)
    array([1, 0])
    >>> select_batch(np.array([1.0, 1.1, 0.9]), pool, measured, 2, diversity=1.0)
    array([2, 1])
    """
    metric = learned or StandardScaling.fit(np.concatenate([pool, measured]))
    pool, measured = metric.transform(pool), metric.transform(measured)
    gap = NeighborIndex(measured).kneighbors(pool, 1)[1][:, 0] if diversity else np.ones(len(pool))
    selected: list[int] = []
    for _ in range(n):
        value = score * gap**diversity
        value[selected] = -np.inf
        selected.append(int(np.argmax(value)))
        if diversity:
            gap = np.minimum(gap, cdist(pool, pool[selected[-1:]])[:, 0])
    return np.array(selected, dtype=np.intp)


def _change(twin: BaseTwin, X: ArrayLike, rng: np.random.RandomState) -> Floats:
    """E|F(q, x) + y_x − ŷ(q)| over references q of the pool, with y_x from the anchors of x.

    The twin is not refitted: with one anchor more, its mean changes by this over n + 1.
    """
    n_pool = count_rows(X)
    references = np.sort(rng.choice(n_pool, min(_N_REFERENCES, n_pool), replace=False))
    predicted = twin.predict(safe_indexing(X, references))
    out = np.empty((n_pool, *predicted.shape[1:]))
    for block in row_blocks(n_pool, _BLOCK_ROWS):
        rows = np.arange(block.start, block.stop)
        labels = twin.predict_anchors(safe_indexing(X, rows))[1]
        labels = labels[:, rng.choice(labels.shape[1], min(_N_LABELS, labels.shape[1]))]
        differences = twin.predict_difference(
            safe_indexing(X, np.tile(references, len(rows))),
            safe_indexing(X, np.repeat(rows, len(references))),
        ).reshape(len(rows), len(references), *predicted.shape[1:])
        changes = (differences - predicted)[:, :, None] + labels[:, None]
        out[rows] = np.abs(changes).mean(axis=(1, 2))
    return out


def _difference(twin: BaseTwin, X: ArrayLike, rng: np.random.RandomState) -> Floats:
    """Smallest |F(x, a)| over all anchors a: the distance of x from every known value."""
    scores = []
    for rows in row_blocks(count_rows(X), max(1, _BLOCK_ESTIMATES // len(twin.anchors_y_))):
        indices, estimates = twin.predict_anchors(safe_indexing(X, rows))
        scores.append(np.abs(estimates - twin.anchors_y_[indices]).min(axis=1))
    return np.concatenate(scores)


# Each returns scores of shape (n_pool,) or (n_pool, n_outputs).
SCORES: dict[str, Callable[[BaseTwin, ArrayLike, np.random.RandomState], Floats]] = {
    "uncertainty": lambda twin, X, rng: twin.predict(X, return_std=True)[1],
    "inconsistency": lambda twin, X, rng: twin.loop_inconsistency(X, random_state=rng),
    "change": _change,
    "difference": _difference,
}


# --- acquisition functions: which rows to measure next to find the best value of y ---------------


def _select_best(twin, queries, waiting, n, strategy, maximize, best, rng):
    """Return the n queries to measure next, in order; `waiting` are encoded rows. See `query`."""
    sign, fitted = 1.0 if maximize else -1.0, twin.fitted_
    if best is not None:  # without the offset of the batch, as the known values are
        offset = 0.0 if queries.offset is None else queries.offset[0]
        best = check_real("best", best) - offset
    queries = fitted.queries(queries.matrix)
    mean, std = predict_error(fitted, queries, twin.calibration_)
    best_y = np.max(sign * twin.anchors_y_) if best is None else sign * best
    score = log_expected_improvement(sign * mean, std, best_y)
    is_new = _find_new(_measured_features(fitted, waiting), queries.encode().features)
    if n > is_new.sum():
        new = f"{is_new.sum()} different rows of the pool that are neither known nor pending"
        raise ValueError(f"n={n} exceeds the {new}.")
    order = np.argsort(-score, kind="stable")
    candidates = order[is_new[order]]
    first = [] if len(waiting) else [0]  # whose improvement is known exactly
    if n == 1 and first and strategy == IMPROVEMENT:
        return candidates[:1]
    candidates = candidates[: max(n, _MAX_CANDIDATES)]
    matrix = np.concatenate([queries.matrix[candidates], waiting])
    joint = predict_jointly(fitted, fitted.queries(matrix), twin.calibration_)
    joint = JointPrediction(sign * joint.mean, joint.std, joint.correlation)
    samples = joint.sample(n if strategy == THOMPSON else _N_SAMPLES, rng)
    samples, of_waiting = np.split(samples, [len(candidates)], axis=1)
    if strategy == THOMPSON:
        return candidates[best_of_samples(samples)]
    # where no sample improves, candidates come in the order of their own expected improvement
    return candidates[improve_in_turn(samples, of_waiting.max(axis=1, initial=best_y), n, first)]


def _find_new(measured: Floats, pool: Floats) -> NDArray[np.bool_]:
    """(row,): whether a row of the pool differs from measured and earlier rows."""
    rows = np.concatenate([measured, pool])
    return np.isin(np.arange(len(measured), len(rows)), distinct_rows(rows)[0])


def log_expected_improvement(mean: Floats, std: Floats, best: float) -> Floats:
    """(row,): logarithm of the expected excess of normal variables over a value.

    >>> np.exp(log_expected_improvement(np.array([0.0, 2.0]), np.array([1.0, 0.0]), 0.0)).round(3)
    array([0.399, 2.   ])
    """
    std = np.maximum(std, 1e-12 * (1.0 + np.abs(mean - best)))
    z = (mean - best) / std
    log_density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    # below, density and probability underflow; their ratio does not, and needs no more than 1e4
    low, high = np.clip(z, -1e4, 0.0), np.maximum(z, 0.0)
    below = log_density + np.log1p(low * np.sqrt(np.pi / 2) * erfcx(-low / np.sqrt(2)))
    above = np.log(np.exp(-0.5 * high**2) / np.sqrt(2 * np.pi) + high * ndtr(high))
    return np.log(std) + np.where(z > 0, above, below)


def improve_in_turn(samples: Floats, reached: Floats, n: int, first: Sequence[int] = ()) -> Indices:
    """Return n columns of (sample, row) samples, greedily by the mean improvement on `reached`.

    `reached` (sample,) is the best value so far. The columns `first` come first. Equal rows come in
    order.

    >>> samples = np.array([[3.0, 2.9, 0.0], [0.0, 0.0, 1.0]])
    >>> improve_in_turn(samples, np.zeros(2), 2)
    array([0, 2])
    """
    selected: list[int] = []
    for i in range(n):
        gain = np.maximum(samples - reached[:, None], 0.0).mean(axis=0)
        gain[selected] = -1.0
        selected.append(first[i] if i < len(first) else int(np.argmax(gain)))
        reached = np.maximum(reached, samples[:, selected[-1]])
    return np.array(selected, dtype=np.intp)


def best_of_samples(samples: Floats) -> Indices:
    """Return the best column of each sample that is not the best of an earlier one.

    >>> best_of_samples(np.array([[1.0, 5.0, 2.0], [1.0, 9.0, 3.0]]))
    array([1, 2])
    """
    selected: list[int] = []
    for sample in samples.copy():
        sample[selected] = -np.inf
        selected.append(int(np.argmax(sample)))
    return np.array(selected, dtype=np.intp)
