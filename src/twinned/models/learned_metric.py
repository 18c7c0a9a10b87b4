"""The learned metric: distances in which features count by their effect on y.

It multiplies each standardized feature by the square root of its inverse length scale in a
Gaussian process: features of any unit can be compared, and those that do not matter count little.
The square root is a compromise between standardized features and the metric of the process, in
which a feature with a linear effect hardly counts (`benchmarks/anchors/learned_metric.py`). For the
same reason, the relevance of a feature for y is not its length scale but its slope.
"""

import joblib
import numpy as np

from twinned.models.gaussian_process import fit_gaussian_process
from twinned.models.resources import limit_threads
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats, TableSchema

MAX_ROWS = 500  # of which the length scales are learned
_EXPONENT = 0.5  # of the inverse length scales
# Of factors whose mean square is 1: what looks irrelevant in few rows still counts a little.
_LEAST_FACTOR = 0.02


def learn_metric(
    features: Floats,
    y: Floats,
    sample_weight: Floats | None = None,
    *,
    max_rows: int = MAX_ROWS,
    similar: LearnedMetric | None = None,
) -> LearnedMetric:
    """Learn a metric by a Gaussian process (Matérn 5/2).

    Parameters
    ----------
    features : ndarray of shape (n, n_encoded)
        Numeric features and indicators of categories; a missing value counts as the mean.
    y : ndarray of shape (n,) or (n, n_outputs)
        Target values; several outputs share the metric.
    sample_weight : ndarray of shape (n,), default=None
        Weights of the rows.
    max_rows : int, default=500
        Number of rows of which the length scales are learned; of more rows, a fixed random subset.
    similar : LearnedMetric, default=None
        The metric of nearly the same rows, which makes learning faster.

    Returns
    -------
    LearnedMetric

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> X = rng.uniform(size=(80, 3)) * [1.0, 1000.0, 1.0]  # the third does not matter
    >>> metric = learn_metric(X, np.sin(6 * X[:, 0]) + 0.001 * X[:, 1])
    >>> factor = metric.scale * X.std(axis=0)
    >>> bool(factor[0] > factor[1] > factor[2])
    True
    """
    scaling = StandardScaling.fit(features)
    rows = scaling.fill(features)
    # so few rows gain nothing from threads, which take many times as long where no core is free
    with limit_threads(1):
        process = fit_gaussian_process(
            rows, y, sample_weight=sample_weight, max_rows=max_rows, similar=similar, random_state=0
        )
    factor = metric_factors((scaling.scale / process.length_scales) ** _EXPONENT)
    return LearnedMetric(
        center=scaling.center,
        scale=factor / np.where(scaling.varying, scaling.scale, 1.0),
        length_scales=process.length_scales,
        noise=process.noise,
        slopes=scaling.scale * process.root_mean_square_slopes(),
    )


class MetricCache:
    """`learn_metric` that learns from equal rows once.

    >>> X, learn = np.random.RandomState(0).uniform(size=(30, 2)), MetricCache()
    >>> learn(X, X[:, :1], np.ones(30)) is learn(X.copy(), X[:, :1], np.ones(30))
    True
    """

    def __init__(self) -> None:
        self._metrics: dict[str, LearnedMetric] = {}

    def __call__(self, *rows: Floats, similar: LearnedMetric | None = None) -> LearnedMetric:
        """Return the learned metric of features, y and weights."""
        key = joblib.hash((rows, similar))
        if key not in self._metrics:
            self._metrics[key] = learn_metric(*rows, similar=similar)
        return self._metrics[key]


def metric_factors(inverse_lengths: Floats) -> Floats:
    """Factors of features, whose mean square is 1, from inverse length scales.

    None is less than 0.02, except those of constant features, which are 0.

    >>> metric_factors(np.array([7.0, 1.0, 0.0]))
    array([1.4, 0.2, 0. ])
    """
    varying = inverse_lengths > 0
    if not varying.any():
        return inverse_lengths
    factor = inverse_lengths / np.sqrt(np.mean(inverse_lengths[varying] ** 2))
    return np.where(varying, np.maximum(factor, _LEAST_FACTOR), 0.0)


def feature_relevance(metric: LearnedMetric, schema: TableSchema) -> Floats:
    """(feature,) relevance of the features of a table: their slopes, which sum to 1.

    That of a categorical feature is the root of the sum of squares over its indicators, and an
    indicator of missing values counts with its feature.

    >>> schema = TableSchema(["categorical", "numeric"], [["a", "b"], []], [2, 0])
    >>> slopes = np.array([1.0, 1.2, 1.6])  # the numeric feature is encoded first
    >>> feature_relevance(LearnedMetric(slopes, slopes, slopes, 0.0, slopes), schema)
    array([0.66666667, 0.33333333])
    """
    indicators = [j for j in schema.categorical for _ in range(schema.n_indicators[j])]
    features = [*schema.numeric, *indicators, *schema.marked]  # of the slopes
    relevance = np.sqrt(np.bincount(features, metric.slopes**2, schema.n_features))
    total = relevance.sum()
    return relevance / total if total > 0 else np.full(len(relevance), 1.0 / len(relevance))
