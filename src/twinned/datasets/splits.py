"""The paper's 25 splits, index for index.

The neural networks and k-nearest neighbors split the whole set 70/10/20 (`paper_split`); the
random forests split its first 200 rows in halves (`forest_split`). Seeds are 0 to 24.
"""

import numpy as np

from twinned.datasets._checks import check_count, check_seed

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
    n = check_count(n, "n", minimum=10)
    # A generator of our own gives the author's permutation and leaves np.random's alone.
    order = np.random.RandomState(check_seed(seed)).permutation(n)
    n_validation, n_test = int(0.1 * n), int(0.2 * n)
    n_train = n - n_validation - n_test
    return order[:n_train], order[n_train : n_train + n_validation], order[n_train + n_validation :]


def forest_split(seed: int, n_rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Split the first rows of a data set in halves, as the author's random forests do.

    The paper says that 100 training and 100 test points are drawn at random; the code takes
    the FIRST 200 rows and splits those.

    Parameters
    ----------
    seed : int
        0 to 24 in the paper.
    n_rows : int, default=200
        How many rows from the top to split, at least 2.

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
    # Imported here, because the command line lists the data sets without needing scikit-learn.
    from sklearn.model_selection import train_test_split

    seed = check_seed(seed)
    rows = np.arange(check_count(n_rows, "n_rows", minimum=2))
    train, test = train_test_split(rows, test_size=0.5, random_state=seed)
    return train, test
