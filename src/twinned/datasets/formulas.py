"""Generators of the three data sets that follow a formula: TF, RCL and WSB.

The author's file of RCL differs from the formula and the noise that the paper prints, that of WSB
has additional columns. Each generator therefore has two variants: like the file (the default), and
`as_printed`. Both variants generate the same points from the same seed.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from twinned.datasets.registry import info

TF_COLUMNS, RCL_COLUMNS, WSB_COLUMNS = (info(key).columns for key in ("TF", "RCL", "WSB"))

# The standard deviations of the residuals of the formulas in the files are 0.00997 over 4000 rows
# (RCL) and 0.0095 over 200 (WSB).
RCL_NOISE, WSB_NOISE, PRINTED_NOISE = 0.01, 0.0095, 0.1

Seed = int | np.random.RandomState | None


def tf_truth(X: ArrayLike) -> np.ndarray:
    """Return the test function `x1³ + x1² − x1 − 1 + x1 x2 + sin(x2)`.

    Parameters
    ----------
    X : array-like of shape (n, 2)
        The columns x1, x2.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> tf_truth([[0.0, 0.0], [1.0, 0.0]])
    array([-1.,  0.])
    """
    x1, x2 = _check_matrix(X, (2,), TF_COLUMNS).T
    return x1**3 + x1**2 - x1 - 1 + x1 * x2 + np.sin(x2)


def rcl_truth(X: ArrayLike, as_printed: bool = False) -> np.ndarray:
    """Return the current through an RCL circuit, without noise.

    The file follows `V0 cos(ωt) / sqrt(R² + |ωL − 1/(ωC)|)`. The paper prints the reactance
    `ωL − 1/(ωC)` squared, as in physics.

    Parameters
    ----------
    X : array-like of shape (n, 6)
        The columns V0, R, L, C, omega, t.
    as_printed : bool, default=False
        Square the reactance, as the paper prints it.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    At V0 = 4, R = 2, L = 6, C = ω = 1, t = 0 the reactance is 5.

    >>> point = [[4.0, 2.0, 6.0, 1.0, 1.0, 0.0]]
    >>> rcl_truth(point), 4 / 9**0.5
    (array([1.33333333]), 1.3333333333333333)
    >>> rcl_truth(point, as_printed=True).round(4), round(4 / 29**0.5, 4)
    (array([0.7428]), 0.7428)
    """
    voltage, resistance, inductance, capacity, omega, time = _check_matrix(X, (6,), RCL_COLUMNS).T
    reactance = omega * inductance - 1 / (omega * capacity)
    added = reactance**2 if as_printed else np.abs(reactance)
    return voltage * np.cos(omega * time) / np.sqrt(resistance**2 + added)


def wsb_truth(X: ArrayLike) -> np.ndarray:
    """Return the Wheatstone bridge voltage `U (R2/(R1 + R2) − R3/(R2 + R3))`, without noise.

    Parameters
    ----------
    X : array-like of shape (n, 4) or (n, 6)
        The columns U, R1, R2, R3, and optionally the two irrelevant ones of the file.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> wsb_truth([[2.0, 1.0, 1.0, 3.0]])
    array([-0.5])
    >>> wsb_truth([[2.0, 1.0, 1.0, 3.0, 7.0, 9.0]])
    array([-0.5])
    """
    supply, r1, r2, r3 = _check_matrix(X, (4, 6), WSB_COLUMNS).T[:4]
    return supply * (r2 / (r1 + r2) - r3 / (r2 + r3))


def make_tf(
    n: int = 1000, noise: float | None = 0.0, random_state: Seed = None
) -> tuple[pd.DataFrame, pd.Series]:
    """Generate the test function (TF) at points uniform on [−1, 1]².

    Parameters
    ----------
    n : int, default=1000
        Number of points.
    noise : float or None, default=0.0
        Standard deviation of the Gaussian noise added to y. None is 0, as in the paper.
    random_state : int, RandomState or None, default=None
        As in scikit-learn. `make_tf(random_state=0)` is the paper's data set.

    Returns
    -------
    X : DataFrame of shape (n, 2)
    y : Series of shape (n,)

    Examples
    --------
    >>> X, y = make_tf(random_state=0)
    >>> X.shape, round(float(y[0]), 4)
    ((1000, 2), -0.6279)
    """
    n, noise, rng = _check_arguments(n, noise, 0.0, False, random_state)
    # The author's expression, which reproduces his points exactly.
    X = pd.DataFrame(rng.random_sample((n, 2)) * 2 - 1, columns=list(TF_COLUMNS))
    return _with_noise(X, tf_truth(X), "y", noise, rng)


def make_rcl(
    n: int = 4000, noise: float | None = None, as_printed: bool = False, random_state: Seed = None
) -> tuple[pd.DataFrame, pd.Series]:
    """Generate the current through an RCL circuit (RCL) at points uniform on [1, 3]⁶.

    Parameters
    ----------
    n : int, default=4000
        Number of points.
    noise : float or None, default=None
        Standard deviation of the Gaussian noise added to y. None is 0.01 like the file, or 0.1
        as printed.
    as_printed : bool, default=False
        Follow the text of the paper instead of the author's file; see `rcl_truth`.
    random_state : int, RandomState or None, default=None
        As in scikit-learn. No seed gives the rows of the author's file; `load("RCL")` does.

    Returns
    -------
    X : DataFrame of shape (n, 6)
    y : Series of shape (n,)

    Examples
    --------
    >>> X, y = make_rcl(random_state=0)
    >>> list(X.columns)
    ['V0', 'R', 'L', 'C', 'omega', 't']
    >>> round(float((y - rcl_truth(X)).std()), 3)
    0.01
    """
    n, noise, rng = _check_arguments(n, noise, RCL_NOISE, as_printed, random_state)
    X = pd.DataFrame(rng.uniform(1, 3, (n, 6)), columns=list(RCL_COLUMNS))
    return _with_noise(X, rcl_truth(X, as_printed), "I", noise, rng)


def make_wsb(
    n: int = 200, noise: float | None = None, as_printed: bool = False, random_state: Seed = None
) -> tuple[pd.DataFrame, pd.Series]:
    """Generate the voltage of a Wheatstone bridge (WSB) at points uniform on [1, 3].

    Parameters
    ----------
    n : int, default=200
        Number of points.
    noise : float or None, default=None
        Standard deviation of the Gaussian noise added to y. None is 0.0095 like the file, or 0.1
        as printed.
    as_printed : bool, default=False
        Follow the text of the paper: four features. The author's file has two more, which do
        not enter the formula.
    random_state : int, RandomState or None, default=None
        As in scikit-learn. No seed gives the rows of the author's file; `load("WSB")` does.

    Returns
    -------
    X : DataFrame of shape (n, 6), or (n, 4) as printed
    y : Series of shape (n,)

    Examples
    --------
    >>> X, y = make_wsb(random_state=0)
    >>> list(X.columns)
    ['U', 'R1', 'R2', 'R3', 'unused1', 'unused2']
    >>> make_wsb(as_printed=True, random_state=0)[0].shape
    (200, 4)
    """
    n, noise, rng = _check_arguments(n, noise, WSB_NOISE, as_printed, random_state)
    # Six columns in both variants, so that a seed gives the same points in both.
    X = pd.DataFrame(rng.uniform(1, 3, (n, 6)), columns=list(WSB_COLUMNS))
    X = X.drop(columns=["unused1", "unused2"]) if as_printed else X
    return _with_noise(X, wsb_truth(X), "V", noise, rng)


def _check_arguments(
    n: int, noise: float | None, file_noise: float, as_printed: bool, random_state: Seed
) -> tuple[int, float, np.random.RandomState]:
    """Return the number of points, the noise (None is that of the variant) and the generator."""
    # Imported here because `twinned datasets list` does not need scikit-learn.
    from sklearn.utils import check_random_state

    from twinned.rows.validation import check_integer, check_real

    if noise is None:
        noise = PRINTED_NOISE if as_printed else file_noise
    noise = check_real("noise", noise)
    if noise < 0:
        raise ValueError(f"noise must be at least 0, not {noise!r}.")
    return check_integer("n", n), noise, check_random_state(random_state)


def _check_matrix(X: ArrayLike, widths: tuple[int, ...], columns: tuple[str, ...]) -> np.ndarray:
    """Return `X` as float64 of shape (n, width), with a width of `widths`."""
    matrix = np.asarray(X, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] not in widths:
        width = " or ".join(map(str, widths))
        shape = f"shape (n, {width}) with the columns {', '.join(columns)}"
        raise ValueError(f"X must have {shape}, not shape {matrix.shape}.")
    return matrix


def _with_noise(
    X: pd.DataFrame, truth: np.ndarray, target: str, noise: float, rng: np.random.RandomState
) -> tuple[pd.DataFrame, pd.Series]:
    values = truth + noise * rng.standard_normal(len(truth)) if noise > 0 else truth
    return X, pd.Series(values, name=target)
