"""Data files: search, download, verification and parsing.

A file is searched for in the folder of the environment variable `TWINNED_DATA`, then in the cache
(`TWINNED_CACHE`, or the cache folder of the system), then at a pinned commit of the repository that
publishes it. Only bytes with the recorded SHA-256 are parsed. `TWINNED_DATA` may have one archive
in place of the six files of the UCI standard splits.
"""

import io
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd

from twinned.datasets.formulas import make_tf
from twinned.datasets.registry import STANDARD_KEYS, Dataset, info
from twinned.exceptions import IntegrityError

DATA_VARIABLE, CACHE_VARIABLE = "TWINNED_DATA", "TWINNED_CACHE"
# Arrays NAME_X and NAME_y of the six sets, where NAME is that of the repository.
ARCHIVE = "uci_standard_splits.npz"
ARCHIVE_SHA256 = "299d96d024c1cea15e841eb1c3e62a8a966a971c95982045611afccfb0fc07a3"


def load_dataset(key: str) -> tuple[pd.DataFrame, pd.Series]:
    """Load a data set of the paper or of the UCI standard splits.

    Parameters
    ----------
    key : str
        BC, BH, CS, EE (or EF), RCL, TF, WN, WSB or YH of the paper; boston, concrete, energy,
        kin8nm, wine or yacht of the UCI standard splits; in any case.

    Returns
    -------
    X : DataFrame of shape (rows, features)
        float64, rows in the order of the file.
    y : Series of shape (rows,)
        float64.

    Raises
    ------
    ValueError
        If the key is unknown, or `TWINNED_DATA` is not a folder.
    IntegrityError
        If a file does not have the recorded SHA-256.
    OSError
        If the file is absent and cannot be downloaded.

    Examples
    --------
    TF needs no file.

    >>> X, y = load_dataset("TF")
    >>> X.shape, y.shape, list(X.columns)
    ((1000, 2), (1000,), ['x1', 'x2'])
    """
    record, path = info(key), fetch(key)
    if path is None:
        return make_tf(n=record.rows, random_state=0)
    # The bytes that are hashed are those that are parsed: the file cannot change in between.
    table = parse(_read_verified(path, record), record)
    return table[list(record.columns)].copy(), table[record.target].copy()


def fetch(key: str) -> Path | None:
    """Return the path of the verified file of a data set, downloading it if it is absent.

    Parameters
    ----------
    key : str
        As for `load_dataset`.

    Returns
    -------
    pathlib.Path or None
        None for TF, which needs no file.

    Examples
    --------
    >>> fetch("TF") is None
    True
    """
    record = info(key)
    if record.file is None:
        return None
    return _find_in_data_folder(record) or _download(record)


def _find_in_data_folder(record: Dataset) -> Path | None:
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise ValueError(f"{DATA_VARIABLE} is {value!r}, not a folder; correct or unset it.")
    # The user chose this folder: report a wrong file instead of silently using another one.
    for name in (str(record.file), *((ARCHIVE,) if record.key in STANDARD_KEYS else ())):
        if (path := folder / name).is_file():
            _read_verified(path, record)
            return path
    return None


@cache
def parse(content: bytes, record: Dataset) -> pd.DataFrame:
    r"""Parse the bytes of a file into the features and the target of `record`, as float64.

    Examples
    --------
    >>> rows = b"0.1 1 2 3 4 5 6\n\n0.2 1 2 3 4 5 7\n"
    >>> parse(rows, info("YH"))["residuary_resistance"].tolist()
    [6.0, 7.0]
    """
    names = [*record.columns, record.target]
    if record.key in STANDARD_KEYS and content.startswith(b"PK"):  # the archive, a zip file
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            matrix = [arrays[f"{Path(str(record.file)).stem}_{part}"] for part in "Xy"]
        return pd.DataFrame(np.column_stack(matrix), columns=names, dtype="float64")
    table = pd.read_csv(
        io.BytesIO(content),
        sep=record.separator or r"\s+",
        names=list(record.file_columns) or names,
        usecols=names,
        skiprows=record.header_lines,
        dtype=str,
    )
    # float() rounds correctly, as the author's loadtxt does; the parser of pandas is wrong in the
    # last bit in some versions.
    return table[names].map(float)


def _read_verified(path: Path, record: Dataset) -> bytes:
    content = path.read_bytes()
    digest = sha256(content).hexdigest()
    expected = ARCHIVE_SHA256 if path.name == ARCHIVE else record.sha256
    if digest != expected:
        raise IntegrityError(
            f"{path} is not the file of data set {record.key}: its SHA-256 is {digest}, expected "
            f"{expected}; replace it by {record.url} (as {record.file}), or remove it."
        )
    return content


def _download(record: Dataset) -> Path:
    import pooch

    folder = Path(os.environ.get(CACHE_VARIABLE) or pooch.os_cache("twinned")).expanduser()
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # below, pooch announces each download on stderr
    try:
        # Downloads to a temporary file beside the target, verifies it, then renames it; a file that
        # is there is not downloaded again.
        path = pooch.retrieve(
            record.url, known_hash=f"sha256:{record.sha256}", fname=record.file, path=folder
        )
    except (OSError, ValueError) as error:  # errors of requests are those of the system, too
        kind = OSError if isinstance(error, OSError) else IntegrityError
        raise kind(
            f"could not download {record.url} into {folder} ({' '.join(str(error).split())}); get "
            f"it elsewhere as {record.file} and set {DATA_VARIABLE} to its folder."
        ) from error
    finally:
        logger.setLevel(level)
    return Path(path)
