"""Finding a data file, downloading it if need be, verifying it always, reading it.

A file is looked for in the folder that the environment variable `TWINNED_DATA` names, then in
the cache (`TWINNED_CACHE`, or the system's cache folder), then at the pinned commit of the
author's repository. Only bytes with the recorded SHA-256 are ever read.
"""

import csv
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from twinned.datasets.formulas import make_tf
from twinned.datasets.registry import Dataset, info
from twinned.exceptions import IntegrityError

DATA_VARIABLE = "TWINNED_DATA"
CACHE_VARIABLE = "TWINNED_CACHE"

# Parsed once per process. The key is enough: bytes are verified before this is looked at, and
# verified bytes of one data set are always the same bytes.
_parsed: dict[str, pd.DataFrame] = {}


def load(key: str) -> tuple[pd.DataFrame, pd.Series]:
    """Load a data set of the paper.

    Parameters
    ----------
    key : str
        BC, BH, CS, EE (or EF), RCL, TF, WN, WSB or YH, in any case.

    Returns
    -------
    X : DataFrame of shape (rows, features)
        float64, rows in the order of the file.
    y : Series of shape (rows,)
        float64.

    Raises
    ------
    ValueError
        The key is unknown, or `TWINNED_DATA` names no folder.
    IntegrityError
        A file has not the recorded SHA-256.
    OSError
        The file is nowhere at hand and could not be downloaded.

    Examples
    --------
    TF needs no file.

    >>> X, y = load("TF")
    >>> X.shape, y.shape, list(X.columns)
    ((1000, 2), (1000,), ['x1', 'x2'])
    """
    record = info(key)
    if record.file is None:
        return make_tf(n=record.rows, random_state=0)
    # The bytes that are hashed are the bytes that are parsed: nothing can change in between.
    content = _read_verified(fetch(key), record)
    if record.key not in _parsed:
        _parsed[record.key] = parse(content, record)
    table = _parsed[record.key]
    return table[list(record.columns)].copy(), table[record.target].copy()


def fetch(key: str) -> Path | None:
    """Return the verified file of a data set, downloading it if it is not at hand.

    Parameters
    ----------
    key : str
        As for `load`.

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
    found, _ = locate(record)
    return _download(record) if found is None else found


def locate(record: Dataset) -> tuple[Path | None, str]:
    """Look for the verified file of `record` on this machine; nothing is downloaded.

    Returns
    -------
    path : pathlib.Path or None
    place : str
        "built in" (no file needed), "TWINNED_DATA", "cache" or "absent".

    Examples
    --------
    >>> locate(info("TF"))
    (None, 'built in')
    """
    if record.file is None:
        return None, "built in"
    folder = _data_folder()
    if folder is not None and (folder / record.file).is_file():
        # The user pointed here, so a wrong file is the user's to know about: refuse it
        # instead of quietly taking another one.
        _read_verified(folder / record.file, record)
        return folder / record.file, DATA_VARIABLE
    cached = cache_folder() / record.file
    # The cache is ours: a damaged file there counts as absent and is downloaded again.
    if cached.is_file() and _hash(cached.read_bytes()) == record.sha256:
        return cached, "cache"
    return None, "absent"


def cache_folder() -> Path:
    """Return the folder where downloads are kept: `TWINNED_CACHE`, or the system's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("twinned"))


def parse(content: bytes, record: Dataset) -> pd.DataFrame:
    r"""Turn the bytes of a file into the features and the target of `record`, as float64.

    Examples
    --------
    >>> rows = b"0.1 1 2 3 4 5 6\n\n0.2 1 2 3 4 5 7\n"
    >>> parse(rows, info("YH"))["residuary_resistance"].tolist()
    [6.0, 7.0]
    """
    if record.reader is None:
        raise ValueError(f"{record.key} needs no file, so there is nothing to parse.")
    lines = content.decode("utf-8").splitlines()[record.reader.header_lines :]
    filled = [line for line in lines if line.strip()]
    separator = record.reader.separator
    rows = csv.reader(filled, delimiter=separator) if separator else map(str.split, filled)
    wanted = [*record.columns, record.target]
    places = [record.reader.columns.index(name) for name in wanted]
    # float() rounds correctly, as the author's loadtxt does; pandas' own parser is a last bit
    # off in some versions, and the options that mend it come and go.
    values = [[float(row[place]) for place in places] for row in rows]
    return pd.DataFrame(values, columns=wanted, dtype="float64")


def _data_folder() -> Path | None:
    named = os.environ.get(DATA_VARIABLE)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise ValueError(
            f"{DATA_VARIABLE} is {named!r}, which is no folder; "
            "name the folder that holds the data files, or unset it."
        )
    return folder


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_verified(path: Path | None, record: Dataset) -> bytes:
    if path is None:
        raise ValueError(f"{record.key} needs no file, so there is nothing to read.")
    content = path.read_bytes()
    found = _hash(content)
    if found != record.sha256:
        raise IntegrityError(
            f"{path} is not the file of data set {record.key}: "
            f"its SHA-256 is {found}, expected {record.sha256}; "
            f"replace it by the one at {record.url}, or move it away."
        )
    return content


def _download(record: Dataset) -> Path:
    import pooch

    assert record.url is not None  # fetch asks only for sets that have a file
    folder = cache_folder()
    try:
        with _quiet(pooch.get_logger()):
            # Downloads beside the target, verifies, and only then moves into place.
            path = pooch.retrieve(
                record.url,
                known_hash=f"sha256:{record.sha256}",
                fname=record.file,
                path=folder,
            )
    except OSError as error:  # every error of requests is one, and so is a full disk
        raise OSError(
            f"could not download {record.file} of data set {record.key} from {record.url} "
            f"into {folder} ({_reason(error)}); "
            f"get the file by other means, put it into a folder and set {DATA_VARIABLE} to it."
        ) from error
    except ValueError as error:  # how pooch reports a wrong hash
        raise IntegrityError(
            f"what came from {record.url} is not the file of data set {record.key}, "
            f"expected SHA-256 {record.sha256} ({_reason(error)}); "
            f"get {record.file} by other means, put it into a folder and set {DATA_VARIABLE} to it."
        ) from error
    return Path(path)


def _reason(error: Exception) -> str:
    """Say in one short line what went wrong below; the URL stands in our own message."""
    text = " ".join(str(error).split())
    text = re.split(r" (?:for|with) url: |\. Deleted download", text)[0]
    return f"{type(error).__name__}: {text}"


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep pooch's announcements off stderr; what matters is returned or raised."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
