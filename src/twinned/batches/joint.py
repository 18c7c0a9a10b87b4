"""A Gaussian process of a common function and of the deviations of batches, by likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from twinned.batches.effects import Deviation
from twinned.rows.neighbors import KERNELS, LearnedMetric
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats, Indices

MAX_ROWS = 2000  # whose deviations are computed at once
_COARSE_ROWS, _FINE_ROWS = 250, 400  # by which the likelihood is computed
_STEPS, _COARSE_STEPS, _FINE_STEPS = 40, 20, 15  # of few rows, and of some and of more of many
_ROWS_OF_BATCH = 30  # at least, where a batch has as many
# Logarithms of length scales and then of the variances of the common function, the linear and the
# smooth deviation, the factor of its length scales, the noise, and the constants: bounds, and means
# and deviations of priors. Features and y have unit variance.
_START = (0.5, 0.0, -3.0, -3.0, 0.0, -2.0, -1.0)
_BOUNDS = (
    (-3.0, 7.0),
    (-7.0, 6.0),
    (-14.0, 8.0),
    (-14.0, 4.0),
    (-1.5, 2.5),
    (-14.0, 2.0),
    (-14.0, 6.0),
)
_MEANS = np.array([0.7, 0.0, -3.0, -3.0, 0.5, -3.0, -2.0])
_STDS = np.array([1.5, 2.0, 3.0, 3.0, 0.7, 4.0, 4.0])
_NONE, _OFFSETS, _FUNCTIONS = range(3)  # what deviations are
# Of the logarithm of the posterior density, by which less simple deviations are chosen.
_CLEAR_GAIN = 1.0


@dataclass(frozen=True, eq=False)
class JointProcess:
    """The covariance of a common function, in length scales of the deviations, and of these."""

    deviation: Deviation
    amplitude: float  # variance of the common function
    has_free_constants: bool  # of batches: of any size, and not from a normal distribution

    def held_out(
        self, features: Floats, y: Floats, codes: Indices, weight: Floats, fold: Indices
    ) -> tuple[Floats, Floats]:
        """(row,): deviations, and values of the common function, as expected by other folds.

        Those of many rows are computed in parts, in the order of batches. `features` are scaled.
        """
        deviations, common = np.zeros((2, len(y)))
        order, _ = order_of_batches(codes)
        for rows in np.array_split(order, -(-len(y) // MAX_ROWS)):
            rows_of_part = features[rows], y[rows], codes[rows], weight[rows]
            deviations[rows], common[rows] = self._held_out(*rows_of_part, fold[rows])
        return deviations, common

    def _held_out(
        self, features: Floats, y: Floats, codes: Indices, weight: Floats, fold: Indices
    ) -> tuple[Floats, Floats]:
        projection, own = self.project(features, codes, weight)
        smoother, solved = own @ projection.matrix, projection.matrix @ y
        if self.has_free_constants:
            smoother += projection.design @ projection.of_design
        errors, deviations = np.zeros(len(y)), smoother @ y
        for number in np.unique(fold):
            rows = np.flatnonzero(fold == number)
            block = np.ix_(rows, rows)
            errors[rows] = np.linalg.lstsq(projection.matrix[block], solved[rows], rcond=1e-12)[0]
            deviations[rows] -= smoother[block] @ errors[rows]
        return deviations, y - errors - deviations

    def project(
        self, features: Floats, codes: Indices, weight: Floats
    ) -> tuple[Projection, Floats]:
        """Least squares of values, and (row, row) covariances of the deviations."""
        deviation = self.deviation
        own = deviation.covariance(features, features)
        if not self.has_free_constants:
            own += deviation.between
        own *= codes[:, None] == codes
        squares = cdist(features, features, "sqeuclidean")
        covariance = self.amplitude * KERNELS["matern"](squares)[0] + own
        covariance[np.diag_indices_from(covariance)] += deviation.noise / weight + 1e-10
        return Projection.of(covariance, _constants(codes, self.has_free_constants)), own


@dataclass(frozen=True, eq=False)
class CommonFunction:
    """The common function as it is known by rows of all batches, with shrunk constants."""

    joint: JointProcess
    features: Floats  # (row, encoded feature), scaled
    y: Floats
    codes: Indices
    weight: Floats
    shift: float  # of y by the mean of the deviations

    @property
    def metric(self) -> LearnedMetric:
        """Length scales and noise, from which the search of a similar process may start."""
        deviation = self.joint.deviation
        return LearnedMetric(
            center=deviation.center,
            scale=1.0 / deviation.length_scales,
            length_scales=deviation.length_scales,
            noise=deviation.noise / self.joint.amplitude,
            slopes=np.full(len(deviation.center), np.nan),
        )

    def held_out(self, fold: Indices) -> Floats:
        """(row,): values as expected by the rows of other folds."""
        rows = self.features, self.y, self.codes, self.weight
        return self.joint.held_out(*rows, fold)[1] - self.shift

    def coefficients(self) -> tuple[Floats, float]:
        """(row,): those of the correlations with the rows in the expected value, and its mean."""
        projection, _ = self.joint.project(self.features, self.codes, self.weight)
        dual = self.joint.amplitude * (projection.matrix @ self.y)
        return dual, float((projection.of_design @ self.y)[0]) - self.shift


@dataclass(frozen=True)
class Projection:
    """Matrices of generalized least squares with a covariance of the errors."""

    design: Floats  # (row, column)
    of_design: Floats  # (column, row): coefficients by values
    matrix: Floats  # (row, row): the inverse covariance of what the design does not explain
    log_determinant: float  # of the restricted likelihood

    @classmethod
    def of(cls, covariance: Floats, design: Floats) -> Projection:
        """Of a covariance (row, row) and a design (row, column)."""
        factor, failed = lapack.dpotrf(covariance, lower=True, clean=True)
        if failed:
            raise np.linalg.LinAlgError("The covariance of the rows is not positive definite.")
        inverse = lapack.dpotri(factor, lower=True)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        solved = inverse @ design
        information = design.T @ solved
        of_design = np.linalg.solve(information, solved.T)
        determinant = 2.0 * np.log(np.diag(factor)).sum() + np.linalg.slogdet(information)[1]
        return cls(design, of_design, inverse - solved @ of_design, float(determinant))


def order_of_batches(codes: Indices) -> tuple[Indices, Indices]:
    """Rows in the order of their batches, those of a batch in random order; and its position.

    >>> codes = np.array([7, 2, 7, 2, 7])
    >>> rows, position = order_of_batches(codes)
    >>> codes[rows], position
    (array([2, 2, 7, 7, 7]), array([0, 1, 0, 1, 2]))
    """
    order = np.random.RandomState(0).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    ordered = codes[order]
    return order, np.arange(len(order)) - np.searchsorted(ordered, ordered)


def fit_joint(
    features: Floats,
    y: Floats,
    codes: Indices,
    weight: Floats,
    *,
    has_free_constants: bool,
    kind: str,
) -> JointProcess:
    """Fit to y (row,) by the restricted likelihood.

    `features` are (row, encoded feature), where a missing value counts as the mean. With the kind
    `"function"`, deviations are functions. With `"auto"` they are constants, or there are none,
    unless the posterior density is clearly lower; with `"offset"`, they are constants or none.
    """
    scaling, target = StandardScaling.fit(features), StandardScaling.fit(y[:, None])
    X, unit = scaling.transform(features)[:, scaling.varying], float(target.scale[0]) or 1.0
    likelihood = _Likelihood(
        X.round(9), (y - target.center[0]) / unit, codes, weight, has_free_constants
    )
    values = likelihood.search(kind)
    n_features = X.shape[1]
    amplitude, slope, smooth, stretch, noise, between = values[n_features:]
    lengths = np.full(features.shape[1], np.inf)
    lengths[scaling.varying] = scaling.scale[scaling.varying] * values[:n_features]
    deviation = Deviation(
        center=scaling.center,
        length_scales=lengths,
        slope=float(slope * unit**2),
        smooth=float(smooth * unit**2),
        stretch=float(stretch) or 1.0,
        noise=float(noise * unit**2),
        between=float(between * unit**2),
    )
    return JointProcess(deviation, float(amplitude * unit**2), has_free_constants)


@dataclass(frozen=True, eq=False)
class _Likelihood:
    X: Floats  # (row, feature), standardized
    y: Floats
    codes: Indices
    weight: Floats
    has_free_constants: bool

    def search(self, kind: str) -> Floats:
        """The parameters of the highest posterior density; 0 for those that are not used."""
        order = self._rows_of_search()
        is_small = len(order) <= _COARSE_ROWS
        some, level = order[:_COARSE_ROWS], _OFFSETS if kind == "offset" else _FUNCTIONS
        n_steps = _STEPS if is_small else _COARSE_STEPS
        best = self.descend(some, self._expand(_START), n_steps, level)
        simplest = _OFFSETS if self.has_free_constants else _NONE
        if kind == "function":
            simplest = _FUNCTIONS
        for lower in range(level - 1, simplest - 1, -1):
            simpler = self.descend(some, best.x, _FINE_STEPS, lower)
            if simpler.fun > best.fun + _CLEAR_GAIN:
                break
            best, level = simpler, lower
        if not is_small:
            best = self.descend(order[:_FINE_ROWS], best.x, _FINE_STEPS, level)
        return np.where(self.free(level), np.exp(best.x), 0.0)

    def _rows_of_search(self) -> Indices:
        """Rows of whole batches in random order, with at most so many of each batch."""
        rank = np.random.RandomState(1).permutation(int(self.codes.max()) + 1)
        order, position = order_of_batches(rank[self.codes])
        n_batches = len(np.unique(self.codes))
        return order[position < max(_ROWS_OF_BATCH, _FINE_ROWS // n_batches)]

    def _expand(self, values: tuple[float, ...]) -> Floats:
        """All parameters, from a start whose first value is the length scale of one feature."""
        n_features = self.X.shape[1]
        length = values[0] + 0.5 * np.log(max(n_features, 1))
        return np.append(np.full(n_features, length), values[1:])

    def free(self, level: int) -> NDArray[np.bool_]:
        """The parameters of a process with such deviations."""
        n_features = self.X.shape[1]
        free = np.ones(n_features + len(_MEANS) - 1, dtype=bool)
        free[n_features + 1 : n_features + 4] = level == _FUNCTIONS
        free[-1] = level > _NONE and not self.has_free_constants
        return free

    def descend(self, rows: Indices, start: Floats, n_steps: int, level: int) -> Any:
        """The result of a search on some of the rows."""
        bounds = [_BOUNDS[0]] * self.X.shape[1] + list(_BOUNDS[1:])
        return minimize(
            self.negative,
            start,
            args=(self.free(level), *self.parts(rows)),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": n_steps},
        )

    def parts(self, rows: Indices) -> tuple[Any, ...]:
        """Arguments of `negative` from some of the rows.

        The last ones are the design of the constants (row, constant) and the pairs of rows of the
        same batch, on which deviations depend.
        """
        codes = self.codes[rows]
        same = np.nonzero(codes[:, None] == codes)
        design = _constants(codes, self.has_free_constants)
        return self.X[rows], self.y[rows], self.weight[rows], design, same

    def negative(
        self,
        parameters: Floats,
        free: NDArray[np.bool_],
        X: Floats,
        y: Floats,
        weight: Floats,
        design: Floats,
        same: tuple[Indices, Indices],
    ) -> tuple[float, Floats]:
        """The negative logarithm of the likelihood and prior, and its gradient."""
        n_features = X.shape[1]
        value, gradient = _prior(parameters, free)
        amplitude, slope, smooth, stretch, noise, between = np.where(
            free[n_features:], np.exp(parameters[n_features:]), [1, 0, 0, 1, 1, 0]
        )
        slope /= max(n_features, 1)
        scaled = X / np.exp(parameters[:n_features])
        products = scaled @ scaled.T
        norms = np.diag(products)
        squares = np.maximum(norms[:, None] + norms - 2.0 * products, 0.0)
        correlation, by_square = KERNELS["matern"](squares)
        own_squares, own_products = squares[same], products[same]
        near, near_by_square = KERNELS["matern"](own_squares / stretch**2)
        covariance = amplitude * correlation
        covariance[same] += slope * own_products + smooth * near + between
        covariance[np.diag_indices_from(covariance)] += noise / weight + 1e-9
        try:
            projection = Projection.of(covariance, design)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(parameters)
        solved = projection.matrix @ y
        value += 0.5 * (float(y @ solved) + projection.log_determinant)
        sensitivity = 0.5 * (projection.matrix - np.outer(solved, solved))
        own = sensitivity[same]
        of_smooth = smooth / stretch**2 * own * near_by_square
        by_squares = amplitude * sensitivity * by_square
        by_squares[same] += of_smooth
        by_products = 4.0 * by_squares
        by_products[same] -= 2.0 * slope * own
        lengths = np.einsum("ij,ij->j", scaled, by_products @ scaled)
        lengths -= 4.0 * by_squares.sum(axis=1) @ scaled**2
        others = [
            amplitude * np.sum(sensitivity * correlation),
            slope * np.sum(own * own_products),
            smooth * np.sum(own * near),
            -2.0 * np.sum(of_smooth * own_squares),
            noise * np.sum(np.diag(sensitivity) / weight),
            between * np.sum(own),
        ]
        return value, gradient + np.where(free, np.append(lengths, others), 0.0)


def _constants(codes: Indices, of_batches: bool) -> Floats:
    """(row, constant): 1 for the constant of the batch of each row, or for that of all rows."""
    if not of_batches:
        return np.ones((len(codes), 1))
    return (codes[:, None] == np.unique(codes)).astype(float)


def _prior(parameters: Floats, free: NDArray[np.bool_]) -> tuple[float, Floats]:
    """The negative logarithm of the prior, and its gradient."""
    n_features = len(parameters) - len(_MEANS) + 1
    mean = np.append(np.full(n_features, _MEANS[0]), _MEANS[1:])
    mean[:n_features] += 0.5 * np.log(max(n_features, 1))
    std = np.append(np.full(n_features, _STDS[0]), _STDS[1:])
    scores = np.where(free, (parameters - mean) / std, 0.0)
    return 0.5 * float(np.sum(scores**2)), scores / std
