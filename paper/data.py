"""Rows of the paper's splits, and the error measure."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned.datasets import forest_split, load, paper_split
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

Points = tuple[Floats, Floats]  # X and y


def load_arrays(dataset: str) -> Points:
    """Return X and y of a data set as arrays."""
    table, values = load(dataset)
    return table.to_numpy(), values.to_numpy()


def split_rows(dataset: str, split: int) -> tuple[Points, Points, Points]:
    """Return training (70 %), validation (10 %) and test points (20 %)."""
    X, y = load_arrays(dataset)
    train, validation, test = ((X[rows], y[rows]) for rows in paper_split(len(y), split))
    return train, validation, test


def training_and_test_rows(dataset: str, split: int) -> tuple[Points, Points]:
    """Return training (80 %: those of training and validation) and test points (20 %)."""
    (X, y), (X_val, y_val), test = split_rows(dataset, split)
    return (np.concatenate([X, X_val]), np.concatenate([y, y_val])), test


def forest_rows(dataset: str, split: int, random: bool = False) -> tuple[Points, Points]:
    """Return 100 training and 100 test points: of the first 200, as the author's code; or random.

    Random rows are those of the paper's text.
    """
    X, y = load_arrays(dataset)
    train, test = forest_indices(len(y), split, random)
    return (X[train], y[train]), (X[test], y[test])


def forest_indices(n_rows: int, split: int, random: bool = False) -> tuple[Indices, Indices]:
    """Return the indices of the training and of the test points of the forests.

    >>> train, test = forest_indices(1000, 0, random=True)
    >>> len(train), len(test), len(set(train) | set(test))
    (100, 100, 200)
    """
    if not random:
        return forest_split(split)
    order = np.random.RandomState(split).permutation(n_rows)
    return order[:100], order[100:200]


def rmse(predicted: Any, y: Any) -> float:
    """Return the root of the mean squared error."""
    return float(np.sqrt(np.mean((np.ravel(predicted) - y) ** 2)))
