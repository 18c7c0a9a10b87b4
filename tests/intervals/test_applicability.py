"""Applicability: uncertainty by a slow version, classes, and their measured statistics."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from twinned._neighbors import LearnedMetric
from twinned.intervals.applicability import LABELS, ApplicabilityDomain, ClassStatistics


def make_metric(lengths, noise):
    lengths = np.asarray(lengths, dtype=float)
    zero, one = np.zeros_like(lengths), np.ones_like(lengths)
    return LearnedMetric(zero, one, lengths, noise, one)


def posterior_std(row, known, lengths, noise):
    """Standard deviation of y at a row by a Gaussian process (Matérn 5/2) of known rows."""

    def kernel(first, second):
        r = np.sqrt(5) * cdist(first / lengths, second / lengths)
        return (1 + r + r**2 / 3) * np.exp(-r)

    covariance = kernel(known, known) + (noise + 1e-8) * np.eye(len(known))
    to_row = kernel(known, row[None])[:, 0]
    return np.sqrt(1 - to_row @ np.linalg.solve(covariance, to_row) + noise)


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_scores_equal_a_gaussian_process(seed):
    rng = np.random.RandomState(seed)
    known, rows = rng.normal(size=(20, 2)), 2 * rng.normal(size=(5, 2))
    known[1] = known[0]
    lengths, noise = np.array([1.0, 3.0]), 0.01
    domain = ApplicabilityDomain(known, known, make_metric(lengths, noise))
    own = [posterior_std(known[i], np.delete(known, i, 0), lengths, noise) for i in range(20)]
    expected = [posterior_std(row, known, lengths, noise) for row in rows]
    np.testing.assert_allclose(domain.known_scores, own / np.median(own), rtol=1e-5)
    np.testing.assert_allclose(domain.score(rows), expected / np.median(own), rtol=1e-5)


def test_classes_follow_the_scores_of_known_rows():
    known = np.random.RandomState(0).normal(size=(400, 2))
    domain = ApplicabilityDomain(known, known, make_metric([0.5, 0.5], 1e-3))
    share = np.bincount(domain.classify_known()) / 400
    np.testing.assert_allclose(share, [0.9, 0.075, 0.025])
    classes = domain.classify(known, domain.score(known))
    assert (classes == 0).all()  # each row is its own neighbor


def test_exchangeable_rows_are_classified_alike():
    rng = np.random.RandomState(1)
    known, rows = rng.uniform(size=(300, 3)), rng.uniform(size=(2000, 3))
    domain = ApplicabilityDomain(known, known, make_metric([1.0, 1.0, 1.0], 1e-2))
    share = np.bincount(domain.classify(rows, domain.score(rows)), minlength=3) / 2000
    np.testing.assert_allclose(share, [0.9, 0.075, 0.025], atol=0.04)


def test_a_feature_that_does_not_matter_is_at_most_at_the_edge():
    known = np.random.RandomState(0).uniform(size=(100, 2))
    domain = ApplicabilityDomain(known, known, make_metric([0.5, 1e6], 1e-2))
    rows = np.array([[0.5, 0.5], [0.5, 3.0], [3.0, 0.5], [0.5, np.nan]])
    classes = domain.classify(rows, domain.score(rows))
    assert [LABELS[i] for i in classes] == ["inside", "edge", "outside", "inside"]


@pytest.mark.parametrize("n_known", [2, 3, 1500])
def test_any_number_of_known_rows(n_known):
    known = np.random.RandomState(0).uniform(size=(n_known, 2))
    domain = ApplicabilityDomain(known, known, make_metric([0.3, 0.3], 1e-3))
    assert len(domain.known_scores) == min(n_known, 1000)
    assert domain.score(np.array([[9.0, 9.0]]))[0] > domain.score(known[:1])[0]


def test_equal_rows_are_inside():
    known = np.ones((10, 2))
    domain = ApplicabilityDomain(known, known, make_metric([np.inf, np.inf], 0.1))
    assert domain.classify(known, domain.score(known)).tolist() == [0] * 10


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 9), st.booleans()), min_size=1))
def test_class_statistics_equal_a_loop(rows):
    table = pd.DataFrame(rows, columns=["label", "error", "covered"])
    found = ClassStatistics.of(*(table[name].to_numpy() for name in table))
    for label in range(3):
        own = table[table["label"] == label]
        assert found.rows[label] == len(own)
        error = np.sqrt((own["error"] ** 2).mean())
        np.testing.assert_allclose(found.error[label], error, atol=1e-12)
        np.testing.assert_allclose(found.coverage[label], own["covered"].astype(float).mean())
