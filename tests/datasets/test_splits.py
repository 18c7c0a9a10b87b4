"""Splits of the paper: equal to the author's."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from twinned.datasets import (
    PAPER_SEEDS,
    STANDARD_KEYS,
    STANDARD_SPLITS,
    forest_split,
    info,
    paper_split,
    standard_split,
)

# Sizes of all data sets, for the rounding of int(0.1 n).
SIZES = [info(key).rows for key in ("BC", "BH", "CS", "EE", "RCL", "TF", "WN", "WSB", "YH")]


@pytest.mark.parametrize("n", SIZES)
def test_paper_split_is_the_authors_own(n):
    assert list(PAPER_SEEDS) == list(range(25))
    for seed in PAPER_SEEDS:
        np.random.seed(seed)  # noqa: NPY002 - the author's code
        order = np.random.permutation(n)  # noqa: NPY002
        n_validation, n_test = int(0.1 * n), int(0.2 * n)
        first, second = n - n_validation - n_test, n - n_test
        train, validation, test = paper_split(n, seed)
        np.testing.assert_array_equal(train, order[:first])
        np.testing.assert_array_equal(validation, order[first:second])
        np.testing.assert_array_equal(test, order[second:])
        np.testing.assert_array_equal(
            np.sort(np.concatenate([train, validation, test])), np.arange(n)
        )


def test_splits_do_not_change_the_global_generator():
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    paper_split(100, 3)
    forest_split(3)
    standard_split(100, 3)
    np.testing.assert_array_equal(np.random.random(3), expected)  # noqa: NPY002


def test_seeds_give_different_splits():
    tests = {tuple(np.sort(paper_split(200, seed)[2])) for seed in PAPER_SEEDS}
    assert len(tests) == 25


def test_forest_split_is_train_test_split_of_the_first_rows():
    rows = np.arange(200)
    for seed in PAPER_SEEDS:
        expected = train_test_split(rows, test_size=0.5, random_state=seed)
        train, test = forest_split(seed)
        np.testing.assert_array_equal(train, expected[0])
        np.testing.assert_array_equal(test, expected[1])
        assert train.size == test.size == 100
    train, test = forest_split(0, n_rows=11)
    assert sorted([*train, *test]) == list(range(11))


@pytest.mark.parametrize("n", [0, 9, -5])
def test_too_few_rows_are_refused(n):
    with pytest.raises(ValueError, match=f"n must be at least 10, not {n}"):
        paper_split(n, 0)
    train, validation, test = paper_split(10, 0)
    assert (train.size, validation.size, test.size) == (7, 1, 2)
    with pytest.raises(ValueError, match="n_rows must be at least 2, not 1"):
        forest_split(0, n_rows=1)


@pytest.mark.parametrize(
    ("seed", "error"),
    [(-1, ValueError), (2**32, ValueError), (1.0, TypeError), (None, TypeError), (True, TypeError)],
)
def test_invalid_seeds_are_refused(seed, error):
    for split in (lambda: paper_split(100, seed), lambda: forest_split(seed)):
        with pytest.raises(error, match="seed") as caught:
            split()
        assert str(seed) in str(caught.value)


@pytest.mark.parametrize("key", STANDARD_KEYS)
def test_standard_splits_are_those_of_the_repository(key):
    n = info(key).rows
    np.random.seed(1)  # noqa: NPY002 - split_data_train_test.py of the repository
    for split in STANDARD_SPLITS:
        order = np.random.choice(range(n), n, replace=False)  # noqa: NPY002
        train, test = standard_split(n, split)
        np.testing.assert_array_equal(train, order[: round(n * 9.0 / 10)])
        np.testing.assert_array_equal(test, order[round(n * 9.0 / 10) :])


def test_first_test_rows_of_the_standard_splits():
    # index_test_0.txt and index_test_19.txt of the yachts in the repository
    assert standard_split(308, 0)[1][:5].tolist() == [121, 115, 286, 216, 264]
    assert standard_split(308, 19)[1][:5].tolist() == [74, 54, 250, 21, 71]


@pytest.mark.parametrize(("split", "error"), [(20, ValueError), (-1, ValueError), (1.0, TypeError)])
def test_invalid_numbers_of_standard_splits_are_refused(split, error):
    with pytest.raises(error, match="split") as caught:
        standard_split(308, split)
    assert str(split) in str(caught.value)
