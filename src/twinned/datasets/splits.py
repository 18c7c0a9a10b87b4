"""Training, validation and test splits of the paper, with the author's row indices.

The paper splits the whole set 70/10/20 for neural networks and k-nearest neighbors
(`paper_split`), and the first 200 rows in halves for random forests (`forest_split`). Seeds are 0
to 24.
"""

from typing import Any

import numpy as np

PAPER_SEEDS = range(25)
"""The seeds of the paper's splits."""


def paper_split(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split n rows into 70 % training, 10 % validation and 20 % test rows, as the author did.

    Parameters
    ----------
    n : int
        Number of rows, at least 10, so that no part is empty.
    seed : int
        0 to 24 in the paper.

    Returns
    -------
    train, validation, test : ndarrays of int
        Shuffled row indices. Validation has `int(0.1 n)`, test `int(0.2 n)`, training the rest.

    Examples
    --------
    >>> train, validation, test = paper_split(308, seed=0)
    >>> train.size, validation.size, test.size
    (217, 30, 61)
    """
    n, seed = _check_rows_and_seed("n", n, 10, seed)
    # The author's permutation, without a change of the global generator of np.random.
    order = np.random.RandomState(seed).permutation(n)
    n_validation, n_test = int(0.1 * n), int(0.2 * n)
    n_train = n - n_validation - n_test
    return order[:n_train], order[n_train : n_train + n_validation], order[n_train + n_validation :]


def forest_split(seed: int, n_rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Split the first rows of a data set in halves, as the author's random forests do.

    According to the paper, 100 training and 100 test points are drawn at random; the author's
    code splits the FIRST 200 rows.

    Parameters
    ----------
    seed : int
        0 to 24 in the paper.
    n_rows : int, default=200
        Number of first rows to split, at least 2.

    Returns
    -------
    train, test : ndarrays of int
        Shuffled row indices below `n_rows`.

    Examples
    --------
    >>> train, test = forest_split(seed=0)
    >>> train.size, test.size, int(max(train.max(), test.max()))
    (100, 100, 199)
    """
    # Imported here because `twinned datasets list` does not need scikit-learn.
    from sklearn.model_selection import train_test_split

    n_rows, seed = _check_rows_and_seed("n_rows", n_rows, 2, seed)
    train, test = train_test_split(np.arange(n_rows), test_size=0.5, random_state=seed)
    return train, test


def _check_rows_and_seed(name: str, n_rows: Any, minimum: int, seed: Any) -> tuple[int, int]:
    from twinned.rows.validation import check_integer  # imports scikit-learn

    n_rows, seed = check_integer(name, n_rows, minimum), check_integer("seed", seed, minimum=0)
    if seed >= 2**32:
        raise ValueError(f"seed must be below 2**32, not {seed}.")
    return n_rows, seed
