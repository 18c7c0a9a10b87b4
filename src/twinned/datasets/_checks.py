"""The arguments of this room, checked at its door."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_count(value: Any, name: str, minimum: int = 1) -> int:
    """Give `value` back as an int of at least `minimum`.

    Examples
    --------
    >>> check_count(3, "n")
    3
    >>> check_count(0, "n")
    Traceback (most recent call last):
    ...
    ValueError: n is 0; give a whole number of at least 1.
    """
    # A bool passes as an int in Python, but n=True is always a slip.
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
        raise TypeError(
            f"{name} is {value!r} of type {type(value).__name__}; "
            f"give a whole number of at least {minimum}."
        )
    if value < minimum:
        raise ValueError(f"{name} is {value}; give a whole number of at least {minimum}.")
    return int(value)


def check_seed(value: Any, name: str = "seed") -> int:
    """Give `value` back as a seed that NumPy's legacy generator takes."""
    seed = check_count(value, name, minimum=0)
    if seed >= 2**32:
        raise ValueError(f"{name} is {seed}; give a whole number below 2**32 = {2**32}.")
    return seed


def check_noise(value: Any) -> float:
    """Give `value` back as a standard deviation: finite and not negative."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(
            f"noise is {value!r} of type {type(value).__name__}; give a number of at least 0, "
            "or None for the data set's own noise."
        )
    noise = float(value)
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise is {value!r}; a standard deviation is finite and at least 0.")
    return noise


def check_matrix(X: Any, widths: tuple[int, ...], columns: tuple[str, ...]) -> np.ndarray:
    """Give `X` back as float64 of shape (n, width), width among `widths`."""
    matrix = np.asarray(X, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] not in widths:
        wanted = " or ".join(str(width) for width in widths)
        raise ValueError(
            f"X has shape {matrix.shape}; give (n, {wanted}) with the columns {', '.join(columns)}."
        )
    return matrix
