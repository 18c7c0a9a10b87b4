"""Correlations of errors and normal draws, against slow versions."""

import numpy as np
import pytest

from twinned.fitted.prediction import JointPrediction, error_correlation, probability_positive
from twinned.rows.neighbors import LearnedMetric, MetricProcess
from twinned.rows.schema import TableSchema

SCHEMA = TableSchema.all_numeric(2)
METRIC = LearnedMetric(np.full(2, 0.5), np.ones(2), np.array([0.3, 2.0]), 0.05, np.ones(2))


def features(n_rows=6, n_functions=4, seed=0):
    rng = np.random.RandomState(seed)
    deviations, rows, known = (
        rng.normal(size=(n_rows, n_functions)),
        rng.uniform(size=(n_rows, 2)),
        rng.uniform(size=(9, 2)),
    )
    deviations[-1] = 0.0
    process = MetricProcess(known, METRIC, SCHEMA)
    return deviations, rows, known, error_correlation(deviations, process.correlation(rows))


def matern(a, b):
    r = np.sqrt(5.0 * sum(((a - b) / METRIC.length_scales) ** 2))
    return (1 + r + r**2 / 3) * np.exp(-r)


def test_correlation_is_the_mean_of_anchors_process_and_independence():
    deviations, rows, known, found = features()
    every = [*known, *rows]
    prior = np.array([[matern(a, b) for b in every] for a in every])
    k = len(known)
    inverse = np.linalg.inv(prior[:k, :k] + (METRIC.noise + 1e-8) * np.eye(k))
    process = prior[k:, k:] - prior[k:, :k] @ inverse @ prior[:k, k:]
    process += METRIC.noise * np.eye(len(rows))
    process /= np.sqrt(np.outer(np.diag(process), np.diag(process)))
    anchors = np.zeros((len(rows), len(rows)))
    for i in range(len(rows) - 1):  # the last row has no deviations
        for j in range(len(rows) - 1):
            a, b = deviations[i], deviations[j]
            anchors[i, j] = a @ b / np.sqrt((a @ a) * (b @ b))
    expected = (anchors + process + np.eye(len(rows))) / 3
    np.fill_diagonal(expected, 1.0)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert np.linalg.eigvalsh(found).min() > 0


def test_samples_have_the_stated_moments():
    correlation = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, -0.5], [0.0, -0.5, 1.0]])
    joint = JointPrediction(np.array([1.0, 2.0, -3.0]), np.array([0.5, 2.0, 1.0]), correlation)
    samples = joint.sample(100_000, np.random.RandomState(0))
    np.testing.assert_allclose(samples.mean(axis=0), joint.mean, atol=0.03)
    np.testing.assert_allclose(samples.std(axis=0), joint.std, rtol=0.01)
    np.testing.assert_allclose(np.corrcoef(samples.T), correlation, atol=0.01)


@pytest.mark.parametrize(("mean", "expected"), [(-1.0, 0.0), (0.0, 0.5), (1.0, 1.0)])
def test_probability_without_deviation_is_certain(mean, expected):
    assert probability_positive(np.array([mean]), np.zeros(1)) == expected
