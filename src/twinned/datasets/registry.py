"""Records of the nine data sets, and the paper's splits, with the author's row indices.

`records.toml` has the source and the file format of each, and differences from the paper. The paper
splits the whole set 70/10/20 for neural networks and k-nearest neighbors (`paper_split`), and the
first 200 rows in halves for random forests (`forest_split`). Seeds are 0 to 24.
"""

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np

REPOSITORY = "sjwetzel/Public-How-to-get-the-most-out-of-Twinned-Regression-Methods"
COMMIT = "1c19dc14973b2faedd54f88a183f59020d244f42"
# Pinned to a commit, so that the files cannot change.
BASE_URL = f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/AnnEnsemble/data/"
_ALIASES = {"EF": "EE"}

PAPER_SEEDS = range(25)
"""The seeds of the paper's splits."""


@dataclass(frozen=True)
class Reader:
    """Format of a data file."""

    separator: str | None  # None is any white space
    header_lines: int
    columns: tuple[str, ...]  # of the file, including those that are dropped


@dataclass(frozen=True)
class Dataset:
    """Record of a data set of the paper.

    Parameters
    ----------
    key, name : str
        As in the paper.
    rows, features : int
        Shape of the X that `load` returns.
    columns : tuple of str
        Names of the features.
    target : str
        Name of the target.
    source, licence : str
        Where the data were first published, and on which terms.
    file, sha256 : str or None
        Name and hash of the file; None for a data set that is generated.
    reader : Reader or None
        Format of the file.
    notes : tuple of str
        Differences between the file and the paper, and other remarks.
    """

    key: str
    name: str
    rows: int
    features: int
    columns: tuple[str, ...]
    target: str
    source: str
    licence: str
    file: str | None = None
    sha256: str | None = None
    reader: Reader | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def url(self) -> str | None:
        """Address of the file; None if there is no file."""
        return None if self.file is None else BASE_URL + self.file


def _read_records() -> dict[str, Dataset]:
    """Return the records of `records.toml` by their key."""
    records = {}
    content = files("twinned.datasets").joinpath("records.toml").read_text("utf-8")
    for key, entry in tomllib.loads(content).items():
        columns, reader = tuple(entry.pop("columns")), None
        file_columns = entry.pop("file_columns", [*columns, entry["target"]])
        if "file" in entry:
            separator, n_lines = entry.pop("separator", None), entry.pop("header_lines")
            reader = Reader(separator, n_lines, tuple(file_columns))
        shape = {"features": len(columns), "columns": columns, "reader": reader}
        records[key] = Dataset(key=key, **entry | shape | {"notes": tuple(entry.get("notes", ()))})
    return records


RECORDS = _read_records()

KEYS = tuple(RECORDS)
"""The keys of the nine data sets."""


def info(key: str) -> Dataset:
    """Return the record of a data set.

    Parameters
    ----------
    key : str
        One of `KEYS`, in any case; EF, the paper's other name for EE, works too.

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
    ValueError: 'XY' is not a data set; the keys are BC, BH, CS, EE (or EF), RCL, TF, WN, WSB, YH.
    """
    if not isinstance(key, str):
        raise TypeError(
            f"the key of a data set must be one of the strings {_key_list()}, not {key!r} of type "
            f"{type(key).__name__}."
        )
    upper = key.upper()
    upper = _ALIASES.get(upper, upper)
    if upper not in RECORDS:
        raise ValueError(f"{key!r} is not a data set; the keys are {_key_list()}.")
    return RECORDS[upper]


def _key_list() -> str:
    other = {key: alias for alias, key in _ALIASES.items()}
    return ", ".join(f"{key} (or {other[key]})" if key in other else key for key in KEYS)


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


def _check_rows_and_seed(name: str, n_rows: int, minimum: int, seed: int) -> tuple[int, int]:
    from twinned.rows.validation import check_integer  # imports scikit-learn

    n_rows, seed = check_integer(name, n_rows, minimum), check_integer("seed", seed, minimum=0)
    if seed >= 2**32:
        raise ValueError(f"seed must be below 2**32, not {seed}.")
    return n_rows, seed
