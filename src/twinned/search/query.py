"""`query`: rows of a pool to label or measure next.

To learn a function, the score of a row is the standard deviation of its prediction. A batch is
selected greedily: the next row has the largest score × gap ** diversity, where the gap is the
distance to the nearest row that is labelled or already selected. This avoids batches of nearly
identical rows.

To find the best row, expected improvement is computed exactly for a single row. A batch is
selected greedily by joint samples: the next row is the one that improves most on the best value of
each sample, which is the best known one or that of a row that is pending or already selected.
Thompson sampling selects the best row of each sample.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from scipy.special import erfcx, ndtr
from sklearn.utils import check_random_state

from twinned.estimators.pipelines import unwrap
from twinned.fitted.prediction import JointPrediction, Prediction
from twinned.fitted.twin import FittedTwin
from twinned.models.resources import limit_threads
from twinned.rows.folds import distinct_rows
from twinned.rows.neighbors import Indices, NeighborIndex
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats
from twinned.rows.validation import check_bool, check_choice, check_integer, check_real
from twinned.search.forward import known_values, predict_in_batch, require_twin

_N_SAMPLES = 2000  # by which the improvement of a batch is computed
_MAX_CANDIDATES = 2000  # of which joint samples are drawn: those of the largest improvement

UNCERTAINTY, IMPROVEMENT, THOMPSON = STRATEGIES = ("uncertainty", "improvement", "thompson")


def query(
    model: object,
    X_pool: ArrayLike,
    n: int = 1,
    *,
    strategy: str = UNCERTAINTY,
    diversity: float = 1.0,
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
        Any twin or blend of one target, also of a transformed one, or a pipeline that ends with
        one. The improvement of a transformed target is that of the fitted values.
    X_pool : table or array of shape (n_pool, n_features)
        Rows without a label.
    n : int, default=1
        Number of rows to select.
    strategy : {"uncertainty", "improvement", "thompson"}, default="uncertainty"
        To learn y everywhere: `"uncertainty"`, the standard deviation of the prediction. To find
        the best y: `"improvement"`, the rows whose best value has the largest expected improvement
        on the best known one, one after the other; or `"thompson"`, the best row of each of n joint
        samples. Both select no row that is an anchor or pending.
    diversity : float, default=1.0
        Power of the distance to labelled, pending and selected rows, Euclidean on standardized
        features; 0 selects the n largest standard deviations. Only for `"uncertainty"`.
    maximize : bool, default=True
        Whether the largest y is the best, or the smallest. Only for strategies to find it.
    pending : table or array of shape (n_pending, n_features), default=None
        Rows that are being measured: batches avoid them as if they were selected already.
    best : float, default=None
        The value to improve on; None is the best of the anchors.
    batch : str, default=None
        Batch in which the rows will be measured, for a model with batches. Predictions and known
        values are those in this batch.
    random_state : int, RandomState or None, default=None
        For the strategies that draw samples.

    Returns
    -------
    rows : ndarray of shape (n,)

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TwinRegressor, query
    >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
    >>> query(twin, [[0.9], [5.0], [5.1], [-4.0]], 2)
    array([3, 2])
    >>> query(twin, [[0.9], [5.0], [5.1], [-4.0]], strategy="improvement", random_state=0)
    array([2])
    """
    check_choice("strategy", strategy, STRATEGIES)
    check_bool("maximize", maximize)
    last_step, transform = unwrap(model)
    twin = require_twin(last_step)
    fitted = twin.fitted_
    if batch is None:
        fitted.warn_without_batch()
    rows = twin.validate_queries(transform(X_pool)).matrix
    n = check_integer("n", n)
    if n > len(rows):
        raise ValueError(f"n={n} exceeds the {len(rows)} rows of the pool.")
    pending_rows = rows[:0] if pending is None else twin.validate_queries(transform(pending)).matrix
    features = fitted.queries(rows).encode().features
    pending_features = fitted.queries(pending_rows).encode().features
    measured = np.concatenate([fitted.anchors.measured_features, pending_features])
    if strategy == UNCERTAINTY:
        if (power := check_real("diversity", diversity)) < 0:
            raise ValueError(f"diversity must not be negative, but is {diversity!r}.")
        return select_batch(_uncertainty(fitted, rows, batch), features, measured, n, power)
    sign = 1.0 if maximize else -1.0
    best_y = sign * np.max(sign * known_values(fitted, batch))
    if best is not None:
        best_y = check_real("best", best)
    with limit_threads(twin.n_jobs):
        return _select_best(
            partial(predict_in_batch, fitted, batch=batch),
            rows,
            pending_rows,
            n,
            is_new=_find_new(measured, features),
            best=float(fitted.target.apply(np.array(best_y))),
            sign=sign,
            strategy=strategy,
            rng=check_random_state(random_state),
        )


def _uncertainty(fitted: FittedTwin, rows: Floats, batch: str | None) -> Floats:
    """(row,): standard deviations, means over outputs in units of the deviation of their y."""
    std = predict_in_batch(fitted, rows, batch).std
    if std.ndim == 1:
        return std
    unit = fitted.anchors.y.std(axis=0)
    return np.mean(std / np.where(unit > 0, unit, 1.0), axis=1)


def select_batch(
    score: Floats, pool: Floats, measured: Floats, n: int, diversity: float
) -> Indices:
    """Return n rows of `pool`, greedily by score × gap ** diversity.

    Features are standardized; a missing value counts as the mean.

    >>> pool, measured = np.array([[0.0], [0.1], [9.0]]), np.array([[4.0]])
    >>> select_batch(np.array([1.0, 1.1, 0.9]), pool, measured, 2, diversity=0.0)
    array([1, 0])
    >>> select_batch(np.array([1.0, 1.1, 0.9]), pool, measured, 2, diversity=1.0)
    array([2, 1])
    """
    scaling = StandardScaling.fit(np.concatenate([pool, measured]))
    pool, measured = scaling.transform(pool), scaling.transform(measured)
    gap = NeighborIndex(measured).kneighbors(pool, 1)[1][:, 0] if diversity else np.ones(len(pool))
    selected: list[int] = []
    for _ in range(n):
        value = score * gap**diversity
        value[selected] = -np.inf
        selected.append(int(np.argmax(value)))
        if diversity:
            gap = np.minimum(gap, cdist(pool, pool[selected[-1:]])[:, 0])
    return np.array(selected, dtype=np.intp)


# --- which rows to measure next to find the best value of y ---------------------------------------


def _select_best(
    predict: Callable[[Floats], Prediction],
    rows: Floats,
    pending_rows: Floats,
    n: int,
    *,
    is_new: NDArray[np.bool_],
    best: float,
    sign: float,
    strategy: str,
    rng: np.random.RandomState,
) -> Indices:
    """Return the n of the encoded rows (row, feature) to measure next, in order.

    `is_new` (row,) are those to select from, and `best` is the fitted value to improve on. `sign`
    is −1 where the smallest y is the best.
    """
    if n > is_new.sum():
        new = f"{is_new.sum()} different rows of the pool that are neither known nor pending"
        raise ValueError(f"n={n} exceeds the {new}.")
    prediction = predict(rows)
    mean, std = sign * prediction.location, prediction.error_std
    order = np.argsort(-log_expected_improvement(mean, std, sign * best), kind="stable")
    candidates = order[is_new[order]]
    first = [] if len(pending_rows) else [0]  # whose improvement is known exactly
    if n == 1 and first and strategy == IMPROVEMENT:
        return candidates[:1]
    candidates = candidates[: max(n, _MAX_CANDIDATES)]
    joint = predict(np.concatenate([rows[candidates], pending_rows])).joint
    joint = JointPrediction(sign * joint.mean, joint.std, joint.correlation)
    samples = joint.sample(n if strategy == THOMPSON else _N_SAMPLES, rng)
    samples, pending_samples = np.split(samples, [len(candidates)], axis=1)
    if strategy == THOMPSON:
        return candidates[best_of_samples(samples)]
    # where no sample improves, candidates come in the order of their expected improvement
    reached = pending_samples.max(axis=1, initial=sign * best)
    return candidates[improve_in_turn(samples, reached, n, first)]


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
