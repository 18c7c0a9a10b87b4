"""Applicability: uncertainty by a slow version, classes, and their measured statistics."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from twinned.fitted.applicability import LABELS, ApplicabilityDomain, ClassStatistics
from twinned.rows.neighbors import LearnedMetric


def make_metric(lengths, noise):
    lengths = np.asarray(lengths, dtype=float)
    zero, one = np.zeros_like(lengths), np.ones_like(lengths)
    return LearnedMetric(zero, one, lengths, noise, one)


def posterior(row, known, y, lengths, noise):
    """Mean and standard deviation of y at a row by a Gaussian process (Matérn 5/2)."""

    def kernel(first, second):
        r = np.sqrt(5) * cdist(first / lengths, second / lengths)
        return (1 + r + r**2 / 3) * np.exp(-r)

    covariance = kernel(known, known) + (noise + 1e-8) * np.eye(len(known))
    to_row = kernel(known, row[None])[:, 0]
    inverse = np.linalg.inv(covariance)
    center = inverse.sum(axis=0) @ y / inverse.sum()  # by generalized least squares
    return center + to_row @ inverse @ (y - center), np.sqrt(1 - to_row @ inverse @ to_row + noise)


@pytest.mark.parametrize("groups", [None, np.arange(20) % 4 + 7], ids=["rows", "groups"])
@given(seed=st.integers(0, 1000))
def test_scores_equal_a_gaussian_process(seed, groups):
    rng = np.random.RandomState(seed)
    known, rows = rng.normal(size=(20, 2)), 2 * rng.normal(size=(5, 2))
    known[1] = known[0]
    lengths, noise = np.array([1.0, 3.0]), 0.01
    y = rng.normal(size=20)
    domain = ApplicabilityDomain(known, known, make_metric(lengths, noise), y, groups=groups)
    codes = np.arange(20) if groups is None else groups
    others = [np.flatnonzero(codes != code) for code in codes]
    std = np.array(
        [posterior(known[i], known[o], y[o], lengths, noise)[1] for i, o in enumerate(others)]
    )
    mean = np.array(
        [posterior(known[i], known[o], y[o], lengths, noise)[0] for i, o in enumerate(others)]
    )
    squares = ((y - mean) / std) ** 2
    squares /= squares.mean()
    # fewer than 30 known rows: all are neighbors, and ten more have errors of mean size
    own = std * [np.sqrt((10 + squares[o].sum()) / (10 + len(o))) for o in others]
    expected = [posterior(row, known, y, lengths, noise)[1] for row in rows]
    expected = np.multiply(expected, np.sqrt((10 + squares.sum()) / 30))
    np.testing.assert_allclose(domain.known_scores, own / np.median(own), rtol=1e-5)
    np.testing.assert_allclose(domain.score(rows), expected / np.median(own), rtol=1e-5)


def test_rows_near_known_rows_with_large_errors_have_larger_scores():
    rng = np.random.RandomState(0)
    known = np.sort(rng.uniform(-1, 1, size=(200, 1)), axis=0)
    y = np.where(known[:, 0] > 0, 5.0, 1.0) * rng.normal(size=200)
    domain = ApplicabilityDomain(known, known, make_metric([0.3], 0.5), y)
    calm, noisy = domain.score(np.array([[-0.5], [0.5]]))
    assert 1.5 < noisy / calm < 4  # shrunk to the mean
    same = ApplicabilityDomain(known, known, make_metric([0.3], 0.5), np.column_stack([y, 9 * y]))
    np.testing.assert_allclose(same.known_scores, domain.known_scores)


def test_classes_follow_the_scores_of_known_rows():
    known = np.random.RandomState(0).normal(size=(400, 2))
    domain = ApplicabilityDomain(known, known, make_metric([0.5, 0.5], 1e-3), known[:, 0])
    share = np.bincount(domain.classify_known()) / 400
    np.testing.assert_allclose(share, [0.7, 0.275, 0.025], atol=0.01)  # but for ends of ranges
    classes = domain.classify(known, domain.score(known)).classes
    assert (classes == 0).mean() > 0.9  # each row is its own neighbor


def test_exchangeable_rows_are_classified_alike():
    rng = np.random.RandomState(1)
    known, rows = rng.uniform(size=(300, 3)), rng.uniform(size=(2000, 3))
    domain = ApplicabilityDomain(known, known, make_metric([1.0, 1.0, 1.0], 1e-2), known[:, 0])
    share = np.bincount(domain.classify(rows, domain.score(rows)).classes, minlength=3) / 2000
    np.testing.assert_allclose(share, [0.7, 0.275, 0.025], atol=0.05)
    assert domain.expected_share == pytest.approx(0.025, abs=0.01)


def test_values_beyond_the_known_ones_raise_the_class():
    rng = np.random.RandomState(0)
    known = np.column_stack([rng.uniform(size=(100, 2)), np.arange(100) % 2])
    metric = make_metric([0.5, 1e6, 1e6], 1e-2)  # only the first feature matters
    domain = ApplicabilityDomain(known, known, metric, known[:, 0], categorical=[2])
    rows = np.array(
        [[0.5, 0.5, 0], [0.5, 1.5, 0], [0.5, 3.0, 0], [1.9, 0.5, 0], [0.5, np.nan, np.nan],
         [0.5, 0.5, 7], [0.5, np.nan, 0], [np.nan, np.nan, np.nan]]
    )  # fmt: skip
    rating = domain.classify(rows, domain.score(np.nan_to_num(rows, nan=0.5)))
    labels = ["inside", "edge", "outside", "outside", *["outside"] * 4]
    assert [LABELS[i] for i in rating.classes] == labels
    assert rating.is_new.tolist() == [
        *5 * [False],
        True,
        False,
        False,
    ]


def test_missing_values_that_known_rows_have_too_do_not_raise_the_class():
    known = np.random.RandomState(0).uniform(size=(100, 2))
    known[:30, 1] = np.nan
    filled = np.nan_to_num(known, nan=0.5)
    domain = ApplicabilityDomain(known, filled, make_metric([0.5, 1e6], 1e-2), known[:, 0])
    rows = np.array([[0.5, np.nan], [np.nan, 0.5], [np.nan, np.nan]])
    classes = domain.classify(rows, domain.score(np.nan_to_num(rows, nan=0.5))).classes
    assert [LABELS[i] for i in classes] == ["inside", "outside", "outside"]  # without the first


def test_known_rows_are_classified_without_themselves():
    known = np.column_stack([np.arange(20.0), [0] * 19 + [1]])
    known[0, 0], known[18, 0] = -1000.0, np.nan
    metric = make_metric([1e6, 1e6], 1e-2)
    domain = ApplicabilityDomain(known, known, metric, np.arange(20.0), categorical=[1])
    classes = domain.classify_known()
    assert classes[0] == 2  # far below the others
    assert classes[19] == 2  # the only row of its category
    assert domain.expected_share == (np.sum(classes == 2) + 1) / 21


@pytest.mark.parametrize("n_known", [1, 2, 3, 1500])
def test_any_number_of_known_rows(n_known):
    known = np.random.RandomState(0).uniform(size=(n_known, 2))
    domain = ApplicabilityDomain(known, known, make_metric([0.3, 0.3], 1e-3), known[:, 0])
    assert len(domain.known_scores) == min(n_known, 1000)
    assert domain.score(np.array([[9.0, 9.0]]))[0] > domain.score(known[:1])[0]


def test_equal_rows_are_inside():
    known = np.ones((10, 2))
    domain = ApplicabilityDomain(known, known, make_metric([np.inf, np.inf], 0.1), np.ones(10))
    assert domain.classify(known, domain.score(known)).classes.tolist() == [0] * 10


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 9), st.booleans()), min_size=1))
def test_class_statistics_equal_a_loop(rows):
    table = pd.DataFrame(rows, columns=["label", "error", "covered"])
    found = ClassStatistics.of_rows(*(table[name].to_numpy() for name in table), 0.9)
    for label in range(3):
        own = table[table["label"] == label]
        assert found.rows[label] == len(own)
        error = np.sqrt((own["error"] ** 2).mean())
        np.testing.assert_allclose(found.error[label], error, atol=1e-12)
        np.testing.assert_allclose(found.coverage[label], own["covered"].astype(float).mean())
